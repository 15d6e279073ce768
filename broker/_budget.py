"""How much: requests in time and connections at once, per tool and rule, across calls.

Guarantees: a token bucket holds one second's worth (at least one), so a burst at the rate passes and a burst
beyond it does not; a connection slot is given back exactly once. No timers: tokens are counted when asked.
Descriptors are shared as well: a call holds at most as many connections as are still free, so that no call
leaves the others none.
Not here: byte and time budgets, which the doors count as they go.
"""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass

from fumehood.policies.rules import EgressRule


@dataclass(frozen=True, slots=True)
class OverBudget:
    """Why not now. retry_after: seconds until it would pass; None when it depends on a connection closing."""

    what: str
    retry_after: float | None


class _Bucket:
    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self.size = max(1.0, float(math.ceil(rate)))
        self.tokens = self.size
        self.at = now

    def take(self, now: float) -> float:
        """0 when a token was taken, otherwise seconds until there is one."""
        self.tokens = min(self.size, self.tokens + (now - self.at) * self.rate)
        self.at = now
        if self.tokens >= 1:
            self.tokens -= 1
            return 0.0
        return (1 - self.tokens) / self.rate


CROWD = 64  # connections of children that may have wide HTTP/2 windows: 4 MiB each, as they come


class Places:
    """Connections of children that are open, all calls together; each may use two descriptors.

    most: of all calls; None takes four fifths of the descriptors that this process may have.
    """

    def __init__(self, most: int | None = None) -> None:
        self.most = most if most is not None else resource.getrlimit(resource.RLIMIT_NOFILE)[0] * 2 // 5
        self.taken = 0

    @property
    def is_crowded(self) -> bool:
        """Whether there are so many that each has to make do with less memory."""
        return self.taken > CROWD

    def take(self, held: int) -> bool:
        """Take a place for a call that holds `held`; False when it must not have another."""
        if held >= self.most - self.taken:
            return False
        self.taken += 1
        return True

    def give_back(self) -> None:
        self.taken -= 1


class Budgets:
    """All counters of one broker. clock: monotonic seconds; a test passes its own."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: dict[tuple[str, EgressRule], _Bucket] = {}
        self._open: dict[tuple[str, EgressRule], int] = {}

    def enter(self, tool: str, rule: EgressRule | None, *, connection: bool = True) -> OverBudget | None:
        """Count one request, and one open connection when `connection`;

        None when both fit. Give the slot back with `leave`.
        """
        if rule is None:
            return None
        key = (tool, rule)
        if connection and rule.max_connections is not None and self._open.get(key, 0) >= rule.max_connections:
            return OverBudget(f"{rule.max_connections} connections are open already", None)
        if rule.rate is not None:
            bucket = self._buckets.get(key)
            if bucket is None:
                bucket = self._buckets[key] = _Bucket(rule.rate, self._clock())
            wait = bucket.take(self._clock())
            if wait:
                return OverBudget(f"over {rule.rate:g} requests a second", wait)
        if connection and rule.max_connections is not None:
            self._open[key] = self._open.get(key, 0) + 1
        return None

    def leave(self, tool: str, rule: EgressRule | None) -> None:
        """Give back the connection slot that `enter` counted."""
        if rule is None or rule.max_connections is None:
            return
        key = (tool, rule)
        left = self._open.get(key, 0) - 1
        if left > 0:
            self._open[key] = left
        else:
            self._open.pop(key, None)
