"""Rows that gather in one turn of an event loop: none is lost, none changes places."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import anyio
import pytest

from fumehood.agent import EventLog, NewEvent, StorageError

pytestmark = pytest.mark.anyio


async def _begun(log: EventLog, number: int) -> asyncio.Task[str]:
    """A task that has recorded its row as far as the end of this turn, and no further."""
    task = asyncio.ensure_future(log.record("TOOL_EVENT", {"n": number}))
    await asyncio.sleep(0)
    return task


def _numbers(path: Path) -> list[object]:
    return [event.data["n"] for event in EventLog(path, read_only=True).events()]  # type: ignore[index]


async def test_closing_writes_what_this_turn_recorded(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log.sqlite3")
    tasks = [asyncio.ensure_future(log.record("TOOL_EVENT", {"n": n})) for n in range(3)]
    await asyncio.sleep(0)  # the rows are with the loop, not with the writer
    log.close()
    assert _numbers(tmp_path / "log.sqlite3") == [0, 1, 2]
    with anyio.fail_after(5):
        assert len(set(await asyncio.gather(*tasks))) == 3
    with pytest.raises(StorageError, match="closed"):
        await log.record("TOOL_EVENT", {"n": 3})


async def test_a_row_that_blocks_for_its_place_comes_after_those_begun_before_it(tmp_path: Path) -> None:
    with EventLog(tmp_path / "log.sqlite3") as log:
        task = await _begun(log, 1)
        log.record_sync("TOOL_EVENT", {"n": 2})
        await task
        assert _numbers(log.path) == [1, 2]


async def test_a_row_nobody_waits_for_any_more_is_written_all_the_same(tmp_path: Path) -> None:
    with EventLog(tmp_path / "log.sqlite3") as log:
        task = await _begun(log, 1)
        task.cancel()
        await log.record("TOOL_EVENT", {"n": 2})
        assert _numbers(log.path) == [1, 2]


async def test_several_rows_at_once_stay_together_among_those_of_others(tmp_path: Path) -> None:
    with EventLog(tmp_path / "log.sqlite3") as log:
        many = [
            asyncio.ensure_future(
                log.record_many([NewEvent("TOOL_EVENT", {"n": [n, at]}) for at in range(3)])
            )
            for n in range(5)
        ]
        single = [asyncio.ensure_future(log.record("TOOL_EVENT", {"n": n})) for n in range(5)]
        ids = await asyncio.gather(*many)
        await asyncio.gather(*single)
        expected = [[n, at] for n in range(5) for at in range(3)]
        assert _numbers(log.path) == [*expected, *range(5)]
        assert [id_ for one in ids for id_ in one] == [event.id for event in log.events(limit=15)]


def test_loops_of_several_threads_share_one_log(tmp_path: Path) -> None:
    with EventLog(tmp_path / "log.sqlite3") as log:

        async def record(at: int) -> None:
            await asyncio.gather(*(log.record("TOOL_EVENT", {"n": [at, n]}) for n in range(50)))

        threads = [threading.Thread(target=lambda at=at: asyncio.run(record(at))) for at in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        found = _numbers(log.path)
        assert len(found) == 200 and log.verify().ok
        for at in range(4):
            assert [row for row in found if row[0] == at] == [[at, n] for n in range(50)]  # type: ignore[index]
