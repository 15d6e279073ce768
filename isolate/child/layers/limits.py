"""Layer `rlimits`: per-process limits, set hard so that nothing inside can raise them (getrlimit(2))."""

from __future__ import annotations

import functools
import resource
from typing import Any

from . import FULL, PARTIAL, Status

_FIXED = {
    resource.RLIMIT_MEMLOCK: 64 * 1024,
    resource.RLIMIT_MSGQUEUE: 0,
    resource.RLIMIT_NICE: 0,
    resource.RLIMIT_RTPRIO: 0,
}
_NAMES = {
    "cpu_s": resource.RLIMIT_CPU,
    "processes": resource.RLIMIT_NPROC,
    "file_bytes": resource.RLIMIT_FSIZE,
    "data_bytes": resource.RLIMIT_DATA,
    "stack_bytes": resource.RLIMIT_STACK,
}


@functools.cache
def core_bytes() -> int:
    """The limit under which no core dump is made: it could carry a credential out of the cage.

    0, but 1 where core dumps go to a program: for that one 0 is no limit, and 1 means no dump (core(5),
    fs/coredump.c). To be asked first where /proc/sys can be seen. A tool may still lower it to 0 and crash on
    purpose: then the program of the host's choice sees that tool's memory, as it sees any process's.
    """
    try:
        with open("/proc/sys/kernel/core_pattern", "rb") as file:
            return 1 if file.read(1) == b"|" else 0
    except OSError:
        return 0


def raise_descriptors() -> None:
    """For a launcher and all it forks, until `lower_descriptors`: what a user's processes have under way in
    sockets is counted together and compared with the limit of whoever sends (unix(7)), and a tool fills its
    own.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def lower_descriptors(limits: dict[str, Any]) -> None:
    """The limit that `apply` leaves out, once the child has sent the last descriptor it has to."""
    _lower(resource.RLIMIT_NOFILE, limits["descriptors"], limits["descriptors"])


def apply(limits: dict[str, Any]) -> Status:
    """Set every limit of the plan but that on descriptors; one that is already lower stays as it is (root may
    not raise limits everywhere).
    """
    for key, kind in _NAMES.items():
        if limits.get(key) is not None:
            wanted = int(limits[key])
            # One second more in the hard CPU limit: SIGXCPU first, SIGKILL for whoever ignores it.
            _lower(kind, wanted, wanted + 1 if key == "cpu_s" else wanted)
    _lower(resource.RLIMIT_CORE, core_bytes(), core_bytes())
    for kind, value in _FIXED.items():
        _lower(kind, value, value)
    if not limits.get("processes_enforced", True):
        return (
            PARTIAL,
            "without a user namespace RLIMIT_NPROC counts all processes of the user, not the call's own",
        )
    return FULL, ""


def _lower(kind: int, soft: int, hard: int) -> None:
    _, current = resource.getrlimit(kind)
    if current != resource.RLIM_INFINITY:
        soft, hard = min(soft, current), min(hard, current)
    resource.setrlimit(kind, (soft, hard))
