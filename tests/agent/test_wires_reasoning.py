"""Reasoning and signatures on each wire, there and back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fumehood.agent._effect import parse_request
from fumehood.agent._parts import Message, Request
from fumehood.agent._response import Reasoning, assistant_message_of
from fumehood.testing.vendors import Say
from tests.agent.samples import (
    assistant,
    request,
    text,
    user,
)
from tests.agent.wires import TOOLS, WIRES, answer, failed_answer, live, render, second_turn

pytestmark = pytest.mark.anyio
Json = dict[str, Any]


@pytest.mark.requirement("R172")
@pytest.mark.requirement("R296")
@pytest.mark.requirement("R301")
@pytest.mark.requirement("R302")
@pytest.mark.requirement("R324")
@pytest.mark.requirement("R181")
@pytest.mark.requirement("R459")
@pytest.mark.requirement("R174")
@pytest.mark.parametrize("streamed", [False, True])
async def test_anthropic_thinking_goes_back_byte_for_byte_and_in_its_order(streamed: bool) -> None:
    # A6, and the order that must not be regrouped: thinking, text, tool_use, thinking, tool_use.
    blocks = [
        Say("thinking", "step one ü", "S1=="),
        Say("redacted", signature="REDACTED=="),
        Say("text", "let me"),
        Say("call", id="c1", name="look", input={"q": 1}),
        Say("thinking", "", "S2=="),
        Say("call", id="c2", name="look", input={"q": 2}),
    ]
    async with live("anthropic") as here:
        here.vendor.say(*blocks)
        response = await answer(here, request(user("go"), tools=TOOLS), streamed)
        assert response.reasoning == (
            Reasoning("text", "anthropic", "step one ü", "S1=="),
            Reasoning("redacted", "anthropic", None, "REDACTED=="),
            Reasoning("text", "anthropic", "", "S2=="),
        )
        await here.provider().complete(second_turn(response))
        sent = here.vendor.bodies[-1]["messages"][1]["content"]
    assert sent == [
        {"type": "thinking", "thinking": "step one ü", "signature": "S1=="},
        {"type": "redacted_thinking", "data": "REDACTED=="},
        {"type": "text", "text": "let me"},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {"q": 1}},
        {"type": "thinking", "thinking": "", "signature": "S2=="},
        {"type": "tool_use", "id": "c2", "name": "look", "input": {"q": 2}},
    ]


@pytest.mark.requirement("R175")
@pytest.mark.requirement("R176")
@pytest.mark.requirement("R177")
@pytest.mark.requirement("R202")
@pytest.mark.parametrize("streamed", [False, True])
async def test_gemini_signatures_stay_on_their_own_call(streamed: bool) -> None:
    # A21: only the first of two parallel calls is signed; save and load lie between.
    async with live("gemini") as here:
        here.vendor.say(
            Say("thinking", "summary"),
            Say("call", name="look", input={"q": 1}, signature="SIG1=="),
            Say("call", name="look", input={"q": 2}),
        )
        response = await answer(here, request(user("go"), tools=TOOLS), streamed)
        assert [(c.signature, c.id) for c in response.tool_calls] == [
            ("SIG1==", "fh-call-1"),
            (None, "fh-call-2"),
        ]
        message = Message.model_validate(json.loads(json.dumps(assistant_message_of(response).to_json())))
        answers = Message.of("user", [failed_answer("fh-call-1"), failed_answer("fh-call-2")])
        await here.provider().complete(Request(messages=(Message.user("go"), message, answers)))
        sent = here.vendor.bodies[-1]["contents"]
    assert sent[1] == {
        "role": "model",
        "parts": [
            {"functionCall": {"name": "look", "args": {"q": 1}}, "thoughtSignature": "SIG1=="},
            {"functionCall": {"name": "look", "args": {"q": 2}}},
        ],
    }
    assert [part["functionResponse"]["name"] for part in sent[2]["parts"]] == ["look", "look"]


async def test_gemini_signatures_on_text_go_back_on_that_text() -> None:
    async with live("gemini") as here:
        here.vendor.say(Say("text", "answer", "TEXTSIG=="), Say("text", " more"))
        response = await here.provider().complete(parse_request(request(user("go"))))
        assert response.content == "answer more"
        await here.provider().complete(
            Request(messages=(Message.user("go"), assistant_message_of(response), Message.user("on")))
        )
        assert here.vendor.bodies[-1]["contents"][1]["parts"] == [
            {"text": "answer", "thoughtSignature": "TEXTSIG=="},
            {"text": " more"},
        ]


@pytest.mark.requirement("R463")
@pytest.mark.parametrize("streamed", [False, True])
async def test_openai_reasoning_continues_without_any_server_side_id(streamed: bool) -> None:
    # E7: the fake forgets every id, and refuses items that name one.
    async with live("openai-responses") as here:
        here.vendor.say(
            Say("thinking", "part one\n\npart two", "ENC=="),
            Say("call", id="c1", name="look", input={"q": 1}),
            Say("thinking", "", "ENC2=="),
            Say("call", id="c2", name="look", input={"q": 2}),
        )
        response = await answer(here, request(user("go"), tools=TOOLS), streamed)
        assert [part.text for part in response.reasoning] == ["part one\n\npart two", ""]
        await here.provider().complete(second_turn(response))
        body = here.vendor.bodies[-1]
    items = [item for item in body["input"] if item["type"] in ("reasoning", "function_call")]
    summary = [{"type": "summary_text", "text": "part one"}, {"type": "summary_text", "text": "part two"}]
    assert items == [
        {"type": "reasoning", "summary": summary, "encrypted_content": "ENC=="},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"q": 1}'},
        {"type": "reasoning", "summary": [], "encrypted_content": "ENC2=="},
        {"type": "function_call", "call_id": "c2", "name": "look", "arguments": '{"q": 2}'},
    ]
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])
    assert "include" not in render("openai-responses", request(user("x")), capabilities={})


@pytest.mark.requirement("R178")
async def test_a_compatible_servers_reasoning_is_read_and_not_sent_back() -> None:
    async with live("openai-chat") as here:
        here.vendor.say(Say("thinking", "hm"), Say("text", "yes"))
        response = await here.provider().complete(parse_request(request(user("go"))))
        assert response.reasoning == (Reasoning("text", "openai", "hm"),)
        await here.provider().complete(
            second_turn(response, "go")
            if response.tool_calls
            else Request(messages=(Message.user("go"), assistant_message_of(response), Message.user("x")))
        )
        assert here.vendor.bodies[-1]["messages"][1] == {"role": "assistant", "content": "yes"}


@pytest.mark.requirement("R179")
@pytest.mark.requirement("R180")
@pytest.mark.requirement("R306")
@pytest.mark.requirement("R458")
async def test_readable_reasoning_is_asked_for_only_when_configured() -> None:
    body = request(user("x"))
    assert "thinking" not in render("anthropic", body)
    assert "thinkingConfig" not in render("gemini", body)["generationConfig"]
    assert "reasoning" not in render("openai-responses", body)
    thinking = {"type": "adaptive", "display": "summarized"}
    assert render("anthropic", body, thinking=thinking)["thinking"] == thinking
    assert render("gemini", body, include_thoughts=True)["generationConfig"]["thinkingConfig"] == {
        "includeThoughts": True
    }
    assert render("openai-responses", body, reasoning={"effort": "low", "summary": "auto"})["reasoning"] == {
        "effort": "low",
        "summary": "auto",
    }
    async with live("anthropic") as here:
        here.vendor.say(Say("thinking", "s", "S"))
        plain = await here.provider().complete(parse_request(body))
        summarized = await here.provider(thinking=thinking).complete(parse_request(body))
    assert [part.kind for part in (*plain.reasoning, *summarized.reasoning)] == ["text", "summary"]


@pytest.mark.requirement("R309")
@pytest.mark.requirement("R365")
@pytest.mark.parametrize("wire", WIRES)
def test_reasoning_and_opaque_blocks_go_to_their_own_provider_only(wire: str) -> None:
    parts: list[Json] = []
    for provider in ("anthropic", "openai", "gemini", "scripted"):
        parts.append(
            {"type": "reasoning", "kind": "redacted", "provider": provider, "signature": f"R-{provider}"}
        )
        # The two wires of OpenAI share its name, and neither takes the other's blocks.
        for block in (
            {"type": "web_search_call", "mark": f"O-{provider}-item"},
            {"type": "custom", "id": "c", "custom": {"mark": f"O-{provider}-chat"}},
        ):
            parts.append({"type": "opaque", "provider": provider, "block": block})
    sent = json.dumps(render(wire, request(user("x"), assistant([text("a"), *parts]), user("y"))))
    own = {"openai-chat": "openai", "openai-responses": "openai"}.get(wire, wire)
    found = {
        name
        for name in ("anthropic", "openai", "gemini", "scripted")
        if f"R-{name}" in sent or f"O-{name}" in sent
    }
    assert found == {own}
    if wire.startswith("openai"):
        other = {"openai-chat": "O-openai-item", "openai-responses": "O-openai-chat"}[wire]
        assert other not in sent
