"""The few wasmtime C calls that the public Python binding makes slow or leaves out, behind one small
class.

Guarantees: no Python exception ever travels through wasmtime's shared exception slot; a host function
that wants to stop the guest notes why on its instance and returns a trap. An instance that trapped is
never used again (`Instance.dead`). Not guaranteed: that these private names outlive a wasmtime major
version. `check_binding()` tries them and says what is missing. Before editing: every pointer given to C
must be kept alive by an attribute here.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from ctypes import POINTER, byref, c_bool, c_char_p, c_size_t, c_void_p
from importlib import metadata
from typing import Any

import wasmtime
from wasmtime import _ffi as ffi

from fumehood.sandbox.child._settings import MAX_WASM_STACK, WASMTIME_FLOOR

TICK_S = 0.005  # resolution of wall deadlines
FIRST_LOOK = 2  # ticks before a running guest is looked at for the first time; short scripts never are
LOOK_EVERY = 4  # ticks between looks after that
IDLE_TICKS = 40  # the ticker sleeps after this many ticks without a running guest
PAGE = 65536
OUT_OF_TIME, OUT_OF_FUEL, STACK, UNREACHABLE = 10, 11, 0, 9
POPULATE_READ, POPULATE_WRITE = (
    22,
    23,
)  # of madvise, since Linux 5.14; older kernels refuse and nothing is lost

_RAW = ffi.wasmtime_val_raw_t
_CALLBACK = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_void_p, POINTER(_RAW), c_size_t)


def _bind(name: str, result: Any, *arguments: Any) -> Any:
    # Our own prototypes: with plain void pointers ctypes converts arguments several times faster than
    # with typed ones.
    function = ffi.dll[name]
    function.restype, function.argtypes = result, list(arguments)
    return function


_call = _bind("wasmtime_func_call_unchecked", c_void_p, c_void_p, c_void_p, c_void_p, c_size_t, c_void_p)
_export = _bind("wasmtime_instance_export_get", c_bool, c_void_p, c_void_p, c_char_p, c_size_t, c_void_p)
_data = _bind("wasmtime_memory_data", c_void_p, c_void_p, c_void_p)
_size = _bind("wasmtime_memory_data_size", c_size_t, c_void_p, c_void_p)
_grow = _bind("wasmtime_memory_grow", c_void_p, c_void_p, c_void_p, ctypes.c_uint64, c_void_p)
_define = _bind(
    "wasmtime_linker_define_func_unchecked",
    c_void_p,
    c_void_p,
    c_char_p,
    c_size_t,
    c_char_p,
    c_size_t,
    c_void_p,
    _CALLBACK,
    c_void_p,
    c_void_p,
)
_trap_new = _bind("wasmtime_trap_new", c_void_p, c_char_p, c_size_t)
_trap_code = _bind("wasmtime_trap_code", c_bool, c_void_p, POINTER(ctypes.c_uint8))
_trap_delete = _bind("wasm_trap_delete", None, c_void_p)
_error_delete = _bind("wasmtime_error_delete", None, c_void_p)
_store_new = _bind("wasmtime_store_new", c_void_p, c_void_p, c_void_p, c_void_p)
_store_context = _bind("wasmtime_store_context", c_void_p, c_void_p)
_store_delete = _bind("wasmtime_store_delete", None, c_void_p)
_store_limiter = _bind("wasmtime_store_limiter", None, c_void_p, *[ctypes.c_int64] * 5)
_set_deadline = _bind("wasmtime_context_set_epoch_deadline", None, c_void_p, ctypes.c_uint64)
_EPOCH = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_void_p, POINTER(ctypes.c_uint64), POINTER(ctypes.c_uint8))
_epoch_callback = _bind("wasmtime_store_epoch_deadline_callback", None, c_void_p, _EPOCH, c_void_p, c_void_p)
_error_new = _bind("wasmtime_error_new", c_void_p, c_char_p)
_set_fuel = _bind("wasmtime_context_set_fuel", c_void_p, c_void_p, ctypes.c_uint64)
_get_fuel = _bind("wasmtime_context_get_fuel", c_void_p, c_void_p, POINTER(ctypes.c_uint64))
_instantiate = _bind("wasmtime_instance_pre_instantiate", c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)
_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = [c_void_p, c_size_t, ctypes.c_int]


class GuestStopped(Exception):
    """The guest trapped or a host function stopped it.

    code: wasmtime's trap code, or -1 when a host function asked for it. reason: what that host function
    noted.
    """

    def __init__(self, code: int, reason: str | None) -> None:
        super().__init__(f"trap {code}" if reason is None else reason)
        self.code = code
        self.reason = reason


def make_config(*, fuel: bool) -> wasmtime.Config:
    """The engine settings; part of the key of every compiled module."""
    config = wasmtime.Config()
    config.epoch_interruption = True
    config.max_wasm_stack = MAX_WASM_STACK
    config.wasm_threads = False
    if fuel:
        config.consume_fuel = True
    return config


class Ticker:
    """Moves an engine's epoch every TICK_S while guests run, and sleeps while none does."""

    def __init__(self, engine: wasmtime.Engine) -> None:
        self._engine = engine
        self._wake = threading.Event()
        self._idle = IDLE_TICKS
        self._running = 0
        self._lock = threading.Lock()  # a lost count would put the ticker to sleep under a running guest
        self._asleep = False
        self._thread = threading.Thread(target=self._tick, name="fumehood-epoch", daemon=True)
        self._thread.start()

    def enter(self) -> None:
        """A guest starts to run."""
        with self._lock:
            self._running += 1
            self._idle = IDLE_TICKS
            if self._asleep:
                self._asleep = False
                self._wake.set()

    def leave(self) -> None:
        """A guest returned."""
        with self._lock:
            self._running -= 1

    def _tick(self) -> None:
        while True:
            with self._lock:
                self._idle -= 1
                self._asleep = self._idle <= 0 and self._running == 0
            if self._asleep:
                self._wake.wait()
                self._wake.clear()
            self._engine.increment_epoch()
            time.sleep(TICK_S)


