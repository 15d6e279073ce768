"""The host's own look at a running tree: memory and CPU time of all its processes, and tasks.

Used where no control group counts (an ordinary user), and to name the limit behind a failure. Reads /proc
from outside; nothing here trusts the child. The first look comes late and the next ones slowly, so a short
call pays nothing. Sources: proc(5), Documentation/filesystems/proc.rst.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fumehood.isolate._child import Child
from fumehood.isolate._small import read_small
from fumehood.isolate._spec import Limits

EVERY_S = 0.05
SOONEST_S = 0.01
FILL = 4 << 30
"""Bytes a second that a tree is taken to write: two cores, each as fast as memory is cleared for it."""
PARKED_EVERY_S = 1.0  # whoever waits for a call should do nothing; a look costs a fifth of a millisecond
_TICK = os.sysconf("SC_CLK_TCK")
_TREE_CAP = 4096  # processes looked at; RLIMIT_NPROC keeps a tree far below
_HELD = re.compile(rb"^(?:RssAnon|RssShmem|VmSwap|VmPTE|HugetlbPages):\s+(\d+)", re.MULTILINE)
"""What a process holds: not the pages of files, which the kernel can drop, but its page tables, of which a
process can have a gigabyte without a page of memory (each has 4 KiB for 2 MiB of addresses).
"""
_SHARE = re.compile(rb"^(?:Pss_Anon|Pss_Shmem|SwapPss):\s+(\d+)", re.MULTILINE)
_TABLES = re.compile(rb"^(?:VmPTE|HugetlbPages):\s+(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a tree. own, waited: CPU seconds of itself, and of the children it has waited for.
    held: bytes, those that it shares with others as well.
    """

    number: int
    own: float
    waited: float
    held: int


class Watch:
    """Looks at a tree now and then and calls `hit("memory")` or `hit("cpu")` when it goes over.

    cpu_before: seconds that earlier calls of a reused process used. every: seconds between two looks. cpu:
    seconds seen so far, without those.
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
        # Orphans of earlier calls were counted with those, and stay in the init's sum.
        self._orphans = _of_dead_children(child.init) if cpu_before else 0.0
        self._living: dict[tuple[int, str], float] = {}
        self._gone = 0.0
        self._over = self._stopped = False
        self.cpu = 0.0
        self._timer = self._loop.call_later(every, self._look)

    def _look(self) -> None:
        try:
            found, group = look(self._child.pid, self._child.init), self._child.group
            self._count_time(found)
        except OSError:  # no descriptor is left to the host
            self._again(None)
            return
        if group is not None and group.memory_kills():
            # Version 1 kills one process of the tree and lets the rest wait for it.
            self._hit("memory")
        elif self.cpu > self._limits.cpu_s:
            self._hit("cpu")
        elif group is not None or self._every > EVERY_S and not self._too_much(found.values()):
            self._again(None)  # the kernel counts, or one that waits, which is looked at seldom
        elif self._too_much(found.values()):
            # Beside the loop: the kernel walks all page tables for this.
            looking = self._loop.run_in_executor(None, shared_out, tuple(found.values()))
            looking.add_done_callback(self._judge)
        else:
            self._over = False
            self._again(self._limits.memory - sum(process.held for process in found.values()))

    def _too_much(self, found: Iterable[Process]) -> bool:
        return sum(process.held for process in found) > self._limits.memory

    def _judge(self, looking: asyncio.Future[int]) -> None:
        """What is over the limit twice is over it: a process between vfork and exec has its parent's memory
        a second time.
        """
        if self._stopped or looking.cancelled():
            return
        before, self._over = self._over, looking.result() > self._limits.memory
        if before and self._over:
            self._hit("memory")
        else:
            self._again(max(0, self._limits.memory - looking.result()))

    def _again(self, left: int | None) -> None:
        if not self._stopped:
            self._timer = self._loop.call_later(next_look(left, self._every), self._look)

    def _count_time(self, found: dict[tuple[int, str], Process]) -> None:
        """The larger of two sums, each at most what was used: what the living used, with the children that
        they waited for, and what each process that was ever seen used itself. Whoever ignores SIGCHLD waits
        for none; such children are in the second as far as a look saw them.
        """
        for key in self._living.keys() - found.keys():
            self._gone += self._living.pop(key)
        self._living = {key: process.own for key, process in found.items()}
        first = _of_dead_children(self._child.init) - self._orphans
        first += sum(process.own + process.waited for process in found.values())
        second = self._gone + sum(self._living.values())
        self.cpu = max(self.cpu, first - self._before, second - self._before)

    def stop(self) -> None:
        """Look no more."""
        self._stopped = True
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


def look(pid: int, init: int) -> dict[tuple[int, str], Process]:
    """Every process of the tree, by its number and when it began."""
    found = {}
    for number in tree(pid, init):
        try:
            fields = _fields(number)
            held = sum(map(int, _HELD.findall(_status(number)))) * 1024
        except (OSError, ValueError, IndexError):
            continue
        own, waited = (sum(int(fields[i]) for i in pair) / _TICK for pair in ((11, 12), (13, 14)))
        found[number, fields[19]] = Process(number, own, waited, held)
    return found


def _status(pid: int) -> bytes:
    """/proc/PID/status; where the first thread has ended and left its memory to the others, one of theirs."""
    status = read_small(f"/proc/{pid}/status")
    if b"\nVmRSS:" in status or b"\nThreads:\t1\n" in status:
        return status
    for thread in os.listdir(f"/proc/{pid}/task"):
        status = read_small(f"/proc/{pid}/task/{thread}/status")
        if b"\nVmRSS:" in status:
            break
    return status


def shared_out(processes: Iterable[Process]) -> int:
    """Bytes that they hold together: what is shared, by a fork or a mapping, is divided among them.

    All of it for a process that lets nobody look at its mappings.
    """
    total = 0
    for process in processes:
        try:
            shares = _SHARE.findall(read_small(f"/proc/{process.number}/smaps_rollup"))
            tables = _TABLES.findall(read_small(f"/proc/{process.number}/status"))
        except OSError:
            shares = tables = []
        total += sum(map(int, (*shares, *tables))) * 1024 if shares else process.held
    return total


def _of_dead_children(pid: int) -> float:
    if pid <= 0:
        return 0.0
    try:
        return sum(map(int, _fields(pid)[13:15])) / _TICK
    except (OSError, ValueError):
        return 0.0


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
