"""Reasoning on a response: its shapes, its place among the blocks, and the assistant message it becomes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from fumehood.agent._parts import OpaquePart
from fumehood.agent._response import (
    Block,
    Response,
    ToolCall,
    assistant_message_of,
    layout_of,
    text_free_reasoning,
)
from tests.agent.reasoning_tools import kinds, made, thought
from tests.agent.samples import parts_of

pytestmark = pytest.mark.anyio
Json = dict[str, Any]


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
    assert [part.input for part in parts_of(assistant_message_of(twins)) if part.type == "tool_use"] == [1, 2]


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
