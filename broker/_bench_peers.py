"""The peers of the broker's benchmark: proxies that a machine may have, one process each, with their default
policy turned into "allow this host", and no log.

A peer that is not installed, or does not come up, is named with the reason; nobody waits for it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

COMES_UP = 10.0  # seconds a peer has before it is taken to be broken; mitmdump loads for two of them
WHERE_FROM = {
    "squid": "apt install squid",
    "tinyproxy": "apt install tinyproxy",
    "mitmdump": "pipx install mitmproxy",
}


class NoPeer(OSError):
    """A peer that cannot be measured; str() says why, or what brings it."""


def _command(name: str, port: int, origin: int, folder: Path) -> list[str]:
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
        return ["squid", "-N", "-f", str(config)]
    if name == "tinyproxy":
        config.write_text(
            f"Port {port}\nListen 127.0.0.1\nMaxClients 512\nConnectPort {origin}\nLogLevel Critical\n"
        )
        return ["tinyproxy", "-d", "-c", str(config)]
    options = ["connection_strategy=lazy", f"confdir={folder}/mitm"]
    sets = [word for option in options for word in ("--set", option)]
    return ["mitmdump", "-q", "--listen-host", "127.0.0.1", "-p", str(port), *sets]


@contextlib.contextmanager
def peer(name: str, origin: int, folder: Path) -> Iterator[int]:
    """The port of a peer pinned to the first core, allowed to reach the origin.

    Raises: NoPeer when it is not installed or does not come up.
    """
    if shutil.which(name) is None:
        raise NoPeer(WHERE_FROM[name])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = _command(name, port, origin, folder)
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        os.sched_setaffinity(process.pid, {sorted(os.sched_getaffinity(0))[0]})
        ends = time.monotonic() + COMES_UP
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if process.poll() is not None:
                raise NoPeer(f"installed, but it ended with {process.returncode}")
            if time.monotonic() > ends:
                raise NoPeer(f"installed, but it did not listen within {COMES_UP:g} s")
            time.sleep(0.05)
        yield port
    finally:
        process.kill()
        process.wait()
