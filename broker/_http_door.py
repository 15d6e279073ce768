"""HTTP requests of a child, message by message: judged, rebuilt, forwarded on a pinned connection, answered.

Guarantees: every message on a kept connection has its own decision and row; the forwarded head is built from
parsed parts (one Host, from the decision; no hop-by-hop field; framing of our own); bodies flow both ways as
they come, with caps; an upgrade passes only behind `+ws`.
Not here: which connection this is (_tunnel.py, _proxy_door.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpcore

from fumehood.broker._call import BrokerCall, Permit
from fumehood.broker._child import ChildStream, read_head
from fumehood.broker._dial import PinnedBackend
from fumehood.broker._exchange import Exchange, Headers, ResponseHead, UpstreamFailed
from fumehood.broker._head import HOP_BY_HOP, BadHead, BodyReader, RequestHead, parse_request_head
from fumehood.broker._proxy_target import agrees, proxy_target
from fumehood.broker._refusal import http_refusal
from fumehood.broker._secrets import Scrubber, with_secret
from fumehood.broker._target import BadTarget, Target, parse_url
from fumehood.broker._types import Door, EgressRefused, EgressRequest
from fumehood.policies.errors import HostError

_EARLY = 5.0  # seconds to wait for an answer after the upstream stopped taking the body


@dataclass(frozen=True, slots=True)
class Place:
    """Where requests on this connection may point.

    fixed: the decided host of a tunnel; None for the proxy door.
    """

    door: Door
    fixed: Target | None = None


async def serve_http(call: BrokerCall, stream: ChildStream, place: Place) -> RequestHead | None:
    """Serve requests until the child or a refusal ends the connection.

    Returns the head of a CONNECT, which the caller serves; None otherwise. Never raises for what child or
    upstream do.
    """
    while True:
        try:
            raw = await read_head(stream)
            if raw is None:
                return None
            head = parse_request_head(raw)
            if head.method == "CONNECT" and place.fixed is None:
                return head
            target = _target(head, place)
            if not await _Forward(call, stream, head, target, place.door).run():
                return None
        except BadHead as bad:
            refused = await call.refuse_text("", BadTarget("malformed", bad.what), place.door)
            await _answer(stream, http_refusal(refused, status=bad.status))
            return None
        except BadTarget as bad:
            refused = await call.refuse_text(head.target, bad, place.door)
            await _answer(stream, http_refusal(refused))
            return None
        except EgressRefused as refused_:
            await _answer(stream, http_refusal(refused_))
            return None
        except (OSError, TimeoutError):
            return None


async def _answer(stream: ChildStream, data: bytes) -> None:
    with contextlib.suppress(OSError):
        await stream.write(data)


def _target(head: RequestHead, place: Place) -> Target:
    if place.fixed is None:
        return proxy_target(head)
    fixed = place.fixed
    text = head.target
    if text == "*" and head.method == "OPTIONS":
        text = "/"
    if text.startswith("/"):
        target = parse_url(f"{fixed.scheme}://{fixed.authority}{text}")
    else:
        target = parse_url(text)
        if target.origin != fixed.origin:
            raise BadTarget(
                "malformed",
                f"the request line names {target.url[:200]!r} on a connection to {fixed.authority!r}",
            )
    host = head.get("host")
    if host is not None and not agrees(host, target):
        raise BadTarget(
            "malformed", f"Host {host[:200]!r} differs from the host of the connection, {fixed.authority!r}"
        )
    return target


class _Forward:
    """One message."""

    def __init__(
        self, call: BrokerCall, stream: ChildStream, head: RequestHead, target: Target, door: Door
    ) -> None:
        self._call, self._stream, self._head = call, stream, head
        self._target, self._door = target, door
        self._began = False
        self._base = (0, 0)
        self._ended: tuple[str, str] | None = None
        self._current: Exchange | None = None

    async def run(self) -> bool:
        """Whether the connection may serve another request.

        Raises: EgressRefused, BadHead while nothing was answered.
        """
        permit = await self._call.authorize(EgressRequest(self._target, self._head.method, self._door))
        rule = permit.decision.rule
        timeout = rule.timeout if rule is not None else None
        exchange: Exchange | None = None
        try:
            async with asyncio.timeout(timeout):
                await self._check(permit)
                with self._call.watch(permit, self._end_by_policy):
                    exchange = await self._connect(permit)
                    return await self._exchange(permit, exchange)
        except TimeoutError as error:
            raise await self._cut(permit, exchange, "budget-time", f"over {timeout} s") from error
        except UpstreamFailed as error:
            raise await self._cut(permit, exchange, error.reason, error.what) from error
        except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
            raise await self._cut(permit, exchange, "upstream", str(error)) from error
        finally:
            if exchange is not None:
                self._count(permit, exchange)
                if exchange.is_reusable:
                    self._call.keep_idle(self._target, permit, exchange)
                else:
                    await exchange.aclose()
            self._call.finished(permit)

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
            name = rule.secret.header.lower()
            if sum(key.lower() == name for key, _ in head.headers) > 1:
                raise await self._call.cut(
                    permit, "malformed", f"several {rule.secret.header} headers", "grammar"
                )

    async def _connect(self, permit: Permit) -> Exchange:
        # A request with a body cannot be sent twice, so it gets a connection that was never used.
        exchange = (
            None if self._head.has_body or self._head.upgrade else self._call.take_idle(self._target, permit)
        )
        if exchange is None:
            backend = PinnedBackend(self._call.broker.dialer, permit.decision)
            stream = await backend.connect_tcp(self._target.host.text, self._target.port)
            if self._target.scheme == "https":
                stream = await stream.start_tls(self._call.broker.tls, server_hostname=self._target.host.text)
            exchange = Exchange(stream)
        self._base = (exchange.stream.sent, exchange.stream.received)
        self._current = exchange
        if self._ended is not None:
            raise UpstreamFailed(self._ended[1])
        self._call.reached(permit, exchange.stream.peer)
        return exchange

    async def _exchange(self, permit: Permit, exchange: Exchange) -> bool:
        rule, head = permit.decision.rule, self._head
        body = BodyReader(head, b"", self._stream.read)
        try:
            headers, scrubber = with_secret(
                head.end_to_end(), rule, self._call.broker.secrets, keep_length=True
            )
        except HostError as error:
            raise UpstreamFailed(error.message) from error
        if head.has_body and (head.get("expect") or "").lower() == "100-continue":
            await self._stream.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        limit = rule.max_request if rule is not None else None
        if not head.has_body and head.upgrade is None:
            # Nothing of the child is waited for, so nothing needs to run beside the answer.
            sent = _outgoing(self._target, head, headers)
            await exchange.send(head.method, self._target.request_target, sent)
            whole = await self._respond(permit, exchange, await exchange.head(), scrubber)
            return whole and head.keeps_alive
        sender = asyncio.ensure_future(
            exchange.send(
                head.method,
                self._target.request_target,
                _outgoing(self._target, head, headers),
                _capped(body, limit) if head.has_body else b"",
                (lambda: body.trailers) if head.chunked else None,
            )
        )
        answering = asyncio.ensure_future(exchange.head(upgrade=head.upgrade is not None))
        try:
            await asyncio.wait({sender, answering}, return_when=asyncio.FIRST_COMPLETED)
            if sender.done() and sender.exception() is not None:
                await self._sender_failed(sender.exception(), answering)
            answer = await answering
            if answer.status == 101:
                return await self._switched(permit, exchange, answer, scrubber)
            whole = await self._respond(permit, exchange, answer, scrubber)
            if body.rest:
                self._stream.unread(body.rest)
            return whole and sender.done() and sender.exception() is None and body.ended and head.keeps_alive
        finally:
            for task in (sender, answering):
                task.cancel()
            await asyncio.gather(sender, answering, return_exceptions=True)

    async def _sender_failed(
        self, error: BaseException | None, answering: asyncio.Future[ResponseHead]
    ) -> None:
        """The child's own fault is its own answer;

        an upstream that stopped reading may have answered already (RFC 9112 section 9.3).
        """
        if isinstance(error, UpstreamFailed):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_EARLY):
                    await asyncio.shield(answering)
        elif error is not None:
            raise error

    async def _respond(
        self, permit: Permit, exchange: Exchange, answer: ResponseHead, scrubber: Scrubber
    ) -> bool:
        rule, head = permit.decision.rule, self._head
        most = rule.max_response if rule is not None else None
        length = answer.get("content-length")
        bodiless = head.method == "HEAD" or answer.status in (204, 304)
        if most is not None and not bodiless and length is not None and int(length) > most:
            raise await self._cut(
                permit, exchange, "budget-bytes", f"the answer announces {length} bytes, over {most}"
            )
        chunked = not bodiless and length is None and head.version == "1.1"
        keep = head.keeps_alive and (bodiless or length is not None or chunked)
        # Head and what of the body is there already go out in one write: a send costs more than all of the
        # above.
        first, ended = exchange.ready()
        received = len(first)
        if most is not None and received > most:
            raise await self._cut(permit, exchange, "budget-bytes", f"the answer has over {most} bytes")
        out = _response_head(answer, scrubber, chunked=chunked, keep=keep)
        out += _framed(scrubber.feed(first), chunked)
        self._began = True
        if not ended:
            await self._stream.write(out)
            out = b""
            async for piece in exchange.body():
                received += len(piece)
                if most is not None and received > most:
                    raise await self._cut(
                        permit, exchange, "budget-bytes", f"the answer has over {most} bytes"
                    )
                if piece := _framed(scrubber.feed(piece), chunked):
                    await self._stream.write(piece)
        out += b"".join(_framed(rest, chunked) for rest in scrubber.finish())
        if chunked:
            trailers = "".join(f"{key}: {value}\r\n" for key, value in exchange.trailers)
            out += f"0\r\n{scrubber.text(trailers)}\r\n".encode("latin-1")
        if out:
            await self._stream.write(out)
        return keep

    async def _switched(
        self, permit: Permit, exchange: Exchange, answer: ResponseHead, scrubber: Scrubber
    ) -> bool:
        """101: hand on the head and relay frames both ways until either side ends."""
        if (answer.get("upgrade") or "").lower() != "websocket":
            raise UpstreamFailed("the peer switched to another protocol than was asked for")
        self._began = True
        lines = [f"HTTP/1.1 101 {answer.phrase}", *(f"{key}: {value}" for key, value in answer.headers)]
        await self._stream.write(
            scrubber.whole("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + exchange.take_trailing())
        )

        rule = permit.decision.rule
        over: list[str] = []

        async def up() -> None:
            left = rule.max_request if rule is not None else None
            while data := await self._stream.read():
                if left is not None and (left := left - len(data)) < 0:
                    over.append("sent")
                    return
                await exchange.stream.write(data)

        async def down() -> None:
            left = rule.max_response if rule is not None else None
            while data := await exchange.stream.read(65536):
                if left is not None and (left := left - len(data)) < 0:
                    over.append("received")
                    return
                await self._stream.write(scrubber.whole(data))

        tasks = [asyncio.ensure_future(up()), asyncio.ensure_future(down())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if over:
            raise await self._cut(permit, exchange, "budget-bytes", f"over the bytes that may be {over[0]}")
        return False

    def _end_by_policy(self, reason: str, detail: str) -> None:
        self._ended = (reason, detail)
        if self._current is not None:
            self._current.stream.abort()

    async def _cut(self, permit: Permit, exchange: Exchange | None, reason: str, detail: str) -> Exception:
        if self._ended is not None:
            reason, detail = self._ended
        if exchange is not None:
            self._count(permit, exchange)
        refused = await self._call.cut(
            permit, reason, detail, "upstream" if reason == "upstream" else "budget"
        )
        # A head that has gone out cannot be taken back; the connection ends short, which every client
        # notices.
        return ConnectionAbortedError(detail) if self._began else refused

    def _count(self, permit: Permit, exchange: Exchange) -> None:
        permit.sent = exchange.stream.sent - self._base[0]
        permit.received = exchange.stream.received - self._base[1]


async def _capped(body: BodyReader, most: int | None) -> AsyncIterator[bytes]:
    count = 0
    async for piece in body:
        count += len(piece)
        if most is not None and count > most:
            raise UpstreamFailed(f"the body has over {most} bytes", "budget-bytes")
        yield piece


def _outgoing(target: Target, head: RequestHead, headers: Headers) -> Headers:
    out = [("Host", target.authority), *headers]
    if head.chunked:
        out.append(("Transfer-Encoding", "chunked"))
    elif head.length or head.method in ("POST", "PUT", "PATCH"):
        out.append(("Content-Length", str(head.length or 0)))
    if head.upgrade is not None:
        out += [("Connection", "Upgrade"), ("Upgrade", head.upgrade)]
    return tuple(out)


def _framed(piece: bytes, chunked: bool) -> bytes:
    return f"{len(piece):x}\r\n".encode() + piece + b"\r\n" if piece and chunked else piece


def _response_head(answer: ResponseHead, scrubber: Scrubber, *, chunked: bool, keep: bool) -> bytes:
    named = {option.strip().lower() for value in answer.all("connection") for option in value.split(",")}
    dropped = HOP_BY_HOP | named
    lines = [f"HTTP/1.1 {answer.status} {answer.phrase}".rstrip()]
    lines += [f"{key}: {value}" for key, value in answer.headers if key.lower() not in dropped]
    if chunked:
        lines.append("Transfer-Encoding: chunked")
    if not keep:
        lines.append("Connection: close")
    return scrubber.text("\r\n".join(lines)).encode("latin-1") + b"\r\n\r\n"
