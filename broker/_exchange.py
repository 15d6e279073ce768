"""One HTTP/1.1 request and its answer on one upstream connection, through h11, with every count bounded.

Guarantees: interim answers, header lines and head bytes have caps; a protocol switch that nobody asked for, a
body with both lengths, a truncated body and bytes after the answer are errors; a connection is offered for
reuse only when it is provably clean.
Not here: who may be asked (_decide.py), redirects and body caps (_fetch.py).
Before editing: httpcore's pool is not used, because it reuses a connection with an unasked answer waiting in
its buffer and has no bound on interim answers; its network backend interface is
(docs/adr/0006-own-http-exchange.md).
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from dataclasses import dataclass

import h11
import httpcore

from fumehood.broker._addresses import Address
from fumehood.broker._dial import PinnedStream

MAX_HEAD = 64 * 1024  # bytes of one response head; browsers stop between 16 and 256 KiB
MAX_HEADERS = 256  # header lines of one response head
MAX_INTERIM = 32  # 1xx answers to one request: a few 103s and a 100 are normal
_READ = 64 * 1024

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
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)

    def __repr__(self) -> str:
        return f"<Exchange {self.stream.peer} {self._h11.our_state} used={self.used}>"

    @property
    def is_reusable(self) -> bool:
        """Whether another request may follow:

        both sides done, keep-alive agreed, and not one byte too many.
        """
        done = self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE
        return done and self._h11.trailing_data == (b"", False) and self.stream.is_quiet

    def renew(self) -> None:
        """Make ready for the next request on a reusable connection."""
        self._h11.start_next_cycle()
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
        head = h11.Request(method=method, target=target.encode("ascii"), headers=_encode(headers))
        try:
            out = self._h11.send(head) or b""
            if isinstance(body, bytes):
                out += self._h11.send(h11.Data(data=body)) or b"" if body else b""
                out += self._h11.send(h11.EndOfMessage()) or b""
                await self.stream.write(out)
                return
            await self.stream.write(out)
            async for piece in body:
                await self.stream.write(self._h11.send(h11.Data(data=piece)) or b"")
            last = h11.EndOfMessage(headers=_encode(trailers() if trailers else ()))
            await self.stream.write(self._h11.send(last) or b"")
        except (h11.LocalProtocolError, httpcore.WriteError, httpcore.WriteTimeout) as error:
            raise UpstreamFailed(f"sending failed: {error}") from error

    async def head(
        self, *, upgrade: bool = False, on_interim: Callable[[ResponseHead], None] | None = None
    ) -> ResponseHead:
        """The final answer's head.

        upgrade: the request asked for a protocol switch, so 101 is an answer. Raises: UpstreamFailed.
        """
        interim = 0
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
        pieces = []
        while isinstance(event := self._read_event(), h11.Data):
            pieces.append(bytes(event.data))
        if event is not h11.NEED_DATA:
            self._end_of(event)
        return b"".join(pieces), event is not h11.NEED_DATA

    async def body(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives.

        Raises: UpstreamFailed when it is cut off, or when bytes follow the answer.
        """
        while isinstance(event := await self._next_event(), h11.Data):
            yield bytes(event.data)
        self._end_of(event)

    def _end_of(self, event: object) -> None:
        """Check the event that follows the body's last piece."""
        if not isinstance(event, h11.EndOfMessage):
            raise UpstreamFailed("the peer closed the connection inside its answer")
        self.trailers = tuple((k.decode("ascii"), v.decode("latin-1")) for k, v in event.headers)
        extra, _ = self._h11.trailing_data
        if extra and self._h11.their_state is not h11.SWITCHED_PROTOCOL:
            raise UpstreamFailed("the peer sent bytes after its answer")

    def take_trailing(self) -> bytes:
        """Bytes of the new protocol that came with a 101."""
        data: bytes = self._h11.trailing_data[0]
        return data

    async def aclose(self) -> None:
        await self.stream.aclose()

    def _read_event(self) -> object:
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
            try:
                data = await self.stream.read(_READ)
            except (httpcore.ReadError, httpcore.ReadTimeout) as error:
                raise UpstreamFailed(f"reading failed: {error}") from error
            self.answered = self.answered or bool(data)
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
