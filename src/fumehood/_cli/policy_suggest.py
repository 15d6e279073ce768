"""`fumehood policy suggest`: the entries that audit mode would need, from the event log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from fumehood._cli._output import Output
from fumehood._cli._settings import Settings, pass_settings
from fumehood.policies.errors import ConfigError


@click.command()
@click.option("--tool", metavar="NAME", help="Only this tool.")
@pass_settings
def suggest(settings: Settings, tool: str | None) -> None:
    """Print the smallest egress entries that would have allowed what audit mode saw, with counts, as TOML."""
    from fumehood.broker import suggest as suggestions
    from fumehood.broker import suggestions_toml

    found = list(suggestions(_rows(settings.log_path())))
    if tool is not None:
        known = {*settings.load_or_default().tools, *(one.tool for one in found), "run", "script"}
        if tool not in known:
            raise ConfigError(f"--tool {tool!r}: no such tool is configured, nor was one seen",
                              hint=f"there are: {', '.join(sorted(known))}")  # fmt: skip
        found = [one for one in found if one.tool == tool]
    out = Output(settings)
    if settings.format == "json":
        entries = [
            {"tool": one.tool, "rule": one.rule, "count": one.count, "note": one.note or None}
            for one in found
        ]
        out.json({"entries": entries})
    else:
        out.value(suggestions_toml(found))


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, object]]]:
    from fumehood.agent import EventLog

    if not path.exists():
        return
    log = EventLog(path, read_only=True)
    try:
        for event in log.events():
            if event.kind.startswith("EGRESS_") and isinstance(event.data, dict):
                yield event.kind, event.data
    finally:
        log.close()
