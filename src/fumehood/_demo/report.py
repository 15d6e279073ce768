"""How the demo looks: a line for everything that was tried, a table of the calls, at any width of
the terminal.
"""

from __future__ import annotations

from typing import Any

from fumehood._cli._output import Output, cell_len, visible, wrapped
from fumehood._demo.tour import Call, Line, Tour
from fumehood._result import CallResult

_STYLES = {
    "done": "green",
    "refused": "yellow",
    "killed": "red",
    "nothing": "cyan",
    "not believed": "magenta",
}
_VERDICT, _WHAT = 14, 23
_ROOM = 30
"""Characters an explanation needs beside its heading; with less it goes below."""


class Report:
    """Prints as the tour goes on."""

    def __init__(self, out: Output) -> None:
        self.out = out
        self._section = ""

    def start(self, folder: str, tier: str | None, moved: dict[int, int]) -> None:
        self.out.line("fumehood demo", "bold")
        self.out.line("Real calls through a real configuration, on loopback and offline.")
        self.out.line(f"Tier: {tier}. Configuration: {folder}/fumehood.toml")
        for port, instead in moved.items():
            self.out.line(f"Port {port} is taken on this machine; the demo uses {instead}.", "yellow")

    def line(self, line: Line) -> None:
        from rich.text import Text

        if line.section != self._section:
            self._section = line.section
            self.out.line()
            self.out.line(line.section, "bold")
        verdict = line.verdict if line.held else "FAILED"
        style = _STYLES.get(line.verdict, "") if line.held else "bold white on red"
        room = self.out.out.width - _VERDICT - _WHAT
        head = Text.assemble((verdict, style), " " * (_VERDICT - cell_len(verdict)), line.what)
        why = visible(line.why)
        if room >= _ROOM:
            first, *more = wrapped(why, room)
            head.append(" " * (_WHAT - cell_len(line.what)) + first)
            for text in more:
                head.append("\n" + " " * (_VERDICT + _WHAT) + text)
            self.out.out.print(head)
        else:
            self.out.out.print(head)
            self.out.hanging(why, 2, "dim")

    def finish(self, tour: Tour, verified: tuple[bool, str], seconds: float) -> None:
        self.out.line()
        self.out.line("Every call, as the host saw it", "bold")
        rows = [_row(call) for call in tour.calls]
        styles = [None if row[1] == "ok" else "yellow" for row in rows]
        if self.out.out.width >= 80:
            self.out.table(("call", "outcome", "reason", "time", "tier", "egress"), rows, styles=styles)
        else:
            self.out.table(
                ("call", "how it ended"), [(row[0], _ended(row)) for row in rows], styles=styles, head=2
            )
        self.out.line()
        ok, message = verified
        self.out.line(f"log verify: {'OK, ' if ok else ''}{message}", "green" if ok else "bold red")
        failed = sum(1 for line in tour.lines if not line.held)
        held = len(tour.lines) - failed
        text = f"{held} of {len(tour.lines)} came out as they must, in {seconds:.1f} s."
        self.out.line(text, "bold green" if not failed else "bold red")

    def where_next(self, folder: str | None) -> None:
        if folder is not None:
            self.out.line(f"Kept: {folder}")
            self.out.line(f"Look around: fumehood log show --config {folder}/fumehood.toml")
        else:
            self.out.line(
                "Look around: `fumehood demo --keep` leaves log and configuration for log show and explain."
            )


def _row(call: Call) -> tuple[str, str, str, str, str, str]:
    result = call.result
    took = f"{result.usage.wall_ms:.0f} ms"
    return call.what, result.outcome, result.reason or "", took, result.tier or "", _egress(result)


def _ended(row: tuple[str, str, str, str, str, str]) -> str:
    _, outcome, reason, took, tier, egress = row
    told = f"{outcome} ({reason})" if reason else outcome
    return ", ".join([told, took, tier, *([f"egress {egress}"] if egress else [])])


def _egress(result: CallResult) -> str:
    allowed = sum(1 for row in result.egress if row["outcome"] == "allow")
    refused = len(result.egress) - allowed
    return ", ".join(f"{number} {word}" for number, word in ((allowed, "ok"), (refused, "refused")) if number)


def as_json(tour: Tour, verified: tuple[bool, str], seconds: float) -> dict[str, Any]:
    """The same, as data."""
    held = all(line.held for line in tour.lines) and verified[0]
    return {
        "outcome": "ok" if held else "failed",
        "seconds": round(seconds, 3),
        "lines": [
            {
                "section": line.section,
                "what": line.what,
                "verdict": line.verdict,
                "why": line.why,
                "held": line.held,
            }
            for line in tour.lines
        ],
        "calls": [{"what": call.what, **call.result.to_json()} for call in tour.calls],
        "log": {"ok": verified[0], "message": verified[1]},
    }