class Guest:
    """What the epoch callback and host functions know of a running guest."""

    def __init__(self) -> None:
        self.stop_reason: str | None = None

    def should_stop(self) -> str | None:
        """A reason to end the guest now, or None. Asked every few ticks; must not raise."""
        return None


class _Current(threading.local):
    instance: Guest | None = None


_current = _Current()


def current() -> Guest | None:
    """The guest that runs on this thread."""
    return _current.instance


class _Scope:
    def set(self, guest: Guest) -> None:
        """The guest exists now."""
        _current.instance = guest


@contextlib.contextmanager
def entered(ticker: Ticker) -> Iterator[_Scope]:
    """Around every entry into a guest that isn't an `Instance`."""
    previous = _current.instance
    ticker.enter()
    try:
        yield _Scope()
    finally:
        ticker.leave()
        _current.instance = previous


def watch_epoch(store: int | None, public: wasmtime.Store) -> None:
    """Have a store's guest looked at every few ticks."""
    _epoch_callback(store, _look_callback, None, None)
    public.set_epoch_deadline(FIRST_LOOK)


def _look(_context: int, _data: int, delta: Any, _kind: Any) -> int | None:
    """Called on the guest's own thread every few ticks: go on, or stop it with the reason it gives."""
    instance = _current.instance
    reason = None if instance is None else instance.should_stop()
    if reason is not None:
        if instance is not None:
            instance.stop_reason = reason
        return int(_error_new(b"stopped"))
    delta[0] = LOOK_EVERY
    return None


_look_callback = _EPOCH(
    _look
)  # one for all stores; a callback object per store would cost more than starting a guest


