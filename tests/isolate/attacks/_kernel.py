"""System calls by number and answers as names, for attackers: stdlib-only, x86-64."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)

NUMBERS = {
    "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431,
    "fsmount": 432, "fspick": 433, "mount_setattr": 442, "statmount": 457, "listmount": 458, "ptrace": 101,
    "process_vm_readv": 310,
    "process_vm_writev": 311, "pidfd_open": 434, "pidfd_getfd": 438, "kcmp": 312, "process_madvise": 440,
    "keyctl": 250, "add_key": 248,
    "request_key": 249, "syslog": 103, "perf_event_open": 298, "bpf": 321, "unshare": 272, "clone": 56,
    "clone3": 435, "setns": 308,
    "name_to_handle_at": 303, "open_by_handle_at": 304, "kexec_load": 246, "kexec_file_load": 320,
    "init_module": 175,
    "finit_module": 313, "delete_module": 176, "reboot": 169, "swapon": 167, "swapoff": 168, "acct": 163,
    "quotactl": 179, "iopl": 172,
    "ioperm": 173, "settimeofday": 164, "clock_settime": 227, "adjtimex": 159, "sethostname": 170,
    "setdomainname": 171,
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "userfaultfd": 323,
    "memfd_secret": 447, "vmsplice": 278,
    "personality": 135, "modify_ldt": 154, "mknod": 133, "memfd_create": 319, "execveat": 322, "ioctl": 16,
    "socket": 41, "getpid": 39,
    "fanotify_init": 300, "setuid": 105, "setresuid": 117, "capset": 126, "mlockall": 151, "shmget": 29,
    "shmat": 30, "msgget": 68,
    "mq_open": 240, "ioprio_set": 251, "sched_setscheduler": 144, "setpriority": 141, "fchmodat2": 452,
    "faccessat2": 439,
    "prctl": 157, "fcntl": 72,
}  # fmt: skip


def syscall(name: str | int, *arguments: Any) -> int:
    """A raw system call. Raises OSError. Integers go as 64 bits, bytes and buffers as pointers,
    None as a null pointer.
    """
    number = NUMBERS[name] if isinstance(name, str) else name
    converted = [ctypes.c_ulong(a & 0xFFFFFFFFFFFFFFFF) if isinstance(a, int) else a for a in arguments]
    ctypes.set_errno(0)
    _libc.syscall.restype = ctypes.c_long
    result = int(_libc.syscall(ctypes.c_long(number), *converted))
    if result == -1:
        raise OSError(ctypes.get_errno(), str(name))
    return result


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


def clone(flags: int) -> None:
    """clone(2) with these flags; the new process ends at once."""
    pid = syscall("clone", flags | SIGCHLD, None, None, None, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def answer(step: Callable[[], object]) -> str:
    """ "ok", or the name of the error."""
    try:
        step()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error.errno))
    except MemoryError:
        return "MemoryError"
    return "ok"


def apart(step: Callable[[], object]) -> str:
    """The answer to `step` in a process of its own; the signal's name when that one is killed."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, answer(step).encode())
        finally:
            os._exit(0)
    os.close(write)
    told = b""
    while part := os.read(read, 4096):
        told += part
    os.close(read)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return told.decode()


def value_apart(step: Callable[[], Any]) -> Any:
    """The JSON value `step` returns in a process of its own."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read)
            data = json.dumps(step()).encode()
            while data:
                data = data[os.write(write, data) :]
        finally:
            os._exit(0)
    os.close(write)
    told = b""
    while part := os.read(read, 65536):
        told += part
    os.close(read)
    os.waitpid(pid, 0)
    return json.loads(told) if told else None


def answers(steps: Mapping[str, Callable[[], object]]) -> dict[str, str]:
    """Every step's answer, each in a process of its own."""
    return {name: apart(step) for name, step in steps.items()}


def opening(path: str, flags: int = os.O_RDONLY) -> str:
    """The answer to open(path), and to reading a byte of it when it is a file opened for reading."""

    def step() -> None:
        fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if flags & os.O_ACCMODE == os.O_RDONLY and not os.path.isdir(path):
                os.read(fd, 1)
        finally:
            os.close(fd)

    return answer(step)


def scratch(world: Mapping[str, Any]) -> str:
    """The folder this process may write to: the call's own, or /tmp outside."""
    return str(world["ctx"].tmp) if world["ctx"] is not None else "/tmp"


def visible_processes() -> list[int]:
    """Numbers in /proc that are neither this process nor one of its ancestors' names for it."""
    try:
        return sorted(
            int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()
        )
    except OSError:
        return []


def find_in_memory(first: bytes, second: bytes) -> bool:
    """Whether `first` directly followed by `second` stands in this process's own memory. Neither
    argument holds both.
    """
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        lines = file.readlines()
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        for line in lines:
            span, rights = line.split()[:2]
            if not rights.startswith("rw"):
                continue
            start, end = (int(part, 16) for part in span.split("-"))
            try:
                memory.seek(start)
                data = memory.read(end - start)
            except (OSError, ValueError, OverflowError):
                continue
            at = data.find(first)
            while at >= 0:
                if data.startswith(second, at + len(first)):
                    return True
                at = data.find(first, at + 1)
    return False
