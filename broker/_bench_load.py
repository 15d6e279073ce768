"""The other core of the broker's benchmark: an origin and a load generator in one process.

One epoll loop without asyncio, since whatever it costs bounds what can be measured of a proxy. Bulk is sent
with sendfile(2) and thrown away in the kernel (MSG_TRUNC, tcp(7)), so one tunnel's rate is the proxy's and
not that of copies on this side. Run as a process by `Generator`.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CONNECTIONS = 32
_SLOWEST = struct.pack("ll", 5, 0)  # seconds that a connect may take
_DONTWAIT = socket.MSG_DONTWAIT


def pin(cpu: int) -> None:
    """Keep this thread on one of the CPUs that the process may use."""
    available = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {available[min(cpu, len(available) - 1)]})


class _Load:
    """One run: `CONNECTIONS` clients in a closed loop until the time is over.

    steps: sent one after the other, each after the answer to the last. keep: the last one again and again on
    the same connection.
    """

    def __init__(
        self, loop: _Loop, port: int, steps: list[bytes], keep: bool, seconds: float, connections: int
    ) -> None:
        self.loop, self.port, self.steps, self.keep = loop, port, steps, keep
        self.count, self.seconds = 0, seconds
        self.failed: OSError | None = None
        self.ends = time.monotonic() + seconds
        self.is_over = False
        self._open: set[socket.socket] = set()
        for _ in range(connections):
            self.connect()

    def connect(self) -> None:
        sock = socket.socket()
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _SLOWEST)
            sock.connect(("127.0.0.1", self.port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.send(self.steps[0])
        except OSError as error:
            sock.close()
            self.failed = error
            return
        self._open.add(sock)
        at, last, data = 0, len(self.steps) - 1, b""

        def readable() -> None:
            nonlocal at, data
            try:
                got = sock.recv(65536, _DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                got = b""
            if not got:
                self.end(sock)
                return
            data += got
            if b"\r\n\r\n" not in data or (at == last and not data.endswith(b"ok")):
                return
            data = b""
            if at < last:
                at += 1
            else:
                self.count += 1
                if not self.keep or self.is_over:
                    self.end(sock)
                    return
            try:
                sock.send(self.steps[at])
            except OSError:
                self.end(sock)

        self.loop.add(sock, readable)

    def end(self, sock: socket.socket) -> None:
        if sock in self._open:
            self._open.discard(sock)
            self.loop.drop(sock)
            sock.close()
            if not self.is_over:
                self.connect()

    def over(self) -> float | OSError:
        """End every connection. Requests per second, or why there was none."""
        self.is_over = True
        for sock in list(self._open):
            self.end(sock)
        if self.count == 0 and self.failed is not None:
            return self.failed
        return self.count / self.seconds


class _Loop:
    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._load: _Load | None = None
        self._running = True
        self._origin = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self._file = os.memfd_create("bulk")
        os.pwrite(self._file, b"x" * (8 << 20), 0)
        self.add(self._origin, self._accept)
        self.add(pipe, self._asked)

    def add(self, what: Any, callback: Callable[[], None]) -> None:
        self._callbacks[what.fileno()] = callback
        self._epoll.register(what.fileno(), select.EPOLLIN)

    def drop(self, sock: socket.socket) -> None:
        self._epoll.unregister(sock.fileno())
        del self._callbacks[sock.fileno()]

    def run(self) -> None:
        self._pipe.send(self._origin.getsockname()[1])
        while self._running:
            wait = -1.0 if self._load is None else max(0.0, self._load.ends - time.monotonic())
            for fd, _ in self._epoll.poll(wait, 128):
                if (callback := self._callbacks.get(fd)) is not None:
                    callback()
            if self._load is not None and time.monotonic() >= self._load.ends:
                load, self._load = self._load, None
                self._pipe.send(load.over())

    def _asked(self) -> None:
        try:
            asked = self._pipe.recv()
        except EOFError:
            asked = None
        if asked is None:
            self._running = False
        elif asked[0] == "load":
            self._load = _Load(self, *asked[1])
        else:
            threading.Thread(target=self._fetch_bulk, args=asked[1], daemon=True).start()

    # -- the origin

    def _accept(self) -> None:
        sock, _ = self._origin.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def readable() -> None:
            try:
                data = sock.recv(65536, _DONTWAIT)
                if data.startswith(b"BULK"):
                    self.drop(sock)
                    threading.Thread(target=self._send_bulk, args=(sock, data), daemon=True).start()
                    return
                if count := data.count(b"\r\n\r\n"):
                    sock.send(ANSWER * count)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data or b"Connection: close" in data:
                self.drop(sock)
                sock.close()

        self.add(sock, readable)

    def _send_bulk(self, sock: socket.socket, asked: bytes) -> None:
        left = int(asked[4:12]) << 20
        with sock:
            while left:
                left -= os.sendfile(sock.fileno(), self._file, 0, min(left, 8 << 20))

    def _fetch_bulk(self, port: int, mebibytes: int, prefix: bytes) -> None:
        """GB/s from the origin through one tunnel."""
        try:
            with socket.create_connection(("127.0.0.1", port), 5) as sock:
                sock.settimeout(None)
                head = b""
                if prefix:
                    sock.sendall(prefix)
                    while b"\r\n\r\n" not in head:
                        if not (more := sock.recv(1)):
                            raise ConnectionError("no tunnel was opened")
                        head += more
                sock.sendall(b"BULK%08d" % mebibytes)
                room, got, started = bytearray(1 << 20), 0, time.perf_counter()
                while count := sock.recv_into(room, 1 << 20, socket.MSG_TRUNC):
                    got += count
                taken = time.perf_counter() - started
            if got != mebibytes << 20:
                raise ConnectionError(f"{got} bytes came in place of {mebibytes << 20}")
            self._pipe.send(got / taken / 1e9)
        except OSError as error:
            self._pipe.send(error)


def _main(pipe: Any) -> None:
    pin(1)
    _Loop(pipe).run()


class Generator:
    """The process on the other core. origin: the port of its server."""

    def __enter__(self) -> Generator:
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(
            target=_main, args=(theirs,), daemon=True
        )
        self._process.start()
        theirs.close()  # else nobody would notice that the process has ended
        self.origin: int = self._pipe.recv()
        return self

    def __exit__(self, *exc: object) -> None:
        self._pipe.send(None)
        self._process.join(5)
        self._process.kill()

    async def load(
        self, port: int, steps: list[bytes], keep: bool, seconds: float, connections: int = CONNECTIONS
    ) -> float:
        """Requests per second. Raises: OSError when nothing answers there."""
        return await self._ask("load", port, steps, keep, seconds, connections)

    async def bulk(self, port: int, mebibytes: int, prefix: bytes) -> float:
        """GB/s through one tunnel, opened with `prefix`. Raises: OSError."""
        return await self._ask("bulk", port, mebibytes, prefix)

    async def _ask(self, kind: str, *arguments: object) -> float:
        self._pipe.send((kind, arguments))
        result: float | OSError = await asyncio.get_running_loop().run_in_executor(None, self._pipe.recv)
        if isinstance(result, OSError):
            raise result
        return result
