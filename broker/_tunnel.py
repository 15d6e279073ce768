"""A child's connection to a decided host and port, whichever door it came by: what is inside picks how it is
served.

Guarantees, in order: 1. rules, DNS and judgement, row on disk; 2. the first bytes are looked at, unless the
entry is `tcp://`; 3. TLS must name the decided host, plain HTTP is served message by message, anything else
passes only behind `tcp://` or `host:port`; 4. only then a vetted address is dialled; 5. bytes are relayed
with budgets, and the end is a row. A refusal is an alert, an HTTP answer or a close, whichever the client
understands, and comes at once.
Not here: how the connection reached us (_transparent.py, _proxy_door.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from dataclasses import replace

from fumehood.broker._call import BrokerCall, Permit
from fumehood.broker._child import ChildSocket
from fumehood.broker._decide import match
from fumehood.broker._dial import DialFailed
from fumehood.broker._hello import BadHello, Hello, HelloReader, looks_like_tls
from fumehood.broker._http_door import Place, serve_http
from fumehood.broker._inspect import ChildTls, can_inspect
from fumehood.broker._refusal import looks_like_http, raw_refusal, send_and_close
from fumehood.broker._relay import Relay
from fumehood.broker._target import Target
from fumehood.broker._tunnel_rules import check_server_name
from fumehood.broker._types import Door, EgressRefused, EgressRequest
from fumehood.policies.rules import EgressRule

HELLO_TIMEOUT = 10.0  # seconds for a complete ClientHello or a first byte where one must come
QUIET = 0.3  # seconds without a byte after which the server is taken to speak first (mysql, smtp)
REFUSED_PEEK = 1.0  # seconds to learn which protocol a refused client speaks, so that it can be told

Opened = Callable[[], Awaitable[None]]


async def serve_tunnel(
    call: BrokerCall, child: ChildSocket, target: Target, door: Door, *, opened: Opened | None = None
) -> None:
    """Serve one connection until it ends; the child's socket is closed then.

    opened: told once the decision allows it, before the child speaks (the 200 of CONNECT). Raises:
    EgressRefused only before `opened` was told, when there is one; without one the refusal is delivered here.
    """
    asked = EgressRequest(target, None, door)
    try:
        if opened is None and _is_plain_http(call, asked):
            await _serve_plain(call, child, target, door)
            return
        permit = await call.authorize(asked)
    except EgressRefused as refused:
        if opened is not None:
            raise
        first = await child.peek(REFUSED_PEEK)
        await send_and_close(child.sock, raw_refusal(first, refused))
        return
    try:
        if opened is not None:
            await opened()
        await _Tunnel(call, child, permit, door).run()
    except EgressRefused as refused:
        await send_and_close(child.sock, raw_refusal(await child.peek(0), refused))
    finally:
        child.close()
        call.finished(permit)


def _is_plain_http(call: BrokerCall, asked: EgressRequest) -> bool:
    """Whether only `http` entries lead there:

    each message has its decision, and one for the connection would say nothing more.
    """
    rules = call.tunnel_rules(asked)
    return bool(rules) and all(rule.scheme == "http" for rule in rules)


async def _serve_plain(call: BrokerCall, child: ChildSocket, target: Target, door: Door) -> None:
    first = await child.peek(HELLO_TIMEOUT)
    if first and not await _is_http(child, first):
        matched = match(call.policy, EgressRequest(target, None, door))
        asked = EgressRequest(target, None, door)
        permit = await call.authorize(asked)
        refused = await call.cut(permit, "scheme", f"{matched.rule} is for plain http", "allow-list")
        await send_and_close(child.sock, raw_refusal(first, refused))
        return
    await serve_http(call, child, Place(door, replace(target, scheme="http")))
    await send_and_close(child.sock, b"")


async def _is_http(child: ChildSocket, data: bytes) -> bool:
    """Whether the child speaks HTTP, once enough of its first line is there to tell."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HELLO_TIMEOUT):
            while (found := looks_like_http(data)) is None:
                more = await child.peek_more()
                if len(more) == len(data):
                    return False
                data = more
            return found
    return False


