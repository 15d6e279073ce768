"""Connections of a child's HTTP/2 messages: HTTP/2 towards hosts that choose it, HTTP/1.1 towards the others.

Guarantees: a connection belongs to one connection of the child, so it is shared with no other call, tool or
policy generation; a message joins one only when its peer is among the addresses vetted for that very message,
and not once the answer's TTL is over and it fell idle; a host whose stream limit is reached gets another
connection, as long as there are places for it, and else waits. Not here: what a message may be (_forward.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable

import httpcore

from fumehood.broker._addresses import Address
from fumehood.broker._call import KEEP_ALIVE, BrokerCall, Permit
from fumehood.broker._dial import PinnedBackend, PinnedStream
from fumehood.broker._exchange import MAX_INTERIM, Exchange, Headers, ResponseHead, UpstreamFailed
from fumehood.broker._forward import Connection
from fumehood.broker._h2_gate import CANCEL, NO_ERROR, BadFrames
from fumehood.broker._h2_head import (
    SENSITIVE,
    read_answer,
    read_trailers,
    write_fields,
    write_request,
)
from fumehood.broker._h2_link import Link
from fumehood.broker._h2_stream import Bell, LinkBroken, LinkStream
from fumehood.broker._head import BadHead
from fumehood.broker._target import Target
from fumehood.broker._upstream import PlainUpstream

_READ = 64 * 1024


class _HostIo:
    """The pinned stream as a link wants it."""

    def __init__(self, stream: PinnedStream) -> None:
        self._stream = stream

    async def read(self) -> bytes:
        try:
            return await self._stream.read(_READ)
        except (httpcore.ReadError, httpcore.ReadTimeout) as error:
            raise ConnectionError(str(error)) from error

    async def write(self, data: bytes) -> None:
        try:
            await self._stream.write(data)
        except (httpcore.WriteError, httpcore.WriteTimeout) as error:
            raise ConnectionError(str(error)) from error


class _HostLink:
    """One HTTP/2 connection to the host, and the task that serves it."""

    def __init__(self, stream: PinnedStream, generation: int, *, narrow: bool) -> None:
        self.peer, self.generation = stream.peer, generation
        self.expires = 0.0
        self.users = 0  # messages that have it, whether their stream is open yet or not
        self._stream = stream
        self.link = Link(_HostIo(stream), narrow=narrow)
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        try:
            await self.link.run()
        except BadFrames:
            pass  # each of its messages says so
        finally:
            self._stream.abort()

    def when_over(self, told: Callable[[], None]) -> None:
        """Call `told` once the connection has ended."""
        self._task.add_done_callback(lambda _: told())

    def is_usable(self, permit: Permit, generation: int) -> bool:
        """Whether a message with this permit may join."""
        fresh = self.users > 0 or time.monotonic() < self.expires
        vetted = self.peer in permit.decision.vetted and self.generation == generation
        return fresh and vetted and self.users < self.link.most_streams and self.link.can_open

    @property
    def is_over(self) -> bool:
        return not self.users and (self.link.leaving or time.monotonic() >= self.expires)

    async def aclose(self) -> None:
        self.link.close()
        await asyncio.gather(self._task, return_exceptions=True)


class H2Exchange:
    """One message on a link. trailers: known once the body was read."""

    def __init__(self, host: _HostLink, sensitive: frozenset[bytes]) -> None:
        self.host, self._sensitive = host, SENSITIVE | sensitive
        host.users += 1
        self._stream: LinkStream | None = None
        self._opened: asyncio.Future[LinkStream] = asyncio.get_running_loop().create_future()
        self._bodiless = False
        self._length: int | None = None
        self._count = 0
        self.trailers: Headers = ()

    def __repr__(self) -> str:
        return f"<H2Exchange {self.host.peer} {self._stream!r}>"

    @property
    def peer(self) -> Address:
        return self.host.peer

    @property
    def sent(self) -> int:
        return self._stream.sent if self._stream else 0

    @property
    def received(self) -> int:
        return self._stream.received if self._stream else 0

    @property
    def is_stale(self) -> bool:
        stream = self._stream
        return stream is not None and stream.number > 1 and not stream.received and self.host.link.is_over

    async def send(
        self,
        method: str,
        target: str,
        headers: Headers,
        body: bytes | AsyncIterator[bytes] = b"",
        trailers: Callable[[], Headers] | None = None,
    ) -> None:
        """As `Exchange.send`."""
        self._bodiless = method == "HEAD"
        fields = write_request(method, target, "https", headers)
        try:
            self._stream = stream = self.host.link.open(fields, end=body == b"", sensitive=self._sensitive)
        except LinkBroken as error:
            failed = _failed("sending failed", error)
            self._opened.set_exception(failed)
            self._opened.exception()  # noted: nobody may be waiting for it
            raise failed from error
        self._opened.set_result(stream)
        if isinstance(body, bytes):
            await self._send(body, end=True)
            return
        async for piece in body:
            await self._send(piece)
        last = write_fields(trailers()) if trailers else []
        if not last:
            await self._send(b"", end=True)
        elif stream.error is None:
            stream.send_head(last, end=True)

    async def _send(self, piece: bytes, *, end: bool = False) -> None:
        assert self._stream is not None
        try:
            await self._stream.send(piece, end=end)
        except LinkBroken as error:
            raise _failed("sending failed", error) from error

    async def head(self, *, upgrade: bool = False) -> ResponseHead:
        """As `Exchange.head`."""
        stream = await self._opened
        for _ in range(MAX_INTERIM + 1):
            try:
                answer = read_answer(await stream.head())
            except LinkBroken as error:
                raise _failed("no answer", error) from error
            if answer.status >= 200:
                self._bodiless = self._bodiless or answer.status in (204, 304)
                length = answer.get("content-length")
                self._length = int(length) if length is not None and not self._bodiless else None
                return answer
        raise UpstreamFailed(f"more than {MAX_INTERIM} interim answers", "budget-bytes")

    def ready(self) -> tuple[bytes, bool]:
        """As `Exchange.ready`."""
        assert self._stream is not None
        piece = self._counted(self._stream.take())
        if self._stream.is_drained:
            self._finish()
            return piece, True
        return piece, False

    async def body(self) -> AsyncIterator[bytes]:
        """As `Exchange.body`."""
        assert self._stream is not None
        try:
            while piece := await self._stream.read():
                yield self._counted(piece)
        except LinkBroken as error:
            raise _failed("the answer was cut off", error) from error
        self._finish()

    def _counted(self, piece: bytes) -> bytes:
        self._count += len(piece)
        if piece and (self._bodiless or (self._length is not None and self._count > self._length)):
            raise UpstreamFailed("the answer has more bytes than it may have")
        return piece

    def _finish(self) -> None:
        assert self._stream is not None
        if self._length is not None and self._count != self._length:
            raise UpstreamFailed("the answer is shorter than it says")
        try:
            self.trailers = read_trailers(self._stream.trailers, of_request=False)
        except BadHead as bad:
            raise UpstreamFailed(f"the answer is no HTTP: {bad.what}") from bad

    def abort(self) -> None:
        """End it at once, from outside the task that uses it; others on the connection go on."""
        if self._stream is not None:
            self._stream.close()

    def close(self) -> None:
        """Be done with it, once."""
        self.host.users -= 1
        if self._stream is not None:
            self._stream.close(NO_ERROR if self._stream.is_drained else CANCEL)
        elif not self._opened.done():
            self._opened.cancel()


class MixedUpstream:
    """HTTP/2 where the host chooses it. `aclose` ends all."""

    def __init__(self, call: BrokerCall) -> None:
        self._call = call
        self._plain = PlainUpstream(call)
        self._links: list[_HostLink] = []
        self._speaks_h2 = True  # until the host chose otherwise
        self._dialling = asyncio.Lock()
        self._held, self._given_back = 0, Bell()

    async def open(self, target: Target, permit: Permit, *, fresh: bool) -> Connection:
        """See `Upstream.open`."""
        while True:
            async with self._dialling:  # streams that arrive together share what the first one dials
                found = await self._open_h2(target, permit) if self._speaks_h2 else None
            if found is not None:
                return found
            if not self._speaks_h2 and self._take_place():
                break
            await self._given_back.wait()
        try:
            return await self._plain.open(target, permit, fresh=fresh)
        except BaseException:  # raised on: the place is given back for whatever ended it, cancelling included
            self._give_back()
            raise

    async def _open_h2(self, target: Target, permit: Permit) -> Connection | None:
        """A stream on a connection that is there or on a new one; None when there is no place for that."""
        found = await self._join(permit)
        return await self._dial(target, permit) if found is None and self._take_place() else found

    def _take_place(self) -> bool:
        """Whether this connection of the child may have another to the host.

        The first one has its place with the child's own connection.
        """
        if self._held and not self._call.broker.places.take(self._held):
            return False
        self._held += 1
        return True

    def _give_back(self) -> None:
        self._held -= 1
        if self._held:
            self._call.broker.places.give_back()
        self._given_back.ring()

    async def _join(self, permit: Permit) -> Connection | None:
        for host in [host for host in self._links if host.is_over]:
            self._links.remove(host)
            self._call.later(host.aclose())
        generation = self._call.policy.generation
        for host in self._links:
            if host.is_usable(permit, generation):
                return H2Exchange(host, _injected(permit))
        return None

    async def _dial(self, target: Target, permit: Permit) -> Connection:
        backend = PinnedBackend(self._call.broker.dialer, permit.decision)
        generation = self._call.policy.generation
        try:
            stream = await backend.connect_tcp(target.host.text, target.port)
            stream = await stream.start_tls(self._call.broker.tls_h2, server_hostname=target.host.text)
        except BaseException:  # raised on: the place is given back for whatever ended it, cancelling included
            self._give_back()
            raise
        if stream.get_extra_info("ssl_object").selected_alpn_protocol() != "h2":
            self._speaks_h2 = False
            return Exchange(stream)
        host = _HostLink(stream, generation, narrow=self._call.broker.places.is_crowded)
        host.when_over(self._give_back)
        self._touch(host, target, permit)
        self._links.append(host)
        return H2Exchange(host, _injected(permit))

    async def release(self, target: Target, permit: Permit, connection: Connection) -> None:
        """See `Upstream.release`."""
        if not isinstance(connection, H2Exchange):
            await self._plain.release(target, permit, connection)
            self._give_back()
            return
        connection.close()
        self._touch(connection.host, target, permit)
        self._given_back.ring()  # there is room for another stream

    def _touch(self, host: _HostLink, target: Target, permit: Permit) -> None:
        lifetime = KEEP_ALIVE if target.host.is_literal else min(float(permit.ttl), KEEP_ALIVE)
        host.expires = max(host.expires, time.monotonic() + lifetime)

    async def aclose(self) -> None:
        """End every connection."""
        links, self._links = self._links, []
        await asyncio.gather(*(host.aclose() for host in links), return_exceptions=True)


def _injected(permit: Permit) -> frozenset[bytes]:
    rule = permit.decision.rule
    return frozenset((rule.secret.header.lower().encode("ascii"),)) if rule and rule.secret else frozenset()


def _failed(what: str, error: LinkBroken) -> UpstreamFailed:
    return UpstreamFailed(f"{what}: {error.what}", unprocessed=error.unprocessed)
