"""What keeps stored content, what lets it go, and what opens it from outside."""

from __future__ import annotations

import base64
import json
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fumehood.agent import ContentStore, Event, EventLog, StorageError
from fumehood.agent._reasoning import ReasoningOptions, capture_reasoning
from fumehood.agent._response import Reasoning, Usage, response_of
from fumehood.agent._sweep import sweep_unpinned_content
from fumehood.agent._tickets import TicketBooth, TicketRefused, load_key
from tests.agent.samples import PNG, ref, result, user

pytestmark = pytest.mark.anyio
DAY = 86_400.0


class World:
    """A store and a log whose clock the test moves."""

    def __init__(self, folder: Path) -> None:
        self.now = 1_700_000_000.0
        self.store = ContentStore(folder / "content", clock=lambda: self.now)
        self.log = EventLog(folder / "log.sqlite3")

    def sweep(self, **options: Any) -> Any:
        return sweep_unpinned_content(self.store, self.log.events(), now=lambda: self.now, **options)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.store.close()
    made.log.close()


@pytest.mark.requirement("R445")
@pytest.mark.requirement("R446")
@pytest.mark.requirement("R447")
async def test_a_blob_that_a_transcript_cites_outlives_ten_days_and_a_sweep(world: World) -> None:
    cited = world.store.put(PNG, "image/png", owner="alice").address
    nested = world.store.put(b"nested", "text/plain", owner="alice").address
    stored = world.store.put(b"in a result", "text/plain", owner="alice").address
    orphan = world.store.put(b"orphan", "text/plain", owner="alice").address
    await world.log.record(
        "STEP_COMPLETED",
        {"value": {"messages": [user([ref(cited, len(PNG))])]}},
        execution_id="e",
        step_id="s",
    )
    await world.log.record(
        "STEP_COMPLETED", {"value": [user([result(content=[ref(nested)])])]}, execution_id="e", step_id="t"
    )
    await world.log.record(
        "CALL_ENDED", {"value": {"address": stored, "size": 11}}, execution_id="e", call_id="c"
    )
    await world.log.record("CONTENT_STORED", {"address": orphan}, execution_id="e")
    world.now += 10 * DAY
    dry = world.sweep()
    assert (set(dry.pinned), dry.orphans, dry.erased) == ({cited, nested, stored}, (orphan,), ())
    assert world.sweep(reclaim_orphans=True).erased == (orphan,)
    assert {item.address for item in world.store.ls()} == {cited, nested, stored}
    assert world.store.get(cited) == PNG


def test_young_content_is_left_alone(world: World) -> None:
    young = world.store.put(b"young", "text/plain", owner="alice").address
    world.now += 2 * DAY
    assert world.sweep(reclaim_orphans=True).erased == ()
    world.store.put(b"young", "text/plain", owner="bob")  # a put again makes it young again
    world.now += 6 * DAY
    assert world.sweep(reclaim_orphans=True).erased == ()
    world.now += 2 * DAY
    assert world.sweep(reclaim_orphans=True).erased == (young,)


@pytest.mark.requirement("R448")
async def test_what_an_encrypted_payload_cites_is_seen_through_a_decrypting_reader_alone(
    world: World,
) -> None:
    address = world.store.put(PNG, "image/png", owner="alice").address
    locked = base64.b64encode(json.dumps(user([ref(address)])).encode()).decode()
    await world.log.record("STEP_COMPLETED", {"sealed": locked}, execution_id="e", step_id="s")
    world.now += 10 * DAY

    def unlocked(event: Event) -> object:
        data = event.data
        return (
            json.loads(base64.b64decode(data["sealed"]))
            if isinstance(data, dict) and "sealed" in data
            else data
        )

    assert world.sweep().orphans == (address,)
    assert world.sweep(read=unlocked).pinned == (address,)


@pytest.mark.requirement("R449")
@pytest.mark.requirement("R450")
@pytest.mark.requirement("R451")
async def test_reasoning_goes_by_its_own_schedule_and_leaves_reference_and_digest(world: World) -> None:
    options = ReasoningOptions(store=world.store)
    for execution in ("e1", "e2"):
        response, parts = await capture_reasoning(
            response_of([Reasoning("text", "anthropic", "words", "S")], "end_turn", Usage()),
            options,
            execution_id=execution,
        )
        await world.log.record("LLM_REASONING_CAPTURED", {"parts": parts}, execution_id=execution)
        await world.log.record(
            "STEP_COMPLETED", {"value": response.to_json()}, execution_id=execution, step_id="s"
        )
        world.now += 20 * DAY
    assert len(world.store.ls()) == 2 and world.sweep(reclaim_orphans=True).erased == ()
    before = world.log.fold("e1")
    assert len(world.sweep(reclaim_orphans=True, reasoning_ttl_s=30 * DAY).erased) == 1
    (kept,) = world.store.ls()
    assert world.store.owners(kept.address) == {"e2"}
    assert world.log.fold("e1") == before  # replay does not notice
    recorded = before.steps["s"].value
    assert (
        isinstance(recorded, dict)
        and recorded["value"]["reasoning"][0]["text_ref"]
        and recorded["value"]["reasoning"][0]["digest"]
    )


