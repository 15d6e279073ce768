"""What a child writes to its standard output and error, kept up to a limit.

Both streams are read as they come, whatever else happens, so that a child never waits for the host; past the
limit the rest is read and thrown away until the child is gone. Callbacks instead of tasks: most calls print
nothing and should pay nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

_READ = 65536
_AT_ONCE = 17  # a pipe holds a megabyte at most; whoever fills it as fast as it is read cannot stop the host


class Capture:
    """The output streams of one call.

    stdout, stderr: reading ends, non-blocking; None where the caller has the stream. count: told of every
    size read, answers how many bytes of it may be kept.
    """

    def __init__(self, stdout: int | None, stderr: int | None, count: Callable[[int], int]) -> None:
        self._fds = {name: fd for name, fd in (("stdout", stdout), ("stderr", stderr)) if fd is not None}
        self._count = count
        self._ends: dict[str, asyncio.Future[None]] = {}
        self.kept = {"stdout": bytearray(), "stderr": bytearray()}
        self.cut = {"stdout": False, "stderr": False}

    def go_on(self, earlier: Capture) -> int:
        """Begin with what another capture of the same streams kept; how many bytes that is."""
        self.kept, self.cut = earlier.kept, earlier.cut
        return sum(map(len, self.kept.values()))

    def start(self) -> None:
        """Read from now on."""
        loop = asyncio.get_running_loop()
        for name, fd in self._fds.items():
            self._ends[name] = loop.create_future()
            loop.add_reader(fd, self._read, name, fd)

    def _read(self, name: str, fd: int) -> bool:
        """Read one piece; False when there is nothing now."""
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return False
        if not data:
            asyncio.get_running_loop().remove_reader(fd)
            if not self._ends[name].done():
                self._ends[name].set_result(None)
            return False
        room = self._count(len(data))
        self.kept[name] += data[:room]
        self.cut[name] |= room < len(data)
        return True

    def take_what_is_there(self) -> None:
        """Read until nothing is left now: what was printed before a result was sent is in the pipes."""
        for name, fd in self._fds.items():
            for _ in range(_AT_ONCE):
                if self._ends[name].done() or not self._read(name, fd):
                    break

    async def to_the_end(self) -> None:
        """Read until every holder of the other ends is gone."""
        for end in self._ends.values():
            await end

    def stop(self) -> None:
        """Read no more."""
        loop = asyncio.get_running_loop()
        for name, fd in self._fds.items():
            if name in self._ends and not self._ends[name].done():
                loop.remove_reader(fd)
                self._ends[name].cancel()
