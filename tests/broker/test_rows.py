"""Which rows share a commit, and what is not asked twice; order and contents are those of single rows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from fumehood.agent import EventLog
from fumehood.broker import CallScope, FetchRequest
from fumehood.broker._records import Row, Rows
from tests.broker.world import PUBLIC, Journal, World

pytestmark = pytest.mark.anyio
SCOPE = CallScope("call-1", "exec-1", "tool")


class Batches(Journal):
    """A recorder that takes several rows at once, and remembers which came together."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[str]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.came = asyncio.Event()

    async def record_many(self, rows: Sequence[Row]) -> list[str]:
        self.batches.append([row.kind for row in rows])
        self.came.set()
        await self.gate.wait()
        return [await self.record(row.kind, row.data, call_id=row.call_id) for row in rows]


async def test_a_row_nobody_waits_for_goes_in_front_of_the_next_one() -> None:
    recorder = Batches()
    rows = Rows(recorder)
    rows.note("EGRESS_CLOSED", {"n": 1}, SCOPE)
    rows.note("EGRESS_CLOSED", {"n": 2}, SCOPE)
    assert recorder.batches == []
    assert await rows.record("EGRESS_ALLOWED", {"n": 3}, SCOPE) == "e3"
    assert recorder.batches == [["EGRESS_CLOSED", "EGRESS_CLOSED", "EGRESS_ALLOWED"]]
    assert [event["data"]["n"] for event in recorder.events] == [1, 2, 3]
    assert {event["call_id"] for event in recorder.events} == {"call-1"}


async def test_a_flush_waits_for_rows_that_another_caller_carries() -> None:
    recorder = Batches()
    rows = Rows(recorder)
    recorder.gate.clear()
    rows.note("EGRESS_CLOSED", {}, SCOPE)
    carrying = asyncio.ensure_future(rows.record("EGRESS_ALLOWED", {}, SCOPE))
    await asyncio.sleep(0)
    flushing = asyncio.ensure_future(rows.flush())
    rows.note("EGRESS_CLOSED", {}, SCOPE)  # after the flush began; another one's business
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not flushing.done()
    recorder.gate.set()
    await flushing
    assert recorder.kinds()[:2] == ["EGRESS_CLOSED", "EGRESS_ALLOWED"]
    await carrying


async def test_a_row_is_written_soon_without_anybody_asking() -> None:
    recorder = Batches()
    rows = Rows(recorder)
    for _ in range(2):  # the timer works more than once
        rows.note("EGRESS_CLOSED", {}, SCOPE)
        recorder.came.clear()
        await recorder.came.wait()
    assert recorder.batches == [["EGRESS_CLOSED"], ["EGRESS_CLOSED"]]


async def test_a_note_that_cannot_be_written_is_told_to_the_operator(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Journal):
        async def record(self, *_: object, **__: object) -> str:
            raise OSError("the disk is gone")

    rows = Rows(Broken())
    rows.note("EGRESS_CLOSED", {}, SCOPE)
    await rows.flush()
    assert "1 rows about ended connections were not written" in caplog.text


@pytest.mark.promise("broker:row-before-first-byte")
async def test_the_end_of_one_message_shares_the_commit_of_the_next_and_a_calls_end_leaves_none_behind(
    world: World, tmp_path: Path
) -> None:
    world.serve(80)
    world.name({"*": [PUBLIC]}, ttl=60)
    with EventLog(tmp_path / "log.sqlite3") as log:
        async with world.call("http://api.example.com", recorder=log) as call:
            for _ in range(2):
                await call.fetch(FetchRequest("GET", "http://api.example.com/"))
        kinds = [event.kind for event in log.events(call_id="call-1")]
    assert kinds == ["EGRESS_ALLOWED", "EGRESS_CLOSED", "EGRESS_ALLOWED", "EGRESS_CLOSED"]
