"""The wire between host and child: length, kind, payload.

A frame is a 4-byte big-endian length, one kind byte and the payload. `J` carries one JSON object, `D` raw
bytes that belong to the `J` frame before them (whose `"bytes"` key says how many follow). The length is
compared with a cap before anything is allocated. The same code serves both sides; the host side adds the
strict JSON rules (`isolate/_strict_json.py`), because only the child is hostile.
"""

from __future__ import annotations

import struct

HEADER = struct.Struct(">IB")
JSON, DATA = ord("J"), ord("D")
DATA_CHUNK = 256 * 1024
MAX_ATTACHED = 32 << 20
"""Bytes that may follow one message (a body to fetch with, content to store)."""
MAX_KIND = 200
"""Characters of an event's kind."""
# A frame that counts for nothing: requests, and all before the call. What counts for the call's `output`
# may be as long as that.
SMALL_FRAME = 256 * 1024


class FrameError(Exception):
    """The other side sent what no frame can be: too long, an unknown kind, or bytes where none were
    announced.
    """


def header(kind: int, length: int) -> bytes:
    """The five bytes before a payload of `length` bytes."""
    return HEADER.pack(length, kind)


class FrameTooLong(FrameError):
    """A JSON frame over its cap: more than the call may return."""


class FrameParser:
    """Bytes in, frames out; never holds more than one frame's cap plus one read.

    cap: the longest payload accepted for `J`; `D` payloads are bounded by DATA_CHUNK. Both may be changed
    between frames.
    """

    def __init__(self, cap: int = SMALL_FRAME) -> None:
        self.cap = cap
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Every whole frame that `data` completes, in order.

        Raises FrameError on the first byte that cannot be right.
        """
        self._buffer += data
        frames: list[tuple[int, bytes]] = []
        start, end = 0, len(self._buffer)
        while end - start >= HEADER.size:
            length, kind = HEADER.unpack_from(self._buffer, start)
            if kind not in (JSON, DATA):
                raise FrameError(f"unknown frame kind {kind:#04x}")
            limit = self.cap if kind == JSON else DATA_CHUNK
            if kind == JSON and limit < length < 1 << 31:
                raise FrameTooLong(f"frame of {length} bytes, the limit is {limit}")
            if length > limit:
                raise FrameError(f"frame of {length} bytes, the limit is {limit}")
            if end - start < HEADER.size + length:
                break
            start += HEADER.size + length
            frames.append((kind, bytes(self._buffer[start - length : start])))
        del self._buffer[:start]  # once: for every frame it would move what is behind it, and many are small
        return frames

    @property
    def pending(self) -> int:
        """Bytes of an unfinished frame."""
        return len(self._buffer)
