"""Section C of the catalogue: using up or breaking things."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import itertools
import mmap
import os
import re
import resource
import shutil
import signal
import subprocess
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

from tests.isolate.attacks._kernel import answer, answers, opening, scratch, syscall
from tests.isolate.attacks._model import Cage, Ends, Table, World, limits, one_of

TABLE = Table()
attack = TABLE.add

MIB = 1 << 20
WHOLE = ("root", "user", "root-without-namespaces", "user-without-namespaces")
"""Limits do not depend on seccomp or Landlock."""


# 44 ---------------------------------------------------------------------------------------------------------

_FEW = limits(processes=16)


def _fork_until(most: int, *, catch: bool) -> tuple[int, str]:
    """Fork sleepers; (how many, what stopped it). They are killed again, unless the refusal is to
    be raised.
    """
    children: list[int] = []
    stopped = "ok"
    while len(children) < most:
        try:
            pid = os.fork()
        except OSError as error:
            if not catch:
                raise
            stopped = errno.errorcode[error.errno or 0]
            break
        if pid == 0:
            signal.pause()
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return len(children), stopped


@attack(
    44,
    "fork-bomb-counted",
    caged={"stopped": "EAGAIN", "within": True, "threads": "EAGAIN"},
    control={"stopped": "ok", "within": False, "threads": "ok"},
    control_as="user",
    first="rlimits",
    cage=_FEW,
    only=WHOLE,
    heavy=True,
)
def fork_bomb_counted(world: World) -> dict[str, Any]:
    """Fork, and start threads, until it is refused."""
    count, stopped = _fork_until(100, catch=True)
    release = threading.Event()
    threads: list[threading.Thread] = []
    threaded = "ok"
    while len(threads) < 100:
        thread = threading.Thread(target=release.wait)
        try:
            thread.start()
        except RuntimeError:
            threaded = "EAGAIN"
            break
        threads.append(thread)
    release.set()
    for thread in threads:
        thread.join()
    # Where there is no user namespace the kernel counts the user's other processes too: near the limit, not
    # at it.
    most = 16 if world["private"] or world["ctx"] is None else 60
    return {"stopped": stopped, "within": count < most, "threads": threaded}


@attack(
    44,
    "fork-bomb",
    caged=Ends("limit", "processes"),
    control=100,
    control_as="user",
    first="rlimits",
    cage=_FEW,
    only=WHOLE,
    heavy=True,
)
def fork_bomb(world: World) -> int:
    """Fork until the tool itself falls over the refusal."""
    return _fork_until(100, catch=False)[0]


@attack(
    44,
    "fork-bomb-of-forks",
    caged={"bomb": Ends("limit", "timeout").reason, "sibling": "ok", "gone": True, "next": "ok"},
    no_control="it would end the machine",
    first="rlimits",
    cage=limits(processes=32, timeout_s=1.0),
    only=WHOLE,
    host="bomb_beside_a_sibling",
    heavy=True,
)
def fork_bomb_of_forks(world: World) -> None:
    """Every child forks as well, in sessions of their own where that is allowed, and none gives up."""
    while True:
        try:
            if os.fork() == 0:
                try:
                    os.setsid()
                except OSError:
                    pass
        except OSError:
            continue


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
    only=WHOLE,
    heavy=True,
)
def one_large_piece(world: World) -> int:
    """Two GiB at once."""
    return len(bytearray(1 << 31))


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
    only=WHOLE,
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
    only=WHOLE,
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


@attack(
    45,
    "in-many-processes",
    caged=_MEMORY,
    control=1 << 28,
    control_as="user",
    first="cgroup-limits",
    cage=_SMALL,
    only=WHOLE,
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
    only=WHOLE,
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
    only=WHOLE,
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
    only=WHOLE,
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
        cage=_OUTSIDE, only=WHOLE, heavy=True,
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
        cage=_OUTSIDE, only=WHOLE, heavy=True,
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
    only=WHOLE,
    walls={"without-namespaces": {"posix": one_of("EMFILE", "EPERM", "EACCES"), "system v": "EPERM"}},
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
    only=WHOLE,
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


# 47, 48, 49 -------------------------------------------------------------------------------------------------


@attack(
    47,
    "disk",
    caged={"endless": "ENOSPC", "sparse": "EFBIG", "reserved": one_of("EFBIG", "ENOSPC")},
    control={"endless": "ok", "sparse": "ok", "reserved": "ok"},
    control_as="user",
    first="rlimits",
    cage=limits(tmp=16 * MIB, output=MIB),
    only=WHOLE,
    walls={"without-namespaces": {"endless": "EFBIG", "sparse": "EFBIG", "reserved": "EFBIG"}},
)
def disk(world: World) -> dict[str, str]:
    """A file without end, one of a terabyte with nothing in it, and room reserved."""
    path = f"{scratch(world)}/large-{os.getpid()}"
    with open(path, "wb", buffering=0) as file:

        def endless() -> None:
            for _ in range(64):
                file.write(bytes(MIB))

        def sparse() -> None:
            os.ftruncate(file.fileno(), 1 << 40)

        def reserved() -> None:
            os.posix_fallocate(file.fileno(), 0, 64 * MIB)

        found = {"endless": answer(endless)}
        os.ftruncate(file.fileno(), 0)
        found |= {"sparse": answer(sparse), "reserved": answer(reserved)}
    os.unlink(path)
    return found


@attack(
    48,
    "inodes",
    caged={"files": "ENOSPC", "deep": "ok", "long name": "ENAMETOOLONG"},
    control={"files": "ok", "deep": "ok", "long name": "ENAMETOOLONG"},
    control_as="user",
    first="mount",
    only=WHOLE,
    walls={"without-namespaces": {"files": "ok", "deep": "ok", "long name": "ENAMETOOLONG"}},
)
def inodes(world: World) -> dict[str, str]:
    """Empty files without end, a thousand folders in each other, a name that is too long."""
    base = f"{scratch(world)}/inodes-{os.getpid()}"
    os.mkdir(base)

    def files() -> None:
        for number in range(10_000):
            os.close(os.open(f"{base}/{number}", os.O_CREAT | os.O_WRONLY, 0o600))

    told = answer(files)
    shutil.rmtree(base)
    os.mkdir(base)

    def deep() -> None:
        fd = os.open(base, os.O_RDONLY)
        for _ in range(1000):
            os.mkdir("d", dir_fd=fd)
            inner = os.open("d", os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = inner
        os.close(fd)

    found = {
        "files": told,
        "deep": answer(deep),
        "long name": answer(lambda: os.mkdir(f"{base}/{'n' * 256}")),
    }
    if world["ctx"] is None:
        subprocess.run(["rm", "-rf", base], check=True)
    return found


@attack(
    49,
    "descriptors",
    caged={"files": 1020, "epoll": 1020, "timers": 1020, "watches": one_of("EMFILE")},
    control={"files": 3000, "epoll": 3000, "timers": 3000, "watches": one_of("EMFILE", "ok")},
    first="rlimits",
    only=WHOLE,
)
def descriptors(world: World) -> dict[str, Any]:
    """Open until it is refused, of several kinds."""

    def most(make: Callable[[], int]) -> tuple[int, str]:
        kept: list[int] = []
        told = "ok"
        try:
            while len(kept) < 3000:
                kept.append(make())
        except OSError as error:
            told = errno.errorcode[error.errno or 0]
        for fd in kept:
            os.close(fd)
        return len(kept), told

    if world["ctx"] is None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    return {
        "files": most(lambda: os.open("/dev/null", os.O_RDONLY))[0],
        "epoll": most(lambda: syscall(291, 0))[0],
        "timers": most(lambda: syscall(283, 1, 0))[0],
        "watches": most(lambda: syscall(294, 0))[1],
    }


# 50, 51 -----------------------------------------------------------------------------------------------------

_SHORT = limits(timeout_s=0.5, cpu_s=20.0)
_TIMEOUT = Ends("limit", "timeout")
RAN_ON = "ran on"


def busy(world: World) -> str:
    """Nothing but work, for two seconds of the processor."""
    end = time.process_time() + 2
    while time.process_time() < end:
        pass
    return RAN_ON


attack(
    50,
    "busy-loop",
    caged=_TIMEOUT,
    control=RAN_ON,
    control_as="user",
    first="host timer",
    cage=_SHORT,
    only=WHOLE,
)(busy)
attack(50, "cpu-time", caged=Ends("limit", "cpu"), control=RAN_ON, control_as="user", first="rlimits",
       cage=limits(timeout_s=20.0, cpu_s=1.0), only=WHOLE)(busy)  # fmt: skip


@attack(50, "cpu-time-of-many", caged=Ends("limit", "cpu"), control=RAN_ON, control_as="user",
        first="watcher",
        cage=limits(timeout_s=20.0, cpu_s=1.0), only=WHOLE, heavy=True)  # fmt: skip
def cpu_time_of_many(world: World) -> str:
    """Four processes, none of which uses up the time alone."""
    children = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            busy(world)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    return RAN_ON


@attack(
    50,
    "holding-the-interpreter",
    caged=_TIMEOUT,
    no_control="it would not end by itself for hours",
    first="host timer",
    cage=_SHORT,
    only=WHOLE,
)
def holding_the_interpreter(world: World) -> int:
    """One C call that lets no other thread run."""
    return int(len(str(9**9**7)))


@attack(
    50,
    "regular-expression",
    caged=_TIMEOUT,
    no_control="it would not end by itself for years",
    first="host timer",
    cage=_SHORT,
    only=WHOLE,
)
def regular_expression(world: World) -> bool:
    """Exponential backtracking."""
    return bool(re.match(r"^(a+)+$", "a" * 60 + "!"))


@attack(
    50,
    "busy-threads",
    caged=_TIMEOUT,
    control=RAN_ON,
    control_as="user",
    first="host timer",
    cage=_SHORT,
    only=WHOLE,
)
def busy_threads(world: World) -> str:
    """Eight threads."""
    threads = [threading.Thread(target=busy, args=(world,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return RAN_ON


@attack(
    51,
    "deaf-to-signals",
    caged=_TIMEOUT,
    control=RAN_ON,
    control_as="user",
    first="pid",
    cage=_SHORT,
    only=WHOLE,
)
def deaf_to_signals(world: World) -> str:
    """Every signal that can be ignored is ignored, the rest is blocked."""
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(number, signal.SIG_IGN)
        except OSError:
            continue
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    return busy(world)


@attack(
    51,
    "stopped",
    caged=_TIMEOUT,
    no_control="a stopped process reports nothing",
    first="pid",
    cage=_SHORT,
    only=WHOLE,
)
def stopped(world: World) -> None:
    """It stops itself: SIGKILL must end it all the same."""
    os.kill(os.getpid(), signal.SIGSTOP)


@attack(
    51,
    "sleeping-at-exit",
    caged="returned",
    control="returned",
    control_as="user",
    first="pid",
    cage=_SHORT,
    only=WHOLE,
)
def sleeping_at_exit(world: World) -> str:
    """What runs after the result is not waited for."""
    import atexit

    if world["ctx"] is not None:
        atexit.register(time.sleep, 30)
        threading.Thread(target=time.sleep, args=(30,)).start()
    return "returned"


class _Clinging:
    """Its destructor never ends."""

    def __del__(self) -> None:
        while True:
            pass


@attack(
    51,
    "endless-destructor",
    caged=_TIMEOUT,
    no_control="it would not end",
    first="pid",
    cage=_SHORT,
    only=WHOLE,
)
def endless_destructor(world: World) -> str:
    """An object that does not let go."""
    _Clinging()
    return RAN_ON


# 52, 53 -----------------------------------------------------------------------------------------------------


@attack(
    52,
    "daemon",
    caged={"outcome": "ok", "value": True, "alive while it runs": True, "gone": True},
    no_control="`test_controls` starts the same daemon from a plain process: it lives on",
    first="pid",
    only=WHOLE,
    host="daemon",
    walls={"without-namespaces": {"outcome": "ok", "value": True, "alive while it runs": True, "gone": True}},
)
def daemon(world: World) -> bool:
    """Fork twice, a session of its own, and hold the output open."""
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            os.setsid()
        except OSError:
            pass
        if os.fork() == 0:
            os.write(write, b"1")
            os.close(write)
            os.execv("/bin/sleep", ["sleep", world["marker"]])
        os._exit(0)
    os.read(read, 1)
    os.wait()
    if world["ctx"] is not None:
        world["ctx"].emit("STARTED", None)
        os.close(write)
    return True


@attack(
    53,
    "killing-others",
    caged={"own child": "killed", "init": "EPERM", "host": "ESRCH", "victim": "ESRCH", "stop host": "ESRCH",
           "group": "ESRCH", "thread": "ESRCH"},
    control={"own child": "killed", "init": one_of("ok", "EPERM"), "host": "ok", "victim": "ok",
             "stop host": "ok", "group": "ESRCH",
             "thread": "ok"},
    first="pid",
    walls={
        # Process 1 of a namespace does not feel what is sent from inside; the process namespace hides
        # everybody else.
        "without-landlock": {"own child": "killed", "init": "ok", "host": "ESRCH", "victim": "ESRCH",
                             "stop host": "ESRCH", "group": "ESRCH",
                             "thread": "ESRCH"},
        # Landlock's scope, and in root mode another user id.
        "without-namespaces": {"own child": "killed", "init": "EPERM", "host": "EPERM", "victim": "EPERM",
                               "stop host": "EPERM",
                               "group": one_of("ESRCH", "EPERM"), "thread": "EPERM"},
    },
)  # fmt: skip
def killing_others(world: World) -> dict[str, str]:
    """Signals to everybody, to process 1, to the host and to a stranger. Outside, nothing is sent
    but the question (signal 0).
    """
    inside = world["ctx"] is not None
    deadly = signal.SIGKILL if inside and world["private"] else 0
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    if inside:
        answer(lambda: os.kill(-1, deadly))
    os.kill(child, signal.SIGKILL)
    died = "killed" if os.WIFSIGNALED(os.waitpid(child, 0)[1]) else "lives"
    stop = signal.SIGSTOP if deadly else 0
    return {
        "own child": died,
        "init": answer(lambda: os.kill(1, deadly)),
        "host": answer(lambda: os.kill(world["host_pid"], deadly)),
        "victim": answer(lambda: os.kill(world["victim_pid"], deadly)),
        "stop host": answer(lambda: os.kill(world["host_pid"], stop)),
        "group": answer(lambda: os.killpg(world["victim_pid"], deadly)),
        "thread": answer(lambda: syscall(234, world["victim_pid"], world["victim_pid"], deadly)),
    }


# 54, 55, 57 -------------------------------------------------------------------------------------------------


@attack(
    54,
    "own-limits-and-priority",
    caged={"files": "EPERM", "processes": "EPERM", "core": "EPERM", "limits of host": "ESRCH",
           "nice": "EACCES", "realtime": "EPERM",
           "disk priority": "EPERM", "oom score": "EROFS", "nice of host": "ESRCH"},
    control={"files": one_of("ok", "EPERM"), "processes": one_of("ok", "EPERM"), "core": "ok",
             "limits of host": "ok", "nice": "ok",
             "realtime": "ok", "disk priority": "ok", "oom score": one_of("ok", "EACCES"),
             "nice of host": "ok"},
    first="capabilities",
    walls={
        "root-without-namespaces": {"files": "EPERM", "processes": "EPERM", "core": "EPERM",
                                    "limits of host": "EPERM", "nice": "EACCES",
                               "realtime": "EPERM", "disk priority": "EPERM", "oom score": "EACCES",
                               "nice of host": "EPERM"},
        # The host is a process of the same user: its priority may be lowered and its limits be read. Stated
        # for this tier.
        "user-without-namespaces": {"files": "EPERM", "processes": "EPERM", "core": "EPERM",
                                    "limits of host": one_of("ok", "EPERM"), "nice": "EACCES",
                               "realtime": "EPERM", "disk priority": "EPERM", "oom score": "EACCES",
                               "nice of host": one_of("ok", "EPERM")},
    },
)  # fmt: skip
def own_limits_and_priority(world: World) -> dict[str, str]:
    """Lift one's own limits, jump the queue, and touch the host's."""

    def lift(kind: int, value: int) -> Callable[[], object]:
        def step() -> None:
            try:
                resource.setrlimit(kind, (value, value))
            except ValueError as error:
                raise OSError(errno.EPERM, str(error)) from error

        return step

    def score() -> None:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("-1000")

    return answers(
        {
            "files": lift(resource.RLIMIT_NOFILE, 1 << 20),
            "processes": lift(resource.RLIMIT_NPROC, 1 << 20),
            "core": lift(resource.RLIMIT_CORE, 1 << 20),
            "limits of host": lambda: resource.prlimit(world["host_pid"], resource.RLIMIT_NOFILE),
            "nice": lambda: os.setpriority(os.PRIO_PROCESS, 0, -20),
            "realtime": lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
            "disk priority": lambda: syscall("ioprio_set", 1, 0, 1 << 13),
            "oom score": score,
            "nice of host": lambda: os.setpriority(
                os.PRIO_PROCESS, world["host_pid"], os.getpriority(os.PRIO_PROCESS, world["host_pid"])
            ),
        }
    )


@attack(
    55,
    "locks-on-shared-files",
    caged={"flock": "ok", "record lock": "EBADF", "lease": "EPERM", "notify": "EPERM"},
    control={"flock": "ok", "record lock": "ok", "lease": one_of("ok", "EAGAIN"), "notify": "ok"},
    first="policy",
    cage=Cage(read=("granted",)),
    # flock is allowed and documented: a lock on a file that several may read is seen by all of them. A lease
    # would make the host wait.
    walls={
        "without-seccomp": {
            "flock": "ok",
            "record lock": "EBADF",
            "lease": one_of("ok", "EAGAIN"),
            "notify": "ok",
        }
    },
)
def locks_on_shared_files(world: World) -> dict[str, str]:
    """Lock what others read: a channel between cages, and a way to make the host wait."""
    path = world["granted_file"]
    flags = os.O_RDWR if world["ctx"] is None else os.O_RDONLY

    def on(step: Callable[[int], object], flags: int = os.O_RDONLY) -> Callable[[], object]:
        def run() -> None:
            fd = os.open(path, flags)
            step(fd)

        return run

    def notify() -> None:
        fd = os.open(os.path.dirname(path), os.O_RDONLY)
        fcntl.fcntl(fd, 1026, 1)

    return answers(
        {
            "flock": on(lambda fd: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)),
            "record lock": on(lambda fd: fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB), flags),
            "lease": on(lambda fd: fcntl.fcntl(fd, 1024, fcntl.F_RDLCK)),
            "notify": notify,
        }
    )


@attack(
    56,
    "leftovers",
    caged={"files": [], "shared memory": [], "segments": 0, "queues": 0, "processes": 0,
           "abstract": "ECONNREFUSED",
           "mounts": 0, "descriptors": 0, "groups": 0, "folders": 0, "outcome": "ok ok"},
    no_control="`test_controls` makes both calls in one process: the second sees it all",
    first="mount",
    only=WHOLE,
    host="leftovers",
    heavy=True,
    walls={"without-namespaces": {"files": [], "shared memory": [], "segments": 0, "queues": 0,
                                  "processes": 0,
           "abstract": "ECONNREFUSED", "mounts": 0, "descriptors": 0, "groups": 0, "folders": 0,
           "outcome": "ok ok"}},
)  # fmt: skip
def leftovers(world: World) -> Any:
    """Call 1 leaves what it can, call 2 looks for it."""
    import socket

    place = scratch(world)
    if not world.get("second"):
        for path in (f"{place}/left", "/dev/shm/fumehood-left"):
            try:
                with open(path, "w", encoding="ascii") as file:
                    file.write("left")
            except OSError:
                continue
        answer(lambda: syscall("shmget", 0xF00D, 4096, 0o1600))
        answer(lambda: syscall("msgget", 0xF00D, 0o1600))
        sock = socket.socket(socket.AF_UNIX)
        sock.bind("\0fumehood-left")
        sock.listen()
        if os.fork() == 0:
            signal.pause()
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        return True

    def connect() -> None:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect("\0fumehood-left")

    return {
        "files": os.listdir(place),
        "shared memory": [
            name
            for name in (os.listdir("/dev/shm") if os.access("/dev/shm", os.R_OK) else [])
            if "left" in name
        ]
        if opening("/dev/shm") == "ok"
        else [],
        "segments": int(answer(lambda: syscall("shmget", 0xF00D, 4096, 0)) == "ok"),
        "queues": int(answer(lambda: syscall("msgget", 0xF00D, 0)) == "ok"),
        "abstract": answer(connect),
    }


@attack(
    57,
    "groups-and-mounts",
    caged={"list": "ENOENT", "make": "ENOENT", "move": "ENOENT", "mounts": "EPERM"},
    control={"list": "ok", "make": "ok", "move": "ok", "mounts": "ok"},
    first="mount",
    walls={
        "without-seccomp": {"list": "ENOENT", "make": "ENOENT", "move": "ENOENT", "mounts": "EPERM"},
        "without-namespaces": {"list": "EACCES", "make": "EACCES", "move": "EACCES", "mounts": "EPERM"},
    },
)
def groups_and_mounts(world: World) -> dict[str, str]:
    """Make control groups without end, leave one's own, mount in a loop."""
    base = "/sys/fs/cgroup/unified" if os.path.isdir("/sys/fs/cgroup/unified") else "/sys/fs/cgroup"
    folder = f"{base}/fumehood-attack-{os.getpid()}"

    def make() -> None:
        os.mkdir(folder)
        os.rmdir(folder)

    def move() -> None:
        with open(f"{base}/cgroup.procs", "w", encoding="ascii") as file:
            file.write(str(os.getpid()))

    def mounts() -> None:
        try:
            syscall("unshare", 0x20000)
            syscall("mount", None, b"/", None, 0x44000, None)
        except OSError:
            pass
        for _ in range(10):
            syscall("mount", b"t", b"/tmp", b"tmpfs", 0, None)

    return {"list": opening(base), **answers({"make": make, "move": move, "mounts": mounts})}