class Linked:
    """A module with its host functions, ready to be instantiated many times.

    functions: by (module, name); each takes the instance and unsigned integers and returns an integer. A
    missing one answers `absent`.
    """

    def __init__(
        self,
        engine: wasmtime.Engine,
        module: wasmtime.Module,
        functions: Mapping[tuple[str, str], Callable[..., int]],
        absent: int,
    ) -> None:
        self.engine = engine
        self.ticker = Ticker(engine)
        self._linker = wasmtime.Linker(engine)
        self._keep: list[object] = [module]
        for item in module.imports:
            function = functions.get((item.module, item.name or ""), lambda _instance, *_a: absent)
            self._add(item.module, item.name or "", item.type, function)
        self._pre = self._linker.instantiate_pre(module)
        self.pre = ctypes.cast(self._pre.ptr(), c_void_p).value
        self.engine_ptr = ctypes.cast(engine.ptr(), c_void_p).value

    def _add(self, module: str, name: str, kind: Any, function: Callable[..., int]) -> None:
        wide = [str(p) == "i64" for p in kind.params]
        returns = bool(kind.results)

        def enter(_env: int, _caller: int, values: Any, _count: int) -> int | None:
            instance = _current.instance
            assert isinstance(instance, Instance)
            try:
                result = function(
                    instance,
                    *[values[i].i64 if w else values[i].i32 & 0xFFFFFFFF for i, w in enumerate(wide)],
                )
            except GuestStopped as stop:
                instance.stop_reason = stop.reason
                return int(_trap_new(b"host", 4))
            # nothing may unwind through C; the reason is kept on the instance
            except BaseException as error:  # noqa: BLE001
                instance.host_error = error
                return int(_trap_new(b"host", 4))
            if returns:
                values[0].i64 = result
            return None

        callback = _CALLBACK(enter)
        self._keep.append((callback, kind))
        error = _define(
            ctypes.cast(self._linker.ptr(), c_void_p),
            module.encode(),
            len(module.encode()),
            name.encode(),
            len(name.encode()),
            ctypes.cast(kind.ptr(), c_void_p),
            callback,
            None,
            None,
        )
        if error:
            raise RuntimeError(f"cannot define {module}.{name}")


