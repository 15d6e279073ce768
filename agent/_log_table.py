"""The log's table: its schema, and the one function that appends to it.

Guarantees: `append` reads the chain's head inside its own transaction, so any number of processes extend one
chain; times and ids rise strictly from row to row, whatever the clock does; all rows of one call are there or
none. Before editing: the columns that are hashed are in `_events.row_text`; a change of the schema needs a
new SCHEMA_VERSION.
"""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple

from fumehood.agent._canonical import ValueNotJson, canonical, clean, clean_text, is_clean
from fumehood.agent._events import GENESIS, NewEvent, row_hash, row_text

APPLICATION_ID: Final = 0x46484C47  # "FHLG"
SCHEMA_VERSION: Final = 1
SCHEMA: Final = """
CREATE TABLE events (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    execution_id TEXT,
    call_id TEXT,
    step_id TEXT,
    at TEXT NOT NULL,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    prev TEXT NOT NULL,
    hash TEXT NOT NULL
);
CREATE INDEX events_by_execution ON events (execution_id, seq) WHERE execution_id IS NOT NULL;
CREATE INDEX events_by_call ON events (call_id, seq) WHERE call_id IS NOT NULL
"""

MAX_DATA_BYTES: Final = 16 * 1024 * 1024
"""Largest canonical text of one row's data. Bytes belong in the content store; the row carries the address.
"""

COLUMNS: Final = "seq, id, execution_id, call_id, step_id, at, kind, data, prev, hash"

_KIND: Final = re.compile(r"[A-Z][A-Z0-9_]{0,63}")


class ReadyRow(NamedTuple):
    """A row that only lacks its place in the chain."""

    kind: str
    data_text: str
    execution_id: str | None
    call_id: str | None
    step_id: str | None


@dataclass(frozen=True, slots=True)
class Head:
    """The last row of a log: an anchor to keep outside it. seq 0 and GENESIS for an empty log."""

    seq: int
    hash: str


def ready(event: NewEvent) -> ReadyRow:
    """An event as the writer takes it: checked, its data as canonical text. Raises: ValueNotJson."""
    if not _KIND.fullmatch(event.kind):
        raise ValueNotJson("kind", f"{event.kind!r} is not an event kind such as CALL_STARTED")
    text = canonical(event.data if is_clean(event.data) else clean(event.data))
    if len(text) > MAX_DATA_BYTES:
        raise ValueNotJson(
            "data",
            (f"{len(text)} bytes in one row; at most {MAX_DATA_BYTES} (store the bytes, record the address)"),
        )
    ids = (event.execution_id, event.call_id, event.step_id)
    return (event.kind, text, *(None if id_ is None else clean_text(id_) for id_ in ids))  # type: ignore[return-value]


def append(connection: sqlite3.Connection, rows: Sequence[ReadyRow]) -> list[str]:
    """Append rows in one transaction and return their ids; on disk when this returns."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        last = connection.execute("SELECT seq, at, hash FROM events ORDER BY seq DESC LIMIT 1").fetchone()
        seq, micros, prev = (last[0], _micros(last[1]), last[2]) if last else (0, 0, GENESIS)
        now = _now_micros()
        ids = []
        values = []
        for kind, data_text, execution_id, call_id, step_id in rows:
            seq += 1
            # Strictly rising even when the clock stands or is set back, so that time order is log order.
            micros = max(now, micros + 1)
            at = _iso(micros)
            id_ = f"{micros:014x}{os.urandom(6).hex()}"
            text = row_text(
                seq=seq,
                id_=id_,
                execution_id=execution_id,
                call_id=call_id,
                step_id=step_id,
                at=at,
                kind=kind,
                data_text=data_text,
                prev=prev,
            )
            hash_ = row_hash(text)
            values.append((seq, id_, execution_id, call_id, step_id, at, kind, data_text, prev, hash_))
            ids.append(id_)
            prev = hash_
        connection.executemany(f"INSERT INTO events ({COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?)", values)
        connection.execute("COMMIT")
    except BaseException:  # raised on: whatever ended it, the transaction is not left open
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return ids


def _now_micros() -> int:
    return time.time_ns() // 1000


def _iso(micros: int) -> str:
    seconds, rest = divmod(micros, 1_000_000)
    return f"{_second(seconds)}.{rest:06d}Z"


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _micros(at: str) -> int:
    moment = datetime.fromisoformat(at)
    return int(moment.replace(microsecond=0).timestamp()) * 1_000_000 + moment.microsecond
