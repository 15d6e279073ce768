"""One generation of one tool: its zygote and the children that wait for its calls."""

from __future__ import annotations

import asyncio
import collections
import time
from dataclasses import dataclass, field

from fumehood.isolate._child import Child
from fumehood.isolate._source import Stamp
from fumehood.isolate._spec import ToolSpec
from fumehood.isolate._zygote import ZygoteHandle

RENEW_S = 3600.0  # a zygote's address layout and hash seed are every child's: start them afresh now and then

Key = tuple[str | None, tuple[tuple[str, str], ...]]
"""What a kept process may serve: one principal, one environment."""


@dataclass(slots=True)
class Cage:
    """demand: how many calls ran at once lately, decaying; as many spares are parked. waiting: calls that
    fork on demand right now.
    """

    spec: ToolSpec
    stamp: Stamp
    zygote: ZygoteHandle
    born: float
    used: float
    spares: collections.deque[Child] = field(default_factory=collections.deque)
    kept: dict[Key, Child] = field(default_factory=dict)
    due: asyncio.TimerHandle | None = None
    refill: asyncio.Task[None] | None = None
    running: int = 0
    waiting: int = 0
    demand: float = 1.0
    retired: bool = False

    def serves(self, spec: ToolSpec) -> bool:
        """Whether this generation still takes calls of the tool as it is configured now."""
        return (
            (self.spec is spec or self.spec == spec)
            and self.zygote.alive
            and time.monotonic() - self.born < RENEW_S
        )
