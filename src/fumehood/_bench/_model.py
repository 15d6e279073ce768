"""What a benchmark found, as values: rows, sections, targets, and what was not run.

Pure data and pure sums. Times are microseconds, rates per second, sizes bytes. A ratio is always a row's
median against its section's baseline, taken in the same run: absolute figures belong to one machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Options:
    """What a person asked for. rounds: calls of each contestant. quick: the shortest run that still shows
    every row; its figures mean nothing. only: names of sections, empty for all. say: takes a line of
    progress.
    """

    rounds: int = 100
    quick: bool = False
    only: tuple[str, ...] = ()
    say: Callable[[str], None] = print

    @property
    def each(self) -> int:
        """Calls of each contestant that are really made: a quick run makes three at most."""
        return min(self.rounds, 3) if self.quick else self.rounds


@dataclass(frozen=True, slots=True)
class Row:
    """One contestant's latency. fresh: a new process served each call. isolated: walls stood around it.

    ratio: its median divided by the baseline's; None for the baseline and where there is none.
    """

    contestant: str
    what: str
    fresh: bool
    isolated: bool
    n: int
    p50_us: float
    p99_us: float
    ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """One contestant under a number of callers that each start a call when their last one ended.

    ratio: its rate divided by the baseline's with as many callers.
    """

    contestant: str
    callers: int
    n: int
    per_s: float
    p50_us: float
    p99_us: float
    ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """One number with its unit."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class NotRun:
    """A contestant that this machine lacks, and what would bring it."""

    contestant: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Section:
    """Rows that were measured interleaved with each other. baseline: the contestant ratios refer to."""

    name: str
    title: str
    baseline: str | None = None
    rows: tuple[Row, ...] = ()
    loads: tuple[Load, ...] = ()
    figures: tuple[Figure, ...] = ()
    not_run: tuple[NotRun, ...] = ()

    def p50(self, contestant: str) -> float | None:
        """The median of one contestant; None when it was not run."""
        return next((row.p50_us for row in self.rows if row.contestant == contestant), None)

    def figure(self, name: str) -> float | None:
        """The value of one figure."""
        return next((figure.value for figure in self.figures if figure.name == name), None)


@dataclass(frozen=True, slots=True)
class Target:
    """A figure that is aimed at. measured, met: None where a section or a peer was not run."""

    name: str
    target: str
    measured: float | None
    met: bool | None


@dataclass(frozen=True, slots=True)
class Report:
    """One run. machine: what the figures belong to. rounds: None for an area that counts its own.
    load_before, load_after: the kernel's load averages; far above 0 means that somebody else was measured
    too.
    """

    area: str
    machine: Mapping[str, Any]
    rounds: int | None
    load_before: tuple[float, float, float]
    load_after: tuple[float, float, float]
    sections: tuple[Section, ...] = ()
    targets: tuple[Target, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """The object that `--format json` prints."""
        return asdict(self)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0 to 1) of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def with_ratios(rows: Sequence[Row], baseline: str | None) -> tuple[Row, ...]:
    """The rows with their medians against the baseline's; unchanged where the baseline was not run."""
    base = next((row.p50_us for row in rows if row.contestant == baseline), None)
    if base is None:
        return tuple(rows)
    return tuple(
        row if row.contestant == baseline else replace(row, ratio=round(row.p50_us / base, 3)) for row in rows
    )


def load_ratios(loads: Sequence[Load], baseline: str) -> tuple[Load, ...]:
    """The loads with their rates against the baseline's with the same number of callers."""
    base = {load.callers: load.per_s for load in loads if load.contestant == baseline}
    return tuple(
        replace(load, ratio=round(load.per_s / base[load.callers], 2))
        if load.contestant != baseline and base.get(load.callers)
        else load
        for load in loads
    )
