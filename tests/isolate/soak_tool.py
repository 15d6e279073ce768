"""The tool of the soak tests: honest, or hostile in one of many ways, as its input says."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from typing import Any


def run(input: dict[str, Any], ctx: Any) -> Any:
    """One call."""
    return WAYS[input["way"]](ctx)


def honest(ctx: Any) -> Any:
    """Use everything once."""
    ctx.emit("SOAK", {"n": 1})
    ctx.log("a line")
    with open(f"{ctx.tmp}/file", "wb") as file:
        file.write(bytes(10_000))
    print("printed")
    return {"put": ctx.put(b"x" * 1000, "text/plain")["size"]}


def daemon(ctx: Any) -> Any:
    """Fork twice and leave."""
    if os.fork() == 0:
        try:
            os.setsid()
        except OSError:
            pass
        if os.fork() == 0:
            signal.pause()
        os._exit(0)
    return "left a daemon"


def children(ctx: Any) -> Any:
    """Fork and forget."""
    for _ in range(5):
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            signal.pause()
    return "left children"


def descriptors(ctx: Any) -> Any:
    """Send open files to the host."""
    sock = socket.socket(fileno=os.dup(3))
    socket.send_fds(sock, [b'\0\0\0\x18J{"t":"log","text":"fds"}'[:29]], [0, 1, 2] * 20)
    return "sent"


def threads(ctx: Any) -> Any:
    """Leave threads running."""
    for _ in range(5):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    return "left threads"


def flood(ctx: Any) -> Any:
    """Print more than allowed."""
    while True:
        os.write(1, bytes(65536))


def nonsense(ctx: Any) -> Any:
    """Break the protocol."""
    os.write(3, b"nonsense" * 100)
    signal.pause()


def ends(ctx: Any) -> Any:
    """End without a word."""
    os._exit(3)


def killed(ctx: Any) -> Any:
    """Kill everything that can be reached."""
    try:
        os.kill(-1, signal.SIGKILL)
    except OSError:
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def raises(ctx: Any) -> Any:
    """An error with a long text."""
    raise ValueError("x" * 1_000_000)


def hangs(ctx: Any) -> Any:
    """Never end, whatever is said."""
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    while True:
        time.sleep(10)


def stops(ctx: Any) -> Any:
    """Stop itself."""
    os.kill(os.getpid(), signal.SIGSTOP)


def hoards(ctx: Any) -> Any:
    """Take more memory than allowed."""
    kept = []
    while True:
        kept.append(bytearray(1 << 22))


def fills(ctx: Any) -> Any:
    """Fill the private folder."""
    with open(f"{ctx.tmp}/full", "wb") as file:
        while True:
            file.write(bytes(1 << 20))


def links(ctx: Any) -> Any:
    """Deep folders, links, a fifo and a socket."""
    os.chdir(ctx.tmp)
    for _ in range(200):
        os.mkdir("d")
        os.chdir("d")
    os.symlink("/etc/shadow", "l")
    os.mkfifo("f")
    return sys.getsizeof("")


WAYS = {
    way.__name__: way
    for way in (
        honest, daemon, children, descriptors, threads, flood, nonsense, ends, killed, raises, hangs, stops,
        hoards, fills, links,
    )
}  # fmt: skip
