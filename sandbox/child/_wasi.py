"""The WASI functions a QuickJS guest is given: nothing but a clock that may be granted, and refusals.

No directory, no descriptor, no environment, no argument. A sleep (poll_oneoff) is refused, since neither
epoch nor fuel could end it.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fumehood.sandbox.child._capi import Instance

BADF, NOSYS, SUCCESS = 8, 52, 0
WASI = "wasi_snapshot_preview1"


def deny(
    clock: Callable[[Instance], bool] = lambda _instance: False,
) -> Mapping[tuple[str, str], Callable[..., int]]:
    """Host functions by (module, name). clock: says whether this instance may read the time."""
    from fumehood.sandbox.child._capi import GuestStopped

    def two_zeros(instance: Instance, first: int, second: int) -> int:
        instance.write(first, bytes(4))
        instance.write(second, bytes(4))
        return SUCCESS

    def now(instance: Instance, _id: int, _precision: int, out: int) -> int:
        instance.write(out, struct.pack("<Q", time.time_ns() if clock(instance) else 0))
        return SUCCESS

    def exit_(_instance: Instance, _code: int) -> int:
        raise GuestStopped(-1, "exit")

    def no_descriptor(_instance: Instance, *_arguments: int) -> int:
        return BADF

    found: dict[tuple[str, str], Callable[..., int]] = {
        (WASI, "environ_sizes_get"): two_zeros,
        (WASI, "environ_get"): lambda _instance, *_: SUCCESS,
        (WASI, "clock_time_get"): now,
        (WASI, "proc_exit"): exit_,
    }
    for name in ("fd_prestat_get", "fd_close", "fd_seek", "fd_read", "fd_write", "fd_fdstat_get"):
        found[(WASI, name)] = no_descriptor
    return found
