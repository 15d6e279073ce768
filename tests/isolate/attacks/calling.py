"""Section B of the catalogue: system calls with a large surface, other ways to make them, devices."""

from __future__ import annotations

import ctypes
import errno
import functools
import mmap
import os
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.isolate.attacks._kernel import (
    CLONE,
    NUMBERS,
    answer,
    answers,
    apart,
    clone,
    opening,
    scratch,
    syscall,
    value_apart,
)
from tests.isolate.attacks._model import ALONE, Table, World, one_of

TABLE = Table()
attack = TABLE.add


# 24, 25, 27, 28, 30 -----------------------------------------------------------------------------------------


@attack(
    24,
    "io-uring",
    caged={
        "setup": "ENOSYS",
        "enter": "ENOSYS",
        "register": "ENOSYS",
    },  # libraries probe for it and fall back
    control={"setup": "ok", "enter": "EBADF", "register": "EBADF"},
    control_as="user",
    first=ALONE,
    walls={"without-seccomp": {"setup": "ok", "enter": "EBADF", "register": "EBADF"}},
)
def io_uring(world: World) -> dict[str, str]:
    """Opens files and sockets behind the filter's back."""
    return answers(
        {
            "setup": lambda: syscall("io_uring_setup", 1, ctypes.create_string_buffer(120)),
            "enter": lambda: syscall("io_uring_enter", 9999, 0, 0, 0, None, 0),
            "register": lambda: syscall("io_uring_register", 9999, 0, None, 0),
        }
    )


@attack(
    25,
    "userfaultfd-secret-splice",
    caged={"userfaultfd": "EPERM", "userfaultfd user mode": "EPERM", "memfd_secret": "EPERM",
           "vmsplice": "EPERM"},
    control={"userfaultfd": "ok", "userfaultfd user mode": "ok", "memfd_secret": one_of("ok", "ENOSYS"),
             "vmsplice": "EBADF"},
    first=ALONE,
    walls={
        "without-seccomp": {
            "userfaultfd": "EPERM", "userfaultfd user mode": "ok", "memfd_secret": one_of("ok", "ENOSYS"),
            "vmsplice": "EBADF",
        }
    },
)  # fmt: skip
def userfaultfd_secret_splice(world: World) -> dict[str, str]:
    """Aids of kernel exploits, and memory that nobody can look into."""
    return answers(
        {
            "userfaultfd": lambda: syscall("userfaultfd", 0),
            "userfaultfd user mode": lambda: syscall("userfaultfd", 1),
            "memfd_secret": lambda: syscall("memfd_secret", 0),
            "vmsplice": lambda: syscall("vmsplice", 9999, None, 0, 0),
        }
    )


@attack(
    27,
    "x32-numbers",
    caged={"getpid": "ENOSYS", "execve": "ENOSYS"},
    no_control="this kernel has no x32",
    first="seccomp",
)
def x32_numbers(world: World) -> dict[str, str]:
    """The same calls under other numbers."""
    return answers(
        {
            "getpid": lambda: syscall(0x40000000 | NUMBERS["getpid"]),
            "execve": lambda: syscall(0x40000000 | 520, None, None, None),
        }
    )


_UNKNOWN = (471, 480, 500, 600, 1023, 9999, 0x3FFFFFFF)


@attack(
    28,
    "unknown-numbers",
    caged={**{str(n): "ENOSYS" for n in _UNKNOWN}, "468": "ENOSYS", "470": "ENOSYS", "fchmodat2": "ok",
           "faccessat2": "ok"},
    control={**{str(n): "ENOSYS" for n in _UNKNOWN}, "468": one_of("EFAULT", "EINVAL", "ENOSYS"),
             "470": one_of("EFAULT", "EINVAL", "ENOSYS"),
             "fchmodat2": "ok", "faccessat2": "ok"},
    control_as="user",
    first="seccomp",
    walls={"without-seccomp": {**{str(n): "ENOSYS" for n in _UNKNOWN}, "468": one_of("EFAULT", "EINVAL",
    "ENOSYS"),
                               "470": one_of("EFAULT", "EINVAL", "ENOSYS"), "fchmodat2": "ok",
                               "faccessat2": "ok"}},
)  # fmt: skip
def unknown_numbers(world: World) -> dict[str, str]:
    """ENOSYS and never EPERM, so that libraries fall back; and what they do use of the newer ones works."""
    path = f"{scratch(world)}/mode-{os.getpid()}"
    with open(path, "wb"):
        pass
    try:
        found = answers(
            {str(number): functools.partial(syscall, number, 0, 0, 0, 0) for number in (*_UNKNOWN, 468, 470)}
        )
        found["fchmodat2"] = answer(lambda: syscall("fchmodat2", -100, path.encode(), 0o600, 0))
        found["faccessat2"] = answer(lambda: syscall("faccessat2", -100, path.encode(), os.R_OK, 0x200))
    finally:
        os.unlink(path)
    return found


