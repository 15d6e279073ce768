"""Bytes between a child's socket and a pinned upstream socket, both ways, until both have ended or a budget
has.

Guarantees: half-close is passed on in each direction; bytes are counted and capped each way; a side that does
not read holds back the other (no queue grows); one turn of the event loop moves at most BUFFER bytes for one
direction, so many tunnels share fairly.
Not here: what the bytes are. Before editing: small transfers go through one shared buffer (recv, send), since
nothing is awaited between the two; after SPLICE_AFTER bytes a direction moves through a pipe in the kernel
(splice(2)), which costs a third of the time for bulk.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass

from fumehood.broker._hub import READ, WRITE, Hub, hub

BUFFER = 256 * 1024  # bytes moved at once: below it the loop's overhead shows, above it other tunnels wait
SPLICE_AFTER = 1024 * 1024  # bytes of one direction before a pipe is worth its two descriptors
_PIPE = (
    1024 * 1024
)  # bytes a pipe may hold; the limit for ordinary users (pipe(7), /proc/sys/fs/pipe-max-size)
# What splice(2) says of a file or a kernel (or a filter of system calls) that does not take it.
_NO_SPLICE = frozenset({errno.EINVAL, errno.ENOSYS, errno.EPERM})
_SHARED = memoryview(bytearray(BUFFER))


@dataclass(frozen=True, slots=True)
class RelayEnd:
    """sent, received: bytes to and from the upstream. reason: None when both sides ended by themselves."""

    sent: int
    received: int
    reason: str | None = None
    detail: str = ""


class _Side:
    """One socket of a tunnel: what is waited for on it, and who is told."""

    def __init__(self, watcher: Hub, sock: socket.socket) -> None:
        self.sock, self.fd = sock, sock.fileno()
        self.on_readable: Callable[[], None]
        self.on_writable: Callable[[], None]
        self._hub, self._mask = watcher, 0

    def wait(self, what: int) -> None:
        """Wait for READ or WRITE, as long as `rest` is not called for it."""
        self._set(self._mask | what)

    def rest(self, what: int = READ | WRITE) -> None:
        self._set(self._mask & ~what)

    def _set(self, mask: int) -> None:
        if mask == self._mask:
            return
        if not mask:
            self._hub.drop(self.fd)
        elif not self._mask:
            self._hub.watch(self.fd, mask, self._tell)
        else:
            self._hub.change(self.fd, mask)
        self._mask = mask

    def _tell(self, readable: bool, writable: bool) -> None:
        if readable and self._mask & READ:
            self.on_readable()
        if writable and self._mask & WRITE:
            self.on_writable()


class _Direction:
    """One way through the relay."""

    def __init__(self, relay: Relay, source: _Side, sink: _Side, limit: int | None) -> None:
        self.relay = relay
        self.source, self.sink = source.sock, sink.sock
        self._from, self._to = source, sink
        self._in, self._out = source.fd, sink.fd
        source.on_readable = self._on_readable
        sink.on_writable = self._on_writable
        self.limit = limit
        self.count = 0
        self.ended = False
        self._pending = b""
        self._pipe: tuple[int, int] | None = None
        self._in_pipe = 0
        self._cannot_splice = False
        self._source_ended = False

    def start(self, initial: bytes) -> None:
        self.count = len(initial)
        if self.limit is not None and self.count > self.limit:
            self.relay.over(self)
            return
        self._pending = initial
        if initial:
            self._on_writable()
        else:
            self._from.wait(READ)

    def _on_readable(self) -> None:
        try:
            moved = self._splice() if self._pipe is not None else self._copy()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.relay.broke(self, error)
            return
        if moved == 0:
            self._source_ended = True
            self._from.rest(READ)
            self._flushed()
            return
        self.count += moved
        if self.limit is not None and self.count > self.limit:
            self.relay.over(self)
            return
        if self._pending or self._in_pipe:
            self._from.rest(READ)
            self._to.wait(WRITE)
        elif self._pipe is None and self.count > SPLICE_AFTER and not self._cannot_splice:
            self._open_pipe()

    def _copy(self) -> int:
        room = BUFFER if self.limit is None else min(BUFFER, self.limit - self.count + 1)
        got = self.source.recv_into(_SHARED, room)
        if got and (self.limit is None or self.count + got <= self.limit):  # nothing over the limit goes on
            try:
                put = self.sink.send(_SHARED[:got])
            except (BlockingIOError, InterruptedError):
                put = 0
            if put < got:
                self._pending = bytes(_SHARED[put:got])
        return got

    def _splice(self) -> int:
        assert self._pipe is not None
        flags = os.SPLICE_F_NONBLOCK | os.SPLICE_F_MOVE
        room = _PIPE if self.limit is None else min(_PIPE, self.limit - self.count + 1)
        try:
            got = os.splice(self._in, self._pipe[1], room, flags=flags)
        except OSError as error:
            if error.errno not in _NO_SPLICE:
                raise
            self.close_pipe()  # a kind of socket that cannot be spliced; the pipe is empty here
            self._cannot_splice = True
            return self._copy()
        self._in_pipe += got
        if got and (self.limit is None or self.count + got <= self.limit):  # nothing over the limit goes on
            self._drain_pipe()
        return got

    def _drain_pipe(self) -> None:
        assert self._pipe is not None
        flags = os.SPLICE_F_NONBLOCK | os.SPLICE_F_MOVE
        try:
            while self._in_pipe:
                self._in_pipe -= os.splice(self._pipe[0], self._out, self._in_pipe, flags=flags)
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            if error.errno not in _NO_SPLICE:
                raise
            while self._in_pipe:
                data = os.read(self._pipe[0], self._in_pipe)
                self._pending += data
                self._in_pipe -= len(data)
            self.close_pipe()
            self._cannot_splice = True

    def _on_writable(self) -> None:
        try:
            if self._pending:
                self._pending = self._pending[self.sink.send(self._pending) :]
            elif self._in_pipe:
                self._drain_pipe()
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self.relay.broke(self, error)
            return
        if self._pending or self._in_pipe:
            self._to.wait(WRITE)
            return
        self._to.rest(WRITE)
        if self._source_ended:
            self._flushed()
        else:
            self._from.wait(READ)

    def _flushed(self) -> None:
        """The source ended and everything is passed on: pass the end on too."""
        if self._pending or self._in_pipe:
            return
        self.ended = True
        if self.relay.direction_ended():
            return  # both sockets are closed at once, which says the same
        try:
            self.sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the other side is gone already; its own direction notices

    def close_pipe(self) -> None:
        if self._pipe is not None:
            for fd in self._pipe:
                os.close(fd)
            self._pipe = None

    def _open_pipe(self) -> None:
        try:
            self._pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return  # out of descriptors: copying goes on
        try:
            fcntl.fcntl(self._pipe[1], fcntl.F_SETPIPE_SZ, _PIPE)
        except OSError:
            pass  # the user's pipe budget is used up; a smaller pipe works as well


class Relay:
    """One tunnel.

    `run` returns when it is over; both sockets are closed then. max_sent, max_received: bytes, None for no
    cap.
    """

    def __init__(
        self,
        child: socket.socket,
        upstream: socket.socket,
        *,
        initial: bytes = b"",
        max_sent: int | None = None,
        max_received: int | None = None,
    ) -> None:
        watcher = hub()
        self._sides = near, far = _Side(watcher, child), _Side(watcher, upstream)
        self._initial = initial
        self._up = _Direction(self, near, far, max_sent)
        self._down = _Direction(self, far, near, max_received)
        self._done: asyncio.Future[tuple[str | None, str]] = asyncio.get_running_loop().create_future()

    @property
    def sent(self) -> int:
        return self._up.count

    @property
    def received(self) -> int:
        return self._down.count

    async def run(self, timeout: float | None = None) -> RelayEnd:
        """Move bytes until the end. timeout: seconds of wall time for the whole tunnel."""
        try:
            self._down.start(b"")
            self._up.start(self._initial)
            if timeout is None:
                reason, detail = await self._done
            else:
                async with asyncio.timeout(timeout):
                    reason, detail = await self._done
        except TimeoutError:
            reason, detail = "budget-time", f"the tunnel was open for {timeout:g} s"
        finally:
            self.close()
        return RelayEnd(self._up.count, self._down.count, reason, detail)

    def end(self, reason: str, detail: str = "") -> None:
        """End the tunnel from outside."""
        if not self._done.done():
            self._done.set_result((reason, detail))

    def close(self) -> None:
        """Stop both directions and close both sockets."""
        for side in self._sides:
            side.rest()  # before the number may belong to another
        for direction in (self._up, self._down):
            direction.close_pipe()
        for side in self._sides:
            side.sock.close()

    def direction_ended(self) -> bool:
        """Whether it was the last one."""
        if not (self._up.ended and self._down.ended):
            return False
        if not self._done.done():
            self._done.set_result((None, ""))
        return True

    def broke(self, direction: _Direction, error: OSError) -> None:
        """A socket failed: a reset by either side ends the tunnel, and is nobody's refusal."""
        if not self._done.done():
            self._done.set_result((None, f"{type(error).__name__}"))

    def over(self, direction: _Direction) -> None:
        way = "sent" if direction is self._up else "received"
        self.end("budget-bytes", f"over {direction.limit} bytes {way}")
