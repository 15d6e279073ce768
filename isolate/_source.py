"""What the host reads of a tool's own files: did they change, can they be reached, what do they need."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from dataclasses import dataclass

from fumehood.isolate._spec import ToolSpec
from fumehood.policies.errors import SandboxUnavailable

_MOST_FILES = 1000  # looked at before every call: a tool with more is renewed by its outer files alone


class NoToolFile(Exception):
    """The module's file cannot be used as one; the text says why."""


_State = tuple[str, int, int, int, int]
"""A path, its times of modification and of change in nanoseconds, its size and its inode number.

The time of change as well: a copy can keep the time of modification, and a mode decides too.
"""
_Place = tuple[str, int, int]
"""A grant, and the file or folder that stands there: its device and inode number, 0 for none. As long as a
zygote shows what stood there, its number is nobody else's.
"""
_SETTLED_NS = 1_000_000_000
"""What changed more recently than this when it was looked at may change again without another time."""


@dataclass(frozen=True, slots=True, eq=False)
class Stamp:
    """What changes when the tool's file, or another Python file of its folder, changes: parked children hold
    the old code. And when another file or folder stands where a grant leads: they see what stood there.

    folders: theirs tell of files that come and go, and of others too; so they do not count by themselves.
    """

    files: tuple[_State, ...]
    folders: tuple[_State, ...]
    grants: tuple[_Place, ...]
    settled: bool

    @classmethod
    def of(cls, spec: ToolSpec) -> Stamp:
        """As it is now. Raises NoToolFile; OSError where the host has no descriptors left."""
        grants = tuple(_place(str(path)) for path in (*spec.read, *spec.write))
        if spec.path is None:
            return cls((), (), grants, settled=True)
        files: list[_State] = []
        folders: list[_State] = []
        now = time.time_ns()
        try:
            if not stat.S_ISREG(spec.path.stat().st_mode):
                raise NoToolFile(f"the file of `module` is no regular file: {spec.path}")
            _python_files(str(spec.path.parent), files, folders)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
                raise  # the host's want, not the file's
            raise NoToolFile(f"the file of `module` cannot be read: {spec.path}: {error.strerror}") from error
        newest = max(max(state[1:3]) for state in (*files, *folders))
        return cls(tuple(sorted(files)), tuple(folders), grants, settled=newest + _SETTLED_NS < now)

    def same(self, other: Stamp) -> bool:
        """Whether a zygote of the one serves a call of the other."""
        return self.files == other.files and self.grants == other.grants

    def untouched(self) -> bool:
        """Whether nothing at all has changed: a look at what is known already, a tenth of the price of `of`.

        False says nothing: take another stamp then.
        """
        try:
            return (
                self.settled
                and all(_state(seen[0], os.stat(seen[0])) == seen for seen in (*self.files, *self.folders))
                and all(_place(seen[0]) == seen for seen in self.grants)
            )
        except OSError:
            return False


def _place(path: str) -> _Place:
    try:
        found = os.stat(path)
    except OSError:
        return path, 0, 0
    return path, found.st_dev, found.st_ino


def _state(path: str, found: os.stat_result) -> _State:
    return path, found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _python_files(folder: str, files: list[_State], folders: list[_State]) -> None:
    """The state of the folder's Python files and of those of its packages; a folder without an __init__.py is
    none, so that a node_modules beside a tool costs nothing.
    """
    folders.append(_state(folder, os.stat(folder)))
    with os.scandir(folder) as entries:
        for entry in entries:
            # A link to nothing, such as an editor's lock, or a file that is just being replaced.
            with contextlib.suppress(OSError):
                if entry.name.endswith(".py"):
                    files.append(_state(entry.path, entry.stat()))
                elif (
                    len(files) < _MOST_FILES
                    and entry.is_dir(follow_symlinks=False)
                    and os.path.isfile(os.path.join(entry.path, "__init__.py"))
                ):
                    _python_files(entry.path, files, folders)


def refuse_unreachable(spec: ToolSpec) -> None:
    """Without mounts of its own a slot's user sees files as everybody does: say so before the tool fails.

    Raises SandboxUnavailable, naming the file or folder.
    """
    for path in (*([spec.path] if spec.path is not None else []), *spec.read, *spec.write):
        real = path.resolve()
        for place in (real, *real.parents):
            wanted = 0o001 if place != real else 0o005 if place.is_dir() else 0o004
            if place.exists() and place.stat().st_mode & wanted != wanted:
                raise SandboxUnavailable(
                    f"tool {spec.name!r}: the sandbox's user cannot reach {real}: "
                    f"{place} is closed to others",
                    hint=f"on this tier, chmod o+{'rx' if place.is_dir() else 'r'} {place}, or run fumehood "
                    "as an ordinary user",
                )


def speaks_of_asyncio(spec: ToolSpec) -> bool:
    """Whether the zygote should load asyncio for the children: a guess from the source, about speed only."""
    if spec.path is None:
        return False
    try:
        # The tool may be able to put a fifo there: that must not stop the host.
        with open(os.open(spec.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            source = file.read(1 << 20)
    except OSError:
        return False
    return any(word in source for word in (b"async", b"httpx", b"anyio", b"aiohttp"))
