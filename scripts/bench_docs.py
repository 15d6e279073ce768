"""Writes figures into docs/benchmarks.md: `fumehood bench isolate --format json | scripts/bench_docs.py`.

What stands between `<!-- bench:AREA -->` and `<!-- /bench:AREA -->` is replaced, for every area of the
report; an area without such a place is an error.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parent.parent / "docs/benchmarks.md"


def filled(page: str, reports: Mapping[str, Any]) -> str:
    """The page with the tables of these reports."""
    for area, report in reports.items():
        place = re.compile(rf"(?s)(<!-- bench:{area} -->\n).*?(<!-- /bench:{area} -->)")
        if place.search(page) is None:
            raise SystemExit(f"docs/benchmarks.md has no place for {area}: <!-- bench:{area} -->")
        text = "\n".join(_report(report)) + "\n"
        page = place.sub(lambda found, text=text: f"{found[1]}{text}{found[2]}", page)  # type: ignore[misc]
    return page


def _report(report: Mapping[str, Any]) -> Iterable[str]:
    machine = report["machine"]
    rounds = "" if report["rounds"] is None else f"{report['rounds']} rounds on "
    yield (
        f"{rounds}Linux {machine['kernel']}, {machine['cpus']} CPUs, Python "
        f"{machine['python']}, {'root' if machine['root'] else 'an ordinary user'}; load average "
        f"{report['load_before'][0]:.2f} before and {report['load_after'][0]:.2f} after."
    )
    if report["targets"]:
        yield from ("", "| figure | target | measured | met |", "|---|---|---|---|")
        for aim in report["targets"]:
            met = {True: "yes", False: "**no**", None: "not run"}[aim["met"]]
            measured = "" if aim["measured"] is None else f"{aim['measured']:.3g}"
            yield f"| {aim['name']} | {aim['target']} | {measured} | {met} |"
    for section in report["sections"]:
        yield from ("", f"{section['title']}.", "")
        yield from _section(section)


def _section(section: Mapping[str, Any]) -> Iterable[str]:
    against = f"/ {section['baseline']}" if section["baseline"] else ""
    if section["rows"]:
        yield from (
            f"| contestant | fresh | walls | p50 us | p99 us | {against} |", "|---|---|---|---|---|---|"
        )  # fmt: skip
        for row in section["rows"]:
            name = f"{row['contestant']} ({row['what']})" if row["what"] else row["contestant"]
            cells = (
                name, _yes(row["fresh"]), _yes(row["isolated"]),
                _number(row["p50_us"]), _number(row["p99_us"]), _ratio(row["ratio"]),
            )  # fmt: skip
            yield f"| {' | '.join(cells)} |"
    if section["loads"]:
        yield from (
            f"| contestant | callers | calls/s | {against} | p50 us | p99 us |", "|---|---|---|---|---|---|"
        )  # fmt: skip
        for load in section["loads"]:
            cells = (
                load["contestant"], str(load["callers"]), _number(load["per_s"]), _ratio(load["ratio"]),
                _number(load["p50_us"]), _number(load["p99_us"]),
            )  # fmt: skip
            yield f"| {' | '.join(cells)} |"
    if section["figures"]:
        if section["rows"]:
            yield ""
        yield from ("| figure | value |", "|---|---|")
        for figure in section["figures"]:
            yield f"| {figure['name']} | {figure['value']:g} {figure['unit']} |".replace("  ", " ")
    if section["not_run"]:
        yield ""
    for absent in section["not_run"]:
        yield f"Not run: {absent['contestant']} ({absent['remedy']})."


def _number(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ")


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def main() -> None:
    """Fill the page from the report on standard input."""
    reports = json.load(sys.stdin)["areas"]
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), reports), encoding="utf-8")


if __name__ == "__main__":
    main()
