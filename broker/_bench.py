"""The broker's load benchmark: policy and durable events on, one core for the broker, peers beside it where
they are installed.

`python -m fumehood.broker._bench [--rounds N] [--no-peers]` prints one JSON object. The broker (or the peer)
is pinned to the first CPU; the load
generator and the origin server share the second one, so its speed bounds what can be measured: `direct` is
that bound. Each figure is the median of three runs. Peers: squid, tinyproxy and mitmdump, each with its
default policy turned into "allow this host", one process.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import resource
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fumehood.broker._addresses import parse_address
from fumehood.broker._broker import Broker
from fumehood.broker._fetch import FetchRequest
from fumehood.broker._transparent import NetSockets
from fumehood.broker._types import Answers, CallScope, EgressPolicy
from fumehood.policies.names import Host
from fumehood.policies.rules import parse_rule

HOST = "api.example.com"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CONNECTIONS = 32
RUNS = 3
_CONNECT = f"CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}:443\r\n\r\n".encode()
_GET = f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()


def _absolute(host: str, port: int, *, close: bool) -> bytes:
    at = host if port == 80 else f"{host}:{port}"
    end = "Connection: close\r\n" if close else ""
    return f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n{end}\r\n".encode()


def _pin(cpu: int) -> None:
    available = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {available[min(cpu, len(available) - 1)]})


# -- the other core: origin and load
# -----------------------------------------------------------------------------


class _Origin(asyncio.Protocol):
    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"BULK"):
            piece = b"x" * (1 << 20)
            for _ in range(int(data[4:12])):
                self.transport.write(piece)
            self.transport.write_eof()
            return
        count = data.count(b"\r\n\r\n")
        if count:
            self.transport.write(ANSWER * count)
        if b"Connection: close" in data:
            self.transport.close()


class _Client(asyncio.Protocol):
    """Sends `steps` one after the other, each after the answer to the last;

    starts anew when `again` says so.
    """

    def __init__(
        self,
        steps: list[bytes],
        counter: list[int],
        again: Callable[[], None],
        over: Callable[[], bool],
        keep: bool,
    ) -> None:
        self.steps, self.counter, self.again, self.over, self.keep = steps, counter, again, over, keep
        self.at = 0
        self.data = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(self.steps[0])

    def data_received(self, data: bytes) -> None:
        self.data += data
        head = self.data.find(b"\r\n\r\n")
        if head < 0 or (self.at == len(self.steps) - 1 and not self.data.endswith(b"ok")):
            return
        self.data = b""
        if self.at < len(self.steps) - 1:
            self.at += 1
            self.transport.write(self.steps[self.at])
            return
        self.counter[0] += 1
        if self.keep and not self.over():
            self.transport.write(self.steps[-1])
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.again()


async def _load(port: int, steps: list[bytes], keep: bool, seconds: float) -> float:
    loop = asyncio.get_running_loop()
    counter, ends = [0], loop.time() + seconds
    tasks: set[Any] = set()

    def again() -> None:
        if loop.time() < ends:
            task = loop.create_task(_connect())
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    async def _connect() -> None:
        with contextlib.suppress(OSError):
            await loop.create_connection(
                lambda: _Client(steps, counter, again, lambda: loop.time() >= ends, keep), "127.0.0.1", port
            )

    for _ in range(CONNECTIONS):
        again()
    await asyncio.sleep(seconds)
    return counter[0] / seconds


async def _bulk(port: int, mebibytes: int, prefix: bytes) -> float:
    """GB/s from the origin through one tunnel."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    if prefix:
        writer.write(prefix)
        await reader.readuntil(b"\r\n\r\n")
    started, got = time.perf_counter(), 0
    writer.write(b"BULK%08d" % mebibytes)
    while data := await reader.read(1 << 20):
        got += len(data)
    writer.close()
    return got / (time.perf_counter() - started) / 1e9


def _other_core(pipe: Any) -> None:
    _pin(1)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(_Origin, "127.0.0.1", 0, backlog=4096)
        pipe.send(server.sockets[0].getsockname()[1])
        while True:
            asked = await loop.run_in_executor(None, pipe.recv)
            if asked is None:
                return
            kind, arguments = asked
            try:
                pipe.send(await (_load(*arguments) if kind == "load" else _bulk(*arguments)))
            except OSError as error:  # a contestant that is not there any more
                pipe.send(error)

    asyncio.run(main())


