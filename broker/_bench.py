"""The broker's load benchmark: policy and durable events on, one core for the broker, peers beside it where
they are installed.

`python -m fumehood.broker._bench [--rounds N] [--no-peers]` prints one JSON object. The broker (or the peer)
is pinned to the first CPU; the load generator and the origin server share the second one (_bench_load.py), so
its speed bounds what can be measured: `direct` is that bound. Each figure is the median of three runs. Peers
(_bench_peers.py) write no log. With `fumehood bench broker` the rows go to the host's own event log; run as a
module, to a file of lines that is flushed as often.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import socket
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from fumehood.broker._addresses import parse_address
from fumehood.broker._bench_load import Generator, pin
from fumehood.broker._bench_peers import WHERE_FROM, peer
from fumehood.broker._broker import Broker
from fumehood.broker._fetch_request import FetchRequest
from fumehood.broker._records import Row
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


class Log(Protocol):
    """A durable recorder, and how it ends."""

    async def record(
        self,
        kind: str,
        data: Mapping[str, object],
        *,
        execution_id: str | None = None,
        call_id: str | None = None,
        step_id: str | None = None,
    ) -> str: ...

    def close(self) -> None: ...


class DurableLines:
    """A stand-in for the host's log with the same promise, where none is given: rows are on disk when
    `record_many` returns. What gathers during one fdatasync shares the next one.
    """

    def __init__(self, folder: Path) -> None:
        self._fd = os.open(folder / "log.jsonl", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._writer: asyncio.Task[None] | None = None
        self._count = 0

    async def record(
        self,
        kind: str,
        data: Mapping[str, object],
        *,
        execution_id: str | None = None,
        call_id: str | None = None,
        step_id: str | None = None,
    ) -> str:
        return (await self.record_many([Row(kind, data, execution_id, call_id, step_id)]))[0]

    async def record_many(self, rows: Sequence[Row]) -> list[str]:
        first, self._count = self._count + 1, self._count + len(rows)
        ids = [str(number) for number in range(first, self._count + 1)]
        lines = [json.dumps({"id": id_, **row._asdict()}) for id_, row in zip(ids, rows, strict=True)]
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(("\n".join([*lines, ""]).encode(), done))
        if self._writer is None:
            self._writer = asyncio.ensure_future(self._write())
        await done
        return ids

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            os.write(self._fd, b"".join(lines for lines, _ in batch))
            await asyncio.to_thread(os.fdatasync, self._fd)
            for _, done in batch:
                if not done.done():  # its caller may have been cancelled
                    done.set_result(None)
        self._writer = None

    def close(self) -> None:
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
async def our_proxy(
    origin: int, folder: Path, log: Callable[[Path], Log] = DurableLines
) -> AsyncIterator[tuple[int, Broker, EgressPolicy]]:
    """Port, broker and policy of a proxy door whose one upstream is the origin."""
    rules = (f"http://{HOST}", f"tcp://{HOST}:443", "https://other.example.com", "*.example.net")
    policy = EgressPolicy(tuple(parse_rule(rule) for rule in rules), owner="bench")
    recorder = log(folder)
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    try:
        async with Broker(recorder, nameservers=[], dial=lambda _, __: ("127.0.0.1", origin)) as broker:
            broker.resolver = _Fixed()  # type: ignore[assignment]
            call = broker.open_call(CallScope("bench", None, "bench"), policy)
            await call.attach(NetSockets(proxy=listener))
            yield listener.getsockname()[1], broker, policy
            await call.close()
    finally:
        recorder.close()


async def _rates(
    generator: Generator, port: int, host: str, at: int, seconds: float, mebibytes: int
) -> dict[str, float]:
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
    runs = [await generator.bulk(port, mebibytes, connect) for _ in range(RUNS)]
    return out | {"bulk_gb_per_s": round(statistics.median(runs), 2)}


async def _fetch_latency(
    broker: Broker, policy: EgressPolicy, origin: int, count: int = 1500
) -> dict[str, Any]:
    """Milliseconds of `ctx.fetch` to loopback, a durable event each, on kept and on new connections, and of
    the same request on a plain kept connection: what is above that is added.
    """
    out: dict[str, Any] = {}
    reader, writer = await asyncio.open_connection("127.0.0.1", origin)
    plain = []
    for _ in range(count):
        started = time.perf_counter()
        writer.write(_GET)
        await reader.readuntil(b"ok")
        plain.append((time.perf_counter() - started) * 1000)
    writer.close()
    direct = statistics.median(plain)
    out["same_request_without_broker_ms"] = round(direct, 3)
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
        marks = statistics.quantiles(times[count // 15 :], n=100)
        out[name] = {"p50": round(marks[49], 3), "p99": round(marks[98], 3)}
    return out | {"fetch_kept_added_p50_ms": round(out["fetch_kept_ms"]["p50"] - direct, 3)}


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
    rounds: int = 100,
    quick: bool = False,
    *,
    peers: bool = True,
    folder: Path | None = None,
    log: Callable[[Path], Log] = DurableLines,
) -> dict[str, Any]:
    """All figures, `targets` with what is aimed at, and under `not_run` the peers that are missing, each with
    what would bring it.

    rounds: 100 is two seconds for each figure. folder: where the log is written (a disk, for honest figures).
    log: makes the durable recorder in a folder.
    """
    seconds, size, idle = (0.1, 32, 50) if quick else (max(0.2, rounds / 50), 1024, 900)
    everything = os.sched_getaffinity(0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16384), hard))
    out: dict[str, Any] = {}
    not_run: dict[str, str] = {}
    with tempfile.TemporaryDirectory(dir=folder) as name, Generator() as generator:
        pin(0)
        try:
            out["direct"] = await _direct(generator, seconds, size)
            async with our_proxy(generator.origin, Path(name), log) as (port, broker, policy):
                ours: dict[str, Any] = {**await _rates(generator, port, HOST, 80, seconds, size)}
                ours |= await _fetch_latency(broker, policy, generator.origin, 200 if quick else 1500)
                ours["idle_tunnels_mb_per_1000"] = await _idle_memory(port, idle)
                out["fumehood"] = ours
            for known in WHERE_FROM if peers else ():
                try:
                    with peer(known, generator.origin, Path(name)) as port:
                        out[known] = {
                            **await _rates(generator, port, "127.0.0.1", generator.origin, seconds, size)
                        }
                except OSError as error:  # NoPeer, or one that went away under load
                    not_run[known] = str(error)
        finally:
            os.sched_setaffinity(0, everything)
    return out | {"not_run": not_run, "targets": _targets(out)}


async def _direct(generator: Generator, seconds: float, mebibytes: int) -> dict[str, float]:
    """What the other core does without a proxy: the bound of everything that is measured through one."""
    at = generator.origin
    return {
        "new_per_s": round(await generator.load(at, [_GET], False, seconds)),
        "keep_alive_per_s": round(await generator.load(at, [_GET], True, seconds)),
        "bulk_gb_per_s": round(await generator.bulk(at, mebibytes, b""), 2),
    }


def _targets(out: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """What the figures are aimed at: name -> target, measured, met (None without the peer)."""
    ours, squid = out["fumehood"], out.get("squid")
    found: dict[str, dict[str, Any]] = {}

    def aim(name: str, measured: float | None, sign: str, at: float) -> None:
        met = None if measured is None else measured >= at if sign == ">=" else measured <= at
        found[name] = {"target": f"{sign} {at:g}", "measured": measured, "met": met}

    def beside(figure: str) -> float | None:
        return None if squid is None else round(ours[figure] / max(1, squid[figure]), 2)

    aim("CONNECTs a second, against squid's", beside("connect_new_per_s"), ">=", 1)
    aim("kept requests a second, against squid's", beside("plain_keep_alive_per_s"), ">=", 1)
    aim("one tunnel, GB/s", ours["bulk_gb_per_s"], ">=", 1.5)
    aim("ctx.fetch on a kept connection, ms added", ours["fetch_kept_added_p50_ms"], "<=", 0.3)
    aim("CONNECTs a second", ours["connect_new_per_s"], ">=", 2500)
    aim("plain requests on new connections a second", ours["plain_new_per_s"], ">=", 3000)
    aim("plain requests on kept connections a second", ours["plain_keep_alive_per_s"], ">=", 12000)
    aim("1000 idle tunnels, MB", ours["idle_tunnels_mb_per_1000"], "<=", 80)
    return found


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