@attack(
    30,
    "personality-and-segments",
    caged={"no randomisation": "EPERM", "read implies exec": "EPERM", "query": "ok", "ldt": "EPERM"},
    control={
        "no randomisation": "ok",
        "read implies exec": "ok",
        "query": "ok",
        "ldt": one_of("ok", "ENOSYS", "EINVAL"),
    },
    control_as="user",
    first=ALONE,
    walls={
        "without-seccomp": {
            "no randomisation": "ok",
            "read implies exec": "ok",
            "query": "ok",
            "ldt": one_of("ok", "ENOSYS", "EINVAL"),
        }
    },
)
def personality_and_segments(world: World) -> dict[str, str]:
    """Switch the machine's own defences off for the next program."""
    return answers(
        {
            "no randomisation": lambda: syscall("personality", 0x0040000),
            "read implies exec": lambda: syscall("personality", 0x0400000),
            "query": lambda: syscall("personality", 0xFFFFFFFF),
            "ldt": lambda: syscall("modify_ldt", 1, struct.pack("IIII", 0, 0, 0, 0b1), 16),
        }
    )


# 26, 29 -----------------------------------------------------------------------------------------------------


_MADE: list[mmap.mmap] = []


def _machine_code(code: bytes) -> Any:
    memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    memory.write(code)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    function = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_long, ctypes.c_long, ctypes.c_long, ctypes.c_long)(
        address
    )
    _MADE.append(memory)  # the code must stay where it is
    return function


