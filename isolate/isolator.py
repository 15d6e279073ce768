"""The front of `isolate`: one zygote per tool, a fresh caged child per call, spares forked ahead of demand.

`Isolator.call` is the whole surface the host needs. A child serves one call and is gone; a tool whose file
changed gets a new zygote while calls on the old one end on the old code. Waiters for a child are served in
the order they came.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from typing import Any

from fumehood.isolate import _bpf, _spawn, _watch
from fumehood.isolate._cage import Cage, Key
from fumehood.isolate._cgroups import Groups
from fumehood.isolate._child import Child, Streams
from fumehood.isolate._endings import Calls, Endings
from fumehood.isolate._janitor import Janitor
from fumehood.isolate._line import OutputTooLong, ProtocolError
from fumehood.isolate._outcome import how_ended
from fumehood.isolate._plan import Filters, build_plan
from fumehood.isolate._running import Running, Signals
from fumehood.isolate._scratch import Scratch
from fumehood.isolate._session import DidNotLoad, Ended, Services, Session, doors_of, not_started
from fumehood.isolate._slots import Slots
from fumehood.isolate._source import NoToolFile, Stamp, refuse_unreachable, speaks_of_asyncio
from fumehood.isolate._spec import CallFrame, Machine, ToolSpec
from fumehood.isolate._zygote import PreloadFailed, ZygoteGone, ZygoteHandle
from fumehood.isolate.tiers import Tier
from fumehood.policies.errors import SandboxUnavailable

logger = logging.getLogger(__name__)
_GROUP_COUNTS = 16_384
MAX_SPARES = 4
"""Parked children per tool: four keep up with a burst on two cores, more only cost memory."""
MAX_KEPT = 8
"""Processes of a `reuse` tool that wait for a later call of the same principal and environment."""
REFILL_PAUSE_S = 0.004
"""Between a call's end and the fork of the next spare, which would else share the cores with the caller's
next step, the log's row of the end. Whoever needs a child meanwhile forks his own."""
_ENDED_S = 1.0  # between the end of a child's socket and the news of its end
IDLE_S = 900.0  # a tool nobody calls keeps no zygote for ever


