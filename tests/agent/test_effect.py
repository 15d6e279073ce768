"""The model effect: what is shown live, what no option turns off, what a retry and a cancellation do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fumehood.agent._effect import EffectContext, collect_stream, create_llm_effect
from fumehood.agent._errors import AgentLoopConfigError
from fumehood.agent._parts import Capabilities, ContentRef, Message, Request
from fumehood.agent._reasoning import (
    ReasoningOptions,
)
from fumehood.agent._resolve import ResolveContext
from fumehood.agent.providers import ScriptedProvider, ToolDelta
from tests.agent.samples import request, user

pytestmark = pytest.mark.anyio
Json = dict[str, Any]


@pytest.mark.requirement("R300")
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
@pytest.mark.requirement("R401")
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
    ended = await effect(request(user("x")), EffectContext("e", "s", on_text_delta=words.append))
    # What a caller gets, and so can put on record, is the whole call: no piece of it.
    assert ended["tool_calls"] == [{"id": "c1", "name": "t", "input": {"a": 1}}]
    assert set(ended) == {"content", "tool_calls", "stop_reason", "usage"}
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
