"""Files that a call left in its private /tmp, handed back as bytes.

The folder is opened from outside before the call begins, as a descriptor: it stays readable when the call's
namespaces are gone. It is read only then, so nothing can change or swap a file while it is looked at.
Only regular files are opened, below the folder, through no link and no mount; sizes and counts are bounded
before anything is read. What matched and was not taken is told with its reason. Source: openat2(2).

Before editing: names and contents are the tool's. Whoever shows a name escapes it.
"""

from __future__ import annotations

import asyncio
import errno
import fnmatch
import os
import stat
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from fumehood.isolate import _watch
from fumehood.isolate._child import GONE_S, Child
from fumehood.isolate._spec import ToolSpec
from fumehood.isolate.child import _uapi_proc
from fumehood.isolate.child.frames import MAX_ATTACHED

MAX_FILES = 256
"""Files taken from one call."""
MAX_FILE_BYTES = MAX_ATTACHED
"""Bytes of one file; the same as of one `ctx.put`."""
_LOOKED_AT = 20_000  # names read in all: a folder of a million names is not listed to its end
_TOLD = 256  # names told of that were not taken
_READ = 1 << 20
_WILD = frozenset("*?[")
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR)

Take = Callable[[str, bytes], Awaitable[str | None]]
"""Keeps one file; answers why it does not, or None."""


class _Unfit(Exception):
    """A file that is not taken; the text says why."""


@dataclass(slots=True)
class _Found:
    """What one look at the folder found: names to read, with whether one was asked for by just that name, and
    names with the reason why they are not read.
    """

    names: dict[str, bool] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    looked_at: int = 0


