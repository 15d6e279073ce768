"""HTTP/2 of a child behind `+inspect`: each stream is a message like any other.

Guarantees: every request has its own decision and row; :authority is the decided host, another one is 421
with a row (nothing coalesces); CONNECT in both forms is refused; what breaks the protocol on one stream ends
that stream, what breaks the connection or floods ends it with GOAWAY, either with one row. At most
MAX_STREAMS messages are in work, reset ones included until their work has ended; more are refused in a way
that lets the client ask again. A refused gRPC call is told in gRPC's own terms.
Not here: frames (_h2_gate.py), streams (_h2_link.py), the way of a message (_forward.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from fumehood.broker._call import BrokerCall
from fumehood.broker._child import ChildStream
from fumehood.broker._exchange import Headers, ResponseHead
from fumehood.broker._forward import Forward, Stalled
from fumehood.broker._h2_gate import INTERNAL_ERROR, NO_ERROR, REFUSED_STREAM, BadFrames
from fumehood.broker._h2_head import Asked, Fields, read_request, read_trailers, write_fields
from fumehood.broker._h2_link import MAX_STREAMS, Link
from fumehood.broker._h2_stream import LinkBroken, LinkStalled, LinkStream
from fumehood.broker._h2_upstream import MixedUpstream
from fumehood.broker._head import BadHead, RequestHead
from fumehood.broker._http_door import Place, message_target
from fumehood.broker._proxy_target import agrees
from fumehood.broker._refusal import LINGER, refusal_answer
from fumehood.broker._target import BadTarget, Target
from fumehood.broker._types import Door, EgressRefused

MAX_FAULTS = 100  # malformed requests of one connection, each with its row, before it ends
_MISDIRECTED = 421  # RFC 9110 section 15.5.20
_GRPC = {400: 3, 403: 7, 413: 8, 429: 8, 421: 3, 504: 4}  # grpc-status by HTTP status; else 14, unavailable


async def serve_h2(call: BrokerCall, stream: ChildStream, door: Door, fixed: Target) -> None:
    """Serve a connection whose ALPN is h2 until it ends. fixed: the decided host.

    Never raises for what child or upstream do.
    """
    await _Door(call, stream, door, fixed).run()


class _Door:
    def __init__(self, call: BrokerCall, stream: ChildStream, door: Door, fixed: Target) -> None:
        self._call, self._fixed = call, fixed
        self._place = Place(door, fixed)
        self._upstream = MixedUpstream(call)
        self._link = Link(stream, on_request=self._on_request, narrow=call.broker.places.is_crowded)
        self._tasks: dict[asyncio.Task[None], LinkStream] = {}
        self._faults = 0

    async def run(self) -> None:
        try:
            await self._link.run()
        except BadFrames as bad:
            wrong = BadTarget("malformed", bad.what)
            await self._call.refuse_text("", wrong, self._place.door, at=self._fixed)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._upstream.aclose()

    def _on_request(self, stream: LinkStream, fields: Fields, ended: bool) -> None:
        if self._is_full():
            stream.close(REFUSED_STREAM)
            self._link.spend_reset()
            return
        task = asyncio.ensure_future(self._serve(stream, fields, ended))
        stream.on_error = lambda: self._on_error(stream, task)
        self._tasks[task] = stream
        task.add_done_callback(self._tasks.pop)

    def _is_full(self) -> bool:
        """Whether as many messages are in work as there may be. One that was answered is none any more, since
        the client may ask for another as soon as it has the answer; its work ends in a moment.
        """
        if len(self._tasks) < MAX_STREAMS:
            return False
        unanswered = sum(not (stream.is_served or task.done()) for task, stream in self._tasks.items())
        return unanswered >= MAX_STREAMS or len(self._tasks) >= 2 * MAX_STREAMS

    def _on_error(self, stream: LinkStream, task: asyncio.Task[None]) -> None:
        task.cancel()
        if stream.error is not None and stream.error.broke:  # how many there may be, the gate counts
            wrong = BadTarget("malformed", stream.error.what)
            self._call.later(self._call.refuse_text("", wrong, self._place.door, at=self._fixed))

    async def _serve(self, stream: LinkStream, fields: Fields, ended: bool) -> None:
        code = INTERNAL_ERROR
        asked: Asked | None = None
        try:
            asked = read_request(fields, ended=ended)
            caller = _Caller(stream, asked.head)
            await Forward(self._call, caller, self._target(asked), self._place.door, self._upstream).run()
            code = NO_ERROR
        except BadHead as bad:
            refused = await self._refuse(asked, BadTarget("malformed", bad.what))
            code = await self._answer(stream, asked, refused, bad.status)
        except BadTarget as bad:
            status = _MISDIRECTED if bad.reason == "server-name" else None
            code = await self._answer(stream, asked, await self._refuse(asked, bad), status)
        except EgressRefused as refused:
            code = await self._answer(stream, asked, refused, None)
        except (OSError, TimeoutError):
            pass  # the answer ends short, and the client sees that it does
        finally:
            if code == NO_ERROR:
                await _linger(stream)
            stream.close(code)

    def _target(self, asked: Asked) -> Target:
        if asked.head.method == "CONNECT":
            what = f"extended CONNECT ({asked.protocol[:40]!r})" if asked.protocol else "CONNECT"
            raise BadTarget("scheme", f"{what} inside TLS; WebSockets go over HTTP/1.1, behind +ws")
        fixed = self._fixed
        if asked.protocol is not None or asked.authority is None:
            raise BadTarget("malformed", "a request without :authority, or with :protocol")
        if asked.scheme != fixed.scheme or not agrees(asked.authority, fixed):
            named = f"{asked.scheme}://{asked.authority}"[:200]
            raise BadTarget("server-name", f"{named!r} on a connection to {fixed.authority!r}")
        return message_target(asked.head, self._place)

    async def _refuse(self, asked: Asked | None, bad: BadTarget) -> EgressRefused:
        self._faults += 1
        if self._faults >= MAX_FAULTS:
            self._link.close()
        text = asked.head.target if asked else ""
        return await self._call.refuse_text(text, bad, self._place.door, at=self._fixed)

    async def _answer(
        self, stream: LinkStream, asked: Asked | None, refused: EgressRefused, status: int | None
    ) -> int:
        answer = refusal_answer(refused, status=status)
        kind = (asked.head.get("content-type") or "") if asked else ""
        with contextlib.suppress(LinkBroken):
            if kind.startswith("application/grpc"):
                words = f"{answer.code}: {refused.decision.detail or refused.decision.hint}".rstrip(": ")
                headers = (
                    ("content-type", kind),
                    ("grpc-status", str(_GRPC.get(answer.status, 14))),
                    ("grpc-message", _percent(words)),
                    *(field for field in answer.headers if field[0] in ("X-Proxy-Error", "Retry-After")),
                )
                stream.send_head([(b":status", b"200"), *write_fields(headers)], end=True)
            else:
                first = (b":status", str(answer.status).encode())
                bodiless = asked is not None and asked.head.method == "HEAD"
                stream.send_head([first, *write_fields(answer.headers)], end=bodiless)
                if not bodiless:
                    await stream.send(answer.body, end=True)
            return NO_ERROR
        return INTERNAL_ERROR


class _Caller:
    """The child's side of one message."""

    def __init__(self, stream: LinkStream, head: RequestHead) -> None:
        self.head = head
        self.body = _Body(stream, head)
        self.began = False
        self._stream = stream
        self._waiting: tuple[Fields, bytes] | None = None

    async def proceed(self) -> None:
        self._stream.send_head([(b":status", b"100")], end=False)

    async def start(
        self, answer: ResponseHead, headers: Headers, first: bytes, *, bodiless: bool, whole: bool
    ) -> None:
        fields = [(b":status", str(answer.status).encode("ascii")), *write_fields(headers)]
        self.began = True
        if whole:
            self._waiting = (fields, first)
            return
        self._stream.send_head(fields, end=False)
        await self.write(first)

    async def write(self, piece: bytes) -> None:
        try:
            await self._stream.send(piece)
        except LinkStalled as error:
            raise Stalled(f"the client took none of its answer: {error.what}") from error

    async def finish(self, piece: bytes, trailers: Headers) -> None:
        last = write_fields(trailers)
        if self._waiting is not None:
            fields, first = self._waiting
            piece = first + piece
            self._stream.send_head(fields, end=not piece and not last)
            if not piece and not last:
                return
        if last:
            await self.write(piece)
            self._stream.send_head(last, end=True)
            return
        try:
            await self._stream.send(piece, end=True)
        except LinkStalled as error:
            raise Stalled(f"the client took none of its answer: {error.what}") from error

    def raw(self) -> ChildStream:
        raise AssertionError("HTTP/2 has no upgrade")


