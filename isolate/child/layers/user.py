"""Layer `user`: a user namespace per tool and another per call.

The tool's namespace is entered by a process without any capability and maps exactly one id: 1000 inside. (0
would make the limits on processes void, 65534 is the overflow id and would make every foreign file look like
the tool's own.) The call's own namespace makes RLIMIT_NPROC count that call alone: the kernel counts per user
and per namespace.
"""

from __future__ import annotations

import os

from .. import _uapi_mount, _uapi_proc
from . import FULL, MISSING, PARTIAL, Status

INSIDE = 1000


def write_maps(process: int, inside: int, outside_uid: int, outside_gid: int) -> None:
    """Map one user and one group; `process` is an O_PATH descriptor of /proc/self taken by this very process
    (user_namespaces(7)).
    """
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{inside} {outside_uid} 1"),
        ("gid_map", f"{inside} {outside_gid} 1"),
    ):
        fd = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=process)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)


def open_self() -> int:
    """/proc/self as a descriptor that stays good when /proc is covered."""
    return os.open("/proc/self", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def open_limits() -> int:
    """/proc/sys/user as a descriptor that stays good when /proc is covered; its files are those of the
    namespace that opens them.
    """
    return os.open("/proc/sys/user", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def forbid_more(limits: int) -> Status:
    """No further user namespace below this one: the wall behind seccomp (attack 16).

    namespaces(7), /proc/sys/user.
    """
    try:
        fd = os.open("max_user_namespaces", os.O_WRONLY | os.O_CLOEXEC, dir_fd=limits)
        try:
            os.write(fd, b"0")
        finally:
            os.close(fd)
    except OSError as error:
        return (
            PARTIAL,
            f"max_user_namespaces cannot be set ({error.strerror}): "
            "only seccomp keeps the tool from making more of them",
        )
    return FULL, ""


def become_builder() -> None:
    """An ordinary user's way to mount: a user namespace of our own in which we are root, with our own
    mounts.
    """
    uid, gid = os.getuid(), os.getgid()
    _uapi_proc.unshare(_uapi_proc.CLONE_NEWUSER | _uapi_proc.CLONE_NEWNS)
    write_maps(open_self(), 0, uid, gid)


def become_slot(uid: int) -> None:
    """Root's way: a user id that nobody has, and no capability left, before the tool's namespace is
    entered.
    """
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    # Else /proc/self belongs to root and the maps cannot be written.
    _uapi_proc.prctl(_uapi_proc.PR_SET_DUMPABLE, 1)


def probe() -> Status:
    """Make a user namespace, map it, and use its power: AppArmor on Ubuntu 24.04 lets it be made and then
    refuses the mount.
    """
    try:
        become_builder()
    except OSError as error:
        return MISSING, f"no user namespace: {error.strerror}. {REMEDY}"
    try:
        _uapi_mount.make_private()
        _uapi_mount.mount("tmpfs", "/tmp", "tmpfs", 0, "size=4k")
    except OSError as error:
        return MISSING, f"a user namespace without power (mount: {error.strerror}). {REMEDY}"
    return FULL, ""


REMEDY = (
    "Check /proc/sys/user/max_user_namespaces (0 forbids it) and, on Ubuntu 24.04, "
    "kernel.apparmor_restrict_unprivileged_userns (give the interpreter an AppArmor profile with `userns,`); "
    "in a container the runtime's seccomp profile must allow unshare"
)
