"""One HTTP message of a child on its way: judged, its head rebuilt, sent on a pinned connection, answered.

Guarantees: one decision and one row for every message, on disk before the dial; the forwarded head is built
from parsed parts (one Host, from the decision; no hop-by-hop field; framing of our own); bodies flow both
ways as they come, with caps; what the broker put in is masked in every part of what comes back; interim
answers other than our own 100 go no further; an upgrade passes only behind `+ws`.
Not here: how the child's side is framed (`Caller`: _http_door.py, _h2_door.py) and which connection serves
(`Upstream`: _upstream.py, _h2_upstream.py).
Before editing: nothing may be raised after `Caller.start` but what ends the child's message short.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol

import httpcore

from fumehood.broker._addresses import Address
from fumehood.broker._answer import AnswerBody, in_the_clear, kept, scrubbed
from fumehood.broker._call import BrokerCall, Permit
from fumehood.broker._child import ChildStream
from fumehood.broker._exchange import Exchange, Headers, ResponseHead, UpstreamFailed
from fumehood.broker._head import NOT_IN_TRAILERS, BadHead, RequestHead
from fumehood.broker._meant import alike, wrongly_meant
from fumehood.broker._secrets import Scrubber, with_secret
from fumehood.broker._target import Target
from fumehood.broker._types import Door, EgressRequest
from fumehood.broker._websocket import relay_switched
from fumehood.policies.errors import HostError
from fumehood.policies.rules import EgressRule

_IDEMPOTENT = frozenset(("GET", "HEAD", "OPTIONS", "PUT", "DELETE", "PROPFIND", "REPORT"))
_EARLY = 5.0  # seconds to wait for an answer after the upstream stopped taking the body


class Stalled(ConnectionError):
    """The child takes nothing of its answer, and did not for as long as it may."""


class Body(Protocol):
    """What the child sends after the head. trailers, ended: known once all of it was read."""

    trailers: Headers
    ended: bool

    def __aiter__(self) -> AsyncIterator[bytes]: ...


class Caller(Protocol):
    """The child's side of one message. began: whether some of the answer may have gone out."""

    head: RequestHead
    began: bool

    @property
    def body(self) -> Body: ...

    async def proceed(self) -> None:
        """Say 100 Continue."""

    async def start(
        self, answer: ResponseHead, headers: Headers, first: bytes, *, bodiless: bool, whole: bool
    ) -> None:
        """The head, and what of the body is there.

        whole: `finish` follows at once, so nothing need go out yet.
        """

    async def write(self, piece: bytes) -> None: ...

    async def finish(self, piece: bytes, trailers: Headers) -> None:
        """The last piece and the end."""

    def raw(self) -> ChildStream:
        """The bytes below, for an upgraded connection."""


class Connection(Protocol):
    """What `Exchange` and its HTTP/2 sister have in common."""

    trailers: Headers

    @property
    def peer(self) -> Address: ...
    @property
    def sent(self) -> int: ...
    @property
    def received(self) -> int: ...
    @property
    def is_stale(self) -> bool:
        """Whether it served others before and nothing of this answer came: the host may have closed it."""

    async def send(
        self,
        method: str,
        target: str,
        headers: Headers,
        body: bytes | AsyncIterator[bytes] = b"",
        trailers: Callable[[], Headers] | None = None,
    ) -> None: ...

    async def head(self, *, upgrade: bool = False) -> ResponseHead: ...
    def ready(self) -> tuple[bytes, bool]: ...
    def body(self) -> AsyncIterator[bytes]: ...
    def abort(self) -> None: ...


class Upstream(Protocol):
    """Where connections come from and go back to."""

    async def open(self, target: Target, permit: Permit, *, fresh: bool) -> Connection:
        """A connection whose peer was vetted for this permit. fresh: the request cannot be sent twice.

        Raises: httpcore.ConnectError, httpcore.ConnectTimeout.
        """

    async def release(self, target: Target, permit: Permit, connection: Connection) -> None: ...


