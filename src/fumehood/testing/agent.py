"""Conformance checks for event logs and content stores: what any implementation must do for the rest of
fumehood to hold.

Call one with a factory that opens the same, initially empty, storage each time it is called; the check closes
what it opens. A failure is an AssertionError whose text names the behaviour. The checks prove behaviour
through the public methods only; what needs a killed process (durability at any instant) is each
implementation's own test.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Protocol

from fumehood.agent import (
    ContentMissing,
    ContentTooLarge,
    Event,
    ExecutionState,
    NewEvent,
    StoredContent,
    VerifyResult,
)
from fumehood.agent import event_hash as hash_of


class EventLogLike(Protocol):
    """What the host, the broker and the agent loop use of an event log."""

    async def record(
        self,
        kind: str,
        data: Mapping[str, object],
        *,
        execution_id: str | None = None,
        call_id: str | None = None,
        step_id: str | None = None,
    ) -> str: ...
    async def record_many(self, events: Sequence[NewEvent]) -> list[str]: ...
    def events(
        self,
        execution_id: str | None = None,
        call_id: str | None = None,
        after: int = 0,
        limit: int | None = None,
    ) -> Iterator[Event]: ...
    def verify(self) -> VerifyResult: ...
    def fold(self, execution_id: str) -> ExecutionState: ...
    def close(self) -> None: ...


class ContentStoreLike(Protocol):
    """What the host and the transcript use of a content store."""

    def put(self, data: bytes, media_type: str, *, owner: str) -> StoredContent: ...
    async def put_stream(
        self, chunks: AsyncIterable[bytes], media_type: str, *, owner: str, max_bytes: int = ...
    ) -> StoredContent: ...
    def get(self, address: str) -> bytes: ...
    def stat(self, address: str) -> StoredContent | None: ...
    def owners(self, address: str) -> frozenset[str]: ...
    def drop(self, address: str, *, owner: str) -> bool: ...
    def ls(self, *, owner: str | None = None) -> list[StoredContent]: ...
    def close(self) -> None: ...


async def check_event_log(factory: Callable[[], EventLogLike]) -> None:
    """Raise AssertionError when the log that `factory` opens does not keep what contract.md section
    7 promises.
    """
    log = factory()
    try:
        await _check_appending(log)
        await _check_values(log)
        await _check_parallel(log)
        _check_chain(list(log.events()))
        result = log.verify()
        assert result.ok, f"an untouched log must verify: {result.message}"
        before = [event.as_dict() for event in log.events()]
    finally:
        log.close()
    again = factory()
    try:
        assert [event.as_dict() for event in again.events()] == before, (
            "rows must be the same after the log is opened again"
        )
        await again.record("STEP_STARTED", {}, execution_id="conformance", step_id="s2")
        _check_chain(list(again.events()))
    finally:
        again.close()


async def _check_appending(log: EventLogLike) -> None:
    assert list(log.events()) == [], "the factory must open an empty log"
    first = await log.record("CALL_STARTED", {"tool": "t"}, execution_id="e1", call_id="c1")
    second = await log.record(
        "EGRESS_DENIED", {"host": "evil.test", "reason": "not-listed"}, execution_id="e1", call_id="c1"
    )
    third = await log.record("CALL_STARTED", {"tool": "t"}, execution_id="e2", call_id="c2")
    rows = list(log.events())
    assert [row.id for row in rows] == [first, second, third], (
        "record must return the id of the row it wrote, in order"
    )
    assert [row.id for row in log.events(execution_id="e1")] == [first, second], (
        "events must filter by execution"
    )
    assert [row.id for row in log.events(call_id="c2")] == [third], "events must filter by call"
    assert [row.id for row in log.events(after=1, limit=1)] == [second], "events must page by seq"
    refusals = log.fold("e1").variables["_egress"]
    assert isinstance(refusals, list) and [entry["event_id"] for entry in refusals] == [second], (
        "refusals must fold into variables['_egress'] (R023)"
    )
    ids = await log.record_many(
        [NewEvent("STEP_STARTED", {}, "e3", None, "s"), NewEvent("STEP_COMPLETED", {}, "e3", None, "s")]
    )
    assert [row.id for row in log.events(execution_id="e3")] == ids, "record_many must keep the order given"


async def _check_values(log: EventLogLike) -> None:
    data = {
        "text": 'quote " slash \\ nul \x00 line\nend é 日本 \U0001f600',
        "big": 2**70,
        "float": 0.1,
        "none": None,
        "deep": [[{"a": []}]],
    }
    id_ = await log.record("TOOL_EVENT", data, execution_id="values")
    (row,) = log.events(execution_id="values")
    assert (row.id, row.data) == (id_, data), "data must come back as it went in"
    hostile = {"nan": float("nan"), "inf": float("-inf"), "lone": "a\ud800b", "\udfff": 1}
    await log.record("TOOL_EVENT", hostile, execution_id="hostile")
    (row,) = log.events(execution_id="hostile")
    expected = {"nan": "NaN", "inf": "-Infinity", "lone": "a\ufffdb", "\ufffd": 1}
    assert row.data == expected, "values that JSON or UTF-8 cannot hold must be replaced as docs/log.md says"


async def _check_parallel(log: EventLogLike) -> None:
    ids = await asyncio.gather(
        *(log.record("TOOL_EVENT", {"n": n}, execution_id="parallel") for n in range(50))
    )
    assert len(set(ids)) == 50, "ids must be unique"
    found = {row.id: row.data for row in log.events(execution_id="parallel")}
    assert found == {id_: {"n": n} for n, id_ in enumerate(ids)}, "each caller must get the id of its own row"


def _check_chain(rows: list[Event]) -> None:
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1)), "seq must count from 1 without holes"
    assert all(a.id < b.id and a.at < b.at for a, b in zip(rows, rows[1:], strict=False)), (
        "ids and times must rise"
    )
    previous = "0" * 64
    for row in rows:
        assert row.prev == previous, f"row {row.seq} must carry the hash of the row before it"
        assert row.hash == hash_of(row), f"row {row.seq} must hash as docs/log.md says"
        previous = row.hash


async def check_content_store(factory: Callable[[], ContentStoreLike]) -> None:
    """Raise AssertionError when the store that `factory` opens breaks addressing, ownership sets or
    erasure (R144 to R146).
    """
    store = factory()
    data = b"\x89PNG\r\n\x1a\n conformance"
    address = f"sha256:{hashlib.sha256(data).hexdigest()}"
    try:
        assert store.ls() == [], "the factory must open an empty store"
        stored = store.put(data, "image/png", owner="alice")
        assert stored == StoredContent(address, len(data), "image/png"), (
            "the address must be the SHA-256 of the bytes"
        )
        assert store.put(data, "image/png", owner="bob") == stored, "the same bytes must be one object"
        assert store.owners(address) == {"alice", "bob"}, "every owner must be recorded (R145)"
        assert store.get(address) == data, "get must return the bytes"
        assert [item.address for item in store.ls(owner="bob")] == [address], "ls must list by owner"
        await _check_streams(store)
        assert not store.drop(address, owner="alice"), "bytes must stay while another owner holds them (R146)"
        assert store.get(address) == data, "bytes must stay while another owner holds them (R146)"
    finally:
        store.close()
    again = factory()
    try:
        assert again.get(address) == data, "content must survive closing and opening"
        assert again.owners(address) == {"bob"}, "ownership must survive closing and opening"
        assert again.drop(address, owner="bob"), "the last owner's leave must erase the bytes (R146)"
        assert again.stat(address) is None and again.ls() == [], "nothing must be left of erased content"
        _expect(
            ContentMissing, lambda: again.get(address), "reading erased content must raise ContentMissing"
        )
        assert again.put(data, "image/png", owner="carol") == stored, "erased bytes must be storable again"
    finally:
        again.close()


async def _check_streams(store: ContentStoreLike) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for piece in (b"abc", b"", b"def"):
            yield piece

    streamed = await store.put_stream(chunks(), "text/plain", owner="streamer", max_bytes=6)
    assert store.get(streamed.address) == b"abcdef", "a stream must be stored whole"
    try:
        await store.put_stream(chunks(), "text/plain", owner="streamer", max_bytes=5)
    except ContentTooLarge:
        pass
    else:
        raise AssertionError("a stream past the cap must raise ContentTooLarge")
    assert store.drop(streamed.address, owner="streamer"), "one owner, one drop"


def _expect(kind: type[Exception], act: Callable[[], object], sentence: str) -> None:
    try:
        act()
    except kind:
        return
    raise AssertionError(sentence)
