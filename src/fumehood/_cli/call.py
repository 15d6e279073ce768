"""`fumehood call TOOL`: one call. The value goes to stdout, everything about the call to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import click

from fumehood._cli._loop import progress, run_async
from fumehood._cli._output import Output, one_line, visible
from fumehood._cli._settings import Settings, pass_settings
from fumehood._cli._values import NAME, read_file
from fumehood.policies.errors import ConfigError

if TYPE_CHECKING:
    from fumehood import CallResult
    from fumehood.isolate import Limits

MOST_INPUT = 64 << 20
"""Bytes read of an input. A call takes 8 MiB as compact JSON; escapes and blanks may make more of them."""

NOT_POLICY = ("no-answer", "upstream")
"""Reasons of a connection that policy had allowed."""

SHOWN_TEXT = 4000
"""Characters of a tool's stdout or stderr shown beside a failure; --format json has all of it."""


@click.command()
@click.argument("tool")
@click.argument("input", metavar="[JSON|@FILE|-]", required=False)
@click.option("--execution", metavar="ID", type=NAME, help="Group the call's rows in the log under this id.")
@click.option(
    "--principal", metavar="NAME", type=NAME, help="On whose behalf the call is made; stands in the log."
)
@pass_settings
@click.pass_context
def call(
    ctx: click.Context,
    settings: Settings,
    tool: str,
    input: str | None,
    execution: str | None,
    principal: str | None,
) -> None:
    """Call TOOL once with a JSON value: as text, from a file (@FILE), or from stdin (-). Without one: {}.

    Prints the tool's value. Exit code 0 ok, 1 the tool failed, 3 denied, 4 no sandbox, 5 a limit was hit.
    """
    from fumehood import Host
    from fumehood._toolspec import limits_of

    config = settings.load()
    value = read_input(input)

    async def work() -> CallResult:
        with progress(settings, f"calling {one_line(tool)[:40]}"):
            async with Host(config, spares=0) as host:
                return await host.call(tool, value, execution_id=execution, principal=principal)

    result = run_async(work())
    out = Output(settings)
    if settings.format == "json":
        out.json(result.to_json())
    else:
        found = config.tools.get(tool)
        show_result(out, result, None if found is None else limits_of(found))
    ctx.exit(result.exit_code)


def read_input(given: str | None) -> Any:
    """The JSON value that the argument means.

    Raises ConfigError with line and column when it is not JSON.
    """
    if given is None:
        return {}
    if given == "-" or given.startswith("@"):
        file = given if given == "-" else given[1:]
        where = "stdin" if file == "-" else file
        data = read_file(file, most=MOST_INPUT, hint="@FILE names a file that holds JSON; - is stdin")
        return parse_json(decoded(data, where), where)
    return parse_json(given, "the input")


def parse_json(text: str, where: str) -> Any:
    """Strict JSON: no NaN, no name twice. Raises ConfigError naming line and column where there is one."""
    if not text.strip():
        raise ConfigError(f"{where}: is empty, and that is no JSON", hint="an empty object is {}")
    try:
        return json.loads(text, parse_constant=_no_constant, object_pairs_hook=_no_repeats)
    except json.JSONDecodeError as error:
        line = text.splitlines()[error.lineno - 1] if error.lineno <= len(text.splitlines()) else ""
        raise ConfigError(
            f"{where}, line {error.lineno}, column {error.colno}: not JSON: {error.msg}",
            hint=_json_hint(line, error.colno),
        ) from None
    except RecursionError:
        raise ConfigError(f"{where}: is nested too deeply") from None
    except ValueError as error:
        raise ConfigError(f"{where}: not JSON: {error}") from None


def _json_hint(line: str, column: int) -> str | None:
    found = line[column - 1 : column]
    if not line.strip():
        return None
    if found == "'":
        return 'JSON strings stand in "double quotes"'
    if found.isalpha() or found == "_":
        return (
            "names and texts stand in \"double quotes\"; in a shell write the whole value in 'single quotes'"
        )
    return f"there: {line[max(0, column - 21) : column + 20].strip()}"


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON value")


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice[:80]!r} stands twice in one object")
    return found


