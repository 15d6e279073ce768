"""Section A of the catalogue, second half: files, descriptors and names outside the view."""

from __future__ import annotations

import functools
import os
import stat
from typing import Any

from tests.isolate.attacks._kernel import answer, opening, syscall, value_apart
from tests.isolate.attacks._model import MACHINE_INIT, Table, World, one_of

TABLE = Table()
attack = TABLE.add


# 5, 6 -------------------------------------------------------------------------------------------------------


@attack(
    5,
    "own-text",
    caged="EROFS",
    control="ok",
    control_as="user",
    first="proc",
    walls={"without-namespaces": "EACCES"},
)
def own_text(world: World) -> str:
    """Open one's own memory for writing."""
    return opening("/proc/self/mem", os.O_RDWR)


_KERNEL_FILES = (
    "/proc/sys",
    "/proc/kallsyms",
    "/proc/keys",
    "/proc/interrupts",
    "/proc/timer_list",
    "/proc/meminfo",
    "/proc/net",
    "/sys",
)


@attack(
    6,
    "kernel-files",
    caged=dict.fromkeys(_KERNEL_FILES, "ENOENT"),
    control=dict.fromkeys(_KERNEL_FILES, one_of("ok", "ENOENT"))
    | {"/proc/sys": "ok", "/proc/kallsyms": "ok", "/sys": "ok"},
    first="proc",
    # Only a view of its own hides these: on the tier without namespaces /proc is the host's, and the report
    # says `proc` MISSING.
    walls={
        "without-namespaces": dict.fromkeys(_KERNEL_FILES, one_of("ok", "EACCES", "ENOENT"))
        | {"/sys": "EACCES"}
    },
)
def kernel_files(world: World) -> dict[str, str]:
    """What the kernel says of the whole machine."""
    return {path: opening(path) for path in _KERNEL_FILES}


# 7, 15 ------------------------------------------------------------------------------------------------------


def _outside(world: World) -> dict[str, str]:
    up = "../" * 20
    return {
        "shadow": "/etc/shadow",
        "home": "/root",
        "state": world["secret_file"],
        "other tool": world["other_tool"],
        "root link": f"/proc/self/root/../{world['secret_file']}",
        "root of init": f"/proc/1/root{world['secret_file']}",
        "dots": f"/tmp/{up}{world['secret_file']}",
        "cwd of host": f"/proc/{world['host_pid']}/cwd",
    }


_OUTSIDE = ("shadow", "home", "state", "other tool", "root link", "root of init", "dots", "cwd of host")


@attack(
    7,
    "files-outside",
    caged=dict.fromkeys(_OUTSIDE, "ENOENT"),
    control=dict.fromkeys(_OUTSIDE, "ok") | {"root of init": MACHINE_INIT},
    first="mount",
    walls={"without-namespaces": dict.fromkeys(_OUTSIDE, "EACCES")},
)
def files_outside(world: World) -> dict[str, str]:
    """Open what the view does not hold, straight and by detours."""
    return {name: opening(path) for name, path in _outside(world).items()}


@attack(
    15,
    "stat-outside",
    caged=dict.fromkeys(_OUTSIDE, "ENOENT"),
    control=dict.fromkeys(_OUTSIDE, "ok") | {"root of init": MACHINE_INIT},
    first="mount",
    # Landlock lets stat through: this is open on the tier without namespaces, and the report says MISSING for
    # `mount`.
    walls={
        "without-namespaces": dict.fromkeys(_OUTSIDE, "ok")
        | {"root of init": "EACCES", "cwd of host": "EACCES"},
    },
)
def stat_outside(world: World) -> dict[str, str]:
    """Ask for the metadata of the same files."""
    return {name: answer(functools.partial(os.stat, path)) for name, path in _outside(world).items()}


# 8, 9 -------------------------------------------------------------------------------------------------------


@attack(
    8,
    "inherited-descriptors",
    caged={"open": [0, 1, 2, 3], "77": "EBADF"},
    control={"open": [0, 1, 2, 3, 77, 78, 79], "77": "ok"},
    first="fds",
)
def inherited_descriptors(world: World) -> dict[str, Any]:
    """fstat every number; read the file and the socket that the host left inheritable on purpose."""
    found = []
    for fd in range(4096):
        try:
            os.fstat(fd)
        except OSError:
            continue
        found.append(fd)
    return {"open": found, "77": answer(lambda: os.fstat(77))}


@attack(
    9,
    "directory-descriptors",
    caged={"folders": [], "up": {}},
    control={"folders": [78], "up": {"78": "ok"}},
    first="fds",
)
def directory_descriptors(world: World) -> dict[str, Any]:
    """Any descriptor that is a folder would be a way out: open("..") relative to it."""
    folders = []
    for fd in range(4096):
        try:
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                folders.append(fd)
        except OSError:
            continue
    return {
        "folders": folders,
        "up": {str(fd): answer(functools.partial(os.open, "..", os.O_RDONLY, dir_fd=fd)) for fd in folders},
    }


# 10 ---------------------------------------------------------------------------------------------------------


@attack(
    10,
    "names-in-mountinfo",
    caged={"secret": False, "sources": True},
    control={"secret": True, "sources": True},
    first="mount",
)
def names_in_mountinfo(world: World) -> dict[str, bool]:
    """The documented leak: host paths of bind sources can be read. The state folder and other tools
    are no such source.
    """

    def look() -> dict[str, bool]:
        try:
            syscall("unshare", 0x20000)
            syscall(
                "mount", world["secret_folder"].encode(), world["secret_folder"].encode(), None, 4096, None
            )
        except OSError:
            pass
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            fields = [line.split()[3] for line in file]
        return {
            "secret": any(world["secret_folder"] in field for field in fields),
            "sources": "/" in "".join(fields),
        }

    found: dict[str, bool] = value_apart(look)
    return found
