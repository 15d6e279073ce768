"""Turns of the event loop: whoever finds everything ready goes on for as long as it likes, and nobody else
runs, not even the deadline that was to stop it. So whatever serves what a child or a host can keep ready
counts what it does, and lets others go first now and then.

Before editing: `await` gives nothing away unless something is waited for; a body of one-byte chunks, TLS
records or frames is work without a wait, a thousand times as much as its bytes.
"""

from __future__ import annotations

import asyncio


class Turns:
    """each: how much may be done between two turns of the others."""

    def __init__(self, each: int) -> None:
        self._each = self._left = each

    async def took(self, cost: int = 1) -> None:
        """So much was done."""
        self._left -= cost
        if self._left <= 0:
            self._left = self._each
            await asyncio.sleep(0)
