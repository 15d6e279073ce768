"""What the host reads of a tool's own files: did they change, can they be reached, what do they need."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Any

from fumehood.isolate._spec import ToolSpec
from fumehood.policies.errors import SandboxUnavailable

_MOST_FILES = 1000  # looked at before every call: a tool with more is renewed by its outer files alone


class NoToolFile(Exception):
    """The module's file cannot be used as one; the text says why."""


def stamp_of(spec: ToolSpec) -> tuple[Any, ...]:
    """What changes when the tool's file, or another Python file of its folder, changes: parked children hold
    the old code. Raises NoToolFile.
    """
    if spec.path is None:
        return ()
    found: list[tuple[Any, ...]] = []
    try:
        if not stat.S_ISREG(spec.path.stat().st_mode):
            raise NoToolFile(f"the file of `module` is no regular file: {spec.path}")
        _python_files(str(spec.path.parent), found)
    except OSError as error:
        raise NoToolFile(f"the file of `module` cannot be read: {spec.path}: {error.strerror}") from error
    return tuple(sorted(found))


def _python_files(folder: str, found: list[tuple[Any, ...]]) -> None:
    """The state of the folder's Python files and of those of its packages; a folder without an __init__.py is
    none, so that a node_modules beside a tool costs nothing.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            # A link to nothing, such as an editor's lock, or a file that is just being replaced.
            with contextlib.suppress(OSError):
                if entry.name.endswith(".py"):
                    state = entry.stat()
                    # The time of change as well: a copy can keep the time of modification, and a mode
                    # decides too.
                    times = state.st_mtime_ns, state.st_ctime_ns
                    found.append((entry.path, *times, state.st_size, state.st_ino))
                elif (
                    len(found) < _MOST_FILES
                    and entry.is_dir(follow_symlinks=False)
                    and os.path.isfile(os.path.join(entry.path, "__init__.py"))
                ):
                    _python_files(entry.path, found)


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
