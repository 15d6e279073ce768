"""Rates, connection counts and upload caps: the corpus rows about sequences that the fetch door can play."""

from __future__ import annotations

import anyio
import pytest

from fumehood.broker import EgressRefused, FetchRequest
from fumehood.broker._budget import Budgets, OverBudget, Places
from fumehood.broker._call import MAX_ROWS
from fumehood.broker._denials import MAX_REFUSALS
from fumehood.policies.rules import parse_rule
from tests.broker.clients import RawServer
from tests.broker.test_transparent import caged
from tests.broker.world import PUBLIC, World, corpus

pytestmark = pytest.mark.anyio
URL = "https://api.example.com/"
ROWS = {row.id: row for row in corpus("sequence")}


@pytest.mark.promise("broker:rate-bounded")
@pytest.mark.parametrize(("row", "count", "passed"), [("budget-017", 5, 5), ("budget-018", 50, 5)])
async def test_requests_at_the_rate_pass_and_those_over_it_get_a_time_to_retry(
    row: str, count: int, passed: int, world: World
) -> None:
    world.serve(443, tls=True)
    world.name(ROWS[row].dns, ttl=60)
    refused = []
    async with world.call(*ROWS[row].policy) as call:
        call.broker.budgets = Budgets(clock=lambda: 1000.0)  # all within one instant
        for _ in range(count):
            try:
                await call.fetch(FetchRequest("GET", URL))
            except EgressRefused as over:
                refused.append(over)
    assert len(refused) == count - passed
    for error in refused:
        assert error.reason == "budget-rate" and error.retry_after == pytest.approx(0.2)


@pytest.mark.parametrize("row", ["budget-019"])
async def test_an_upload_over_the_cap_is_refused_before_it_is_sent(row: str, world: World) -> None:
    server = world.serve(443, tls=True)
    world.name(ROWS[row].dns)
    async with world.call(*ROWS[row].policy) as call:
        with pytest.raises(EgressRefused) as caught:
            await call.fetch(FetchRequest("POST", URL, (), b"x" * 65537))
        assert caught.value.reason == "budget-bytes"
        assert (await call.fetch(FetchRequest("POST", URL, (), b"x" * 65536))).status == 200
    assert len(server.seen) == 1


async def test_more_connections_than_the_entry_allows_are_refused_while_they_are_open(world: World) -> None:
    world.serve(443, tls=True)
    world.name({"api.example.com": [PUBLIC]})
    with anyio.fail_after(10):
        async with world.call("https://api.example.com +max_connections=1") as call:
            async with call.stream(FetchRequest("GET", URL)):
                with pytest.raises(EgressRefused) as caught:
                    await call.fetch(FetchRequest("GET", URL))
                assert caught.value.reason == "budget-rate"
            await anyio.lowlevel.checkpoint()
            assert (await call.fetch(FetchRequest("GET", URL))).status == 200


def test_a_bucket_refills_with_time_and_a_slot_is_given_back_once() -> None:
    now = [0.0]
    budgets = Budgets(clock=lambda: now[0])
    rule = parse_rule("https://a.example +rate=2/s +max_connections=1")
    assert budgets.enter("t", rule) is None
    assert budgets.enter("t", rule) == OverBudget("1 connections are open already", None)
    budgets.leave("t", rule)
    budgets.leave("t", rule)
    assert budgets.enter("t", rule) is None
    budgets.leave("t", rule)
    assert budgets.enter("t", rule) == OverBudget("over 2 requests a second", 0.5)
    assert budgets.enter("other tool", rule) is None, "counted per tool"
    now[0] = 0.5
    assert budgets.enter("t", rule) is None


@pytest.mark.promise("broker:every-attempt-is-a-row")
async def test_a_tool_that_goes_on_asking_is_refused_and_the_log_stays_bounded(world: World) -> None:
    async with world.call("https://api.example.com") as call:
        for count in range(MAX_REFUSALS + 300):
            with pytest.raises(EgressRefused) as caught:
                await call.fetch(FetchRequest("GET", f"https://n{count}.evil.test/"))
            assert caught.value.reason == "not-listed"
        with pytest.raises(EgressRefused):
            await call.fetch(FetchRequest("GET", "https://127.1/"))
        assert len(world.journal.events) == MAX_REFUSALS and len(call.rows) == MAX_ROWS
        assert caught.value.event_id == world.journal.events[-1]["id"]
    last = world.journal.events[-1]["data"]
    assert len(world.journal.events) == MAX_REFUSALS + 1
    assert (last["outcome"], last["count"]) == ("deny", 301)
    assert last["reasons"] == {"not-listed": 300, "ambiguous-url": 1}


def test_a_call_holds_at_most_as_many_places_as_are_still_free() -> None:
    places = Places(100)
    greedy = sum(places.take(held) for held in range(100))
    second = sum(places.take(held) for held in range(100))
    assert (greedy, second, places.taken) == (50, 25, 75)
    for _ in range(50):
        places.give_back()
    assert places.take(25)


async def test_a_call_that_opens_connections_without_end_leaves_places_to_another(world: World) -> None:
    world.ports[22] = world.stack.enter_context(RawServer())  # type: ignore[assignment]
    world.name({"*": [PUBLIC]}, ttl=60)
    code = """
import socket
held = [socket.create_connection(("api.example.com", 22)) for _ in range(30)]
for at, s in enumerate(held):
    s.settimeout(20)
    try:
        s.sendall(b"x")
        if not s.recv(1): break
    except OSError: break
else: at += 1
print(at)
"""
    async with caged(world, "tcp://api.example.com:22") as (call, namespace):
        call.broker.places = Places(40)
        done = await namespace.python(code)
        assert done.out == "20\n", done
        await call.close()
        assert [row["reason"] for row in call.rows if row["reason"]] == ["budget-rate"]
        assert (len(call.rows), call.broker.places.taken) == (21, 0)
