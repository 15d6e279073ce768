"""One stream of an HTTP/2 connection: what has come and was not read yet, and writing at the peer's pace.

Guarantees: many small frames cost no more than their bytes; window goes back only for what was taken; a
writer waits no longer than STALL for the peer's window. Errors are in words of ours, never the peer's.
Not here: the connection (_h2_link.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from fumehood.broker._h2_gate import CANCEL, ENHANCE_YOUR_CALM, MAX_FRAME
from fumehood.broker._h2_head import Fields

if TYPE_CHECKING:
    from fumehood.broker._h2_link import Link

STALL = 300.0  # seconds a peer may keep its window shut while there is something for it


class LinkBroken(ConnectionError):
    """The stream or its connection ended early.

    what: words of ours only. unprocessed: the peer says that it did not look at the request. broke: the peer
    broke the protocol on this stream.
    """

    def __init__(
        self, what: str, *, unprocessed: bool = False, code: int = CANCEL, broke: bool = False
    ) -> None:
        super().__init__(what)
        self.what = what
        self.unprocessed = unprocessed
        self.code = code
        self.broke = broke


class LinkStalled(LinkBroken):
    """The peer kept its window shut for STALL seconds."""


class Bell:
    """Wakes whoever waits; each looks for itself whether what it waits for has come."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    async def wait(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)

    def ring(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)


async def in_time(bell: Bell) -> None:
    """Wait for what only the peer can bring about. Raises: LinkStalled."""
    try:
        async with asyncio.timeout(STALL):
            await bell.wait()
    except TimeoutError as error:
        raise LinkStalled(f"the peer took nothing for {STALL:g} s", code=ENHANCE_YOUR_CALM) from error


class LinkStream:
    """One stream. ended: the peer has sent all. trailers: once ended. sent, received: bytes of heads and
    bodies.
    """

    def __init__(self, link: Link, number: int) -> None:
        self.link, self.number = link, number
        self.heads: deque[Fields] = deque()
        self.trailers: Fields = []
        self.ended = False
        self.error: LinkBroken | None = None
        self.changed = Bell()
        self.on_error: Callable[[], object] | None = None
        self.sent = self.received = 0
        self._inbox = bytearray()
        self._owed = 0  # bytes of window that the inbox holds, padding included
        self._all_sent = False

    def __repr__(self) -> str:
        return f"<LinkStream {self.number} inbox={len(self._inbox)} ended={self.ended} {self.error!r}>"

    def take(self) -> bytes:
        """What has arrived of the body by now; the peer may send as much again."""
        data = bytes(self._inbox)
        self._inbox.clear()
        owed, self._owed = self._owed, 0
        self.link.acknowledge(self.number, owed)
        return data

    @property
    def is_served(self) -> bool:
        """Whether the answer, whichever side gives it, is whole."""
        return self.ended if self.link.is_client else self._all_sent

    @property
    def is_drained(self) -> bool:
        """Whether all of the peer's side was read."""
        return self.ended and not self._inbox

    async def read(self) -> bytes:
        """Some of the body, b"" at its end. Raises: LinkBroken."""
        while not self._inbox:
            if self.ended:
                return b""
            if self.error is not None:
                raise self.error
            await self.changed.wait()
        return self.take()

    async def head(self) -> Fields:
        """The next head of an answer. Raises: LinkBroken."""
        while not self.heads:
            if self.error is not None or self.ended:
                raise self.error or LinkBroken("the stream ended without an answer")
            await self.changed.wait()
        return self.heads.popleft()

    def send_head(self, fields: Fields, *, end: bool, sensitive: frozenset[bytes] = frozenset()) -> None:
        """Raises: LinkBroken."""
        self.check()
        self._all_sent = end
        self.sent += sum(len(name) + len(value) + 4 for name, value in fields)
        self.link.send_head(self.number, fields, end=end, sensitive=sensitive)

    async def send(self, data: bytes, *, end: bool = False) -> None:
        """Send some of the body, as fast as the peer takes it. Raises: LinkBroken."""
        at = 0
        while at < len(data) or (end and not self._all_sent):
            await self.link.room()
            self.check()
            count = min(len(data) - at, self.link.window(self.number), MAX_FRAME)
            if count <= 0 and at < len(data):
                await in_time(self.changed)
                continue
            last = end and at + count == len(data)
            self.link.send_data(self.number, data[at : at + count], end=last)
            self.sent += count
            at += count
            self._all_sent = self._all_sent or last

    def check(self) -> None:
        """Raises: LinkBroken when nothing can be sent any more."""
        if self.error is not None:
            raise self.error

    def close(self, code: int = CANCEL) -> None:
        """Be done with it; what is not at its end is reset. code: NO_ERROR when the answer was whole."""
        self._inbox.clear()
        self.link.forget(self, self._owed, None if self.ended and self._all_sent else code)
        self._owed = 0
        self.fail(LinkBroken("the stream was closed"), quiet=True)

    def received_data(self, data: bytes, size: int) -> None:
        self._inbox += data
        self._owed += size
        self.received += len(data)
        self.changed.ring()

    def fail(self, error: LinkBroken, *, quiet: bool = False) -> None:
        if self.error is None:
            self.error = error
            if self.on_error is not None and not quiet:
                self.on_error()
        self.changed.ring()
