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
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpcore

from fumehood.broker._call import BrokerCall, Permit
from fumehood.broker._decode import BadCoding, Decoder, codings, decoder_for
from fumehood.broker._dial import PinnedBackend
from fumehood.broker._exchange import Exchange, Headers, ResponseHead, UpstreamFailed
from fumehood.broker._secrets import Scrubber, with_secret
from fumehood.broker._target import BadTarget, Target, parse_url, resolve_location
from fumehood.broker._types import EgressRequest
from fumehood.policies.errors import HostError

MAX_HEADERS = 100  # header lines a tool may send
MAX_HEADER_BYTES = 32 * 1024  # and their bytes in all
MAX_DRAIN = 16 * 1024  # bytes of a redirect's body that are read to keep its connection
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}", re.ASCII)
_METHOD = re.compile(r"[A-Z][A-Z-]{0,19}", re.ASCII)
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# RFC 9110 section 7.6.1 and what belongs to proxies and framing: the broker writes these itself.
BROKER_HEADERS = frozenset(
    {
        "host",
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "proxy-authenticate",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "expect",
        "http2-settings",
    }
)
# What may follow a redirect to another origin: nothing that could be a credential.
_FOLLOWS = frozenset(
    {
        "accept",
        "accept-charset",
        "accept-encoding",
        "accept-language",
        "range",
        "user-agent",
        "content-type",
        "content-language",
        "content-encoding",
    }
)
_REPLAYABLE = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})  # RFC 9110 section 9.2.2: idempotent
_DROPPED_FROM_REPLY = frozenset(
    {"connection", "keep-alive", "transfer-encoding", "proxy-authenticate", "upgrade", "trailer"}
)


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """What a tool asks for.

    timeout_s: seconds for the whole fetch, at most what rule and host allow. follow: follow redirects.
    """

    method: str
    url: str
    headers: Headers = ()
    body: bytes = b""
    timeout_s: float | None = None
    follow: bool = True


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
    async with open_stream(call, request) as reply:
        body = b"".join([piece async for piece in reply])
        return FetchReply(reply.status, reply.headers, body, reply.url)


@asynccontextmanager
async def open_stream(call: BrokerCall, request: FetchRequest) -> AsyncIterator[FetchStream]:
    """Follow the request to its last hop and hand out that answer. Raises: EgressRefused."""
    method, headers, body = request.method, request.headers, request.body
    try:
        _check_request(request, call.broker.limits.max_request)
        target = parse_url(request.url)
    except BadTarget as bad:
        raise await call.refuse_text(request.url, bad, "fetch") from bad
    started = time.monotonic()
    deadline: float | None = None
    extra: dict[str, object] = {}
    async with call.slots:
        for count in range(call.broker.limits.redirects + 1):
            permit = await call.authorize(EgressRequest(target, method, "fetch"), extra=extra)
            if deadline is None:
                deadline = started + min(
                    request.timeout_s or 1e9, _timeout(permit, call.broker.limits.timeout)
                )
            hop = _Hop(call, permit, target, min(deadline, permit.started + _timeout(permit, 1e9)))
            try:
                head = await hop.ask(method, headers, body)
                location = head.get("location") if head.status in _REDIRECTS and request.follow else None
                if location is None:
                    yield FetchStream(hop, head, target.url)
                    return
                if hop.shows_secret(location):  # it would stand in the log, and in the answer's URL
                    raise await hop.refuse("redirect", "the redirect repeats the secret of the entry")
                await hop.drain(head)
            finally:
                await hop.end()
            extra = {"hop": count + 1, "redirected_from": permit.event_id}
            if count == call.broker.limits.redirects:
                raise await call.cut(permit, "too-many-redirects", f"over {count} redirects", "allow-list")
            try:
                following = resolve_location(target, location)
            except BadTarget as bad:
                raise await call.refuse_text(location, bad, "fetch", extra) from bad
            method, headers, body = _next_request(head.status, method, headers, body, target, following)
            if (target.scheme, following.scheme) == ("https", "http"):
                # Decided first, so that a hop that is refused anyway keeps its own reason.
                refused = await call.authorize(EgressRequest(following, method, "fetch"), extra=extra)
                raise await call.cut(
                    refused, "redirect", "from https to http, which is not followed", "allow-list"
                )
            target = following


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
        self._watch = call.watch(permit, self._end_by_policy)
        self._watch.__enter__()
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
            name = rule.secret.header.lower()
            if sum(key.lower() == name for key, _ in headers) > 1:
                raise await self._cut(
                    "malformed", f"the request has several {rule.secret.header} headers", "grammar"
                )
        try:
            sent, self._scrubber = with_secret(headers, rule, self._call.broker.secrets)
        except HostError as error:
            raise await self._cut("upstream", error.message) from error
        self._method = method
        try:
            async with asyncio.timeout_at(self._loop_deadline()):
                return await self._ask(method, _outgoing(self.target, method, sent, body), body)
        except TimeoutError as error:
            raise await self._cut("budget-time", "the host did not answer in time") from error
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
        backend = PinnedBackend(self._call.broker.dialer, self._permit.decision)
        stream = await backend.connect_tcp(self.target.host.text, self.target.port)
        if self.target.scheme == "https":
            stream = await stream.start_tls(self._call.broker.tls, server_hostname=self.target.host.text)
        return Exchange(stream)

    async def body(self, head: ResponseHead) -> AsyncIterator[bytes]:
        """The decoded body in pieces, within the caps. Raises: EgressRefused."""
        rule = self._permit.decision.rule
        most = (
            rule.max_response
            if rule and rule.max_response is not None
            else self._call.broker.limits.max_response
        )
        exchange = self._exchange
        assert exchange is not None
        length = head.get("content-length")
        bodiless = self._method == "HEAD" or head.status in (204, 304)
        if length is not None and not bodiless and int(length) > most:
            raise await self._cut("budget-bytes", f"the answer announces {length} bytes, over {most}")
        raw = decoded = 0
        pieces = exchange.body()
        try:
            decoder = None if bodiless else decoder_for(", ".join(head.all("content-encoding")))
            while True:
                async with asyncio.timeout_at(self._loop_deadline()):
                    piece = await anext(pieces, None)
                if piece is None:
                    break
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
            if decoder is not None:
                decoder.finish()
            for part in self._scrubber.finish():
                yield part
            self._complete = True
        except TimeoutError as error:
            raise await self._cut("budget-time", "the answer did not end in time") from error
        except UpstreamFailed as error:
            raise await self._cut(error.reason, error.what) from error
        except BadCoding as error:
            raise await self._cut("upstream", str(error)) from error
        finally:
            await pieces.aclose()

    async def drain(self, head: ResponseHead) -> None:
        """Read the body of a redirect when it is short, so that the connection can serve the next hop."""
        length = head.get("content-length")
        if length is not None and int(length) <= MAX_DRAIN:
            async for _ in self.body(head):
                pass

    def reply_headers(self, head: ResponseHead) -> Headers:
        """The answer's headers for the tool: framing left out, an undone coding left out, secrets masked."""
        dropped = set(_DROPPED_FROM_REPLY)
        try:
            if decoder_for(", ".join(head.all("content-encoding"))) is not None:
                dropped |= {"content-encoding", "content-length"}
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
        self._watch.__exit__(None, None, None)
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            self._count(exchange)
            if self._complete:
                self._call.keep_idle(self.target, self._permit, exchange)
            else:
                await exchange.aclose()
        self._call.finished(self._permit, status=self._status)

    def _end_by_policy(self, reason: str, detail: str) -> None:
        """A reload refuses this hop: break the connection; whoever waits on it reports this reason."""
        self._ended = (reason, detail)
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


