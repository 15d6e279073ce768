"""Layer `cgroup-limits`: a group per call for memory and processes, where the host may make one (root;
version 2 with controllers, or 1).

An emptied group serves a later call: making and removing one costs more than everything else a call does to
it. `cgroup.kill` is never written, since Linux kills whatever is born into such a group. Counters say what
happened, so a kill for memory is told apart from every other SIGKILL. Sources: cgroups(7),
Documentation/admin-guide/cgroup-v1/memory.rst.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import time
from dataclasses import dataclass
from pathlib import Path

from fumehood.isolate._small import read_small

_ROOT = Path("/sys/fs/cgroup")
_PREFIX = "fumehood-"
_KEPT = 16  # empty groups kept for each pair of limits
_LEFT = 16  # the part of its limit that a kept group may still use: what the kernel has not given back yet
_REMOVE_TRIES = 50  # rmdir answers EBUSY for some milliseconds after the last process died


@dataclass(frozen=True, slots=True)
class Counters:
    """What a group counted: kills for memory, forks refused."""

    memory_kills: int = 0
    refused_forks: int = 0


class Groups:
    """This host's groups. `available` is "" when they can be made, else the reason.

    count_processes: also a group for processes on version 1. Where each call has a user namespace of its own,
    RLIMIT_NPROC counts the call alone, and a second hierarchy would only cost.
    """

    def __init__(self, name: str | None = None, *, count_processes: bool = False) -> None:
        # Two hosts may live in one process, and a killed one may have left its folder behind.
        self._name = name or f"{_PREFIX}{os.getpid()}-{os.urandom(4).hex()}"
        self._controllers = ("memory", "pids") if count_processes else ("memory",)
        self._free: dict[tuple[int, int], list[Group]] = {}
        self._numbers = itertools.count()
        self._version = 0
        self._parents: dict[str, Path] = {}
        self.available = self._find()

    def _find(self) -> str:
        if os.geteuid() != 0:
            return (
                "an ordinary user may make no control group here; processes are bounded by RLIMIT_NPROC, "
                "memory by a watcher"
            )
        unified = _ROOT / "cgroup.controllers"
        try:
            if unified.exists() and {"memory", "pids"} <= set(unified.read_text().split()):
                self._version = 2
                parent = _ROOT / self._name
                parent.mkdir(exist_ok=True)
                (_ROOT / "cgroup.subtree_control").write_text("+memory +pids")
                (parent / "cgroup.subtree_control").write_text("+memory +pids")
                self._parents = {"all": parent}
                return ""
            for controller in self._controllers:
                own = _own_group(controller)
                if own is None:
                    return f"the {controller} controller is not mounted"
                parent = own / self._name
                parent.mkdir(exist_ok=True)
                self._parents[controller] = parent
            self._version = 1
        except OSError as error:
            return f"no control group could be made: {error.strerror} ({error.filename})"
        return ""

    @property
    def folders(self) -> list[str]:
        """The parents of this host's groups."""
        return [str(parent) for parent in self._parents.values()] if self.available == "" else []

    def take(self, memory: int, processes: int) -> Group:
        """An empty group with these limits, kept from an earlier call or made now. Raises OSError."""
        kept = self._free.get((memory, processes))
        if kept:
            return kept.pop()
        number = next(self._numbers)
        folders = {key: parent / str(number) for key, parent in self._parents.items()}
        group = Group(self._version, folders, (memory, processes))
        try:
            group.prepare(memory, processes)
        except OSError:
            group.remove()
            raise
        return group

    def give_back(self, group: Group) -> None:
        """Keep an empty group for a later call with the same limits, or remove it.

        Counters only ever rise, so the next call counts from where this one ended. Memory that outlives its
        processes (in a file whose descriptor went to another call) would be the next call's: no such group
        is kept.
        """
        kept = self._free.setdefault(group.limits, [])
        if len(kept) < _KEPT and group.empty() and group.used() <= group.limits[0] // _LEFT:
            group.count_from_here()
            kept.append(group)
        else:
            group.remove()

    def close(self) -> None:
        """Remove this host's parents; their groups are gone by now."""
        for parent in self._parents.values():
            for child in sorted(parent.glob("*/"), reverse=True) if parent.exists() else ():
                with contextlib.suppress(OSError):
                    child.rmdir()
            with contextlib.suppress(OSError):
                parent.rmdir()


