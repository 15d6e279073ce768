"""`fumehood policy`: the group, and the two verbs that need no broker."""

from __future__ import annotations

import click

from fumehood._cli._output import Output
from fumehood._cli._settings import Settings, pass_settings
from fumehood._cli._verbs import POLICY_VERBS, LazyGroup

policy = LazyGroup(name="policy", table=POLICY_VERBS, help="Check, print and try out the configuration.")


@click.command()
@pass_settings
def check(settings: Settings) -> None:
    """Load the configuration and say what is in it; every fault at once, exit code 2, when it is wrong.

    Notes are about what is allowed and still worth a second look.
    """
    from fumehood.policies.notes import notes

    config = settings.load()
    found = notes(config)
    out = Output(settings)
    if settings.format == "json":
        out.json(
            {
                "outcome": "ok",
                "source": config.source,
                "digest": config.digest,
                "tools": sorted(config.tools),
                "secrets": sorted(config.secrets),
                "notes": list(found),
            }
        )
        return
    if not settings.quiet:
        out.line(f"OK  {config.source}", "green")
        with_net = sum(1 for tool in config.tools.values() if tool.egress)
        out.line(
            f"    {_count(len(config.tools), 'tool')}, {with_net} with network; "
            f"{_count(len(config.secrets), 'secret')}"
        )
        out.line(f"    sandbox at least: {config.host.require_tier}; state in {config.host.state}")
        out.line(f"    sha256 {config.digest}")
    for note in found:
        out.line(f"note: {note}", "yellow")


@click.command()
@pass_settings
def schema(settings: Settings) -> None:
    """Print the JSON Schema (2020-12) of fumehood.toml, for editors and other checkers."""
    from fumehood.policies.load import config_schema

    out = Output(settings)
    if settings.format == "json":
        out.json(config_schema())
    else:
        out.value(config_schema())


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