class Instance(Guest):
    """One guest with its own store. Use from one thread at a time; close it, whatever happened."""

    def __init__(self, linked: Linked, *, memory_bytes: int, fuel: int | None) -> None:
        super().__init__()
        self.host_error: BaseException | None = None
        self.dead = False
        self._linked = linked
        self._functions: dict[str, tuple[Any, Any]] = {}
        self._args = (_RAW * 8)()
        self._trap = c_void_p()
        self._trap_ref = byref(self._trap)
        self._store = _store_new(linked.engine_ptr, None, None)
        context = self._context = _store_context(self._store)
        _store_limiter(self._store, memory_bytes, 10_000, 1, 1, 1)
        _epoch_callback(self._store, _look_callback, None, None)
        _set_deadline(context, FIRST_LOOK)
        if fuel is not None:
            _set_fuel(context, fuel)
        self._instance = ffi.wasmtime_instance_t()
        self._ref = byref(self._instance)
        self._trap.value = None
        error = _instantiate(linked.pre, context, self._ref, self._trap_ref)
        if error or self._trap.value:
            self._fail(error)
        self._memory = ffi.wasmtime_extern_t()
        if not _export(context, self._ref, b"memory", 6, byref(self._memory)):
            raise RuntimeError("the module exports no memory")
        self._memory_ref = byref(self._memory.of.memory)

    def call(self, name: str, *arguments: int) -> int:
        """Call an exported function; the raw 64-bit result. Raises: GuestStopped."""
        found = self._functions.get(name) or self._find(name)
        args = (
            self._args if _current.instance is None else (_RAW * 8)()
        )  # a nested call must not write over the outer one
        for index, value in enumerate(arguments):
            args[index].i64 = value
        previous, _current.instance = _current.instance, self
        ticker = self._linked.ticker
        ticker.enter()
        try:
            error = _call(self._context, found[1], args, 8, self._trap_ref)
        finally:
            ticker.leave()
            _current.instance = previous
        if error or self._trap.value:
            self._fail(error)
        return int(args[0].i64)

    def _find(self, name: str) -> tuple[Any, Any]:
        extern = ffi.wasmtime_extern_t()
        raw = name.encode()
        if not _export(self._context, self._ref, raw, len(raw), byref(extern)):
            raise RuntimeError(f"the module exports no {name}")
        found = self._functions[name] = (extern, byref(extern.of.func))
        return found

    def _fail(self, error: int | None) -> None:
        self.dead = True
        code = ctypes.c_uint8(255)
        if error:
            _error_delete(error)
        if self._trap.value:
            if not _trap_code(self._trap, byref(code)):
                code.value = 255
            _trap_delete(self._trap)
            self._trap.value = None
        if self.host_error is not None:
            raise RuntimeError("a host function failed") from self.host_error
        raise GuestStopped(-1 if self.stop_reason else code.value, self.stop_reason)

    @property
    def memory_size(self) -> int:
        """Bytes of linear memory now."""
        return int(_size(self._context, self._memory_ref))

    def read(self, at: int, size: int) -> bytes:
        """Copy guest memory. Raises: GuestStopped when the range isn't inside it."""
        if at + size > _size(self._context, self._memory_ref):
            raise GuestStopped(-1, "protocol")
        return ctypes.string_at(_data(self._context, self._memory_ref) + at, size)

    def write(self, at: int, data: bytes) -> None:
        """Write guest memory. Raises: GuestStopped when the range isn't inside it."""
        if at + len(data) > _size(self._context, self._memory_ref):
            raise GuestStopped(-1, "protocol")
        ctypes.memmove(_data(self._context, self._memory_ref) + at, data, len(data))

    def grow(self, pages: int) -> None:
        """Add pages of memory. Raises: GuestStopped with "memory" past the cap."""
        before = ctypes.c_uint64()
        error = _grow(self._context, self._memory_ref, pages, byref(before))
        if error:
            _error_delete(error)
            raise GuestStopped(-1, "memory")

    def resolve(self, *names: str) -> None:
        """Look exports up ahead of the first call."""
        for name in names:
            self._find(name)

    def populate(self, start: int, end: int) -> None:
        """Map these bytes now, in one system call, instead of page by page when the guest first comes by.

        Changes nothing that the guest could see. A range that isn't there is left alone.
        """
        start &= -4096
        if start < end <= self.memory_size:
            at = _data(self._context, self._memory_ref) + start
            _madvise(at, end - start, POPULATE_WRITE)

    def adopt(self, memory_bytes: int, fuel: int | None) -> None:
        """Give an instance that was made ahead the limits of the script it is for. Raises: GuestStopped with
        "memory" when it is past them already.
        """
        if self.memory_size > memory_bytes:
            raise GuestStopped(-1, "memory")
        _store_limiter(self._store, memory_bytes, 10_000, 1, 1, 1)
        _set_deadline(self._context, FIRST_LOOK)
        if fuel is not None:
            _set_fuel(self._context, fuel)

    def set_fuel(self, fuel: int) -> None:
        """A new budget; only for an engine that counts fuel."""
        _set_fuel(self._context, fuel)

    def fuel_left(self) -> int:
        """What is left of the budget; only for an engine that counts fuel."""
        left = ctypes.c_uint64()
        error = _get_fuel(self._context, byref(left))
        if error:
            _error_delete(error)
        return left.value

    def close(self) -> None:
        """Free the store. The guest isn't asked to clean up, so nothing of it runs any more."""
        self.dead = True
        store, self._store = self._store, None
        if store:
            _store_delete(store)


def check_binding() -> str | None:
    """What the installed wasmtime lacks of what is used here, as a sentence; None when all is there."""
    try:
        major = int(metadata.version("wasmtime").split(".")[0])
    except ValueError:
        major = 0
    if major < WASMTIME_FLOOR:
        return f"wasmtime {metadata.version('wasmtime')} is too old; install wasmtime>={WASMTIME_FLOOR}"
    return None
