"""A command that lives until it ends or is killed, as whoever started it sees it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Awaitable, Callable, Mapping

from fumehood.isolate._child import Child


class Signals:
    """Passes signals on to the process of one call, for a caller that stands in its place. child: set
    while it runs.
    """

    child: Child | None = None
    _GROUP = frozenset(
        {signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGWINCH, signal.SIGSTOP, signal.SIGCONT}
    )
    """What a terminal or its shell sends to every process in front, and not to one."""

    def send(self, number: int) -> bool:
        """Send it; False when there is no process to take it."""
        child = self.child
        if child is None or not child.used or not child.alive:
            return False
        with contextlib.suppress(ProcessLookupError):
            (os.killpg if number in self._GROUP else os.kill)(child.pid, number)
        return True


class Running:
    """A command that was started and not yet seen to end. finished: gives its cage and its groups back."""

    def __init__(self, child: Child, finished: Callable[[], Awaitable[None]]) -> None:
        self._child, self._finished = child, finished
        self._ending: asyncio.Task[int] | None = None

    def __repr__(self) -> str:
        return f"<Running pid {self.pid}>"

    @property
    def pid(self) -> int:
        """The process number as the host sees it."""
        return self._child.pid

    @property
    def layers(self) -> Mapping[str, tuple[str, str]]:
        """The layers in force."""
        return self._child.layers

    def kill(self) -> None:
        """SIGKILL to the whole tree."""
        self._child.kill()

    async def wait(self) -> int:
        """The exit code (negative: a signal), once everything it started is gone too."""
        if self._ending is None:
            self._ending = asyncio.create_task(self._end())
        return await asyncio.shield(self._ending)

    async def _end(self) -> int:
        exit_ = await self._child.ended()
        await self._finished()
        return exit_.code if exit_ is not None else -9
