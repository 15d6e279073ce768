"""Layer `proc`: the call's own /proc, read-only, showing the call's processes and nothing of the kernel or
the host.

`subset=pid` leaves out /proc/sys, keys, kallsyms and the rest; read-only makes /proc/self/mem and
oom_score_adj useless for writing. Where the outer /proc is masked, as containers have it, the kernel refuses
a fresh one (proc(5), mount_too_revealing): then there is no /proc inside, which is safe and said.
"""

from __future__ import annotations

from .. import _uapi_mount as mnt
from . import FULL, PARTIAL, Status

_FLAGS = mnt.MS_NOSUID | mnt.MS_NODEV | mnt.MS_NOEXEC


def mount_for_zygote() -> bool:
    """A /proc of the tool's process namespace; False when the kernel refuses because the outer one is
    masked.
    """
    try:
        mnt.mount("proc", "/proc", "proc", _FLAGS)
    except OSError:
        return False
    return True


def mount_for_call(fresh: bool) -> Status:
    """The call's /proc, over the zygote's."""
    if fresh:
        mnt.mount("proc", "/proc", "proc", _FLAGS | mnt.MS_RDONLY, "subset=pid,hidepid=invisible")
        return FULL, ""
    mnt.mount("tmpfs", "/proc", "tmpfs", _FLAGS | mnt.MS_RDONLY, "size=4k,mode=555")
    return (
        PARTIAL,
        "the outer /proc is masked, so there is none inside; run the container with an unmasked /proc",
    )