def _check_request(request: FetchRequest, most: int) -> None:
    """Refuse what could change framing, routing or credentials behind the decision.

    Raises: BadTarget `malformed`.
    """
    if not _METHOD.fullmatch(request.method) or request.method in ("CONNECT", "TRACE"):
        raise BadTarget("malformed", f"the method {request.method[:40]!r} is none that ctx.fetch sends")
    if len(request.headers) > MAX_HEADERS:
        raise BadTarget("malformed", f"{len(request.headers)} headers, over {MAX_HEADERS}")
    if sum(len(name) + len(value) for name, value in request.headers) > MAX_HEADER_BYTES:
        raise BadTarget("malformed", f"over {MAX_HEADER_BYTES} bytes of headers")
    seen: set[str] = set()
    for name, value in request.headers:
        lower = name.lower()
        if not _TOKEN.fullmatch(name):
            raise BadTarget("malformed", f"{name[:40]!r} is not a header name")
        if not _VALUE.fullmatch(value):
            raise BadTarget("malformed", f"the header {name!r} has a control character in its value")
        if lower in BROKER_HEADERS or lower.startswith("proxy-"):
            raise BadTarget("malformed", f"the header {name!r} is set by the broker, not by the tool")
        if lower == "content-length" and value != str(len(request.body)):
            raise BadTarget("malformed", "Content-Length differs from the body")
        if lower in ("authorization", "content-length", "content-type") and lower in seen:
            raise BadTarget("malformed", f"the header {name!r} stands twice")
        seen.add(lower)


def _outgoing(target: Target, method: str, headers: Headers, body: bytes) -> Headers:
    """The head that is sent: Host first and from the decision, then the tool's, then what is missing."""
    names = {name.lower() for name, _ in headers}
    out = [
        ("Host", target.authority),
        *((name, value) for name, value in headers if name.lower() != "content-length"),
    ]
    if "accept-encoding" not in names:
        out.append(("Accept-Encoding", ", ".join(codings())))
    if "user-agent" not in names:
        out.append(("User-Agent", "fumehood"))
    if "accept" not in names:
        out.append(("Accept", "*/*"))
    if body or method in ("POST", "PUT", "PATCH"):
        out.append(("Content-Length", str(len(body))))
    return tuple(out)


def _next_request(
    status: int, method: str, headers: Headers, body: bytes, target: Target, following: Target
) -> tuple[str, Headers, bytes]:
    """Method, headers and body of the next hop:

    RFC 9110 section 15.4 for the method, ours for what may cross origins.
    """
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, body = "GET", b""
        headers = tuple((name, value) for name, value in headers if not name.lower().startswith("content-"))
    if target.origin != following.origin:
        headers = tuple((name, value) for name, value in headers if name.lower() in _FOLLOWS)
    return method, headers, body
