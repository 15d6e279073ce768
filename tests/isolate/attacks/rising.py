"""Section B of the catalogue: ids, capabilities, and what only the machine's owner may do."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from typing import Any

from tests.isolate.attacks._kernel import CLONE, answers, syscall
from tests.isolate.attacks._model import BOTH_TIERS, Cage, Table, World, one_of

TABLE = Table()
attack = TABLE.add


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
           "securebits": "EPERM", "effective": "0000000000000000",
           "bounding": "0000000000000000"},
    control={"setuid": "ok", "setresuid": "ok", "setgid": "ok", "setgroups": "ok", "capset": "ok",
             "ambient": "ok", "securebits": "ok",
             "effective": one_of("never"), "bounding": one_of("never")},
    first="capabilities",
    # An ordinary user cannot empty the bounding set where there is no namespace; no_new_privs keeps it
    # without effect.
    walls={
        "root-without-namespaces": {
            "setuid": "EPERM", "setresuid": "EPERM", "setgid": "EPERM", "setgroups": "EPERM",
            "capset": "EPERM", "ambient": "EPERM",
            "securebits": "EPERM", "effective": "0000000000000000",
            "bounding": "0000000000000000",
        },
        "user-without-namespaces": {
            "setuid": "EPERM", "setresuid": "EPERM", "setgid": "EPERM", "setgroups": "EPERM",
            "capset": "EPERM", "ambient": "EPERM",
            "securebits": "EPERM", "effective": "0000000000000000", "bounding": "full",
        },
    },
)  # fmt: skip
def regain_ids_and_capabilities(world: World) -> dict[str, str]:
    """Ask for ids, capabilities and their levers back."""

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
            }
        ),
        **sets,
    }


_WAYS = ("chmod", "fchmod", "fchmodat", "fchmodat2", "creat", "open", "openat", "unnamed", "mknod", "mknodat")


@attack(
    21,
    "set-user-id-file-in-a-grant",
    # In a grant of root's the file is root's on the host, whatever the tool's own user is called inside.
    caged=dict.fromkeys(_WAYS, "EPERM") | {"openat2": "ENOSYS", "executable": "ok", "mode": "0o755"},
    control=dict.fromkeys((*_WAYS, "openat2", "executable"), "ok") | {"mode": "0o4755"},
    first="seccomp",
    cage=Cage(write=("results",)),
    only=BOTH_TIERS,
)
def set_user_id_file_in_a_grant(world: World) -> dict[str, str]:
    """Leave a program behind that runs as the owner of the folder, whoever starts it."""
    place = world["results"] if world["ctx"] is not None else "/tmp"
    path = f"{place}/set-user-id-{os.getpid()}"
    name, mode, create = path.encode(), 0o4755, os.O_CREAT | os.O_RDWR
    with open(path, "w", encoding="ascii") as file:
        file.write("#!/bin/sh\n")
    fd = os.open(path, os.O_RDWR)
    found = answers(
        {
            "chmod": lambda: syscall(90, name, mode),
            "fchmod": lambda: syscall(91, fd, mode),
            "fchmodat": lambda: syscall(268, -100, name, mode),
            "fchmodat2": lambda: syscall("fchmodat2", -100, name, mode, 0),
            "creat": lambda: syscall(85, name + b"1", mode),
            "open": lambda: syscall(2, name + b"2", create, mode),
            "openat": lambda: syscall(257, -100, name + b"3", create, mode),
            "unnamed": lambda: syscall(257, -100, place.encode(), 0x410002, mode),  # O_TMPFILE | O_RDWR
            "mknod": lambda: syscall("mknod", name + b"4", 0o100000 | mode, 0),
            "mknodat": lambda: syscall(259, -100, name + b"5", 0o100000 | mode, 0),
            "openat2": lambda: syscall(437, -100, name + b"6", struct.pack("3Q", create, mode, 0), 24),
            "executable": lambda: os.chmod(path, 0o755) if os.stat(path).st_mode & mode != mode else None,
        }
    )
    found["mode"] = oct(os.stat(path).st_mode & 0o7777)
    os.close(fd)
    for left in ("", *"123456"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path + left)
    return found


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
