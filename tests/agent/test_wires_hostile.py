"""Answers that no honest vendor sends: an error with a name, never half an answer, never a traceback."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fumehood.agent._arguments import MAX_INPUT_LEVELS
from fumehood.agent._canonical import canonical, clean
from fumehood.agent._effect import parse_request
from fumehood.agent._errors import ProviderError
from fumehood.agent._response import Response, assistant_message_of
from fumehood.agent.providers import HttpReply, HttpRequest
from fumehood.agent.providers import _base as base_module
from fumehood.agent.providers._base import HttpProvider
from fumehood.agent.providers._sse import MAX_EVENT_BYTES, SseEvent, SseParser
from fumehood.agent.providers._wire import WireNames
from tests.agent.samples import request, user
from tests.agent.wires import MODELS, WIRES, offline

pytestmark = pytest.mark.anyio
Json = dict[str, Any]


class _Canned:
    """A way to a vendor that answers with what a test wrote."""

    def __init__(self, status: int, body: bytes, piece: int) -> None:
        self.status, self._body, self._piece = status, body, piece

    async def send(self, asked: HttpRequest) -> HttpReply:
        return HttpReply(self.status, self._body)

    @asynccontextmanager
    async def stream(self, asked: HttpRequest) -> AsyncIterator[Any]:
        yield self

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for at in range(0, len(self._body), self._piece):
            yield self._body[at : at + self._piece]


async def _ask(wire: str, body: bytes, *, streamed: bool, status: int = 200, **options: Any) -> Response:
    kind, model = MODELS[wire]
    provider: HttpProvider = kind(_Canned(status, body, 4_096), model, **options)
    asked = parse_request(request(user("x")))
    if not streamed:
        return await provider.complete(asked)
    found = [chunk.response async for chunk in provider.stream(asked)][-1]
    assert found is not None
    return found


def _events(*events: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


def _anthropic(*middle: Json) -> bytes:
    start = {"type": "message_start", "message": {}}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    return _events(start, *middle, end, {"type": "message_stop"})


def _block(index: Any, **block: Any) -> list[Json]:
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        {"type": "content_block_stop", "index": index},
    ]


TEXT = {"type": "text", "text": "a"}
CHAT_END = {"choices": [{"delta": {}, "finish_reason": "stop"}]}


def _call_delta(**piece: Any) -> Json:
    return {"choices": [{"delta": {"tool_calls": [piece]}}]}


BAD_STREAMS: list[tuple[str, bytes]] = [
    ("anthropic", _anthropic(*_block(0, **TEXT), *_block(0, **TEXT))),
    ("anthropic", _anthropic(_block(0, **TEXT)[0], _block(0, **TEXT)[0])),
    ("anthropic", _anthropic(*_block(0, **TEXT), *_block("1", **TEXT))),
    ("anthropic", _anthropic(*_block([], **TEXT))),
    ("anthropic", _anthropic(*_block(0, type="redacted_thinking"))),
    ("anthropic", _anthropic(*_block(0, type="text", text=None))),
    ("anthropic", _anthropic(*_block(0, type="text", text=["a"]))),
    (
        "anthropic",
        _anthropic({"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta", "text": ""}}),
    ),
    ("anthropic", _anthropic(_block(0, **TEXT)[1])),
    ("anthropic", _anthropic(*_block(0, type="tool_use", id=7, name="t", input={}))),
    ("anthropic", _anthropic(*_block(0, type="thinking", thinking=7, signature="S"))),
    ("anthropic", _anthropic() + _events(*_block(0, **TEXT))),
    ("anthropic", _events({"type": "error", "error": {"type": "overloaded_error", "message": "m" * 10_000}})),
    ("anthropic", _events(7, [], None)),
    ("openai-chat", _events(_call_delta(index=0, id="a", function={"arguments": "{}"}), CHAT_END)),
    ("openai-chat", _events(_call_delta(index=0, id="a", function={"name": 7}), CHAT_END)),
    (
        "openai-chat",
        _events(
            _call_delta(index=0, id="a", function={"name": "t"}),
            _call_delta(index="x", id="b", function={"name": "t"}),
            CHAT_END,
        ),
    ),
    ("openai-chat", _events({"choices": [{"delta": {"content": ["a"]}, "finish_reason": "stop"}]})),
    ("openai-chat", _events({"error": {"message": "no"}})),
    ("openai-chat", _events({"choices": 7})),
    ("openai-responses", _events({"type": "response.completed", "response": {"output": {}}})),
    ("openai-responses", _events({"type": "response.completed", "response": None}, {"type": "x"})),
    (
        "openai-responses",
        _events({"type": "response.function_call_arguments.delta", "output_index": 3, "delta": ""}),
    ),
    (
        "openai-responses",
        _events({"type": "response.failed", "response": {"status": "failed", "output": []}}),
    ),
    ("gemini", _events({"candidates": [{"content": {"parts": [{"text": 7}]}, "finishReason": "STOP"}]})),
    (
        "gemini",
        _events({"candidates": [{"content": {"parts": [{"functionCall": {}}]}, "finishReason": "STOP"}]}),
    ),
    ("gemini", _events({"candidates": 7})),
    ("gemini", _events({"error": {"code": 500}})),
]


@pytest.mark.promise("agent:no-half-answers")
@pytest.mark.parametrize(("wire", "body"), BAD_STREAMS)
async def test_a_stream_that_is_none_is_a_provider_error(wire: str, body: bytes) -> None:
    with pytest.raises(ProviderError) as caught:
        await _ask(wire, body, streamed=True)
    assert len(str(caught.value)) < 1_200


@pytest.mark.promise("agent:no-half-answers")
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"7",
        b'"x"',
        b"\xff\xfe",
        b"[" * 5_000,
        b"<html>",
        b'{"content": 7, "output": 7, "choices": 7, "candidates": 7}',
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_an_answer_that_is_none_is_a_provider_error(wire: str, body: bytes, streamed: bool) -> None:
    with pytest.raises(ProviderError):
        await _ask(wire, b"data: " + body + b"\n\n" if streamed else body, streamed=streamed)


@pytest.mark.promise("agent:no-half-answers")
@pytest.mark.parametrize("wire", WIRES)
async def test_every_beginning_of_a_stream_is_an_error_until_its_end(wire: str) -> None:
    whole = {
        "anthropic": _anthropic(*_block(0, **TEXT)),
        "openai-chat": _events({"choices": [{"delta": {"content": "a"}}]}, CHAT_END),
        "openai-responses": _events(
            {
                "type": "response.completed",
                "response": {
                    "output": [{"type": "message", "content": [{"type": "output_text", "text": "a"}]}]
                },
            }
        ),
        "gemini": _events(
            {"candidates": [{"content": {"parts": [{"text": "a"}]}}]},
            {"candidates": [{"finishReason": "STOP"}]},
        ),
    }[wire]
    assert (await _ask(wire, whole, streamed=True)).content == "a"
    assert (await _ask(wire, whole + b"data: [DONE]\n\n", streamed=True)).content == "a"
    last = whole.rindex(b"data: ")
    for length in range(0, last + 6, 7):
        with pytest.raises(ProviderError):
            await _ask(wire, whole[:length], streamed=True)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_stream_without_an_end_is_given_up(wire: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_module, "MAX_ANSWER_BYTES", 100_000)
    with pytest.raises(ProviderError, match="longer than 100000 bytes"):
        await _ask(wire, b": ping\n\n" * 20_000, streamed=True)


async def test_the_key_stands_in_no_error_text_and_a_long_error_is_not_read_whole() -> None:
    key = "sk-secret-1234567890"
    said = json.dumps({"error": {"message": "x" * 490 + key + " is wrong"}}).encode()
    for streamed in (False, True):
        with pytest.raises(ProviderError) as caught:
            await _ask("openai-chat", said, streamed=streamed, status=401, api_key=key)
        assert "sk-" not in str(caught.value) and "[key]" in str(caught.value)
        assert (caught.value.status, caught.value.retryable) == (401, False)
        with pytest.raises(ProviderError):
            await _ask("openai-chat", b"y" * 10_000_000, streamed=streamed, status=500)


COUNTS: tuple[Json, ...] = (
    {"n": -5},
    {"n": "5"},
    {"n": 1e9},
    {"n": True},
    {"n": 2**53},
    {"n": None},
    {"n": [1]},
    {},
)


@pytest.mark.parametrize("count", COUNTS)
def test_a_count_that_is_none_counts_nothing_and_loses_no_answer(count: Json) -> None:
    value = count.get("n")
    bodies: dict[str, Json] = {
        "anthropic": {
            "content": [TEXT],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": value, "output_tokens": 7},
        },
        "openai-chat": {
            "choices": [{"finish_reason": "stop", "message": {"content": "a"}}],
            "usage": {"prompt_tokens": value, "completion_tokens": 7},
        },
        "openai-responses": {
            "output": [{"type": "message", "content": [{"type": "output_text", "text": "a"}]}],
            "usage": {"input_tokens": value, "output_tokens": 7},
        },
        "gemini": {
            "candidates": [{"finishReason": "STOP", "content": {"parts": [{"text": "a"}]}}],
            "usageMetadata": {"promptTokenCount": value, "candidatesTokenCount": 7},
        },
    }
    for wire, body in bodies.items():
        response = offline(wire).decode(body, WireNames([]))
        assert (response.content, response.usage.input_tokens, response.usage.output_tokens) == ("a", 0, 7)


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels - 1):
        value = [value]
    return {"a": value}


INPUTS: list[tuple[Any, str | None]] = [
    ({"a": 1}, None),
    (_nested(MAX_INPUT_LEVELS - 1), None),
    (_nested(MAX_INPUT_LEVELS + 1), "invalid-json"),
    (_nested(400), "invalid-json"),
    ({"a": float("nan")}, "invalid-json"),
    ({"a": [float("inf")]}, "invalid-json"),
    ({"a": 10**4_250}, "invalid-json"),
    ([1], "invalid-argument-shape"),
    ("x", "invalid-argument-shape"),
]


@pytest.mark.requirement("R294")
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(("value", "failure"), INPUTS)
def test_an_input_that_could_not_be_recorded_is_a_failed_one(
    wire: str, value: Any, failure: str | None
) -> None:
    words = json.dumps(value)
    bodies: dict[str, Json] = {
        "anthropic": {
            "content": [{"type": "tool_use", "id": "c", "name": "t", "input": value}],
            "stop_reason": "tool_use",
        },
        "openai-chat": {
            "choices": [
                {
                    "finish_reason": "tool_calls",
                    "message": {"tool_calls": [{"id": "c", "function": {"name": "t", "arguments": words}}]},
                }
            ]
        },
        "openai-responses": {
            "output": [{"type": "function_call", "call_id": "c", "name": "t", "arguments": words}]
        },
        "gemini": {
            "candidates": [
                {
                    "finishReason": "STOP",
                    "content": {"parts": [{"functionCall": {"name": "t", "args": value}}]},
                }
            ]
        },
    }
    response = offline(wire).decode(bodies[wire], WireNames([]))
    (made,) = response.tool_calls
    if wire == "anthropic" and isinstance(value, str):
        failure = "invalid-json"  # a text is what a stream gathered
    assert made.arguments_failure == failure
    assert made.input == (value if failure is None else {"__failedArguments": failure})
    canonical(clean({"value": response.to_json()}))  # the log takes it
    assistant_message_of(response)


def _long(wire: str, pieces: int) -> Iterator[Json]:
    match wire:
        case "anthropic":
            yield {"type": "message_start", "message": {}}
            yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
            for _ in range(pieces):
                yield {
                    "type": "content_block_delta",
                    "index": 0,
                    "delta": {"type": "text_delta", "text": "abcd"},
                }
            yield {"type": "content_block_stop", "index": 0}
            yield {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
            yield {"type": "message_stop"}
        case "openai-chat":
            yield from ({"choices": [{"delta": {"content": "abcd"}}]} for _ in range(pieces))
            yield CHAT_END
        case "gemini":
            part = {"candidates": [{"content": {"parts": [{"text": "abcd"}]}}]}
            yield from (part for _ in range(pieces))
            yield {"candidates": [{"finishReason": "STOP"}]}


@pytest.mark.parametrize("wire", ["anthropic", "openai-chat", "gemini"])
def test_the_pieces_of_a_long_answer_are_joined_once(wire: str) -> None:
    """No text that grew is kept on the way: what a decoder holds are the pieces themselves."""
    decoder = offline(wire).decoder(WireNames([]))
    longest = 0
    for event in _long(wire, 3_000):
        for chunk in decoder.feed(SseEvent("message", json.dumps(event))):
            assert len(chunk.text_delta) <= 4
        longest = max(longest, _longest_text(decoder))
    response = decoder.finish()
    assert response is not None and response.content == "abcd" * 3_000
    assert longest == 12_000 if wire == "anthropic" else longest <= 16  # a block is joined when it is closed


def _longest_text(decoder: Any) -> int:
    stack, longest = [vars(decoder)[name] for name in vars(decoder) if name not in ("_provider", "_names")], 0
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            longest = max(longest, len(item))
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list) and not (item and isinstance(item[0], str)):
            stack.extend(item[-3:])
        elif isinstance(item, list):
            longest = max(longest, *map(len, item[-3:]))
    return longest


def test_an_event_may_be_as_long_as_the_cap_and_no_longer() -> None:
    for size, fits in ((MAX_EVENT_BYTES - 10, True), (MAX_EVENT_BYTES + 1, False)):
        body = b"data: " + b"x" * size
        parser = SseParser()
        try:
            found = [
                event
                for at in range(0, len(body), 1 << 20)
                for event in parser.feed(body[at : at + (1 << 20)])
            ]
            # The blank line comes in a piece of its own.
            found += [*parser.feed(b"\n"), *parser.feed(b"\n")]
        except ValueError as error:
            assert not fits and "longer than" in str(error)
        else:
            assert fits and len(found[0].data) == size


def test_many_small_lines_count_as_one_event() -> None:
    parser = SseParser()
    with pytest.raises(ValueError, match="longer than"):
        for _ in range(MAX_EVENT_BYTES // 900):
            list(parser.feed(b"data: xxxx\n" * 100))
