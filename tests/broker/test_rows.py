"""Which rows share a commit, and what is not asked twice; order and contents are those of single rows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from fumehood.agent import EventLog
from fumehood.broker import Answers, CallScope, EgressRequest, FetchRequest, decide
from fumehood.broker._addresses import Address, parse_address
from fumehood.broker._records import Row, Rows
from fumehood.broker._target import parse_url
from tests.broker.world import PUBLIC, Journal, World, policy

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


async def test_a_remembered_decision_is_the_one_that_would_be_taken_now(world: World) -> None:
    """Policy, answers and own addresses change one after the other; each time the decision is a fresh one."""
    world.name({})
    one, other = parse_address(PUBLIC), parse_address("10.0.0.1")
    first = policy("http://api.example.com")
    policies = (first, replace(first, deny=policy("http://api.example.com/admin").allow), first)
    answers = (Answers((one,), ttl=5), Answers((other,)), Answers((one, other)), Answers(error="none"))
    own: tuple[frozenset[Address], ...] = (frozenset(), frozenset([one]))
    asked = [
        EgressRequest(parse_url(url), method, "fetch")
        for url in ("http://api.example.com/", "http://api.example.com/admin", "http://b.example.com/")
        for method in ("GET", "POST")
    ]
    async with world.call("http://api.example.com") as call:
        for _ in range(2):
            for rules in policies:
                for said in answers:
                    for mine in own:
                        call.broker._own = (float("inf"), mine or frozenset([parse_address("192.0.2.1")]))
                        for request in asked:
                            known = call._recall(rules, request)
                            found = (
                                call._decide(known, request, said) if known.matched.reason is None else None
                            )
                            fresh = decide(rules, request, said, call.broker.own_addresses())
                            assert (found or fresh) == fresh
                            assert (found is None) == (fresh.reason in ("not-listed", "denied-by-rule"))
        assert len(call._known) == len(asked)


async def test_what_is_remembered_of_a_call_is_bounded(world: World) -> None:
    world.name({})
    async with world.call("http://api.example.com") as call:
        for number in range(1000):
            call._recall(
                call.policy, EgressRequest(parse_url(f"http://api.example.com/{number}"), "GET", "fetch")
            )
        assert len(call._known) <= 256
        call._known.clear()
        call._recall(
            call.policy, EgressRequest(parse_url("http://api.example.com/" + "x" * 600), "GET", "fetch")
        )
        assert call._known == {}
