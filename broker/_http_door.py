"""HTTP/1.1 of a child, message by message: read strictly, judged and forwarded, answered in our own framing.

Guarantees: every message on a kept connection has its own decision and row; a connection that carries HTTP/2
where none was agreed on is told so in its own language.
Not here: which connection this is (_tunnel.py, _proxy_door.py), and what happens to a message (_forward.py).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from fumehood.broker._body import BodyReader
from fumehood.broker._call import BrokerCall
from fumehood.broker._child import ChildStream, read_head
from fumehood.broker._exchange import Headers, ResponseHead
from fumehood.broker._forward import Forward
from fumehood.broker._head import PRIOR_KNOWLEDGE, BadHead, RequestHead, parse_request_head
from fumehood.broker._proxy_target import agrees, proxy_target
from fumehood.broker._refusal import h2_refusal, http_refusal
from fumehood.broker._target import BadTarget, Target, parse_url
from fumehood.broker._types import Door, EgressRefused
from fumehood.broker._upstream import PlainUpstream


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
    upstream = PlainUpstream(call)
    while True:
        head: RequestHead | None = None
        try:
            raw = await read_head(stream)
            if raw is None:
                return None
            if raw == PRIOR_KNOWLEDGE:
                await _refuse_prior_knowledge(call, stream, place)
                return None
            head = parse_request_head(raw)
            if head.method == "CONNECT" and place.fixed is None:
                return head
            caller = _Caller(stream, head)
            clean = await Forward(call, caller, message_target(head, place), place.door, upstream).run()
            if not (clean and caller.keeps):
                return None
            stream.unread(caller.body.rest) if caller.body.rest else None
        except BadHead as bad:
            refused = await call.refuse_text("", BadTarget("malformed", bad.what), place.door, at=place.fixed)
            await _answer(stream, http_refusal(refused, status=bad.status))
            return None
        except BadTarget as bad:
            refused = await call.refuse_text(head.target if head else "", bad, place.door, at=place.fixed)
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


async def _refuse_prior_knowledge(call: BrokerCall, stream: ChildStream, place: Place) -> None:
    what = "HTTP/2 was not agreed on: it is for TLS behind +inspect, by ALPN; use HTTP/1.1 here"
    await call.refuse_text("", BadTarget("scheme", what), place.door, at=place.fixed)
    await _answer(stream, h2_refusal(f"EGRESS_DENIED scheme: {what}"))


def message_target(head: RequestHead, place: Place) -> Target:
    """What a request on this connection points at.

    Raises: BadTarget, BadHead.
    """
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


class _Caller:
    """The child's side of one message."""

    def __init__(self, stream: ChildStream, head: RequestHead) -> None:
        self.head = head
        self.body = BodyReader(head, b"", stream.read)
        self.began = False
        self.keeps = head.keeps_alive
        self._stream = stream
        self._chunked = False
        self._waiting = b""

    async def proceed(self) -> None:
        await self._stream.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    async def start(
        self, answer: ResponseHead, headers: Headers, first: bytes, *, bodiless: bool, whole: bool
    ) -> None:
        length = answer.get("content-length")
        self._chunked = not bodiless and length is None and self.head.version == "1.1"
        self.keeps = self.head.keeps_alive and (bodiless or length is not None or self._chunked)
        lines = [f"HTTP/1.1 {answer.status} {answer.phrase}".rstrip()]
        lines += [f"{key}: {value}" for key, value in headers]
        if self._chunked:
            lines.append("Transfer-Encoding: chunked")
        if not self.keeps:
            lines.append("Connection: close")
        out = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + self._framed(first)
        self.began = True
        if whole:
            self._waiting = out
        else:
            await self._stream.write(out)

    async def write(self, piece: bytes) -> None:
        await self._stream.write(self._framed(piece))

    async def finish(self, piece: bytes, trailers: Headers) -> None:
        out = self._waiting + self._framed(piece)
        if self._chunked:
            lines = "".join(f"{key}: {value}\r\n" for key, value in trailers)
            out += f"0\r\n{lines}\r\n".encode("latin-1")
        if out:
            await self._stream.write(out)

    def raw(self) -> ChildStream:
        self.began = True
        return self._stream

    def _framed(self, piece: bytes) -> bytes:
        return f"{len(piece):x}\r\n".encode() + piece + b"\r\n" if piece and self._chunked else piece
