"""The host's end of one child's call socket: messages out, messages in.

What arrives is read as it comes and kept as frames until somebody asks; with more than `_HELD` bytes of them
waiting nothing more is read, so a child can fill its socket and not the host. One reader stands for the whole
life of the child: setting it up and taking it down for each wait costs more than the message.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import errno
import json
import os
import socket
from typing import Any

from fumehood.isolate import _strict_json
from fumehood.isolate.child.frames import (
    DATA,
    DATA_CHUNK,
    JSON,
    MAX_ATTACHED,
    SMALL_FRAME,
    FrameError,
    FrameParser,
    FrameTooLong,
    header,
)

Message = dict[str, Any]
_HELD = DATA_CHUNK
_FRAME = 200  # bytes that an empty frame takes here: a child must not fill the host with nothing
_SOCKET_BUFFER = 1 << 20
_LONG_TYPES = ("result", "error", "emit", "log")
_MAY_BE_LONG = tuple(f'{{"t":"{kind}"'.encode() for kind in _LONG_TYPES)
"""How messages begin that count for the call's output. Others may be sent without end: long ones are not even
decoded, which would keep the host for a moment each.
"""
_MOST_FDS = 64  # in one message; the kernel's own most is 253 (SCM_MAX_FD)


class ProtocolError(Exception):
    """The child sent what the protocol does not allow; the text says what."""


class OutputTooLong(Exception):
    """The child wants to send one message of more bytes than its output limit."""


class Line:
    """One connected pair of sockets, of which the child gets `theirs`.

    message_bytes: how long the JSON of the last message was.
    """

    def __init__(self) -> None:
        self._sock, self.theirs = socket.socketpair()
        self._sock.setblocking(False)
        for sock in (self._sock, self.theirs):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
        self.message_bytes = 0
        self._fds: list[int] = []
        self._loop = asyncio.get_running_loop()
        self._parser = FrameParser()
        self._frames: collections.deque[tuple[int, bytes]] = collections.deque()
        self._held = 0
        self._fault: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._with_fds = True
        self._reading = False
        self._sending = asyncio.Lock()
        self._read_on()

    def accept_frames_up_to(self, cap: int) -> None:
        """From now on a JSON frame may be `cap` bytes long."""
        self._parser.cap = cap

    def take_fds(self, message: Message) -> list[int]:
        """The descriptors that came with a message, as many as its `fds` says; the caller's to close.

        Raises OSError when there are fewer: the kernel had no number left for them.
        """
        count = message.get("fds", 0)
        if len(self._fds) < count:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        taken, self._fds = self._fds[:count], self._fds[count:]
        return taken

    def no_fds(self) -> None:
        """From now on descriptors that the child sends are dropped by the kernel (unix(7))."""
        self._with_fds = False

    @property
    def spoke(self) -> bool:
        """Whether the child has sent something that was not read: nothing is asked of it between calls."""
        if self._frames or self._parser.pending:
            return True
        if self._fault is not None:
            return not isinstance(self._fault, EOFError)
        try:
            return bool(self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except (BlockingIOError, ConnectionError):
            return False

    # -- in --------------------------------------------------------------------------------------------------

    async def receive(self) -> tuple[Message, bytes]:
        """The child's next message and the bytes that belong to it.

        Raises EOFError at its end, OutputTooLong, and ProtocolError for nonsense.
        """
        kind, payload = await self._next_frame()
        if kind != JSON:
            raise ProtocolError("bytes that no message announced")
        self.message_bytes = len(payload)
        if len(payload) > SMALL_FRAME and not payload.startswith(_MAY_BE_LONG):
            raise ProtocolError(f"a request of {len(payload)} bytes, the limit is {SMALL_FRAME}")
        try:
            message = _strict_json.decode(payload)
        except _strict_json.NotStrict as error:
            raise ProtocolError(f"a message that is no strict JSON: {error}") from error
        if not isinstance(message, dict) or not isinstance(message.get("t"), str):
            raise ProtocolError("a message without a type")
        if len(payload) > SMALL_FRAME and message["t"] not in _LONG_TYPES:
            raise ProtocolError(f"a message of two types, one of them {message['t'][:40]!r}")
        announced = message.get("bytes", 0)
        if (
            not isinstance(announced, int)
            or isinstance(announced, bool)
            or not 0 <= announced <= MAX_ATTACHED
        ):
            raise ProtocolError(f"{str(announced)[:40]} bytes announced, the limit is {MAX_ATTACHED}")
        body = bytearray()
        while len(body) < announced:
            kind, payload = await self._next_frame()
            # In pieces as large as they may be: a byte each would be millions of frames.
            if kind != DATA or len(payload) != min(DATA_CHUNK, announced - len(body)):
                raise ProtocolError("bytes that do not fit what was announced")
            body += payload
        return message, bytes(body)

    async def _next_frame(self) -> tuple[int, bytes]:
        while not self._frames:
            if self._fault is not None:
                raise self._fault
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        frame = self._frames.popleft()
        self._held -= len(frame[1]) + _FRAME
        if not self._reading and self._held <= _HELD and self._fault is None:
            self._read_on()
        return frame

    def _on_readable(self) -> None:
        try:
            if self._with_fds:
                data = self._receive_with_fds()
            else:
                data = self._sock.recv(DATA_CHUNK)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        try:
            if not data:
                raise EOFError
            for frame in self._parser.feed(data):
                self._frames.append(frame)
                self._held += len(frame[1]) + _FRAME
        except FrameTooLong as error:
            self._fault = OutputTooLong(str(error))
        except FrameError as error:
            self._fault = ProtocolError(str(error))
        except EOFError as error:
            self._fault = error
        if self._fault is not None or self._held > _HELD:
            self.read_no_more()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _receive_with_fds(self) -> bytes:
        """As `recv`; the bytes that descriptors came with and those after them at once."""
        data, fds, _, _ = socket.recv_fds(self._sock, DATA_CHUNK, _MOST_FDS)
        self._fds += fds
        if fds:
            with contextlib.suppress(BlockingIOError):
                data += self._receive_with_fds()
        return data

    def _read_on(self) -> None:
        self._reading = True
        self._loop.add_reader(self._sock, self._on_readable)

    def read_no_more(self) -> None:
        """Leave what else arrives in the socket."""
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._sock)

    # -- out -------------------------------------------------------------------------------------------------

    async def send(self, message: Message, data: bytes = b"") -> None:
        """Send one message and its bytes; a child that has gone is not an error here, its end is seen
        elsewhere.
        """
        if data:
            message = {**message, "bytes": len(data)}
        payload = json.dumps(message, allow_nan=False, separators=(",", ":")).encode()
        frame = header(JSON, len(payload)) + payload
        if not data and not self._sending.locked():
            with contextlib.suppress(OSError):
                sent = self._sock.send(frame)
                if sent == len(frame):
                    return
                frame = frame[sent:]
        async with self._sending:
            with contextlib.suppress(ConnectionError, OSError):
                await self._loop.sock_sendall(self._sock, frame)
                for start in range(0, len(data), DATA_CHUNK):
                    chunk = data[start : start + DATA_CHUNK]
                    await self._loop.sock_sendall(self._sock, header(DATA, len(chunk)) + chunk)

    def close(self) -> None:
        """Hear nothing more, let both ends go and every descriptor that nobody took; whoever still waits for
        a message is told that there is none.
        """
        self.read_no_more()
        self._fault = self._fault or EOFError()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        self._sock.close()
        self.theirs.close()
        while self._fds:
            os.close(self._fds.pop())