@attack(
    26,
    "32-bit-entry",
    caged={"int 0x80": "SIGSYS"},
    control={"int 0x80": "ok"},
    control_as="user",
    first=ALONE,
    walls={"without-seccomp": {"int 0x80": "ok"}},
)
def entry_of_32_bit(world: World) -> dict[str, str]:
    """int 0x80 counts by another table: getpid is 20 there, and what a filter refuses has other numbers."""

    def step() -> None:
        get_pid = _machine_code(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20; int 0x80; ret
        if get_pid(0, 0, 0, 0) != os.getpid():
            raise OSError(errno.EINVAL, "another answer")

    return {"int 0x80": apart(step)}


@attack(
    29,
    "direct-calls",
    caged={"unshare": -errno.EPERM, "ptrace": -errno.EPERM, "mount": -errno.EPERM, "keyctl": -errno.EPERM,
           "socket": -errno.EAFNOSUPPORT,
           "clone3": -errno.ENOSYS},
    control={"unshare": 0, "ptrace": 0, "mount": 0, "keyctl": 1, "socket": 1, "clone3": -errno.EINVAL},
    first="seccomp",
    walls={
        "without-seccomp": {"unshare": -errno.ENOSPC, "ptrace": -errno.ESRCH, "mount": -errno.EPERM,
                            "keyctl": 1, "socket": 1,
                            "clone3": -errno.EINVAL},
    },
)  # fmt: skip
def direct_calls(world: World) -> dict[str, int]:
    """Machine code of one's own instead of the C library: the kernel answers, not Python."""
    code = bytes.fromhex("4889f84889f74889d64889ca4d31d24d31c04d31c90f05c3")
    # mov rax, rdi; mov rdi, rsi; mov rsi, rdx; mov rdx, rcx; xor r10, r8, r9; syscall; ret

    def attempt(name: str, *arguments: int) -> int:
        def step() -> int:
            if name == "mount":
                try:
                    syscall("unshare", CLONE["mount"])
                    syscall("mount", None, b"/", None, 0x44000, None)
                except OSError:
                    pass
            padded = (*arguments, 0, 0, 0)[:3]
            return int(_machine_code(code)(NUMBERS[name], *padded))

        answered: int = value_apart(step)
        return min(answered, 1)

    texts = [
        ctypes.create_string_buffer(b"t"),
        ctypes.create_string_buffer(b"/tmp"),
        ctypes.create_string_buffer(b"tmpfs"),
    ]
    where = [ctypes.addressof(text) for text in texts]
    return {
        "unshare": attempt("unshare", CLONE["user"]),
        "ptrace": attempt("ptrace", 16, world["victim_pid"]),
        "mount": attempt("mount", *where),
        "keyctl": attempt("keyctl", 0, -3, 0),
        "socket": attempt("socket", 16, 3, 0),
        "clone3": attempt("clone3", 0, 0),
    }


# 31, 32 -----------------------------------------------------------------------------------------------------

_TIOCSTI, _TIOCLINUX, _TIOCSCTTY = 0x5412, 0x541C, 0x540E


@attack(
    31,
    "terminal-injection",
    caged={"TIOCSTI": "EPERM", "TIOCSTI high bits": "EPERM", "TIOCLINUX": "EPERM", "/dev/tty": "ENOENT",
           "/dev/ptmx": "ENOENT",
           "socket high bits": "EAFNOSUPPORT", "clone high bits": "EPERM"},
    control={"TIOCSTI": "ok", "TIOCSTI high bits": "ok", "TIOCLINUX": one_of("EINVAL", "ENOTTY"),
             "/dev/tty": "ENXIO", "/dev/ptmx": "ok",
             "socket high bits": "ok", "clone high bits": "ok"},
    first="seccomp",
    walls={
        # No terminal to inject into; the kernel itself takes 32 bits of the family.
        "without-seccomp": {"TIOCSTI": "ENOTTY", "TIOCSTI high bits": "ENOTTY", "TIOCLINUX": "ENOTTY",
                            "/dev/tty": "ENOENT",
                            "/dev/ptmx": "ENOENT", "socket high bits": "ok", "clone high bits": "ENOSPC"},
        "without-namespaces": {"TIOCSTI": "EPERM", "TIOCSTI high bits": "EPERM", "TIOCLINUX": "EPERM",
                               "/dev/tty": one_of("ENXIO", "EACCES"),
                               "/dev/ptmx": one_of("ok", "EACCES"), "socket high bits": "EAFNOSUPPORT",
                               "clone high bits": "EPERM"},
    },
)  # fmt: skip
def terminal_injection(world: World) -> dict[str, str]:
    """Put characters into a terminal's input; the same with high bits set, which the kernel ignores
    (CVE-2019-10063).
    """

    def inject(request: int) -> Callable[[], object]:
        def step() -> None:
            fd = 0
            try:
                os.setsid()
                _, fd = os.openpty()
                syscall("ioctl", fd, _TIOCSCTTY, 0)
            except OSError:
                pass
            syscall("ioctl", fd, request, ctypes.create_string_buffer(b"\x0c"))

        return step

    return {
        **answers(
            {
                "TIOCSTI": inject(_TIOCSTI),
                "TIOCSTI high bits": inject(_TIOCSTI | 1 << 32),
                "TIOCLINUX": inject(_TIOCLINUX),
                "socket high bits": lambda: syscall("socket", 40 + 2**32, 1, 0),
                "clone high bits": lambda: clone(CLONE["user"] | 1 << 33),
            }
        ),
        "/dev/tty": opening("/dev/tty", os.O_RDWR),
        "/dev/ptmx": opening("/dev/ptmx", os.O_WRONLY),
    }


@attack(
    31,
    "terminal-of-run",
    caged={
        "outcome": "ok",
        "terminal": "True",
        "TIOCSTI": "EPERM",
        "high bits": "EPERM",
        "TIOCLINUX": "EPERM",
    },
    no_control="`terminal-injection` injects into a terminal outside",
    first="seccomp",
    only=("root", "user", "root-without-namespaces", "user-without-namespaces"),
    host="terminal_of_run",
)
def terminal_of_run(world: World) -> None:
    """A program that was given the operator's own terminal must not type on it. (The driver runs it as a
    command.)
    """


_DEVICES = (
    "/dev/kvm",
    "/dev/fuse",
    "/dev/net/tun",
    "/dev/kmsg",
    "/dev/vsock",
    "/dev/mem",
    "/dev/vda",
    "/dev/console",
)


@attack(
    32,
    "devices",
    caged={"block": "EPERM", "char": "EPERM", "use": "ENOENT", **dict.fromkeys(_DEVICES, "ENOENT"),
           "/dev/null": "ok"},
    control={"block": "ok", "char": "ok", "use": "ok", **dict.fromkeys(_DEVICES, one_of("ok", "ENOENT",
    "ENODEV", "EPERM", "EIO")), "/dev/kmsg": "ok",
             "/dev/null": "ok"},
    first="mount",
    walls={
        "without-landlock": {"block": "EPERM", "char": "EPERM", "use": "ENOENT", **dict.fromkeys(_DEVICES,
        "ENOENT"), "/dev/null": "ok"},
        "without-namespaces": {"block": "EPERM", "char": "EPERM", "use": "ENOENT", **dict.fromkeys(_DEVICES,
        one_of("EACCES", "ENOENT")),
                               "/dev/null": "ok"},
    },
)  # fmt: skip
def devices(world: World) -> dict[str, str]:
    """Make a device, and open those of the machine."""
    node = f"{scratch(world)}/node-{os.getpid()}"
    found = {
        "block": answer(lambda: os.mknod(f"{node}-b", stat.S_IFBLK | 0o666, os.makedev(8, 0))),
        "char": answer(lambda: os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(1, 3))),
        "use": opening(node),
    }
    for path in (f"{node}-b", node):
        Path(path).unlink(missing_ok=True)
    return {
        **found,
        **{path: opening(path, os.O_RDWR) for path in _DEVICES},
        "/dev/null": opening("/dev/null", os.O_RDWR),
    }
