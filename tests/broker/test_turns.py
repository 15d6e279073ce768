"""Work without a wait: what a child or a host keeps ready, in pieces of a byte, leaves the event loop to
others.

The measure is not time but work: a task that only looks how far it has come runs whenever others may.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from fumehood.broker import BrokerCall, NetSockets
from fumehood.broker._child import ChildSocket
from fumehood.broker._dial import PinnedStream
from fumehood.broker._h2_stream import LinkStream
from fumehood.broker._transparent import TransparentDoor
from fumehood.broker._turns import Turns
from tests.broker.clients import RawServer, connected, read_all, until
from tests.broker.h2_peers import DATA, END_STREAM, GET, frame, h2_child
from tests.broker.world import PUBLIC, World

pytestmark = [pytest.mark.anyio, pytest.mark.promise("broker:nobody-keeps-the-loop")]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
HOST = b"Host: api.example.com\r\n"
MANY = 60_000


class Progress:
    """Work done, and the most of it that was done between two turns of somebody else."""

    def __init__(self) -> None:
        self.done = self.widest = self._seen = 0
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while True:
            self.widest, self._seen = max(self.widest, self.done - self._seen), self.done
            await asyncio.sleep(0)

    def stop(self) -> int:
        self._task.cancel()
        return max(self.widest, self.done - self._seen)


def watched(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, cost: Callable[..., int]) -> Progress:
    """Counts what a method of the broker is called with; it does its work as ever."""
    progress, method = Progress(), getattr(owner, name)

    def counting(*args: Any) -> Any:
        progress.done += cost(*args)
        return method(*args)

    monkeypatch.setattr(owner, name, counting)
    return progress


def swallow(connection: socket.socket) -> None:
    """Take a request in chunks, then answer."""
    tail = until(connection, b"\r\n\r\n")
    while not tail.endswith(b"0\r\n\r\n"):
        tail = (tail + connection.recv(1 << 20))[-5:]
    connection.sendall(OK)


def crumble(connection: socket.socket) -> None:
    """Answer in chunks of a byte."""
    until(connection, b"\r\n\r\n")
    connection.sendall(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * MANY + b"0\r\n\r\n"
    )


@asynccontextmanager
async def door(world: World, *rules: str) -> AsyncIterator[tuple[BrokerCall, int]]:
    listener = socket.create_server(("127.0.0.1", 0))
    world.name({"*": [PUBLIC]}, ttl=60)
    async with world.call(*rules) as call:
        await call.attach(NetSockets(proxy=listener))
        yield call, listener.getsockname()[1]


async def beside(work: Callable[[], bytes]) -> bytes:
    with anyio.fail_after(60):
        return await anyio.to_thread.run_sync(work)


async def test_a_request_in_chunks_of_a_byte_leaves_others_their_turns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = watched(monkeypatch, PinnedStream, "write", lambda _, data: len(data))
    world.ports[80] = world.stack.enter_context(RawServer(swallow))  # type: ignore[assignment]
    async with door(world, "http://api.example.com") as (_, port):

        def work() -> bytes:
            with connected(port) as sock:
                head = (
                    b"POST http://api.example.com/ HTTP/1.1\r\n"
                    + HOST
                    + b"Transfer-Encoding: chunked\r\n\r\n"
                )
                sock.sendall(head + b"1\r\nx\r\n" * MANY + b"0\r\n\r\n")
                return until(sock, b"\r\n\r\n")

        assert (await beside(work)).startswith(b"HTTP/1.1 200")
    assert sent.stop() < 4096 < MANY < sent.done


async def test_an_answer_in_chunks_of_a_byte_leaves_others_their_turns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed_on = watched(monkeypatch, ChildSocket, "write", lambda _, data: len(data))
    world.ports[80] = world.stack.enter_context(RawServer(crumble))  # type: ignore[assignment]
    async with door(world, "http://api.example.com") as (_, port):

        def work() -> bytes:
            with connected(port) as sock:
                sock.sendall(b"GET http://api.example.com/ HTTP/1.0\r\n" + HOST + b"\r\n")
                return read_all(sock)

        assert (await beside(work)).endswith(b"x" * MANY)
    assert handed_on.stop() < 4096 < MANY < handed_on.done


async def test_tls_records_of_a_byte_leave_others_their_turns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = watched(monkeypatch, PinnedStream, "write", lambda _, data: len(data))

    def host(connection: socket.socket) -> None:
        with world.authority.any_name("api.example.com").wrap_socket(connection, server_side=True) as tls:
            swallow(tls)

    world.ports[443] = world.stack.enter_context(RawServer(host))  # type: ignore[assignment]
    async with door(world, "https://api.example.com +inspect") as (call, port):
        trust = ssl.create_default_context(cadata=call.broker.authority.pem.decode())

        def work() -> bytes:
            with connected(port) as sock:
                sock.sendall(b"CONNECT api.example.com:443 HTTP/1.0\r\n\r\n")
                until(sock, b"\r\n\r\n")
                with trust.wrap_socket(sock, server_hostname="api.example.com") as tls:
                    size = f"{MANY:x}\r\n".encode()
                    tls.sendall(b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + size)
                    for _ in range(MANY):
                        tls.send(b"x")
                    tls.sendall(b"\r\n0\r\n\r\n")
                    return until(tls, b"\r\n\r\n")

        assert (await beside(work)).startswith(b"HTTP/1.1 200")
    assert sent.stop() < 4096 < MANY < sent.done


async def test_frames_of_a_byte_leave_others_their_turns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = watched(monkeypatch, LinkStream, "received_data", lambda *_: 1)
    world.name({"*": [PUBLIC]}, ttl=60)
    world.serve(443, tls=True)
    count = 30_000
    async with world.call("https://api.example.com +inspect") as call:
        async with h2_child(call) as child:
            await child.send(child.head(1, [(":method", "POST"), *GET[1:]], end=False))
            await child.send(frame(DATA, 0, 1, b"x") * count + frame(DATA, END_STREAM, 1))
            assert (await child.answer(1))[":status"] == "200"
    assert taken.stop() <= 128 < count < taken.done


async def test_questions_without_end_leave_others_their_turns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = watched(monkeypatch, TransparentDoor, "answer", lambda *_: 1)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    question = b"\x12\x34\1\0\0\1\0\0\0\0\0\0\3api\7example\3com\0\0\1\0\1"
    count = 20_000

    def work() -> bytes:
        with connected(port) as sock:
            sender = threading.Thread(
                target=sock.sendall, args=((struct.pack("!H", len(question)) + question) * count,)
            )
            sender.start()
            heard = 0
            while heard < count * (2 + len(question) + 16):
                heard += len(sock.recv(1 << 20))
            sender.join()
            return b"all"

    async with world.call("https://api.example.com") as call:
        await call.attach(NetSockets(dns_tcp=listener))
        assert await beside(work) == b"all"
    assert answered.stop() <= 32 < count == answered.done


async def test_turns_come_by_cost() -> None:
    seen = Progress()
    turns = Turns(10)
    for _ in range(100):
        seen.done += 1
        await turns.took()
    for cost in (9, 1, 25, 3):
        seen.done += cost
        await turns.took(cost)
    assert seen.stop() == 25
