"""`fumehood tools`: what is configured, as the host understood it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fumehood._cli._output import Output
from fumehood._cli._settings import Settings, pass_settings

if TYPE_CHECKING:
    from fumehood.policies.config import ToolConfig


@click.command()
@pass_settings
def tools(settings: Settings) -> None:
    """The configured tools: what each runs, and what it may reach."""
    config = settings.load()
    out = Output(settings)
    if settings.format == "json":
        out.json({"tools": [_as_json(name, tool) for name, tool in config.tools.items()]})
        return
    if not config.tools:
        out.note(f"{config.source} has no [tools.NAME] table.")
        return
    rows = [
        (name, tool.kind, ", ".join(rule.text for rule in tool.egress) or "none", _about(tool))
        for name, tool in config.tools.items()
    ]
    out.table(("tool", "kind", "network", "about"), rows)


def _about(tool: ToolConfig) -> str:
    return tool.description or runs(tool)


def runs(tool: ToolConfig) -> str:
    """The file or command behind a tool, in a few words."""
    if tool.command is not None or tool.mcp is not None:
        return " ".join(tool.command or tool.mcp or ())
    return str(tool.module or tool.script)


def _as_json(name: str, tool: ToolConfig) -> dict[str, Any]:
    return {
        "name": name,
        "kind": tool.kind,
        "runs": list(tool.command or tool.mcp or (str(tool.module or tool.script),)),
        "description": tool.description,
        "input_schema": tool.input_schema,
        "egress": [rule.text for rule in tool.egress],
        "deny": [rule.text for rule in tool.deny],
        "env": sorted(tool.env),
        "secrets": list(tool.secret_names),
        "read": [str(path) for path in tool.read],
        "write": [str(path) for path in tool.write],
        "limits": limits(tool),
    }


def limits(tool: ToolConfig) -> dict[str, Any]:
    """The bounds of one call, sizes in bytes and times in seconds."""
    names = ("timeout_s", "cpu_s", "memory", "processes", "output", "tmp", "events", "start_s")
    return {name: getattr(tool, name) for name in names}
