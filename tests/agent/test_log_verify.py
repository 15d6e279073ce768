"""What `verify` says about a log that somebody changed, and what only an anchor can show."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from fumehood.agent import EventLog, Head, NewEvent, VerifyResult, canonical
from fumehood.agent._events import row_hash, row_text


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "log.sqlite3"
    with EventLog(file) as log:
        log.record_many_sync([NewEvent("TOOL_EVENT", {"n": n}, "e", f"c{n}") for n in range(1, 9)])
    return file


def _verify_after(path: Path, *statements: str, anchor: Head | None = None) -> VerifyResult:
    database = sqlite3.connect(path)
    for statement in statements:
        database.execute(statement)
    database.commit()
    database.close()
    return EventLog(path, read_only=True).verify(anchor=anchor)


SWAP = (
    "UPDATE events SET seq = 100 WHERE seq = 4",
    "UPDATE events SET seq = 4 WHERE seq = 5",
    "UPDATE events SET seq = 5 WHERE seq = 100",
)


@pytest.mark.promise("agent:tampering-shows")
@pytest.mark.parametrize(
    ("statements", "first_bad", "said"),
    [
        (["UPDATE events SET data = '{\"n\":9}' WHERE seq = 3"], 3, "recorded: the row was altered"),
        (["UPDATE events SET data = '{\"n\": 3}' WHERE seq = 3"], 3, "recorded: the row was altered"),
        (["UPDATE events SET kind = 'CALL_ENDED' WHERE seq = 3"], 3, "recorded: the row was altered"),
        (["UPDATE events SET execution_id = NULL WHERE seq = 1"], 1, "recorded: the row was altered"),
        (["UPDATE events SET call_id = 'c4' WHERE seq = 3"], 3, "recorded: the row was altered"),
        (
            ["UPDATE events SET at = '2020-01-01T00:00:00.000000Z' WHERE seq = 8"],
            8,
            "recorded: the row was altered",
        ),
        (["UPDATE events SET hash = prev WHERE seq = 3"], 3, "recorded: the row was altered"),
        (["UPDATE events SET data = x'00ff' WHERE seq = 3"], 3, "a column does not hold text"),
        (['UPDATE events SET data = \'{"n":"é"}\' WHERE seq = 3'], 3, "not in canonical form"),
        (["UPDATE events SET prev = hash WHERE seq = 3"], 3, "rows were reordered, inserted or replaced"),
        (["DELETE FROM events WHERE seq = 5"], 5, "row 5 is missing: row 6 follows row 4"),
        (["DELETE FROM events WHERE seq IN (5, 6)"], 5, "rows 5 to 6 are missing: row 7 follows row 4"),
        (["DELETE FROM events WHERE seq = 1"], 1, "row 1 is missing: row 2 follows row 0"),
        (list(SWAP), 4, "rows were reordered, inserted or replaced"),
        (["UPDATE events SET seq = -1 WHERE seq = 1"], 1, "row -1 stands after row 0"),
    ],
)
def test_the_first_bad_row_is_named_with_the_reason(
    path: Path, statements: list[str], first_bad: int, said: str
) -> None:
    result = _verify_after(path, *statements)
    assert (result.ok, result.first_bad, result.rows) == (False, first_bad, first_bad - 1)
    assert result.message.startswith(f"row {first_bad}: ") and said in result.message


def test_an_untouched_log_is_the_control(path: Path) -> None:
    assert _verify_after(path).message == "8 rows, chain intact"


def _rechain(path: Path, change: Callable[[int, str], str]) -> None:
    """Rewrite the whole chain, as someone with write access and this code could."""
    database = sqlite3.connect(path)
    prev = "0" * 64
    rows = database.execute(
        "SELECT seq, id, execution_id, call_id, step_id, at, kind, data FROM events ORDER BY seq"
    ).fetchall()
    for seq, id_, execution_id, call_id, step_id, at, kind, data in rows:
        data = change(seq, data)
        text = row_text(
            seq=seq,
            id_=id_,
            execution_id=execution_id,
            call_id=call_id,
            step_id=step_id,
            at=at,
            kind=kind,
            data_text=data,
            prev=prev,
        )
        database.execute(
            "UPDATE events SET data = ?, prev = ?, hash = ? WHERE seq = ?", (data, prev, row_hash(text), seq)
        )
        prev = row_hash(text)
    database.commit()
    database.close()


@pytest.mark.promise("agent:cut-tail-needs-anchor")
def test_a_cut_tail_verifies_alone_and_fails_against_an_anchor(path: Path) -> None:
    anchor = EventLog(path, read_only=True).head()
    assert anchor.seq == 8
    cut = _verify_after(path, "DELETE FROM events WHERE seq > 6")
    assert (cut.ok, cut.rows) == (True, 6)
    anchored = EventLog(path, read_only=True).verify(anchor=anchor)
    assert (anchored.ok, anchored.first_bad) == (False, 7)
    assert anchored.message == "the log ends at row 6, but the anchor names row 8: the tail was cut off"


@pytest.mark.promise("agent:cut-tail-needs-anchor")
def test_a_rewritten_chain_verifies_alone_and_fails_against_an_anchor(path: Path) -> None:
    anchor = EventLog(path, read_only=True).head()
    _rechain(path, lambda seq, data: canonical({"n": "forged"}) if seq == 2 else data)
    assert EventLog(path, read_only=True).verify().ok
    anchored = EventLog(path, read_only=True).verify(anchor=anchor)
    assert (anchored.ok, anchored.first_bad) == (False, 8)
    assert "the log was rewritten" in anchored.message


def test_an_anchor_in_the_middle_is_checked_too_and_later_rows_are_welcome(path: Path) -> None:
    anchor = EventLog(path, read_only=True).head()
    with EventLog(path) as log:
        log.record_sync("TOOL_EVENT", {"n": 9})
        assert log.verify(anchor=anchor).ok


def test_data_that_hashes_right_but_is_not_canonical_is_named(path: Path) -> None:
    _rechain(path, lambda seq, data: '{"n": 2}' if seq == 2 else data)
    result = EventLog(path, read_only=True).verify()
    assert (result.ok, result.first_bad, result.message) == (
        False,
        2,
        "row 2: its data is not canonical JSON",
    )


def test_a_damaged_file_is_a_result_and_not_a_traceback(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    for page in range(4096, len(raw), 4096):
        raw[page : page + 512] = b"\xff" * 512
    path.write_bytes(bytes(raw))
    result = EventLog(path, read_only=True).verify()
    assert not result.ok and "damaged" in result.message