class Group:
    """One call's group."""

    def __init__(self, version: int, folders: dict[str, Path], limits: tuple[int, int]) -> None:
        self._version, self._folders = version, folders
        self.limits = limits
        # The end of a line of /proc/PID/cgroup; a name of our own, with no character that would be escaped.
        self._seen_as = [f"/{folder.parent.name}/{folder.name}\n".encode() for folder in folders.values()]
        self._before = Counters()

    def prepare(self, memory: int, processes: int) -> None:
        """Make the folders and set the limits; memory without swap is set first, version 1 wants it so."""
        for folder in self._folders.values():
            folder.mkdir()
        if self._version == 2:
            folder = self._folders["all"]
            (folder / "memory.max").write_text(str(memory))
            (folder / "memory.oom.group").write_text("1")
            (folder / "pids.max").write_text(str(processes))
            with contextlib.suppress(OSError):
                (folder / "memory.swap.max").write_text("0")
            return
        (self._folders["memory"] / "memory.limit_in_bytes").write_text(str(memory))
        with contextlib.suppress(OSError):
            (self._folders["memory"] / "memory.memsw.limit_in_bytes").write_text(str(memory))
        if "pids" in self._folders:
            (self._folders["pids"] / "pids.max").write_text(str(processes))

    def empty(self) -> bool:
        """Whether no process is in it."""
        return not any(read_small(f"{folder}/cgroup.procs") for folder in self._folders.values())

    def used(self) -> int:
        """Bytes that are counted in it now."""
        if self._version == 2:
            return int(read_small(f"{self._folders['all']}/memory.current"))
        return int(read_small(f"{self._folders['memory']}/memory.usage_in_bytes"))

    def count_from_here(self) -> None:
        """What was counted so far belongs to an earlier call."""
        self._before = self._counted()

    def open_for_joining(self) -> list[int]:
        """Descriptors by which a process of one thread moves itself in, by writing "0"; the caller's to
        close.

        From outside the kernel would first wait for a grace period of some ten milliseconds; a single thread
        that moves itself it lets through (cgroup_procs_write_start in kernel/cgroup/cgroup.c). The right to
        do so is that of whoever opened the file. Empty on version 2, which has no such way: use `attach`.
        """
        if self._version == 2:
            return []
        opened: list[int] = []
        try:
            for folder in self._folders.values():
                opened.append(os.open(folder / "tasks", os.O_WRONLY | os.O_CLOEXEC))
        except OSError:
            for fd in opened:
                os.close(fd)
            raise
        return opened

    def attach(self, pid: int) -> None:
        """Move a process in from outside: the way of version 2, and for one that did not join by itself.

        Raises OSError when it is gone.
        """
        for folder in self._folders.values():
            (folder / "cgroup.procs").write_text(str(pid))

    def holds(self, pid: int) -> bool:
        """Whether the kernel says that the process is in every folder of this group."""
        groups = read_small(f"/proc/{pid}/cgroup")
        return all(want in groups for want in self._seen_as)

    def memory_kills(self) -> int:
        """Kills for memory during this call: one is enough to end it (version 1 kills a single process)."""
        return self.counters().memory_kills

    def counters(self) -> Counters:
        """What the kernel counted during this call."""
        now = self._counted()
        return Counters(
            now.memory_kills - self._before.memory_kills, now.refused_forks - self._before.refused_forks
        )

    def _counted(self) -> Counters:
        if self._version == 2:
            folder = self._folders["all"]
            killed = _field(folder / "memory.events", "oom_kill")
            return Counters(killed, _field(folder / "pids.events", "max"))
        refused = _field(self._folders["pids"] / "pids.events", "max") if "pids" in self._folders else 0
        return Counters(_field(self._folders["memory"] / "memory.oom_control", "oom_kill"), refused)

    def remove(self) -> None:
        """Remove the folders; waits a moment for the kernel to let go of the dead."""
        for folder in self._folders.values():
            for _ in range(_REMOVE_TRIES):
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError as error:
                    if error.errno != errno.EBUSY:
                        raise
                    time.sleep(0.001)
                else:
                    break


def _own_group(controller: str) -> Path | None:
    """The group of version 1 this process is in, as a folder that exists."""
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if controller in controllers.split(","):
                for base in (_ROOT / controllers / path.lstrip("/"), _ROOT / controller / path.lstrip("/")):
                    if base.is_dir():
                        return base
    return None


def _field(path: Path, name: str) -> int:
    try:
        for line in read_small(str(path)).decode().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    except OSError:
        pass
    return 0
