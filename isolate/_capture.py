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
        self._open = {name: fd for name, fd in (("stdout", stdout), ("stderr", stderr)) if fd is not None}
        self._count = count
        self._reading = False
        self._over: asyncio.Future[None] | None = None
        self.kept = {"stdout": bytearray(), "stderr": bytearray()}
        self.cut = {"stdout": False, "stderr": False}

    def go_on(self, earlier: Capture) -> int:
        """Begin with what another capture of the same streams kept; how many bytes that is."""
        self.kept, self.cut = earlier.kept, earlier.cut
        return sum(map(len, self.kept.values()))

    def start(self) -> None:
        """Read from now on, if that is not done already."""
        if not self._reading:
            self._reading = True
            for name, fd in self._open.items():
                asyncio.get_running_loop().add_reader(fd, self._read, name, fd)

    def _read(self, name: str, fd: int) -> bool:
        """Read one piece; False when there is nothing now."""
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return False
        if not data:
            if self._reading:
                asyncio.get_running_loop().remove_reader(fd)
            del self._open[name]
            if self._over is not None and not self._open and not self._over.done():
                self._over.set_result(None)
            return False
        room = self._count(len(data))
        self.kept[name] += data[:room]
        self.cut[name] |= room < len(data)
        return True

    def take_what_is_there(self) -> None:
        """Read until nothing is left now: what was printed before a result was sent is in the pipes."""
        for name, fd in tuple(self._open.items()):
            for _ in range(_AT_ONCE):
                if not self._read(name, fd):
                    break

    async def to_the_end(self) -> None:
        """Read until every holder of the other ends is gone."""
        self.start()
        if self._open:
            self._over = asyncio.get_running_loop().create_future()
            await self._over

    def stop(self) -> None:
        """Read no more."""
        if self._reading:
            self._reading = False
            for fd in self._open.values():
                asyncio.get_running_loop().remove_reader(fd)
