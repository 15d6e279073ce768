"""`fumehood run -- CMD`: any command in a cage, its standard streams passed through, so that it can front a
stdio MCP server.

Exit code: the command's own when it ran to its end (128 + n for a signal); a limit, a denial or a cage that
cannot be built give the codes of fumehood. No configuration is needed; `--policy FILE` takes one for its
[host] table and for the tool whose rules and limits hold.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fumehood._cli._loop import run_async
from fumehood._cli._output import Output
from fumehood._cli._settings import Settings, pass_settings
from fumehood._cli._values import SECONDS, memory_size
from fumehood._cli.call import handed_back, not_handed_back, refusals, show_failure
from fumehood.policies.errors import ConfigError
from fumehood.policies.load import FILE_NAME

if TYPE_CHECKING:
    from fumehood import CallResult
    from fumehood.isolate import Limits, Signals
    from fumehood.policies.config import Config, ToolConfig

CODE_NOT_RUN = 2
"""The program named on the command line cannot be run: bad usage, and never mistaken for the
program's own 126 or 127.
"""

CAPTURED = 64 << 20
"""Bytes of output that `--format json` holds; past it the command is killed at the limit `output`."""


@dataclass
class _Grants:
    """What the command may have, from the policy's tool and from the options."""

    allow: list[Any] = field(default_factory=list)
    deny: list[Any] = field(default_factory=list)
    read: list[Path] = field(default_factory=list)
    write: list[Path] = field(default_factory=list)
    collect: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    secrets: frozenset[str] = frozenset()
    limits: Limits | None = None


@click.command(context_settings={"allow_interspersed_args": False}, short_help="Any command in a sandbox.")
@click.option(
    "--policy",
    "policy_file",
    metavar="FILE",
    help="A fumehood.toml: its [host] table holds, and one tool's rules and limits.",
)
@click.option(
    "--tool",
    metavar="NAME",
    help="Whose egress, deny, env, read, write and limits hold; needed when the file has several tools.",
)
@click.option("--allow", metavar="RULE", multiple=True, help="An egress rule, as in `egress`. Repeatable.")
@click.option(
    "--deny", metavar="RULE", multiple=True, help="An egress rule that wins over every --allow. Repeatable."
)
@click.option("--read", metavar="PATH", multiple=True, help="A path the command may read. Repeatable.")
@click.option("--write", metavar="PATH", multiple=True, help="A path the command may write. Repeatable.")
@click.option(
    "--collect",
    metavar="PATTERN",
    multiple=True,
    help="Files of its /tmp to keep in the content store when it ended with 0, as 'out/*.png'. Repeatable.",
)
@click.option(
    "--env",
    metavar="NAME[=VALUE]",
    multiple=True,
    help="A variable; without =VALUE the caller's own value. Repeatable.",
)
@click.option(
    "--time",
    "time_s",
    metavar="SECONDS",
    type=SECONDS,
    help="Wall time, then SIGKILL. Default: a day.",
)
@click.option("--memory", metavar="SIZE", help='As "512 MiB". Default: 4 GiB.')
@click.argument("command", metavar="-- CMD [ARG]...", nargs=-1, required=True, type=click.UNPROCESSED)
@pass_settings
@click.pass_context
def run(
    ctx: click.Context,
    settings: Settings,
    policy_file: str | None,
    tool: str | None,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    read: tuple[str, ...],
    write: tuple[str, ...],
    collect: tuple[str, ...],
    env: tuple[str, ...],
    time_s: float | None,
    memory: str | None,
    command: tuple[str, ...],
) -> None:
    """Run CMD in a sandbox with stdin, stdout and stderr passed through.

    Signals go on to CMD. One that SIGINT, SIGTERM or SIGHUP does not end is killed 5 s later, or by the
    second of its kind, with everything it started.

    It sees the system read-only, a private /tmp, what --read and --write name, and the variables of --env
    beside PATH. No network but what --allow names. The current folder stays the working folder when it lies
    in a granted path; else it is /tmp.
    """
    if policy_file is not None:
        settings.config = policy_file
    config = settings.load_or_default()
    grants = _from_tool(config, tool) if policy_file is not None or tool is not None else _Grants()
    _from_options(grants, allow, deny, read, write, env)
    grants.collect += collect
    grants.limits = _limits(grants.limits, time_s, memory)
    if settings.format == "json":
        grants.limits = replace(grants.limits, output=min(grants.limits.output, CAPTURED))
    from fumehood.isolate import Signals

    signals = Signals()
    out = Output(settings)
    found = os.path.lexists(FILE_NAME)
    work = _run(config, command, grants, signals, out)
    result = run_async(work, signals.send)
    if settings.format == "json":
        out.json(result.to_json())
    elif result.outcome not in ("ok", "tool_error") and not _ended_by_itself(result):
        show_failure(out, result, grants.limits)
    elif not settings.quiet and sys.stderr.isatty():
        for line in refusals(result):
            out.note(f"fumehood: {line}", "yellow")
    if settings.format == "text":
        for line in handed_back(result.parts):
            out.note(line, wrap=False)
        for line in not_handed_back(result.uncollected):
            out.note(line, "yellow")
    if not found and os.path.lexists(FILE_NAME):
        out.problem(
            f"fumehood: the command left {FILE_NAME} here, and the next fumehood in this folder obeys it; "
            "look at it first",
            "yellow",
        )
    ctx.exit(exit_code(result))


