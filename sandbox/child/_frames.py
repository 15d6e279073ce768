"""Frames on a Unix stream socket: two lengths, a JSON header, a body of raw bytes.

`[u32 header length][u32 body length][header][body]`, little endian. Long text (scripts, values, answers)
travels in the body, so it is escaped and parsed once. Both ends cap both lengths before they read on: the
other end may be an engine that a script has taken over. Shared by the worker (blocking) and the host
(asyncio); stdlib only.
"""

from __future__ import annotations

import json
import socket
import struct
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
        self._sock = sock
        self._buffer = bytearray()

    def send(self, header: dict[str, Any], body: bytes = b"") -> None:
        """Write one frame. Raises: OSError when the host is gone."""
        self._sock.sendall(pack(header, body))

    def receive(self, timeout: float | None = None) -> tuple[dict[str, Any], bytes] | None:
        """The next frame, or None when `timeout` seconds passed first. Raises: EOFError, FrameError."""
        # A timeout of zero would mean "don't block" and fail in another way.
        self._sock.settimeout(None if timeout is None else max(timeout, 0.001))
        try:
            while len(self._buffer) < HEAD.size:
                self._fill()
            header, body = parse_head(bytes(self._buffer[: HEAD.size]))
            total = HEAD.size + header + body
            # The head is here, so the host is writing: the rest is waited for without the deadline of the
            # question.
            self._sock.settimeout(None)
            while len(self._buffer) < total:
                self._fill(total - len(self._buffer))
        except TimeoutError:
            return None
        raw = bytes(self._buffer[HEAD.size : total])
        del self._buffer[:total]
        return parse_header(raw[:header]), raw[header:]

    def _fill(self, want: int = 65536) -> None:
        data = self._sock.recv(max(65536, min(want, 1 << 20)))
        if not data:
            raise EOFError("the host closed the socket")
        self._buffer += data
