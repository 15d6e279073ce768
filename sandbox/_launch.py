"""Starting a worker process. The host's cage plugs in here; this module knows no cage and says so.

A launcher gets an entry to run and one end of a Unix socket, and gives back a process handle. What the
worker needs: executable mappings, threads, `recvmsg` with descriptors, its own address space (an
RLIMIT_AS would break the guard regions of WASM memories). What it never needs: a file besides Python's
own, a network, an environment, another process.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

STOP_WAIT_S = 5.0  # SIGKILL is certain; this bounds only the wait for the kernel to tell us


@dataclass(frozen=True, slots=True)
class WorkerEntry:
    """What to run in a worker.

    module and function: called with the number of the inherited descriptor, if the launcher imports code
    itself. module_argv: the same as arguments of `python -m`, with "{fd}" for that number.
    """

    module: str = "fumehood.sandbox.child"
    function: str = "serve"
    module_argv: tuple[str, ...] = ("fumehood.sandbox.child", "serve", "{fd}")
    preload: tuple[str, ...] = ("wasmtime",)


class WorkerProcess(Protocol):
    """A started worker."""

    @property
    def pid(self) -> int:
        """Its process id, as the host sees it."""
        ...

    @property
    def enforcement(self) -> Mapping[str, object]:
        """The tier and layers in force for it, as in a call's result."""
        ...

    async def wait(self) -> int:
        """Its exit status; minus the signal's number when one ended it."""
        ...

    def kill(self) -> None:
        """End it and all it started, now."""
        ...


class WorkerLauncher(Protocol):
    """Starts workers; see the module docstring."""

    async def launch(self, entry: WorkerEntry, sock: socket.socket) -> WorkerProcess:
        """Start `entry` with `sock` inherited; the caller closes its copy of `sock`. Raises:
        SandboxUnavailable, OSError.
        """
        ...


class _Subprocess:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def enforcement(self) -> Mapping[str, object]:
        return {"tier": "none", "layers": {}}

    async def wait(self) -> int:
        return await self._process.wait()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)


class UncagedLauncher:
    """Workers as plain child processes: a second process, but no cage. For tests and trusted scripts;
    results say tier "none".
    """

    async def launch(self, entry: WorkerEntry, sock: socket.socket) -> WorkerProcess:
        """Start `python -I -m …` with an empty environment and nothing but the socket and stderr."""
        argv = [part.replace("{fd}", str(sock.fileno())) for part in entry.module_argv]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-m", *argv,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
            pass_fds=(sock.fileno(),), env={"LC_ALL": "C.UTF-8"}, start_new_session=True,
        )  # fmt: skip
        return _Subprocess(process)
