"""How many rows a second the event log takes, and how many blobs the store: figures for docs, never asserted.

`python -m fumehood.agent._bench` prints one JSON object. Each figure is the best of three short runs in a
temporary folder on the disk that TMPDIR names; a tmpfs would measure memory, so the file system's type is
printed with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from fumehood.agent import _bench_guard
from fumehood.agent._events import NewEvent
from fumehood.agent._log import EventLog
from fumehood.agent._store import ContentStore

ROW = {
    "outcome": "allow",
    "host": "api.example.com",
    "port": 443,
    "rule": "api.example.com",
    "pinned": "192.0.2.7",
}


def bench_log(folder: Path, runs: int = 3) -> dict[str, float]:
    """Rows per second: one by one, from 32 tasks at once (group commit), and in record_many batches of 32."""
    with EventLog(folder / "log.sqlite3") as log:
        return {
            "one_by_one_per_s": _best(lambda: asyncio.run(_one_by_one(log, 400)), 400, runs),
            "one_by_one_sync_per_s": _best(
                lambda: [log.record_sync("EGRESS_ALLOWED", ROW) for _ in range(400)], 400, runs
            ),
            "tasks_32_per_s": _best(lambda: asyncio.run(_tasks(log, 32, 100)), 3200, runs),
            "batches_of_32_per_s": _best(lambda: asyncio.run(_batches(log, 100)), 3200, runs),
        }


def bench_verify(folder: Path, runs: int = 3) -> dict[str, float]:
    """Rows per second that verify checks, on the log that `bench_log` left."""
    log = EventLog(folder / "log.sqlite3", read_only=True)
    rows = log.verify().rows
    return {"verify_per_s": _best(log.verify, rows, runs)}


def bench_store(folder: Path, runs: int = 3) -> dict[str, float]:
    """Puts and gets of 64 KiB per second, each put durable, each get checked."""
    with ContentStore(folder / "content") as store:
        blobs = [os.urandom(65_536) for _ in range(60)]
        parts = [blobs[i : i + 20] for i in range(0, 60, 20)]
        addresses: list[str] = []

        def put() -> None:
            addresses.extend(
                store.put(blob, "application/octet-stream", owner="bench").address for blob in parts.pop()
            )

        return {
            "put_64k_per_s": _best(put, 20, runs),
            "get_64k_per_s": _best(lambda: [store.get(a) for a in addresses], len(addresses), runs),
        }


async def _one_by_one(log: EventLog, count: int) -> None:
    for _ in range(count):
        await log.record("EGRESS_ALLOWED", ROW, execution_id="e", call_id="c")


async def _tasks(log: EventLog, tasks: int, each: int) -> None:
    await asyncio.gather(*(_one_by_one(log, each) for _ in range(tasks)))


async def _batches(log: EventLog, count: int) -> None:
    batch = [NewEvent("EGRESS_ALLOWED", ROW, "e", "c")] * 32
    for _ in range(count):
        await log.record_many(batch)


def _best(act: Callable[[], object], units: int, runs: int) -> float:
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        act()
        times.append(time.perf_counter() - start)
    return round(units / min(times), 1)


def run(quick: bool = False) -> dict[str, object]:
    """Every figure of this module as one JSON object. quick: each measured once; the figures mean nothing."""
    runs = 1 if quick else 3
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found = {
            "log": bench_log(folder, runs),
            "verify": bench_verify(folder, runs),
            "store": bench_store(folder, runs),
        }
    guard = _bench_guard.run(quick)
    return found | {"guard, ms": guard["ms"], "guard, doubled input / input": guard["ratios"]}


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
