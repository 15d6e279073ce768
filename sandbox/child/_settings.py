"""Numbers and keys that host and worker share without importing wasmtime, and the threads that guests need.
Stdlib only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
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


_stack_lock = threading.Lock()


def start_thread(target: Callable[[], None], name: str) -> None:
    """Start a daemon thread whose stack is large enough for a guest."""
    with _stack_lock:  # the size is one setting for the whole process
        before = threading.stack_size(THREAD_STACK)
        try:
            threading.Thread(target=target, name=name, daemon=True).start()
        finally:
            threading.stack_size(before)
