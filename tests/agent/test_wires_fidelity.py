"""What a vendor says beyond text, calls and reasoning is kept: read from an answer, saved, and given back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fumehood.agent import tainted
from fumehood.agent._parts import Message, Request
from fumehood.agent._response import Response, assistant_message_of, text_free_reasoning
from fumehood.agent.messages import (
    from_openai,
    from_responses,
    text_of,
)
from fumehood.agent.providers._sse import SseEvent
from fumehood.agent.providers._wire import WireNames
from fumehood.testing.vendors import Say
from tests.agent.samples import assistant, call, request, result, text, user
from tests.agent.sdk_types import check_body
from tests.agent.wires import TOOLS, WIRES, answer, live, offline, render, second_turn

pytestmark = pytest.mark.anyio
Json = dict[str, Any]

CITATION = {
    "type": "char_location",
    "cited_text": "the sky is <blue>",
    "document_index": 0,
    "document_title": "sky.txt",
    "start_char_index": 3,
    "end_char_index": 20,
}
NOTE = {"type": "url_citation", "start_index": 0, "end_index": 4, "title": "T", "url": "https://example.com/"}

SAID: dict[str, list[Say]] = {
    "anthropic": [
        Say("text", "It is ", block={}),
        Say("text", "blue", block={"citations": [CITATION, {**CITATION, "document_index": 1}]}),
        Say("text", "."),
        Say(
            "call",
            id="c1",
            name="look",
            input={"q": 1},
            block={"caller": {"type": "direct"}},
        ),
    ],
    "openai-chat": [
        Say("text", "It is blue."),
        Say(
            "call",
            id="c1",
            name="look",
            input={"q": 1},
            block={"extra_content": {"google": {"thought_signature": "SIG=="}}},
        ),
    ],
    "openai-responses": [
        Say("text", "It is ", block={"phase": "commentary"}),
        Say("text", "blue", block={"annotations": [NOTE]}),
        Say("text", "."),
        Say("call", id="c1", name="look", input={"q": 1}, block={"namespace": "crm"}),
    ],
    "gemini": [
        Say("text", "It is "),
        Say("text", "blue", block={"partMetadata": {"k": "v"}}),
        Say("text", ".", "SIG=="),
        Say("call", name="look", input={"q": 1}, block={"partMetadata": {"n": 2}}),
    ],
}

BACK: dict[str, Json] = {
    "anthropic": {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "It is "},
            {"type": "text", "text": "blue", "citations": [CITATION, {**CITATION, "document_index": 1}]},
            {"type": "text", "text": "."},
            {"type": "tool_use", "id": "c1", "name": "look", "input": {"q": 1}, "caller": {"type": "direct"}},
        ],
    },
    "openai-chat": {
        "role": "assistant",
        "content": "It is blue.",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "look", "arguments": '{"q": 1}'},
                "extra_content": {"google": {"thought_signature": "SIG=="}},
            }
        ],
    },
    "openai-responses": {
        "items": [
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "It is ", "annotations": []}],
                "phase": "commentary",
            },
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "blue", "annotations": [NOTE]}],
            },
            {"type": "message", "role": "assistant", "content": "."},
            {
                "type": "function_call",
                "call_id": "c1",
                "name": "look",
                "arguments": '{"q": 1}',
                "namespace": "crm",
            },
        ]
    },
    "gemini": {
        "role": "model",
        "parts": [
            {"text": "It is "},
            {"text": "blue", "partMetadata": {"k": "v"}},
            {"text": ".", "thoughtSignature": "SIG=="},
            {"functionCall": {"name": "look", "args": {"q": 1}}, "partMetadata": {"n": 2}},
        ],
    },
}


@pytest.mark.requirement("R185")
@pytest.mark.promise("agent:what-a-vendor-said-goes-back")
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("wire", WIRES)
async def test_citations_and_the_like_are_kept_and_go_back_with_their_part(wire: str, streamed: bool) -> None:
    async with live(wire) as here:
        here.vendor.say(*SAID[wire])
        response = await answer(here, request(user("go"), tools=TOOLS), streamed)
        assert response.content == "It is blue."
        saved = Response.from_json(json.loads(json.dumps(text_free_reasoning(response).to_json())))
        message = assistant_message_of(saved)
        assert text_of(message) == "It is blue."
        await here.provider().complete(second_turn(saved))
        body = here.vendor.bodies[-1]
    sent: dict[str, Any] = {
        "anthropic": lambda: body["messages"][1],
        "openai-chat": lambda: body["messages"][1],
        "openai-responses": lambda: {"items": body["input"][1:-1]},
        "gemini": lambda: body["contents"][1],
    }
    assert sent[wire]() == BACK[wire]
    # No other vendor gets any of it.
    for other in WIRES:
        if other.partition("-")[0] != wire.partition("-")[0]:
            words = json.dumps(offline(other).render(second_turn(saved)))
            assert "sky.txt" not in words and "SIG==" not in words and "example.com" not in words
            assert "partMetadata" not in words and "namespace" not in words and "phase" not in words


@pytest.mark.parametrize("wire", ["anthropic", "openai-chat", "openai-responses"])
def test_what_goes_back_is_what_the_sdks_types_allow(wire: str) -> None:
    refused = {"openai-chat": text("No."), "openai-responses": text("No.")}.get(wire)
    parts = [
        {
            "type": "text",
            "text": "blue",
            "provider_meta": {"anthropic": {"citations": [CITATION]}, "openai": {"annotations": [NOTE]}},
        },
        *([{**refused, "provider_meta": {"openai": {"type": "refusal"}}}] if refused else []),
        call("c1", "look", {"q": 1}, provider_meta={"anthropic": {"caller": {"type": "direct"}}}),
    ]
    body = render(
        wire,
        request(
            user([{**text("hi"), "provider_meta": {"anthropic": {"cache_control": {"type": "ephemeral"}}}}]),
            assistant(parts),
            user([result("c1", "ok", provider_meta={"anthropic": {"cache_control": {"type": "ephemeral"}}})]),
            tools=TOOLS,
        ),
    )
    if wire == "openai-responses":
        # The types want an id and a status of an answer's message; the fake refuses ids, as a service that
        # keeps nothing does, so both are lent here.
        body = json.loads(json.dumps(body))
        for item in body["input"]:
            if isinstance(item.get("content"), list) and item["role"] == "assistant":
                item |= {"id": "msg_lent", "status": "completed"}
    check_body(wire, body)
    assert (
        "cache_control" in json.dumps(body)
        if wire == "anthropic"
        else "cache_control" not in json.dumps(body)
    )


@pytest.mark.parametrize("wire", ["openai-chat", "openai-responses"])
def test_a_refusal_goes_back_as_one(wire: str) -> None:
    if wire == "openai-chat":
        said: Json = {"choices": [{"finish_reason": "stop", "message": {"content": None, "refusal": "No."}}]}
    else:
        item = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
        said = {"output": [item], "status": "completed"}
    response = offline(wire).decode(said, WireNames([]))
    assert (response.content, response.stop_reason) == ("No.", "refusal")
    sent = offline(wire).render(Request(messages=(Message.user("x"), assistant_message_of(response))))
    if wire == "openai-chat":
        assert sent["messages"][1] == {"role": "assistant", "content": None, "refusal": "No."}
        assert text_of(from_openai(sent["messages"])[1]) == "No."
    else:
        assert sent["input"][1]["content"] == [{"type": "refusal", "refusal": "No."}]
        assert text_of(from_responses(sent["input"])[1]) == "No."


NOTES: dict[str, tuple[Json, Json, list[Json]]] = {
    # wire: the vendor's notes on an answer, the whole answer, the same as events
    "anthropic": (
        {"container": {"id": "ctr_1", "expires_at": "2030"}, "stop_sequence": "END"},
        {
            "content": [text("a")],
            "stop_reason": "stop_sequence",
            "stop_sequence": "END",
            "container": {"id": "ctr_1", "expires_at": "2030"},
        },
        [
            {
                "type": "message_start",
                "message": {"id": "m", "container": {"id": "ctr_1", "expires_at": "2030"}},
            },
            {"type": "content_block_start", "index": 0, "content_block": text("")},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "stop_sequence", "stop_sequence": "END"}},
            {"type": "message_stop"},
        ],
    ),
    "openai-chat": (
        {"annotations": [NOTE, NOTE]},
        {"choices": [{"finish_reason": "stop", "message": {"content": "a", "annotations": [NOTE, NOTE]}}]},
        [
            {"choices": [{"delta": {"content": "a", "annotations": [NOTE]}}]},
            {"choices": [{"delta": {"annotations": [NOTE]}, "finish_reason": "stop"}]},
        ],
    ),
    "gemini": (
        {
            "groundingMetadata": {
                "webSearchQueries": ["q"],
                "groundingChunks": [{"web": {"uri": "u"}}, {"web": {"uri": "v"}}],
            },
            "citationMetadata": {"citationSources": [{"uri": "u"}]},
        },
        {
            "candidates": [
                {
                    "content": {"parts": [{"text": "a"}]},
                    "finishReason": "STOP",
                    "groundingMetadata": {
                        "webSearchQueries": ["q"],
                        "groundingChunks": [{"web": {"uri": "u"}}, {"web": {"uri": "v"}}],
                    },
                    "citationMetadata": {"citationSources": [{"uri": "u"}]},
                }
            ]
        },
        [
            {
                "candidates": [
                    {
                        "content": {"parts": [{"text": "a"}]},
                        "groundingMetadata": {
                            "webSearchQueries": ["q"],
                            "groundingChunks": [{"web": {"uri": "u"}}],
                        },
                    }
                ]
            },
            {
                "candidates": [
                    {
                        "finishReason": "STOP",
                        "groundingMetadata": {"groundingChunks": [{"web": {"uri": "v"}}]},
                        "citationMetadata": {"citationSources": [{"uri": "u"}]},
                    }
                ]
            },
        ],
    ),
}


@pytest.mark.parametrize("wire", NOTES)
def test_what_a_vendor_says_of_the_whole_answer_is_kept_for_reading(wire: str) -> None:
    notes, whole, events = NOTES[wire]
    provider = offline(wire)
    vendor = wire.partition("-")[0]
    complete = provider.decode(whole, WireNames([]))
    # Titles and quotations of pages are in it, so it is marked before anybody can put it into a prompt.
    assert complete.provider_meta == {vendor: tainted(notes, f"llm-notes:{vendor}")}
    decoder = provider.decoder(WireNames([]))
    for event in events:
        list(decoder.feed(SseEvent("message", json.dumps(event))))
    assert decoder.finish() == complete
    assert Response.from_json(json.loads(json.dumps(complete.to_json()))) == complete


def test_the_older_form_of_a_call_is_a_call() -> None:
    provider = offline("openai-chat")
    old = {"name": "look", "arguments": '{"q": 1}'}
    whole = {
        "choices": [{"finish_reason": "function_call", "message": {"content": None, "function_call": old}}]
    }
    complete = provider.decode(whole, WireNames([]))
    assert [(c.id, c.name, c.input) for c in complete.tool_calls] == [("", "look", {"q": 1})]
    decoder = provider.decoder(WireNames([]))
    for delta in (
        {"function_call": {"name": "look", "arguments": '{"q"'}},
        {"function_call": {"arguments": ": 1}"}},
    ):
        list(decoder.feed(SseEvent("message", json.dumps({"choices": [{"delta": delta}]}))))
    list(
        decoder.feed(
            SseEvent("message", json.dumps({"choices": [{"delta": {}, "finish_reason": "function_call"}]}))
        )
    )
    assert decoder.finish() == complete
    history: list[Json] = [
        {"role": "assistant", "content": None, "function_call": old},
        {"role": "function", "name": "look", "content": "done"},
    ]
    sent = render("openai-chat", {"messages": [m.to_json() for m in from_openai(history)]})["messages"]
    assert sent[0]["tool_calls"][0]["function"] == old and sent[1]["content"] == "done"


def test_a_call_of_another_kind_streams_as_it_completes() -> None:
    provider = offline("openai-chat")
    custom = {"id": "c", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}
    whole = {
        "choices": [{"finish_reason": "tool_calls", "message": {"content": None, "tool_calls": [custom]}}]
    }
    decoder = provider.decoder(WireNames([]))
    for piece in (
        {"index": 0, "id": "c", "type": "custom", "custom": {"name": "sql", "input": ""}},
        {"index": 0, "custom": {"input": "select"}},
        {"index": 0, "custom": {"input": " 1"}},
    ):
        list(decoder.feed(SseEvent("message", json.dumps({"choices": [{"delta": {"tool_calls": [piece]}}]}))))
    list(
        decoder.feed(
            SseEvent("message", json.dumps({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}))
        )
    )
    assert decoder.finish() == provider.decode(whole, WireNames([]))


def test_what_was_said_in_sound_is_read_as_text() -> None:
    provider = offline("openai-chat")
    sound = {"id": "a", "data": "AAAA", "transcript": "hello there"}
    whole = {"choices": [{"finish_reason": "stop", "message": {"content": None, "audio": sound}}]}
    decoder = provider.decoder(WireNames([]))
    for delta in (
        {"audio": {"id": "a", "transcript": "hello "}},
        {"audio": {"data": "AAAA", "transcript": "there"}},
    ):
        list(decoder.feed(SseEvent("message", json.dumps({"choices": [{"delta": delta}]}))))
    list(decoder.feed(SseEvent("message", json.dumps({"choices": [{"delta": {}, "finish_reason": "stop"}]}))))
    complete = provider.decode(whole, WireNames([]))
    assert decoder.finish() == complete and complete.content == "hello there"


def test_a_thought_with_a_note_on_it_stays_a_thought() -> None:
    part = {"text": "hm", "thought": True, "partMetadata": {"k": 1}}
    whole = {"candidates": [{"finishReason": "STOP", "content": {"parts": [part, {"text": "a"}]}}]}
    response = offline("gemini").decode(whole, WireNames([]))
    assert (response.content, [r.kind for r in response.reasoning], response.opaque) == ("a", ["summary"], ())


def test_unknown_deltas_of_a_block_are_kept() -> None:
    decoder = offline("anthropic").decoder(WireNames([]))
    for event in (
        {"type": "message_start", "message": {}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "compaction", "content": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "compaction_delta", "content": "su"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "compaction_delta", "content": "m"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "x_delta", "rows": [1]}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "x_delta", "rows": [2]}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ):
        list(decoder.feed(SseEvent("message", json.dumps(event))))
    response = decoder.finish()
    assert response is not None
    assert [part.block for part in response.opaque] == [
        {"type": "compaction", "content": "sum", "rows": [1, 2]}
    ]


def test_a_vendors_note_cannot_put_other_words_in_the_place_of_a_block() -> None:
    forged = {"type": "text", "text": "forged", "id": "forged", "content": "forged", "input": {"forged": 1}}
    metas = {
        vendor: {**forged, "function": forged, "role": "forged"}
        for vendor in ("anthropic", "openai", "gemini")
    }
    body = request(
        user("x"),
        assistant([call("c1", "look", {"q": 1}, provider_meta=metas)]),
        user([result("c1", "ok", provider_meta=metas)]),
    )
    for wire, place in (
        ("anthropic", "messages"),
        ("openai-chat", "messages"),
        ("openai-responses", "input"),
    ):
        entry = render(wire, body)[place][1]
        block = {"anthropic": lambda e: e["content"][0], "openai-chat": lambda e: e["tool_calls"][0]}.get(
            wire, lambda e: e
        )(entry)
        own = {
            "anthropic": ("type", "id", "input"),
            "openai-chat": ("type", "id", "function"),
            "openai-responses": ("type",),
        }[wire]
        assert all("forged" not in json.dumps(block[name]) for name in own)
    answered = render("anthropic", body)["messages"][2]["content"][0]
    assert (answered["type"], answered["content"]) == ("tool_result", "ok")
