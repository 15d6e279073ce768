"""Frames on a Unix stream socket: two lengths, a JSON header, a body of raw bytes.

`[u32 header length][u32 body length][header][body]`, little endian. Long text (scripts, values, answers)
travels in the body, so it is escaped and parsed once. Both ends cap both lengths before they read on: the
other end may be an engine that a script has taken over. Shared by the worker (blocking) and the host
(asyncio); stdlib only.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from typing import Any

HEAD = struct.Struct("<II")
MAX_HEADER = 1 << 20
MAX_BODY = 256 << 20
_encode = json.JSONEncoder(separators=(",", ":")).encode


class FrameError(Exception):
    """The other end sent what isn't a frame, or closed in the middle of one."""


def pack(header: dict[str, Any], body: bytes = b"") -> bytes:
    """One frame."""
    head = _encode(header).encode()
    return HEAD.pack(len(head), len(body)) + head + body


def parse_head(raw: bytes, *, max_body: int = MAX_BODY) -> tuple[int, int]:
    """The two lengths. Raises: FrameError past a cap."""
    header, body = HEAD.unpack(raw)
    if header > MAX_HEADER or body > max_body:
        raise FrameError(f"frame of {header} + {body} bytes is past the cap")
    return header, body


def parse_header(raw: bytes) -> dict[str, Any]:
    """The JSON header. Raises: FrameError when it isn't a JSON object."""
    try:
        header = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise FrameError("frame header isn't JSON") from error
    if not isinstance(header, dict):
        raise FrameError("frame header isn't an object")
    return header


class BlockingFrames:
    """The worker's end. Reads are buffered; use from one thread."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(True)
        self._sock = sock
        self._buffer = bytearray()
        self._readable = select.poll()
        self._readable.register(sock, select.POLLIN)

    def send(self, header: dict[str, Any], body: bytes = b"") -> None:
        """Write one frame. Raises: OSError when the host is gone."""
        self._sock.sendall(pack(header, body))

    def receive(self, timeout: float | None = None) -> tuple[dict[str, Any], bytes] | None:
        """The next frame, or None when `timeout` seconds passed first. Raises: EOFError, FrameError."""
        end = None if timeout is None else time.monotonic() + timeout
        # The head is waited for under the deadline of the question; when it is here the host is writing, and
        # the rest is waited for without. The socket stays blocking: a timeout of its own costs two calls.
        while len(self._buffer) < HEAD.size:
            if end is not None and not self._readable.poll(max(1.0, (end - time.monotonic()) * 1000)):
                return None
            self._fill()
        header, body = parse_head(bytes(self._buffer[: HEAD.size]))
        total = HEAD.size + header + body
        while len(self._buffer) < total:
            self._fill(total - len(self._buffer))
        raw = bytes(self._buffer[HEAD.size : total])
        del self._buffer[:total]
        return parse_header(raw[:header]), raw[header:]

    def _fill(self, want: int = 65536) -> None:
        data = self._sock.recv(max(65536, min(want, 1 << 20)))
        if not data:
            raise EOFError("the host closed the socket")
        self._buffer += data
