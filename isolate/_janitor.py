"""The host's handle on its janitor (`child/janitor.py`): started with the first cage, told once what to
remove when we are gone.
"""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
from collections.abc import Sequence

from fumehood.isolate import _spawn


class Janitor:
    """One process that outlives the host by a moment."""

    def __init__(self, executable: str, groups: Sequence[str], scratch: Sequence[str]) -> None:
        self._executable = executable
        self._folders = {"groups": list(groups), "scratch": list(scratch)}
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Start it, unless it runs or there is nothing to remove."""
        if self._socket is not None or not any(self._folders.values()):
            return
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours  # at once: two tools may start beside each other
        try:
            with theirs:
                self._process = await asyncio.wrap_future(
                    _spawn.spawn(self._executable, theirs, subprocess.DEVNULL, module="janitor")
                )
            ours.send(json.dumps(self._folders).encode())
        except BaseException:  # the next start tries again
            ours.close()
            self._socket = None
            raise

    async def close(self) -> None:
        """Let it go; it finds nothing left to do."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            await asyncio.to_thread(self._process.wait)
            self._process = None