class _Body:
    """The body of one request, held to its Content-Length."""

    def __init__(self, stream: LinkStream, head: RequestHead) -> None:
        self._stream, self._length = stream, head.length
        self.trailers: Headers = ()
        self.ended = not head.has_body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Pieces as they arrive. Raises: BadHead when it is longer or shorter than announced; LinkBroken."""
        count = 0
        while piece := await self._stream.read():
            count += len(piece)
            if self._length is not None and count > self._length:
                break
            yield piece
        if self._length is not None and count != self._length:
            raise BadHead("the body is not as long as its Content-Length")
        self.trailers = read_trailers(self._stream.trailers, of_request=True)
        self.ended = True


async def _linger(stream: LinkStream) -> None:
    """Take what the client still sends after its answer is whole, for a moment: a reset, of NO_ERROR even,
    makes clients that have not sent all (curl before 8, git with it) forget the answer.
    """
    with contextlib.suppress(LinkBroken, TimeoutError):
        async with asyncio.timeout(LINGER):
            while await stream.read():
                pass


def _percent(text: str) -> str:
    """grpc-message: printable ASCII, the rest in percent (the gRPC-over-HTTP2 document)."""
    return "".join(
        char if " " <= char <= "~" and char != "%" else "".join(f"%{byte:02X}" for byte in char.encode())
        for char in text
    )
