"""Layer `cgroup-limits`: a group per call for memory and processes, where the host may make one (root;
version 2 with controllers, or 1).

A group is made fresh and never used again: after `cgroup.kill` Linux kills whatever is born into it. Counters
say what happened, so a kill for memory is told apart from every other SIGKILL. Sources: cgroups(7),
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

_ROOT = Path("/sys/fs/cgroup")
_PREFIX = "fumehood-"
_REMOVE_TRIES = 50  # rmdir answers EBUSY for some milliseconds after the last process died


@dataclass(frozen=True, slots=True)
class Counters:
    """What a group counted: kills for memory, forks refused, peak memory in bytes (None where the kernel
    keeps none).
    """

    memory_kills: int = 0
    refused_forks: int = 0
    peak_bytes: int | None = None
    cpu_s: float | None = None


class Groups:
    """This host's groups. `available` is "" when they can be made, else the reason."""

    def __init__(self, name: str | None = None) -> None:
        self._name = name or f"{_PREFIX}{os.getpid()}"
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
            for controller in ("memory", "pids"):
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

    def create(self, memory: int, processes: int) -> Group:
        """A fresh group with its limits set. Raises OSError."""
        number = next(self._numbers)
        folders = {key: parent / str(number) for key, parent in self._parents.items()}
        group = Group(self._version, folders)
        try:
            group.prepare(memory, processes)
        except OSError:
            group.remove()
            raise
        return group

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

    def __init__(self, version: int, folders: dict[str, Path]) -> None:
        self._version, self._folders = version, folders

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
        (self._folders["pids"] / "pids.max").write_text(str(processes))

    def attach(self, pid: int) -> None:
        """Move a process in; what it forks follows it. Raises OSError when it is gone."""
        for folder in self._folders.values():
            (folder / "cgroup.procs").write_text(str(pid))

    def counters(self) -> Counters:
        """What the kernel counted so far."""
        if self._version == 2:
            folder = self._folders["all"]
            return Counters(
                _field(folder / "memory.events", "oom_kill"),
                _field(folder / "pids.events", "max"),
                _number(folder / "memory.peak"),
            )
        memory, pids = self._folders["memory"], self._folders["pids"]
        return Counters(
            _field(memory / "memory.oom_control", "oom_kill"),
            _field(pids / "pids.events", "max"),
            _number(memory / "memory.max_usage_in_bytes"),
        )

    def try_remove(self) -> bool:
        """Remove the folders if the kernel has let go of the dead already; False when it has not."""
        try:
            for folder in self._folders.values():
                folder.rmdir()
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            return False
        return True

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
        for line in path.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    except OSError:
        pass
    return 0


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
