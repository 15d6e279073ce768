"""Running one Python program in a fresh instance of the CPython component.

Guarantees: every import of the component is a trap; then three functions of ours and four of WASI are put
back: no directories, no environment, no arguments, random bytes that come from the script's seed. The
clock is ours and only when granted. Before editing: host functions of a component may raise nothing but
WasmtimeError; anything else travels in a slot shared by threads.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import queue
import random
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from ctypes import c_void_p
from typing import Any

import wasmtime
from wasmtime import component

from fumehood.sandbox.child import _capi
from fumehood.sandbox.child._job import (
    CALL,
    FETCH,
    End,
    Engine,
    Failure,
    Job,
    JobLimits,
    Port,
    Stop,
    Transport,
)
from fumehood.sandbox.child._settings import start_thread

MAX_RANDOM = 1 << 20  # bytes per call of what the guest's own libraries may draw
NAME_MAX = 256
STOP = 2  # the "stream" on which the guest asks to be ended for a cap it saw coming
NOT_GRANTED = "the script used something that this sandbox does not have"
_TRAPS = {
    wasmtime.TrapCode.STACK_OVERFLOW: "stack",
    wasmtime.TrapCode.INTERRUPT: "timeout",
    wasmtime.TrapCode.OUT_OF_FUEL: "cpu",
}


SPARES = 2  # instances made ahead; 2 MiB each
SPARE_MEMORY = 64 << 20  # a script with less gets an instance that was made for it: this one may be larger
WARM_UP = Job(
    "python", "print(1 + 1)", None, (), False, False, "00" * 16,
    JobLimits(10.0, None, SPARE_MEMORY, 0, 1 << 10, 0, 1 << 10, 0),
)  # fmt: skip


class _Nowhere:
    """The transport of the warm-up, which asks nothing."""

    cancelled = False

    def ask(self, id_: int, kind: int, name: str, args: bytes) -> None: ...
    def tried(self, name: str, reason: str) -> None: ...
    def answer(self, timeout: float) -> None: ...
    def output(self, stream: int, data: bytes) -> None: ...


class PyInstance(_capi.Guest):
    """A store with the component in it, and what its script has said so far."""

    def __init__(self, engine: CPython, job: Job) -> None:
        super().__init__()
        self.port: Port | None = None
        self.asked = 0
        self.early: deque[tuple[int, bool, bytes]] = deque()  # answers that came while another was waited for
        self.error: str | None = None
        self.store = wasmtime.Store(engine.engine)
        self.adopt(job)
        _capi.watch_epoch(ctypes.cast(self.store.ptr(), c_void_p).value, self.store)
        instance = engine.linker.instantiate(self.store, engine.component)
        function = instance.get_func(self.store, "run")
        assert function is not None
        self.run_function = function

    def adopt(self, job: Job) -> None:
        """Limits and grants of the script it is for."""
        self.clock = job.clock
        self.random = random.Random(job.seed)
        self.store.set_limits(memory_size=job.limits.memory, table_elements=100_000)
        if job.limits.fuel is not None:
            self.store.set_fuel(job.limits.fuel)

    def should_stop(self) -> str | None:
        """The deadline, or the host's wish."""
        return None if self.port is None else self.port.should_stop()

    def close(self) -> None:
        """Free the store; nothing of the guest runs any more."""
        self.store.close()


