"""Section C of the catalogue: what the kernel counts for a whole user, for the machine, or for nobody."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import socket
import threading
import time
from typing import Any

from tests.isolate.attacks._kernel import SIGCHLD, answer, answers, syscall
from tests.isolate.attacks._model import BOTH_TIERS, MIB, Cage, Ends, Table, World, limits, one_of

TABLE = Table()
attack = TABLE.add


# 45, 50 -----------------------------------------------------------------------------------------------------


@attack(
    45,
    "a-sister-process",
    caged="EPERM",
    control="ok",
    control_as="user",
    first="seccomp",
    only=BOTH_TIERS,
)
def a_sister_process(world: World) -> str:
    """A process that is the child of one's own parent: nothing that leads from the call's process to its
    descendants leads there, so neither its memory nor its time would count.
    """

    def sister() -> None:
        pid = syscall("clone", 0x8000 | SIGCHLD, None, None, None, 0)  # CLONE_PARENT
        if pid == 0:
            signal.pause()
            os._exit(0)
        os.kill(pid, signal.SIGKILL)

    return answer(sister)


_SMALL = limits(memory=64 * MIB)
_MEMORY = Ends("limit", "memory")


@attack(
    45,
    "page-tables",
    caged=_MEMORY,
    control=1 << 28,
    control_as="user",
    first="cgroup-limits",
    cage=_SMALL,
    only=BOTH_TIERS,
    heavy=True,
)
def page_tables(world: World) -> int:
    """A quarter of a GiB of page tables, and no page behind them: a read for every two MiB of addresses."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    tables = (1 << 28) // 4096
    place = libc.mmap(None, tables * 2 * MIB, mmap.PROT_READ, 0x4022, -1, 0)  # MAP_NORESERVE too
    libc.madvise(place, tables * 2 * MIB, 15)  # MADV_NOHUGEPAGE
    for number in range(tables):
        ctypes.string_at(place + number * 2 * MIB, 1)
    if world["ctx"] is not None:
        time.sleep(2)  # where only a watcher counts
    return tables * 4096


@attack(
    45,
    "behind-a-thread-that-ended",
    caged=_MEMORY,
    control=1 << 28,
    control_as="user",
    first="cgroup-limits",
    cage=_SMALL,
    only=BOTH_TIERS,
    heavy=True,
)
def behind_a_thread_that_ended(world: World) -> int:
    """A process whose first thread has ended: what the kernel says of it is that it holds nothing."""
    pid = os.fork()
    if pid == 0:

        def keep() -> None:
            kept = [os.urandom(4 * MIB) for _ in range(64)]
            time.sleep(2 if world["ctx"] is not None else 0)
            os._exit(len(kept) and 0)

        threading.Thread(target=keep).start()
        syscall(60, 0)  # exit(2), of this thread alone
    os.waitpid(pid, 0)
    return 1 << 28


@attack(
    45,
    "shared-in-many-processes",
    caged=_MEMORY,
    control=1 << 28,
    control_as="user",
    first="cgroup-limits",
    cage=_SMALL,
    only=BOTH_TIERS,
    heavy=True,
)
def shared_in_many_processes(world: World) -> int:
    """Many processes, each with a small shared mapping of its own."""
    read, write = os.pipe()
    for _ in range(32):
        if os.fork() == 0:
            memory = mmap.mmap(-1, 8 * MIB)
            ctypes.memset((ctypes.c_char * len(memory)).from_buffer(memory), 1, len(memory))
            os.write(write, b"1")
            time.sleep(2 if world["ctx"] is not None else 0)
            os._exit(0)
    for _ in range(32):
        os.read(read, 1)
        os.wait()
    return 1 << 28


