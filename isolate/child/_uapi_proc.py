"""Process, namespace, capability and seccomp calls that Python 3.11 lacks.

Kernel numbers live in `_uapi_*` files and nowhere else. Every function raises OSError with the name of the
call. `PyDLL` keeps the GIL during the call: no other thread may run between an unshare and what depends on
it. Sources: unshare(2), setns(2), prctl(2), capabilities(7), seccomp(2), keyctl(2), close_range(2).
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct

_libc = ctypes.PyDLL(None, use_errno=True)
# Declared once: converting arguments by hand costs several microseconds a call, and a child makes a hundred
# calls.
_libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
_libc.unshare.argtypes = [ctypes.c_int]
_libc.setns.argtypes = [ctypes.c_int, ctypes.c_int]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.capset.argtypes = _libc.capget.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
if hasattr(_libc, "close_range"):  # glibc 2.34
    _libc.close_range.argtypes = [ctypes.c_uint, ctypes.c_uint, ctypes.c_int]
_libc.syscall.argtypes = [ctypes.c_long, *[ctypes.c_void_p] * 6]
_libc.syscall.restype = ctypes.c_long

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_SECUREBITS = 28
PR_CAPBSET_READ = 23
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
# NOROOT, NO_SETUID_FIXUP, KEEP_CAPS off, NO_CAP_AMBIENT_RAISE, each with its lock (capabilities(7),
# securebits).
SECUREBITS_LOCKED = 0b11101111

SECCOMP_SET_MODE_FILTER = 1
SECCOMP_FILTER_FLAG_LOG = 2
SECCOMP_FILTER_FLAG_NEW_LISTENER = 8

_MADV_COLLAPSE = 25
_HUGE = 2 << 20

_AT_FDCWD = -100
_RESOLVE_NO_XDEV, _RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 1, 2, 4, 8
_NOTHING = (None,) * 6
_KEYCTL_JOIN_SESSION_KEYRING = 1
# Made once: what these calls need is in memory that every process writes anyway, or that none has to copy.
_CAPABILITIES = struct.pack("Ii", 0x20080522, 0)  # version 3, this thread
_NO_CAPABILITIES = bytes(24)
_read_back = ctypes.create_string_buffer(24)

# System call numbers per machine; from 424 on they are the same everywhere (asm-generic/unistd.h).
_NUMBERS = {
    "x86_64": {
        "pivot_root": 155,
        "seccomp": 317,
        "keyctl": 250,
        "rt_sigaction": 13,
    },
    "aarch64": {
        "pivot_root": 41,
        "seccomp": 277,
        "keyctl": 219,
        "rt_sigaction": 134,
    },
}
_COMMON = {
    "open_tree": 428,
    "move_mount": 429,
    "close_range": 436,
    "openat2": 437,
    "mount_setattr": 442,
    "landlock_create_ruleset": 444,
    "landlock_add_rule": 445,
    "landlock_restrict_self": 446,
}


@functools.cache
def number(name: str) -> int:
    """The system call number of `name` on this machine.

    Raises OSError(ENOSYS) when the machine is not one we know.
    """
    table = _NUMBERS.get(os.uname().machine)
    found = _COMMON.get(name) if table is None else table.get(name, _COMMON.get(name))
    if found is None:
        raise OSError(38, f"{name}: no system call number known for {os.uname().machine}")
    return found


def checked(result: int, what: str) -> int:
    """`result`, or OSError with errno and the name of the call."""
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def syscall(name: str, *arguments: object) -> int:
    """Raw system call. Integers are passed as 64-bit values, bytes and buffers as pointers."""
    return checked(_libc.syscall(number(name), *arguments, *_NOTHING[len(arguments) :]), name)


def restore_hidden_signals() -> None:
    """The two signals that the C library keeps to itself and that `signal` cannot name: a parent such as make
    can leave them ignored (rt_sigaction(2)).
    """
    for hidden in (32, 33):
        syscall("rt_sigaction", hidden, bytes(32), None, 8)


def fork_bare() -> int:
    """fork(2) without what Python runs after one: for a child that makes a few system calls of ours and no
    more. It spares that child two thirds of the pages that it would copy.
    """
    return checked(_libc.fork(), "fork")


def unshare(flags: int) -> None:
    """unshare(2)."""
    checked(_libc.unshare(flags), f"unshare({flags:#x})")


def setns(fd: int, kind: int) -> None:
    """setns(2)."""
    checked(_libc.setns(fd, kind), "setns")


def prctl(option: int, value: int = 0, extra: int = 0) -> int:
    """prctl(2)."""
    return checked(_libc.prctl(option, value, extra, 0, 0), f"prctl({option})")


def close_from(lowest: int) -> None:
    """Close every descriptor from `lowest` up (close_range(2))."""
    if hasattr(_libc, "close_range"):
        checked(_libc.close_range(lowest, 0xFFFFFFFF, 0), "close_range")
    else:
        syscall("close_range", lowest, 0xFFFFFFFF, 0)


def open_real(path: str) -> int:
    """An O_PATH descriptor of a real path: one that a link leads elsewhere answers ELOOP (openat2(2))."""
    how = struct.pack("QQQ", os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE_NO_SYMLINKS)
    return syscall("openat2", _AT_FDCWD, os.fsencode(path), how, len(how))


def open_beneath(folder: int, path: str, flags: int) -> int:
    """`path` below the directory `folder`, close-on-exec; no link is followed, no mount entered, no ".."
    leads out (openat2(2)). OSError: ELOOP for a link, EXDEV for the rest.
    """
    resolve = _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_XDEV
    how = struct.pack("QQQ", flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0, resolve)
    return syscall("openat2", folder, os.fsencode(path), how, len(how))


def collapse_memory() -> None:
    """Put this process's private memory into huge pages, as far as it fills them: a fork then copies one
    entry of the page table for each instead of 512.

    Sources: madvise(2), MADV_COLLAPSE (Linux 6.1); proc(5), /proc/PID/maps. Where the kernel cannot, all
    stays as it is.
    """
    try:
        with open("/proc/self/maps", encoding="ascii", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        extent, rights, _, _, inode, *name = line.split(maxsplit=5)
        if not rights.startswith("rw-p") or inode != "0" or name not in ([], ["[heap]"]):
            continue
        start, end = (int(part, 16) for part in extent.split("-"))
        start, end = -(-start // _HUGE) * _HUGE, end // _HUGE * _HUGE
        if start < end:
            _libc.madvise(start, end - start, _MADV_COLLAPSE)


def die_with_parent(parent: int) -> None:
    """SIGKILL for us when the parent goes; exit at once when it has gone already.

    The signal follows the *thread* that forked us (prctl(2)), and every change of user id clears it: call it
    after those.
    """
    prctl(PR_SET_PDEATHSIG, 9)
    if os.getppid() != parent:
        os._exit(70)


def drop_bounding_set() -> None:
    """Empty the capability bounding set, so that no exec can ever bring a capability back."""
    drop = _libc.prctl  # forty calls in every child: nothing is done between them
    if any(drop(PR_CAPBSET_DROP, capability, 0, 0, 0) for capability in range(last_capability() + 1)):
        raise OSError(ctypes.get_errno(), "prctl(PR_CAPBSET_DROP)")


@functools.cache
def last_capability() -> int:
    """The last capability this kernel knows; asked once, in the launcher, which still sees /proc/sys."""
    try:
        with open("/proc/sys/kernel/cap_last_cap", encoding="ascii") as file:
            return int(file.read())
    except OSError:
        known = 0
        while known < 64 and _libc.prctl(PR_CAPBSET_READ, known, 0, 0, 0) >= 0:
            known += 1
        return known - 1


def lock_capabilities() -> None:
    """No capability can come back by exec or by a change of user: bounding set empty, securebits locked.

    Needs CAP_SETPCAP.
    """
    drop_bounding_set()
    prctl(PR_SET_SECUREBITS, SECUREBITS_LOCKED)


def drop_capabilities() -> None:
    """Give up every capability of this thread, and read it back. The kernel takes ambient ones out with the
    others (capabilities(7)).
    """
    checked(_libc.capset(_CAPABILITIES, _NO_CAPABILITIES), "capset")
    checked(_libc.capget(_CAPABILITIES, _read_back), "capget")
    if _read_back.raw != _NO_CAPABILITIES:
        raise OSError(1, "capset: capabilities are still there after dropping them")


def join_anonymous_session_keyring() -> None:
    """A fresh session keyring: the host's and the last call's are out of reach (keyctl(2))."""
    syscall("keyctl", _KEYCTL_JOIN_SESSION_KEYRING, None)


class _FilterProgram(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


@functools.cache
def describe_filter(program: bytes) -> tuple[_FilterProgram, object]:
    """A BPF program (8 bytes an instruction) as seccomp(2) takes it, and the memory that it stands in.

    Asked ahead in the launcher: what it makes is then no child's to copy.
    """
    buffer = ctypes.create_string_buffer(program, len(program))
    return _FilterProgram(len(program) // 8, ctypes.addressof(buffer)), buffer


def load_seccomp(program: bytes, flags: int = 0) -> int:
    """Install a BPF program. Returns the listener's descriptor with NEW_LISTENER, else 0."""
    described, _ = describe_filter(program)
    return syscall("seccomp", SECCOMP_SET_MODE_FILTER, flags, ctypes.byref(described))
