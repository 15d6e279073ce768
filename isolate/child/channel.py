"""The child's end of the call socket: requests out, answers in, for any number of threads or tasks.

Whoever waits for an answer reads for all: one waiter holds the reading lock, keeps each answer for the
request it belongs to, and passes the lock on. So a plain function, its threads and an event loop share one
socket without a reader thread of their own. The module `threading` is not imported: it runs code after every
fork, in every child, whether the tool has threads or not.
"""

from __future__ import annotations

import _thread
import itertools
import json
import os
import socket
from collections.abc import Callable
from typing import Any

from . import plain
from .frames import DATA, DATA_CHUNK, JSON, SMALL_FRAME, FrameParser, header

Message = dict[str, Any]


class HostGone(Exception):
    """The host closed the call: nothing more can be asked or answered."""


def encode(message: Message) -> bytes:
    """One `J` frame.

    Raises TypeError, ValueError or RecursionError for what JSON cannot hold or the host does not take.
    """
    payload = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8")
    if plain.may_be_long(payload) and (long := plain.fault(message)) is not None:
        raise plain.NotPlain(long)
    return header(JSON, len(payload)) + payload


class Channel:
    """Frames over one connected stream socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        # The host is trusted: its frames are as long as the input limit lets them be.
        self._parser = FrameParser(cap=1 << 31)
        self._inbox: list[tuple[Message, bytes]] = []
        self._waiting: Message | None = None
        self._data = bytearray()
        self._answers: dict[int, tuple[Message, bytes]] = {}
        self._send_lock = _thread.allocate_lock()
        self._read_lock = _thread.allocate_lock()
        self._numbers = itertools.count(1)

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def send_with(self, message: Message, fds: list[int], last: Callable[[], None] | None = None) -> None:
        """Send one message and descriptors, which are closed here before the message is whole: whoever has
        read it finds them closed, and what `last` does, done. Only before any tool code runs; the host takes
        none afterwards.
        """
        frame = encode({**message, "fds": len(fds)})
        socket.send_fds(self._socket, [frame[:1]], fds)
        for fd in fds:
            os.close(fd)
        if last is not None:
            last()
        self._socket.sendall(frame[1:])

    def send(self, message: Message, data: bytes = b"") -> None:
        """Send one message and the bytes that belong to it, without another thread's frame between them."""
        if data:
            message = {**message, "bytes": len(data)}
        frame = encode(message)
        if len(frame) > SMALL_FRAME and message["t"] in ("fetch", "put"):
            method = f"ctx.{message['t']}"
            raise ValueError(f"{method}: what it says beside the body has more than {SMALL_FRAME} bytes")
        try:
            with self._send_lock:
                self._socket.sendall(frame)
                for start in range(0, len(data), DATA_CHUNK):
                    chunk = data[start : start + DATA_CHUNK]
                    self._socket.sendall(header(DATA, len(chunk)) + chunk)
        except OSError as error:
            raise HostGone(str(error)) from error

    def receive(self) -> tuple[Message, bytes]:
        """The next message and its bytes. Raises HostGone at the end of the stream."""
        while not self._inbox:
            self.read()
        return self._inbox.pop(0)

    def read(self, flags: int = 0) -> list[tuple[Message, bytes]]:
        """One read from the socket; every message it completed (also kept for `receive`).

        Raises HostGone at the end of the stream.
        """
        try:
            received = self._socket.recv(DATA_CHUNK, flags)
        except OSError as error:
            raise HostGone(str(error)) from error
        if not received:
            raise HostGone("the host closed the call")
        for kind, payload in self._parser.feed(received):
            if kind == JSON:
                self._waiting, self._data = json.loads(payload), bytearray()
            else:
                self._data += payload
            if self._waiting is not None and len(self._data) >= self._waiting.get("bytes", 0):
                self._inbox.append((self._waiting, bytes(self._data)))
                self._waiting = None
        return self._inbox

    def new_id(self) -> int:
        """A request number that no other request of this call has."""
        return next(self._numbers)

    def ask(self, message: Message, data: bytes = b"") -> tuple[Message, bytes]:
        """Send a request and wait for the answer that carries its id; other threads' answers are kept."""
        request = self.new_id()
        self.send({**message, "id": request}, data)
        while True:
            with self._read_lock:  # one answer a turn, then another waiter may look
                if request in self._answers:
                    return self._answers.pop(request)
                answer, body = self.receive()
                self._answers[answer["id"]] = (answer, body)
