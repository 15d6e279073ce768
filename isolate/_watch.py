"""The host's own look at a running tree: memory and CPU time of all its processes, tasks, and whether /tmp is
full.

Used where no control group counts (an ordinary user), and to name the limit behind a failure. Reads /proc
from outside; nothing here trusts the child. The first look comes late and the next ones slowly, so a short
call pays nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from fumehood.isolate._child import Child
from fumehood.isolate._spec import Limits

FIRST_LOOK_S, EVERY_S = 0.05, 0.05
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")
_SHARED_LOOKED_AT = 32 << 20  # below it, shared pages are the interpreter's own files: no closer look
_TREE_CAP = 4096  # processes looked at; RLIMIT_NPROC keeps a tree far below


class Watch:
    """Looks at a tree now and then and calls `hit("memory")` or `hit("cpu")` when it goes over.

    cpu_before: seconds that earlier calls of a reused process used.
    """

    def __init__(self, child: Child, limits: Limits, hit: Callable[[str], None], cpu_before: float) -> None:
        self._child, self._limits, self._hit, self._before = child, limits, hit, cpu_before
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(FIRST_LOOK_S, self._look)

    def _look(self) -> None:
        memory, cpu = usage(self._child.pid)
        group = self._child.group
        if group is None and memory > self._limits.memory:
            self._hit("memory")
        elif group is not None and group.memory_kills():
            # Version 1 kills one process of the tree and lets the rest wait for it.
            self._hit("memory")
        elif cpu - self._before > self._limits.cpu_s:
            self._hit("cpu")
        else:
            self._timer = self._loop.call_later(EVERY_S, self._look)

    def stop(self) -> None:
        """Look no more."""
        self._timer.cancel()


def tree(pid: int) -> list[int]:
    """The process and all its descendants that still have their parent; orphans belong to the call's init and
    are found through it.
    """
    parent = _parent(pid)
    found: list[int] = []
    stack = [pid]
    while stack and len(found) < _TREE_CAP:
        current = stack.pop()
        found.append(current)
        stack += _children(current)
    if parent > 1:
        # Orphans of the call are children of its init, which is a sibling in the zygote's namespace: see
        # _orphans.
        found += _orphans(pid, set(found))
    return found


def _orphans(pid: int, known: set[int]) -> list[int]:
    """What the child forked and let go: processes of its process namespace, or of its session where it has no
    such namespace (seccomp keeps them in it).
    """
    try:
        namespace = os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return []
    private = namespace != os.stat("/proc/self/ns/pid").st_ino
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in known:
            try:
                if private:
                    ours = os.stat(f"/proc/{name}/ns/pid").st_ino == namespace and not _is_init(name)
                else:
                    ours = _fields(int(name))[3] == str(pid)
            except (OSError, IndexError):
                continue
            if ours:
                found.append(int(name))
    return found


def _is_init(name: str) -> bool:
    with open(f"/proc/{name}/status", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("NSpid:"):
                return line.split()[-1] == "1"
    return False


def usage(pid: int) -> tuple[int, float]:
    """Resident bytes (without what is shared with the zygote's files) and CPU seconds of the tree, dead
    children included.
    """
    memory, cpu = 0, 0.0
    for process in tree(pid):
        try:
            with open(f"/proc/{process}/statm", encoding="ascii") as file:
                _, resident, shared, *_ = file.read().split()
            fields = _fields(process)
        except (OSError, ValueError):
            continue
        memory += (int(resident) - int(shared)) * _PAGE
        if int(shared) * _PAGE > _SHARED_LOOKED_AT:
            memory += _shared_memory(process)
        cpu += sum(int(fields[i]) for i in (11, 12, 13, 14)) / _TICK
    return memory, cpu


def _shared_memory(pid: int) -> int:
    """The process's part of mapped memory that has no file: shared anonymous mappings and segments
    (proc(5)).
    """
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("Pss_Shmem:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return 0


def _fields(pid: int) -> list[str]:
    """Fields 3 and later of /proc/PID/stat: state, parent, group, session, ..."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def count_tasks(pid: int) -> int:
    """Threads and processes of the tree."""
    total = 0
    for process in tree(pid):
        try:
            total += len(os.listdir(f"/proc/{process}/task"))
        except OSError:
            continue
    return total


def tasks_of(uid: int) -> int:
    """Threads and processes of one user on this machine."""
    total = 0
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == uid:
                total += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue
    return total


def tmp_is_full(pid: int) -> bool:
    """Whether the call's /tmp has no byte or no inode left."""
    try:
        state = os.statvfs(f"/proc/{pid}/root/tmp")
    except OSError:
        return False
    return state.f_bavail == 0 or state.f_favail == 0


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                found += [int(child) for child in file.read().split()]
    except OSError:
        pass
    return found


def _parent(pid: int) -> int:
    try:
        return int(_fields(pid)[1])
    except (OSError, ValueError, IndexError):
        return -1
