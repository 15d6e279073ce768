"""One HTTP/1.1 request and its answer on one upstream connection, with every count bounded.

Guarantees: interim answers, header lines and head bytes have caps; a protocol switch that nobody asked for, a
body with both lengths, a truncated body and bytes after the answer are errors; a connection is offered for
reuse only when it is provably clean.
Not here: who may be asked (_decide.py), redirects and body caps (_fetch.py).
Before editing: httpcore's pool is not used, because it reuses a connection with an unasked answer waiting in
its buffer and has no bound on interim answers; its network backend interface is
(docs/adr/0006-own-http-exchange.md). Ordinary requests and answers are written and read by _plain_answer.py;
h11 comes in, told of what was sent, as soon as anything is not ordinary.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from dataclasses import dataclass

import h11
import httpcore

from fumehood.broker._addresses import Address
from fumehood.broker._dial import PinnedStream
from fumehood.broker._plain_answer import read_plain, write_plain

MAX_HEAD = 64 * 1024  # bytes of one response head; browsers stop between 16 and 256 KiB
MAX_HEADERS = 256  # header lines of one response head
MAX_INTERIM = 32  # 1xx answers to one request: a few 103s and a 100 are normal
_READ = 64 * 1024
_AT_ONCE = 128  # chunks of an answer in one turn of the event loop

Headers = tuple[tuple[str, str], ...]


class UpstreamFailed(Exception):
    """The upstream broke off or broke the protocol. reason: `upstream` or `budget-bytes`.

    unprocessed: the upstream says that it did not look at the request, so that it may be sent once more.
    """

    def __init__(self, what: str, reason: str = "upstream", *, unprocessed: bool = False) -> None:
        super().__init__(what)
        self.what = what
        self.reason = reason
        self.unprocessed = unprocessed


@dataclass(frozen=True, slots=True)
class ResponseHead:
    status: int
    phrase: str
    headers: Headers
    version: str

    def get(self, name: str) -> str | None:
        """The value of the first header of that lower-case name."""
        return next((value for key, value in self.headers if key.lower() == name), None)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]


class Exchange:
    """A connection that serves one request at a time.

    `answered` is false until the first byte of the current answer.
    """

    def __init__(self, stream: PinnedStream) -> None:
        self.stream = stream
        self.answered = False
        self.used = 0
        self.trailers: Headers = ()
        self._base = (0, 0)
        self._h11: h11.Connection | None = None
        self._plain: tuple[str, str, Headers, bytes] | None = None  # the request, while all is ordinary
        self._left = -1  # bytes of an ordinary answer that are still to come; -1 before its head
        self._length = 0
        self._ahead = b""  # read and not handed out yet
        self._keep = False  # the ordinary answer keeps the connection

    def __repr__(self) -> str:
        state = self._h11.our_state if self._h11 else "plain" if self._plain else "idle"
        return f"<Exchange {self.stream.peer} {state} used={self.used}>"

    @property
    def is_reusable(self) -> bool:
        """Whether another request may follow:

        both sides done, keep-alive agreed, and not one byte too many.
        """
        if self._h11 is None:
            return self._left == 0 and self._keep and not self._ahead and self.stream.is_quiet
        done = self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE
        return done and self._h11.trailing_data == (b"", False) and self.stream.is_quiet

    def renew(self) -> None:
        """Make ready for the next request on a reusable connection."""
        self._h11 = self._plain = None
        self._left, self._ahead, self._keep = -1, b"", False
        self.trailers = ()
        self.answered = False
        self._base = (self.stream.sent, self.stream.received)

    @property
    def peer(self) -> Address:
        """The vetted address that the connection leads to."""
        return self.stream.peer

    @property
    def sent(self) -> int:
        """Bytes sent for the current request."""
        return self.stream.sent - self._base[0]

    @property
    def received(self) -> int:
        """Bytes received for the current request."""
        return self.stream.received - self._base[1]

    @property
    def is_stale(self) -> bool:
        """Whether it was used before and not a byte of this answer has come."""
        return self.used > 1 and not self.answered

    def abort(self) -> None:
        """End it at once, from outside the task that uses it."""
        self.stream.abort()

    async def send(
        self,
        method: str,
        target: str,
        headers: Headers,
        body: bytes | AsyncIterable[bytes] = b"",
        trailers: Callable[[], Headers] | None = None,
    ) -> None:
        """Send head and body. trailers: asked for once the body has ended. Raises: UpstreamFailed."""
        self.used += 1
        try:
            if isinstance(body, bytes):
                whole = write_plain(method, target, headers, body)
                if whole is not None:
                    self._plain = (method, target, headers, body)
                else:
                    whole = self._through_h11(method, target, headers, body)
                await self.stream.write(whole)
                return
            self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
            head = h11.Request(method=method, target=target.encode("ascii"), headers=_encode(headers))
            await self.stream.write(self._h11.send(head) or b"")
            async for piece in body:
                await self.stream.write(self._h11.send(h11.Data(data=piece)) or b"")
            last = h11.EndOfMessage(headers=_encode(trailers() if trailers else ()))
            await self.stream.write(self._h11.send(last) or b"")
        except (h11.LocalProtocolError, httpcore.WriteError, httpcore.WriteTimeout) as error:
            raise UpstreamFailed(f"sending failed: {error}") from error

    def _through_h11(self, method: str, target: str, headers: Headers, body: bytes) -> bytes:
        """The bytes of a request as h11 writes them; its state is that of a connection that sent them."""
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        head = h11.Request(method=method, target=target.encode("ascii"), headers=_encode(headers))
        out = self._h11.send(head) or b""
        out += self._h11.send(h11.Data(data=body)) or b"" if body else b""
        return out + (self._h11.send(h11.EndOfMessage()) or b"")

    async def _plain_head(self) -> ResponseHead | None:
        """The head of an ordinary answer that came whole with its first bytes; None leaves it to h11."""
        assert self._plain is not None
        data = await self._receive()
        found = read_plain(data, self._plain[0], most_bytes=MAX_HEAD, most_lines=MAX_HEADERS)
        if found is None:
            self._through_h11(*self._plain)
            self._feed(data)
            return None
        self._left = self._length = found.length
        self._ahead, self._keep = data[found.at :], found.keep
        return ResponseHead(found.status, found.phrase, found.headers, "1.1")

    def _take(self) -> bytes:
        """What has arrived of an ordinary answer's body."""
        data, self._ahead = self._ahead, b""
        if len(data) > self._left:
            self._keep = False
            raise UpstreamFailed("the peer sent bytes after its answer")
        self._left -= len(data)
        return data

    async def head(
        self, *, upgrade: bool = False, on_interim: Callable[[ResponseHead], None] | None = None
    ) -> ResponseHead:
        """The final answer's head.

        upgrade: the request asked for a protocol switch, so 101 is an answer. Raises: UpstreamFailed.
        """
        interim = 0
        if self._h11 is None and (plain := await self._plain_head()) is not None:
            return plain
        while True:
            event = await self._next_event()
            if isinstance(event, h11.InformationalResponse):
                interim += 1
                found = _head_of(event)
                if event.status_code == 101:
                    if not upgrade:
                        raise UpstreamFailed("the peer switched protocols, which nobody asked for")
                    return found
                if interim > MAX_INTERIM:
                    raise UpstreamFailed(f"more than {MAX_INTERIM} interim answers", "budget-bytes")
                if on_interim is not None:
                    on_interim(found)
            elif isinstance(event, h11.Response):
                found = _head_of(event)
                if found.get("content-length") is not None and found.get("transfer-encoding") is not None:
                    raise UpstreamFailed(
                        "the answer has a length and a transfer coding, so its end is anyone's guess"
                    )
                return found
            else:
                raise UpstreamFailed("the peer closed the connection without an answer")

    def ready(self) -> tuple[bytes, bool]:
        """What of the body has arrived already, and whether that is all of it; waits for nothing.

        Raises: UpstreamFailed as `body` does.
        """
        if self._h11 is None:
            return self._take(), self._left == 0
        piece, event = self._those_that_are_there()
        if not isinstance(event, h11.Data) and event is not h11.NEED_DATA:
            self._end_of(event)
            return piece, True
        return piece, False

    def _those_that_are_there(self) -> tuple[bytes, object]:
        """What of the body has arrived, up to _AT_ONCE pieces of it, and the event after which that ended."""
        pieces = []
        while isinstance(event := self._read_event(), h11.Data):
            pieces.append(bytes(event.data))
            if len(pieces) == _AT_ONCE:
                break
        return b"".join(pieces), event

    async def body(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives.

        Raises: UpstreamFailed when it is cut off, or when bytes follow the answer.
        """
        if self._h11 is None:
            if piece := self._take():
                yield piece
            while self._left:
                self._ahead = await self._receive()
                if not self._ahead:
                    came = f"received {self._length - self._left} bytes, expected {self._length}"
                    raise UpstreamFailed(f"the peer closed the connection inside its answer ({came})")
                yield self._take()
            return
        while True:
            piece, event = self._those_that_are_there()
            if piece:
                yield piece
            if event is h11.NEED_DATA:
                self._feed(await self._receive())
            elif isinstance(event, h11.Data):
                await asyncio.sleep(0)  # a body in chunks of a byte must not keep the loop
            else:
                self._end_of(event)
                return

    def _end_of(self, event: object) -> None:
        """Check the event that follows the body's last piece."""
        if not isinstance(event, h11.EndOfMessage):
            raise UpstreamFailed("the peer closed the connection inside its answer")
        self.trailers = tuple((k.decode("ascii"), v.decode("latin-1")) for k, v in event.headers)
        assert self._h11 is not None
        extra, _ = self._h11.trailing_data
        if extra and self._h11.their_state is not h11.SWITCHED_PROTOCOL:
            raise UpstreamFailed("the peer sent bytes after its answer")

    def take_trailing(self) -> bytes:
        """Bytes of the new protocol that came with a 101."""
        assert self._h11 is not None
        data: bytes = self._h11.trailing_data[0]
        return data

    async def aclose(self) -> None:
        await self.stream.aclose()

    def _read_event(self) -> object:
        assert self._h11 is not None
        try:
            return self._h11.next_event()
        except h11.RemoteProtocolError as error:
            reason = "budget-bytes" if error.error_status_hint == 431 else "upstream"
            raise UpstreamFailed(f"the answer is no HTTP: {_words(error)}", reason) from error

    async def _next_event(self) -> object:
        while True:
            event = self._read_event()
            if event is not h11.NEED_DATA:
                return event
            self._feed(await self._receive())

    async def _receive(self) -> bytes:
        try:
            data = await self.stream.read(_READ)
        except (httpcore.ReadError, httpcore.ReadTimeout) as error:
            raise UpstreamFailed(f"reading failed: {error}") from error
        self.answered = self.answered or bool(data)
        return data

    def _feed(self, data: bytes) -> None:
        assert self._h11 is not None
        try:
            self._h11.receive_data(data)
        except h11.RemoteProtocolError as error:
            raise UpstreamFailed(f"the answer is no HTTP: {_words(error)}") from error


def _words(error: h11.RemoteProtocolError) -> str:
    """What h11 says, without the peer's bytes: they may hold what was sent to it, a secret among that."""
    return re.sub(r"[:,]?\s*(?:bytearray\(|b['\"]).*", "", str(error), flags=re.DOTALL)


def _encode(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers]


def _head_of(event: h11.Response | h11.InformationalResponse) -> ResponseHead:
    raw = event.headers.raw_items()
    if len(raw) > MAX_HEADERS or sum(len(name) + len(value) + 4 for name, value in raw) > MAX_HEAD:
        raise UpstreamFailed(
            f"the answer has {len(raw)} header lines or more than {MAX_HEAD} bytes of them", "budget-bytes"
        )
    headers = tuple((name.decode("ascii"), value.decode("latin-1")) for name, value in raw)
    return ResponseHead(
        event.status_code, event.reason.decode("latin-1"), headers, event.http_version.decode("ascii")
    )