class CPython:
    """The engine of one process."""

    def __init__(
        self, engine: wasmtime.Engine, compiled: component.Component, wasi: Sequence[str], *, fuel: bool
    ) -> None:
        self.engine = engine
        self.component = compiled
        self.ticker = _capi.Ticker(engine)
        self.linker = component.Linker(engine)
        self.linker.define_unknown_imports_as_traps(compiled)
        self.linker.allow_shadowing = True
        self._sessions: dict[str, PyInstance] = {}
        self._spares: list[PyInstance] = []
        self._used: list[PyInstance] = []
        self._tired: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._rests = False
        self._closed = fuel  # one that counts has no spares: its scripts must use the same whenever they come
        self._lock = threading.Lock()
        with self.linker.root() as root:
            root.add_func("call", _call)
            root.add_func("ask", _ask)
            root.add_func("wait", _wait)
            root.add_func("emit", _emit)
            root.add_func("now", _now)
            for version, (name, functions) in itertools.product(
                wasi,
                (
                    ("wasi:filesystem/preopens", {"get-directories": lambda _store: []}),
                    (
                        "wasi:cli/environment",
                        {"get-environment": lambda _store: [], "get-arguments": lambda _store: []},
                    ),
                    ("wasi:random/random", {"get-random-bytes": _random_bytes}),
                ),
            ):
                with root.add_instance(f"{name}@{version}") as place:
                    for function, body in functions.items():
                        place.add_func(function, body)

    def run(self, job: Job, transport: Transport) -> End:
        """Run one script to its end. Never raises for what a script does."""
        started, cpu = time.perf_counter(), time.thread_time()
        port = Port(job, transport)
        instance: PyInstance | None = None
        with _capi.entered(self.ticker) as scope:
            try:
                instance = self._open(job)
                scope.set(instance)
                instance.port = port
                end = _ending(
                    instance.run_function(
                        instance.store, job.code.encode("utf-8", "replace").decode(), _config(job)
                    ),
                    port,
                )
            except wasmtime.Trap as trap:
                end = _from_trap(trap, instance)
            except wasmtime.WasmtimeError as error:
                end = _from_error(error, instance)
            except Stop as stop:
                end = End("limit", stop.reason)
        end.usage["wall_ms"] = (time.perf_counter() - started) * 1e3
        end.usage["cpu_ms"] = (time.thread_time() - cpu) * 1e3
        if instance is not None:
            if job.limits.fuel is not None:
                with contextlib.suppress(wasmtime.WasmtimeError):
                    end.usage["fuel"] = job.limits.fuel - instance.store.get_fuel()
            # Only what came back by itself may be entered again; after a trap CPython's state is anyone's
            # guess.
            # Neither may one with questions open: their answers would arrive in the next script.
            whole = end.outcome in ("ok", "tool_error") and instance.error is None and port.pending == 0
            if job.session is not None and whole:
                instance.port = None
                instance.early.clear()
                with self._lock:
                    replaced = self._sessions.get(job.session)
                    self._sessions[job.session] = instance
                if replaced is not None:
                    replaced.close()
            else:
                end.session_lost = job.session is not None
                with self._lock:
                    self._used.append(instance)  # `rest` frees it, when the result is out
        return end

    def _open(self, job: Job) -> PyInstance:
        if job.session is not None:
            with self._lock:
                kept = self._sessions.pop(job.session, None)
            if kept is not None:
                kept.stop_reason, kept.clock, kept.asked = None, job.clock, 0
                kept.store.set_epoch_deadline(_capi.FIRST_LOOK)
                if job.limits.fuel is not None:
                    kept.store.set_fuel(job.limits.fuel)
                return kept
        with self._lock:
            roomy = job.limits.memory >= SPARE_MEMORY
            spare = self._spares.pop() if roomy and self._spares else None
        if spare is None:
            return PyInstance(self, job)
        spare.adopt(job)
        spare.store.set_epoch_deadline(_capi.FIRST_LOOK)
        spare.asked, spare.stop_reason = 0, None
        return spare

    def rest(self) -> None:
        """Have a thread free what ended scripts used and make instances for the next: it takes as long as
        several short scripts, and the caller may be wanted for one.
        """
        with self._lock:
            if not self._rests:
                self._rests = True
                start_thread(self._keep_resting, "fumehood-spares")
        self._tired.put(True)

    def _keep_resting(self) -> None:
        while self._tired.get():
            with self._lock:
                used, self._used = self._used, []
                wanted = len(self._spares) < SPARES and not self._closed
            spare = self._warm() if wanted else None
            for instance in used:
                instance.close()
            if spare is not None:
                with self._lock:
                    wanted = not self._closed
                    if wanted:
                        self._spares.append(spare)
                if not wanted:
                    spare.close()

    def _warm(self) -> PyInstance | None:
        """An instance that ran one line of ours: two thirds of a short script's time go into touching the
        interpreter's memory for the first time.
        """
        with _capi.entered(self.ticker) as scope:
            try:
                spare = PyInstance(self, WARM_UP)
            except (wasmtime.WasmtimeError, wasmtime.Trap):
                return None
            try:
                scope.set(spare)
                spare.port = Port(WARM_UP, _Nowhere())
                spare.run_function(spare.store, WARM_UP.code, _config(WARM_UP))
            except (wasmtime.WasmtimeError, wasmtime.Trap):
                spare.close()
                return None
            spare.port = None
            return spare

    def close(self) -> None:
        """Free sessions and spares; nothing runs any more."""
        self._tired.put(False)
        with self._lock:
            self._closed = True
            left = [*self._sessions.values(), *self._spares, *self._used]
            self._sessions.clear()
            self._spares, self._used = [], []
        for instance in left:
            instance.close()

    def forget(self, session: str) -> None:
        """End a session and free its memory."""
        with self._lock:
            kept = self._sessions.pop(session, None)
        if kept is not None:
            kept.close()


def load(fd: int, *, fuel: bool, meta: dict[str, Any]) -> Engine:
    """The engine from a compiled component in `fd`."""
    from fumehood.sandbox.child._worker import read_module

    engine = wasmtime.Engine(_capi.make_config(fuel=fuel))
    compiled = read_module(
        fd,
        lambda path: component.Component.deserialize_file(engine, path),
        lambda data: component.Component.deserialize(engine, data),
    )
    return CPython(engine, compiled, meta["wasi"], fuel=fuel)


def _current() -> tuple[PyInstance, Port]:
    instance = _capi.current()
    if not isinstance(instance, PyInstance) or instance.port is None:
        raise wasmtime.WasmtimeError("no script is running")
    return instance, instance.port


