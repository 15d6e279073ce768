"""The backend `process`: each script in a fresh process of this Python, started by the same launcher as
the workers.

Its walls are the launcher's cage and nothing else; without a cage it refuses to run, unless the launcher
was given for tests and the backend built with `dangerously_uncaged=True`. Slower to start than WASM, and
the whole standard library at native speed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from fumehood.policies.errors import SandboxUnavailable
from fumehood.sandbox._launch import UncagedLauncher, WorkerEntry, WorkerLauncher
from fumehood.sandbox._model import MIB, Capabilities, Ending, Progress, Script
from fumehood.sandbox._protocol import Bridge
from fumehood.sandbox._worker import Worker, WorkerLost

DEFAULT_MEMORY = 256 * MIB
ENTRY = WorkerEntry(
    module="fumehood.sandbox.child._process",
    function="serve_script",
    module_argv=("fumehood.sandbox.child", "script", "{fd}"),
    preload=(),
)


class ProcessBackend:
    """See the module."""

    def __init__(self, launcher: WorkerLauncher, *, dangerously_uncaged: bool = False) -> None:
        self._launcher = launcher
        self._uncaged = dangerously_uncaged
        self._running: set[Worker] = set()
        self._seen: Mapping[str, object] = {}

    @property
    def name(self) -> str:
        """ "process"."""
        return "process"

    @property
    def languages(self) -> frozenset[str]:
        """Python."""
        return frozenset({"python"})

    def capabilities(self) -> Capabilities:
        """See `Capabilities`."""
        return Capabilities(
            isolation="a fresh caged process of this Python per script",
            in_process=False,
            caged=not isinstance(self._launcher, UncagedLauncher),
            default_memory=DEFAULT_MEMORY,
            concurrent_tools=False,
        )

    def unavailable(self) -> str | None:
        """Why not here, or None."""
        if isinstance(self._launcher, UncagedLauncher) and not self._uncaged:
            return "it has no wall but a cage, and this runner was given none"
        return None

    async def prepare(self, progress: Progress | None = None, *, fuel: bool = False) -> None:
        """Nothing to build."""

    async def run(self, script: Script, bridge: Bridge) -> Ending:
        """Run one script in a new process, and end that process whatever happens. Raises:
        SandboxUnavailable.
        """
        why = self.unavailable()
        if why is not None:
            raise SandboxUnavailable(f"backend 'process' can't be used: {why}")
        worker = await Worker.start(self._launcher, ENTRY)
        self._running.add(worker)
        self._seen = worker.process.enforcement
        try:
            lane = await worker.open_lane()
            async with asyncio.timeout(script.limits.wall_s):
                return await lane.run(script, bridge, script.limits.memory or DEFAULT_MEMORY)
        except TimeoutError:
            return Ending("limit", "timeout")
        except WorkerLost as lost:
            reason = "protocol" if worker.protocol_broken else "crashed"
            return Ending("sandbox_error", reason, detail=lost.why, signal=lost.signal)
        finally:
            self._running.discard(worker)
            await worker.close()

    async def forget(self, session: str) -> None:
        """It keeps no sessions."""

    async def close(self) -> None:
        """End what still runs."""
        await asyncio.gather(*(worker.close() for worker in list(self._running)))

    def enforcement(self) -> Mapping[str, object]:
        """The cage of the last process."""
        return {"backend": self.name, "where": "process", "cage": dict(self._seen)}
