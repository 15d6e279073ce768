"""The front of `isolate`: one zygote per tool, a fresh caged child per call, spares forked ahead of demand.

`Isolator.call` is the whole surface the host needs. A child serves one call and is gone; a tool whose file changed gets a new zygote while
calls on the old one end on the old code. Waiters for a child are served in the order they came.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import os
import random
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from fumehood.isolate import _bpf
from fumehood.isolate._cgroups import Groups
from fumehood.isolate._child import Child, OutputTooLong, ProtocolError, Streams
from fumehood.isolate._janitor import Janitor
from fumehood.isolate._outcome import Verdict
from fumehood.isolate._plan import Filters, build_plan
from fumehood.isolate._scratch import Scratch
from fumehood.isolate._session import CallFrame, Ended, Services, Session
from fumehood.isolate._spec import Machine, ToolSpec
from fumehood.isolate._zygote import ZygoteGone, ZygoteHandle
from fumehood.isolate.tiers import Tier
from fumehood.policies.errors import SandboxUnavailable

logger = logging.getLogger(__name__)

_SLOT_FIRST, _SLOT_COUNT = 200_000, 60_000
MAX_SPARES = 4
"""Parked children per tool: four keep up with a burst on two cores, more only cost memory."""


@dataclass(slots=True)
class _Cage:
    """One generation of one tool: its zygote and the children parked for it."""

    spec: ToolSpec
    stamp: tuple[Any, ...]
    zygote: ZygoteHandle
    spares: collections.deque[Child]
    refill: asyncio.Task[None] | None = None
    running: int = 0
    retired: bool = False


class Isolator:
    """Runs tools in cages. An async context manager; closing it kills what still runs.

    tier: "namespaces" or "landlock", as `tiers.find` found this machine to be able to. spares: children parked per tool after its first call
    (0: none, every call forks on demand).
    """

    def __init__(self, tier: Tier, *, machine: Machine | None = None, spares: int = 1) -> None:
        self.tier = tier
        self._machine = machine or Machine.read()
        self._spares = min(spares, MAX_SPARES)
        self._groups = Groups()
        self._scratch = Scratch() if tier != "namespaces" else None
        folders = [str(self._scratch.root)] if self._scratch is not None else []
        self._janitor = Janitor(self._machine.executable, self._groups.folders, folders)
        self._cages: dict[str, _Cage] = {}
        self._starting: dict[str, asyncio.Lock] = {}
        self._children: set[Child] = set()
        self._retiring: set[asyncio.Task[None]] = set()
        self._closed = False

    async def __aenter__(self) -> Isolator:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Isolator {self.tier}, tools: {len(self._cages)}, children: {len(self._children)}>"

    async def call(self, spec: ToolSpec, frame: CallFrame, services: Services, *, streams: Streams | None = None) -> Ended:
        """Run one call of one tool in a fresh child.

        Raises SandboxUnavailable when no cage can be built. Everything the tool can do wrong is in the result's verdict instead.
        """
        cage = await self._cage(spec)
        cage.running += 1
        child: Child | None = None
        started = time.perf_counter()
        try:
            try:
                child = cage.spares.popleft() if cage.spares and streams is None else await self._fresh(cage, streams)
            except _DidNotLoad as error:
                return _not_started(error, time.perf_counter() - started)
            return await Session(child, spec, frame, services).run()
        finally:
            cage.running -= 1
            if child is not None:
                self._later(self._discard(child))
            self._after_call(cage)

    # -- cages --------------------------------------------------------------------------------------------------------

    async def _cage(self, spec: ToolSpec) -> _Cage:
        lock = self._starting.setdefault(spec.name, asyncio.Lock())
        async with lock:  # one start at a time a tool; asyncio.Lock is fair
            stamp = _stamp(spec)
            cage = self._cages.get(spec.name)
            if cage is not None and cage.stamp == stamp and cage.spec == spec and cage.zygote.alive:
                return cage
            if cage is not None:
                del self._cages[spec.name]
                cage.retired = True
                self._after_call(cage)
            await self._janitor.start()
            zygote = ZygoteHandle(self._plan(spec), self._machine.executable)
            await zygote.start()
            cage = _Cage(spec, stamp, zygote, collections.deque())
            self._cages[spec.name] = cage
            return cage

    def _plan(self, spec: ToolSpec) -> dict[str, Any]:
        namespaces = self.tier == "namespaces"
        return build_plan(
            spec,
            self._machine,
            slot=_SLOT_FIRST + random.SystemRandom().randrange(_SLOT_COUNT) if self._machine.root else None,
            host_pid=os.getpid(),
            seccomp=_filters("net" if namespaces else "no-net", no_detach=not namespaces),
            tier=self.tier,
        )

    def _after_call(self, cage: _Cage) -> None:
        """Refill the spares, or let a retired cage go once its last call has ended."""
        if cage.retired or self._closed:
            if cage.running == 0:
                self._later(self._let_go(cage))
        elif self._spares and (cage.refill is None or cage.refill.done()):
            cage.refill = asyncio.create_task(self._refill(cage))

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` beside everything else; `close` waits for it."""
        task = asyncio.create_task(work)
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def _refill(self, cage: _Cage) -> None:
        while len(cage.spares) < self._spares and not cage.retired and cage.zygote.alive:
            try:
                child = await self._fresh(cage, None)
            except (_DidNotLoad, SandboxUnavailable, ZygoteGone) as error:
                logger.warning("no spare for tool %s: %s", cage.spec.name, error)
                return
            cage.spares.append(child)

    async def _let_go(self, cage: _Cage) -> None:
        if cage.refill is not None:
            cage.refill.cancel()
            await asyncio.gather(cage.refill, return_exceptions=True)
        while cage.spares:
            await self._discard(cage.spares.popleft())
        await cage.zygote.close()

    # -- children -----------------------------------------------------------------------------------------------------

    async def _fresh(self, cage: _Cage, streams: Streams | None) -> Child:
        """A child that has entered its cage and imported the tool."""
        spec = cage.spec
        child = Child(cage.zygote, self._scratch)
        self._children.add(child)
        try:
            try:
                await child.fork(streams, stdin_pipe=spec.kind == "command")
                await child.enter_cage(self._groups, spec.limits.memory, spec.limits.processes)
                await child.load(spec.limits.start_s)
            except TimeoutError:
                raise _DidNotLoad("start", f"the tool's import did not end within {spec.limits.start_s:g} s") from None
            except (EOFError, OutputTooLong, ProtocolError, ZygoteGone) as error:
                told = str(error) or child.complaint() or "no reason given"
                raise _DidNotLoad("start", f"the tool's process ended while it was being started: {told}") from None
        except BaseException:
            await asyncio.shield(self._discard(child))
            raise
        return child

    async def _discard(self, child: Child) -> None:
        await child.close()
        self._children.discard(child)

    async def close(self) -> None:
        """Kill every child and every zygote and see them gone."""
        self._closed = True
        cages = list(self._cages.values())
        self._cages.clear()
        for cage in cages:
            cage.retired = True
        while self._retiring:
            await asyncio.gather(*self._retiring, return_exceptions=True)
        await asyncio.gather(*(self._let_go(cage) for cage in cages))
        for child in tuple(self._children):
            with contextlib.suppress(OSError):
                await self._discard(child)
        self._groups.close()
        if self._scratch is not None:
            self._scratch.close()
        await self._janitor.close()


def _filters(variant: _bpf.Variant, *, no_detach: bool) -> Filters:
    plain, notify = (_bpf.program(variant, no_detach=no_detach, notify=notify) for notify in (False, True))
    return Filters(plain, notify)


class _DidNotLoad(Exception):
    """The child's cage stands, and the tool did not come up in it: (reason, text)."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason, self.text = reason, text


def _not_started(error: _DidNotLoad, wall: float) -> Ended:
    verdict = Verdict("sandbox_error", error.reason, error.text)
    return Ended(verdict, b"", b"", False, False, (), wall, None, None, None, {}, {})


def _stamp(spec: ToolSpec) -> tuple[Any, ...]:
    """What changes when the tool's own file changes."""
    if spec.path is None:
        return ()
    try:
        state = spec.path.stat()
    except OSError as error:
        raise SandboxUnavailable(f"tool {spec.name!r}: {spec.path}: {error.strerror}", hint="the file of `module` must exist") from error
    return (state.st_mtime_ns, state.st_size, state.st_ino)


def layer_table(layers: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Layer -> level, for a result's `enforcement`."""
    return {name: level for name, (level, _) in sorted(layers.items())}
