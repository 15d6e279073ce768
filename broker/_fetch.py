"""The fetch door: what `ctx.fetch` asks for, done by the broker one decided hop at a time.

Guarantees: each redirect hop is a new request with its own decision, row and pin; what the tool set for one
origin (credentials, cookies, headers of its own) does not follow to another; Host, hop-by-hop and proxy
headers come from the broker alone; raw and decoded bytes, header lines, hops and time are bounded.
Not here: the decision (_decide.py), the wire (_exchange.py).
Before editing: nothing of the URL text is sent; the request line and Host come from the parsed target.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpcore

from fumehood.broker._answer import HIDDEN
from fumehood.broker._call import BrokerCall, Permit
from fumehood.broker._decode import BadCoding, Decoder, decoder_for, is_coded
from fumehood.broker._dial import PinnedBackend
from fumehood.broker._exchange import Exchange, Headers, ResponseHead, UpstreamFailed
from fumehood.broker._fetch_request import (
    FetchRequest,
    check_request,
    location_text,
    next_request,
    outgoing,
)
from fumehood.broker._meant import alike, wrongly_meant
from fumehood.broker._secrets import Scrubber, with_secret
from fumehood.broker._target import BadTarget, Target, parse_url, resolve_location
from fumehood.broker._types import EgressRequest
from fumehood.policies.errors import HostError

MAX_DRAIN = 16 * 1024  # bytes of a redirect's body that are read to keep its connection
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_NO_ANSWER = "the host did not answer in time"
_REPLAYABLE = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})  # RFC 9110 section 9.2.2: idempotent
_DROPPED_FROM_REPLY = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "proxy-authenticate", "upgrade", "trailer"}
)


@dataclass(frozen=True, slots=True)
class FetchReply:
    """What came back. body: decoded. url: of the last hop."""

    status: int
    headers: Headers
    body: bytes
    url: str

    @property
    def text(self) -> str:
        """The body as UTF-8, with replacement characters for what is none."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body as JSON. Raises: ValueError."""
        return json.loads(self.body)


class FetchStream:
    """An answer whose body is read in pieces. Iterate once."""

    def __init__(self, hop: _Hop, head: ResponseHead, url: str) -> None:
        self.status = head.status
        self.url = url
        self.headers = hop.reply_headers(head)
        self._hop = hop
        self._head = head

    def __repr__(self) -> str:
        return f"<FetchStream {self.status} {self._hop.target.host}>"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._hop.body(self._head):
            yield piece


async def fetch(call: BrokerCall, request: FetchRequest) -> FetchReply:
    """The whole exchange with the body in memory. Raises: EgressRefused."""
    target = await _target(call, request)
    async with call.slots:
        hop, head = await _last_hop(call, request, target)
        try:
            body = await hop.whole(head)
            return FetchReply(head.status, hop.reply_headers(head), body, hop.target.url)
        finally:
            await hop.end()


@asynccontextmanager
async def open_stream(call: BrokerCall, request: FetchRequest) -> AsyncIterator[FetchStream]:
    """Follow the request to its last hop and hand out that answer. Raises: EgressRefused."""
    target = await _target(call, request)
    async with call.slots:
        hop, head = await _last_hop(call, request, target)
        try:
            yield FetchStream(hop, head, hop.target.url)
        finally:
            await hop.end()


async def _target(call: BrokerCall, request: FetchRequest) -> Target:
    try:
        check_request(request, call.broker.limits.max_request)
        return parse_url(request.url)
    except BadTarget as bad:
        raise await call.refuse_text(request.url, bad, "fetch") from bad


async def _last_hop(call: BrokerCall, request: FetchRequest, target: Target) -> tuple[_Hop, ResponseHead]:
    """The hop whose answer is no redirect to follow, which the caller ends, and that answer's head."""
    method, headers, body = request.method, request.headers, request.body
    started = time.monotonic()
    deadline: float | None = None
    extra: dict[str, object] | None = None
    for count in range(call.broker.limits.redirects + 1):
        permit = await call.authorize(EgressRequest(target, method, "fetch"), extra=extra)
        if deadline is None:
            deadline = started + min(request.timeout_s or 1e9, _timeout(permit, call.broker.limits.timeout))
        hop = _Hop(call, permit, target, min(deadline, permit.started + _timeout(permit, 1e9)))
        handed_out = False
        try:
            head = await hop.ask(method, headers, body)
            location = head.get("location") if head.status in _REDIRECTS and request.follow else None
            if location is None:
                handed_out = True
                return hop, head
            if hop.shows_secret(location):  # it would stand in the log, and in the answer's URL
                raise await hop.refuse("redirect", "the redirect repeats the secret of the entry")
            location = location_text(location)
            await hop.drain(head)
        finally:
            if not handed_out:
                await hop.end()
        extra = {"hop": count + 1, "redirected_from": permit.event_id}
        if count == call.broker.limits.redirects:
            break
        try:
            following = resolve_location(target, location)
        except BadTarget as bad:
            raise await call.refuse_text(location, bad, "fetch", extra) from bad
        method, headers, body = next_request(head.status, method, headers, body, target, following)
        if (target.scheme, following.scheme) == ("https", "http"):
            # Decided first, so that a hop that is refused anyway keeps its own reason.
            refused = await call.authorize(EgressRequest(following, method, "fetch"), extra=extra)
            raise await call.cut(
                refused, "redirect", "from https to http, which is not followed", "allow-list"
            )
        target = following
    raise await call.cut(permit, "too-many-redirects", f"over {count} redirects", "allow-list")


