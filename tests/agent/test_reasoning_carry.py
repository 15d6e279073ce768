"""Reasoning carried to the next call, or dropped from the first part that cannot be reproduced."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fumehood.agent import ContentStore
from fumehood.agent._effect import EffectContext, create_agent_model_effect, create_llm_effect
from fumehood.agent._parts import ContentRef, Message, ReasoningPart, Request
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
    response_of,
)
from fumehood.agent.providers import ScriptedProvider
from tests.agent.reasoning_tools import kinds
from tests.agent.samples import parts_of, result, user

pytestmark = pytest.mark.anyio
Json = dict[str, Any]


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
@pytest.mark.requirement("R303")
@pytest.mark.requirement("R304")
async def test_text_is_fetched_checked_and_handed_back_unchanged(store: ContentStore) -> None:
    message = await captured_message(store, "one", "", "three")
    asked = Request(messages=(Message.user("x"), message))
    options = ReasoningOptions(store=store)
    filled = await carry_reasoning(asked, "anthropic", options.resolver(), ResolveContext("e1"))
    assert carried(filled) == [("S0", "one"), ("S1", ""), ("S2", "three")]
    assert "three" not in json.dumps(asked.to_json())


@pytest.mark.requirement("R380")
async def test_one_effect_hands_back_what_it_captured_from_the_same_store(store: ContentStore) -> None:
    async def emit(kind: str, data: Mapping[str, Any]) -> str:
        return kind

    got: list[Request] = []

    class Listening(ScriptedProvider):
        async def complete(self, request: Request) -> Response:
            got.append(request)
            return await super().complete(request)

    provider = Listening([{"reasoning": "words of the model", "text": "hi"}, {"text": "on"}])
    effect = create_llm_effect(
        provider, reasoning=ReasoningOptions(store=store), parse=lambda response: response
    )
    said = await effect(Request(messages=(Message.user("x"),)), EffectContext("e1", "s1", emit=emit))
    asked = Request(messages=(Message.user("x"), assistant_message_of(said), Message.user("y")))
    assert "words of the model" not in json.dumps(asked.to_json())
    await effect(asked, EffectContext("e1", "s2", emit=emit))
    assert [text for _, text in carried(got[1])] == ["words of the model"]
    assert len(store.ls()) == 1


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
    parts = parts_of(message)
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
            parts[2] = second.model_copy(update={"text_ref": parts_of(other)[0].text_ref})
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
        for part in parts_of(m)
        if not isinstance(part, str) and part.type == "tool_use"
    ]
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

    steps: list[Json] = [
        {"reasoning": "deep thought", "tool_calls": [{"id": "c1", "name": "t"}]},
        {"text": "done"},
    ]
    provider = ScriptedProvider(steps)
    effect = create_agent_model_effect(provider, reasoning=ReasoningOptions(store=store))
    context = EffectContext("e1", "s1", emit=emit)
    value = await effect({"messages": [user("x")], "tools": [], "system": "s"}, context)
    turn = assistant_message_of(Response.from_json(json.loads(json.dumps(value))))
    await effect(
        {"messages": [user("x"), turn.to_json(), user([result("c1")])], "tools": [], "system": "s"}, context
    )
    assert parts_of(provider.requests[1].messages[1])[0].type == "reasoning"
