"""Python's own pools, timed in a process of their own: the host holds threads, and they fork.

Run as a script by `_peers`: `_pools.py KIND`; each byte on standard input is one call, answered with the
seconds it took. Standard library only.
"""

from __future__ import annotations

import concurrent.futures
import json
import multiprocessing
import struct
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection


def work(text: str) -> str:
    """The no-op tool: JSON in, JSON out."""
    return json.dumps(json.loads(text))


def answer(text: str, connection: Connection) -> None:
    """`work` in a process of its own."""
    connection.send(work(text))


def process_per_call(context: multiprocessing.context.ForkContext) -> Callable[[str], str]:
    """A fresh fork for every call."""

    def call(text: str) -> str:
        ours, theirs = context.Pipe()
        process = context.Process(target=answer, args=(text, theirs))
        process.start()
        result: str = ours.recv()
        process.join()
        ours.close()
        theirs.close()
        return result

    return call


def main(kind: str) -> None:
    """Serve until standard input ends."""
    context = multiprocessing.get_context("fork")
    text = json.dumps({"text": "x" * 960, "numbers": [1, 2.5, None]})
    call: Callable[[str], str] = process_per_call(context)
    end: Callable[[], object] = str
    if kind == "pool":
        pool = context.Pool(1)
        call, end = (lambda given: str(pool.apply(work, (given,)))), pool.terminate
    elif kind == "executor":
        executor = concurrent.futures.ProcessPoolExecutor(1, mp_context=context)
        call, end = (lambda given: executor.submit(work, given).result()), executor.shutdown
    while sys.stdin.buffer.read(1):
        started = time.perf_counter()
        if call(text) != text:
            raise SystemExit(f"{kind}: a wrong answer")
        sys.stdout.buffer.write(struct.pack("<d", time.perf_counter() - started))
        sys.stdout.buffer.flush()
    end()


if __name__ == "__main__":
    main(sys.argv[1])