def _stop(instance: PyInstance, reason: str) -> wasmtime.WasmtimeError:
    instance.stop_reason = reason
    return wasmtime.WasmtimeError(reason)


def _put(instance: PyInstance, port: Port, question: str) -> int:
    """Count a question and send it on; its number. Raises: Stop, OSError."""
    head, _, args = question.partition("\n")
    name, raw = head[1:], args.encode()
    port.check_question(name[:NAME_MAX], len(raw))
    instance.asked += 1
    port.ask(instance.asked, FETCH if head[:1] == "f" else CALL, name, raw)
    return instance.asked


def _call(_store: object, question: str) -> str:
    instance, port = _current()
    with _stopping(instance):
        number = _put(instance, port, question)
        while True:
            answered, ok, value = port.answer()
            if answered == number:
                return ("1" if ok else "0") + value.decode("utf-8", "replace")
            instance.early.append((answered, ok, value))


def _ask(_store: object, question: str) -> int:
    instance, port = _current()
    with _stopping(instance):
        return _put(instance, port, question)


def _wait(_store: object) -> str:
    instance, port = _current()
    if not instance.early and port.pending == 0:
        return ""
    with _stopping(instance):
        number, ok, value = instance.early.popleft() if instance.early else port.answer()
    return f"{number} {int(ok)}{value.decode('utf-8', 'replace')}"


@contextlib.contextmanager
def _stopping(instance: PyInstance) -> Iterator[None]:
    try:
        yield
    except Stop as stop:
        raise _stop(instance, stop.reason) from None
    except (OSError, EOFError, ValueError, KeyError):
        raise _stop(instance, "cancelled") from None  # the host is gone; nobody will read the result


def _emit(_store: object, stream: int, text: str) -> None:
    instance, port = _current()
    if stream == STOP:
        reason, _, name = text[:512].partition("\n")
        if reason != "bridge-bytes":
            raise _stop(instance, "output")
        with contextlib.suppress(OSError):
            port.tried(name, reason)
        raise _stop(instance, reason)
    raw = text.encode("utf-8", "replace")
    allowed = port.take_output(len(raw))
    try:
        if allowed:
            port.output(1 if stream else 0, raw[:allowed])
    except OSError:
        raise _stop(instance, "cancelled") from None
    if allowed < len(raw):
        raise _stop(instance, "output")


def _now(_store: object) -> float | None:
    instance, _ = _current()
    return time.time() if instance.clock else None


def _random_bytes(_store: object, size: int) -> bytes:
    instance = _capi.current()
    if size > MAX_RANDOM or not isinstance(instance, PyInstance):
        raise wasmtime.WasmtimeError("too many random bytes")
    return instance.random.randbytes(size)


def _config(job: Job) -> str:
    return json.dumps(
        {
            "seed": job.seed,
            "input": job.input_json,
            "tools": job.tools,
            "fetch": job.fetch,
            "session": job.session is not None,
            "output": job.limits.output,
            "bridge_bytes": job.limits.bridge_bytes,
            "pending": max(1, job.limits.pending),
        }
    )


def _ending(answer: str, port: Port) -> End:
    if answer[:1] == "O":
        raw = answer[1:].encode("utf-8", "surrogatepass")
        if port.take_output(len(raw)) < len(raw):
            raise Stop("output")
        return End("ok", value=raw)
    if answer[:1] == "M":
        return End("limit", "memory")
    # The guest's module is within the script's reach, so what it answers is the script's text.
    try:
        said = json.loads(answer[1:])
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        said = {"message": "(an error that cannot be shown)"}
    line, column = (n if isinstance(n, int) else None for n in (said.get("line"), said.get("column")))
    kind, message, trace = (str(said.get(key) or "") for key in ("type", "message", "trace"))
    return End("tool_error", failure=Failure(kind or "Error", message, line, column, trace))


def _from_trap(trap: wasmtime.Trap, instance: PyInstance | None) -> End:
    if instance is not None:
        instance.error = "trap"
        if instance.stop_reason is not None:
            return End("limit", instance.stop_reason)
    code = trap.trap_code
    if code in _TRAPS:
        return End("limit", _TRAPS[code])
    return _unexplained(str(trap))


def _from_error(error: wasmtime.WasmtimeError, instance: PyInstance | None) -> End:
    if instance is not None:
        instance.error = "error"
        if instance.stop_reason is not None:
            return End("limit", instance.stop_reason)
    text = str(error)
    for code, reason in (
        ("call stack exhausted", "stack"),
        ("interrupt", "timeout"),
        ("all fuel consumed", "cpu"),
    ):
        if code in text:
            return End("limit", reason)
    if instance is None and "memory" in text:
        return End("limit", "memory", detail="the memory limit is smaller than the engine itself")
    return _unexplained(text)


def _unexplained(text: str) -> End:
    return End("tool_error", failure=Failure("NotGranted", NOT_GRANTED), detail=text[:1000])