@attack(
    45,
    "handed-to-another-call",
    caged={"a socket in the grant": "EACCES", "beside": "ok", "outcomes": ["ok", "ok"]},
    no_control="the groups in which it would count are the cage's own",
    first="landlock-fs",
    cage=Cage(limits=(("memory", 64 * MIB), ("tmp", 48 * MIB)), write=("results",)),
    only=BOTH_TIERS,
    host="handed_to_another_call",
    heavy=True,
)
def handed_to_another_call(world: World) -> Any:
    """One call fills a file and gives its descriptor to another that stays: it would count for whoever is
    next in the group of the first. In one's own folder a socket can be made; without a view it is in reach.
    """
    given = world.get("socket")
    with socket.socket(socket.AF_UNIX) as sock:
        if given is None:
            in_grant = f"{world['results']}/socket"
            refused = answer(lambda: sock.bind(in_grant))
            if refused != "ok":
                sock.bind(in_grant := f"{world['ctx'].tmp}/socket")
                os.chmod(in_grant, 0o777)
            sock.listen()
            sock.settimeout(5)
            world["ctx"].emit("LISTENING", [in_grant, refused])
            try:
                world["ctx"].put(b"", "held") if socket.recv_fds(sock.accept()[0], 1, 1) else None
            except TimeoutError:
                pass  # nobody can come here
            return refused
        try:
            fd = os.memfd_create("kept", 0)
        except OSError:
            fd = os.open(f"{world['ctx'].tmp}/kept", os.O_CREAT | os.O_RDWR)
        for _ in range(40):
            os.write(fd, os.urandom(MIB))
        try:
            sock.connect(given)
            socket.send_fds(sock, [b"x"], [fd])
        except OSError:
            return "out of reach"
        return "given"


# 50 ---------------------------------------------------------------------------------------------------------


@attack(
    50,
    "children-that-nobody-waits-for",
    caged=Ends("limit", "cpu"),
    control="done",
    control_as="user",
    first="policy",
    cage=limits(cpu_s=1.0),
    only=BOTH_TIERS,
    heavy=True,
)
def children_that_nobody_waits_for(world: World) -> str:
    """Whoever ignores SIGCHLD has children that vanish as they end, and their time is added to nobody's."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for _ in range(10 if world["ctx"] is not None else 1):
        pid = os.fork()
        if pid == 0:
            started = time.process_time()
            while time.process_time() - started < 0.4:
                pass
            os._exit(0)
        try:
            os.waitpid(pid, 0)
        except ChildProcessError:
            continue  # it has ended, and was nobody's
    signal.signal(signal.SIGCHLD, before)
    return "done"


# 46 ---------------------------------------------------------------------------------------------------------


@attack(
    46,
    "semaphores",
    caged="ok",
    control="ok",
    control_as="user",
    first="cgroup-limits",
    only=BOTH_TIERS,
    # Where no group counts them, two MiB a set would be the machine's.
    walls={
        "user": "ENOSYS",
        "without-namespaces": "EPERM",
        "user-without-namespaces": one_of("ENOSYS", "EPERM"),
    },
)
def semaphores(world: World) -> str:
    """System V semaphores, as many in a set as there may be: memory of the kernel's that is in no process."""

    def make() -> None:
        syscall(66, syscall(64, 0, 32000, 0o1600), 0, 0, None)  # semget, semctl(IPC_RMID)

    return answer(make)


# 57 ---------------------------------------------------------------------------------------------------------


@attack(
    57,
    "pools-of-machine-and-user",
    caged={"events of disks": "ENOSYS", "watchers of files": "ENOSPC"},
    control={"events of disks": "ok", "watchers of files": "ok"},
    control_as="user",
    first="seccomp",
    only=BOTH_TIERS,
)
def pools_of_machine_and_user(world: World) -> dict[str, Any]:
    """Pools that are empty for everybody when one call has taken all: fs.aio-max-nr of the whole machine,
    fs.inotify.max_user_instances of the user.
    """
    context = ctypes.c_ulong(0)
    return answers(
        {
            "events of disks": lambda: syscall(206, 1024, ctypes.byref(context)),  # io_setup
            "watchers of files": lambda: os.close(syscall(294, 0)),  # inotify_init1
        }
    )
