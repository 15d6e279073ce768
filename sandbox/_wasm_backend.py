"""The two WASM backends, `quickjs` and `cpython`, in worker processes (the default) or in this one (named
`in_process`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING

from fumehood.policies.errors import SandboxUnavailable
from fumehood.sandbox._model import MIB, Capabilities, Ending, Progress, Script
from fumehood.sandbox._pool import WorkerPool, install_hint
from fumehood.sandbox._protocol import Bridge

if TYPE_CHECKING:
    from fumehood.sandbox.child._job import Engine

DEFAULT_MEMORY = {"js": 64 * MIB, "python": 256 * MIB}
_MODULES = {"js": ("wasmtime",), "python": ("wasmtime", "componentize_py")}


class WasmBackend:
    """One WASM engine in a pool's workers. The pool is shared and closed by its owner unless `owns_pool`."""

    def __init__(self, lang: str, pool: WorkerPool, *, owns_pool: bool = False) -> None:
        self._lang = lang
        self._pool = pool
        self._owns = owns_pool
        self._found = False  # its packages are there; looking them up costs as much as half a script

    @property
    def name(self) -> str:
        """ "quickjs" or "cpython"."""
        return "quickjs" if self._lang == "js" else "cpython"

    @property
    def languages(self) -> frozenset[str]:
        """The one it runs."""
        return frozenset({self._lang})

    def capabilities(self) -> Capabilities:
        """See `Capabilities`."""
        return Capabilities(
            isolation="a fresh WASM instance per script, in a worker process",
            in_process=False,
            caged=self._pool.caged,
            fuel=True,
            sessions=True,
            snapshots=self._lang == "js",
            default_memory=DEFAULT_MEMORY[self._lang],
        )

    def unavailable(self) -> str | None:
        """Which package is missing, or None."""
        why = None if self._found else missing(self._lang)
        self._found = why is None
        return why

    async def prepare(self, progress: Progress | None = None, *, fuel: bool = False) -> None:
        """Build the engine when it isn't in the cache. Raises: SandboxUnavailable."""
        await self._pool.engine(self._lang, fuel, progress)

    async def run(self, script: Script, bridge: Bridge) -> Ending:
        """Run one script in a worker."""
        return await self._pool.run(script, bridge, script.limits.memory or DEFAULT_MEMORY[self._lang])

    async def forget(self, session: str) -> None:
        """End a session."""
        self._pool.forget(session)

    async def close(self) -> None:
        """Close the pool when it is ours."""
        if self._owns:
            await self._pool.close()

    def enforcement(self) -> Mapping[str, object]:
        """The engine, and the cage its worker stands in."""
        return {"backend": self.name, "where": "worker", "cage": dict(self._pool.enforcement())}


def missing(lang: str) -> str | None:
    """Which package an engine needs and hasn't got, as a sentence; None when all are there."""
    absent = [name for name in _MODULES[lang] if util.find_spec(name) is None]
    return f"{', '.join(absent)} is not installed; {install_hint(lang)}" if absent else None


class InProcessBackend:
    """A WASM engine in a thread of this process. For trusted scripts: an engine bug here is a bug of the
    host.

    Faster by the way to a worker and back; everything else is the same code. Cancelling a run stops it
    within milliseconds.
    """

    def __init__(self, lang: str, *, cache: Path | None = None, threads: int = 8) -> None:
        from fumehood.sandbox._inprocess import EngineThreads

        self._lang = lang
        self._threads = EngineThreads(threads)
        self._pool_cache = cache
        self._engines: dict[bool, Engine] = {}
        self._found = False
        self._lock = asyncio.Lock()

    @property
    def name(self) -> str:
        """ "quickjs-in-process" or "cpython-in-process": where it runs is part of the name."""
        return ("quickjs" if self._lang == "js" else "cpython") + "-in-process"

    @property
    def languages(self) -> frozenset[str]:
        """The one it runs."""
        return frozenset({self._lang})

    def capabilities(self) -> Capabilities:
        """See `Capabilities`."""
        return Capabilities(
            isolation="a fresh WASM instance per script, in the host's own process",
            in_process=True,
            fuel=True,
            sessions=True,
            snapshots=self._lang == "js",
            default_memory=DEFAULT_MEMORY[self._lang],
        )

    def unavailable(self) -> str | None:
        """Which package is missing, or None."""
        why = None if self._found else missing(self._lang)
        self._found = why is None
        return why

    async def prepare(self, progress: Progress | None = None, *, fuel: bool = False) -> None:
        """Build and load the engine. Raises: SandboxUnavailable."""
        await self._engine(fuel, progress)

    async def _engine(self, fuel: bool, progress: Progress | None = None) -> Engine:
        found = self._engines.get(fuel)
        if found is None:
            async with self._lock:
                found = self._engines.get(fuel)
                if found is None:
                    found = self._engines[fuel] = await load_here(
                        self._lang, fuel, self._pool_cache, progress
                    )
        return found

    async def run(self, script: Script, bridge: Bridge) -> Ending:
        """Run one script: a short one at once, others in a thread."""
        from fumehood.sandbox._inprocess import try_at_once

        engine = await self._engine(script.limits.fuel is not None)
        memory = script.limits.memory or DEFAULT_MEMORY[self._lang]
        if self._lang == "js":
            ending = try_at_once(engine, script, bridge, memory)
            self._threads.rest(engine)
            if ending is not None:
                return ending
        return await self._threads.run(engine, script, bridge, memory)

    async def forget(self, session: str) -> None:
        """End a session."""
        for engine in self._engines.values():
            engine.forget(session)

    async def close(self) -> None:
        """Let the threads end."""
        self._threads.close()
        for engine in self._engines.values():
            engine.close()

    def enforcement(self) -> Mapping[str, object]:
        """The engine; no cage."""
        return {"backend": self.name, "where": "host process", "cage": {"tier": "none", "layers": {}}}


async def load_here(lang: str, fuel: bool, cache: Path | None, progress: Progress | None) -> Engine:
    """A compiled engine in this process. Raises: SandboxUnavailable."""
    import os

    from fumehood.sandbox._launch import UncagedLauncher
    from fumehood.sandbox.child._worker import Engines

    pool = WorkerPool(UncagedLauncher(), cache=cache)  # only for its engines; no worker is started
    try:
        fd, meta = await pool.engine(lang, fuel, progress)
        engines = Engines()
        try:
            await asyncio.to_thread(engines.load, lang, fuel, os.dup(fd), dict(meta))
        # wasmtime's own errors have no common base; the text says what it minds
        except Exception as error:
            raise SandboxUnavailable(f"the {lang} engine could not be loaded: {error}") from error
        return engines.find(lang, fuel)
    finally:
        await pool.close()
