"""Section C of the catalogue: disk, inodes, descriptors, limits, locks, and what is left behind."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.isolate.attacks._kernel import answer, answers, opening, scratch, syscall
from tests.isolate.attacks._model import BOTH_TIERS, MIB, Cage, Table, World, limits, one_of

TABLE = Table()
attack = TABLE.add


# 47, 48, 49 -------------------------------------------------------------------------------------------------


@attack(
    47,
    "disk",
    caged={"endless": "ENOSPC", "sparse": "EFBIG", "reserved": one_of("EFBIG", "ENOSPC")},
    control={"endless": "ok", "sparse": "ok", "reserved": "ok"},
    control_as="user",
    first="rlimits",
    cage=limits(tmp=16 * MIB, output=MIB),
    only=BOTH_TIERS,
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
    only=BOTH_TIERS,
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
    caged={"files": 1020, "epoll": 1020, "timers": 1020, "watches": "ENOSPC"},
    control={"files": 3000, "epoll": 3000, "timers": 3000, "watches": one_of("EMFILE", "ok")},
    first="rlimits",
    only=BOTH_TIERS,
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


# 54, 55, 57 -------------------------------------------------------------------------------------------------


_OWN = ("files", "processes", "core", "nice", "realtime", "disk priority", "oom score")
_ITS = ("read limits", "set limits", "nice", "nice of the user", "affinity", "idle", "disk priority")
"""Of the host's process: each would be set to what it is already."""


@attack(
    54,
    "own-limits-and-priority",
    caged=dict.fromkeys(_OWN, "EPERM") | {"nice": "EACCES", "oom score": "EROFS"},
    control=dict.fromkeys(_OWN, "ok")
    | dict.fromkeys(("files", "processes"), one_of("ok", "EPERM"))
    | {"oom score": one_of("ok", "EACCES")},
    first="capabilities",
    walls={"without-namespaces": dict.fromkeys(_OWN, "EPERM") | {"nice": "EACCES", "oom score": "EACCES"}},
)
def own_limits_and_priority(world: World) -> dict[str, str]:
    """Lift one's own limits and jump the queue."""

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
            "nice": lambda: os.setpriority(os.PRIO_PROCESS, 0, -20),
            "realtime": lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)),
            "disk priority": lambda: syscall("ioprio_set", 1, 0, 1 << 13),
            "oom score": score,
        }
    )


@attack(
    54,
    "limits-and-priority-of-the-host",
    # A limit of no time for the processor would kill the host; Landlock's scopes cover signals only.
    caged=dict.fromkeys(_ITS, "ESRCH") | {"nice of the user": "ok", "disk priority": "ESRCH"},
    control=dict.fromkeys(_ITS, "ok"),
    first="pid",
    walls={
        "root-without-namespaces": dict.fromkeys(_ITS, "EPERM") | {"nice of the user": "ok"},
        "user-without-namespaces": dict.fromkeys(_ITS, "EPERM"),
    },
)
def limits_and_priority_of_the_host(world: World) -> dict[str, str]:
    """Change what the kernel lets every process change of another one of its user."""
    host = world["host_pid"]
    inside = world["ctx"] is not None
    files = (256, 1024) if inside else resource.prlimit(host, resource.RLIMIT_NOFILE)
    cores = os.sched_getaffinity(0)
    return answers(
        {
            "read limits": lambda: resource.prlimit(host, resource.RLIMIT_NOFILE),
            "set limits": lambda: resource.prlimit(host, resource.RLIMIT_NOFILE, files),
            "nice": lambda: os.setpriority(os.PRIO_PROCESS, host, 0),
            "nice of the user": lambda: os.setpriority(os.PRIO_USER, 0, 0),
            "affinity": lambda: os.sched_setaffinity(host, cores),
            "idle": lambda: os.sched_setscheduler(host, os.SCHED_OTHER, os.sched_param(0)),
            "disk priority": lambda: syscall("ioprio_set", 1, host, 0),
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
    55,
    "watching-shared-folders",
    caged={"system": "ENOSPC", "grant": "ENOSPC", "own folder": "ENOSPC"},
    control={"system": "ok", "grant": "ok", "own folder": "ok"},
    control_as="user",
    first="policy",
    cage=Cage(read=("granted",)),
    # The first wall is the only one: what may be read may be watched.
    walls={"without-seccomp": {"system": "ok", "grant": "ok", "own folder": "ok"}},
)
def watching_shared_folders(world: World) -> dict[str, str]:
    """See which programs the host starts, and when another call of the same tool begins."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)

    def watch(folder: str) -> Callable[[], object]:
        def run() -> None:
            fd = libc.inotify_init1(0)
            if libc.inotify_add_watch(fd, folder.encode(), 0xFFF) < 0:
                raise OSError(ctypes.get_errno(), "inotify_add_watch")

        return run

    own = os.path.dirname(os.path.realpath(__file__))
    return answers({"system": watch("/usr/bin"), "grant": watch(world["granted"]), "own folder": watch(own)})


@attack(
    56,
    "leftovers",
    caged={"files": [], "shared memory": [], "segments": 0, "queues": 0, "processes": 0,
           "abstract": "ECONNREFUSED",
           "mounts": 0, "descriptors": 0, "groups": 0, "folders": 0, "outcome": "ok ok"},
    no_control="`test_controls` makes both calls in one process: the second sees it all",
    first="mount",
    only=BOTH_TIERS,
    host="leftovers",
    heavy=True,
    walls={"without-namespaces": {"files": [], "shared memory": [], "segments": 0, "queues": 0,
                                  "processes": 0,
           "abstract": "EACCES", "mounts": 0, "descriptors": 0, "groups": 0, "folders": 0,
           "outcome": "ok ok"}},
)  # fmt: skip
def leftovers(world: World) -> Any:
    """Call 1 leaves what it can, call 2 looks for it."""
    import socket

    place, name = scratch(world), f"\0{world['abstract']}-left"  # such names are the whole network's
    if not world.get("second"):
        for path in (f"{place}/left", "/dev/shm/fumehood-left"):
            try:
                with open(path, "w", encoding="ascii") as file:
                    file.write("left")
            except OSError:
                continue
        if world["ctx"] is not None:  # folders that nobody may enter, not even to remove what is in them
            os.makedirs(f"{place}/closed/inner")
            os.chmod(f"{place}/closed", 0)
        answer(lambda: syscall("shmget", 0xF00D, 4096, 0o1600))
        answer(lambda: syscall("msgget", 0xF00D, 0o1600))
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(name)
        sock.listen()
        if os.fork() == 0:
            signal.pause()
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        return True

    def connect() -> None:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(name)

    return {
        # A checkout below /tmp is shown there, because this file is the tool's.
        "files": [name for name in sorted(os.listdir(place)) if not __file__.startswith(f"{place}/{name}/")],
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