async def _run(
    config: Config, command: Sequence[str], grants: _Grants, signals: Signals, out: Output
) -> CallResult:
    from fumehood import Host, _terminal

    passed = out.settings.format == "text"
    async with contextlib.AsyncExitStack() as stack:
        host = await stack.enter_async_context(Host(config, spares=0))
        if grants.allow and not host.has_doors:
            out.problem(
                f"fumehood: in the tier {host.tier} a program has no network, whatever --allow says", "yellow"
            )
        streams: tuple[int, int | None, int | None] = (0, 1, 2) if passed else (0, None, None)
        if passed and _terminal.wanted():
            streams = (await stack.enter_async_context(_terminal.joined()),) * 3
        return await host.run(
            command,
            allow=grants.allow,
            deny=grants.deny,
            read=grants.read,
            write=grants.write,
            collect=grants.collect,
            env=grants.env,
            secret_names=grants.secrets,
            limits=grants.limits,
            streams=streams,
            signals=signals,
        )


def exit_code(result: CallResult) -> int:
    """The command's own code when it ran to its end, else fumehood's."""
    if _ended_by_itself(result):
        assert result.process_code is not None
        return result.process_code if result.process_code >= 0 else 128 - result.process_code
    if result.outcome == "sandbox_error" and result.reason == "start":
        return CODE_NOT_RUN
    return result.exit_code


def _ended_by_itself(result: CallResult) -> bool:
    """Not killed at a limit, not refused, and it was the command that ended, not our own code before it."""
    ended = result.outcome in ("ok", "tool_error") or (
        result.outcome == "sandbox_error" and result.reason == "crashed"
    )
    return ended and result.process_code is not None


# -- what the command may have -------------------------------------------------------------------------------


def _from_tool(config: Config, name: str | None) -> _Grants:
    """The grants of one tool of the file: the one named, or the only one. A file without tools
    grants nothing.
    """
    from fumehood._toolspec import call_environment

    if name is None and not config.tools:
        return _Grants()
    if name is None and len(config.tools) > 1:
        raise ConfigError(
            f"{config.source} has {len(config.tools)} tools: {', '.join(sorted(config.tools))}",
            hint="say whose rules hold: --tool NAME",
        )
    if name is not None and name not in config.tools:
        known = ", ".join(sorted(config.tools)) or "none"
        raise ConfigError(
            f"there is no tool {name!r} in {config.source or 'the defaults'}", hint=f"configured: {known}"
        )
    tool = config.tools[name] if name is not None else next(iter(config.tools.values()))
    env, secrets = call_environment(tool, config)
    return _Grants(
        allow=list(tool.egress), deny=list(tool.deny), read=list(tool.read), write=list(tool.write),
        collect=list(tool.collect), env=env, secrets=secrets, limits=_tool_limits(tool),
    )  # fmt: skip


def _tool_limits(tool: ToolConfig) -> Limits:
    from fumehood._toolspec import limits_of

    return limits_of(tool)


def _from_options(
    grants: _Grants,
    allow: Sequence[str],
    deny: Sequence[str],
    read: Sequence[str],
    write: Sequence[str],
    env: Sequence[str],
) -> None:
    from fumehood.policies.rules import parse_rule

    grants.allow += [parse_rule(text, where="--allow") for text in allow]
    grants.deny += [parse_rule(text, where="--deny", deny=True) for text in deny]
    for option, paths, into in (("--read", read, grants.read), ("--write", write, grants.write)):
        for path in paths:
            if not os.path.lexists(path):
                raise ConfigError(
                    f"{option} {path!r}: there is no such file or folder", hint="name one that exists"
                )
            into.append(Path(path).absolute())
    for text in env:
        name, value = _variable(text)
        grants.env[name] = value


def _variable(text: str) -> tuple[str, str]:
    from fumehood.policies._env_names import NAME

    name, given, value = text.partition("=")
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"--env {text[:80]!r}: {name[:80]!r} is no name of a variable",
            hint="write --env NAME=VALUE or --env NAME",
        )
    if given:
        return name, value
    if name not in os.environ:
        raise ConfigError(
            f"--env {name}: is not set in fumehood's own environment",
            hint=f"set it, or write --env {name}=VALUE",
        )
    return name, os.environ[name]


def _limits(base: Limits | None, time_s: float | None, memory: str | None) -> Limits:
    from fumehood._host import RUN_LIMITS

    found = base or RUN_LIMITS
    if time_s is not None:
        found = replace(found, timeout_s=time_s)
    if memory is not None:
        found = replace(found, memory=memory_size(memory, least=8 << 20))
    return found
