"""The refusals of one call on their way to the log.

Guarantees: each of the first MAX_REFUSALS is a row of its own, on disk before the refusal goes back; a tool
that goes on is refused all the same, and what comes after is counted, by reason, in one row at the end of the
call. So no tool makes the log grow without bound by asking for what it may not have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from fumehood.broker._records import DENIED, Rows, record_decision
from fumehood.broker._types import CallScope, EgressDecision, EgressRequest

MAX_REFUSALS = 10_000  # some ten megabytes of log


class Denials:
    """Those of one call."""

    def __init__(self, rows: Rows, scope: CallScope) -> None:
        self._rows, self._scope = rows, scope
        self._written = 0
        self._last = ""
        self._beyond: Counter[str] = Counter()

    async def record(
        self,
        decision: EgressDecision,
        request: EgressRequest | None,
        door: str,
        extra: Mapping[str, object] | None,
    ) -> str | None:
        """The id of the refusal's row, on disk; None when it was only counted."""
        if self._written >= MAX_REFUSALS:
            self.count(str(decision.reason))
            return None
        self._written += 1
        self._last = await record_decision(
            self._rows, self._scope, decision, request=request, door=door, extra=extra
        )
        return self._last

    def count(self, reason: str) -> None:
        """Note a refusal that gets no row of its own."""
        self._beyond[reason] += 1

    @property
    def last(self) -> str:
        """The id of the last row: it stands for those that were only counted."""
        return self._last

    async def close(self) -> None:
        """Write the row about what was only counted, if there is anything."""
        if self._beyond:
            count = self._beyond.total()
            data = {
                "tool": self._scope.tool,
                "principal": self._scope.principal,
                "outcome": "deny",
                "reason": "budget-rate",
                "host": None,
                "port": None,
                "rule": None,
                "detail": f"{count} more refusals were counted and not written",
                "count": count,
                "reasons": dict(self._beyond),
            }
            self._beyond.clear()
            await self._rows.record(DENIED, data, self._scope)
