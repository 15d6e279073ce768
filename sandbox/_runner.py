"""Running scripts for a host: pick a backend, watch it from outside, and turn its ending into one result.

Guarantees: a result always comes, within the wall limit plus a bounded grace; it has a reason from
`fumehood.policies.reasons` unless the script was fine or threw; tool calls are listed whatever happened.
The runner knows tools only as names, schemas and one callable.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from weakref import WeakValueDictionary

from fumehood.policies.errors import ConfigError, SandboxUnavailable
from fumehood.sandbox._bridge import CallTool, Fetch, HostBridge
from fumehood.sandbox._json import NotJson, decode, encode
from fumehood.sandbox._launch import UncagedLauncher, WorkerLauncher
from fumehood.sandbox._model import (
    MAX_CODE,
    MAX_JOB,
    Ending,
    EventSink,
    Limits,
    Progress,
    Script,
    ScriptError,
    ScriptResult,
    ToolSignature,
)
from fumehood.sandbox._pool import WorkerPool
from fumehood.sandbox._protocol import SandboxBackend
from fumehood.sandbox._registry import backend_for, load_backends

# Past the wall limit, for a backend that has its own grace; after it the run is cancelled from here.
OUTER_GRACE_S = 3.0
# Tainted sessions that are remembered, the last used longest: far more than the instances a backend keeps.
MAX_TAINTS = 4096
DEFAULT_LIMITS = Limits()


class ScriptRunner:
    """Runs scripts. An async context manager; one for the whole host.

    launcher: starts the worker processes; default: plain child processes without a cage, which results
    show as tier "none". in_process: run the engines in this process (trusted scripts only). require_cage:
    refuse backends that don't stand in the launcher's cage. backends: more of them, or replacements, by
    name.
    """

    def __init__(
        self,
        *,
        launcher: WorkerLauncher | None = None,
        workers: int | None = None,
        in_process: bool = False,
        require_cage: bool = False,
        cache: Path | None = None,
        backends: Mapping[str, SandboxBackend] | None = None,
    ) -> None:
        self._launcher = launcher or UncagedLauncher()
        self._workers = workers
        self._in_process = in_process
        self._require_cage = require_cage
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._taints: dict[tuple[str, str], dict[str, None]] = {}  # of what a kept instance may hold
        self._cache = cache
        self._given = dict(backends or {})
        self._backends: dict[str, SandboxBackend] = {}
        self._pool: WorkerPool | None = None
        self._closed = False

    async def __aenter__(self) -> ScriptRunner:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop every backend and worker; what comes later is refused."""
        self._closed = True
        backends, self._backends = self._backends, {}
        for backend in backends.values():
            await backend.close()
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

    def backends(self) -> Mapping[str, SandboxBackend]:
        """Every backend by name, installed or not; `unavailable()` says which is which. Raises:
        SandboxUnavailable when this is closed.
        """
        if self._closed:
            raise SandboxUnavailable("the sandbox is closed")
        if not self._backends:
            if self._pool is None:
                self._pool = WorkerPool(self._launcher, size=self._workers, cache=self._cache)
            self._backends = (
                load_backends(self._pool, self._launcher, in_process=self._in_process, cache=self._cache)
                | self._given
            )
        return self._backends

    async def prepare(
        self, lang: str, *, backend: str | None = None, progress: Progress | None = None
    ) -> None:
        """Build and load an engine ahead of the first script. Raises: ConfigError, SandboxUnavailable."""
        await backend_for(self.backends(), lang, backend).prepare(progress)

    async def forget(self, session: str) -> None:
        """End a session in whichever backend has it."""
        for backend in self._backends.values():
            await backend.forget(session)
            self._taints.pop((backend.name, session), None)

    async def run(
        self,
        script: str,
        *,
        lang: str = "js",
        input: object = None,
        tools: Mapping[str, ToolSignature] | None = None,
        call_tool: CallTool | None = None,
        fetch: Fetch | None = None,
        limits: Limits | None = None,
        backend: str | None = None,
        session: str | None = None,
        clock: bool = False,
        seed: bytes | None = None,
        snapshot: bool = False,
        restore: bytes | None = None,
        on_event: EventSink | None = None,
    ) -> ScriptResult:
        """Run one script and return its result, whatever it did.

        tools: what it may call, by name; call_tool performs a call, and its `ToolRefused` is what a
        script may read. fetch: grants `fetch`. session: keep the instance under this key (it should name
        execution and principal). seed: 16 bytes that make randomness repeatable. snapshot and restore:
        JavaScript only; `tainted` of the result with the snapshot holds for what is restored from it.

        Raises: ConfigError for a request that can't be meant (language, backend, an input that isn't
        JSON), SandboxUnavailable when the engine isn't installed or can't be started.
        """
        limits = limits or DEFAULT_LIMITS
        tools = dict(tools or {})
        chosen = backend_for(self.backends(), lang, backend)
        can = chosen.capabilities()
        if self._require_cage and not can.caged:
            raise SandboxUnavailable(
                f"backend {chosen.name!r} runs outside the cage that this host requires",
                hint='take another backend, or set require_tier = "any" knowingly',
            )
        for wanted, able, what in (
            (limits.fuel is not None, can.fuel, "a fuel budget"),
            (session is not None, can.sessions, "sessions"),
            (snapshot or restore is not None, can.snapshots, "snapshots"),
        ):
            if wanted and not able:
                raise ConfigError(
                    f"backend {chosen.name!r} has no {what}", hint="leave it out, or take another backend"
                )
        if len(script) > MAX_CODE:
            return ScriptResult(
                "denied",
                "oversized-input",
                detail=f"the script has {len(script)} characters; {MAX_CODE} is the most",
            )
        try:
            input_json = None if input is None else encode(input)
        except NotJson as error:
            raise ConfigError(f"the script's input is not JSON: {error}") from error
        if input_json is not None and len(input_json) > limits.bridge_bytes:
            return ScriptResult(
                "denied",
                "oversized-input",
                detail=f"the input has {len(input_json)} bytes; {limits.bridge_bytes} is the most",
            )
        size = 4 * len(script) + len(input_json or "") + len(restore or b"")
        if size > MAX_JOB:
            return ScriptResult(
                "denied",
                "oversized-input",
                detail=f"script, input and snapshot have {size} bytes together; {MAX_JOB} is the most",
            )
        if seed is not None and len(seed) != 16:
            raise ConfigError(f"seed has {len(seed)} bytes; it must have 16")
        work = Script(
            lang,
            script,
            limits,
            input_json,
            tuple(tools),
            fetch is not None,
            clock,
            seed or os.urandom(16),
            session,
            snapshot,
            restore,
        )
        bridge = HostBridge(tools, call_tool, fetch, limits, on_event)
        # the first script of all may wait for a build; its wall time starts after that
        await chosen.prepare(fuel=limits.fuel is not None)
        started = time.perf_counter()
        bridge.event("started", lang=lang, backend=chosen.name)
        if session is None:
            ending = await self._watched(chosen, work, bridge)
        else:
            async with self._turn(session):
                with self._remembered_taint(chosen, session, bridge):
                    ending = await self._watched(chosen, work, bridge)
                    bridge.session_lost = ending.session_lost
        result = finish(ending, bridge, chosen, (time.perf_counter() - started) * 1e3)
        bridge.event("ended", outcome=result.outcome, reason=result.reason)
        return result

    @contextlib.asynccontextmanager
    async def _turn(self, session: str) -> AsyncIterator[None]:
        """Scripts of one session run one after another; others don't wait."""
        lock = self._turns.get(session)
        if lock is None:
            lock = self._turns[session] = asyncio.Lock()
        async with lock:
            yield

    @contextlib.contextmanager
    def _remembered_taint(self, backend: SandboxBackend, session: str, bridge: HostBridge) -> Iterator[None]:
        """What an earlier script of the session got from its tools is in the instance still."""
        key = (backend.name, session)
        bridge.taints.update(self._taints.get(key, {}))
        try:
            yield
        finally:  # also after a cancellation, which may have come too late to end the instance
            self._taints.pop(key, None)
            if bridge.taints and not bridge.session_lost:
                self._taints[key] = bridge.taints
                while len(self._taints) > MAX_TAINTS:
                    del self._taints[next(iter(self._taints))]

    async def _watched(self, backend: SandboxBackend, script: Script, bridge: HostBridge) -> Ending:
        """Run it; end it from here when the bridge hit a cap or the backend forgot the time."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(script.limits.wall_s + OUTER_GRACE_S) as scope:
                # `reschedule` to now is a cancellation that comes back as TimeoutError, and not to be
                # mistaken for the caller's own.
                bridge.on_stop = lambda: scope.reschedule(loop.time())
                if bridge.stop_reason is None:
                    return await backend.run(script, bridge)
        except TimeoutError:
            pass
        finally:
            bridge.closed = True
            bridge.on_stop = None
        return Ending("limit", bridge.stop_reason or "timeout", session_lost=script.session is not None)


def finish(ending: Ending, bridge: HostBridge, backend: SandboxBackend, wall_ms: float) -> ScriptResult:
    """One result out of what the backend says and what the bridge knows; where they differ, the bridge is
    right.
    """
    outcome, reason, value, error = ending.outcome, ending.reason, None, ending.error
    detail = ending.detail
    if bridge.stop_reason is not None and outcome != "limit":
        outcome, reason = "limit", bridge.stop_reason
    if outcome == "ok":
        try:
            text = ending.value_json or "null"
            if len(text) > bridge.output_left:
                outcome, reason = "limit", "output"
            else:
                value = decode(text)
        except NotJson as problem:
            outcome, error = "tool_error", ScriptError("NotJson", str(problem))
    if outcome == "limit" and reason == "cancelled":
        reason = bridge.stop_reason or "timeout"
    stdout, stderr = (bytes(stream).decode("utf-8", "replace") for stream in bridge.streams)
    return ScriptResult(
        outcome=outcome,
        reason=None if outcome in ("ok", "tool_error") else reason,
        value=value,
        error=error if outcome == "tool_error" else None,
        detail=detail if ending.signal is None else f"{detail} (signal {ending.signal})",
        stdout=stdout,
        stderr=stderr,
        truncated={"stdout": bridge.truncated[0] or reason == "output", "stderr": bridge.truncated[1]},
        tool_calls=bridge.records,
        tainted=tuple(bridge.taints),
        usage={"wall_ms": wall_ms, **{k: v for k, v in ending.usage.items() if k != "wall_ms"}},
        enforcement=backend.enforcement(),
        snapshot=ending.snapshot,
        session_lost=ending.session_lost,
    )
