"""Reasoning: its shapes, its order, its capture, and what is carried to the next call."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fumehood.agent import ContentStore, EventLog, StorageError
from fumehood.agent._effect import EffectContext, collect_stream, create_agent_model_effect, create_llm_effect
from fumehood.agent._errors import AgentLoopConfigError
from fumehood.agent._parts import Capabilities, ContentRef, Message, OpaquePart, ReasoningPart, Request
from fumehood.agent._reasoning import (
    ReasoningOptions,
    capture_reasoning,
    carry_reasoning,
    drop_reasoning,
    reasoning_store_resolver,
)
from fumehood.agent._resolve import ResolveContext
from fumehood.agent._response import (
    Block,
    Reasoning,
    Response,
    ToolCall,
    Usage,
    assistant_message_of,
    layout_of,
    response_of,
    text_free_reasoning,
)
from fumehood.agent._seal import SEALED_TYPE, seal, unseal
from fumehood.agent.providers import ScriptedProvider, ToolDelta
from tests.agent.samples import request, result, user

pytestmark = pytest.mark.anyio
Json = dict[str, Any]


def thought(words: str | None = "hm", signature: str | None = "S", kind: Any = "text") -> Reasoning:
    return Reasoning(kind, "anthropic", words, signature)


def made(*blocks: Block) -> Response:
    return response_of(blocks, "end_turn", Usage())


def kinds(message: Message) -> list[str]:
    """The parts of a message in short."""
    content = message.content
    if isinstance(content, str):
        return [content]
    short = []
    for part in content:
        short.append(
            part.text
            if part.type == "text"
            else f"{part.type}:{getattr(part, 'signature', None) or getattr(part, 'id', '')}"
        )  # type: ignore[union-attr]
    return short


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with ContentStore(tmp_path / "content") as opened:
        yield opened


# -- shapes and order ----------------------------------------------------------------------------------------


@pytest.mark.requirement("R198")
@pytest.mark.requirement("R319")
@pytest.mark.requirement("R322")
def test_a_response_without_reasoning_keeps_its_exact_shape() -> None:
    response = made("hi", ToolCall("c1", "t", {"a": 1}))
    assert response.to_json() == {
        "content": "hi",
        "tool_calls": [{"id": "c1", "name": "t", "input": {"a": 1}}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 0, "output_tokens": 0, "cached_input_tokens": 0, "reasoning_tokens": 0},
    }
    assert Response.from_json(json.loads(json.dumps(response.to_json()))) == response


@pytest.mark.requirement("R305")
@pytest.mark.requirement("R307")
@pytest.mark.requirement("R308")
@pytest.mark.requirement("R310")
@pytest.mark.requirement("R312")
@pytest.mark.requirement("R295")
@pytest.mark.requirement("R297")
def test_readable_reasoning_cannot_become_a_step_value() -> None:
    response = made(thought("secret"), thought("", "T"), thought(None, "R", "redacted"), "hi")
    with pytest.raises(ValueError, match="never holds readable reasoning"):
        response.to_json()
    recorded = text_free_reasoning(response)
    value = recorded.to_json()
    assert value["reasoning"] == [
        {
            "type": "reasoning",
            "kind": "text",
            "provider": "anthropic",
            "signature": "S",
            "digest": hashlib.sha256(b"secret").hexdigest(),
            "omitted": True,
        },
        {"type": "reasoning", "kind": "text", "provider": "anthropic", "signature": "T"},
        {"type": "reasoning", "kind": "redacted", "provider": "anthropic", "signature": "R"},
    ]
    assert "secret" not in json.dumps(value)
    assert Response.from_json(value) == recorded


@pytest.mark.requirement("R320")
@pytest.mark.requirement("R321")
@pytest.mark.requirement("R327")
@pytest.mark.parametrize(
    ("blocks", "layout"),
    [
        (["a", ToolCall("c", "t", {})], None),
        (["a", "b"], None),
        ([thought(), "a", ToolCall("c", "t", {})], None),
        ([thought(), thought(), ToolCall("c", "t", {})], None),
        ([thought(), "a", "bc"], ("reasoning", {"text": 1}, {"text": 2})),
        (["a", thought()], ({"text": 1}, "reasoning")),
        (
            [thought(), "ab", ToolCall("c1", "t", {}), thought(), ToolCall("c2", "t", {})],
            ("reasoning", {"text": 2}, {"call": "c1"}, "reasoning", {"call": "c2"}),
        ),
        ([OpaquePart(provider="p", block=1), "a"], ("opaque", {"text": 1})),
    ],
)
def test_layout_records_order_as_positions_and_only_when_it_is_not_the_usual_one(
    blocks: list[Block], layout: Any
) -> None:
    assert layout_of(blocks) == layout


@pytest.mark.requirement("R199")
@pytest.mark.requirement("R323")
@pytest.mark.requirement("R324")
def test_the_assistant_message_replays_the_vendors_order() -> None:
    plain = assistant_message_of(made("hi", ToolCall("c1", "t", {}), ToolCall("c2", "t", {})))
    assert kinds(plain) == ["hi", "tool_use:c1", "tool_use:c2"]
    odd = made(
        thought("a", "S1"), "te", ToolCall("c1", "t", {}), thought("b", "S2"), "xt", ToolCall("c2", "t", {})
    )
    message = assistant_message_of(odd)
    assert kinds(message) == ["reasoning:S1", "te", "tool_use:c1", "reasoning:S2", "xt", "tool_use:c2"]
    saved = Response.from_json(json.loads(json.dumps(text_free_reasoning(odd).to_json())))
    assert assistant_message_of(saved) == message
    twins = made(thought(), ToolCall("x", "t", 1), thought(), ToolCall("x", "t", 2))
    assert [part.input for part in assistant_message_of(twins).content if part.type == "tool_use"] == [1, 2]  # type: ignore[union-attr]


@pytest.mark.requirement("R325")
@pytest.mark.requirement("R202")
@pytest.mark.parametrize(
    "layout",
    [
        ("reasoning", {"text": 1}, {"call": "c1"}),
        ("reasoning", {"text": 5}, {"call": "c1"}),
        ("reasoning", "reasoning", {"text": 2}, {"call": "c1"}),
        ({"text": 2}, {"call": "c1"}),
        ("reasoning", {"text": 2}, {"call": "other"}),
        ("reasoning", {"text": 2}),
        ("reasoning", {"text": -1}, {"text": 3}, {"call": "c1"}),
        ("reasoning", {"text": True}, {"text": 1}, {"call": "c1"}),
        ("dance", {"text": 2}, {"call": "c1"}),
        (7, None),
    ],
)
def test_a_layout_that_does_not_fit_drops_every_reasoning_part_and_no_signature_of_a_call(
    layout: Any,
) -> None:
    response = replace(made(thought(), "hi", ToolCall("c1", "t", {}, signature="CALLSIG")), layout=layout)
    message = assistant_message_of(response)
    assert kinds(message) == ["hi", "tool_use:CALLSIG"]


@pytest.mark.requirement("R326")
def test_a_screened_call_drops_the_reasoning_behind_it() -> None:
    response = made(thought("a", "S1"), ToolCall("c1", "t", {}), thought("b", "S2"), ToolCall("c2", "t", {}))
    assert kinds(assistant_message_of(response, left_out=[0])) == ["reasoning:S1", "tool_use:c2"]
    replaced = assistant_message_of(response, replaced_inputs={0: {"__oversizedInput": True}})
    assert kinds(replaced) == ["reasoning:S1", "tool_use:c1", "tool_use:c2"]
    assert kinds(assistant_message_of(response, left_out=[1])) == [
        "reasoning:S1",
        "tool_use:c1",
        "reasoning:S2",
    ]


# -- capture -------------------------------------------------------------------------------------------------


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


# -- continuation --------------------------------------------------------------------------------------------


async def captured_message(
    store: ContentStore, *texts: str, execution: str = "e1", provider: str = "anthropic"
) -> Message:
    blocks: list[Block] = []
    for index, words in enumerate(texts):
        blocks += [
            Reasoning("text", provider, words, f"S{index}"),
            ToolCall(f"c{index}", "t", {}, signature=f"C{index}"),
        ]
    response, _ = await capture_reasoning(
        response_of(blocks, "tool_use", Usage()), ReasoningOptions(store=store), execution_id=execution
    )
    return assistant_message_of(response)


def carried(request_: Request) -> list[tuple[str | None, str | None]]:
    return [
        (part.signature, part.text)
        for message in request_.messages
        if not isinstance(message.content, (str, dict))
        for part in message.content
        if isinstance(part, ReasoningPart)
    ]


@pytest.mark.requirement("R363")
@pytest.mark.requirement("R364")
@pytest.mark.requirement("R380")
@pytest.mark.requirement("R303")
@pytest.mark.requirement("R304")
async def test_text_is_fetched_checked_and_handed_back_unchanged(store: ContentStore) -> None:
    message = await captured_message(store, "one", "", "three")
    asked = Request(messages=(Message.user("x"), message))
    options = ReasoningOptions(store=store)
    filled = await carry_reasoning(asked, "anthropic", options.resolver(), ResolveContext("e1"))
    assert carried(filled) == [("S0", "one"), ("S1", ""), ("S2", "three")]
    assert "three" not in json.dumps(asked.to_json())


@pytest.mark.requirement("R366")
@pytest.mark.requirement("R367")
@pytest.mark.requirement("R371")
@pytest.mark.requirement("R372")
@pytest.mark.requirement("R378")
@pytest.mark.requirement("R379")
@pytest.mark.requirement("R449")
@pytest.mark.parametrize("loss", ["erased", "omitted", "digest", "foreign", "no-ref", "no-store"])
async def test_a_part_that_cannot_be_reproduced_is_dropped_with_all_behind_it(
    store: ContentStore, loss: str
) -> None:
    message = await captured_message(store, "one", "two", "three")
    parts = list(message.content)
    second = parts[2]
    assert isinstance(second, ReasoningPart) and second.text_ref is not None
    resolver = reasoning_store_resolver(store)
    match loss:
        case "erased":
            store.erase(second.text_ref.address)
        case "omitted":
            parts[2] = second.model_copy(update={"omitted": True})
        case "digest":
            parts[2] = second.model_copy(update={"digest": "0" * 64})
        case "foreign":
            other = await captured_message(store, "two", execution="e2")
            parts[2] = second.model_copy(update={"text_ref": other.content[0].text_ref})  # type: ignore[union-attr, index]
        case "no-ref":
            parts[2] = second.model_copy(update={"text_ref": None})
    asked = Request(
        messages=(Message.of("assistant", parts), Message.user("x"), await captured_message(store, "later"))
    )
    if loss == "no-store":
        assert carried(await carry_reasoning(asked, "anthropic", None, None)) == []
        return
    filled = await carry_reasoning(asked, "anthropic", resolver, ResolveContext("e1"))
    assert carried(filled) == [("S0", "one")]
    calls = [
        part.signature
        for m in filled.messages
        if not isinstance(m.content, str)
        for part in m.content
        if part.type == "tool_use"
    ]  # type: ignore[union-attr]
    assert calls == ["C0", "C1", "C2", "C0"]


@pytest.mark.requirement("R373")
@pytest.mark.requirement("R346")
@pytest.mark.requirement("R347")
@pytest.mark.requirement("R122")
async def test_a_resolver_that_raises_fails_the_call_and_is_told_what_it_reads_for(
    store: ContentStore,
) -> None:
    message = await captured_message(store, "one")
    told: list[ResolveContext] = []

    async def broken(ref: ContentRef, context: ResolveContext) -> bytes | None:
        told.append(context)
        raise OSError("network down")

    media_asked: list[Any] = []

    async def media(ref: ContentRef, context: ResolveContext) -> bytes | None:
        media_asked.append(ref)
        return None

    provider = ScriptedProvider([{"text": "x"}], name="anthropic")
    effect = create_llm_effect(provider, resolve_content=media, reasoning=ReasoningOptions(resolve=broken))
    body = {"messages": [user("x"), message.to_json(), user([result("c0")])]}
    with pytest.raises(OSError, match="network down"):
        await effect(body, EffectContext("e1", "s1", principal="alice"))
    (context,) = told
    assert (context.origin, context.execution_id, context.step_id, context.principal) == (
        "reasoning",
        "e1",
        "s1",
        "alice",
    )
    assert provider.requests == [] and media_asked == []


@pytest.mark.requirement("R365")
@pytest.mark.requirement("R374")
@pytest.mark.requirement("R375")
async def test_parts_go_to_the_provider_that_made_them_and_others_are_left_out_one_by_one(
    store: ContentStore,
) -> None:
    a = await captured_message(store, "from a", provider="a")
    b = await captured_message(store, "from b", provider="b")
    asked = Request(messages=(Message.user("x"), a, b, a))
    resolver = reasoning_store_resolver(store)
    assert [
        text for _, text in carried(await carry_reasoning(asked, "b", resolver, ResolveContext("e1")))
    ] == ["from b"]
    assert [
        text for _, text in carried(await carry_reasoning(asked, "a", resolver, ResolveContext("e1")))
    ] == ["from a", "from a"]
    assert carried(await carry_reasoning(asked, "c", resolver, ResolveContext("e1"))) == []


@pytest.mark.requirement("R368")
@pytest.mark.requirement("R369")
@pytest.mark.requirement("R370")
@pytest.mark.requirement("R371")
@pytest.mark.requirement("R485")
@pytest.mark.requirement("R489")
async def test_an_edit_drops_reasoning_from_there_on_and_turns_none_of_it_into_text(
    store: ContentStore,
) -> None:
    messages = [
        Message.user("x"),
        await captured_message(store, "one"),
        Message.user("y"),
        await captured_message(store, "two"),
    ]
    after = drop_reasoning(messages, after=2)
    assert [kinds(message) for message in after] == [
        ["x"],
        ["reasoning:S0", "tool_use:C0"],
        ["y"],
        ["tool_use:C0"],
    ]
    everything = drop_reasoning(messages)
    assert [kinds(message) for message in everything] == [["x"], ["tool_use:C0"], ["y"], ["tool_use:C0"]]
    assert "one" not in json.dumps([message.to_json() for message in everything])
    plain = [Message.user("x")]
    assert drop_reasoning(plain)[0] is plain[0]


@pytest.mark.requirement("R377")
async def test_dropping_is_a_pure_function_of_transcript_and_resolver(store: ContentStore) -> None:
    asked = Request(messages=(await captured_message(store, "one", "two"),))
    resolver = reasoning_store_resolver(store)
    results = [await carry_reasoning(asked, "anthropic", resolver, ResolveContext("e1")) for _ in range(2)]
    assert results[0] == results[1] and asked == Request(
        messages=(await captured_message(store, "one", "two"),)
    )


async def test_the_effect_sends_the_captured_text_back_on_the_next_call(
    tmp_path: Path, store: ContentStore
) -> None:
    async def emit(kind: str, data: Mapping[str, Any]) -> None:
        pass

    steps = [{"reasoning": "deep thought", "tool_calls": [{"id": "c1", "name": "t"}]}, {"text": "done"}]
    provider = ScriptedProvider(steps)
    effect = create_agent_model_effect(provider, reasoning=ReasoningOptions(store=store))
    context = EffectContext("e1", "s1", emit=emit)
    value = await effect({"messages": [user("x")], "tools": [], "system": "s"}, context)
    turn = assistant_message_of(Response.from_json(json.loads(json.dumps(value))))
    await effect(
        {"messages": [user("x"), turn.to_json(), user([result("c1")])], "tools": [], "system": "s"}, context
    )
    assert provider.requests[1].messages[1].content[0].type == "reasoning"  # type: ignore[union-attr, index]


# -- live ----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R300")
@pytest.mark.requirement("R317")
@pytest.mark.requirement("R318")
@pytest.mark.requirement("R064")
@pytest.mark.parametrize("live", [False, True])
async def test_reasoning_deltas_are_shown_only_when_asked_for_apart_from_text_and_marked(live: bool) -> None:
    heard: list[Any] = []
    words: list[str] = []
    effect = create_llm_effect(
        ScriptedProvider([{"reasoning": "hm", "text": "hi"}]),
        stream=True,
        reasoning=ReasoningOptions(live=live),
    )
    context = EffectContext("e", "s7", on_text_delta=words.append, on_reasoning_delta=heard.append)
    await effect(request(user("x")), context)
    marked = {"reasoning": {"__tainted__": {"origin": "llm-reasoning:s7", "value": "hm"}}}
    assert (words, heard) == (["hi"], [marked] if live else [])


@pytest.mark.requirement("R400")
@pytest.mark.requirement("R402")
@pytest.mark.requirement("R403")
@pytest.mark.requirement("R404")
async def test_tool_deltas_are_shown_once_and_a_retry_says_that_earlier_ones_are_void() -> None:
    heard: list[Any] = []
    steps = [{"tool_calls": [{"id": "c1", "name": "t", "input": {"a": 1}}]}] * 2
    effect = create_llm_effect(
        ScriptedProvider(steps, chunk=100),
        stream=True,
        on_tool_delta=heard.append,
        on_tool_reset=lambda: heard.append("reset"),
    )
    words: list[str] = []
    await effect(request(user("x")), EffectContext("e", "s", on_text_delta=words.append))
    once = [ToolDelta(0, "c1", "t"), ToolDelta(0, fragment='{"a": 1}')]
    assert heard == once and words == []
    await effect(request(user("x")), EffectContext("e", "s", attempt=2))
    assert heard == [*once, "reset", *once]
    with pytest.raises(AgentLoopConfigError, match="needs stream=True"):
        create_llm_effect(ScriptedProvider([]), on_tool_delta=heard.append)
    collected: list[ToolDelta] = []
    provider = ScriptedProvider(steps, chunk=100)
    response = await collect_stream(
        provider.stream(Request(messages=(Message.user("x"),))), on_tool_delta=collected.append
    )
    assert collected == once and response.tool_calls[0].input == {"a": 1}


@pytest.mark.requirement("R031")
@pytest.mark.promise("agent:tainted-only-in-fences")
async def test_no_option_of_the_effect_turns_the_guard_off() -> None:
    import inspect

    from fumehood.agent._errors import UntrustedContentError
    from tests.agent.samples import bad

    options = set(inspect.signature(create_llm_effect).parameters)
    assert options == {
        "provider",
        "resolve_content",
        "reasoning",
        "capabilities",
        "max_inline_bytes",
        "max_inline_total_bytes",
        "stream",
        "on_tool_delta",
        "on_tool_reset",
        "parse",
    }
    provider = ScriptedProvider([{"text": "x"}])
    for body in (request(system=bad("x")), Request(system=bad("x"), messages=())):
        with pytest.raises(UntrustedContentError):
            await create_llm_effect(provider)(body, EffectContext("e", "s"))
    assert provider.requests == []


@pytest.mark.requirement("R108")
async def test_the_inline_cap_can_be_set_for_one_effect() -> None:
    from fumehood.agent._errors import OversizedInlinePartError
    from tests.agent.samples import PNG, image

    big = image(PNG + bytes(70_000))
    with pytest.raises(OversizedInlinePartError):
        await create_llm_effect(ScriptedProvider([{"text": "x"}]))(
            request(user([big])), EffectContext("e", "s")
        )
    provider = ScriptedProvider([{"text": "x"}], capabilities=Capabilities(image=("*",)))
    await create_llm_effect(provider, max_inline_bytes=100_000)(request(user([big])), EffectContext("e", "s"))
    assert len(provider.requests) == 1


async def test_a_cancelled_call_leaves_nothing_running() -> None:
    started = asyncio.Event()
    before = asyncio.all_tasks()

    async def never(ref: ContentRef, context: ResolveContext) -> bytes | None:
        started.set()
        await asyncio.Event().wait()
        return None

    from tests.agent.samples import ref

    effect = create_llm_effect(ScriptedProvider([{"text": "x"}]), resolve_content=never)
    task = asyncio.create_task(effect(request(user([ref()]), user("x")), EffectContext("e", "s")))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before
