"""A foreign transcript comes out as it went in: cache marks, citations, phases and signatures included."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fumehood.agent._parts import Message
from fumehood.agent.messages import from_anthropic, from_gemini, from_openai, from_responses, to_parts
from tests.agent.samples import PNG, assistant, b64, text, user
from tests.agent.test_wires_fidelity import CITATION, NOTE
from tests.agent.wires import WIRES, render

Json = dict[str, Any]

IMPORTED: dict[str, tuple[Any, str, list[Json]]] = {
    "anthropic": (
        from_anthropic,
        "messages",
        [
            user(
                [
                    {**text("hi"), "cache_control": {"type": "ephemeral"}},
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": b64(PNG)},
                        "cache_control": {"type": "ephemeral"},
                    },
                    {
                        "type": "document",
                        "source": {"type": "text", "media_type": "text/plain", "data": "the sky"},
                        "title": "sky.txt",
                        "context": "c",
                        "citations": {"enabled": True},
                    },
                ]
            ),
            assistant(
                [
                    {"type": "text", "text": "blue", "citations": [CITATION]},
                    {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "q"}},
                    {
                        "type": "web_search_tool_result",
                        "tool_use_id": "s1",
                        "content": [{"encrypted_content": "E"}],
                    },
                    {
                        "type": "tool_use",
                        "id": "c1",
                        "name": "look",
                        "input": {},
                        "cache_control": {"type": "ephemeral"},
                    },
                ]
            ),
            user(
                [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "content": [{**text("t"), "cache_control": {"type": "ephemeral"}}],
                        "cache_control": {"type": "ephemeral"},
                    }
                ]
            ),
        ],
    ),
    "openai-chat": (
        from_openai,
        "messages",
        [
            user(
                [
                    {"type": "text", "text": "hi"},
                    {
                        "type": "image_url",
                        "image_url": {"url": f"data:image/png;base64,{b64(PNG)}", "detail": "low"},
                    },
                ]
            ),
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "look", "arguments": "{}"},
                        "extra_content": {"google": {"thought_signature": "S"}},
                    },
                    {"id": "c2", "type": "custom", "custom": {"name": "sql", "input": "select"}},
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "done"},
        ],
    ),
    "openai-responses": (
        from_responses,
        "input",
        [
            {
                "type": "message",
                "role": "user",
                "content": [
                    {
                        "type": "input_image",
                        "image_url": f"data:image/png;base64,{b64(PNG)}",
                        "detail": "high",
                    }
                ],
            },
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "blue", "annotations": [NOTE]}],
                "phase": "commentary",
            },
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}", "namespace": "crm"},
            {"type": "function_call_output", "call_id": "c1", "output": "done"},
        ],
    ),
    "gemini": (
        from_gemini,
        "contents",
        [
            {
                "role": "user",
                "parts": [
                    {"text": "hi"},
                    {
                        "inlineData": {"mimeType": "image/png", "data": b64(PNG)},
                        "mediaResolution": {"level": "LOW"},
                    },
                ],
            },
            {
                "role": "model",
                "parts": [
                    {"text": "blue", "thoughtSignature": "T"},
                    {"executableCode": {"language": "PYTHON", "code": "1"}},
                    {
                        "functionCall": {"name": "look", "args": {}},
                        "thoughtSignature": "S",
                        "partMetadata": {"k": 1},
                    },
                ],
            },
            {
                "role": "user",
                "parts": [
                    {
                        "functionResponse": {
                            "name": "look",
                            "response": {"output": "x"},
                            "scheduling": "SILENT",
                        }
                    }
                ],
            },
        ],
    ),
}


@pytest.mark.parametrize("wire", WIRES)
def test_a_foreign_transcript_comes_out_as_it_went_in(wire: str) -> None:
    read, name, entries = IMPORTED[wire]
    before = json.dumps(entries)
    messages = [Message.model_validate(json.loads(json.dumps(m.to_json()))) for m in read(entries)]
    assert json.dumps(entries) == before
    sent = render(wire, {"messages": [message.to_json() for message in messages]})
    assert sent[name] == entries
    kinds = [part.type for message in messages for part in to_parts(message.content)]
    assert kinds.count("tool_use") == 1 and kinds.count("tool_result") == 1


def test_a_response_is_read_whole_beside_its_error_and_its_parts() -> None:
    body = {"output": "x", "rows": 3}
    answers = [
        {"functionResponse": {"name": "look", "response": body}},
        {
            "functionResponse": {
                "name": "look",
                "response": {"output": "see"},
                "parts": [{"inlineData": {"mimeType": "image/png", "data": b64(PNG)}}],
            }
        },
    ]
    calls = [{"functionCall": {"name": "look", "args": {}}}] * 2
    message = from_gemini([{"role": "model", "parts": calls}, {"role": "user", "parts": answers}])[1]
    first, second = to_parts(message.content)
    assert json.loads(first.content) == body  # type: ignore[union-attr, arg-type]
    assert [part.type for part in second.content] == ["text", "image"]  # type: ignore[union-attr]