class Forward:
    """One message."""

    def __init__(
        self, call: BrokerCall, caller: Caller, target: Target, door: Door, upstream: Upstream
    ) -> None:
        self._call, self._caller, self._head = call, caller, caller.head
        self._target, self._door, self._upstream = target, door, upstream
        self._taken = False  # some of the child's body went out
        self._ended: tuple[str, str] | None = None
        self._current: Connection | None = None

    async def run(self) -> bool:
        """Whether request and answer both went through to their ends.

        Raises: EgressRefused, BadHead while nothing was answered; ConnectionError after that.
        """
        permit = await self._call.authorize(EgressRequest(self._target, self._head.method, self._door))
        rule = permit.decision.rule
        timeout = rule.timeout if rule is not None else None
        key = self._call.begin_watch(permit, self._end_by_policy)
        try:
            if timeout is None:
                return await self._attempt(permit)
            async with asyncio.timeout(timeout):
                return await self._attempt(permit)
        except TimeoutError as error:
            raise await self._cut(permit, "budget-time", f"over {timeout} s") from error
        except Stalled as error:
            raise await self._cut(permit, "budget-time", str(error)) from error
        except UpstreamFailed as error:
            raise await self._cut(permit, error.reason, error.what) from error
        except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
            raise await self._cut(permit, "upstream", str(error)) from error
        finally:
            self._call.end_watch(key)
            await self._release(permit)
            self._call.finished(permit)

    async def _attempt(self, permit: Permit) -> bool:
        await self._check(permit)
        connection = await self._connect(permit)
        try:
            return await self._exchange(permit, connection)
        except UpstreamFailed as error:
            stale = connection.is_stale and self._head.method in _IDEMPOTENT  # RFC 9110 section 9.2.2
            if not (error.unprocessed or stale) or self._taken or self._caller.began or self._ended:
                raise
        await self._release(permit)
        return await self._exchange(permit, await self._connect(permit, again=True))

    async def _release(self, permit: Permit) -> None:
        connection, self._current = self._current, None
        if connection is not None:
            self._count(permit, connection)
            await self._upstream.release(self._target, permit, connection)

    async def _check(self, permit: Permit) -> None:
        rule, head = permit.decision.rule, self._head
        if head.upgrade is not None and not (rule and rule.websocket and head.upgrade == "websocket"):
            raise await self._call.cut(
                permit, "scheme", f"Upgrade: {head.upgrade[:40]} needs +ws on the entry", "allow-list"
            )
        expect = head.get("expect")
        if expect is not None and expect.lower() != "100-continue":
            raise BadHead("Expect knows 100-continue only", 417)
        if rule is not None and rule.max_request is not None and (head.length or 0) > rule.max_request:
            raise await self._call.cut(
                permit, "budget-bytes", f"the body has {head.length} bytes, over {rule.max_request}"
            )
        if rule is not None and rule.secret is not None:
            name = alike(rule.secret.header)
            if sum(alike(key) == name for key, _ in head.headers) > 1:
                raise await self._call.cut(
                    permit, "malformed", f"several {rule.secret.header} headers", "grammar"
                )
            if head.method == "TRACE":  # RFC 9110 section 9.3.8: its answer repeats the request
                raise await self._call.cut(permit, "method", "TRACE on an entry with a secret", "allow-list")
        wrong = wrongly_meant(self._call.policy, permit.request, head.headers)
        if wrong is not None:
            raise await self._call.cut(permit, *wrong, "allow-list")

    async def _connect(self, permit: Permit, *, again: bool = False) -> Connection:
        # What cannot be sent twice gets a connection that was never used.
        head = self._head
        fresh = again or head.has_body or head.upgrade is not None or head.method not in _IDEMPOTENT
        self._current = connection = await self._upstream.open(self._target, permit, fresh=fresh)
        if self._ended is not None:
            raise UpstreamFailed(self._ended[1])
        self._call.reached(permit, connection.peer)
        return connection

    async def _exchange(self, permit: Permit, connection: Connection) -> bool:
        rule, head, body = permit.decision.rule, self._head, self._caller.body
        try:
            headers, scrubber = with_secret(
                head.end_to_end(), rule, self._call.broker.secrets, keep_length=True
            )
        except HostError as error:
            raise UpstreamFailed(error.message) from error
        if head.has_body and (head.get("expect") or "").lower() == "100-continue":
            await self._caller.proceed()
        limit = rule.max_request if rule is not None else None
        sent = _outgoing(self._target, head, headers)
        if not head.has_body and head.upgrade is None:
            # Nothing of the child is waited for, so nothing needs to run beside the answer.
            await connection.send(head.method, self._target.request_target, sent)
            await self._respond(permit, connection, await connection.head(), scrubber)
            return True
        sender = asyncio.ensure_future(
            connection.send(
                head.method,
                self._target.request_target,
                sent,
                self._capped(limit) if head.has_body else b"",
                (lambda: _trailing(body.trailers, rule)) if head.chunked else None,
            )
        )
        sender.add_done_callback(self._sent)
        answering = asyncio.ensure_future(connection.head(upgrade=head.upgrade is not None))
        try:
            await asyncio.wait({sender, answering}, return_when=asyncio.FIRST_COMPLETED)
            if sender.done() and sender.exception() is not None:
                await self._sender_failed(sender.exception(), answering)
            answer = await answering
            if answer.status == 101:
                assert isinstance(connection, Exchange)  # HTTP/2 has no 101
                return await self._switched(permit, connection, answer, scrubber)
            await self._respond(permit, connection, answer, scrubber)
            return sender.done() and sender.exception() is None and body.ended
        finally:
            for task in (sender, answering):
                task.cancel()
            await asyncio.gather(sender, answering, return_exceptions=True)

    async def _capped(self, most: int | None) -> AsyncIterator[bytes]:
        count = 0
        async for piece in self._caller.body:
            count += len(piece)
            if most is not None and count > most:
                raise UpstreamFailed(f"the body has over {most} bytes", "budget-bytes")
            self._taken = True
            yield piece

    def _sent(self, sender: asyncio.Future[None]) -> None:
        """A body that broke a rule or the grammar ends the exchange, also while the answer flows already."""
        error = None if sender.cancelled() else sender.exception()
        if isinstance(error, BadHead):
            self._end_by_policy("malformed", error.what)
        elif isinstance(error, UpstreamFailed) and error.reason != "upstream":
            self._end_by_policy(error.reason, error.what)

    async def _sender_failed(
        self, error: BaseException | None, answering: asyncio.Future[ResponseHead]
    ) -> None:
        """The child's own fault is its own answer;

        an upstream that stopped reading may have answered already (RFC 9112 section 9.3).
        """
        if not isinstance(error, UpstreamFailed):
            raise error or AssertionError("a sender that did not fail")
        try:
            async with asyncio.timeout(_EARLY):
                await asyncio.shield(answering)
        except TimeoutError:
            raise error from None

    async def _respond(
        self, permit: Permit, connection: Connection, answer: ResponseHead, scrubber: Scrubber
    ) -> None:
        rule, head = permit.decision.rule, self._head
        most = rule.max_response if rule is not None else None
        length = answer.get("content-length")
        bodiless = head.method == "HEAD" or answer.status in (204, 304)
        if most is not None and not bodiless and length is not None and int(length) > most:
            raise await self._cut(permit, "budget-bytes", f"the answer announces {length} bytes, over {most}")
        decoder = None
        if not bodiless:
            answer, decoder = in_the_clear(answer, scrubber)
        body = AnswerBody(decoder, scrubber, most)
        # Head and what of the body is there already go out in one write: a send costs more than all of the
        # above.
        first, whole = connection.ready()
        parts = body.feed(first)
        shown = ResponseHead(answer.status, scrubber.text(answer.phrase), answer.headers, answer.version)
        headers = scrubbed(kept(answer), scrubber)
        at_once = whole and decoder is None
        await self._caller.start(shown, headers, next(parts, b""), bodiless=bodiless, whole=at_once)
        for part in parts:
            await self._caller.write(part)
        if not whole:
            async for piece in connection.body():
                for part in body.feed(piece):
                    await self._caller.write(part)
        last = scrubbed(_trailing(connection.trailers), scrubber)
        await self._caller.finish(body.finish(), last)

    async def _switched(
        self, permit: Permit, exchange: Exchange, answer: ResponseHead, scrubber: Scrubber
    ) -> bool:
        """101: hand on the head and relay frames both ways until either side ends."""
        if (answer.get("upgrade") or "").lower() != "websocket":
            raise UpstreamFailed("the peer switched to another protocol than was asked for")
        stream = self._caller.raw()
        lines = [f"HTTP/1.1 101 {answer.phrase}", *(f"{key}: {value}" for key, value in answer.headers)]
        head = scrubber.whole("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")
        await stream.write(head + scrubber.feed(exchange.take_trailing()))
        over = await relay_switched(stream, exchange.stream, scrubber, permit.decision.rule)
        if over is not None:
            raise await self._cut(permit, "budget-bytes", f"over the bytes that may be {over}")
        return False

    def _end_by_policy(self, reason: str, detail: str) -> None:
        self._ended = self._ended or (reason, detail)
        if self._current is not None:
            self._current.abort()

    async def _cut(self, permit: Permit, reason: str, detail: str) -> Exception:
        if self._ended is not None:
            reason, detail = self._ended
        if self._current is not None:
            self._count(permit, self._current)
        source = {"upstream": "upstream", "malformed": "grammar"}.get(reason, "budget")
        refused = await self._call.cut(permit, reason, detail, source)  # type: ignore[arg-type]  # one of Source
        # A head that has gone out cannot be taken back; the connection ends short, which every client
        # notices.
        return ConnectionAbortedError(detail) if self._caller.began else refused

    def _count(self, permit: Permit, connection: Connection) -> None:
        permit.sent, permit.received = connection.sent, connection.received


def _outgoing(target: Target, head: RequestHead, headers: Headers) -> Headers:
    out = [("Host", target.authority), *headers]
    if head.chunked:
        out.append(("Transfer-Encoding", "chunked"))
    elif head.length or head.method in ("POST", "PUT", "PATCH"):
        out.append(("Content-Length", str(head.length or 0)))
    if head.upgrade is not None:
        out += [("Connection", "Upgrade"), ("Upgrade", head.upgrade)]
    if head.version == "2" and head.get("te") is not None:  # gRPC servers insist on it
        out += [("TE", "trailers"), ("Connection", "TE")]
    return tuple(out)


def _trailing(trailers: Headers, rule: EgressRule | None = None) -> Headers:
    """The trailers that go on: none that frames, routes or processes, and none of the broker's own header."""
    ours = alike(rule.secret.header) if rule is not None and rule.secret is not None else None
    return tuple(
        (key, value) for key, value in trailers if alike(key) not in NOT_IN_TRAILERS and alike(key) != ours
    )
