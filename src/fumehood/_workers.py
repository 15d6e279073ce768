"""Script engines in cages: the launcher that `sandbox` asks for a worker, answered by `isolate`.

The worker is a fresh interpreter that sees Python, the installed packages and fumehood's own code, all
read-only; it has no network, no file to write but its private /tmp, no environment and one socket. So a
script that breaks its engine meets the same walls as any tool.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import fumehood
from fumehood.isolate import CallFrame, Isolator, Limits, Machine, Running, ToolSpec, layer_table

if TYPE_CHECKING:
    from fumehood.sandbox import WorkerEntry

# Our package by its own folder: where no view can be built, the one above it is not readable.
_BOOT = """
import importlib.util, json, sys
sys.path[:], home = json.loads(sys.argv[1]), sys.argv[5]
spec = importlib.util.spec_from_file_location(
    "fumehood", home + "/__init__.py", submodule_search_locations=[home]
)
sys.modules["fumehood"] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
getattr(importlib.import_module(sys.argv[2]), sys.argv[3])(int(sys.argv[4]))
"""
_FOREVER = float("inf")
WORKER_MEMORY = 2 << 30
"""Bytes of one worker: sixteen scripts at their default limit of 64 MiB, and the engine."""


def package_roots() -> list[Path]:
    """The real folders of fumehood's code; in a checkout each subpackage is a link to a folder elsewhere."""
    own = Path(fumehood.__file__).parent
    links = [entry for entry in own.iterdir() if entry.is_symlink() and entry.is_dir()]
    return [own, *(Path(os.path.realpath(link)) for link in links)]


class CagedWorker:
    """One worker process; implements `fumehood.sandbox.WorkerProcess`."""

    def __init__(self, running: Running, tier: str) -> None:
        self._running, self._tier = running, tier

    @property
    def pid(self) -> int:
        """Its process number as the host sees it."""
        return self._running.pid

    @property
    def enforcement(self) -> Mapping[str, object]:
        """Tier and layers, as in a call's result."""
        return {"tier": self._tier, "layers": layer_table(self._running.layers)}

    async def wait(self) -> int:
        """Its exit code; minus the signal's number when one ended it."""
        return await self._running.wait()

    def kill(self) -> None:
        """End it now."""
        self._running.kill()


class CagedLauncher:
    """Starts workers in cages; implements `fumehood.sandbox.WorkerLauncher`."""

    def __init__(self, isolator: Isolator, machine: Machine | None = None) -> None:
        self._isolator = isolator
        self._machine = machine or Machine.read()

    async def launch(self, entry: WorkerEntry, sock: socket.socket) -> CagedWorker:
        """A worker that has `sock` as its descriptor 0. Raises SandboxUnavailable."""
        roots = package_roots()
        spec = ToolSpec(
            name="script-worker",
            kind="command",
            argv=(
                self._machine.executable, "-I", "-S", "-X", "utf8", "-c", _BOOT,
                json.dumps(self._machine.sys_path), entry.module, entry.function, "0", str(roots[0]),
            ),
            read=(*roots, *(Path(folder) for folder in self._machine.site_dirs)),
            limits=Limits(timeout_s=_FOREVER, cpu_s=_FOREVER, memory=WORKER_MEMORY, processes=256),
        )  # fmt: skip
        with open(os.devnull, "r+b") as nothing:
            streams = (sock.fileno(), nothing.fileno(), nothing.fileno())
            running = await self._isolator.start(spec, CallFrame("script-worker", None, {}), streams)
        return CagedWorker(running, self._isolator.tier)
