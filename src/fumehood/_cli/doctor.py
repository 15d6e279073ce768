"""`fumehood doctor`: every layer probed by doing it, and the tier that follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fumehood._cli._loop import progress, run_async
from fumehood._cli._output import Output
from fumehood._cli._settings import Settings, pass_settings

if TYPE_CHECKING:
    from fumehood.isolate.doctor import Examination

_RANK = {"none": 0, "any": 0, "landlock": 1, "namespaces": 2}
_STYLE = {"FULL": None, "PARTIAL": "yellow", "MISSING": "red"}
_TIER_WORDS = {
    "namespaces": "private namespaces, Landlock and seccomp",
    "landlock": "Landlock and seccomp, no namespaces; network only by ctx.fetch",
    "none": "no sandbox can be built here",
}


@click.command()
@pass_settings
@click.pass_context
def doctor(ctx: click.Context, settings: Settings) -> None:
    """What this machine can do: each layer FULL, PARTIAL or MISSING, with reason and remedy.

    Exit code 4 when the tier is below the configuration's require_tier (default: namespaces).
    """
    from fumehood.isolate import doctor as examiner

    required = settings.load_or_default().host.require_tier

    async def examine() -> Examination:
        with progress(settings, "building cages"):
            return await examiner.examine()

    found = run_async(examine())
    met = _RANK[found.tier] >= _RANK[required]
    _print(Output(settings), found, required, met)
    ctx.exit(0 if met else 4)


def _print(out: Output, found: Examination, required: str, met: bool) -> None:
    layers = [(name, layer.level, *_reason_and_remedy(layer.detail)) for name, layer in found.layers.items()]
    if out.settings.format == "json":
        out.json(
            {
                "tier": found.tier,
                "required": required,
                "met": met,
                "trouble": found.trouble,
                "layers": {
                    name: {"level": lv, "reason": why or None, "remedy": fix or None}
                    for name, lv, why, fix in layers
                },
            }
        )
        return
    if out.settings.quiet:
        layers = [row for row in layers if row[1] != "FULL"]
    if layers:
        rows = [(name, level, _joined(why, fix)) for name, level, why, fix in layers]
        out.table(("layer", "level", "reason and remedy"), rows, styles=[_STYLE[row[1]] for row in rows])
        out.line()
    out.line(f"tier: {found.tier} ({_TIER_WORDS[found.tier]})", "bold" if met else "bold red")
    if found.trouble:
        out.line(f"why not better: {found.trouble}")
    if not met:
        out.line(f"required: {required} (require_tier); calls are refused on this machine", "red")


def _reason_and_remedy(detail: str) -> tuple[str, str]:
    """isolate says both in one text, the remedy behind the first semicolon or full stop."""
    for mark in ("; ", ". "):
        reason, found, remedy = detail.partition(mark)
        if found:
            return reason, remedy
    return detail, ""


def _joined(reason: str, remedy: str) -> str:
    return f"{reason}. {remedy[:1].upper()}{remedy[1:]}" if remedy else reason
