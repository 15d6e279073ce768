"""Section A of the catalogue, first half: what other processes hold."""

from __future__ import annotations

import errno
import gc
import os
from typing import Any

from tests.isolate.attacks._kernel import (
    answer,
    answers,
    find_in_memory,
    opening,
    syscall,
    value_apart,
    visible_processes,
)
from tests.isolate.attacks._model import MACHINE_INIT, Table, World, one_of

TABLE = Table()
attack = TABLE.add

_PTRACE_ATTACH, _PTRACE_SEIZE = 16, 0x4206


# 1 ----------------------------------------------------------------------------------------------------------


@attack(
    1,
    "host-environment",
    caged={"others": 0, "parent": "ENOENT", "init": "ENOENT", "host": "ENOENT", "marker": False},
    control={"others": 1, "parent": "ok", "init": MACHINE_INIT, "host": "ok", "marker": True},
    first="pid",
    walls={
        # Landlock's ptrace rule and another user id answer; the list of processes itself stays readable
        # without hidepid.
        "without-namespaces": {
            "others": 1,
            "parent": "EACCES",
            "init": "EACCES",
            "host": "EACCES",
            "marker": False,
        },
    },
)
def host_environment(world: World) -> dict[str, Any]:
    """Read the start environment of the parent, of process 1 and of the host; then of whoever is to
    be seen.
    """
    marker = world["env_marker"].encode()
    found = False
    for pid in visible_processes():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                found = found or marker in file.read()
        except OSError:
            continue
    return {
        "others": min(1, len(visible_processes())),
        "parent": opening(f"/proc/{os.getppid()}/environ"),
        "init": opening("/proc/1/environ"),
        "host": opening(f"/proc/{world['host_pid']}/environ"),
        "marker": found,
    }


# 2 ----------------------------------------------------------------------------------------------------------


@attack(
    2,
    "own-environment",
    caged={"start": ["PATH"], "now": ["LANG", "PATH", "TOOL_SECRET"], "marker": False},
    control={"start": one_of("never"), "now": one_of("never"), "marker": True},
    first="environment",
)
def own_environment(world: World) -> dict[str, Any]:
    """The block the kernel keeps of this process's start, and what Python shows of it."""
    with open("/proc/self/environ", "rb") as file:
        block = file.read()
    names = sorted({part.partition(b"=")[0].decode() for part in block.split(b"\0") if part} - {"LC_CTYPE"})
    marked = world["env_marker"].encode() in block
    if marked:
        return {"start": "never", "now": "never", "marker": True}
    return {"start": names, "now": sorted(set(os.environ) - {"LC_CTYPE"}), "marker": marked}


@attack(
    2,
    "own-memory",
    caged={"host-heap": False, "objects": False},
    control={"host-heap": True, "objects": True},
    first="environment",
)
def own_memory(world: World) -> dict[str, bool]:
    """Search the own heap for bytes that only the host has: a fork without exec would carry them."""
    first, second = (bytes.fromhex(part) for part in world["heap_marker"])
    if world["ctx"] is None:
        kept = bytearray(
            first
        )  # the control is what a fork of the host would be: its heap, in another process
        kept += second
        held = [type("HostSecret", (), {})]

        def look() -> dict[str, bool]:
            classes = any(
                getattr(item, "__name__", "") == "HostSecret"
                for item in gc.get_objects()
                if isinstance(item, type)
            )
            return {
                "host-heap": find_in_memory(first, second) and bool(kept),
                "objects": classes and bool(held),
            }

        found: dict[str, bool] = value_apart(look)
        return found
    classes = any(
        getattr(item, "__name__", "") == "HostSecret" for item in gc.get_objects() if isinstance(item, type)
    )
    return {"host-heap": find_in_memory(first, second), "objects": classes}


# 3 ----------------------------------------------------------------------------------------------------------


@attack(
    3,
    "host-arguments",
    caged={"host": False, "secret": False},
    control={"host": True, "secret": False},
    first="pid",
    # Landlock does not cover cmdline: readable, so that nothing secret may ever stand in an argument list.
    walls={"without-namespaces": {"host": True, "secret": False}},
)
def host_arguments(world: World) -> dict[str, bool]:
    """Argument lists of every process that can be seen."""
    seen = b""
    for pid in visible_processes():
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                seen += file.read()
        except OSError:
            continue
    return {"host": b"tests.isolate.runner" in seen, "secret": world["tool_secret"].encode() in seen}


# 4 ----------------------------------------------------------------------------------------------------------


