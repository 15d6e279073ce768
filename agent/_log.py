"""The event log: one SQLite file, appended to by any number of processes, each row chained to the one before.

Guarantees: `record` returns only when the row is on disk, so kill -9 or a power cut at any instant loses
nothing that was acknowledged; rows of one `record_many` are all there or none; seq has no holes; `at` and
`id` rise strictly, whatever the clock does. Does not guarantee: that a cut tail shows (keep a `head()`
elsewhere and pass it to `verify`), nor secrecy (the file is 0600, not encrypted). Before editing: one thread
owns the writing connection. It commits at once when idle and takes everything that gathered during a commit
or in one turn of an event loop into the next one (group commit without a timer). The chain's head is read
inside BEGIN IMMEDIATE, because other processes append too.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, cast

from fumehood.agent._canonical import clean_text
from fumehood.agent._events import GENESIS, Event, NewEvent
from fumehood.agent._log_table import (
    APPLICATION_ID,
    COLUMNS,
    SCHEMA,
    SCHEMA_VERSION,
    Head,
    ReadyRow,
    append,
    ready,
)
from fumehood.agent._sqlite import StorageError, StorageFull, connect, mapped

if TYPE_CHECKING:
    from fumehood.agent._fold import ExecutionState
    from fumehood.agent._verify import VerifyResult

MAX_BATCH_ROWS: Final = 4096
"""Rows in one transaction before the writer commits and comes back, so that no caller waits behind an endless
queue.
"""

PAGE_ROWS: Final = 500
"""Rows a reader takes at a time; a short read lets SQLite's checkpoint go on behind it."""

TAIL_POLL_S: Final = 0.2
"""How often `tail` looks for rows of other processes. Rows of this process wake it at once."""

_logs: weakref.WeakSet[EventLog] = weakref.WeakSet()


@dataclass(slots=True)
class _Job:
    """Rows and who waits for them: an asyncio future with its loop, or a thread's future."""

    rows: list[ReadyRow]
    waiter: asyncio.Future[list[str]] | Future[list[str]]
    loop: asyncio.AbstractEventLoop | None = None


_Settled = list[tuple[_Job, list[str] | None, BaseException | None]]


