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
import os
import resource
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

from fumehood.broker._addresses import parse_address
from fumehood.broker._bench_load import Generator, pin
from fumehood.broker._broker import Broker
from fumehood.broker._fetch_request import FetchRequest
from fumehood.broker._transparent import NetSockets
from fumehood.broker._types import Answers, CallScope, EgressPolicy
from fumehood.policies.names import Host
from fumehood.policies.rules import parse_rule

HOST = "api.example.com"
RUNS = 3
_CONNECT = f"CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}:443\r\n\r\n".encode()
_GET = f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()


def _absolute(host: str, port: int, *, close: bool) -> bytes:
    at = host if port == 80 else f"{host}:{port}"
    end = "Connection: close\r\n" if close else ""
    return f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n{end}\r\n".encode()


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


async def _rates(generator: Generator, port: int, host: str, at: int, seconds: float) -> dict[str, float]:
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
        runs = [await generator.load(port, steps, keep, seconds) for _ in range(RUNS)]
        out[name] = round(statistics.median(runs))
    runs = [await generator.bulk(port, 1024, connect) for _ in range(RUNS)]
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
    with tempfile.TemporaryDirectory(dir=folder) as name, Generator() as generator:
        pin(0)
        try:
            direct = [await generator.load(generator.origin, [_GET], keep, seconds) for keep in (False, True)]
            out["direct"] = {
                "new_per_s": round(direct[0]),
                "keep_alive_per_s": round(direct[1]),
                "bulk_gb_per_s": round(await generator.bulk(generator.origin, 1024, b""), 2),
            }
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
