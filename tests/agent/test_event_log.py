"""The event log: what a recorded row is, and that recording survives other writers, hostile values
and bad files.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fumehood.agent import (
    EVENT_KINDS,
    Event,
    EventLog,
    NewEvent,
    StorageError,
    StorageFull,
    StorageVersion,
    ValueNotJson,
    event_hash,
)
from fumehood.testing import check_event_log

pytestmark = pytest.mark.anyio


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "log.sqlite3"


@pytest.fixture
def log(path: Path) -> Iterator[EventLog]:
    with EventLog(path) as opened:
        yield opened


async def test_our_log_passes_the_conformance_check(path: Path) -> None:
    await check_event_log(lambda: EventLog(path))


async def test_a_row_holds_what_was_given_and_nothing_else(log: EventLog) -> None:
    id_ = await log.record("CALL_STARTED", {"tool": "t"}, execution_id="e", call_id="c", step_id="s")
    (row,) = log.events()
    assert row == Event(1, id_, "e", "c", "s", row.at, "CALL_STARTED", {"tool": "t"}, "0" * 64, row.hash)
    assert list(row.as_dict()) == [
        "seq",
        "id",
        "execution_id",
        "call_id",
        "step_id",
        "at",
        "kind",
        "data",
        "prev",
        "hash",
    ]
    assert len(row.at) == len("2026-01-01T00:00:00.000000Z") and row.at.endswith("Z")
    assert row.hash == event_hash(row)


async def test_the_kinds_of_the_contract_are_all_accepted(log: EventLog) -> None:
    await log.record_many([NewEvent(kind, {}) for kind in sorted(EVENT_KINDS)])
    assert [row.kind for row in log.events()] == sorted(EVENT_KINDS)


@pytest.mark.parametrize("kind", ["", "call_started", "1X", "X" * 65, "A\nB"])
async def test_a_kind_that_is_no_kind_is_refused(log: EventLog, kind: str) -> None:
    with pytest.raises(ValueNotJson, match="is not an event kind such as CALL_STARTED"):
        await log.record(kind, {})


@pytest.mark.promise("agent:hostile-values-are-kept")
async def test_values_that_json_cannot_hold_are_replaced_and_the_chain_holds(log: EventLog) -> None:
    hostile = {
        "nan": float("nan"),
        "inf": [float("inf"), float("-inf")],
        "lone": "\udc80x",
        "nul": "a\x00b",
        "tuple": (1, 2),
        "\ud800": "key",
    }
    await log.record(
        "TOOL_EVENT", hostile, execution_id="e\udfff", call_id="\x00", step_id="'; DROP TABLE events; --"
    )
    (row,) = log.events(execution_id="e\ufffd")
    assert row.data == {
        "nan": "NaN",
        "inf": ["Infinity", "-Infinity"],
        "lone": "\ufffdx",
        "nul": "a\x00b",
        "tuple": [1, 2],
        "\ufffd": "key",
    }
    assert (row.call_id, row.step_id) == ("\x00", "'; DROP TABLE events; --")
    assert log.verify().ok


def _nested(levels: int) -> dict[str, object]:
    value: object = "bottom"
    for _ in range(levels):
        value = [value]
    return {"v": value}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"a": [{"b": b"bytes"}]}, "data.a[0].b: a value of type bytes"),
        ({"a": {1: 2}}, "data.a: has a key of type int; keys are strings"),
        (_nested(100_000), "nested deeper than 200 levels"),
        ({"n": 10**5000}, "data.n: an integer of"),
        (dict.fromkeys([chr(0xD800), chr(0xD801)]), "two keys are the same text"),
        ({"s": "x" * (16 * 1024 * 1024)}, "bytes in one row; at most"),
    ],
)
async def test_what_json_has_no_form_for_is_refused_by_name_and_nothing_is_written(
    log: EventLog, data: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueNotJson) as caught:
        await log.record("TOOL_EVENT", data)
    assert message in str(caught.value)
    assert list(log.events()) == []


async def test_record_many_is_all_or_nothing(log: EventLog) -> None:
    with pytest.raises(ValueNotJson):
        await log.record_many([NewEvent("TOOL_EVENT", {}), NewEvent("TOOL_EVENT", {"x": object()})])
    assert list(log.events()) == []


async def test_a_cancelled_wait_does_not_withdraw_the_row(log: EventLog) -> None:
    task = asyncio.ensure_future(log.record("TOOL_EVENT", {"n": 1}))
    await asyncio.sleep(0)  # lets the task hand its row over; nothing is timed
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await log.record("TOOL_EVENT", {"n": 2})
    assert [row.data for row in log.events()] == [{"n": 1}, {"n": 2}]


async def test_times_and_ids_rise_even_when_the_clock_is_set_back(
    log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter([2_000_000_000_000_000_000, 1_000_000_000_000_000_000])
    monkeypatch.setattr("fumehood.agent._log_table.time.time_ns", lambda: next(moments))
    await log.record("TOOL_EVENT", {})
    await log.record("TOOL_EVENT", {})
    first, second = log.events()
    assert (first.at, second.at) == ("2033-05-18T03:33:20.000000Z", "2033-05-18T03:33:20.000001Z")
    assert first.id < second.id


@pytest.mark.promise("agent:refusals-fold")
@pytest.mark.requirement("R022")
@pytest.mark.requirement("R023")
async def test_refusals_fold_into_the_egress_variable_of_their_own_execution(log: EventLog) -> None:
    denied = {"outcome": "deny", "reason": "not-listed", "host": "evil.test", "port": 443}
    await log.record("CALL_STARTED", {"tool": "t"}, execution_id="e", call_id="c")
    id_ = await log.record("EGRESS_DENIED", denied, execution_id="e", call_id="c")
    await log.record("EGRESS_DENIED", denied, execution_id="other", call_id="d")
    await log.record("LLM_REASONING_CAPTURED", {"parts": []}, execution_id="e", step_id="s")
    await log.record("CALL_ENDED", {"outcome": "denied", "reason": "x"}, execution_id="e", call_id="c")
    state = log.fold("e")
    rows = list(log.events(execution_id="e"))
    assert state.variables == {"_egress": [{**denied, "event_id": id_, "call_id": "c", "at": rows[1].at}]}
    assert (state.calls["c"].tool, state.calls["c"].outcome, state.calls["c"].reason) == ("t", "denied", "x")
    assert (state.rows, state.last_seq) == (4, rows[-1].seq)


async def test_steps_and_approvals_fold_to_their_last_word(log: EventLog) -> None:
    await log.record("STEP_STARTED", {}, execution_id="e", step_id="s")
    await log.record("STEP_FAILED", {"error": "x"}, execution_id="e", step_id="s")
    await log.record("STEP_STARTED", {}, execution_id="e", step_id="s")
    await log.record("STEP_COMPLETED", {"value": 7}, execution_id="e", step_id="s")
    await log.record("APPROVAL_REQUESTED", {"tool": "t"}, execution_id="e", call_id="c")
    await log.record("APPROVAL_DECIDED", {"decision": "approved"}, execution_id="e", call_id="c")
    state = log.fold("e")
    step = state.steps["s"]
    assert (step.status, step.attempts, step.value) == ("completed", 2, {"value": 7})
    assert state.approvals == {"c": {"decision": "approved"}}


async def test_tail_gives_each_new_row_once_from_this_process_and_from_others(
    log: EventLog, path: Path
) -> None:
    await log.record("TOOL_EVENT", {"n": 0})
    seen: list[object] = []
    started = asyncio.Event()

    async def follow() -> None:
        async for event in log.tail(after=0):
            seen.append(event.data)
            started.set()
            if len(seen) == 4:
                return

    async with asyncio.timeout(20):
        task = asyncio.create_task(follow())
        await started.wait()
        await log.record("TOOL_EVENT", {"n": 1})
        with EventLog(path) as other:
            await other.record_many([NewEvent("TOOL_EVENT", {"n": 2}), NewEvent("TOOL_EVENT", {"n": 3})])
        await task
    assert seen == [{"n": n} for n in range(4)]


@pytest.mark.promise("agent:one-chain")
def test_several_processes_append_to_one_chain(path: Path) -> None:
    program = (
        "import sys\nfrom fumehood.agent import EventLog\n"
        "with EventLog(sys.argv[1]) as log:\n"
        "    for n in range(40): log.record_sync('TOOL_EVENT', {'n': n}, execution_id=sys.argv[2])\n"
    )
    children = [subprocess.Popen([sys.executable, "-c", program, str(path), f"e{n}"]) for n in range(3)]
    assert [child.wait(60) for child in children] == [0, 0, 0]
    log = EventLog(path, read_only=True)
    result = log.verify()
    assert (result.ok, result.rows, result.message) == (True, 120, "120 rows, chain intact")
    for n in range(3):
        assert [row.data for row in log.events(execution_id=f"e{n}")] == [{"n": i} for i in range(40)]


@pytest.mark.promise("agent:private-files")
def test_folder_and_files_are_private_whatever_the_umask_is(path: Path) -> None:
    before = os.umask(0)
    try:
        with EventLog(path) as log:
            log.record_sync("TOOL_EVENT", {})
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert modes == {"log.sqlite3": 0o600, "log.sqlite3-shm": 0o600, "log.sqlite3-wal": 0o600}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.promise("agent:never-rewrites-foreign-files")
def test_files_that_are_not_our_log_are_refused_and_left_as_they_were(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_bytes(b"not a database, but long enough to have a header of its own" * 20)
    foreign = tmp_path / "foreign"
    other = sqlite3.connect(foreign)
    other.executescript("CREATE TABLE t (x); INSERT INTO t VALUES (1)")
    other.close()
    newer = tmp_path / "newer"
    EventLog(newer).close()
    marked = sqlite3.connect(newer)
    marked.execute("PRAGMA user_version=7")
    marked.close()
    expected = {
        text: "this file is not a database",
        foreign: "this is a database of another program",
        newer: "written by a newer fumehood (schema 7; this one knows up to 1)",
    }
    for file, message in expected.items():
        before = file.read_bytes()
        with pytest.raises(StorageVersion) as caught:
            EventLog(file)
        assert (
            message in str(caught.value) and str(file) in str(caught.value) and "Hint: " in str(caught.value)
        )
        assert file.read_bytes() == before


def test_a_missing_log_is_not_created_by_a_reader(path: Path) -> None:
    with pytest.raises(StorageError, match="there is no such file"):
        list(EventLog(path, read_only=True).events())
    assert not path.exists()


async def test_a_full_log_refuses_the_row_that_does_not_fit_and_keeps_the_others(path: Path) -> None:
    with EventLog(path, max_bytes=64 * 1024) as log:
        await log.record("TOOL_EVENT", {"n": 1})
        small, large = await asyncio.gather(
            log.record("TOOL_EVENT", {"n": 2}),
            log.record("TOOL_EVENT", {"s": "x" * 200_000}),
            return_exceptions=True,
        )
        assert isinstance(small, str)
        assert isinstance(large, StorageFull)
        assert str(large) == (
            f"{path}: the disk is full, or the file reached its size limit\n"
            "Hint: free space or raise max_bytes; nothing was written"
        )
        assert [row.data for row in log.events()] == [{"n": 1}, {"n": 2}]
        assert log.verify().ok


def test_a_file_size_limit_of_the_system_is_an_error_with_a_remedy(path: Path) -> None:
    program = (
        "import resource, sys\nfrom fumehood.agent import EventLog, StorageError\n"
        "log = EventLog(sys.argv[1])\n"
        "log.record_sync('TOOL_EVENT', {'n': 1})\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))\n"
        "try:\n    log.record_sync('TOOL_EVENT', {'s': 'x' * 300_000})\n"
        "except StorageError as error: print(error)\n"
        "print(log.record_sync('TOOL_EVENT', {'n': 2}) != '', log.verify().message)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=60
    )
    assert run.returncode == 0, run.stderr
    assert "the disk refused a read or write" in run.stdout and "Hint: check the disk" in run.stdout
    assert run.stdout.endswith("True 2 rows, chain intact\n")


def test_a_folder_that_cannot_be_written_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    file = tmp_path / "a-file"
    file.write_text("x", encoding="utf-8")
    with pytest.raises(StorageError, match="Not a directory"):
        EventLog(file / "state" / "log.sqlite3")
    program = (
        "import os, sys\nfrom fumehood.agent import EventLog, StorageError\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: EventLog(sys.argv[1])\nexcept StorageError as error: print(error)\n"
    )
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o555)
    run = subprocess.run(
        [sys.executable, "-c", program, str(locked / "log.sqlite3")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stderr
    assert "Permission denied" in run.stdout and "Hint: uid " in run.stdout


def test_a_log_that_crossed_a_fork_refuses_instead_of_hanging(log: EventLog) -> None:
    log.record_sync("TOOL_EVENT", {})
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            log.record_sync("TOOL_EVENT", {})
        except StorageError as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as answer:
        said = answer.read()
    assert os.waitpid(child, 0)[1] == 0
    assert "this log was opened before a fork" in said


def test_recording_after_close_is_refused_and_closing_writes_what_waits(path: Path) -> None:
    log = EventLog(path)
    log.record_sync("TOOL_EVENT", {})
    assert repr(log) == f"<EventLog {str(path)!r} [open, 0 waiting]>"
    log.close()
    log.close()
    with pytest.raises(StorageError, match="the log is closed"):
        log.record_sync("TOOL_EVENT", {})
    assert repr(log) == f"<EventLog {str(path)!r} [closed, 0 waiting]>"


def test_a_log_without_rows_verifies(path: Path) -> None:
    with EventLog(path) as log:
        assert (log.verify().ok, log.verify().message, log.head().seq) == (True, "0 rows, chain intact", 0)


def test_the_export_form_of_a_row_verifies_with_the_program_in_the_documentation(
    path: Path, tmp_path: Path
) -> None:
    with EventLog(path) as log:
        log.record_sync(
            "TOOL_EVENT",
            {
                "float": [0.1, 1e-7, 1e16, -0.0],
                "big": 2**80,
                "text": "é\U0001f600\x00",
                "b": {"z": 1, "a": []},
            },
        )
        log.record_sync("CALL_ENDED", {"outcome": "ok"}, execution_id="e", call_id="c", step_id="s")
        lines = "".join(json.dumps(row.as_dict()) + "\n" for row in log.events())
    document = (Path(__file__).parents[2] / "docs" / "log.md").read_text(encoding="utf-8")
    program = document.split("```python verify\n")[1].split("```")[0]
    good = tmp_path / "good.jsonl"
    good.write_text(lines, encoding="utf-8")
    bad = tmp_path / "bad.jsonl"
    bad.write_text(lines.replace('"outcome": "ok"', '"outcome": "no"'), encoding="utf-8")

    def run(file: Path) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-c", program, str(file)], capture_output=True, text=True, timeout=60
        )
        return done.returncode, done.stdout + done.stderr

    assert run(good) == (0, "2 rows, chain intact\n")
    assert run(bad) == (1, "row 2 was altered\n")
