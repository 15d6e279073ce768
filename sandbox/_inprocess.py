"""Threads of this process with stacks large enough for a guest, and the bridge between them and the event
loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import resource
import threading
from typing import Any

from fumehood.sandbox._model import Ending, Script, ScriptError
from fumehood.sandbox._protocol import Bridge, LimitHit
from fumehood.sandbox.child._job import End, Job, JobLimits, Stop
from fumehood.sandbox.child._settings import start_thread
from fumehood.sandbox.child._worker import ThreadTransport

MAIN_STACK = 8 << 20  # of the main thread, as shells set it; 2 MiB of it are for the guest


class EngineThreads:
    """A few threads that run scripts. Started on demand; idle ones wait for the next script."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._idle = 0
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._tired: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._rests = False
        self._lock = threading.Lock()

    async def run(self, engine: Any, script: Script, bridge: Bridge, memory: int) -> Ending:
        """Run a script on one of the threads; when cancelled, wait until it has stopped."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[End] = loop.create_future()
        tasks: set[asyncio.Task[None]] = set()

        async def ask(id_: int, kind: int, name: str, args: bytes) -> None:
            try:
                ok, text = await bridge.call(name, args.decode("utf-8", "replace"), fetch=kind == 5)
            except LimitHit:
                return
            transport.deliver((id_, ok, text.encode()))

        def start_ask(id_: int, kind: int, name: str, args: bytes) -> None:
            if not ended.done():
                task = asyncio.ensure_future(ask(id_, kind, name, args))
                tasks.add(task)
                task.add_done_callback(tasks.discard)

        def output(stream: int, data: bytes) -> None:
            with contextlib.suppress(LimitHit):  # the runner sees the bridge's stop
                bridge.output(stream, data)

        transport = ThreadTransport(
            lambda *question: loop.call_soon_threadsafe(start_ask, *question),
            lambda stream, data: loop.call_soon_threadsafe(output, stream, data),
            lambda name, reason: loop.call_soon_threadsafe(bridge.tried, name, reason),
        )

        def finish(end: End | BaseException) -> None:
            if ended.done():
                return
            if isinstance(end, BaseException):
                ended.set_exception(end)
            else:
                ended.set_result(end)

        self._submit(
            (engine, job_of(script, memory), transport, lambda end: loop.call_soon_threadsafe(finish, end))
        )
        try:
            return ending_of(await asyncio.shield(ended))
        except asyncio.CancelledError:
            transport.cancelled = True
            transport.deliver(None)
            await asyncio.wait([ended])
            raise
        finally:
            for task in tasks:
                task.cancel()

    def _submit(self, job: Any) -> None:
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
            elif self._count < self._most:
                self._count += 1
                start_thread(self._work, "fumehood-script")
        self._jobs.put(job)

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            if job is None:
                return
            engine, work, transport, finish = job
            try:
                result = engine.run(work, transport)
            # the top of a thread; the waiting coroutine raises it
            except BaseException as error:  # noqa: BLE001
                result = error
            # First, so that the next script comes to this thread: two that make and free memory at once are
            # slower than one.
            with self._lock:
                self._idle += 1
            with contextlib.suppress(RuntimeError):  # the loop was closed under us
                finish(result)
            engine.rest()

    def rest(self, engine: Any) -> None:
        """Have a thread tidy up after a script that ran on the caller's."""
        if not self._rests:
            self._rests = True
            start_thread(self._keep_resting, "fumehood-rest")
        self._tired.put(engine)

    def _keep_resting(self) -> None:
        while (engine := self._tired.get()) is not None:
            engine.rest()

    def close(self) -> None:
        """Tell the threads to end after what they do."""
        self._tired.put(None)
        for _ in range(self._count):
            self._jobs.put(None)


class _AtOnce:
    """The transport of a script that is tried on the event loop's own thread: what it prints is kept, and the
    first question or the first look at it ends the try.
    """

    cancelled = True

    def __init__(self) -> None:
        self.printed: list[tuple[int, bytes]] = []

    def ask(self, id_: int, kind: int, name: str, args: bytes) -> None:
        raise Stop("cancelled")

    def tried(self, name: str, reason: str) -> None:
        raise Stop("cancelled")

    def answer(self, timeout: float) -> None:
        return None

    def output(self, stream: int, data: bytes) -> None:
        self.printed.append((stream, data))


def try_at_once(engine: Any, script: Script, bridge: Bridge, memory: int) -> Ending | None:
    """Run a script on this very thread, which saves the way to another and back; None when it has not ended
    within two ticks (10 ms), or asks something, and has to be run again on a thread.

    Nothing of the first try is seen: it has no tools, and its output is passed on only when it ends.
    """
    if (
        script.tools
        or script.fetch
        or script.session
        or script.snapshot
        or script.restore
        or not roomy_stack()
    ):
        return None
    transport = _AtOnce()
    end: End = engine.run(job_of(script, memory), transport)
    if end.reason == "cancelled":
        return None
    for stream, data in transport.printed:
        with contextlib.suppress(LimitHit):  # the runner sees the bridge's stop
            bridge.output(stream, data)
    return ending_of(end)


def roomy_stack() -> bool:
    """Whether this thread's stack holds what a guest may use; a smaller one ends in SIGSEGV, not a trap."""
    if threading.current_thread() is not threading.main_thread():
        return False
    soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
    return soft == resource.RLIM_INFINITY or soft >= MAIN_STACK


def job_of(script: Script, memory: int) -> Job:
    """A script as the engines take it."""
    limits = script.limits
    return Job(
        script.lang,
        script.code,
        script.input_json,
        script.tools,
        script.fetch,
        script.clock,
        script.seed.hex(),
        JobLimits(
            limits.wall_s,
            limits.fuel,
            memory,
            limits.stack,
            limits.output,
            limits.tool_calls,
            limits.bridge_bytes,
            limits.pending,
        ),
        script.session,
        script.snapshot,
        script.restore,
    )


def ending_of(end: End) -> Ending:
    """An engine's ending as a backend gives it."""
    failure = end.failure
    error = (
        None
        if failure is None
        else ScriptError(failure.type, failure.message, failure.line, failure.column, failure.trace)
    )
    return Ending(
        outcome=end.outcome,
        reason=end.reason,
        value_json=None if end.value is None else end.value.decode("utf-8", "replace"),
        error=error,
        detail=end.detail,
        usage=end.usage,
        snapshot=end.snapshot,
        session_lost=end.session_lost,
    )
