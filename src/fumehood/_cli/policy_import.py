"""`fumehood policy import`: another program's network policy as egress rules."""

from __future__ import annotations

from pathlib import Path

import click

from fumehood._cli._output import Output
from fumehood._cli._settings import Settings, pass_settings
from fumehood._cli._values import read_file
from fumehood._cli.call import decoded

MOST_POLICY = 16 << 20


@click.command(name="import")
@click.option(
    "--from",
    "format_",
    type=click.Choice(["srt", "claude", "cursor", "toolhive", "smokescreen"]),
    required=True,
    help="Which program wrote FILE.",
)
@click.option(
    "--tool", metavar="NAME", default="imported", help="The tool's name, where the format has none."
)
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@pass_settings
def import_(settings: Settings, format_: str, tool: str, file: Path) -> None:
    """Convert FILE to TOML for fumehood.toml. What could not be carried over is a comment."""
    from fumehood.broker import import_policy

    data = read_file(str(file), most=MOST_POLICY, hint=f"FILE is a policy of {format_}")
    found = import_policy(format_, decoded(data, str(file)), source=str(file), tool=tool)
    out = Output(settings)
    if settings.format == "json":
        out.json(
            {
                "tools": {
                    name: {
                        "egress": rules,
                        "deny": found.deny.get(name, []),
                        "mode": "audit" if name in found.audit else "enforce",
                    }
                    for name, rules in found.tools.items()
                },
                "host": {"deny": found.host_deny},
                "notes": found.notes,
            }
        )
    else:
        out.value(found.toml())
