"""Section B of the catalogue, first half: getting out or up, by system calls and sockets."""

from __future__ import annotations

import ctypes
import errno
import functools
import mmap
import os
import socket
import stat
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.isolate.attacks._kernel import (
    NUMBERS,
    answer,
    answers,
    apart,
    opening,
    scratch,
    syscall,
    value_apart,
)
from tests.isolate.attacks._model import Table, World, one_of

TABLE = Table()
attack = TABLE.add

CLONE = {
    "user": 0x10000000,
    "mount": 0x20000,
    "pid": 0x20000000,
    "net": 0x40000000,
    "ipc": 0x8000000,
    "uts": 0x4000000,
    "cgroup": 0x2000000,
    "time": 0x80,
}
SIGCHLD = 17
ALONE = "seccomp"
"""No second wall stands behind the filter: the host must refuse a child without one (`test_refused`)."""


def _clone(flags: int) -> None:
    pid = syscall("clone", flags | SIGCHLD, None, None, None, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


# 16, 17, 18 -------------------------------------------------------------------------------------------------

_CLOSED = one_of("EPERM", "ENOSPC")


@attack(
    16,
    "new-user-namespace",
    caged={"unshare": "EPERM", "clone": "EPERM", "clone high bits": "EPERM"},
    control={"unshare": "ok", "clone": "ok", "clone high bits": "ok"},
    control_as="user",
    first="seccomp",
    # max_user_namespaces is 0 in the call's own user namespace.
    walls={"without-seccomp": {"unshare": "ENOSPC", "clone": "ENOSPC", "clone high bits": "ENOSPC"}},
)
def new_user_namespace(world: World) -> dict[str, str]:
    """A user namespace would bring every capability back, over itself."""
    return answers(
        {
            "unshare": lambda: syscall("unshare", CLONE["user"]),
            "clone": lambda: _clone(CLONE["user"]),
            "clone high bits": lambda: _clone(CLONE["user"] | 1 << 32),
        }
    )


@attack(
    17,
    "clone3",
    caged={"clone3": "ENOSYS", "clone3 plain": "ENOSYS", "thread": "ok"},
    control={"clone3": "ok", "clone3 plain": "ok", "thread": "ok"},
    control_as="user",
    first="seccomp",
    walls={"without-seccomp": {"clone3": "ENOSPC", "clone3 plain": "ok", "thread": "ok"}},
)
def clone3(world: World) -> dict[str, str]:
    """clone3 keeps its flags in memory, where a filter cannot see them. Threads must work without it."""

    def new(flags: int) -> None:
        arguments = struct.pack("11Q", flags, 0, 0, 0, SIGCHLD, 0, 0, 0, 0, 0, 0)
        pid = syscall("clone3", arguments, len(arguments))
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    def thread() -> None:
        done: list[int] = []
        worker = threading.Thread(target=lambda: done.append(1))
        worker.start()
        worker.join()
        if done != [1]:
            raise OSError(errno.EAGAIN, "the thread did not run")

    return answers({"clone3": lambda: new(CLONE["user"]), "clone3 plain": lambda: new(0), "thread": thread})


_OTHERS = ("mount", "pid", "net", "ipc", "uts", "cgroup", "time")
_JOINS = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")


@attack(
    18,
    "other-namespaces",
    caged={
        **{f"unshare {n}": "EPERM" for n in _OTHERS},
        **{f"setns {n}": "EPERM" for n in _JOINS},
        "setns pidfd": "EPERM",
    },
    control={
        **{f"unshare {n}": "ok" for n in _OTHERS},
        **{f"setns {n}": one_of("ok", "EINVAL") for n in _JOINS},
        "setns pidfd": "ok",
    },
    first="seccomp",
    # No capability: the same answer, but for joining the user namespace one is in, which is EINVAL for
    # everybody.
    walls={
        "without-seccomp": {
            **{f"unshare {n}": "EPERM" for n in _OTHERS},
            **{f"setns {n}": "EPERM" for n in _JOINS},
            "setns user": "EINVAL",
            "setns pidfd": "EPERM",
        }
    },
)
def other_namespaces(world: World) -> dict[str, str]:
    """Every other kind, made and joined."""

    def join(name: str) -> None:
        fd = os.open(f"/proc/self/ns/{name}", os.O_RDONLY)
        syscall("setns", fd, 0)

    steps: dict[str, Callable[[], object]] = {
        f"unshare {name}": functools.partial(syscall, "unshare", CLONE[name]) for name in _OTHERS
    }
    steps |= {f"setns {name}": functools.partial(join, name) for name in _JOINS}
    steps["setns pidfd"] = lambda: syscall("setns", os.pidfd_open(os.getpid()), CLONE["net"])
    return answers(steps)


# 19, 20, 33 -------------------------------------------------------------------------------------------------

_MOUNT_CALLS = (
    "mount bind", "mount move", "umount", "pivot_root", "chroot", "open_tree", "move_mount", "mount_setattr",
    "fsopen", "fspick",
)  # fmt: skip


def _in_new_mounts(step: Callable[[], object]) -> Callable[[], object]:
    """The control must not change the machine it runs on: outside, a private mount namespace comes
    first; inside it is refused.
    """

    def run() -> None:
        try:
            syscall("unshare", CLONE["mount"])
            syscall("mount", None, b"/", None, 0x44000, None)
        except OSError:
            pass
        step()

    return run


@attack(
    19,
    "mount-family",
    caged=dict.fromkeys(_MOUNT_CALLS, "EPERM"),
    control=dict.fromkeys(_MOUNT_CALLS, "ok")
    | {"mount move": one_of("ok", "EINVAL"), "pivot_root": one_of("ok", "EINVAL", "EBUSY")},
    first="seccomp",
    # No capability and Landlock.
    walls={
        "without-seccomp": dict.fromkeys(_MOUNT_CALLS, "EPERM")
        | {"move_mount": one_of("EPERM", "EBADF", "EINVAL")}
    },
)
def mount_family(world: World) -> dict[str, str]:
    """Every call that changes what a path means, old and new."""

    def tree() -> int:
        return syscall("open_tree", -100, b"/tmp", 1 | os.O_CLOEXEC)

    def move() -> None:
        try:
            fd = tree()
        except OSError:
            fd = os.open("/tmp", os.O_PATH)
        syscall("move_mount", fd, b"", -100, b"/tmp", 4)

    def pivot() -> None:
        try:
            syscall("mount", b"t", b"/tmp", b"tmpfs", 0, None)
        except OSError:
            pass
        os.chdir("/tmp")
        syscall("pivot_root", b".", b".")

    def attributes() -> None:
        syscall("mount_setattr", -100, b"/", 0, struct.pack("4Q", 0, 1, 0, 0), 32)

    def unmount() -> None:
        try:
            syscall("mount", b"t", b"/tmp", b"tmpfs", 0, None)
        except OSError:
            pass
        syscall("umount2", b"/tmp", 2)

    steps = {
        "mount bind": lambda: syscall("mount", b"/usr", b"/tmp", None, 4096, None),
        "mount move": lambda: syscall("mount", b"/tmp", b"/usr", None, 8192, None),
        "umount": unmount,
        "pivot_root": pivot,
        "chroot": lambda: syscall("chroot", b"/tmp"),
        "open_tree": tree,
        "move_mount": move,
        "mount_setattr": attributes,
        "fsopen": lambda: syscall("fsopen", b"tmpfs", 0),
        "fspick": lambda: syscall("fspick", -100, b"/", 0),
    }
    return answers({name: _in_new_mounts(step) for name, step in steps.items()})


@attack(
    20,
    "undo-read-only",
    caged={"remount /usr": "EPERM", "remount /": "EPERM", "write /usr": "EROFS", "write /": "EROFS",
           "clear flags": "EPERM"},
    control={"remount /usr": one_of("ok", "EINVAL"), "remount /": "ok", "write /usr": "ok", "write /": "ok",
             "clear flags": "ok"},
    first="seccomp",
    walls={
        "without-seccomp": {
            "remount /usr": "EPERM", "remount /": "EPERM", "write /usr": "EROFS", "write /": "EROFS",
            "clear flags": "EPERM",
        },
        "without-namespaces": {
            "remount /usr": "EPERM", "remount /": "EPERM", "write /usr": "EACCES", "write /": "EACCES",
            "clear flags": "EPERM",
        },
    },
)  # fmt: skip
def undo_read_only(world: World) -> dict[str, str]:
    """Make the view writable, then write to it."""
    remount = 32 | 4096

    def write(folder: str) -> Callable[[], object]:
        def step() -> None:
            path = f"{folder}/fumehood-was-here-{os.getpid()}"
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
            os.unlink(path)

        return step

    return answers(
        {
            "remount /usr": _in_new_mounts(lambda: syscall("mount", b"none", b"/usr", None, remount, None)),
            "remount /": _in_new_mounts(lambda: syscall("mount", b"none", b"/", None, remount, None)),
            "clear flags": _in_new_mounts(
                lambda: syscall("mount_setattr", -100, b"/", 0x8000, struct.pack("4Q", 0, 1, 0, 0), 32)
            ),
            "write /usr": write("/usr"),
            "write /": write(""),
        }
    )


@attack(
    33,
    "own-filesystem",
    caged={"fuse": "ENOENT", "overlay": "EPERM", "tmpfs": "EPERM", "proc": "EPERM"},
    control={
        "fuse": one_of("ok", "ENOENT", "ENODEV"),
        "overlay": one_of("ok", "ENODEV"),
        "tmpfs": "ok",
        "proc": "ok",
    },
    first="seccomp",
    walls={
        "without-namespaces": {
            "fuse": one_of("EACCES", "ENOENT"),
            "overlay": "EPERM",
            "tmpfs": "EPERM",
            "proc": "EPERM",
        }
    },
)
def own_filesystem(world: World) -> dict[str, str]:
    """A file system whose answers the attacker makes."""

    def overlay() -> None:
        base = f"{scratch(world)}/overlay-{os.getpid()}"
        for name in ("lower", "upper", "work"):
            os.makedirs(f"{base}/{name}", exist_ok=True)
        syscall("mount", b"t", base.encode(), b"tmpfs", 0, None)
        for name in ("lower", "upper", "work"):
            os.makedirs(f"{base}/{name}", exist_ok=True)
        options = f"lowerdir={base}/lower,upperdir={base}/upper,workdir={base}/work"
        syscall("mount", b"o", base.encode(), b"overlay", 0, options.encode())

    return {
        "fuse": opening("/dev/fuse", os.O_RDWR),
        **answers(
            {
                "overlay": _in_new_mounts(overlay),
                "tmpfs": _in_new_mounts(lambda: syscall("mount", b"t", b"/tmp", b"tmpfs", 0, None)),
                "proc": _in_new_mounts(lambda: syscall("mount", b"p", b"/tmp", b"proc", 0, None)),
            }
        ),
    }


# 21 ---------------------------------------------------------------------------------------------------------


def _setuid_program(world: World) -> dict[str, Any]:
    """Whether a set-user-id program, in place and copied, runs as somebody else."""
    program = next(
        (
            p
            for p in ("/usr/bin/passwd", "/usr/bin/su", "/usr/bin/chsh", "/usr/bin/newgrp")
            if os.path.exists(p)
        ),
        None,
    )
    if program is None:
        return {"runs as another": False}
    with subprocess.Popen(
        [program], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        changed = False
        for _ in range(200):
            try:
                with open(f"/proc/{process.pid}/status", encoding="utf-8") as file:
                    uids = next(line for line in file if line.startswith("Uid:")).split()[1:]
            except (OSError, StopIteration):
                break
            if set(uids) != {str(os.getuid())}:
                changed = True
                break
            if process.poll() is not None:
                break
            time.sleep(0.001)
        process.kill()
    return {"runs as another": changed}


@attack(
    21,
    "set-user-id-program",
    caged={"runs as another": False},
    control={"runs as another": True},
    control_as="user",
    first="no-new-privs",
)
def set_user_id_program(world: World) -> dict[str, Any]:
    """Exec a program that is set-user-id root."""
    return _setuid_program(world)


@attack(
    21,
    "regain-ids-and-capabilities",
    # Only one id is mapped, so that 0 is not even a valid one inside.
    caged={"setuid": "EINVAL", "setresuid": "EINVAL", "setgid": "EINVAL", "setgroups": "EPERM",
           "capset": "EPERM", "ambient": "EPERM",
           "securebits": "EPERM", "chmod own": "ok", "effective": "0000000000000000",
           "bounding": "0000000000000000"},
    control={"setuid": "ok", "setresuid": "ok", "setgid": "ok", "setgroups": "ok", "capset": "ok",
             "ambient": "ok", "securebits": "ok",
             "chmod own": "ok", "effective": one_of("never"), "bounding": one_of("never")},
    first="capabilities",
    # An ordinary user cannot empty the bounding set where there is no namespace; no_new_privs keeps it
    # without effect.
    walls={
        "root-without-namespaces": {
            "setuid": "EPERM", "setresuid": "EPERM", "setgid": "EPERM", "setgroups": "EPERM",
            "capset": "EPERM", "ambient": "EPERM",
            "securebits": "EPERM", "chmod own": "ok", "effective": "0000000000000000",
            "bounding": "0000000000000000",
        },
        "user-without-namespaces": {
            "setuid": "EPERM", "setresuid": "EPERM", "setgid": "EPERM", "setgroups": "EPERM",
            "capset": "EPERM", "ambient": "EPERM",
            "securebits": "EPERM", "chmod own": "ok", "effective": "0000000000000000", "bounding": "full",
        },
    },
)  # fmt: skip
def regain_ids_and_capabilities(world: World) -> dict[str, str]:
    """Ask for ids, capabilities and their levers back."""

    def own_file() -> None:
        path = f"{scratch(world)}/own-{os.getpid()}"
        with open(path, "wb"):
            pass
        os.chmod(path, 0o4755)
        os.unlink(path)

    def capset() -> None:
        syscall("capset", struct.pack("Ii", 0x20080522, 0), struct.pack("6I", 1, 1, 0, 0, 0, 0))

    def ambient() -> None:
        if os.getuid() == 0:
            syscall("capset", struct.pack("Ii", 0x20080522, 0), struct.pack("6I", 1, 1, 1, 0, 0, 0))
        syscall("prctl", 47, 2, 0, 0, 0)

    with open("/proc/self/status", encoding="utf-8") as file:
        lines = dict(line.split(":", 1) for line in file if line.startswith("Cap"))
    sets = {name: lines[key].strip() for name, key in (("effective", "CapEff"), ("bounding", "CapBnd"))}
    if os.getuid() == 0:
        sets = dict.fromkeys(sets, "never")
    elif int(sets["bounding"], 16):
        sets["bounding"] = "full"
    return {
        **answers(
            {
                "setuid": lambda: syscall("setuid", 0),
                "setresuid": lambda: syscall("setresuid", 0, 0, 0),
                "setgid": lambda: syscall(106, 0),
                "setgroups": lambda: os.setgroups([]),
                "capset": capset,
                "ambient": ambient,
                "securebits": lambda: syscall("prctl", 28, 0, 0, 0, 0),
                "chmod own": own_file,
            }
        ),
        **sets,
    }


# 22, 23 -----------------------------------------------------------------------------------------------------


@attack(
    22,
    "file-handles",
    caged={"name_to_handle_at": "EPERM", "open_by_handle_at": "EPERM", "fanotify": "EPERM"},
    control={"name_to_handle_at": "ok", "open_by_handle_at": one_of("ok", "ESTALE"), "fanotify": "ok"},
    first="seccomp",
    # CAP_DAC_READ_SEARCH opens handles; naming one is free. fanotify watches only what one could watch
    # anyway.
    walls={
        "without-seccomp": {
            "name_to_handle_at": one_of("ok", "EOPNOTSUPP"),
            "open_by_handle_at": "EPERM",
            "fanotify": "EPERM",
        }
    },
)
def file_handles(world: World) -> dict[str, str]:
    """The old way out of containers: a handle of a file that the view does not show."""

    def handle_of(path: bytes) -> ctypes.Array[ctypes.c_char]:
        handle = ctypes.create_string_buffer(8 + 128)
        struct.pack_into("I", handle, 0, 128)
        mount_id = ctypes.c_int()
        syscall("name_to_handle_at", -100, path, handle, ctypes.byref(mount_id), 0)
        return handle

    def open_root() -> None:
        try:
            handle = handle_of(b"/usr")
        except OSError:
            handle = ctypes.create_string_buffer(struct.pack("Ii", 8, 1) + struct.pack("II", 2, 0), 136)
        root = os.open("/usr", os.O_RDONLY)
        os.close(syscall("open_by_handle_at", root, handle, os.O_RDONLY))

    return answers(
        {
            "name_to_handle_at": lambda: handle_of(b"/usr"),
            "open_by_handle_at": open_root,
            "fanotify": lambda: syscall("fanotify_init", 0, 0),
        }
    )


_MACHINE_CALLS = (
    "reboot", "swapon", "swapoff", "acct", "quotactl", "iopl", "ioperm", "settimeofday", "clock_settime",
    "adjtimex", "sethostname",
    "setdomainname",
)  # fmt: skip


@attack(
    23,
    "the-machine",
    caged=dict.fromkeys(_MACHINE_CALLS, "EPERM"),
    # Past the check of the permission, each call is given nothing to do.
    control={
        "reboot": "ok", "swapon": "EISDIR", "swapoff": "EISDIR", "acct": one_of("ok", "ENOSYS"),
        "quotactl": one_of("ok", "ENOSYS", "ESRCH"),
        "iopl": one_of("ok", "ENOSYS"), "ioperm": one_of("ok", "ENOSYS"), "settimeofday": "ok",
        "clock_settime": "EINVAL", "adjtimex": "EINVAL", "sethostname": "ok",
        "setdomainname": "ok",
    },
    first="seccomp",
    # No capability. quotactl's Q_SYNC needs none, and a time that is none is told before the right is asked
    # for.
    walls={
        "without-seccomp": dict.fromkeys(_MACHINE_CALLS, "EPERM")
        | {"quotactl": one_of("ok", "ENOSYS", "ESRCH"), "clock_settime": one_of("EPERM", "EINVAL")}
        | dict.fromkeys(("iopl", "ioperm"), one_of("EPERM", "ENOSYS")),
    },
)  # fmt: skip
def the_machine(world: World) -> dict[str, str]:
    """Reboot, swap, accounting, quotas, hardware ports, clock and name of the machine."""

    def name(call: str, read: Callable[[], str]) -> Callable[[], object]:
        def step() -> None:
            try:
                syscall("unshare", CLONE["uts"])
            except OSError:
                pass
            text = read().encode()
            syscall(call, text, len(text))

        return step

    return answers(
        {
            "reboot": lambda: syscall(
                "reboot", 0xFEE1DEAD, 672274793, 0
            ),  # CAD_OFF: keeps Ctrl-Alt-Del from rebooting
            "swapon": lambda: syscall("swapon", b"/usr", 0),
            "swapoff": lambda: syscall("swapoff", b"/usr"),
            "acct": lambda: syscall("acct", None),
            "quotactl": lambda: syscall("quotactl", 0x80000100, None, 0, None),
            "iopl": lambda: syscall("iopl", 3),
            "ioperm": lambda: syscall("ioperm", 0x80, 1, 1),
            "settimeofday": lambda: syscall("settimeofday", None, None),
            "clock_settime": lambda: syscall("clock_settime", 0, struct.pack("qq", -1, -1)),
            "adjtimex": lambda: syscall("adjtimex", struct.pack("I", 0x4000) + bytes(204)),
            "sethostname": name("sethostname", socket.gethostname),
            "setdomainname": name("setdomainname", lambda: "(none)"),
        }
    )


@attack(
    23,
    "modules-and-kexec",
    caged=dict.fromkeys(
        ("init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load"), "EPERM"
    ),
    no_control="this kernel has neither modules nor kexec",
    first="seccomp",
    walls={
        "without-seccomp": dict.fromkeys(
            ("init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load"),
            one_of("EPERM", "ENOSYS"),
        )
    },
)
def modules_and_kexec(world: World) -> dict[str, str]:
    """Code for the kernel, and another kernel."""
    return answers(
        {
            "init_module": lambda: syscall("init_module", b"x", 1, b""),
            "finit_module": lambda: syscall("finit_module", 0, b"", 0),
            "delete_module": lambda: syscall("delete_module", b"x", 0),
            "kexec_load": lambda: syscall("kexec_load", 0, 0, None, 0),
            "kexec_file_load": lambda: syscall("kexec_file_load", 0, 0, 0, None, 0),
        }
    )


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
                "clone high bits": lambda: _clone(CLONE["user"] | 1 << 33),
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


# 35, 36, 37 -------------------------------------------------------------------------------------------------


def _socket(*given: int) -> None:
    os.close(syscall("socket", *given))


_FAMILIES = {
    "netlink": (16, 3, 0),
    "packet": (17, 3, 0),
    "vsock": (40, 1, 0),
    "alg": (38, 5, 0),
    "xdp": (44, 3, 0),
    "bluetooth": (31, 3, 1),
}
_KINDS = {
    "raw": (2, 3, 1), "raw six": (10, 3, 58), "raw cloexec": (2, 3 | 0o2000000, 1), "packet type": (2, 10, 0),
    "sctp": (2, 1, 132),
    "mptcp": (2, 1, 262), "mptcp six": (10, 1, 262), "dccp": (2, 6, 33),
}  # fmt: skip


@attack(
    35,
    "other-sockets",
    caged={**dict.fromkeys(_FAMILIES, "EAFNOSUPPORT"), "raw": "EPERM", "raw six": "EPERM",
           "raw cloexec": "EPERM", "packet type": "EPERM",
           "sctp": one_of("EPROTONOSUPPORT", "EPERM"), "mptcp": "EPERM", "mptcp six": "EPERM",
           "dccp": one_of("ESOCKTNOSUPPORT", "EPROTONOSUPPORT", "EPERM"), "pair": "EAFNOSUPPORT"},
    control={**dict.fromkeys(_FAMILIES, one_of("ok", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT")),
             "netlink": "ok", "packet": "ok",
             "vsock": "ok", "raw": "ok", "raw six": "ok", "raw cloexec": "ok", "packet type": "ok",
             "sctp": one_of("ok", "EPROTONOSUPPORT"),
             "mptcp": one_of("ok", "EPROTONOSUPPORT"), "mptcp six": one_of("ok", "EPROTONOSUPPORT"),
             "dccp": one_of("ok", "ESOCKTNOSUPPORT", "EPROTONOSUPPORT"), "pair": one_of("ENOTSUP",
             "EPROTONOSUPPORT")},
    first="seccomp",
    walls={
        # The network namespace and no capability; vsock is not namespaced, so that only the filter refuses
        # it.
        "without-seccomp": {**dict.fromkeys(_FAMILIES, one_of("ok", "EAFNOSUPPORT", "EPERM",
        "EPROTONOSUPPORT", "ESOCKTNOSUPPORT")), "packet": "EPERM",
                            "vsock": "ok", "raw": "EPERM", "raw six": "EPERM", "raw cloexec": "EPERM",
                            "packet type": "EPERM",
                            "sctp": one_of("ok", "EPROTONOSUPPORT"), "mptcp": one_of("ok", "EPROTONOSUPPORT"),
                            "mptcp six": one_of("ok", "EPROTONOSUPPORT"), "dccp": one_of("ok",
                            "ESOCKTNOSUPPORT", "EPROTONOSUPPORT"),
                            "pair": one_of("ENOTSUP", "EPROTONOSUPPORT")},
        "without-namespaces": {**dict.fromkeys(_FAMILIES, "EAFNOSUPPORT"), **dict.fromkeys(_KINDS,
        "EAFNOSUPPORT"), "pair": "EAFNOSUPPORT"},
    },
)  # fmt: skip
def other_sockets(world: World) -> dict[str, str]:
    """Families that no namespace contains, raw kinds, and protocols that go round Landlock's TCP rules."""
    steps: dict[str, Callable[[], object]] = {
        name: functools.partial(_socket, *given) for name, given in {**_FAMILIES, **_KINDS}.items()
    }
    pair = ctypes.create_string_buffer(8)
    steps["pair"] = lambda: syscall(53, 2, 1, 0, pair)
    return answers(steps)


def _unix(address: str, kind: int = socket.SOCK_STREAM) -> Callable[[], object]:
    def step() -> None:
        with socket.socket(socket.AF_UNIX, kind) as sock:
            sock.settimeout(5)
            sock.connect(address)

    return step


@attack(
    36,
    "abstract-sockets",
    caged={"stream": "ECONNREFUSED"},
    control={"stream": "ok"},
    control_as="user",
    first="net",
    walls={"without-namespaces": {"stream": "EPERM"}},  # Landlock's scope
)
def abstract_sockets(world: World) -> dict[str, str]:
    """A socket of the host whose name is no file."""
    return {"stream": apart(_unix("\0" + world["abstract"]))}


@attack(
    37,
    "path-sockets",
    caged={"straight": "ENOENT", "through the root of another": "ENOENT"},
    control={"straight": "ok", "through the root of another": "ok"},
    first="mount",
    # Landlock covers these from ABI 9 only: on the tier without namespaces it is open, and the layers' report
    # says so.
    walls={
        "without-namespaces": {
            "straight": "ok",
            "through the root of another": one_of("EACCES", "ECONNREFUSED"),
        }
    },
)
def path_sockets(world: World) -> dict[str, str]:
    """docker.sock and its kin."""
    return {
        "straight": apart(_unix(world["path_socket"])),
        "through the root of another": apart(
            _unix(f"/proc/{world['victim_pid']}/root{world['path_socket']}")
        ),
    }