class Isolator:
    """Runs tools in cages. An async context manager; closing it kills what still runs.

    tier: "namespaces" or "landlock", as `tiers.find` found this machine to be able to. spares: children
    parked per tool after its first call, at least; more while more calls run at once, MAX_SPARES at most (0:
    none, every call forks on demand). Raises SandboxUnavailable with too few descriptors.
    """

    def __init__(self, tier: Tier, *, machine: Machine | None = None, spares: int = 1) -> None:
        _spawn.require_descriptors()
        self.tier = tier
        self._machine = machine or Machine.read()
        self._spares = min(spares, MAX_SPARES)
        self._groups = Groups(count_processes=tier != "namespaces")
        self._slots = Slots(self._machine.root)
        self._scratch = Scratch() if tier != "namespaces" else None
        folders = [str(self._scratch.root)] if self._scratch is not None else []
        self._janitor = Janitor(self._machine.executable, self._groups.folders, folders)
        self._cages: dict[str, Cage] = {}
        self._starting: dict[str, asyncio.Lock] = {}
        self._endings = Endings()
        self._watches: dict[Child, _watch.Watch] = {}  # of those that wait for a call
        self._closed = False
        self._calls = Calls()

    async def __aenter__(self) -> Isolator:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Isolator {self.tier}, tools: {len(self._cages)}, children: {len(self._endings.living)}>"

    @property
    def living(self) -> int:
        """How many children there are: parked, at work, or being taken apart."""
        return len(self._endings.living)

    def parked(self, name: str) -> tuple[int, ...]:
        """The process numbers of the spares that wait for a call of this tool, oldest first."""
        cage = self._cages.get(name)
        return tuple(child.pid for child in cage.spares) if cage is not None else ()

    async def call(
        self,
        spec: ToolSpec,
        frame: CallFrame,
        services: Services,
        *,
        streams: Streams | None = None,
        principal: str | None = None,
        signals: Signals | None = None,
    ) -> Ended:
        """Run one call of one tool in a fresh child; with `spec.reuse`, in a process that served this
        principal and environment before.

        signals: passes signals on to the process while it runs. Raises SandboxUnavailable when no cage can be
        built. Everything the tool can do wrong is in the result's verdict instead.
        """
        key: Key = (principal, tuple(sorted(frame.env.items())))
        keep = False
        started = time.perf_counter()
        with self._calls:
            try:
                cage, child = await self._ready(spec, key, streams)
            except DidNotLoad as error:
                if error.doors:
                    await services.doors(doors_of(spec, error.doors))
                return not_started(error, time.perf_counter() - started)
            try:
                if signals is not None:
                    signals.child = child
                ended = await (session := Session(child, spec, frame, services)).run()
                keep = session.kept and streams is None and ended.verdict.outcome == "ok" and child.quiet
                return ended
            finally:
                if signals is not None:
                    signals.child = None
                cage.running -= 1
                if not (keep and self._keep(cage, key, child)):
                    self._bury(child)
                self._after_call(cage)

    async def start(self, spec: ToolSpec, frame: CallFrame, streams: Streams) -> Running:
        """Start a command that lives until it ends or is killed: a worker, an MCP server.

        streams: the caller holds their other ends. Raises SandboxUnavailable when no cage can be built or the
        program cannot be started.
        """
        with self._calls:
            try:
                cage, child = await self._ready(spec, None, streams)
            except DidNotLoad as error:
                _close(error.doors)
                raise SandboxUnavailable(f"{spec.argv[0]} did not start: {error.text}") from None
            try:
                await child.begin(spec, frame)
            except BaseException:
                await asyncio.shield(self._finished(cage, child))
                raise
            return Running(child, lambda: self._finished(cage, child))

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise SandboxUnavailable("the isolator is closed")

    async def _finished(self, cage: Cage, child: Child) -> None:
        cage.running -= 1
        await self._discard(child)
        self._after_call(cage)

    def _parked(self, cage: Cage, key: Key) -> Child | None:
        """A child that waits for this call, if one does, is still alive (the kernel may have taken it for
        memory) and has said nothing meanwhile.
        """
        kept = cage.kept.pop(key, None)
        waiting = [kept] if kept is not None else []
        while waiting or cage.spares:
            child = waiting.pop() if waiting else cage.spares.popleft()
            self._look_away(child)
            if child.quiet:
                return child
            self._bury(child)
        return None

    def _keep(self, cage: Cage, key: Key, child: Child) -> bool:
        """Park a `reuse` tool's process for its key; the one that waited longest makes room."""
        if cage.retired or self._closed:
            return False
        for old in list(cage.kept)[: max(0, len(cage.kept) - MAX_KEPT + 1)]:
            self._bury(cage.kept.pop(old))
        if (present := cage.kept.pop(key, None)) is not None:
            self._bury(present)
        cage.kept[key] = child
        self._look_after(cage, child)
        return True

    async def _ready(self, spec: ToolSpec, key: Key | None, streams: Streams | None) -> tuple[Cage, Child]:
        """A child that is loaded, and its cage, which counts it as running from now on.

        Whoever kills a zygote costs the calls that ran; one that had not begun goes to the next zygote.
        """
        for last in (False, True):
            self._refuse_when_closed()
            try:
                cage = await self._cage(spec)
            except (NoToolFile, PreloadFailed) as error:
                raise DidNotLoad("start", str(error)) from None
            except OSError as error:
                raise _no_process(error) from error
            cage.running += 1
            cage.demand = max(cage.demand * 0.95, float(cage.running))
            cage.used = time.monotonic()
            try:
                self._refuse_when_closed()
                child = self._parked(cage, key) if key is not None and streams is None else None
                return cage, child or await self._on_demand(cage, streams)
            except BaseException as error:
                cage.running -= 1
                self._after_call(cage)
                if isinstance(error, OSError):
                    raise _no_process(error) from error
                if not isinstance(error, ZygoteGone):
                    raise
                if last:
                    raise DidNotLoad("start", f"the tool's zygote ended: {error}") from None
        raise AssertionError("the last round returns or raises")

    async def _on_demand(self, cage: Cage, streams: Streams | None) -> Child:
        cage.waiting += 1
        try:
            return await self._fresh(cage, streams)
        finally:
            cage.waiting -= 1

    # -- cages -----------------------------------------------------------------------------------------------

    async def _cage(self, spec: ToolSpec) -> Cage:
        lock = self._starting.setdefault(spec.name, asyncio.Lock())
        cage = self._cages.get(spec.name)
        if cage is not None and not lock.locked() and cage.stamp.untouched() and cage.serves(spec):
            return cage
        async with lock:  # one start at a time a tool; asyncio.Lock is fair
            stamp, now = Stamp.of(spec), time.monotonic()
            cage = self._cages.get(spec.name)
            if cage is not None and cage.stamp.same(stamp) and cage.serves(spec):
                cage.stamp = stamp
                return cage
            self._retire(spec.name)
            for name in [
                name
                for name, other in self._cages.items()
                if other.running == 0 and now - other.used > IDLE_S
            ]:
                self._retire(name)
            if self._machine.root and self.tier != "namespaces":
                refuse_unreachable(spec)
            await self._janitor.start()
            zygote = ZygoteHandle(self._plan(spec), self._machine.executable)
            try:
                await zygote.start()
            except BaseException:
                self._slots.give_back(zygote.plan["slot"])
                raise
            cage = self._cages[spec.name] = Cage(spec, stamp, zygote, now, now)
            return cage

    def _retire(self, name: str) -> None:
        """No new call goes to this generation; it ends with its last one."""
        cage = self._cages.pop(name, None)
        if cage is not None:
            cage.retired = True
            self._after_call(cage)

    def _plan(self, spec: ToolSpec) -> dict[str, Any]:
        namespaces = self.tier == "namespaces"
        return build_plan(
            spec,
            self._machine,
            slot=self._slots.take(),
            host_pid=os.getpid(),
            seccomp=Filters(
                *_bpf.both(
                    "net" if namespaces else "no-net",
                    no_detach=not namespaces,
                    uncounted=self._groups.available != "",
                    same_user=not namespaces and not self._machine.root,
                    watching=spec.exec_writes,
                )
            ),
            tier=self.tier,
            with_asyncio=speaks_of_asyncio(spec),
            busy=0 if namespaces else self._tasks_beside(),
        )

    def _tasks_beside(self) -> int:
        """What RLIMIT_NPROC leaves room for where the kernel counts a user as a whole: others, or all."""
        if self._groups.available == "":
            return _GROUP_COUNTS
        return 0 if self._machine.root else _watch.tasks_of(os.getuid())

    def _after_call(self, cage: Cage) -> None:
        """Refill the spares, or let a retired cage go once its last call has ended."""
        if cage.retired or self._closed:
            if cage.running == 0:
                self._endings.later(self._let_go(cage))
        elif self._spares and not cage.spec.reuse and cage.due is None:
            loop = asyncio.get_running_loop()
            cage.due = loop.call_later(REFILL_PAUSE_S, self._start_refill, cage)

    def _start_refill(self, cage: Cage) -> None:
        cage.due = None
        if not cage.retired and not self._closed and (cage.refill is None or cage.refill.done()):
            cage.refill = asyncio.create_task(self._refill(cage))

    async def _refill(self, cage: Cage) -> None:
        # Whoever waits for a child of his own comes first; the last of them starts the refill again.
        while (
            len(cage.spares) < self._wanted(cage)
            and not cage.waiting
            and not cage.retired
            and cage.zygote.alive
        ):
            try:
                child = await self._fresh(cage, None)
            except (DidNotLoad, SandboxUnavailable, ZygoteGone) as error:
                _close(getattr(error, "doors", []))
                if self._closed:
                    return
                logger.warning("no spare for tool %s: %s", cage.spec.name, error)
                return
            cage.spares.append(child)
            self._look_after(cage, child)

    def _look_after(self, cage: Cage, child: Child) -> None:
        """Memory and CPU time are bounded while a process waits for a call too.

        What its module started when it was imported, or an earlier call left behind, may go on.
        """

        def over(_: str) -> None:
            if child in cage.spares:
                cage.spares.remove(child)
            for key in [key for key, kept in cage.kept.items() if kept is child]:
                del cage.kept[key]
            self._bury(child)

        figures = child.figures()
        used = figures.cpu_s if figures is not None else 0.0
        self._watches[child] = _watch.Watch(child, cage.spec.limits, over, used, _watch.PARKED_EVERY_S)

    def _look_away(self, child: Child) -> None:
        watch = self._watches.pop(child, None)
        if watch is not None:
            watch.stop()

    def _wanted(self, cage: Cage) -> int:
        return min(MAX_SPARES, max(self._spares, round(cage.demand)))

    async def _let_go(self, cage: Cage) -> None:
        if cage.due is not None:
            cage.due.cancel()
        if cage.refill is not None:
            cage.refill.cancel()
            await asyncio.gather(cage.refill, return_exceptions=True)
        cage.spares.extend(cage.kept.values())
        cage.kept.clear()
        while cage.spares:
            await self._discard(cage.spares.popleft())
        await cage.zygote.close()
        self._slots.give_back(cage.zygote.plan["slot"])

    # -- children --------------------------------------------------------------------------------------------

    async def _fresh(self, cage: Cage, streams: Streams | None) -> Child:
        """A child that has entered its cage and imported the tool."""
        spec = cage.spec
        child = Child(cage.zygote, self._scratch)
        self._endings.living.add(child)
        try:
            try:
                await child.fork(streams, self._groups, spec.limits, stdin_pipe=spec.kind == "command")
                await child.enter_cage()
                await child.load(spec.limits.start_s, spec.limits.output)
                self._refuse_when_closed()
            except TimeoutError:
                raise DidNotLoad(
                    "start", f"the tool's import did not end within {spec.limits.start_s:g} s"
                ) from None
            except (EOFError, OutputTooLong, ProtocolError) as error:
                told = str(error) or child.complaint() or await self._how_it_ended(child)
                raise DidNotLoad(
                    "start", f"the tool's process ended while it was being started: {told}"
                ) from None
        except BaseException as error:
            if isinstance(error, DidNotLoad):
                error.doors, child.doors = child.doors, []
            await asyncio.shield(self._discard(child))
            raise
        return child

    async def _how_it_ended(self, child: Child) -> str:
        """The end of a child that went away while it was started. Raises ZygoteGone when its zygote did."""
        try:
            async with asyncio.timeout(_ENDED_S):
                exit_ = await child.ended()
        except TimeoutError:
            return "it closed its call socket"
        if exit_ is None:
            raise ZygoteGone("killed from outside, or out of memory")
        return how_ended(exit_)

    def _bury(self, child: Child) -> None:
        self._look_away(child)
        self._endings.bury(child)

    async def _discard(self, child: Child) -> None:
        self._look_away(child)
        await self._endings.discard(child)

    async def close(self) -> None:
        """Kill every child and every zygote and see them gone.

        Calls that run end with a verdict, those that have not begun are refused.
        """
        self._closed = True
        for child in self._endings.living:
            child.kill()
        await self._calls.over()
        cages = list(self._cages.values())
        self._cages.clear()
        for cage in cages:
            cage.retired = True
        await self._endings.settle()
        await asyncio.gather(*(self._let_go(cage) for cage in cages))
        await self._endings.close()
        self._slots.close()
        self._groups.close()
        if self._scratch is not None:
            self._scratch.close()
        await self._janitor.close()


def _no_process(error: OSError) -> SandboxUnavailable:
    """What is said when nothing is left for the host itself."""
    return SandboxUnavailable(f"a process cannot be started: {error}", hint=_spawn.remedy(error))


def _close(sockets: list[socket.socket]) -> None:
    for sock in sockets:
        sock.close()
