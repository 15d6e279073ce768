"""Rounds of "append, acknowledge over a pipe, die": run as a program of its own, prints one JSON report.

Each round forks a writer that opens the log, acknowledges every id that `record` returned by writing it to a
pipe, and is killed with SIGKILL a random moment after a random acknowledgement. Usage: kill_log_rounds.py LOG
SEED ROUNDS
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import threading
import time

from fumehood.agent import EventLog, NewEvent


def writer(path: str, pipe: int, style: str) -> None:
    log = EventLog(path)
    if style == "tasks":
        asyncio.run(_tasks(log, pipe))
    elif style == "threads":
        threads = [threading.Thread(target=_one_by_one, args=(log, pipe)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        _one_by_one(log, pipe)


def _one_by_one(log: EventLog, pipe: int) -> None:
    while True:
        os.write(pipe, (log.record_sync("TOOL_EVENT", {"pad": "x" * 50}) + "\n").encode())


async def _tasks(log: EventLog, pipe: int) -> None:
    async def many() -> None:
        while True:
            ids = await log.record_many([NewEvent("TOOL_EVENT", {"n": n}) for n in range(3)])
            os.write(pipe, "".join(f"{id_}\n" for id_ in ids).encode())

    await asyncio.gather(*(many() for _ in range(8)))


def round_(path: str, chance: random.Random, style: str) -> list[str]:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            writer(path, write, style)
        finally:
            os._exit(1)
    os.close(write)
    got = b""
    wanted = chance.choice([0, 1, 1, 5, 20])
    while got.count(b"\n") < wanted:
        got += os.read(read, 65_536)
    spin_until = time.perf_counter() + chance.random() * 0.004
    while time.perf_counter() < spin_until:
        pass
    os.kill(child, signal.SIGKILL)
    while chunk := os.read(read, 65_536):
        got += chunk
    os.close(read)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    return [line.decode() for line in got.split(b"\n")[:-1]]


def main(path: str, seed: int, rounds: int) -> None:
    chance = random.Random(seed)
    acknowledged: list[str] = []
    stop_at = time.monotonic() + 8
    done = 0
    while done < rounds and time.monotonic() < stop_at:
        acknowledged += round_(path, chance, ("one", "tasks", "threads")[done % 3])
        done += 1
    log = EventLog(path, read_only=True)
    present = {event.id for event in log.events()}
    result = log.verify()
    report = {
        "rounds": done,
        "acknowledged": len(acknowledged),
        "lost": [id_ for id_ in acknowledged if id_ not in present],
        "repeated": len(acknowledged) - len(set(acknowledged)),
        "ok": result.ok,
        "message": result.message,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
