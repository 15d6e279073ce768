"""Checking a log's hash chain, and saying which row is bad and why.

Guarantees: an altered, removed, inserted, replaced or reordered row is found and named, as long as whoever
changed it did not rewrite every row after it. Does not show: a tail that was cut off, or a chain rewritten as
a whole by someone who can write the file. Both show against an anchor (an earlier `head()` kept elsewhere).
Reads only; one pass in constant memory; never raises for what it finds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fumehood.agent._canonical import canonical
from fumehood.agent._events import GENESIS, row_hash, row_text
from fumehood.agent._log_table import APPLICATION_ID, COLUMNS, SCHEMA, SCHEMA_VERSION, Head
from fumehood.agent._sqlite import StorageError, connect, mapped


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """ok: every row fits. rows: how many fitted, from the first on. first_bad: seq of the first that does
    not. message: why.

    head: the last row that fitted, to keep as an anchor.
    """

    ok: bool
    rows: int
    first_bad: int | None
    message: str
    head: Head


def verify_file(path: Path, *, anchor: Head | None = None) -> VerifyResult:
    """Check the log at `path`. Raises: StorageError only when the file cannot be opened as a log at all."""
    connection = connect(
        path, application_id=APPLICATION_ID, schema=SCHEMA, version=SCHEMA_VERSION, read_only=True
    )
    try:
        with mapped(path):
            return verify_rows(
                connection.execute(f"SELECT {COLUMNS} FROM events ORDER BY seq"), anchor=anchor
            )
    except StorageError as error:
        return VerifyResult(False, 0, None, error.message, Head(0, GENESIS))
    finally:
        connection.close()


def verify_rows(rows: Iterable[tuple[object, ...]], *, anchor: Head | None = None) -> VerifyResult:
    """Check rows as they lie in the table, `data` still as text.

    The order of the checks decides what is said: a hole before a broken link, a broken link before a wrong
    hash, because a removed or moved row also breaks the link of the row behind it, and the first cause is
    what helps.
    """
    at = Head(0, GENESIS)
    for row in rows:
        fault = _fault(row, at)
        if fault is not None:
            seq, why = fault
            return VerifyResult(False, at.seq, seq, f"row {seq}: {why}", at)
        at = Head(int(str(row[0])), str(row[9]))
        if anchor is not None and at.seq == anchor.seq and at.hash != anchor.hash:
            why = "its hash is not the one in the anchor: the log was rewritten up to here"
            return VerifyResult(False, at.seq - 1, at.seq, f"row {at.seq}: {why}", at)
    if anchor is not None and at.seq < anchor.seq:
        why = f"the log ends at row {at.seq}, but the anchor names row {anchor.seq}: the tail was cut off"
        return VerifyResult(False, at.seq, at.seq + 1, why, at)
    count = f"{at.seq} row{'' if at.seq == 1 else 's'}"
    return VerifyResult(True, at.seq, None, f"{count}, chain intact", at)


def _fault(row: tuple[object, ...], last: Head) -> tuple[int, str] | None:
    seq, id_, execution_id, call_id, step_id, at, kind, data_text, prev, hash_ = row
    if not isinstance(seq, int):
        return last.seq + 1, "its number is not an integer"
    expected = last.seq + 1
    if seq != expected:
        gone = (
            f"row {expected} is missing"
            if seq == expected + 1
            else f"rows {expected} to {seq - 1} are missing"
        )
        return (
            expected,
            f"{gone}: row {seq} follows row {last.seq}"
            if seq > expected
            else f"row {seq} stands after row {last.seq}",
        )
    texts = (id_, at, kind, data_text, prev, hash_)
    if not all(isinstance(text, str) for text in texts) or not all(
        text is None or isinstance(text, str) for text in (execution_id, call_id, step_id)
    ):
        return seq, "a column does not hold text: the row was altered"
    if prev != last.hash:
        return (
            seq,
            (
                f"it does not follow row {last.seq} (prev is {str(prev)[:12]}…, not "
                f"{last.hash[:12]}…): rows were reordered, inserted or replaced"
            ),
        )
    text = row_text(
        seq=seq,
        id_=str(id_),
        execution_id=None if execution_id is None else str(execution_id),
        call_id=None if call_id is None else str(call_id),
        step_id=None if step_id is None else str(step_id),
        at=str(at),
        kind=str(kind),
        data_text=str(data_text),
        prev=str(prev),
    )
    if not text.isascii():
        return seq, "its data is not in canonical form: the row was altered"
    found = row_hash(text)
    if found != hash_:
        return (
            seq,
            (
                f"its content gives the hash {found[:12]}…, but {str(hash_)[:12]}… is recorded: the "
                "row was altered"
            ),
        )
    try:
        same = canonical(json.loads(str(data_text))) == data_text
    except (ValueError, RecursionError):
        same = False
    return None if same else (seq, "its data is not canonical JSON")
