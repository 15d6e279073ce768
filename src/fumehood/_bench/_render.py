"""A report as tables for people. Widths and wrapping are the command line's (`_cli/_output.py`)."""

from __future__ import annotations

from fumehood._bench._model import Load, Report, Row, Section, Target
from fumehood._cli._output import Output


def show(out: Output, report: Report) -> None:
    """The report on standard output."""
    for section in report.sections:
        out.line(section.title, "bold")
        if section.rows:
            _rows(out, section)
        if section.loads:
            _loads(out, section)
        for figure in section.figures:
            out.line(f"  {figure.name}: {figure.value:g} {figure.unit}".rstrip())
        for absent in section.not_run:
            out.hanging(f"not run: {absent.contestant} ({absent.remedy})", 2, "yellow")
        out.line()
    if report.targets:
        out.table(
            ("target", "measured", "met", "figure"),
            [(aim.target, *judged(aim), aim.name) for aim in report.targets],
            styles=["red" if aim.met is False else None for aim in report.targets],
        )
        out.line()
    out.line(noise(report))


def judged(aim: Target) -> tuple[str, str]:
    """What was measured, and whether it meets the target."""
    if aim.measured is None:
        return "not run", "-"
    return ratio(aim.measured), "yes" if aim.met else "no"


def noise(report: Report) -> str:
    """What the figures belong to, and how quiet the machine was."""
    machine = report.machine
    rounds = "" if report.rounds is None else f"{report.rounds} rounds; "
    return (
        f"{rounds}Linux {machine['kernel']}, {machine['cpus']} CPUs, "
        f"Python {machine['python']}, {'root' if machine['root'] else 'ordinary user'}; "
        f"load before {report.load_before[0]:.2f}, after {report.load_after[0]:.2f}"
    )


def _rows(out: Output, section: Section) -> None:
    columns = ("p50 us", "p99 us", f"/ {section.baseline}" if section.baseline else "", "fresh", "walls", "")
    out.table(columns, [_row(row) for row in section.rows])


def _row(row: Row) -> tuple[str, ...]:
    return (
        f"{row.p50_us:,.0f}", f"{row.p99_us:,.0f}", ratio(row.ratio), _yes(row.fresh), _yes(row.isolated),
        f"{row.contestant} ({row.what})",
    )  # fmt: skip


def _loads(out: Output, section: Section) -> None:
    columns = (
        "callers",
        "calls/s",
        f"/ {section.baseline}" if section.baseline else "",
        "p50 us",
        "p99 us",
        "",
    )
    out.table(columns, [_load(load) for load in section.loads])


def _load(load: Load) -> tuple[str, ...]:
    return (
        str(load.callers), f"{load.per_s:,.0f}", ratio(load.ratio), f"{load.p50_us:,.0f}",
        f"{load.p99_us:,.0f}", load.contestant,
    )  # fmt: skip


def ratio(value: float | None) -> str:
    """Three digits that mean something."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
