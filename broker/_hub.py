"""Readiness of the sockets of children and tunnels: one epoll below the event loop.

A tunnel costs two entries here and two removals, each one system call; in asyncio's selector each costs ten
times that in Python. The loop watches one descriptor, ours, and a turn of it serves at most BATCH sockets, so
everything else of the loop goes on.
Before editing: a descriptor is dropped before it is closed, always, or its number's next owner would be
called in its place; a mask of 0 is a drop, since epoll tells of an error whatever was asked for.
"""

from __future__ import annotations

import asyncio
import select
import weakref
from collections.abc import Callable

READ, WRITE = select.EPOLLIN, select.EPOLLOUT
BATCH = 64  # sockets served before the loop does something else
_BROKEN = select.EPOLLHUP | select.EPOLLERR
_hubs: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Hub] = weakref.WeakKeyDictionary()


class Hub:
    """Sockets of one event loop and who is told of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # No reference back to the loop, which holds this one: both go together.
        self._epoll = select.epoll()
        self._told: dict[int, Callable[[bool, bool], None]] = {}
        self._once: dict[int, asyncio.Future[None]] = {}
        loop.add_reader(self._epoll.fileno(), self._on_ready)

    def __repr__(self) -> str:
        return f"<Hub of {len(self._told)} sockets, {len(self._once)} waits>"

    def watch(self, fd: int, mask: int, tell: Callable[[bool, bool], None]) -> None:
        """Call tell(readable, writable) while `fd` is ready for what `mask` asks."""
        try:
            self._epoll.register(fd, mask)
        except FileExistsError:  # asleep since a wait
            self._epoll.modify(fd, mask)
        self._told[fd] = tell

    def change(self, fd: int, mask: int) -> None:
        """Ask for something else of a watched socket."""
        self._epoll.modify(fd, mask)

    def drop(self, fd: int) -> None:
        """Forget a socket, before it is closed."""
        del self._told[fd]
        self._epoll.unregister(fd)

    async def readable(self, fd: int) -> None:
        """Wait until there is something to read, or an end. One waiter a socket, which is not watched.

        The entry stays with the socket, asleep, until that is closed or watched: one system call for each
        further wait.
        """
        waiter = asyncio.get_running_loop().create_future()
        self._once[fd] = waiter
        try:
            self._epoll.modify(fd, READ | select.EPOLLONESHOT)
        except FileNotFoundError:
            self._epoll.register(fd, READ | select.EPOLLONESHOT)
        try:
            await waiter
        finally:
            if self._once.pop(fd, None) is not None:  # cancelled: whoever owns the number next is not woken
                self._epoll.unregister(fd)

    def _on_ready(self) -> None:
        for fd, events in self._epoll.poll(0, BATCH):
            tell = self._told.get(fd)
            if (waiter := self._once.pop(fd, None)) is not None:
                if not waiter.done():
                    waiter.set_result(None)
                continue
            if tell is None:  # dropped by one that was told before it in this turn
                continue
            broken = bool(events & _BROKEN)
            try:
                tell(broken or bool(events & READ), broken or bool(events & WRITE))
            except Exception as error:  # noqa: BLE001 - one tunnel's fault is its own, as with any callback of a loop
                context = {"message": "a tunnel's callback failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)


def hub() -> Hub:
    """The hub of the running loop."""
    loop = asyncio.get_running_loop()
    found = _hubs.get(loop)
    if found is None:
        found = _hubs[loop] = Hub(loop)
    return found
