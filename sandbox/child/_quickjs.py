"""Running one JavaScript program in a fresh instance of the baked image.

Guarantees: the instance is created for the script and freed after it (a session is the named exception);
every guest entry is under the epoch deadline, also while jobs are pumped and the result or error is
formatted; an instance that trapped is never entered again. Before editing: `_bridge` is called by the
guest with untrusted numbers; it checks a length before it copies.
"""

from __future__ import annotations

import json
import re
import struct
import threading
import time
import zlib

from fumehood.sandbox.child import _capi
from fumehood.sandbox.child._capi import GuestStopped, Instance, Linked
from fumehood.sandbox.child._job import CALL, FETCH, End, Failure, Job, Port, Stop, Transport
from fumehood.sandbox.child._jsbuild import BRIDGE, TAG_EXCEPTION, ImageMeta
from fumehood.sandbox.child._wasi import deny

RESULT, FAILURE, STDOUT, STDERR = 0, 1, 2, 3
OP_BEGIN, OP_ANSWER, OP_DONE, OP_FAIL, OP_AWAIT = range(5)
GLOBAL, ASYNC = 0, 1 << 7
OPEN_WRAP, CLOSE_WRAP = "(async()=>{", "\n})()"
PAGE = 65536
SESSION_MAGIC = b"fumehood-js-session-1\0"
ERROR_MAX = 64 << 10
UNTOLD = "(an error that cannot be shown)"
NEARLY = 1 << 20  # this close to its cap, a script that fell silent had no memory left
NAME_MAX = 256  # bytes that are looked at before a question is counted
SPARES = 8  # instances made ahead; 300 KiB each
SPARE_MEMORY = 64 << 20  # until it is adopted
# What even the smallest script writes to, found by looking: the top of the stack below the scratch buffer
# and the heap that the image came with.
STACK_TOP, FIRST_WRITE = 4096, 4096

_TRAPS = {_capi.OUT_OF_TIME: "timeout", _capi.OUT_OF_FUEL: "cpu", _capi.STACK: "stack"}
_WHERE = re.compile(r"script\.js:(\d{1,9})(?::(\d{1,9}))?\b")


class ForeignSnapshot(Exception):
    """Bytes that can't be restored here."""


class JsInstance(Instance):
    """An instance together with what its script has said so far."""

    def __init__(self, linked: Linked, *, memory_bytes: int, fuel: int | None) -> None:
        self.port: Port | None = None
        self.clock = False
        self.settled: tuple[int, bytes] | None = None
        super().__init__(linked, memory_bytes=memory_bytes, fuel=fuel)

    def should_stop(self) -> str | None:
        """The deadline, or the host's wish."""
        return "timeout" if self.port is None else self.port.should_stop()


