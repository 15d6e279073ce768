"""`fumehood policy test`: the broker's verdict on one request, or on a file of them, without a connection."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import click

from fumehood._cli._output import Output, json_text
from fumehood._cli._settings import Settings, pass_settings
from fumehood._cli._values import read_file

if TYPE_CHECKING:
    from fumehood.broker import EgressPolicy

DENIED = 3
MOST_BATCH = 256 << 20
_METHOD = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}", re.ASCII)  # RFC 9110, section 9.1: a token
_PLAIN_HOST = re.compile(r"[A-Za-z0-9.-]+(:[0-9]+)?(/[!-~]*)?", re.ASCII)


@click.command()
@click.option("--tool", metavar="NAME", help="Use the rules of this configured tool.")
@click.option(
    "--allow", metavar="RULE", multiple=True, help="An egress rule, in the forms of the configuration."
)
@click.option("--deny", metavar="RULE", multiple=True, help="A deny rule; wins over every --allow.")
@click.option(
    "--resolve",
    metavar="NAME=ANSWER[,ANSWER]",
    multiple=True,
    help="What DNS says. Without any, only the rules are asked and nothing is resolved.",
)
@click.option("--method", metavar="M", default="GET", help="The HTTP method.")
@click.option(
    "--batch", metavar="FILE", help="JSON Lines {id, allow, deny, request, method, dns}; - for stdin."
)
@click.argument("words", metavar="[URL]", nargs=-1)
@pass_settings
def test(
    settings: Settings,
    tool: str | None,
    allow: tuple[str, ...],
    deny: tuple[str, ...],
    resolve: tuple[str, ...],
    method: str,
    batch: str | None,
    words: tuple[str, ...],
) -> None:
    """Say whether URL would be allowed, and why. Exit code 0 for allowed, 3 for refused.

    CONNECT host:port and socks5://host:port are taken as URL too. With --batch, prints one JSON line
    {id, outcome, reason, rule, pinned} for each line of FILE and exits with 0. A line that cannot be read has
    the outcome "error" and says what is wrong; the others are judged, and the exit code is 2.
    """
    from fumehood.broker import parse_resolve, policy_batch, policy_verdict, readable
    from fumehood.policies.errors import ConfigError
    from fumehood.policies.reasons import reason as reason_of

    if len(words) > 1 and words[0].upper() != "CONNECT":
        raise click.UsageError(f"give one URL, not {len(words)}")
    request_ = " ".join(words) or None
    if (batch is None) == (request_ is None):
        raise click.UsageError("give one URL, or --batch FILE")
    if not _METHOD.fullmatch(method):
        raise click.UsageError(f"--method {method!r} is no HTTP method; write one such as GET")
    if tool is not None and allow:
        raise click.UsageError("--tool and --allow exclude each other: a tool has its own rules")
    policy = _policy(settings, tool, allow, deny)
    if batch is not None:
        data = read_file(batch, most=MOST_BATCH, hint="--batch FILE holds one JSON object a line; - is stdin")
        bad = 0
        for line in policy_batch(data.split(b"\n"), allow=policy.allow, source=batch):
            sys.stdout.write(json_text(line) + "\n")
            if line["outcome"] == "error":
                bad += 1
                Output(settings).error(f"{line['error']}", f"{line['hint']}")
        if bad:
            sys.exit(ConfigError.exit_code)
        return
    assert request_ is not None
    found = policy_verdict(policy, request_, method=method, dns=parse_resolve(resolve) if resolve else None)
    out = Output(settings)
    hint = found.hint or _without_scheme(request_)
    if settings.format == "json":
        more = {"hint": hint or None, "detail": found.detail or None, "owner": found.owner or None}
        out.json({"request": request_, **found.as_dict(), **more})
    elif found.reason is None:
        out.line(f"allow  {readable(request_)}", "green")
        if not settings.quiet:
            out.line(f"    rule: {found.rule or 'none (audit mode)'}")
            out.line(
                f"    dials: {found.pinned}"
                if found.resolved
                else "    not resolved: give --resolve NAME=ANSWER to judge addresses"
            )
    else:
        out.line(f"deny   {readable(request_)}", "red")
        out.hanging(f"{found.reason}: {reason_of(found.reason).operator}", 4)
        for label, text in (("rule", found.rule), ("detail", found.detail), ("hint", hint)):
            if text and not settings.quiet:
                out.hanging(f"{label}: {text}", 4)
    if found.reason is not None:
        sys.exit(DENIED)


def _without_scheme(request: str) -> str:
    """What was meant by a host alone; "" for everything else."""
    if not _PLAIN_HOST.fullmatch(request):
        return ""
    host = request.partition("/")[0]
    tunnel = f", or 'CONNECT {host}' for a tunnel" if ":" in host else ""
    return f"write https://{request if '/' in request else request + '/'}{tunnel}"


def _policy(
    settings: Settings, tool: str | None, allow: tuple[str, ...], deny: tuple[str, ...]
) -> EgressPolicy:
    from fumehood.broker import EgressPolicy
    from fumehood.policies.errors import ConfigError
    from fumehood.policies.rules import parse_rule

    denied = tuple(parse_rule(text, where="--deny", deny=True) for text in deny)
    if tool is None:
        allowed = tuple(parse_rule(text, where="--allow") for text in allow)
        return EgressPolicy(allow=allowed, deny=denied, owner="--allow")
    config = settings.load()
    if tool not in config.tools:
        known = ", ".join(sorted(config.tools)) or "none"
        raise ConfigError(f"there is no tool {tool!r}; configured: {known}")
    entry = config.tools[tool]
    return EgressPolicy(
        allow=entry.egress,
        deny=(*entry.deny, *denied),
        mode=entry.mode,
        owner=tool,
        host_deny=config.host.deny,
    )