# -- tickets -------------------------------------------------------------------------------------------------


@pytest.mark.promise("agent:an-address-opens-nothing")
def test_a_ticket_opens_one_address_for_one_principal_until_it_expires(tmp_path: Path) -> None:
    now = [1000.0]
    booth = TicketBooth(load_key(tmp_path / "state" / "ticket.key"), clock=lambda: now[0])
    ticket = booth.mint("sha256:" + "0" * 64, principal="alice", life_s=60)
    opened = booth.check(ticket, principal="alice")
    assert (opened.address, opened.principal, opened.expires_at) == ("sha256:" + "0" * 64, "alice", 1060.0)

    def why(text: str, principal: str = "alice", by: TicketBooth = booth) -> str:
        with pytest.raises(TicketRefused, match="the ticket does not open anything here") as caught:
            by.check(text, principal=principal)
        assert caught.value.exit_code == 3
        return caught.value.why

    assert why(ticket, "bob") == "somebody else's"
    assert why("sha256:" + "0" * 64) in ("not a ticket", "not signed here")
    head, body, tag = ticket.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    forged = (
        base64.urlsafe_b64encode(json.dumps({**claims, "a": "sha256:" + "1" * 64}).encode())
        .decode()
        .rstrip("=")
    )
    assert why(f"{head}.{forged}.{tag}") == "not signed here"
    assert why(f"fh2.{body}.{tag}") == "not signed here"
    for broken in (
        "",
        ".",
        "..",
        "fh1",
        f"{head}.{body}",
        f"{head}.{body}.!!!",
        f"{head}.{body}.{tag}x",
        "é.é.é",
    ):
        assert why(broken)
    assert why(ticket, by=TicketBooth(b"k" * 32)) == "not signed here"
    now[0] = 1060.0
    assert why(ticket) == "expired"


def test_the_key_is_made_once_private_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "state" / "ticket.key"
    key = load_key(path)
    assert len(key) == 32 and load_key(path) == key and stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_bytes(b"short")
    with pytest.raises(StorageError, match="not a ticket key of 32 bytes"):
        load_key(path)
    with pytest.raises(ValueError, match="32 bytes or more"):
        TicketBooth(b"short")


def test_a_key_made_by_many_at_once_is_one_key_and_never_half_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state" / "ticket.key"
    together = threading.Barrier(8)
    seen: list[bytes] = []

    def make() -> None:
        together.wait()
        seen.append(load_key(path))

    makers = [threading.Thread(target=make) for _ in range(8)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    assert len(seen) == 8 and set(seen) == {path.read_bytes()} and len(seen[0]) == 32
    assert [item.name for item in path.parent.iterdir()] == ["ticket.key"]
    path.unlink()

    def killed(draft: object, name: object) -> None:
        assert not path.exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "link", killed)
    with pytest.raises(KeyboardInterrupt):
        load_key(path)
    assert list(path.parent.iterdir()) == []


async def test_an_address_inside_a_longer_text_is_a_citation(world: World) -> None:
    kept = world.store.put(b"in an envelope", "text/plain", owner="alice").address
    told = json.dumps({"tool": "t", "result": {"address": kept, "size": 14}})
    await world.log.record("STEP_COMPLETED", {"value": [user([result(content=told)])]}, execution_id="e")
    world.now += 10 * DAY
    report = world.sweep(reclaim_orphans=True)
    assert (report.pinned, report.erased) == ((kept,), ()) and world.store.get(kept) == b"in an envelope"


async def test_bytes_put_again_while_the_sweep_runs_stay(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = world.store.put(b"again", "text/plain", owner="alice").address
    gone = world.store.put(b"gone", "text/plain", owner="alice").address
    world.now += 10 * DAY
    listed = world.store.ages()

    def ages_then_a_put() -> Any:
        world.store.put(b"again", "text/plain", owner="bob")
        return listed

    monkeypatch.setattr(world.store, "ages", ages_then_a_put)
    report = world.sweep(reclaim_orphans=True)
    assert report.erased == (gone,) and set(report.orphans) == {address, gone}
    assert world.store.get(address) == b"again" and world.store.stat(gone) is None