class _Tunnel:
    def __init__(self, call: BrokerCall, child: ChildSocket, permit: Permit, door: Door) -> None:
        self._call, self._child, self._permit, self._door = call, child, permit, door
        self._target = permit.request.target
        self._rules = call.tunnel_rules(permit.request)

    async def run(self) -> None:
        """Raises: EgressRefused when what is inside may not pass."""
        raw = self._rule("tcp")
        if raw is not None:
            await self._relay(raw)
            return
        open_to_any = self._rule("any")
        audit = not self._rules
        limited = open_to_any is not None and open_to_any.is_limited
        first = await self._child.peek(QUIET if (open_to_any and not limited) or audit else HELLO_TIMEOUT)
        tls = looks_like_tls(first)
        if first and tls is None:
            first = await self._more(first)
            tls = looks_like_tls(first)
        if tls:
            await self._serve_tls(first)
        elif (self._rule("http") or limited) and await _is_http(self._child, first):
            self._call.finished(self._permit)
            await serve_http(self._call, self._child, Place(self._door, replace(self._target, scheme="http")))
            await send_and_close(self._child.sock, b"")
        elif (open_to_any is not None and not limited) or audit:
            await self._relay(open_to_any)
        elif not first and self._child.has_left:
            return  # a look whether somebody listens, or the slower of two connections; nothing was refused
        elif not first:
            raise await self._no("budget-time", "the client sent nothing")
        else:
            wanted = "TLS" if self._rule("https") else "plain http"
            raise await self._no("scheme", f"the entry is for {wanted}, and the client speaks something else")

    async def _serve_tls(self, first: bytes) -> None:
        rule = self._rule("https") or self._rule("any")
        if rule is None and self._rules:
            raise await self._no("scheme", "the entry is for plain http, and the client speaks TLS")
        try:
            async with asyncio.timeout(HELLO_TIMEOUT):
                hello = await self._hello(first)
        except (BadHello, TimeoutError) as error:
            raise await self._no(
                "server-name", str(error) or "the ClientHello did not end in time"
            ) from error
        wrong = check_server_name(rule, self._target, hello.server_name)
        if wrong is not None:
            raise await self._no("server-name", wrong)
        if rule is not None and rule.inspect:
            await self._inspect()
            return
        if rule is not None and rule.is_limited and rule.scheme == "any":
            reason = "method" if rule.methods is not None else "path" if rule.paths else "scheme"
            raise await self._no(reason, "the entry limits what TLS hides; add +inspect, or use ctx.fetch")
        await self._relay(rule)

    async def _inspect(self) -> None:
        """End the child's TLS here and serve what is inside message by message."""
        if not can_inspect():
            raise await self._no(
                "scheme", "+inspect needs the `cryptography` package, which is not installed"
            )
        stream = ChildTls(self._child, self._call.broker.authority.context(self._target.host))
        try:
            await stream.handshake()
        except (OSError, TimeoutError) as error:
            raise await self._no(
                "upstream", f"the client did not take the inspecting certificate: {error}"
            ) from error
        self._call.finished(self._permit)
        inside = replace(self._target, scheme="https")
        if stream.protocol == "h2":
            from fumehood.broker._h2_door import serve_h2

            await serve_h2(self._call, stream, self._door, inside)
        else:
            await serve_http(self._call, stream, Place(self._door, inside))
        with contextlib.suppress(OSError):
            await stream.finish()
        await send_and_close(self._child.sock, b"")

    async def _hello(self, data: bytes) -> Hello:
        reader = HelloReader()
        while (hello := reader.read(data)) is None:
            data = await self._more(data)
        return hello

    async def _more(self, data: bytes) -> bytes:
        more = await self._child.peek_more()
        if len(more) == len(data):
            raise BadHello("the connection ended inside the ClientHello")
        return more

    async def _relay(self, rule: EgressRule | None) -> None:
        permit = self._permit
        try:
            upstream, peer = await self._call.broker.dialer.dial(permit.decision)
        except DialFailed as error:
            raise await self._no("upstream", str(error)) from error
        self._call.reached(permit, peer)
        relay = Relay(
            self._child.sock,
            upstream,
            initial=self._child.take_ahead(),
            max_sent=rule.max_request if rule else None,
            max_received=rule.max_response if rule else None,
        )
        with self._call.watch(permit, relay.end):
            end = await relay.run(rule.timeout if rule else None)
        permit.sent, permit.received = end.sent, end.received
        if end.reason is not None:
            await self._call.cut(permit, end.reason, end.detail)

    def _rule(self, scheme: str) -> EgressRule | None:
        return next((rule for rule in self._rules if rule.scheme == scheme), None)

    async def _no(self, reason: str, detail: str) -> EgressRefused:
        return await self._call.cut(
            self._permit, reason, detail, "upstream" if reason == "upstream" else "allow-list"
        )


def accepted(sock: socket.socket) -> socket.socket:
    """An accepted socket made ready: non-blocking, no delay."""
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock
