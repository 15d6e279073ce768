"""Reasoning captured: stored, sealed, recorded by reference, never in the log."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fumehood.agent import ContentStore, EventLog, StorageError
from fumehood.agent._effect import EffectContext, create_llm_effect
from fumehood.agent._errors import AgentLoopConfigError
from fumehood.agent._parts import ContentRef, ReasoningPart
from fumehood.agent._reasoning import (
    ReasoningOptions,
    capture_reasoning,
    reasoning_store_resolver,
)
from fumehood.agent._resolve import ResolveContext
from fumehood.agent._response import (
    Response,
)
from fumehood.agent._seal import SEALED_TYPE, seal, unseal
from fumehood.agent.providers import ScriptedProvider
from tests.agent.reasoning_tools import made, thought
from tests.agent.samples import request, user

pytestmark = pytest.mark.anyio
Json = dict[str, Any]


@pytest.mark.requirement("R328")
@pytest.mark.requirement("R329")
@pytest.mark.requirement("R330")
@pytest.mark.requirement("R331")
@pytest.mark.requirement("R333")
@pytest.mark.requirement("R334")
@pytest.mark.requirement("R335")
@pytest.mark.requirement("R336")
@pytest.mark.requirement("R313")
@pytest.mark.requirement("R338")
@pytest.mark.requirement("R348")
@pytest.mark.promise("agent:reasoning-never-in-the-log")
async def test_capture_stores_the_text_records_references_and_says_so_before_parse(
    tmp_path: Path, store: ContentStore
) -> None:
    seen: list[Response] = []
    with EventLog(tmp_path / "log.sqlite3") as log:

        async def emit(kind: str, data: Mapping[str, Any]) -> str:
            return await log.record(kind, data, execution_id="e1", step_id="s1")

        def parse(response: Response) -> Json:
            seen.append(response)
            return response.to_json()

        provider = ScriptedProvider(
            [{"reasoning": "readable é", "text": "hi"}] * 2, name="anthropic", model="m1"
        )
        effect = create_llm_effect(provider, reasoning=ReasoningOptions(store=store), parse=parse)
        context = EffectContext("e1", "s1", emit=emit)
        value = await effect(request(user("x")), context)
        await effect(request(user("x")), replace(context, attempt=2))
        first, second = log.events(execution_id="e1")
        state = log.fold("e1")
        whole_log = "".join(json.dumps(row.as_dict()) for row in log.events())
    digest = hashlib.sha256("readable é".encode()).hexdigest()
    (part,) = seen[0].reasoning
    assert (
        isinstance(part, ReasoningPart)
        and part.text is None
        and part.digest == digest
        and part.omitted is None
    )
    assert part.text_ref == ContentRef(address=part.text_ref.address, size=11) if part.text_ref else False
    assert value["reasoning"][0]["signature"].startswith("script-")
    entry = {
        "kind": "text",
        "ref": part.text_ref.address if part.text_ref else "",
        "digest": digest,
        "size": 11,
    }
    assert first.data == {
        "step_id": "s1",
        "attempt": 1,
        "provider": "anthropic",
        "model": "m1",
        "parts": [entry],
    }
    assert second.data == {**first.data, "attempt": 2}
    assert "readable" not in whole_log and "script-" not in whole_log
    assert (state.steps, state.calls) == ({}, {})
    assert [item.media_type for item in store.ls()] == [SEALED_TYPE]  # the rerun stored nothing new


@pytest.mark.requirement("R315")
@pytest.mark.requirement("R332")
@pytest.mark.parametrize("options", [ReasoningOptions(), "off", "by-context"])
async def test_without_a_store_or_with_capture_off_only_the_signature_stays(
    options: Any, store: ContentStore
) -> None:
    if options == "off":
        options = ReasoningOptions(store=store, capture=False)
    elif options == "by-context":
        options = ReasoningOptions(store=store, capture=lambda context: context.principal == "auditor")
    effect = create_llm_effect(ScriptedProvider([{"reasoning": "secret", "text": "hi"}]), reasoning=options)
    value = await effect(request(user("x")), EffectContext("e", "s", principal="alice"))
    (part,) = value["reasoning"]
    assert (
        part["omitted"] is True
        and "text_ref" not in part
        and part["signature"]
        and "secret" not in json.dumps(value)
    )
    assert store.ls() == []


@pytest.mark.requirement("R337")
async def test_a_store_that_fails_fails_the_step() -> None:
    class Broken:
        def put(self, data: bytes, media_type: str, *, owner: str) -> Any:
            raise StorageError("disk full")

        def get(self, address: str) -> bytes:
            raise AssertionError

    effect = create_llm_effect(
        ScriptedProvider([{"reasoning": "x", "text": "hi"}]), reasoning=ReasoningOptions(store=Broken())
    )
    with pytest.raises(StorageError, match="disk full"):
        await effect(request(user("x")), EffectContext("e", "s"))


async def test_captured_reasoning_that_nobody_would_record_is_refused(store: ContentStore) -> None:
    effect = create_llm_effect(
        ScriptedProvider([{"reasoning": "x", "text": "hi"}]), reasoning=ReasoningOptions(store=store)
    )
    with pytest.raises(AgentLoopConfigError, match="nobody records"):
        await effect(request(user("x")), EffectContext("e", "s"))


@pytest.mark.requirement("R339")
async def test_an_altered_blob_fails_its_digest_and_a_dropped_event_breaks_the_chain(
    tmp_path: Path, store: ContentStore
) -> None:
    import sqlite3

    from fumehood.agent._blobs import blob_path

    response, parts = await capture_reasoning(
        made(thought("true words")), ReasoningOptions(store=store), execution_id="e1"
    )
    with EventLog(tmp_path / "log.sqlite3") as log:
        await log.record("LLM_REASONING_CAPTURED", {"parts": parts}, execution_id="e1")
        await log.record("STEP_COMPLETED", {"value": response.to_json()}, execution_id="e1", step_id="s")
    database = sqlite3.connect(tmp_path / "log.sqlite3")
    database.execute("DELETE FROM events WHERE seq = 1")
    database.commit()
    database.close()
    assert not EventLog(tmp_path / "log.sqlite3", read_only=True).verify().ok
    address = parts[0]["ref"]
    blob_path(store.path, address).write_bytes(seal("other words", "e1"))
    with pytest.raises(StorageError, match="not the ones that were stored"):
        store.get(address)


@pytest.mark.requirement("R341")
@pytest.mark.requirement("R343")
@pytest.mark.requirement("R344")
@pytest.mark.requirement("R345")
@pytest.mark.requirement("R450")
@pytest.mark.promise("agent:reasoning-is-sealed")
async def test_captured_text_is_sealed_to_its_execution(store: ContentStore) -> None:
    options = ReasoningOptions(store=store)
    mine, _ = await capture_reasoning(made(thought("same words")), options, execution_id="e1")
    theirs, _ = await capture_reasoning(made(thought("same words")), options, execution_id="e2")
    (one,), (two,) = mine.reasoning, theirs.reasoning
    assert isinstance(one, ReasoningPart) and isinstance(two, ReasoningPart) and one.text_ref and two.text_ref
    assert one.digest == two.digest and one.text_ref.address != two.text_ref.address and len(store.ls()) == 2
    read = reasoning_store_resolver(store)
    assert await read(one.text_ref, ResolveContext("e1")) == b"same words"
    assert (
        await read(one.text_ref, ResolveContext("e2")) is None
        and await read(one.text_ref, ResolveContext(None)) is None
    )
    assert await read(ContentRef(address="sha256:" + "0" * 64), ResolveContext("e1")) is None
    store.drop(two.text_ref.address, owner="e2")
    assert await read(one.text_ref, ResolveContext("e1")) == b"same words"
    for forged in (
        b"",
        b"no line",
        b"[]\nx",
        b"{}\nx",
        b'{"sealed_to": "e2"}\nx',
        b"\xff\nx",
        b"[" * 100_000 + b"\nx",
    ):
        assert unseal(forged, "e1") is None