class _Generator:
    """Talks to the other core's process."""

    def __enter__(self) -> _Generator:
        self._pipe, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(
            target=_other_core, args=(theirs,), daemon=True
        )
        self._process.start()
        theirs.close()  # else nobody would notice that the process has ended
        self.origin: int = self._pipe.recv()
        return self

    def __exit__(self, *exc: object) -> None:
        self._pipe.send(None)
        self._process.join(5)
        self._process.kill()

    async def ask(self, kind: str, *arguments: object) -> float:
        self._pipe.send((kind, arguments))
        result: float | OSError = await asyncio.get_running_loop().run_in_executor(None, self._pipe.recv)
        if isinstance(result, OSError):
            raise result
        return result


# -- the core that is measured
# --------------------------------------------------------------------------------------


class _DurableLines:
    """A stand-in for the host's log with the same promise: a row is on disk when `record` returns.

    What gathers during one fdatasync shares the next one. (This folder imports nothing of the parts above
    it.)
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None
        self._count = 0

    async def record(self, kind: str, data: Mapping[str, object], **ids: str | None) -> str:
        self._count += 1
        row = json.dumps({"id": self._count, "kind": kind, "data": data, **ids}).encode() + b"\n"
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((row, done))
        if self._writer is None:
            self._writer = asyncio.ensure_future(self._write())
        await done
        return str(self._count)

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            os.write(self._fd, b"".join(row for row, _ in batch))
            await asyncio.to_thread(os.fdatasync, self._fd)
            for _, done in batch:
                done.set_result(None)
        self._writer = None

    async def close(self) -> None:
        while self._writer is not None:
            await self._writer
        os.close(self._fd)


class _Fixed:
    """A resolver that knows one answer:

    with a TTL of a minute DNS is asked once a minute, so it is not what is measured.
    """

    async def resolve(self, host: Host) -> Answers:
        return Answers((parse_address("93.184.216.34"),), ttl=60)

    def warm(self) -> None: ...

    async def close(self) -> None: ...


@contextlib.asynccontextmanager
async def _our_proxy(origin: int, folder: Path) -> AsyncIterator[tuple[int, Broker, EgressPolicy]]:
    rules = (f"http://{HOST}", f"tcp://{HOST}:443", "https://other.example.com", "*.example.net")
    policy = EgressPolicy(tuple(parse_rule(rule) for rule in rules), owner="bench")
    log = _DurableLines(folder / "log.jsonl")
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    try:
        async with Broker(log, nameservers=[], dial=lambda _, __: ("127.0.0.1", origin)) as broker:
            broker.resolver = _Fixed()  # type: ignore[assignment]
            call = broker.open_call(CallScope("bench", None, "bench"), policy)
            await call.attach(NetSockets(proxy=listener))
            yield listener.getsockname()[1], broker, policy
            await call.close()
    finally:
        await log.close()


@contextlib.contextmanager
def _peer(name: str, origin: int, folder: Path) -> Iterator[int]:
    """A peer pinned to the first core, allowed to reach the origin.

    Raises: OSError when it does not come up.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = folder / f"{name}.conf"
    if name == "squid":
        lines = [
            f"http_port 127.0.0.1:{port}",
            f"acl ports port {origin}",
            "http_access allow ports",
            "http_access deny all",
            "cache deny all",
            "access_log none",
            "cache_log /dev/null",
            f"pid_filename {folder}/squid.pid",
        ]
        config.write_text("\n".join(lines) + "\n")
        command = ["squid", "-N", "-f", str(config)]
    elif name == "tinyproxy":
        config.write_text(
            f"Port {port}\nListen 127.0.0.1\nMaxClients 512\nConnectPort {origin}\nLogLevel Critical\n"
        )
        command = ["tinyproxy", "-d", "-c", str(config)]
    else:
        command = [
            "mitmdump",
            "-q",
            "--listen-host",
            "127.0.0.1",
            "-p",
            str(port),
            "--set",
            "connection_strategy=lazy",
        ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.sched_setaffinity(process.pid, {sorted(os.sched_getaffinity(0))[0]})
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()


async def _rates(generator: _Generator, port: int, host: str, at: int, seconds: float) -> dict[str, float]:
    """Figures of one proxy. host, at: how the origin is named to it."""
    to = f"{host}:{443 if host == HOST else at}"
    connect = f"CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n".encode()
    plans: Mapping[str, tuple[list[bytes], bool]] = {
        "connect_new_per_s": ([connect, _GET], False),
        "plain_new_per_s": ([_absolute(host, at, close=True)], False),
        "plain_keep_alive_per_s": ([_absolute(host, at, close=False)], True),
        "gets_in_tunnel_per_s": ([connect, _GET], True),
    }
    out = {}
    for name, (steps, keep) in plans.items():
        runs = [await generator.ask("load", port, steps, keep, seconds) for _ in range(RUNS)]
        out[name] = round(statistics.median(runs))
    runs = [await generator.ask("bulk", port, 1024, connect) for _ in range(RUNS)]
    return out | {"bulk_gb_per_s": round(statistics.median(runs), 2)}


async def _fetch_latency(broker: Broker, policy: EgressPolicy, count: int = 1500) -> dict[str, float]:
    """Milliseconds of `ctx.fetch` to loopback, a durable event each, on kept and on new connections."""
    out = {}
    for name, every in (("fetch_kept_ms", count + 1), ("fetch_new_call_ms", 1)):
        times = []
        call = broker.open_call(CallScope("bench", None, "bench"), policy)
        for number in range(count):
            if number % every == 0:
                await call.close()
                call = broker.open_call(CallScope("bench", None, "bench"), policy)
            started = time.perf_counter()
            await call.fetch(FetchRequest("GET", f"http://{HOST}/"))
            times.append((time.perf_counter() - started) * 1000)
        await call.close()
        marks = statistics.quantiles(times[100:], n=100)
        out[name] = {"p50": round(marks[49], 3), "p99": round(marks[98], 3)}
    return out  # type: ignore[return-value]


async def _idle_memory(port: int, count: int = 900) -> float:
    """Growth of this process in MB for 1000 idle tunnels, the clients' ends included."""
    import psutil

    process = psutil.Process()
    before = process.memory_info().rss
    streams = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(_CONNECT)
        await reader.readuntil(b"\r\n\r\n")
        streams.append(writer)
    grown = process.memory_info().rss - before
    for writer in streams:
        writer.close()
    return round(grown / 1e6 * 1000 / count, 1)


async def run(
    rounds: int = 100, quick: bool = False, *, peers: bool = True, folder: Path | None = None
) -> dict[str, Any]:
    """All figures.

    rounds: 100 is two seconds for each figure. folder: where the log is written (a disk, for honest figures).
    """
    seconds = 0.2 if quick else max(0.2, rounds / 50)
    everything = os.sched_getaffinity(0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384), hard))
    out: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(dir=folder) as name, _Generator() as generator:
        _pin(0)
        try:
            direct = [
                await generator.ask("load", generator.origin, [_GET], keep, seconds) for keep in (False, True)
            ]
            out["direct"] = {"new_per_s": round(direct[0]), "keep_alive_per_s": round(direct[1])}
            async with _our_proxy(generator.origin, Path(name)) as (port, broker, policy):
                ours: dict[str, Any] = {**await _rates(generator, port, HOST, 80, seconds)}
                ours |= await _fetch_latency(broker, policy, 200 if quick else 1500)
                ours["idle_tunnels_mb_per_1000"] = await _idle_memory(port)
                out["fumehood"] = ours
            for peer in ("squid", "tinyproxy", "mitmdump") if peers else ():
                if shutil.which(peer) is None:
                    continue
                try:
                    with _peer(peer, generator.origin, Path(name)) as port:
                        out[peer] = {**await _rates(generator, port, "127.0.0.1", generator.origin, seconds)}
                except OSError as error:
                    out[peer] = {"failed": str(error)}
        finally:
            os.sched_setaffinity(0, everything)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--folder", type=Path, help="where the log is written; a disk, for honest figures")
    options = parser.parse_args()
    found = asyncio.run(run(options.rounds, peers=not options.no_peers, folder=options.folder))
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
