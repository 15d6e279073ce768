"""How contestants are timed: interleaved, in rotating order, with a pause between calls.

Whatever disturbs the machine disturbs all contestants alike, so their ratios hold where single figures do
not. Rounds to warm up are dropped. Nothing here knows what is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol

from fumehood._bench._model import Load, Row, percentile

PAUSE_S = 0.003
"""Between two calls: what the last one left to be done (a child to reap, a spare to fork) is over by then."""

WARM_ROUNDS = 2


class Contestant(Protocol):
    """One way to do the same work. An async context manager; what stands before `once` is not timed."""

    name: str
    what: str
    fresh: bool
    isolated: bool

    async def open(self) -> None:
        """Start what is kept between calls."""

    async def ready(self) -> None:
        """Wait until a call finds what it would find on an idle machine."""

    async def once(self) -> float | None:
        """Do the work once; seconds, when the contestant has a clock of its own."""

    async def settled(self) -> None:
        """Wait until nothing of the last call is left to do: it falls into nobody else's time."""

    async def close(self) -> None:
        """End everything `open` started."""


class Base:
    """A contestant that keeps nothing. Subclasses give `once`."""

    def __init__(self, name: str, what: str, *, fresh: bool, isolated: bool) -> None:
        self.name, self.what, self.fresh, self.isolated = name, what, fresh, isolated

    async def open(self) -> None:
        """Nothing to start."""

    async def ready(self) -> None:
        """Nothing to wait for."""

    async def settled(self) -> None:
        """Nothing is left."""

    async def close(self) -> None:
        """Nothing to end."""


@contextlib.asynccontextmanager
async def opened(contestants: Sequence[Contestant]) -> AsyncIterator[None]:
    """All contestants open; those that were opened are closed, last one first."""
    async with contextlib.AsyncExitStack() as stack:
        for contestant in contestants:
            await contestant.open()
            stack.push_async_callback(contestant.close)
        yield


async def interleaved(contestants: Sequence[Contestant], rounds: int) -> tuple[Row, ...]:
    """Every contestant once a round, each round beginning with another one; a row each, in the order given.

    The contestants are open. Raises what a contestant raises: a wrong answer is no figure.
    """
    taken: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    for turn in range(WARM_ROUNDS + rounds):
        first = turn % len(contestants)
        for contestant in (*contestants[first:], *contestants[:first]):
            await contestant.ready()
            await asyncio.sleep(PAUSE_S)
            seconds = await timed(contestant.once)
            await contestant.settled()
            if turn >= WARM_ROUNDS:
                taken[contestant.name].append(seconds)
    return tuple(
        Row(
            contestant.name, contestant.what, contestant.fresh, contestant.isolated,
            rounds, _us(taken[contestant.name], 0.5), _us(taken[contestant.name], 0.99),
        )
        for contestant in contestants
    )  # fmt: skip


async def timed(work: Callable[[], Awaitable[float | None]]) -> float:
    """Seconds that `work` took, or those it says it took."""
    started = time.perf_counter()
    told = await work()
    return time.perf_counter() - started if told is None else told


async def under_load(
    contestants: Sequence[Contestant], callers: int, seconds: float, slices: int
) -> tuple[Load, ...]:
    """Every contestant with this many callers in a closed loop, for `seconds` in all, in interleaved
    slices.
    """
    latencies: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    spent = dict.fromkeys(latencies, 0.0)
    for turn in range(slices):
        first = turn % len(contestants)
        for contestant in (*contestants[first:], *contestants[:first]):
            await contestant.ready()
            started = time.perf_counter()
            latencies[contestant.name] += await _closed_loop(contestant, callers, seconds / slices)
            spent[contestant.name] += time.perf_counter() - started
    return tuple(
        Load(name, callers, len(times), round(len(times) / spent[name], 1), _us(times, 0.5), _us(times, 0.99))
        for name, times in latencies.items()
    )


async def _closed_loop(contestant: Contestant, callers: int, seconds: float) -> list[float]:
    end = time.perf_counter() + seconds
    times: list[float] = []

    async def caller() -> None:
        while True:  # at least one call each, however short the slice
            times.append(await timed(contestant.once))
            if time.perf_counter() >= end:
                return

    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(caller())
    return times


def load() -> tuple[float, float, float]:
    """The kernel's load averages over 1, 5 and 15 minutes."""
    return os.getloadavg()


def _us(seconds: Sequence[float], share: float) -> float:
    return round(percentile(seconds, share) * 1e6, 1)
