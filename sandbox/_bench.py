"""What `fumehood bench sandbox` needs of the inside: an engine without a host around it, a worker's memory.

The contestants and their peers are `fumehood._bench`'s, since workers are measured in cages and those are the
host's to build.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fumehood.sandbox._inprocess import job_of
from fumehood.sandbox._model import Limits, Script
from fumehood.sandbox._runner import ScriptRunner
from fumehood.sandbox._wasm_backend import DEFAULT_MEMORY, load_here
from fumehood.sandbox.child._job import Engine
from fumehood.sandbox.child._worker import ThreadTransport


async def engine_alone(lang: str, code: str) -> tuple[Engine, Callable[[], object]]:
    """An engine of this process, and one script on it from a fresh instance to the JSON of its value: what a
    plain library measures. `rest` of the engine tidies up.
    """
    engine = await load_here(lang, False, None, None)
    job = job_of(Script(lang, code, Limits()), DEFAULT_MEMORY[lang])
    transport = ThreadTransport(None, lambda _stream, _data: None)
    return engine, lambda: engine.run(job, transport)


def resident_mib(runner: ScriptRunner) -> float:
    """Resident memory of all workers of a runner, as the kernel counts it."""
    pool = runner._pool
    return sum(_resident_mib(pid) for pid in pool.pids) if pool is not None else 0.0


def _resident_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0
