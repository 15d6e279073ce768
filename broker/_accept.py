"""Connections taken from listeners as they come.

Guarantees: a flood of connections does not keep the event loop; an error that passes (no descriptors left)
stops taking for a moment and not for ever; a listener that was closed by somebody else ends quietly.
Not here: what a connection is served with, and how many there may be.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any, Protocol

log = logging.getLogger("fumehood.broker")
BATCH = 32  # connections taken in one turn of the loop
AGAIN = 0.1  # seconds before accepting is tried again after it failed


class Take(Protocol):
    def __call__(self, sock: socket.socket, serve: Any) -> None:
        """Serve one connection with what stands beside its listener, or close it."""


class Acceptor:
    """The listeners of one call."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._watched: set[int] = set()
        self._closed = False

    def add(self, listener: socket.socket, serve: Any) -> None:
        """Take connections of `listener` from now on; `serve` is passed on with each."""
        number = listener.fileno()
        self._watched.add(number)
        self._loop.add_reader(number, self._on_connection, listener, number, serve)

    def close(self) -> None:
        """Take no more. Before the listeners are closed, since their numbers are what the loop knows."""
        self._closed = True
        for number in self._watched:
            self._loop.remove_reader(number)
        self._watched.clear()

    def _on_connection(self, listener: socket.socket, number: int, serve: Any) -> None:
        for _ in range(BATCH):
            try:
                sock, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._loop.remove_reader(number)
                self._watched.discard(number)
                if listener.fileno() >= 0:
                    log.warning("accepting a child's connection failed: %s", error)
                    self._loop.call_later(AGAIN, self._again, listener, serve)
                return
            self._take(sock, serve)

    def _again(self, listener: socket.socket, serve: Any) -> None:
        if listener.fileno() >= 0 and not self._closed:
            self.add(listener, serve)
