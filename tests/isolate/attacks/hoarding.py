"""Section C of the catalogue: memory, inside processes and outside of them."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import itertools
import mmap
import os
import shutil
import signal
import time
import zlib
from collections.abc import Callable
from typing import Any

from tests.isolate.attacks._kernel import answer, answers, scratch, syscall
from tests.isolate.attacks._model import BOTH_TIERS, MIB, Cage, Ends, Table, World, limits, one_of

TABLE = Table()
attack = TABLE.add


# 45 ---------------------------------------------------------------------------------------------------------

_SMALL = limits(memory=64 * MIB)
_MEMORY = Ends("limit", "memory")


@attack(
    45,
    "one-large-piece",
    caged=_MEMORY,
    control=1 << 31,
    control_as="user",
    first="rlimits",
    cage=_SMALL,
    only=BOTH_TIERS,
    heavy=True,
)
def one_large_piece(world: World) -> int:
    """Two GiB at once."""
    return len(bytearray(1 << 31))


@attack(
    45,
    "a-burst",
    caged={"outcome": "limit memory", "of one process": "bounded", "next": "ok"},
    control=1 << 31,
    control_as="user",
    first="rlimits",
    cage=limits(memory=256 * MIB),
    only=BOTH_TIERS,
    heavy=True,
    host="a_burst",
)
def a_burst(world: World) -> int:
    """Two GiB, written as fast as the kernel gives them, in a process that takes every refusal and keeps what
    it has.
    """
    kept = []
    for _ in range(32):
        try:
            memory = mmap.mmap(-1, 64 * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError:
            time.sleep(2)  # what it has is over the limit: where only a watcher counts, that sees it
            break
        ctypes.memset((ctypes.c_char * len(memory)).from_buffer(memory), 1, len(memory))
        kept.append(memory)
    return len(kept) * 64 * MIB


def _pieces(total: int, make: Callable[[], Any]) -> int:
    kept = []
    for _ in range(total // (4 * MIB)):
        kept.append(make())
    return len(kept) * 4 * MIB


@attack(
    45,
    "many-pieces",
    caged=_MEMORY,
    control=1 << 28,
    control_as="user",
    first="cgroup-limits",
    cage=_SMALL,
    only=BOTH_TIERS,
    heavy=True,
)
def many_pieces(world: World) -> int:
    """A quarter of a GiB in small pieces, each written to."""
    return _pieces(1 << 28, lambda: os.urandom(4 * MIB))


@attack(
    45,
    "shared-pieces",
    caged=_MEMORY,
    control=1 << 28,
    control_as="user",
    first="cgroup-limits",
    cage=_SMALL,
    only=BOTH_TIERS,
    heavy=True,
)
def shared_pieces(world: World) -> int:
    """Memory that RLIMIT_DATA does not count: shared anonymous mappings."""

    def make() -> mmap.mmap:
        memory = mmap.mmap(-1, 4 * MIB)
        for offset in range(0, 4 * MIB, 4096):
            memory[offset] = 1
        return memory

    return _pieces(1 << 28, make)


def _hide() -> None:
    """Become a process that nobody of the same user may look into: its smaps, ns and root are closed."""
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)


def _shared_piece() -> mmap.mmap:
    memory = mmap.mmap(-1, 4 * MIB)
    ctypes.memset((ctypes.c_char * len(memory)).from_buffer(memory), 1, len(memory))
    return memory


@attack(
    45,
    "in-a-process-that-hides",
    caged=_MEMORY,
    control=1 << 28,
    control_as="user",
    first="cgroup-limits",
    cage=_SMALL,
    only=BOTH_TIERS,
    heavy=True,
)
def in_a_process_that_hides(world: World) -> int:
    """Shared mappings, whose size stands where only those may look who may trace the process."""
    _hide()
    kept = [_shared_piece() for _ in range(64)]
    if world["ctx"] is not None:
        time.sleep(2)  # where only a watcher counts
    return len(kept) * 4 * MIB


@attack(
    45,
    "in-a-daemon-that-hides",
    caged=_MEMORY,
    control=1 << 28,
    control_as="user",
    first="cgroup-limits",
    cage=_SMALL,
    only=("root", "user"),
    heavy=True,
)
def in_a_daemon_that_hides(world: World) -> int:
    """An orphan of a session of its own, whose process namespace cannot be read either."""
    _hide()
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            kept = [os.urandom(4 * MIB) for _ in range(64)]
            os.write(write, b"1")
            time.sleep(2 if world["ctx"] is not None else 0)
            os._exit(len(kept) and 0)
        os._exit(0)
    os.wait()
    os.close(write)
    while os.read(read, 1):
        pass
    return 1 << 28  # at once: a kill beside a result counts all the same


@attack(
    45,
    "in-many-processes",
    caged=_MEMORY,
    control=1 << 28,
    control_as="user",
    first="cgroup-limits",
    cage=_SMALL,
    only=BOTH_TIERS,
    heavy=True,
)
def in_many_processes(world: World) -> int:
    """A quarter of a GiB spread over sixteen processes, none of which is over the limit."""
    read, write = os.pipe()
    children = []
    for _ in range(16):
        pid = os.fork()
        if pid == 0:
            kept = os.urandom(16 * MIB)
            os.write(write, b"1")
            signal.pause()
            os._exit(len(kept) and 0)
        children.append(pid)
    for _ in children:
        os.read(read, 1)
    if world["ctx"] is not None:
        time.sleep(2)  # where only a watcher counts: it looks every 50 ms
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return 1 << 28


@attack(
    45,
    "unpacked",
    caged=_MEMORY,
    control=1 << 28,
    control_as="user",
    first="rlimits",
    cage=_SMALL,
    only=BOTH_TIERS,
    heavy=True,
)
def unpacked(world: World) -> int:
    """A small packed text that unpacks to a quarter of a GiB."""
    packer = zlib.compressobj()
    packed = b"".join(packer.compress(bytes(MIB)) for _ in range(256)) + packer.flush()
    return len(zlib.decompress(packed))


@attack(
    45,
    "caught",
    caged="MemoryError",
    control="ok",
    control_as="user",
    first="rlimits",
    cage=_SMALL,
    only=BOTH_TIERS,
)
def caught(world: World) -> str:
    """A tool that takes the refusal and goes on is fine."""
    return answer(lambda: bytearray(1 << 31))


@attack(
    45,
    "while-waiting-for-a-call",
    caged={"first": "ok", "waiting": "gone or small", "next": "ok"},
    no_control="a process that waits for a call is the host's own doing",
    first="watcher",
    cage=_SMALL,
    only=("root", "user"),
    heavy=True,
    host="grows_while_parked",
)
def while_waiting_for_a_call(world: World) -> None:
    """A module whose import leaves a thread behind, which takes memory while the process is parked.

    (The driver writes the module.)
    """


# 46 ---------------------------------------------------------------------------------------------------------

_OUTSIDE = Cage(limits=(("memory", 128 * MIB), ("timeout_s", 10.0), ("tmp", 16 * MIB)))


def _fill(folder: str, most: int) -> tuple[str, int]:
    """Files of 1 MiB in `folder` until it is refused: (answer, bytes). They are removed."""
    written = 0
    base = f"{folder}/fill-{os.getpid()}"

    def step() -> None:
        nonlocal written
        os.mkdir(base)
        for number in itertools.count():
            if written >= most:
                return
            with open(f"{base}/{number}", "wb", buffering=0) as file:
                written += file.write(bytes(MIB))

    told = answer(step)
    shutil.rmtree(base, ignore_errors=True)
    return told, written


@attack(
    46,
    "tmp-and-shared-memory",
    caged={"/tmp": "ENOSPC", "/dev/shm": "ENOSPC", "together": True},
    control={"/tmp": "ok", "/dev/shm": "ok", "together": False},
    control_as="user",
    first="mount",
    cage=_OUTSIDE,
    only=BOTH_TIERS,
    heavy=True,
    # No tmpfs of its own: the folder is on the host's disk and not bounded (said in the layer `mount`),
    # /dev/shm is out of reach.
    walls={"without-namespaces": {"/tmp": "ok", "/dev/shm": "EACCES", "together": True}},
)
def tmp_and_shared_memory(world: World) -> dict[str, Any]:
    """Fill both places that are memory by another name."""
    tmp, used = _fill(scratch(world), 64 * MIB)
    shm, more = _fill("/dev/shm", 64 * MIB)
    return {"/tmp": tmp, "/dev/shm": shm, "together": used + more <= 64 * MIB}


@attack(46, "memory-files", caged=_MEMORY, control=1 << 28, control_as="user", first="cgroup-limits",
        cage=_OUTSIDE, only=BOTH_TIERS, heavy=True,
        walls={"user": "ENOSYS"})  # fmt: skip
def memory_files(world: World) -> Any:
    """Memory behind descriptors, which is in no process's size."""
    kept = []
    for _ in range(16):
        try:
            fd = os.memfd_create("kept", 0)
        except OSError as error:
            return errno.errorcode[error.errno or 0]
        for _ in range(16):
            os.write(fd, bytes(MIB))
        kept.append(fd)
    if world["ctx"] is not None:
        time.sleep(2)
    for fd in kept:
        os.close(fd)
    return 1 << 28