def decoded(data: bytes, where: str) -> str:
    """UTF-8 as text. Raises ConfigError naming line and column of what is none."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise ConfigError(
            f"{where}, line {line}, column {column}: byte 0x{data[error.start]:02x} is not UTF-8"
        ) from None


def show_result(out: Output, result: CallResult, limits: Limits | None = None) -> None:
    """Value on stdout; on stderr the tool's own output, refused connections and, when it failed, why."""
    if result.outcome == "ok":
        out.value(result.value)
        sys.stdout.flush()
    for name in ("stdout", "stderr"):
        text = getattr(result, name)
        if text.strip() and (result.outcome != "ok" or not out.settings.quiet):
            cut = " (cut off)" if result.truncated[name] or len(text) > SHOWN_TEXT else ""
            out.problem(f"--- {name} of the tool{cut}", "dim")
            out.problem(visible(text[:SHOWN_TEXT]).rstrip("\n"), wrap=False)
    for line in handed_back(result.parts):
        out.note(line, wrap=False)  # an address is copied whole
    for line in (*refusals(result), *violations(result.violations), *not_handed_back(result.uncollected)):
        out.note(line, "yellow")
    if result.outcome != "ok":
        show_failure(out, result, limits)


def refusals(result: CallResult) -> list[str]:
    """One line for each connection that policy refused, or that was allowed and came to nothing."""
    return [
        f"egress {'failed' if row['reason'] in NOT_POLICY else 'refused'}: {_place(row)} {row['reason']}"
        for row in result.egress
        if row["outcome"] == "deny"
    ]


def _place(row: Mapping[str, Any]) -> str:
    if not row["host"]:
        return "what names no host:"
    return one_line(str(row["host"])) + (f":{row['port']}" if row["port"] else "")


def violations(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """One line for each system call that the sandbox refused."""
    found = []
    for row in rows:
        often = f" ({row['count']} times)" if row["count"] > 1 else ""
        found.append(
            f"system call refused: {one_line(str(row['syscall']))}{often}: {one_line(str(row['why']))}"
        )
    return found


def handed_back(parts: Iterable[Mapping[str, Any]] | None) -> list[str]:
    """One line for each part that lies in the content store."""
    found = []
    for part in parts or ():
        ref = (part.get("source") or {}).get("ref") or {}
        if "address" in ref:
            name = one_line(str(part.get("name") or part.get("type")))
            what = one_line(f"{ref.get('size')} bytes of {part.get('media_type')}: {ref['address']}")
            found.append(f"file: {name}: {what}")
    return found


def not_handed_back(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """One line for each file that was asked for and not taken."""
    return [f"file not taken: {one_line(str(row['name']))}: {one_line(str(row['why']))}" for row in rows]


def show_failure(out: Output, result: CallResult, limits: Limits | None = None) -> None:
    """What happened, what to do, the sentence for the operator, and where to ask further."""
    from dataclasses import asdict

    from fumehood._cli._advice import reason_of, steps

    said = result.error or {}
    reason = f" ({result.reason})" if result.reason else ""
    message = one_line(str(said.get("message") or ""))
    kind = one_line(str(said.get("type") or ""))
    known = reason_of(result.reason, script=said.get("of") == "script")
    if known is not None and message in ("", known.model):
        message = known.operator
    if result.outcome == "tool_error" and kind and kind != "ExitCode":
        message = f"{kind}: {message}" if message else kind
        if said.get("during") == "import":
            message = f"while it was imported: {message}"
    hint = said.get("hint")
    if not isinstance(hint, str):
        end = {"outcome": result.outcome, "reason": result.reason, "error": said}
        found = steps(result.tool, end, result.egress, asdict(limits) if limits is not None else None)
        hint = found[0] if found else None
    out.error(f"{one_line(result.tool)}: {result.outcome}{reason}: {message or 'no further word'}", hint)
    trace = str(said.get("trace") or "")
    if result.outcome == "tool_error" and trace.startswith(("Traceback", "  ")):
        out.note(visible(trace[-SHOWN_TEXT:]).rstrip(), "dim", wrap=False)
    if known is not None and known.operator not in message:
        out.note(known.operator)
    out.note(f"More: fumehood explain {result.call_id}")