class _Hop:
    """One request and its answer under one permit."""

    def __init__(self, call: BrokerCall, permit: Permit, target: Target, deadline: float) -> None:
        self._call = call
        self._permit = permit
        self._deadline = deadline
        self._exchange: Exchange | None = None
        self._scrubber = Scrubber(())
        self._complete = False
        self._status: int | None = None
        self._method = ""
        self._base = (0, 0)
        self._ended: tuple[str, str] | None = None
        self._key = call.begin_watch(permit, self._end)
        # One timer for the whole hop that breaks the connection: a context for each wait costs more than it.
        self._timer = asyncio.get_running_loop().call_at(self._loop_deadline(), self._too_late)
        self.target = target

    async def ask(self, method: str, headers: Headers, body: bytes) -> ResponseHead:
        """Send the request and wait for the answer's head. Raises: EgressRefused."""
        rule = self._permit.decision.rule
        most = (
            rule.max_request
            if rule and rule.max_request is not None
            else self._call.broker.limits.max_request
        )
        if len(body) > most:
            raise await self._cut("budget-bytes", f"the body has {len(body)} bytes, over {most}")
        if rule is not None and rule.secret is not None:
            name = alike(rule.secret.header)
            if sum(alike(key) == name for key, _ in headers) > 1:
                raise await self._cut(
                    "malformed", f"the request has several {rule.secret.header} headers", "grammar"
                )
        wrong = wrongly_meant(self._call.policy, self._permit.request, headers)
        if wrong is not None:
            raise await self.refuse(*wrong)
        try:
            sent, self._scrubber = with_secret(headers, rule, self._call.broker.secrets)
        except HostError as error:
            raise await self._cut("upstream", error.message) from error
        self._method = method
        try:
            return await self._ask(method, outgoing(self.target, method, sent, body), body)
        except TimeoutError as error:
            raise await self._cut("budget-time", _NO_ANSWER) from error
        except (UpstreamFailed, httpcore.ConnectError, httpcore.ConnectTimeout) as error:
            reason = error.reason if isinstance(error, UpstreamFailed) else "upstream"
            raise await self._cut(reason, self._scrubber.text(str(error))) from error

    async def _ask(self, method: str, headers: Headers, body: bytes) -> ResponseHead:
        exchange = self._call.take_idle(self.target, self._permit)
        if exchange is not None:
            try:
                return await self._once(exchange, method, headers, body)
            except UpstreamFailed:
                # A peer may close an idle connection at any moment; nothing of an answer was seen, so ask
                # again on a new one.
                if exchange.answered or method not in _REPLAYABLE:
                    raise
                await exchange.aclose()
                self._exchange = None
        return await self._once(await self._connect(), method, headers, body)

    async def _once(self, exchange: Exchange, method: str, headers: Headers, body: bytes) -> ResponseHead:
        self._exchange = exchange
        self._base = (exchange.stream.sent, exchange.stream.received)
        self._call.reached(self._permit, exchange.stream.peer)
        if self._ended is not None:
            raise UpstreamFailed(self._ended[1])
        await exchange.send(method, self.target.request_target, headers, body)
        head = await exchange.head()
        self._status = head.status
        return head

    async def _connect(self) -> Exchange:
        if self._ended is not None:
            raise UpstreamFailed(self._ended[1])
        backend = PinnedBackend(self._call.broker.dialer, self._permit.decision)
        async with asyncio.timeout_at(self._loop_deadline()):
            stream = await backend.connect_tcp(self.target.host.text, self.target.port)
            if self.target.scheme == "https":
                stream = await stream.start_tls(self._call.broker.tls, server_hostname=self.target.host.text)
        return Exchange(stream)

    async def whole(self, head: ResponseHead) -> bytes:
        """The whole decoded body. Raises: EgressRefused."""
        first, ended, decoder = await self._begin(head)
        if not ended or decoder is not None:
            return b"".join([part async for part in self._pieces(first, ended, decoder)])
        if len(first) > self._most:
            raise await self._cut("budget-bytes", f"the answer has over {self._most} bytes")
        self._complete = True
        return b"".join((self._scrubber.feed(first), *self._scrubber.finish()))

    async def body(self, head: ResponseHead) -> AsyncIterator[bytes]:
        """The decoded body in pieces, within the caps. Raises: EgressRefused."""
        async for part in self._pieces(*await self._begin(head)):
            yield part

    @property
    def _most(self) -> int:
        rule = self._permit.decision.rule
        given = rule.max_response if rule is not None else None
        return self._call.broker.limits.max_response if given is None else given

    async def _begin(self, head: ResponseHead) -> tuple[bytes, bool, Decoder | None]:
        """What of the body is there, whether that is all of it, and what undoes its coding."""
        assert self._exchange is not None
        length = head.get("content-length")
        bodiless = self._method == "HEAD" or head.status in (204, 304)
        if length is not None and not bodiless and int(length) > self._most:
            raise await self._cut("budget-bytes", f"the answer announces {length} bytes, over {self._most}")
        try:
            coding = "" if bodiless else ", ".join(head.all("content-encoding"))
            decoder = decoder_for(coding) if coding else None
            if decoder is None and self._scrubber.is_looking and is_coded(coding):
                raise BadCoding(HIDDEN)
            return *self._exchange.ready(), decoder
        except (UpstreamFailed, BadCoding) as error:
            raise await self._failed(error) from error

    async def _pieces(self, first: bytes, ended: bool, decoder: Decoder | None) -> AsyncIterator[bytes]:
        assert self._exchange is not None
        most, raw, decoded = self._most, 0, 0
        rest = None if ended else self._exchange.body()
        piece: bytes | None = first
        try:
            while piece is not None:
                raw += len(piece)
                if raw > most:
                    raise await self._cut("budget-bytes", f"the answer has over {most} bytes")
                for part in _decoded(decoder, piece):
                    decoded += len(part)
                    if decoded > most:
                        raise await self._cut(
                            "budget-bytes", f"the answer has over {most} bytes once decoded"
                        )
                    if part := self._scrubber.feed(part):
                        yield part
                piece = None if rest is None else await anext(rest, None)
            if decoder is not None:
                decoder.finish()
            for part in self._scrubber.finish():
                yield part
            self._complete = True
        except (UpstreamFailed, BadCoding) as error:
            raise await self._failed(error) from error
        finally:
            if rest is not None:
                await rest.aclose()

    async def _failed(self, error: UpstreamFailed | BadCoding) -> Exception:
        reason = error.reason if isinstance(error, UpstreamFailed) else "upstream"
        return await self._cut(reason, str(error))

    async def drain(self, head: ResponseHead) -> None:
        """Read the body of a redirect when it is short, so that the connection can serve the next hop."""
        length = head.get("content-length")
        if length is not None and int(length) <= MAX_DRAIN:
            async for _ in self.body(head):
                pass

    def reply_headers(self, head: ResponseHead) -> Headers:
        """The answer's headers for the tool: framing left out, an undone coding left out, secrets masked."""
        dropped = _DROPPED_FROM_REPLY
        try:
            if (
                head.get("content-encoding")
                and decoder_for(", ".join(head.all("content-encoding"))) is not None
            ):
                dropped = dropped | {"content-encoding", "content-length"}
        except BadCoding:
            pass  # the body's reader refuses it with its reason
        return tuple(
            (self._scrubber.text(key), self._scrubber.text(value))
            for key, value in head.headers
            if key.lower() not in dropped
        )

    def shows_secret(self, text: str) -> bool:
        """Whether `text` of the peer repeats a secret that it was sent."""
        return self._scrubber.text(text) != text

    async def refuse(self, reason: str, detail: str) -> Exception:
        """End the hop for a reason of policy; returns the exception to raise."""
        return await self._cut(reason, detail, "allow-list")

    async def end(self) -> None:
        """Give the connection back when it is clean, close it otherwise, and note the end."""
        self._timer.cancel()
        self._call.end_watch(self._key)
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            self._count(exchange)
            if self._complete:
                self._call.keep_idle(self.target, self._permit, exchange)
            else:
                await exchange.aclose()
        self._call.finished(self._permit, status=self._status)

    def _too_late(self) -> None:
        self._end("budget-time", _NO_ANSWER if self._status is None else "the answer did not end in time")

    def _end(self, reason: str, detail: str) -> None:
        """Time is over or a reload refuses this hop: break the connection; whoever waits on it reports
        this reason.
        """
        self._ended = self._ended or (reason, detail)
        if self._exchange is not None:
            self._exchange.stream.abort()

    async def _cut(self, reason: str, detail: str, source: Any = None) -> Exception:
        if self._ended is not None:
            reason, detail = self._ended
        if self._exchange is not None:
            self._count(self._exchange)
            await self._exchange.aclose()
            self._exchange = None
        return await self._call.cut(
            self._permit, reason, detail, source or ("upstream" if reason == "upstream" else "budget")
        )

    def _count(self, exchange: Exchange) -> None:
        self._permit.sent = exchange.stream.sent - self._base[0]
        self._permit.received = exchange.stream.received - self._base[1]

    def _loop_deadline(self) -> float:
        return asyncio.get_running_loop().time() + max(0.0, self._deadline - time.monotonic())


def _timeout(permit: Permit, default: float) -> float:
    rule = permit.decision.rule
    return rule.timeout if rule is not None and rule.timeout is not None else default


def _decoded(decoder: Decoder | None, piece: bytes) -> Any:
    return decoder.feed(piece) if decoder is not None else (piece,)
