"""Section A of the catalogue: reading what is not the tool's."""

from __future__ import annotations

import errno
import functools
import gc
import os
import socket
import stat
from typing import Any

from tests.isolate.attacks._kernel import (
    answer,
    answers,
    apart,
    find_in_memory,
    opening,
    syscall,
    value_apart,
    visible_processes,
)
from tests.isolate.attacks._model import Cage, Table, World, one_of

TABLE = Table()
attack = TABLE.add

_PTRACE_ATTACH = 16
_KEYCTL_GET_KEYRING_ID, _KEYCTL_READ, _SESSION = 0, 11, -3
_SYSLOG_READ_ALL = 3
MACHINE_INIT = one_of("ok", "EPERM", "EACCES")
"""The machine's process 1 may be out of reach of root as well; the other targets are the control."""


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


@attack(
    4,
    "memory-of-others",
    caged={
        "ptrace init": "EPERM", "ptrace victim": "EPERM", "readv init": "EPERM", "readv victim": "EPERM",
        "mem init": "ENOENT", "mem victim": "ENOENT", "getfd": "EPERM", "kcmp": "EPERM", "madvise": "EPERM",
    },
    control={
        "ptrace init": MACHINE_INIT, "ptrace victim": "ok", "readv init": MACHINE_INIT, "readv victim": "ok",
        "mem init": MACHINE_INIT, "mem victim": "ok", "getfd": "ok", "kcmp": "ok", "madvise": one_of("ok",
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
    descriptor and memory calls on oneself.
    """
    init, victim = world.get("ptrace_init", 1), world["victim_pid"]

    def self_getfd() -> None:
        os.close(syscall("pidfd_getfd", os.pidfd_open(os.getpid()), 0, 0))

    return answers(
        {
            "ptrace init": lambda: syscall("ptrace", _PTRACE_ATTACH, init, 0, 0),
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


# 12, 13 -----------------------------------------------------------------------------------------------------


@attack(
    12,
    "keyring",
    caged={"session": "EPERM", "read host key": "EPERM", "add": "EPERM", "request": "EPERM"},
    control={"session": "ok", "read host key": "ok", "add": "ok", "request": "ok"},
    control_as="user",
    first="seccomp",
    # A session keyring of its own: the host's key is not possessed and cannot be found.
    walls={"without-seccomp": {"session": "ok", "read host key": "EACCES", "add": "ok", "request": "ENOKEY"}},
)
def keyring(world: World) -> dict[str, str]:
    """The kernel's keys of the host: by number, by name, and a new one for the next call to find."""
    import ctypes

    buffer = ctypes.create_string_buffer(64)
    return answers(
        {
            "session": lambda: syscall("keyctl", _KEYCTL_GET_KEYRING_ID, _SESSION, 0),
            "read host key": lambda: syscall("keyctl", _KEYCTL_READ, world["key_id"], buffer, 64, 0),
            "add": lambda: syscall("add_key", b"user", b"fumehood-left", b"x", 1, _SESSION),
            "request": lambda: syscall("request_key", b"user", world["key_name"].encode(), None, 0),
        }
    )


@attack(
    13,
    "kernel-log-perf-bpf",
    caged={"syslog": "EPERM", "perf": "EPERM", "bpf": "EPERM"},
    control={
        "syslog": "ok",
        "perf": one_of("ok", "ENOENT", "EOPNOTSUPP"),
        "bpf": one_of("ok", "EINVAL", "EFAULT", "E2BIG"),
    },
    first="seccomp",
    # dmesg_restrict, perf_event_paranoid and unprivileged_bpf_disabled answer where seccomp does not (sysctls
    # of this kernel).
    walls={
        "without-seccomp": {
            "syslog": one_of("EPERM", "ok"),
            "perf": one_of("EPERM", "EACCES", "ENOENT"),
            "bpf": "EPERM",
        }
    },
)
def kernel_log_perf_bpf(world: World) -> dict[str, str]:
    """The log of the kernel, its counters and its virtual machine."""
    import ctypes

    buffer = ctypes.create_string_buffer(4096)
    attributes = ctypes.create_string_buffer(128)
    attributes.raw = (
        (1).to_bytes(4, "little") + (128).to_bytes(4, "little") + bytes(120)
    )  # a software clock, all processes
    program = ctypes.create_string_buffer(128)
    return answers(
        {
            "syslog": lambda: syscall("syslog", _SYSLOG_READ_ALL, buffer, 4096),
            "perf": lambda: syscall("perf_event_open", attributes, -1, 0, -1, 0),
            "bpf": lambda: syscall("bpf", 5, program, 128),
        }
    )


# 14 ---------------------------------------------------------------------------------------------------------


def _connect(family: int, kind: int, address: Any) -> None:
    with socket.socket(family, kind) as sock:
        sock.settimeout(5)
        if kind == socket.SOCK_STREAM:
            sock.connect(address)
        else:
            sock.sendto(b"x", address)


_NOWHERE = one_of("EACCES", "ENETUNREACH")


def _network(world: World) -> dict[str, str]:
    return answers(
        {
            "metadata": lambda: _connect(socket.AF_INET, socket.SOCK_STREAM, ("169.254.169.254", 80)),
            "loopback": lambda: _connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", world["port"])),
            "loopback six": lambda: _connect(
                socket.AF_INET6, socket.SOCK_STREAM, ("::ffff:127.0.0.1", world["port"])
            ),
            "datagram": lambda: _connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", world["udp_port"])),
            "datagram away": lambda: _connect(socket.AF_INET, socket.SOCK_DGRAM, ("169.254.169.254", 53)),
        }
    )


_REACHED = {"metadata": one_of("ok", "ETIMEDOUT", "EHOSTUNREACH", "ENETUNREACH", "EAGAIN", "None",
                               "ECONNREFUSED"), "loopback": "ok",
            "loopback six": "ok", "datagram": "ok", "datagram away": one_of("ok", "ENETUNREACH",
            "EHOSTUNREACH")}  # fmt: skip


@attack(
    14,
    "host-loopback",
    caged={
        "metadata": "EACCES",
        "loopback": "EACCES",
        "loopback six": "EACCES",
        "datagram": "ENETUNREACH",
        "datagram away": "ENETUNREACH",
    },
    control=_REACHED,
    control_as="user",
    first="net",
    walls={
        "without-landlock": dict.fromkeys(_REACHED, "ENETUNREACH"),
        "without-namespaces": dict.fromkeys(_REACHED, "EAFNOSUPPORT"),
    },
)
def host_loopback(world: World) -> dict[str, str]:
    """Connect to the metadata address and to a service that listens on the host, by TCP and UDP."""
    return _network(world)


@attack(
    14,
    "host-loopback-with-egress",
    caged={"metadata": "EACCES", "loopback": "EACCES", "loopback six": "EACCES", "datagram": "ok",
           "datagram away": "ok"},
    control=_REACHED,
    control_as="user",
    first="net",
    cage=Cage(doors=(443,)),
    walls={
        # The namespace has a loopback of its own, to which every address leads: nobody listens there.
        "without-landlock": {"metadata": "ECONNREFUSED", "loopback": "ECONNREFUSED",
                             "loopback six": "ECONNREFUSED", "datagram": "ok",
                             "datagram away": "ok"},
        "without-namespaces": dict.fromkeys(_REACHED, "EAFNOSUPPORT"),
    },
)  # fmt: skip
def host_loopback_with_egress(world: World) -> dict[str, str]:
    """The same for a tool with doors: every address is its own loopback. (A datagram to a port
    nobody has is sent and lost.)
    """
    return _network(world)


@attack(
    14,
    "own-server",
    caged={"bind": "EACCES"},
    control={"bind": "ok"},
    control_as="user",
    first="landlock-net",
    walls={"without-landlock": {"bind": "ok"}, "without-namespaces": {"bind": "EAFNOSUPPORT"}},
)
def own_server(world: World) -> dict[str, str]:
    """Listen: behind a network namespace nobody could come, and Landlock refuses it besides."""

    def serve() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
            sock.bind(("127.0.0.1", 0))
            sock.listen()

    return {"bind": apart(serve)}
