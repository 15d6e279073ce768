"""Numbers and keys that host and worker share without importing wasmtime. Stdlib only."""

from __future__ import annotations

from importlib import metadata

MAX_WASM_STACK = (
    2 << 20
)  # wasmtime aborts the process above its async stack size, which is 2 MiB and has no setter
THREAD_STACK = 16 << 20  # a thread with less than the guest may use ends in SIGSEGV instead of a trap
WASMTIME_FLOOR = 50  # the private C calls of `_capi` are those of this major version


def settings_key(*, fuel: bool) -> str:
    """Text that changes whenever compiled code would. Raises: metadata.PackageNotFoundError without
    wasmtime.
    """
    return f"wasmtime {metadata.version('wasmtime')} epoch stack={MAX_WASM_STACK} nothreads fuel={fuel}"
