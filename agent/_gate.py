"""The content store's gate: many writers and readers at once, or one sweeper alone, among trusted processes.

Guarantees: while one holder is inside `exclusive()`, nobody is inside `shared()`, in this process or another;
the kernel frees a dead holder's side at once. Two locks, because each has what the other lacks.
`multiprocessing_utils.SharedLock` in front prefers a waiting sweeper, which flock does not, so a stream of
puts cannot starve it. flock behind is the truth between processes: a SharedLock whose holder was killed stays
locked for ever, so one is never shared with another process here, and a fork makes new ones. Never used by
caged code. Before editing: a SharedLock is per thread and has no timeout, and a reader's release waits while
a sweeper is inside.
"""

from __future__ import annotations

import fcntl
import os
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Protocol

_gates: weakref.WeakSet[Gate] = weakref.WeakSet()


class _ReadersWriter(Protocol):
    def __enter__(self) -> object: ...
    def __exit__(self, *error: object) -> object: ...
    def exclusive(self) -> AbstractContextManager[object]: ...


class Gate:
    """A readers-writer lock on the file at `path`, which is created empty and stays."""

    def __init__(self, path: Path) -> None:
        self._path = path
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._lock = _readers_writer()
        _gates.add(self)

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Hold one of many places. Not reentrant across `exclusive`."""
        with self._lock if self._lock is not None else nullcontext():
            with self._flock(fcntl.LOCK_SH):
                yield

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the only place: every shared holder has left and none comes in."""
        with self._lock.exclusive() if self._lock is not None else nullcontext():
            with self._flock(fcntl.LOCK_EX):
                yield

    @contextmanager
    def _flock(self, how: int) -> Iterator[None]:
        # A new descriptor each time: flock belongs to the open file, so two threads on one descriptor would
        # convert each other's lock.
        descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, how)
            yield
        finally:
            os.close(descriptor)


def _readers_writer() -> _ReadersWriter | None:
    from multiprocessing_utils import SharedLock  # type: ignore[import-untyped]

    try:
        lock: _ReadersWriter = SharedLock()
    except OSError:
        return None  # no POSIX semaphores here (no /dev/shm): flock alone excludes, without preference
    return lock


def _after_fork() -> None:
    for gate in _gates:
        gate._lock = _readers_writer()


os.register_at_fork(after_in_child=_after_fork)