@attack(46, "system-v-segments", caged=_MEMORY, control=1 << 28, control_as="user", first="cgroup-limits",
        cage=_OUTSIDE, only=BOTH_TIERS, heavy=True,
        walls={"user": "ENOSYS", "without-namespaces": "EPERM", "user-without-namespaces": one_of("ENOSYS",
        "EPERM")})  # fmt: skip
def system_v_segments(world: World) -> Any:
    """Segments that belong to no process at all, filled and let go of."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    libc.shmdt.argtypes = [ctypes.c_void_p]
    segments = []
    try:
        for _ in range(16):
            segment = syscall("shmget", 0, 16 * MIB, 0o1600)
            segments.append(segment)
            place = libc.shmat(segment, None, 0)
            ctypes.memset(place, 1, 16 * MIB)
            libc.shmdt(place)
        if world["ctx"] is not None:
            time.sleep(2)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    finally:
        for segment in segments:
            libc.shmctl(segment, 0, None)
    return 1 << 28


@attack(
    46,
    "message-queues",
    caged={"posix": one_of("EMFILE", "EACCES"), "system v": one_of("ok")},
    control={"posix": "ok", "system v": "ok"},
    control_as="user",
    first="rlimits",
    only=BOTH_TIERS,
    walls={
        # Refused for being the machine's, or because nobody counts what lies in them.
        "without-namespaces": {
            "posix": one_of("EMFILE", "EPERM", "EACCES"),
            "system v": one_of("EPERM", "ENOSYS"),
        },
        "user": {"posix": one_of("EMFILE", "EACCES"), "system v": "ENOSYS"},
    },
)
def message_queues(world: World) -> dict[str, str]:
    """Queues in the kernel: POSIX ones (RLIMIT_MSGQUEUE is 0) and System V ones, which the ipc
    namespace takes along.
    """
    name = f"fumehood-{os.getpid()}".encode()

    def posix() -> None:
        os.close(syscall("mq_open", name, os.O_CREAT | os.O_RDWR, 0o600, None))
        syscall(241, name)

    def system_v() -> None:
        queue = syscall("msgget", 0, 0o1600)
        syscall(71, queue, 0, None)

    return answers({"posix": posix, "system v": system_v})


@attack(
    46,
    "pipes-and-sockets",
    caged=_MEMORY,
    control={"pipes": True, "sockets": False},
    control_as="user",
    first="cgroup-limits",
    cage=Cage(limits=(("memory", 512 * MIB), ("timeout_s", 15.0))),
    only=BOTH_TIERS,
    heavy=True,
    # Where nothing counts them, buffers keep their default size, and a process has a thousand descriptors.
    walls={"user": {"pipes": True, "sockets": True}},
)
def pipes_and_sockets(world: World) -> dict[str, bool]:
    """Bytes parked in the kernel by one process: as many pipes and socket pairs as it may have, full."""
    import socket

    enough = 600 * MIB  # outside there is no end: the control must not fill the machine
    held, pipes = 0, []
    try:
        while held < enough:
            read, write = os.pipe2(os.O_NONBLOCK)
            pipes += [read, write]
            try:
                fcntl.fcntl(write, 1031, MIB)  # F_SETPIPE_SZ
            except OSError:
                pass
            try:
                while True:
                    held += os.write(write, bytes(65536))
            except BlockingIOError:
                pass
    except OSError:
        pass
    for fd in pipes:
        os.close(fd)
    parked, pairs = 0, []
    try:
        while parked < enough:
            one, two = socket.socketpair()
            pairs += [one, two]
            one.setblocking(False)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 30)
            try:
                while True:
                    parked += one.send(bytes(65536))
            except BlockingIOError:
                pass
    except OSError:
        pass
    for sock in pairs:
        sock.close()
    return {"pipes": held <= 160 * MIB, "sockets": parked <= 256 * MIB}