class EventLog:
    """An append-only, hash-chained log in one SQLite file.

    path: the file; its folder is created with mode 0700. max_bytes: refuse to let the file grow past this
    (None: no limit). read_only: for readers such as `log verify`; recording raises. Raises: StorageError
    (cannot be opened), StorageVersion (another program's file, or a newer schema).
    """

    def __init__(
        self, path: str | os.PathLike[str], *, max_bytes: int | None = None, read_only: bool = False
    ) -> None:
        self.path = Path(path)
        self._read_only = read_only
        self._lock = threading.Lock()  # nothing is queued behind the end
        self._queue: SimpleQueue[list[_Job] | None] = SimpleQueue()  # None is the end
        self._gathered: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        self._closing = False
        self._forked = False
        self._tails: set[Callable[[], None]] = set()
        connection = self._connect(read_only=read_only)
        if max_bytes is not None and not read_only:
            page = connection.execute("PRAGMA page_size").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count={max(1, max_bytes // page)}")
        self._thread: threading.Thread | None = None
        if read_only:
            connection.close()
        else:
            self._thread = threading.Thread(
                target=self._write_loop, args=(connection,), name="fumehood-log", daemon=True
            )
            self._thread.start()
        _logs.add(self)

    def __repr__(self) -> str:
        state = (
            "forked"
            if self._forked
            else "closed"
            if self._closing
            else "read-only"
            if self._read_only
            else "open"
        )
        return f"<EventLog {str(self.path)!r} [{state}, {self._queue.qsize()} waiting]>"

    # -- writing ---------------------------------------------------------------------------------------------

    async def record(
        self,
        kind: str,
        data: Mapping[str, object],
        *,
        execution_id: str | None = None,
        call_id: str | None = None,
        step_id: str | None = None,
    ) -> str:
        """Append one row and return its id once it is on disk (source: design.md D9, invariant 10).

        kind: one of EVENT_KINDS, or an application's own upper-case name. data: a JSON value; see
        `_canonical.clean` for the rest. Cancelling the wait does not withdraw the row. Raises: ValueNotJson,
        StorageError, StorageFull.
        """
        return (await self.record_many([NewEvent(kind, data, execution_id, call_id, step_id)]))[0]

    async def record_many(self, events: Sequence[NewEvent]) -> list[str]:
        """Append rows next to each other in one transaction; their ids once all are on disk. Raises: as
        `record`.
        """
        self._check_writable()
        loop = asyncio.get_running_loop()
        job = _Job([ready(event) for event in events], loop.create_future(), loop)
        gathered = self._gathered.get(loop)
        if gathered is not None:
            gathered.append(job)
        else:
            self._gathered[loop] = [job]
            loop.call_soon(self._hand_over, loop)
        return await cast("asyncio.Future[list[str]]", job.waiter)

    def record_sync(
        self,
        kind: str,
        data: Mapping[str, object],
        *,
        execution_id: str | None = None,
        call_id: str | None = None,
        step_id: str | None = None,
    ) -> str:
        """`record` for code without an event loop; blocks until the row is on disk."""
        return self.record_many_sync([NewEvent(kind, data, execution_id, call_id, step_id)])[0]

    def record_many_sync(self, events: Sequence[NewEvent]) -> list[str]:
        """`record_many` for code without an event loop."""
        self._check_writable()
        waiter: Future[list[str]] = Future()
        job = _Job([ready(event) for event in events], waiter)
        try:
            self._hand_over(asyncio.get_running_loop())  # rows before these stay before them
        except RuntimeError:
            pass
        self._submit([job])
        return waiter.result()

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give the writer what one turn of the loop gathered: together these rows cost little more than one,
        and the turn ends at once when nothing else is to do.
        """
        if jobs := self._gathered.pop(loop, None):
            try:
                self._submit(jobs)
            except StorageError as error:
                _settle([(job, None, error) for job in jobs])

    def _check_writable(self) -> None:
        if self._forked:
            raise StorageError(
                f"{self.path}: this log was opened before a fork",
                hint="open a new EventLog in the child process",
            )
        if self._read_only:
            raise StorageError(f"{self.path}: opened read-only", hint="open it without read_only to record")
        if self._closing:
            raise StorageError(f"{self.path}: the log is closed")

    def _submit(self, jobs: list[_Job]) -> None:
        with self._lock:
            self._check_writable()
            self._queue.put(jobs)

    def _write_loop(self, connection: sqlite3.Connection) -> None:
        jobs: deque[_Job] = deque()
        is_open = True
        while is_open or jobs:
            if not jobs and (more := self._queue.get()) is not None:
                jobs.extend(more)
            elif not jobs:
                break
            while is_open:
                try:
                    more = self._queue.get_nowait()
                except Empty:
                    break
                if more is None:
                    is_open = False
                else:
                    jobs.extend(more)
            batch = [jobs.popleft()]
            rows = len(batch[0].rows)
            while jobs and rows + len(jobs[0].rows) <= MAX_BATCH_ROWS:
                batch.append(jobs.popleft())
                rows += len(batch[-1].rows)
            self._commit_batch(connection, batch)
        connection.close()

    def _commit_batch(self, connection: sqlite3.Connection, batch: list[_Job]) -> None:
        try:
            with mapped(self.path):
                ids = append(connection, [row for job in batch for row in job.rows])
        except BaseException as error:  # noqa: BLE001 - the thread's top: every waiter must hear of it, whatever it is
            if isinstance(error, StorageFull) and len(batch) > 1:
                # One huge row must not take its neighbours down: try each job alone.
                for job in batch:
                    self._commit_batch(connection, [job])
                return
            _tell([(job, None, error) for job in batch])
            return
        at = 0
        settled: _Settled = []
        for job in batch:
            settled.append((job, ids[at : at + len(job.rows)], None))
            at += len(job.rows)
        _tell(settled)
        for wake in list(self._tails):
            wake()

    # -- reading ---------------------------------------------------------------------------------------------

    def events(
        self,
        execution_id: str | None = None,
        call_id: str | None = None,
        after: int = 0,
        limit: int | None = None,
    ) -> Iterator[Event]:
        """Rows in order, optionally of one execution or one call, with seq above `after`, at most `limit`.

        Reads in short steps; rows committed meanwhile are included. Raises: StorageError.
        """
        where = (
            "seq > ?"
            + (" AND execution_id = ?" if execution_id is not None else "")
            + (" AND call_id = ?" if call_id is not None else "")
        )
        filters = [clean_text(id_) for id_ in (execution_id, call_id) if id_ is not None]
        left = limit
        connection = self._connect(read_only=True)
        try:
            while left is None or left > 0:
                size = PAGE_ROWS if left is None else min(PAGE_ROWS, left)
                with mapped(self.path):
                    page = connection.execute(
                        f"SELECT {COLUMNS} FROM events WHERE {where} ORDER BY seq LIMIT ?",
                        (after, *filters, size),
                    ).fetchall()
                for row in page:
                    seq, id_, execution, call, step, at, kind, data_text, prev, hash_ = row
                    yield Event(seq, id_, execution, call, step, at, kind, json.loads(data_text), prev, hash_)
                if len(page) < size:
                    return
                after = page[-1][0]
                left = None if left is None else left - len(page)
        finally:
            connection.close()

    async def tail(
        self, *, after: int | None = None, execution_id: str | None = None
    ) -> AsyncIterator[Event]:
        """Rows as they are committed, by this process or another, until the caller stops.

        after: start behind this seq (default: behind the present head). Rows arrive once each, in order.
        """
        loop = asyncio.get_running_loop()
        news = asyncio.Event()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(news.set)
            except RuntimeError:
                self._tails.discard(wake)

        self._tails.add(wake)
        try:
            position = self.head().seq if after is None else after
            while True:
                news.clear()
                for event in self.events(execution_id=execution_id, after=position):
                    position = event.seq
                    yield event
                try:
                    async with asyncio.timeout(TAIL_POLL_S):
                        await news.wait()
                except TimeoutError:
                    pass
        finally:
            self._tails.discard(wake)

    def head(self) -> Head:
        """The last row's seq and hash: what an operator keeps elsewhere, so that a cut tail shows
        (`verify(anchor=...)`).
        """
        connection = self._connect(read_only=True)
        try:
            with mapped(self.path):
                row = connection.execute("SELECT seq, hash FROM events ORDER BY seq DESC LIMIT 1").fetchone()
        finally:
            connection.close()
        return Head(*row) if row else Head(0, GENESIS)

    def verify(self, *, anchor: Head | None = None) -> VerifyResult:
        """Check every row against the chain, and the log against an `anchor` kept from an earlier
        `head()`.
        """
        from fumehood.agent._verify import verify_file

        return verify_file(self.path, anchor=anchor)

    def fold(self, execution_id: str) -> ExecutionState:
        """The state that an execution's rows add up to; refusals are under variables["_egress"] (R023)."""
        from fumehood.agent._fold import fold

        return fold(execution_id, self.events(execution_id=execution_id))

    # -- life ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Write what is waiting, then stop. Idempotent."""
        with self._lock:
            if not self._closing and not self._forked:
                # Each loop's list belongs to its thread; a log is closed when its loops record no more.
                while self._gathered:
                    self._queue.put(self._gathered.popitem()[1])
                self._queue.put(None)
            self._closing = True
        if self._thread is not None and not self._forked:
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connect(self, *, read_only: bool) -> sqlite3.Connection:
        return connect(
            self.path,
            application_id=APPLICATION_ID,
            schema=SCHEMA,
            version=SCHEMA_VERSION,
            read_only=read_only,
        )


def _tell(settled: _Settled) -> None:
    """Hand results to their waiters; a loop is woken once, however many of its rows were in the batch."""
    by_loop: dict[asyncio.AbstractEventLoop, _Settled] = {}
    for job, ids, error in settled:
        if job.loop is not None:
            by_loop.setdefault(job.loop, []).append((job, ids, error))
        else:
            _settle([(job, ids, error)])
    for loop, some in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle, some)
        except RuntimeError:
            pass  # the loop was closed while the row was being written; nobody is left to tell


def _settle(settled: _Settled) -> None:
    for job, ids, error in settled:
        if job.waiter.cancelled():
            continue
        if error is not None:
            job.waiter.set_exception(error)
        else:
            job.waiter.set_result(ids or [])


def _after_fork() -> None:
    # The writer thread does not exist in a forked child, and SQLite connections must not cross a fork.
    # Comparing process ids would not do: in a new PID namespace parent and child can both be 1.
    for log in _logs:
        log._forked = True


os.register_at_fork(after_in_child=_after_fork)
