"""The worker processes of one host, and which script goes where.

Guarantees: a script that asked nothing of the outside yet is run again when a neighbour took its worker
down, alone in a fresh process, so that the one that does it again is known; others end with a clear
result. Sessions stay with their worker. At most `size` processes with `lanes` scripts each; more scripts
wait in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fumehood.policies.errors import SandboxUnavailable
from fumehood.sandbox._launch import UncagedLauncher, WorkerLauncher
from fumehood.sandbox._model import Ending, Progress, Script
from fumehood.sandbox._protocol import Bridge
from fumehood.sandbox._worker import Lane, Worker, WorkerLost, sealed_memfd
from fumehood.sandbox.child._build import entry_key, load_entry
from fumehood.sandbox.child._cache import Cache, CacheError, default_folder

LANES = 16  # threads of one worker; each costs a stack of address space and one socket
MAX_SESSIONS = 64  # kept instances; the one that rested longest is ended for a new one
RECYCLE_AFTER = (
    20_000  # scripts; a hedge against slow leaks in an engine that creates and drops instances all day
)
# a worker may die under a script of others while it is prepared for ours; three in a row is a fault
START_TRIES = 3
BUILD_S = 600.0  # compiling CPython on a small busy machine takes a minute at most

_SEALED: dict[
    str, tuple[int, Mapping[str, Any]]
] = {}  # engines this process has verified; sealed, so they stay what they were


class WorkerPool:
    """Workers for both WASM engines. Async: create it inside a running loop, and close it."""

    def __init__(
        self,
        launcher: WorkerLauncher,
        *,
        size: int | None = None,
        lanes: int = LANES,
        cache: Path | None = None,
    ) -> None:
        self._launcher = launcher
        self.caged = not isinstance(launcher, UncagedLauncher)
        self._size = size or max(1, min(4, os.cpu_count() or 1))
        self._lanes = lanes
        self._cache_folder = cache or default_folder()
        self._workers: list[Worker] = []
        self._starting = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._sessions: dict[str, tuple[Worker, str]] = {}  # by name: where it is, and its key there
        self._keys = 0
        self._engines: dict[tuple[str, bool], asyncio.Task[tuple[int, Mapping[str, Any]]]] = {}
        self._closed = False
        self._running = 0
        self._over = asyncio.Event()
        self._over.set()
        self._apart: set[Worker] = set()
        self._closing: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        counts = f"{len(self._waiting)} waiting, {len(self._sessions)} sessions"
        return f"<WorkerPool {len(self._workers)} of {self._size} workers, {counts}>"

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the workers that run."""
        return tuple(w.process.pid for w in self._workers if w.lost is None)

    def enforcement(self) -> Mapping[str, object]:
        """What the cage of the workers reports."""
        found = [w.process.enforcement for w in self._workers if w.lost is None]
        return found[0] if found else {}

    async def engine(
        self, name: str, fuel: bool, progress: Progress | None = None
    ) -> tuple[int, Mapping[str, Any]]:
        """A sealed descriptor of a compiled engine and its meta data; built first when needed. Raises:
        SandboxUnavailable.
        """
        key = (name, fuel)
        task = self._engines.get(key)
        if task is not None and task.done() and not task.cancelled() and task.exception() is None:
            return task.result()
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            self._refuse_when_closed()
            task = self._engines[key] = asyncio.ensure_future(self._make_engine(name, fuel, progress))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if task.cancelled() and (me is None or not me.cancelling()):
                self._refuse_when_closed()  # `close` ended the build, and nobody this script
            raise

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise SandboxUnavailable("the sandbox is closed")

    async def _make_engine(
        self, name: str, fuel: bool, progress: Progress | None
    ) -> tuple[int, Mapping[str, Any]]:
        try:
            key = await asyncio.to_thread(entry_key, name, fuel=fuel)
            if key in _SEALED:
                kept, meta = _SEALED[key]
                return os.dup(kept), meta
            cache = Cache(self._cache_folder)
            found = await asyncio.to_thread(load_entry, cache, name, fuel=fuel)
            if found is None:
                await build_engine(name, fuel, self._cache_folder, progress)
                found = await asyncio.to_thread(load_entry, cache, name, fuel=fuel)
        except (CacheError, OSError, ImportError) as error:
            raise SandboxUnavailable(
                f"the compiled {name} engine can't be had: {error}", hint=install_hint(name)
            ) from error
        if found is None:
            raise SandboxUnavailable(f"the {name} engine was built but isn't in {self._cache_folder}")
        compiled, meta = found
        fd = await asyncio.to_thread(sealed_memfd, f"fumehood-{name}", compiled)
        _SEALED[key] = (fd, meta)
        return os.dup(fd), meta

    async def run(self, script: Script, bridge: Bridge, memory: int) -> Ending:
        """Run a script on a worker; run it once more, alone, when a neighbour took the worker down.
        Raises: SandboxUnavailable.
        """
        self._refuse_when_closed()
        self._running += 1
        self._over.clear()
        try:
            return await self._run(script, bridge, memory)
        finally:
            self._running -= 1
            if not self._running:
                self._over.set()

    async def _run(self, script: Script, bridge: Bridge, memory: int) -> Ending:
        fuel = script.limits.fuel is not None
        fd, meta = await self.engine(script.lang, fuel)
        lane = await self._lane(script, fd, meta)
        name, script = script.session, self._with_key(script)
        worker = lane.worker
        try:
            ending = await lane.run(script, bridge, memory)
        except WorkerLost as lost:
            if worker.culprit is lane:
                return Ending("limit", "timeout", detail=lost.why, session_lost=script.session is not None)
            alone = sum(1 for other in worker.lanes if other.was_busy) <= 1
            if alone or bridge.asked or script.session is not None or self._closed:
                return _lost(lost, worker, script)
            return await self._quarantine(script, bridge, memory, fd, meta)
        except asyncio.CancelledError:
            if name is not None and script.session is not None:
                self._end_session(name, worker, script.session)
            raise
        finally:
            self._release(lane)
        if name is not None and script.session is not None:
            if ending.session_lost:
                self._end_session(name, worker, script.session)
            else:
                self._sessions.pop(name, None)  # the one used last stands last
                self._sessions[name] = (worker, script.session)
                while len(self._sessions) > MAX_SESSIONS:
                    self.forget(next(iter(self._sessions)))
        return ending

    def _end_session(self, name: str, worker: Worker, key: str) -> None:
        """A script lost its session: nothing of it stays, in the other language neither."""
        self._sessions.pop(name, None)
        worker.send({"op": "forget", "session": key})

    def _with_key(self, script: Script) -> Script:
        """The script with its session's key in the worker.

        A name that was forgotten gets a new key: the message that ends the old one may arrive after the
        next script.
        """
        if script.session is None:
            return script
        found = self._sessions.get(script.session)
        if found is not None:
            return replace(script, session=found[1])
        self._keys += 1
        return replace(script, session=f"{self._keys}\0{script.session}")

    async def _quarantine(
        self, script: Script, bridge: Bridge, memory: int, fd: int, meta: Mapping[str, Any]
    ) -> Ending:
        worker = await Worker.start(self._launcher)
        self._apart.add(worker)
        try:
            self._refuse_when_closed()
            await worker.load(script.lang, script.limits.fuel is not None, fd, meta)
            return await (await worker.open_lane()).run(script, bridge, memory)
        except WorkerLost as lost:
            if worker.culprit is not None:
                return Ending("limit", "timeout", detail=lost.why)
            return _lost(lost, worker, script)
        finally:
            self._apart.discard(worker)
            await worker.close()

    async def _lane(self, script: Script, fd: int, meta: Mapping[str, Any]) -> Lane:
        lost = 0
        while True:
            self._refuse_when_closed()
            if lost >= START_TRIES:
                raise SandboxUnavailable(
                    f"{lost} script workers in a row were lost before they could run a script",
                    hint="run `fumehood doctor`; what uncaged workers say is on stderr",
                )
            self._drop_lost()
            worker = self._pick(script.session)
            if worker is None:
                if (
                    script.session is None
                    and len(self._workers) + self._starting < self._size
                    or script.session is not None
                    and not self._workers
                    and not self._starting
                ):
                    worker = await self._start()
                else:
                    await self._wait()
                    continue
            try:
                # From here to `lane.run` nothing else may take the lane, so it leaves `idle` before the
                # first await.
                lane = worker.idle.pop() if worker.idle else await self._new_lane(worker)
                lane.reserved = True
            except WorkerLost:
                lost += 1
                continue
            try:
                await worker.load(script.lang, script.limits.fuel is not None, fd, meta)
            except WorkerLost:
                lost += 1
                continue
            except BaseException:
                self._release(lane)
                raise
            return lane

    async def _new_lane(self, worker: Worker) -> Lane:
        """One more lane of a worker. Whoever is cancelled meanwhile leaves it to the next: half a lane would
        cost the worker, and with it everybody else's scripts.
        """
        opening = asyncio.ensure_future(worker.open_lane())
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(self._unclaimed)
            raise

    def _unclaimed(self, opening: asyncio.Future[Lane]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._release(opening.result())

    def _pick(self, session: str | None) -> Worker | None:
        if session is not None and session in self._sessions:
            kept, _ = self._sessions[session]
            if kept.lost is None:
                return kept if kept.free(self._lanes) else None
            del self._sessions[session]
        free = [w for w in self._workers if w.free(self._lanes)]
        if not free:
            return None
        best = min(free, key=lambda w: w.load_now)
        if best.load_now and len(self._workers) + self._starting < self._size and session is None:
            return None  # another process is better than a second script in this one
        return best

    async def _start(self) -> Worker:
        self._starting += 1
        try:
            worker = await Worker.start(self._launcher)
        finally:
            self._starting -= 1
            self._wake()
        if self._closed:
            await worker.close()
            self._refuse_when_closed()
        self._workers.append(worker)
        return worker

    def _release(self, lane: Lane) -> None:
        lane.reserved = False
        worker = lane.worker
        worker.served += 1
        if worker.lost is None and not lane.busy:
            worker.idle.append(lane)
            if (
                worker.served >= RECYCLE_AFTER
                and not worker.load_now
                and worker not in [w for w, _ in self._sessions.values()]
            ):
                self._retire(worker)
        elif worker.lost is None:
            worker.condemn("a lane did not come back")
        self._wake()

    def _retire(self, worker: Worker) -> None:
        self._workers.remove(worker)
        task = asyncio.ensure_future(worker.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _drop_lost(self) -> None:
        for worker in [w for w in self._workers if w.lost is not None]:
            self._retire(worker)

    async def _wait(self) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        finally:
            with contextlib.suppress(ValueError):
                self._waiting.remove(future)

    def _wake(self) -> None:
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                return

    def forget(self, session: str) -> None:
        """End a session."""
        worker, key = self._sessions.pop(session, (None, ""))
        if worker is not None and worker.lost is None:
            worker.send({"op": "forget", "session": key})

    async def close(self) -> None:
        """Kill the workers and free the engines; scripts that still run end with `sandbox_error`."""
        self._closed = True
        while self._waiting:
            self._wake()
        for task in self._engines.values():
            task.cancel()  # a build under way is killed and reaped; one that is done doesn't mind
        workers, self._workers = self._workers, []
        await asyncio.gather(*(w.close() for w in (*workers, *self._apart)), *self._closing)
        # Scripts that were about to start are refused now; until then they hold the engines' numbers.
        await self._over.wait()
        engines = list(self._engines.values())
        self._engines.clear()
        for made in await asyncio.gather(*engines, return_exceptions=True):
            if isinstance(made, tuple):
                os.close(made[0])


def _lost(lost: WorkerLost, worker: Worker, script: Script) -> Ending:
    reason = "protocol" if worker.protocol_broken else "crashed"
    return Ending(
        "sandbox_error", reason, detail=lost.why, signal=lost.signal, session_lost=script.session is not None
    )


def install_hint(name: str) -> str:
    """Which extra brings an engine."""
    return "pip install 'fumehood[python-sandbox]'" if name == "python" else "pip install 'fumehood[sandbox]'"


async def build_engine(name: str, fuel: bool, cache: Path, progress: Progress | None) -> None:
    """Run the builder process. Raises: SandboxUnavailable with its last words."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-m", "fumehood.sandbox.child",
        "build", name, "fuel" if fuel else "nofuel", str(cache),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None and process.stderr is not None
    try:
        async with asyncio.timeout(BUILD_S):
            errors = asyncio.ensure_future(process.stderr.read())
            async for line in process.stdout:
                if progress is not None:
                    progress(line.decode("utf-8", "replace").rstrip())
            status, said = await process.wait(), await errors
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    if status != 0:
        text = said.decode("utf-8", "replace").strip().splitlines()
        raise SandboxUnavailable(
            f"the {name} engine could not be built: {text[-1] if text else status}",
            hint=install_hint(name),
        )
