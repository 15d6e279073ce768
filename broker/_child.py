"""The child's end of a connection: bytes from and to a program that nobody should have to trust.

Guarantees: reads are bounded and have a deadline; what was read ahead is kept in order.
Not here: any meaning of the bytes.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Protocol

from fumehood.broker._head import BadHead, find_end
from fumehood.broker._hub import hub
from fumehood.broker._turns import Turns

READ = 64 * 1024
_AT_ONCE = 16  # reads and writes of one connection in a turn of the event loop
HEAD_TIMEOUT = (
    30.0  # seconds for a request head once it has begun; a slow sender holds one connection no longer
)


class ChildStream(Protocol):
    """A byte stream to the child, plain or inside TLS that the broker ends."""

    async def read(self) -> bytes:
        """The next bytes; b"" at the end."""

    async def write(self, data: bytes) -> None: ...

    def unread(self, data: bytes) -> None:
        """Put bytes back in front."""

    def close(self) -> None: ...


class ChildSocket:
    """The stream of a plain accepted socket. first: bytes that were read from it already."""

    def __init__(self, sock: socket.socket, first: bytes = b"") -> None:
        self.sock = sock
        self.has_left = False  # it closed, or will send nothing more, without a byte to `peek` at
        self._ahead = first
        self._loop = asyncio.get_running_loop()
        self._hub = hub()
        self._turns = Turns(_AT_ONCE)

    async def read(self) -> bytes:
        if self._ahead:
            data, self._ahead = self._ahead, b""
            return data
        return await self._receive()

    async def _receive(self) -> bytes:
        while True:
            try:
                data = self.sock.recv(READ)
                await self._turns.took()
                return data
            except (BlockingIOError, InterruptedError):
                await self._hub.readable(self.sock.fileno())

    async def write(self, data: bytes) -> None:
        await self._loop.sock_sendall(self.sock, data)
        await self._turns.took()

    def unread(self, data: bytes) -> None:
        self._ahead = data + self._ahead

    def take_ahead(self) -> bytes:
        """What was read ahead, for a relay that goes on with the socket itself."""
        data, self._ahead = self._ahead, b""
        return data

    async def peek(self, timeout: float | None) -> bytes:
        """The first bytes, kept for the next read;

        b"" when none came in `timeout` seconds or the child closed.
        """
        if not self._ahead:
            try:
                self._ahead = self.sock.recv(READ)  # most clients have spoken before they are looked at
            except (BlockingIOError, InterruptedError):
                try:
                    async with asyncio.timeout(timeout):
                        self._ahead = await self._receive()
                except TimeoutError:
                    return b""
                except OSError:
                    self.has_left = True
                    return b""
            except OSError:
                self.has_left = True
                return b""
            self.has_left = not self._ahead
        return self._ahead

    async def peek_more(self) -> bytes:
        """All bytes so far and some more; unchanged when the child closed."""
        self._ahead += await self._receive()
        return self._ahead

    def close(self) -> None:
        self.sock.close()


async def read_head(stream: ChildStream) -> bytes | None:
    """The next request head, blank line included; None when the child closed between requests.

    Raises: BadHead; TimeoutError when the head does not end in HEAD_TIMEOUT seconds.
    """
    first = await stream.read()
    if not first:
        return None
    if (end := find_end(first)) >= 0:  # as most do: whole and at once
        stream.unread(first[end:]) if len(first) > end else None
        return first[:end]
    data, seen = bytearray(first), len(first)
    async with asyncio.timeout(HEAD_TIMEOUT):
        while (end := find_end(data, seen)) < 0:
            seen = len(data)
            more = await stream.read()
            if not more:
                raise BadHead("the head is cut off")
            data += more
    stream.unread(bytes(data[end:])) if len(data) > end else None
    return bytes(data[:end])