class Collection:
    """The files of one call. spec.collect: patterns, checked by `policies` to be relative and without "..".

    Make it before the tool is called: as an ordinary user the host cannot look into a process that has hidden
    itself since.
    """

    def __init__(self, child: Child, spec: ToolSpec) -> None:
        self._child, self._patterns, self._room = child, spec.collect, spec.limits.tmp
        self._fd, self._why = -1, ""
        try:
            # Not O_NOFOLLOW on /proc/PID/root, which is the kernel's own link; /tmp in it is a mount.
            self._fd = os.open(child.tmp, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            if not child.alive:  # its number may be another's already
                self._why = "the process ended before its folder could be opened"
        except OSError as error:
            self._why = f"the call's /tmp cannot be opened from outside: {error.strerror}"

    async def give(self, take: Take) -> tuple[tuple[str, str], ...]:
        """Kill what runs, see it gone, hand every file that matches to `take`.

        Returns (name, why) of what was not taken, in order.
        """
        self._child.kill()
        try:
            async with asyncio.timeout(GONE_S):
                ended = await self._child.ended()
        except TimeoutError:
            ended, self._why = None, self._why or "a process of the call was not seen gone"
        if not self._child.namespaced and (ended is None or _watch.session_of(self._child.pid)):
            self._why = self._why or "it cannot be seen that nothing of the call runs any more"
        if self._why:
            return tuple((pattern, self._why) for pattern in self._patterns)
        found = await asyncio.to_thread(self._look)
        left, taken = self._room, 0
        for name, meant in found.names.items():
            try:
                if taken == MAX_FILES:
                    raise _Unfit(f"there are more than {MAX_FILES} files")
                data = await asyncio.to_thread(self._read, name, left)
            except (_Unfit, OSError) as error:
                if meant or getattr(error, "errno", None) not in _NOT_THERE:
                    found.refused[name] = _words(error)
                continue
            taken, left = taken + 1, left - len(data)
            if (why := await take(name, data)) is not None:
                found.refused[name] = why
        return _told(found.refused)

    def _look(self) -> _Found:
        found = _Found()
        try:
            for pattern in self._patterns:
                for name in self._matching(self._fd, pattern.split("/"), "", found):
                    found.names[name] = found.names.get(name, False) or not _WILD & set(pattern)
        except _Unfit as error:
            found.names.clear()
            found.refused[pattern] = str(error)
        return found

    def _matching(self, folder: int, parts: list[str], before: str, found: _Found) -> Iterator[str]:
        wild = bool(_WILD & set(parts[0]))
        try:
            names = self._listed(folder, parts[0], found) if wild else [parts[0]]
        except OSError as error:
            found.refused[before or "."] = _words(error)
            return
        for name in names:
            path = before + name
            if (why := _unfit_name(path)) is not None:
                found.refused[path] = why
            elif len(parts) == 1:
                yield path
            else:
                yield from self._inside(folder, parts, path, found)

    def _inside(self, folder: int, parts: list[str], path: str, found: _Found) -> Iterator[str]:
        """What matches in one folder of the pattern."""
        try:
            inner = _uapi_proc.open_beneath(folder, os.path.basename(path), os.O_PATH | os.O_DIRECTORY)
        except OSError as error:
            if error.errno not in _NOT_THERE:
                found.refused[path] = _words(error)
            elif not any(_WILD & set(part) for part in parts):
                yield "/".join((path, *parts[1:]))  # it is asked for by its name, and told of when it is read
            return
        try:
            yield from self._matching(inner, parts[1:], f"{path}/", found)
        finally:
            os.close(inner)

    def _listed(self, folder: int, pattern: str, found: _Found) -> list[str]:
        """Names that match, in order. As in a shell, a name with a dot in front wants one in the pattern.

        Raises _Unfit, OSError.
        """
        reading = _uapi_proc.open_beneath(folder, ".", os.O_RDONLY | os.O_DIRECTORY)
        names = []
        try:
            with os.scandir(reading) as entries:
                for entry in entries:
                    found.looked_at += 1
                    if found.looked_at > _LOOKED_AT:
                        raise _Unfit(f"there are more than {_LOOKED_AT} names to look at; nothing was taken")
                    hidden = entry.name.startswith(".") and not pattern.startswith(".")
                    if not hidden and fnmatch.fnmatchcase(entry.name, pattern):
                        names.append(entry.name)
        finally:
            os.close(reading)
        return sorted(names)

    def _read(self, name: str, left: int) -> bytes:
        """The bytes of one regular file. Raises _Unfit, OSError."""
        looking = _uapi_proc.open_beneath(self._fd, name, os.O_PATH)
        try:
            state = os.fstat(looking)
        finally:
            os.close(looking)
        self._judge(state, left)
        # Opening a device or a fifo can do something by itself, which is why it was looked at first.
        reading = _uapi_proc.open_beneath(self._fd, name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            now = os.fstat(reading)
            self._judge(now, left)
            data = bytearray()
            while len(data) <= state.st_size and (part := os.read(reading, _READ)):
                data += part
        finally:
            os.close(reading)
        if (now.st_dev, now.st_ino, len(data)) != (state.st_dev, state.st_ino, state.st_size):
            raise _Unfit("it changed while it was read")
        return bytes(data)

    def _judge(self, state: os.stat_result, left: int) -> None:
        if not stat.S_ISREG(state.st_mode):
            raise _Unfit(f"it is {_KINDS.get(stat.S_IFMT(state.st_mode), 'no regular file')}")
        if state.st_nlink != 1 and not self._child.namespaced:
            # Without a file system of its own the other name may stand where somebody else writes.
            raise _Unfit("it has a second name (a hard link)")
        if state.st_size > MAX_FILE_BYTES:
            raise _Unfit(f"it has {state.st_size} bytes, and {MAX_FILE_BYTES} are taken at most")
        if state.st_size > left:
            raise _Unfit(f"the files together have more bytes than the tool's `tmp` ({self._room})")

    def close(self) -> None:
        """Let the folder go, and with it the last of the call's /tmp."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a fifo",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def _unfit_name(name: str) -> str | None:
    """Why a name cannot be told on: it is no text, or text that would do something where it is shown."""
    if any(0xDC80 <= ord(char) <= 0xDCFF for char in name):
        return "its name is not UTF-8"
    if any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 or char in _STEERING for char in name):
        return "its name holds control characters"
    return None


# Line and paragraph separators, and marks that turn the direction of what follows.
_STEERING = frozenset("\u2028\u2029\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def _words(error: Exception) -> str:
    if isinstance(error, OSError):
        known = {errno.ELOOP: "a link leads there", errno.EXDEV: "it lies on another mount",
                 errno.ENOENT: "there is no such file", errno.ENOTDIR: "there is no such file"}  # fmt: skip
        return known.get(error.errno or 0, f"it cannot be read: {os.strerror(error.errno or 0)}")
    return str(error)


def _told(refused: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """The first of them, with names that can be written anywhere."""
    told = [(name.encode("utf-8", "backslashreplace").decode(), why) for name, why in refused.items()]
    if len(told) > _TOLD:
        told[_TOLD:] = [("...", f"{len(told) - _TOLD} more were not taken")]
    return tuple(told)
