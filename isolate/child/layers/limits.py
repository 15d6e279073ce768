"""Layer `rlimits`: per-process limits, set hard so that nothing inside can raise them (getrlimit(2))."""

from __future__ import annotations

import resource
from typing import Any

from . import FULL, PARTIAL, Status

_FIXED = {
    resource.RLIMIT_CORE: 0,  # a core dump could carry a credential to a handler outside the cage
    resource.RLIMIT_MEMLOCK: 64 * 1024,
    resource.RLIMIT_MSGQUEUE: 0,
    resource.RLIMIT_NICE: 0,
    resource.RLIMIT_RTPRIO: 0,
}
_NAMES = {
    "cpu_s": resource.RLIMIT_CPU,
    "processes": resource.RLIMIT_NPROC,
    "file_bytes": resource.RLIMIT_FSIZE,
    "descriptors": resource.RLIMIT_NOFILE,
    "data_bytes": resource.RLIMIT_DATA,
    "stack_bytes": resource.RLIMIT_STACK,
}


def apply(limits: dict[str, Any]) -> Status:
    """Set every limit of the plan; one that is already lower stays as it is (root may not raise limits
    everywhere).
    """
    for key, kind in _NAMES.items():
        if limits.get(key) is not None:
            wanted = int(limits[key])
            # One second more in the hard CPU limit: SIGXCPU first, SIGKILL for whoever ignores it.
            _lower(kind, wanted, wanted + 1 if key == "cpu_s" else wanted)
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
