"""The body of a child's HTTP/1.1 request, framing undone: by length, or in chunks.

Guarantees: a chunk's size is hexadecimal digits and nothing else, lines end in CRLF, chunk lines and trailers
have caps, trailers hold nothing that frames or routes; a body in chunks of a byte costs a small multiple of
its bytes, and lets others have their turns.
Not here: which framing a head means (_head.py).
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal

from fumehood.broker._exchange import Headers
from fumehood.broker._head import MAX_HEADERS, MAX_TRAILERS, NOT_IN_TRAILERS, BadHead, RequestHead, read_field
from fumehood.broker._turns import Turns

MAX_CHUNK_LINE = 256  # bytes of a chunk's size line, extensions included
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,12})(?:[ \t]*;[\t\x20-\x7e]*)?")
_AT_ONCE = 512  # chunks that are read in one turn of the event loop: a millisecond


class BodyReader:
    """The body of one request, framing undone, pulled from `read`. trailers: set once the body has ended.

    read: returns the next bytes, b"" at the end. rest: bytes that were read beyond the head; afterwards,
    beyond the body.
    """

    def __init__(self, head: RequestHead, rest: bytes, read: Callable[[], Awaitable[bytes]]) -> None:
        self._head = head
        self._read = read
        self.rest = rest
        self.trailers: Headers = ()
        self.ended = not head.has_body
        self._left = -1  # bytes of the open chunk; 0 before its line end, -1 before the next one's size

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Pieces as they arrive. Raises: BadHead when the framing is broken or the body is cut off."""
        if self._head.chunked:
            async for piece in self._chunks():
                yield piece
            await self._read_trailers()
        elif self._head.length:
            async for piece in self._exactly(self._head.length):
                yield piece
        self.ended = True

    async def _exactly(self, left: int) -> AsyncIterator[bytes]:
        while left:
            if not self.rest:
                await self._more()
            piece, self.rest = self.rest[:left], self.rest[left:]
            left -= len(piece)
            yield piece

    async def _chunks(self) -> AsyncIterator[bytes]:
        turns = Turns(1)
        while True:
            piece, then = self._those_that_are_there()
            if piece:
                yield piece
            if then == "end":
                return
            if then == "more":
                await self._more()
            else:
                await turns.took()

    def _those_that_are_there(self) -> tuple[bytes, Literal["end", "more", "turn"]]:
        """What of up to _AT_ONCE chunks has arrived, and what follows: the end, more bytes, others' turn."""
        data, at, pieces = self.rest, 0, []
        then: Literal["end", "more", "turn"] = "turn"
        for _ in range(_AT_ONCE):
            if self._left < 0:
                end = data.find(b"\n", at, at + MAX_CHUNK_LINE)
                if end < 0 and len(data) - at < MAX_CHUNK_LINE:
                    then = "more"
                    break
                self._left, at = _chunk_size(data[at : end + 1]), end + 1
                if self._left == 0:
                    then = "end"
                    break
            taken = data[at : at + self._left]
            self._left -= len(taken)
            at += len(taken)
            pieces.append(taken)
            if self._left or len(data) - at < 2:
                then = "more"
                break
            if data[at : at + 2] != b"\r\n":
                raise BadHead("a chunk does not end in CRLF")
            self._left, at = -1, at + 2
        self.rest = data[at:]
        return b"".join(pieces), then

    async def _line(self, most: int) -> bytes:
        while (end := self.rest.find(b"\n")) < 0:
            if len(self.rest) > most:
                raise BadHead("a trailer line is too long")
            await self._more()
        line, self.rest = self.rest[: end + 1], self.rest[end + 1 :]
        if len(line) > most or not line.endswith(b"\r\n") or b"\r" in line[:-2]:
            raise BadHead("a trailer line is too long or ends in a bare LF")
        return line[:-2]

    async def _read_trailers(self) -> None:
        found: list[tuple[str, str]] = []
        size = 0
        while line := await self._line(MAX_TRAILERS):
            size += len(line)
            if size > MAX_TRAILERS or len(found) >= MAX_HEADERS:
                raise BadHead("the trailers are too long", 431)
            name, value = read_field(line)
            if name.lower() in NOT_IN_TRAILERS:
                raise BadHead(f"the trailer {name!r} may not come after the body")
            found.append((name, value))
        self.trailers = tuple(found)

    async def _more(self) -> None:
        data = await self._read()
        if not data:
            raise BadHead("the body is cut off")
        self.rest += data


def _chunk_size(line: bytes) -> int:
    """The size that a chunk's first line says. Raises: BadHead."""
    if not line.endswith(b"\r\n") or b"\r" in line[:-2]:
        raise BadHead("a chunk line is too long or ends in a bare LF")
    match = _CHUNK.fullmatch(line[:-2])
    if match is None:
        raise BadHead("a chunk has no size")
    return int(match[1], 16)