def _read_foreign(pid: int) -> None:
    import ctypes

    buffer = ctypes.create_string_buffer(16)

    class Piece(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    local, remote = Piece(ctypes.addressof(buffer), 16), Piece(0x400000, 16)
    try:
        syscall("process_vm_readv", pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
    except OSError as error:
        if error.errno != errno.EFAULT:  # no such page in it: the permission was given
            raise


def _waiting_child() -> int:
    """It ends with this process."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(theirs)
        os.read(ours, 1)
        os._exit(0)
    os.close(ours)
    return pid


@attack(
    4,
    "memory-of-others",
    caged={
        "ptrace init": "EPERM", "ptrace victim": "EPERM", "readv init": "EPERM", "readv victim": "EPERM",
        "mem init": "ENOENT", "mem victim": "ENOENT", "getfd": "EPERM", "kcmp": "EPERM", "madvise": "EPERM",
    },
    control={
        "ptrace init": "ok", "ptrace victim": "ok", "readv init": "ok", "readv victim": "ok",
        "mem init": "ok", "mem victim": "ok", "getfd": "ok", "kcmp": "ok", "madvise": one_of("ok",
        "EINVAL"),
    },
    first="seccomp",
    walls={
        # The process namespace hides the victim, capabilities and Landlock's ptrace rule guard the call's
        # init.
        "without-seccomp": {
            "ptrace init": "EPERM", "ptrace victim": "ESRCH", "readv init": "EPERM", "readv victim": "ESRCH",
            "mem init": "ENOENT", "mem victim": "ENOENT", "getfd": "ok", "kcmp": "ok", "madvise": one_of("ok",
            "EINVAL"),
        },
        "without-namespaces": {
            "ptrace init": "EPERM", "ptrace victim": "EPERM", "readv init": "EPERM", "readv victim": "EPERM",
            "mem init": "EACCES", "mem victim": "EACCES", "getfd": "EPERM", "kcmp": "EPERM",
            "madvise": "EPERM",
        },
    },
)  # fmt: skip
def memory_of_others(world: World) -> dict[str, str]:
    """ptrace, process_vm_readv and /proc/N/mem on the init and on a process of the same user; the
    descriptor and memory calls on oneself. Outside, a child stands for the init, and no init is stopped: that
    of a container would not go on.
    """
    init, victim = 1 if world["ctx"] is not None else _waiting_child(), world["victim_pid"]

    def self_getfd() -> None:
        os.close(syscall("pidfd_getfd", os.pidfd_open(os.getpid()), 0, 0))

    return answers(
        {
            "ptrace init": lambda: syscall("ptrace", _PTRACE_SEIZE, init, 0, 0),
            "ptrace victim": lambda: syscall("ptrace", _PTRACE_ATTACH, victim, 0, 0),
            "readv init": lambda: _read_foreign(init),
            "readv victim": lambda: _read_foreign(victim),
            "mem init": lambda: os.close(os.open(f"/proc/{init}/mem", os.O_RDONLY)),
            "mem victim": lambda: os.close(os.open(f"/proc/{victim}/mem", os.O_RDONLY)),
            "getfd": self_getfd,
            "kcmp": lambda: syscall("kcmp", os.getpid(), os.getpid(), 0, 0, 0),
            "madvise": lambda: syscall("process_madvise", os.pidfd_open(os.getpid()), None, 0, 20, 0),
        }
    )


@attack(
    7,
    "devices-and-shared-memory-of-the-host",
    caged={"shared memory": "ENOENT", "terminals": "ENOENT", "names": ["fd", "full", "null", "random", "shm",
           "stderr", "stdin", "stdout", "urandom", "zero"]},
    control={"shared memory": "ok", "terminals": "ok", "names": "many"},
    first="mount",
    walls={
        "without-namespaces": {"shared memory": "EACCES", "terminals": "EACCES", "names": "EACCES"},
    },
)  # fmt: skip
def devices_and_shared_memory_of_the_host(world: World) -> dict[str, Any]:
    """What programs of the host share in memory, a new terminal, and which devices there are."""

    def terminal() -> None:
        os.close(os.open("/dev/ptmx", os.O_RDONLY | os.O_NOCTTY))

    try:
        names: Any = sorted(os.listdir("/dev"))
    except OSError as error:
        names = errno.errorcode[error.errno or 0]
    return {
        "shared memory": opening(world["shared_memory"]),
        "terminals": answer(terminal),
        "names": "many" if len(names) > 12 else names,
    }
