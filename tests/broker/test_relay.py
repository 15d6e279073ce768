"""Bytes of a tunnel: all of them, in order, copied or spliced, to the byte of a budget and not beyond."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from typing import Any

import anyio
import pytest

from fumehood.broker._hub import hub
from fumehood.broker._relay import SPLICE_AFTER, Relay, RelayEnd

pytestmark = pytest.mark.anyio
MUCH = 5 * SPLICE_AFTER + 12_345  # goes through the pipe for most of its way
DATA = os.urandom(1 << 16) * (MUCH // (1 << 16) + 1)


def pair() -> tuple[socket.socket, socket.socket]:
    """A TCP connection on loopback: our end, and the relay's, which does not block."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    theirs.setblocking(False)
    ours.setblocking(False)
    return ours, theirs


class Tunnel:
    """A relay between two connections. child, upstream: the far ends."""

    def __init__(self, **options: Any) -> None:
        self.child, inner = pair()
        self.upstream, outer = pair()
        self.relay = Relay(inner, outer, **options)
        self.loop = asyncio.get_running_loop()

    async def __aenter__(self) -> Tunnel:
        self.running = asyncio.ensure_future(self.relay.run())
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.relay.end("no-call")
        await self.running
        self.child.close()
        self.upstream.close()

    async def send(self, sock: socket.socket, data: bytes) -> None:
        try:
            await self.loop.sock_sendall(sock, data)
            sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the tunnel was ended under it

    async def receive(self, sock: socket.socket) -> bytes:
        data = bytearray()
        try:
            while piece := await self.loop.sock_recv(sock, 1 << 18):
                data += piece
        except OSError:
            pass
        return bytes(data)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


async def test_both_ways_at_once_arrive_whole_and_each_end_is_passed_on() -> None:
    with anyio.fail_after(30):
        async with Tunnel() as tunnel:
            up, down = DATA[:MUCH], DATA[1 : MUCH + 1]
            _, _, at_upstream, at_child = await asyncio.gather(
                tunnel.send(tunnel.child, up),
                tunnel.send(tunnel.upstream, down),
                tunnel.receive(tunnel.upstream),
                tunnel.receive(tunnel.child),
            )
            assert (digest(at_upstream), digest(at_child)) == (digest(up), digest(down))
            assert await tunnel.running == RelayEnd(MUCH, MUCH)


async def test_one_side_may_end_and_still_be_answered() -> None:
    with anyio.fail_after(30):
        async with Tunnel(initial=b"first ") as tunnel:
            await tunnel.send(tunnel.child, b"question")
            assert await tunnel.receive(tunnel.upstream) == b"first question"
            await tunnel.send(tunnel.upstream, DATA[:MUCH])
            assert digest(await tunnel.receive(tunnel.child)) == digest(DATA[:MUCH])
            assert await tunnel.running == RelayEnd(14, MUCH)


@pytest.mark.promise("broker:tunnel-budget-to-the-byte")
@pytest.mark.parametrize("budget", [1, 1000, SPLICE_AFTER, SPLICE_AFTER + 1, 3 * SPLICE_AFTER + 7])
@pytest.mark.parametrize("way", ["sent", "received"])
async def test_not_one_byte_over_the_budget_goes_on_spliced_or_not(budget: int, way: str) -> None:
    with anyio.fail_after(30):
        async with Tunnel(**{f"max_{way}": budget}) as tunnel:
            source, sink = (
                (tunnel.child, tunnel.upstream) if way == "sent" else (tunnel.upstream, tunnel.child)
            )
            _, got = await asyncio.gather(tunnel.send(source, DATA[:MUCH]), tunnel.receive(sink))
            end = await tunnel.running
            assert (end.reason, end.detail) == ("budget-bytes", f"over {budget} bytes {way}")
            assert len(got) <= budget and DATA.startswith(got)
            assert max(end.sent, end.received) == budget + 1  # what is counted is what was taken


@pytest.mark.promise("broker:tunnel-budget-to-the-byte")
@pytest.mark.parametrize("budget", [14, SPLICE_AFTER, 3 * SPLICE_AFTER + 7])
async def test_exactly_the_budget_passes(budget: int) -> None:
    with anyio.fail_after(30):
        async with Tunnel(max_sent=budget) as tunnel:
            _, got = await asyncio.gather(
                tunnel.send(tunnel.child, DATA[:budget]), tunnel.receive(tunnel.upstream)
            )
            tunnel.upstream.shutdown(socket.SHUT_WR)
            assert digest(got) == digest(DATA[:budget])
            assert await tunnel.running == RelayEnd(budget, 0)


async def test_a_reader_that_stops_holds_the_writer_back_and_gets_everything_later() -> None:
    with anyio.fail_after(30):
        async with Tunnel() as tunnel:
            sending = asyncio.ensure_future(tunnel.send(tunnel.child, DATA[:MUCH] * 4))
            while tunnel.relay.sent < 2 * SPLICE_AFTER:  # until the pipe is in use, reading a little
                await tunnel.loop.sock_recv(tunnel.upstream, 1 << 16)
            before = -1
            while before != tunnel.relay.sent:  # until the relay takes no more
                before = tunnel.relay.sent
                for _ in range(1000):
                    await asyncio.sleep(0)
            assert not sending.done() and tunnel.relay.sent < 4 * MUCH
            await tunnel.receive(tunnel.upstream)
            await sending
            assert tunnel.relay.sent == 4 * MUCH


@pytest.mark.parametrize("refusing", ["source", "sink"])
async def test_where_the_kernel_does_not_splice_bytes_are_copied(
    refusing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No socket of this kernel refuses splice(2), so it is refused here."""
    splice = os.splice
    refused: list[int] = []

    def unwilling(source: int, sink: int, count: int, **options: Any) -> int:
        pipe = source if refusing == "sink" else sink
        if (os.fstat(pipe).st_mode & 0o170000) == 0o010000 and not refused[1:]:
            refused.append(pipe)
            raise OSError(22, "Invalid argument")
        return splice(source, sink, count, **options)

    monkeypatch.setattr(os, "splice", unwilling)
    with anyio.fail_after(30):
        async with Tunnel() as tunnel:
            _, got = await asyncio.gather(
                tunnel.send(tunnel.child, DATA[:MUCH]), tunnel.receive(tunnel.upstream)
            )
            assert digest(got) == digest(DATA[:MUCH]) and refused
            tunnel.upstream.shutdown(socket.SHUT_WR)
            assert await tunnel.running == RelayEnd(MUCH, 0)
            assert tunnel.relay._up._cannot_splice


async def test_a_tunnel_leaves_no_descriptor_and_no_watch() -> None:
    import psutil

    process = psutil.Process()
    hub()  # one descriptor for all tunnels of a loop
    before = process.num_fds()
    with anyio.fail_after(30):
        for _ in range(3):
            async with Tunnel() as tunnel:
                await asyncio.gather(tunnel.send(tunnel.child, DATA[:MUCH]), tunnel.receive(tunnel.upstream))
    assert process.num_fds() == before
    assert repr(hub()) == "<Hub of 0 sockets, 0 waits>"
