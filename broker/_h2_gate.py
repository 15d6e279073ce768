"""The frames of one HTTP/2 connection before anything is done with them: which bytes reach the state machine.

Guarantees: at most one frame is held; no frame above the size that was announced; header blocks have a cap in
bytes and in CONTINUATION frames, and nothing stands inside one; frames that cost the sender nothing and us
work (PING, SETTINGS, WINDOW_UPDATE, empty DATA, unknown ones) and resets have budgets that fill with time and
with honest work, so that an old idle connection lives and a flood ends (CVE-2019-9512 to 9518,
CVE-2023-44487, CVE-2024-27316, CVE-2025-8671). Priorities and unknown frames go no further; GOAWAY is handed
out, since the `h2` package would end the streams that it lets finish, and so is a frame that is wrong for
its own stream only, since the package would end the connection.
Not here: the meaning of what passes (the `h2` package, _h2_link.py). Before editing: pure but for the clock.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MAX_FRAME = 16384  # bytes of a payload; the size every peer must know, and we announce no other
MAX_BLOCK = 64 * 1024  # bytes of one encoded header block, all its frames together
MAX_CONTINUATIONS = 16  # frames of one header block; four full ones reach MAX_BLOCK
MAX_RESIZES = 8  # table size updates before the first field; encoders send two (RFC 7541 section 4.2)
FRAMES_AT_ONCE = 64  # that the state machine is given together: some milliseconds of work
MAX_SETTINGS = 64  # entries of one SETTINGS frame; there are about ten kinds
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITIZED = 1, 1, 4, 8, 32  # flags
NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = 0, 1, 2, 3  # codes, RFC 9113 section 7
FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 6, 7, 8, 9, 11


class BadFrames(Exception):
    """The peer broke the framing or its budget. code: for GOAWAY."""

    def __init__(self, what: str, code: int = PROTOCOL_ERROR) -> None:
        super().__init__(what)
        self.what = what
        self.code = code


@dataclass(frozen=True, slots=True)
class GoAway:
    """The peer takes no more streams. last: the highest of ours that it looked at."""

    last: int
    code: int


@dataclass(frozen=True, slots=True)
class BadStream:
    """The peer broke the protocol in a way that concerns one stream. code: for RST_STREAM."""

    number: int
    code: int


class Allowance:
    """What may be spent: `size` at once, `rate` a second, and whatever `earn` adds up to `size`."""

    def __init__(self, size: float, rate: float, clock: Callable[[], float]) -> None:
        self._size, self._rate, self._clock = size, rate, clock
        self._left, self._at = size, clock()

    def spend(self) -> bool:
        """Whether there was something left."""
        now = self._clock()
        self._left = min(self._size, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def earn(self, amount: int) -> None:
        self._left = min(self._size, self._left + amount)


class FrameGate:
    """server: whether the peer opens with the client's preface. clock: monotonic seconds."""

    def __init__(self, *, server: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._buffer = bytearray()
        self._preface = PREFACE if server else b""
        self._opened: int | None = 0 if server else None  # the highest stream of the peer's
        self._began = False  # the first frame, SETTINGS, has come
        self._block: int | None = None  # the stream whose header block is open
        self._block_bytes = 0
        self._block_frames = 0
        self._resizes = 0  # table size updates of the open block; -1 once a field came
        self._small = Allowance(1000, 20, clock)
        self._resets = Allowance(200, 20, clock)

    @property
    def is_waiting(self) -> bool:
        """Whether the peer began something that it has to end soon: the preface, a header block, a frame
        that is not DATA.
        """
        if self._block is not None or (self._buffer and len(self._buffer) < 9):
            return True
        return bool(self._preface and len(self._preface) < len(PREFACE)) or (
            len(self._buffer) >= 9 and self._buffer[3] != DATA
        )

    def sent(self, frames: int) -> None:
        """DATA frames went to the peer: it may answer each with two window updates."""
        self._small.earn(2 * frames)

    def completed(self) -> None:
        """A stream went to its end."""
        self._resets.earn(1)

    def spend_reset(self) -> None:
        """A stream was reset, by the peer or for what the peer did on it. Raises: BadFrames."""
        if not self._resets.spend():
            raise BadFrames("too many streams were opened and reset", ENHANCE_YOUR_CALM)

    def feed(self, data: bytes) -> list[bytes | GoAway | BadStream]:
        """What of `data` goes on, whole frames in order, a few at a time.

        Raises: BadFrames; what came before the bad frame is lost with the connection.
        """
        out: list[bytes | GoAway | BadStream] = []
        self._buffer += data
        passed = self._take_preface()
        at = frames = 0
        while len(self._buffer) - at >= 9:
            high, low, kind, flags, stream = struct.unpack_from("!BHBBI", self._buffer, at)
            length, stream = high << 16 | low, stream & 0x7FFFFFFF
            if length > MAX_FRAME:
                raise BadFrames(f"a frame of {length} bytes, over {MAX_FRAME}", FRAME_SIZE_ERROR)
            self._check(kind, flags, stream, length)  # before its payload is waited for
            end = at + 9 + length
            if len(self._buffer) < end:
                break
            self._count(kind, flags, stream, length)
            if kind in (HEADERS, CONTINUATION):
                self._look_into_block(kind, flags, self._buffer[at + 9 : end])
            apart: GoAway | BadStream | None = None
            if kind == GOAWAY:
                apart = _goaway(bytes(self._buffer[at + 9 : end]))
            elif kind == WINDOW_UPDATE and stream and self._buffer[at + 9 : end] == bytes(4):
                apart = BadStream(stream, PROTOCOL_ERROR)  # RFC 9113 section 6.9
            elif kind == HEADERS and flags & PRIORITIZED:
                passed += _without_priority(self._buffer[at:end])
            elif kind in (DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION):
                passed += self._buffer[at:end]
            if apart is not None:
                out += [bytes(passed), apart] if passed else [apart]
                passed = bytearray()
                frames = 0
            frames += 1
            if frames >= FRAMES_AT_ONCE and passed:
                out.append(bytes(passed))
                passed, frames = bytearray(), 0
            at = end
        del self._buffer[:at]
        return [*out, bytes(passed)] if passed else out

    def _take_preface(self) -> bytearray:
        if not self._preface:
            return bytearray()
        count = min(len(self._preface), len(self._buffer))
        taken = self._buffer[:count]
        if taken != self._preface[:count]:
            raise BadFrames("the connection does not begin with the HTTP/2 preface")
        self._preface = self._preface[count:]
        del self._buffer[:count]
        return taken

    def _check(self, kind: int, flags: int, stream: int, length: int) -> None:
        if not self._began and (kind != SETTINGS or flags & ACK):
            raise BadFrames("the first frame is not SETTINGS")
        if self._block is not None and (kind != CONTINUATION or stream != self._block):
            raise BadFrames("something stands inside a header block")
        if kind in (RST_STREAM, WINDOW_UPDATE) and self._opened is not None and stream > self._opened:
            raise BadFrames("a frame on a stream that was never opened")
        if kind == CONTINUATION and self._block is None:
            raise BadFrames("a CONTINUATION continues nothing")
        if kind == PUSH_PROMISE:
            raise BadFrames("a push that nobody allowed")
        if kind == SETTINGS and length > 6 * MAX_SETTINGS:
            raise BadFrames(f"over {MAX_SETTINGS} settings at once", ENHANCE_YOUR_CALM)
        if kind in (HEADERS, CONTINUATION) and self._block_bytes + length > MAX_BLOCK:
            raise BadFrames(f"a header block over {MAX_BLOCK} bytes", ENHANCE_YOUR_CALM)

    def _count(self, kind: int, flags: int, stream: int, length: int) -> None:
        self._began = True
        if kind in (HEADERS, CONTINUATION):
            self._block_bytes += length
            self._block_frames += kind == CONTINUATION
            if self._block_frames > MAX_CONTINUATIONS:
                raise BadFrames(f"a header block in over {MAX_CONTINUATIONS} frames", ENHANCE_YOUR_CALM)
            self._block = stream
            self._opened = None if self._opened is None else max(self._opened, stream)
            self._resizes = 0 if kind == HEADERS else self._resizes
            if flags & END_HEADERS:
                self._block, self._block_bytes, self._block_frames = None, 0, 0
                self._small.earn(1)
        elif kind == RST_STREAM:
            self.spend_reset()
        elif kind == DATA and (length or flags & END_STREAM):
            self._small.earn(1)
        elif not self._small.spend():
            raise BadFrames("too many frames that carry nothing", ENHANCE_YOUR_CALM)

    def _look_into_block(self, kind: int, flags: int, payload: bytearray) -> None:
        """Count the table size updates that stand before the first field: the decoder does one at a time."""
        at = 0
        if kind == HEADERS:
            at = (1 if flags & PADDED else 0) + (5 if flags & PRIORITIZED else 0)
        while self._resizes >= 0 and at < len(payload):
            first = payload[at]
            if first & 0xE0 != 0x20:  # RFC 7541 section 6.3: 001 and a number
                self._resizes = -1
                return
            self._resizes += 1
            if self._resizes > MAX_RESIZES:
                raise BadFrames(f"over {MAX_RESIZES} table size updates in one head", COMPRESSION_ERROR)
            at += 1
            if first & 0x1F == 0x1F:
                while at < len(payload) and payload[at] & 0x80:
                    at += 1
                at += 1


def _without_priority(frame: bytearray) -> bytearray:
    """A HEADERS frame without the priority that RFC 9113 section 5.3.2 has nobody heed."""
    at = 9 + (1 if frame[4] & PADDED else 0)
    if len(frame) < at + 5:
        raise BadFrames("a HEADERS frame shorter than its own fields", FRAME_SIZE_ERROR)
    length = struct.pack("!I", len(frame) - 9 - 5)[1:]
    return bytearray(length) + frame[3:4] + bytes((frame[4] & ~PRIORITIZED,)) + frame[5:at] + frame[at + 5 :]


def _goaway(payload: bytes) -> GoAway:
    if len(payload) < 8:
        raise BadFrames("a GOAWAY without its fields", FRAME_SIZE_ERROR)
    last, code = struct.unpack_from("!II", payload)
    return GoAway(last & 0x7FFFFFFF, code)
