"""User ids for zygotes, as root: numbers that nobody else on this machine has, or gets while we have them.

An id is taken from a block of ours and never from one that /etc/subuid or /etc/subgid hands out, an account
or a group has, or a process runs under. Hosts agree by a lock on one byte a number of one file, an open file
description's own (fcntl(2), F_OFD_SETLK): two hosts of one process are two, and a killed host's numbers are
free at once. Where that file cannot be made, numbers are drawn at random and nothing more is promised.
"""

from __future__ import annotations

import contextlib
import fcntl
import grp
import logging
import os
import pwd
import random
import stat
import struct
from collections.abc import Iterable, Sequence

from fumehood.policies.errors import SandboxUnavailable

logger = logging.getLogger(__name__)

BLOCKS = ((200_000, 260_000), (300_000, 360_000), (400_000, 460_000), (20_000, 60_000))
"""Where ids are taken from: the first block that is not handed out whole. From 524288 on they belong to
containers by convention (systemd's uids-gids); the last block is for a container with 65536 ids.
"""
LOCK_FILE = "/run/fumehood/slots"
_RANGES = ("/etc/subuid", "/etc/subgid")
_MAPS = ("/proc/self/uid_map", "/proc/self/gid_map")
_DRAWN = 200  # numbers drawn before the next block is tried: a block is rarely more than half handed out

Range = tuple[int, int]
"""First number, and the first behind."""


class Slots:
    """The numbers of one host. wanted: False gives none (an ordinary user has only his own)."""

    def __init__(
        self,
        wanted: bool,
        *,
        lock_file: str = LOCK_FILE,
        range_files: Sequence[str] = _RANGES,
        maps: Sequence[str] = _MAPS,
    ) -> None:
        self._wanted, self._range_files, self._maps = wanted, range_files, maps
        self._fd = _open(lock_file) if wanted else -1
        self._held: set[int] = set()

    def take(self) -> int | None:
        """A number for one zygote, ours until it is given back. Raises SandboxUnavailable without one."""
        if not self._wanted:
            return None
        handed_out = [*ranges_of(self._range_files), *(gap for name in self._maps for gap in gaps_of(name))]
        draw, running = random.SystemRandom(), _users_at_work()
        for block in BLOCKS:
            if free_of(handed_out, block) == 0:
                continue
            for _ in range(_DRAWN):
                number = draw.randrange(*block)
                if (
                    number not in running
                    and not any(first <= number < behind for first, behind in handed_out)
                    and not _has_account(number)
                    and self._lock(number)
                ):
                    return number
        raise SandboxUnavailable(
            "no user id is free for a sandbox: "
            + ", ".join(f"{first} to {behind - 1}" for first, behind in BLOCKS)
            + f" are all handed out by {' and '.join(self._range_files)}, or not there in this container",
            hint="leave some of them out of these files, or run fumehood as an ordinary user",
        )

    def give_back(self, number: int | None) -> None:
        """The zygote of this number has ended with all it started."""
        if number in self._held:
            self._held.discard(number)
            if self._fd >= 0:
                _set(self._fd, fcntl.F_UNLCK, number)

    def close(self) -> None:
        """Let every number go."""
        self._held.clear()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _lock(self, number: int) -> bool:
        if number in self._held:
            return False
        if self._fd >= 0:
            try:
                _set(self._fd, fcntl.F_WRLCK, number)
            except (BlockingIOError, PermissionError):
                return False
        self._held.add(number)
        return True


def ranges_of(files: Iterable[str]) -> list[Range]:
    """What these files hand out (subuid(5)); a line that is none counts for nothing."""
    found = []
    for name in files:
        with contextlib.suppress(OSError), open(name, encoding="utf-8", errors="replace") as file:
            for line in file:
                _, _, numbers = line.strip().partition(":")
                first, _, count = numbers.partition(":")
                if first.isdecimal() and count.isdecimal():
                    found.append((int(first), int(first) + int(count)))
    return found


def gaps_of(name: str) -> list[Range]:
    """The numbers that this user namespace has not, from one of its maps (user_namespaces(7))."""
    try:
        with open(name, encoding="ascii") as file:
            mapped = sorted((int(first), int(first) + int(count)) for first, _, count in map(str.split, file))
    except (OSError, ValueError):
        return []
    edges = [0, *(edge for pair in mapped for edge in pair), 1 << 32]
    return list(zip(edges[::2], edges[1::2], strict=True))


def free_of(handed_out: Iterable[Range], block: Range) -> int:
    """How many numbers of a block nobody is handed out."""
    place, free = block[0], 0
    for first, behind in sorted(handed_out):
        free += max(0, min(first, block[1]) - place)
        place = max(place, behind)
    return free + max(0, block[1] - place)


def _has_account(number: int) -> bool:
    for find in (pwd.getpwuid, grp.getgrgid):
        try:
            find(number)
        except KeyError:
            continue
        return True
    return False


def _users_at_work() -> set[int]:
    """Users of the processes on this machine: a host that was killed may not be gone with all it had."""
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                found.add(os.stat(f"/proc/{name}").st_uid)
    return found


def _set(fd: int, kind: int, number: int) -> None:
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, number, 1, 0))


def _open(path: str) -> int:
    """The file of locks, in a folder that root alone may change; -1 where there can be none."""
    folder = os.path.dirname(path)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        seen = os.lstat(folder)
        if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.geteuid() or seen.st_mode & 0o022:
            raise PermissionError(1, f"{folder} is not a folder of this user alone")
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        logger.info("user ids of sandboxes are not locked: %s; another host may draw the same", error)
        return -1
