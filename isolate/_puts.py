"""How much one call may have stored with `ctx.put`: the content store is the host's disk, and nothing else
counts what goes there.

Whoever asks for more is told so and may go on; nothing of the call is ended for it.
"""

from __future__ import annotations

MAX_PUTS = 1000
"""Times a call."""
MAX_PUT_BYTES = 256 << 20
"""Bytes a call, all together."""


class Puts:
    """What one call has stored so far."""

    def __init__(self) -> None:
        self._times = self._bytes = 0

    def refusal(self, size: int) -> str | None:
        """Count one more of this size; why it is not taken, or None."""
        if self._times + 1 > MAX_PUTS:
            return f"ctx.put: a call may store {MAX_PUTS} times, and has"
        if self._bytes + size > MAX_PUT_BYTES:
            return f"ctx.put: a call may store {MAX_PUT_BYTES} bytes in all, and has stored {self._bytes}"
        self._times, self._bytes = self._times + 1, self._bytes + size
        return None
