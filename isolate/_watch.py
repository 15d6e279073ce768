"""The host's own look at a running tree: memory and CPU time of all its processes, and tasks.

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

EVERY_S = 0.05
SOONEST_S = 0.01
FILL = 4 << 30
"""Bytes a second that a tree is taken to write: two cores, each as fast as memory is cleared for it."""
PARKED_EVERY_S = 1.0  # whoever waits for a call should do nothing; a look costs a fifth of a millisecond
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")
_SHARED_LOOKED_AT = 32 << 20  # below it, shared pages are the interpreter's own files: no closer look
_TREE_CAP = 4096  # processes looked at; RLIMIT_NPROC keeps a tree far below


class Watch:
    """Looks at a tree now and then and calls `hit("memory")` or `hit("cpu")` when it goes over.

    cpu_before: seconds that earlier calls of a reused process used. every: seconds between two looks.
    """

    def __init__(
        self,
        child: Child,
        limits: Limits,
        hit: Callable[[str], None],
        cpu_before: float,
        every: float = EVERY_S,
    ) -> None:
        self._child, self._limits, self._hit, self._before = child, limits, hit, cpu_before
        self._loop, self._every = asyncio.get_running_loop(), every
        self._timer = self._loop.call_later(every, self._look)

    def _look(self) -> None:
        memory, cpu = usage(self._child.pid, self._child.init)
        group = self._child.group
        if group is None and memory > self._limits.memory:
            self._hit("memory")
        elif group is not None and group.memory_kills():
            # Version 1 kills one process of the tree and lets the rest wait for it.
            self._hit("memory")
        elif cpu - self._before > self._limits.cpu_s:
            self._hit("cpu")
        else:
            counted = group is not None or self._every > EVERY_S  # one that waits is looked at seldom
            left = None if counted else self._limits.memory - memory
            self._timer = self._loop.call_later(next_look(left, self._every), self._look)

    def stop(self) -> None:
        """Look no more."""
        self._timer.cancel()


def next_look(left: int | None, every: float) -> float:
    """Seconds to the next look: the sooner, the less memory is left until the limit.

    left: bytes, None where the kernel counts. A tree that fills no faster than FILL is over its limit by what
    it writes in SOONEST_S. What one process may hold, however fast it is, is RLIMIT_DATA's (`_plan`).
    """
    return every if left is None else min(every, max(SOONEST_S, left / FILL))


def tree(pid: int, init: int) -> list[int]:
    """The process, all its descendants, and what of them it let go.

    init: of the call's process namespace, the parent of every orphan in it; 0 without such a namespace: then
    they are in the child's session, where seccomp keeps them. Nothing here needs a right over the processes:
    one that has made itself unreadable (PR_SET_DUMPABLE) is seen as well.
    """
    found: list[int] = []
    stack = [pid, *(_children(init) if init > 0 else session_of(pid))]
    seen = {init}
    while stack and len(found) < _TREE_CAP:
        current = stack.pop()
        if current not in seen:
            seen.add(current)
            found.append(current)
            stack += _children(current)
    return found


def session_of(pid: int) -> list[int]:
    """Processes of the session that this process leads or led, as far as they live."""
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and _fields(int(name))[3] == str(pid):
                found.append(int(name))
        except (OSError, IndexError):
            continue
    return found


def usage(pid: int, init: int) -> tuple[int, float]:
    """Resident bytes (without what is shared with the zygote's files) and CPU seconds of the tree, dead
    children included, and dead orphans, which count with the init.
    """
    memory, cpu = 0, _of_dead_children(init) if init > 0 else 0.0
    for process in tree(pid, init):
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


def _of_dead_children(pid: int) -> float:
    try:
        return sum(map(int, _fields(pid)[13:15])) / _TICK
    except (OSError, ValueError):
        return 0.0


def _shared_memory(pid: int) -> int:
    """The process's part of mapped memory that has no file: shared anonymous mappings and segments (proc(5)).

    All of it, not only its part, of a process that lets nobody look at its mappings.
    """
    for name, key in (("smaps_rollup", "Pss_Shmem:"), ("status", "RssShmem:")):
        try:
            with open(f"/proc/{pid}/{name}", encoding="ascii", errors="replace") as file:
                for line in file:
                    if line.startswith(key):
                        return int(line.split()[1]) * 1024
        except (OSError, ValueError):
            continue
    return 0


def _fields(pid: int) -> list[str]:
    """Fields 3 and later of /proc/PID/stat: state, parent, group, session, ..."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def count_tasks(pid: int, init: int) -> int:
    """Threads and processes of the tree."""
    total = 0
    for process in tree(pid, init):
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


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                found += [int(child) for child in file.read().split()]
    except OSError:
        pass
    return found
