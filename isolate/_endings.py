"""How children end on the host's side: killed at once, taken apart a little later, all of them seen gone.

Taking a child apart means to hear of its end from the zygote, see its namespace gone, and give descriptors
and groups back. Right after the kill one would wait for each of those; a little later nothing is left to
wait for, and many are done at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any

from fumehood.isolate._child import Child

logger = logging.getLogger(__name__)

_OVER_S = 10.0  # until calls that were killed have told so to whoever made them
BURIED_S = 0.003
"""Between a child's end and its taking apart."""


class Endings:
    """The children of one isolator, from fork to gone. living: all that are not taken apart yet."""

    def __init__(self) -> None:
        self.living: set[Child] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._buried: list[Child] = []
        self._digging: asyncio.TimerHandle | None = None

    def later(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` beside everything else; `settle` waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def bury(self, child: Child) -> None:
        """Kill a child now; the rest follows."""
        child.bury()
        self._buried.append(child)
        if self._digging is None:
            self._digging = asyncio.get_running_loop().call_later(BURIED_S, self._dig)

    def _dig(self) -> None:
        self._digging = None
        buried, self._buried = self._buried, []
        gone: list[Child] = []
        for child in buried:  # asked once: one that goes meanwhile belongs to one of the two all the same
            if child.gone:
                gone.append(child)
            else:
                self.later(self._discard_all([child]))
        self.later(self._discard_all(gone))

    async def _discard_all(self, children: list[Child]) -> None:
        for child in children:
            try:
                await self.discard(child)
            except OSError as error:  # the others are no part of it; `close` tries once more
                logger.warning("%r could not be taken apart: %s", child, error)

    async def discard(self, child: Child) -> None:
        """Kill a child, see its end, give everything of it back."""
        await child.close()
        self.living.discard(child)

    async def settle(self) -> None:
        """Everything that was begun is over."""
        if self._digging is not None:
            self._digging.cancel()
            self._dig()
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """Take apart whatever still lives."""
        for child in tuple(self.living):
            with contextlib.suppress(OSError):
                await self.discard(child)


class Calls:
    """How many calls are under way: each stands in a `with` of this."""

    def __init__(self) -> None:
        self._many = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def __enter__(self) -> None:
        self._many += 1
        self._idle.clear()

    def __exit__(self, *_: object) -> None:
        self._many -= 1
        if self._many == 0:
            self._idle.set()

    async def over(self) -> None:
        """Wait until all are over, which they are soon: their processes have been killed."""
        try:
            async with asyncio.timeout(_OVER_S):
                await self._idle.wait()
        except TimeoutError:
            logger.warning("%d calls go on %g s after their processes were killed", self._many, _OVER_S)
