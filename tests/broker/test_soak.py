"""Many tunnels at once:

no leak, bounded memory, a fair share for each. The large run is started by `make soak`.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket

import anyio
import psutil
import pytest

from fumehood.broker import FetchRequest, Limits
from tests.broker.test_corpus_doors import proxy
from tests.broker.world import PUBLIC, World

pytestmark = pytest.mark.anyio
CONNECT = b"CONNECT raw.example.com:22 HTTP/1.1\r\nHost: raw.example.com:22\r\n\r\n"


class EchoServer:
    """An asyncio echo server that also streams for ever to who asks with b"stream"."""

    async def __aenter__(self) -> EchoServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=4096)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(b"x" * 262144 if data.startswith(b"stream") else data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()


async def open_tunnel(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(CONNECT)
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
    return reader, writer


async def run(world: World, idle: int, busy: int, rounds: int) -> tuple[list[int], int, int]:
    """Rounds that each busy tunnel made, growth in bytes of resident memory with all open, and descriptors
    left afterwards.
    """
    world.name({"*": [PUBLIC]}, ttl=60)
    process = psutil.Process()
    async with EchoServer() as server:
        world.ports[22] = type("At", (), {"port": server.port})()
        world.journal.entries = world.journal.events = _Forgetful()  # type: ignore[assignment]
        # Two calls: one may have 1,024 connections at once.
        async with (
            proxy(world, "tcp://raw.example.com:22") as (call, port),
            proxy(world, "tcp://raw.example.com:22") as (_, busy_port),
        ):
            warm = await open_tunnel(port)
            gc.collect()
            before = process.memory_info().rss
            descriptors = process.num_fds()
            tunnels = [await open_tunnel(port) for _ in range(idle)]
            counts = [0] * busy

            async def work(at: int) -> None:
                reader, writer = await open_tunnel(busy_port)
                while min(counts) < rounds and counts[at] < rounds * 20:
                    writer.write(b"stream")
                    await reader.readexactly(262144)
                    counts[at] += 1
                writer.close()
                await writer.wait_closed()

            async with asyncio.TaskGroup() as group:
                for at in range(busy):
                    group.create_task(work(at))
            growth = process.memory_info().rss - before
            for reader, writer in tunnels[:10]:  # idle ones still work
                writer.write(b"still here")
                assert await reader.readexactly(10) == b"still here"
            for _, writer in tunnels:
                writer.close()
            await asyncio.gather(*(writer.wait_closed() for _, writer in tunnels), return_exceptions=True)
            for _ in range(500):
                if process.num_fds() <= descriptors + 2:
                    break
                await asyncio.sleep(0.01)
            left = process.num_fds() - descriptors
            warm[1].close()
            assert call._live.keys().__len__() <= 1
    return counts, growth, left


class _Forgetful(list[object]):
    def append(self, item: object) -> None:
        pass


@pytest.mark.promise("broker:tunnels-bounded-and-fair")
async def test_idle_and_busy_tunnels_share_the_broker_and_leave_nothing(world: World) -> None:
    with anyio.fail_after(60):
        counts, growth, left = await run(world, idle=100, busy=20, rounds=5)
    assert min(counts) >= 5
    assert left <= 2
    assert growth < 100 * 1024 * 1024


@pytest.mark.soak
async def test_a_thousand_idle_and_two_hundred_busy_tunnels(world: World) -> None:
    """Test, server and broker share this process, so the figure is theirs together."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384), hard))
    with anyio.fail_after(600):
        counts, growth, left = await run(world, idle=1000, busy=200, rounds=20)
    print(f"growth {growth / 1e6:.0f} MB, rounds {min(counts)} to {max(counts)}")
    assert min(counts) >= 20 and left <= 2
    assert growth < 100 * 1024 * 1024


@pytest.mark.soak
async def test_thousands_of_fetches_leave_no_descriptor_task_or_memory(world: World) -> None:
    world.serve(80)
    world.name({"*": [PUBLIC]}, ttl=60)
    process = psutil.Process()
    world.journal.entries = world.journal.events = _Forgetful()  # type: ignore[assignment]
    async with world.broker(limits=Limits()) as broker:
        from fumehood.broker import CallScope
        from tests.broker.world import policy

        async def calls(count: int) -> None:
            for number in range(count):
                call = broker.open_call(
                    CallScope(f"c{number}", None, "tool"), policy("http://api.example.com")
                )
                await call.fetch(FetchRequest("GET", "http://api.example.com/"))
                await call.close()

        await calls(200)
        gc.collect()
        before, descriptors = process.memory_info().rss, process.num_fds()
        await calls(int(os.environ.get("FUMEHOOD_EXAMPLES", "3000")))
        gc.collect()
        assert process.num_fds() <= descriptors + 2
        assert process.memory_info().rss - before < 20 * 1024 * 1024
        assert len(asyncio.all_tasks()) < 10
    assert repr(broker).startswith("<Broker calls=0 ")


def test_a_listener_closed_under_the_door_is_not_an_endless_loop() -> None:
    async def main() -> None:
        from fumehood.broker import Broker, CallScope, NetSockets
        from tests.broker.world import Journal, policy

        listener = socket.create_server(("127.0.0.1", 0))
        async with Broker(Journal(), nameservers=[("127.0.0.1", 1)]) as broker:
            call = broker.open_call(CallScope("c", None, "tool"), policy("http://a.example"))
            await call.attach(NetSockets(proxy=listener))
            listener.close()
            await asyncio.sleep(0)
            with anyio.fail_after(5):
                await call.close()

    asyncio.run(main())