class QuickJs:
    """The engine of one process: the compiled image, its host functions and the sessions that are kept."""

    def __init__(self, module: object, engine: object, meta: ImageMeta, image_sha256: str) -> None:
        functions = dict(deny(lambda instance: isinstance(instance, JsInstance) and instance.clock))
        functions[BRIDGE] = _bridge
        self._linked = Linked(engine, module, functions, absent=52)  # type: ignore[arg-type]
        self._meta = meta
        self._image = bytes.fromhex(image_sha256)
        self._sessions: dict[str, JsInstance] = {}
        self._spares: list[JsInstance] = []
        self._used: list[JsInstance] = []
        self._closed = False
        self._lock = threading.Lock()

    def run(self, job: Job, transport: Transport) -> End:
        """Run one script to its end. Never raises for what a script does."""
        started, cpu = time.perf_counter(), time.thread_time()
        port = Port(job, transport)
        instance: JsInstance | None = None
        try:
            instance = self._open(job)
            end = self._drive(instance, job, port)
            if job.snapshot and end.outcome != "limit":
                end.snapshot = self._snapshot(instance, port)
        except Stop as stop:
            end = End("limit", stop.reason)
        except ForeignSnapshot:
            end = End(
                "sandbox_error",
                "start",
                detail="the snapshot is damaged, or of another version of the engine",
            )
        except GuestStopped as stop:
            end = _from_trap(stop, instance)
        end.usage["wall_ms"] = (time.perf_counter() - started) * 1e3
        end.usage["cpu_ms"] = (time.thread_time() - cpu) * 1e3
        if instance is not None:
            if not instance.dead:
                end.usage["memory_bytes"] = instance.memory_size
                if job.limits.fuel is not None:
                    end.usage["fuel"] = job.limits.fuel - instance.fuel_left()
            self._keep_or_close(instance, job, end, port)
        return end

    def _open(self, job: Job) -> JsInstance:
        if job.session is not None and job.restore is None:
            with self._lock:
                kept = self._sessions.pop(job.session, None)
            if kept is not None:
                if job.limits.fuel is not None:
                    kept.set_fuel(job.limits.fuel)
                kept.settled, kept.stop_reason, kept.clock = None, None, job.clock
                return kept
        instance = self._fresh(job)
        instance.clock = job.clock
        if job.restore is not None:
            try:
                self._restore(instance, job.restore)
            except BaseException:
                instance.close()
                raise
        return instance

    def _fresh(self, job: Job) -> JsInstance:
        limits = job.limits
        with self._lock:
            spare = self._spares.pop() if self._spares else None
        if spare is None:
            return self._make(limits.memory, limits.fuel)
        try:
            spare.adopt(limits.memory, limits.fuel)
        except GuestStopped:
            spare.close()
            raise
        return spare

    def _make(self, memory: int, fuel: int | None) -> JsInstance:
        """A new instance that holds the pages every script touches: mapping them one by one, as the script
        comes by, takes longer than a short script.
        """
        meta = self._meta
        instance = JsInstance(self._linked, memory_bytes=memory, fuel=fuel)
        instance.populate(meta.scratch - STACK_TOP, meta.scratch + FIRST_WRITE)
        instance.populate(meta.argv, instance.memory_size)
        return instance

    def rest(self) -> None:
        """Free what ended scripts used, and have an instance ready for the next one."""
        with self._lock:
            used, self._used = self._used, []
            wanted = len(self._spares) < SPARES and not self._closed
        if wanted:
            self._add_spare()
        for instance in used:
            instance.close()

    def _add_spare(self) -> None:
        try:
            spare = self._make(SPARE_MEMORY, None)
            spare.resolve("fh_run", "fh_pump")
        except (GuestStopped, RuntimeError):
            return  # no room for one now; the next script makes its own, or says what is wrong
        with self._lock:
            if not self._closed:
                self._spares.append(spare)
                return
        spare.close()

    def close(self) -> None:
        """Free sessions and spares; nothing runs any more."""
        with self._lock:
            self._closed = True
            left = [*self._sessions.values(), *self._spares, *self._used]
            self._sessions.clear()
            self._spares, self._used = [], []
        for instance in left:
            instance.close()

    def _keep_or_close(self, instance: JsInstance, job: Job, end: End, port: Port) -> None:
        # An instance with questions still open can't serve another script: their answers would arrive in
        # the wrong one.
        keep = (
            job.session is not None
            and not instance.dead
            and end.outcome in ("ok", "tool_error")
            and port.pending == 0
        )
        if keep and job.session is not None:
            instance.port = None
            with self._lock:
                replaced = self._sessions.get(job.session)
                self._sessions[job.session] = instance
            if replaced is not None:
                replaced.close()
        else:
            end.session_lost = job.session is not None
            with self._lock:
                self._used.append(instance)  # `rest` frees it, when the result is out

    def forget(self, session: str) -> None:
        """End a session and free its memory."""
        with self._lock:
            kept = self._sessions.pop(session, None)
        if kept is not None:
            kept.close()

    def _drive(self, instance: JsInstance, job: Job, port: Port) -> End:
        instance.port = port
        if job.limits.stack != 0:
            instance.call("JS_SetMaxStackSize", self._meta.runtime, job.limits.stack)
        instance.write(
            self._meta.state, bytes.fromhex(job.seed) + (b"\1\0\0\0" if job.clock else b"\0\0\0\0")
        )
        if job.input_json is not None or job.tools or job.fetch or job.session is not None:
            self._send(instance, OP_BEGIN, _config(job))
        shift = self._evaluate(instance, job.code)
        while True:
            failed = instance.call("fh_pump", self._meta.runtime, self._meta.argv) & 0x80000000
            if failed and instance.settled is None:
                if instance.memory_size + NEARLY >= job.limits.memory:
                    return End("limit", "memory")
                return End("tool_error", failure=Failure("Error", "the engine gave up on a job"))
            if instance.settled is not None:
                return _from_settled(instance, shift, port)
            if port.pending == 0:
                if instance.memory_size + NEARLY >= job.limits.memory:
                    return End("limit", "memory")  # no room was left to say so
                return End(
                    "tool_error",
                    failure=Failure("Deadlock", "the script waits for a promise that nothing can settle"),
                )
            self._answer(instance, *port.answer())

    def _evaluate(self, instance: JsInstance, code: str) -> int:
        """Compile and start the script. The number of columns that its first line was moved by."""
        waits = "await" in code
        self._eval(instance, code, ASYNC if waits else GLOBAL, OP_AWAIT if waits else OP_DONE)
        settled = instance.settled
        if (
            settled is not None
            and settled[0] == FAILURE
            and b"return not in a function" in settled[1]
            and b"SyntaxError" in settled[1]
        ):
            # A model likes to end a script with `return value`; as the body of a function that is in order.
            instance.settled = None
            self._eval(instance, OPEN_WRAP + code + CLOSE_WRAP, GLOBAL, OP_DONE)
            return len(OPEN_WRAP)
        return 0

    def _eval(self, instance: JsInstance, code: str, flags: int, op: int) -> None:
        meta = self._meta
        raw = code.encode("utf-8", "surrogatepass")
        at = self._place(instance, raw + b"\0")
        told = instance.call("fh_run", meta.context, meta.core, at, len(raw), meta.name, flags, op, meta.argv)
        if (told >> 32) & 0xFFFFFFFF == TAG_EXCEPTION and instance.settled is None:
            raise GuestStopped(-1, "memory")  # what tells us of an end fails for no other reason
        if at != meta.scratch:
            instance.call("free", at)

    def _send(self, instance: JsInstance, op: int, text: bytes) -> None:
        meta = self._meta
        at = self._place(instance, text)
        result = instance.call("fh_send", meta.context, meta.core, op, at, len(text), meta.argv)
        if at != meta.scratch:
            instance.call("free", at)
        if (result >> 32) & 0xFFFFFFFF == TAG_EXCEPTION:
            raise GuestStopped(-1, "memory")  # our own functions fail for no other reason than memory

    def _answer(self, instance: JsInstance, id_: int, ok: bool, value: bytes) -> None:
        self._send(instance, OP_ANSWER, b"%d %d %b" % (id_, ok, value))

    def _place(self, instance: JsInstance, data: bytes) -> int:
        at = self._meta.scratch
        if len(data) > self._meta.scratch_size:
            at = instance.call("malloc", len(data)) & 0xFFFFFFFF
            if at == 0:
                raise GuestStopped(-1, "memory")
        instance.write(at, data)
        return at

    def _snapshot(self, instance: JsInstance, port: Port) -> bytes | None:
        if port.pending or instance.dead:
            return None
        memory = instance.read(0, instance.memory_size)
        return SESSION_MAGIC + self._image + struct.pack("<I", len(memory) // PAGE) + zlib.compress(memory, 1)

    def _restore(self, instance: JsInstance, data: bytes) -> None:
        """Put a snapshot's memory into a fresh instance. Any content is safe for the host; only its size
        and origin are checked.
        """
        head = len(SESSION_MAGIC) + 32 + 4
        if data[: head - 4] != SESSION_MAGIC + self._image or len(data) < head:
            raise ForeignSnapshot
        (pages,) = struct.unpack("<I", data[head - 4 : head])
        have = instance.memory_size // PAGE
        if pages < have:
            raise ForeignSnapshot
        if pages > have:
            instance.grow(pages - have)
        unpacker = zlib.decompressobj()
        try:
            memory = unpacker.decompress(data[head:], pages * PAGE + 1)
        except zlib.error:
            raise ForeignSnapshot from None
        if len(memory) != pages * PAGE or not unpacker.eof:
            raise ForeignSnapshot
        instance.write(0, memory)


def _config(job: Job) -> bytes:
    parts = ['{"f":true' if job.fetch else '{"f":false']
    if job.tools:
        parts.append(',"t":' + json.dumps(list(job.tools)))
    parts.append(',"i":' + (job.input_json or "null"))
    return ("".join(parts) + "}").encode("utf-8", "surrogatepass")


def _bridge(instance: Instance, kind: int, id_: int, at: int, size: int, *_unused: int) -> int:
    assert isinstance(instance, JsInstance)
    port = instance.port
    if port is None:
        raise GuestStopped(-1, "protocol")
    try:
        if kind in (STDOUT, STDERR):
            allowed = port.take_output(size)
            if allowed:
                port.output(kind - STDOUT, instance.read(at, allowed))
            if allowed < size:
                raise Stop("output")
        elif kind in (CALL, FETCH):
            head, _, _ = instance.read(at, min(size, NAME_MAX)).partition(b"\n")
            port.check_question(head.decode("utf-8", "replace"), size)
            name, _, args = instance.read(at, size).partition(b"\n")
            port.ask(id_, kind, name.decode("utf-8", "replace"), args)
        elif instance.settled is None:
            if kind == RESULT:
                if port.take_output(size) < size:
                    raise Stop("output")
                instance.settled = (kind, instance.read(at, size))
            else:
                instance.settled = (kind, instance.read(at, min(size, ERROR_MAX)))
    except Stop as stop:
        raise GuestStopped(-1, stop.reason) from None
    return 0


def _from_settled(instance: JsInstance, shift: int, port: Port) -> End:
    assert instance.settled is not None
    kind, text = instance.settled
    if kind == RESULT:
        return End("ok", value=text)
    # The text is the script's: it may have given every object a toJSON, so the shape is a guess.
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        said = {"message": UNTOLD}
    name, message = str(said.get("name") or ""), str(said.get("message") or "")
    if (
        name == "InternalError"
        and message == "out of memory"
        or message in ("null", UNTOLD)
        and not name
        and instance.memory_size > 1 << 22
    ):
        return End("limit", "memory")
    trace = "".join(line + "\n" for line in str(said.get("stack") or "").splitlines() if "script.js" in line)
    where = _WHERE.search(trace)
    line = int(where[1]) if where else None
    column = int(where[2]) if where and where[2] else None
    if line == 1 and column is not None and shift:
        column = max(1, column - shift)
    return End("tool_error", failure=Failure(name or "Error", message, line, column, trace[:4096]))


def _from_trap(stop: GuestStopped, instance: JsInstance | None) -> End:
    if stop.reason == "exit":
        return End("tool_error", failure=Failure("Exit", "the engine ended itself"))
    if stop.reason is not None:
        return End("limit", stop.reason) if stop.reason != "protocol" else End("sandbox_error", "protocol")
    if stop.code in _TRAPS:
        return End("limit", _TRAPS[stop.code])
    if instance is None:
        return End("limit", "memory", detail="the memory limit is smaller than the engine itself")
    return End("sandbox_error", "crashed", detail=f"the engine trapped (code {stop.code})")
