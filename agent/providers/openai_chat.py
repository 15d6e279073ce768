"""OpenAI Chat Completions, and the servers that speak it.

Guarantees: answers to calls come first in their turn as `role: "tool"` messages, contiguous and in order
(R167); media of a result, which that message cannot hold, follow in a user message under a header that names
the call, with captions and fences in place (R169, R055). A compatible server's `reasoning_content` is read
and never sent back (R178). Capabilities come from the model's family, and none from another base URL. Source:
Chat Completions API reference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from fumehood.agent._capabilities import OPENAI
from fumehood.agent._parts import (
    AudioPart,
    FilePart,
    ImagePart,
    MediaPart,
    Message,
    OpaquePart,
    Request,
    TextPart,
    ToolResultPart,
    ToolUsePart,
)
from fumehood.agent._response import Block, Reasoning, Response, ToolCall, Usage, parse_arguments, response_of
from fumehood.agent.providers._base import HttpProvider, StreamDecoder
from fumehood.agent.providers._sse import SseEvent
from fumehood.agent.providers._types import Chunk, ToolDelta
from fumehood.agent.providers._wire import (
    NoForm,
    WireNames,
    arguments_text,
    bracketed,
    media_data,
    moved_media,
    parts_of,
    plain,
    result_text,
)

STOPS = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


SOUNDS = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}
"""The sounds that this wire has a name for."""


class OpenAIChatProvider(HttpProvider):
    """OpenAI's models over Chat Completions."""

    default_url = "https://api.openai.com/v1"
    table = OPENAI
    vendor = "openai"

    def url(self, *, stream: bool) -> str:
        return f"{self._url}/chat/completions"

    def headers(self) -> tuple[tuple[str, str], ...]:
        return () if self._api_key is None else (("authorization", f"Bearer {self._api_key}"),)

    def encode(self, request: Request, names: WireNames, *, stream: bool) -> dict[str, Any]:
        messages: list[dict[str, Any]] = (
            [{"role": "system", "content": plain(request.system)}] if request.system else []
        )
        for message in request.messages:
            messages.extend(_messages(message, names))
        # OpenAI's newer models refuse the old name; most servers that only speak this wire know no other.
        limit = "max_completion_tokens" if self.own_url else "max_tokens"
        body: dict[str, Any] = {"model": self._model, "messages": messages, limit: self._max_tokens}
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": names.to_wire(tool.name),
                        "description": tool.description,
                        "parameters": tool.input_schema,
                    },
                }
                for tool in request.tools
            ]
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return body

    def decode(self, body: Mapping[str, Any], names: WireNames) -> Response:
        choice = body["choices"][0]
        stop = STOPS.get(choice.get("finish_reason"), choice.get("finish_reason") or "end_turn")
        message = choice["message"]
        blocks: list[Block] = []
        thought = message.get("reasoning_content") or message.get("reasoning")
        if isinstance(thought, str) and thought:
            blocks.append(Reasoning("text", self.vendor, thought))
        text = message.get("content") or message.get("refusal") or ""
        if text:
            blocks.append(text)
        if message.get("refusal"):
            stop = "refusal"
        calls = message.get("tool_calls") or []
        for call in calls:
            if call.get("type", "function") != "function":
                blocks.append(OpaquePart(provider=self.vendor, block=dict(call)))
                continue
            cut_off = stop == "max_tokens" and call is calls[-1]
            value, failure = parse_arguments(call["function"]["arguments"], cut_off=cut_off)
            blocks.append(
                ToolCall(
                    call["id"], names.from_wire(call["function"]["name"]), value, arguments_failure=failure
                )
            )
        if stop == "end_turn" and calls:
            stop = "tool_use"  # compatible servers say "stop" after calls as well
        return response_of(blocks, stop, _usage(body.get("usage") or {}))

    def decoder(self, names: WireNames) -> StreamDecoder:
        return _Decoder(self, names)


def _messages(message: Message, names: WireNames) -> list[dict[str, Any]]:
    if isinstance(message.content, str):
        return [{"role": message.role, "content": message.content}]
    parts = parts_of(message)
    if message.role == "assistant":
        return [_assistant(message, names)]
    if message.role == "system":
        return [
            {"role": "system", "content": "".join(plain(p.text) for p in parts if isinstance(p, TextPart))}
        ]
    answers: list[dict[str, Any]] = []
    rest: list[dict[str, Any]] = []
    moved: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, ToolResultPart):
            text = result_text(part)
            answers.append(
                {
                    "role": "tool",
                    "tool_call_id": part.tool_use_id,
                    "content": f"[tool error]\n{text}" if part.is_error else text,
                }
            )
            media = moved_media(part, names.to_wire(part.name or ""))
            moved.extend(item for piece in (media.parts if media else ()) for item in _content(piece))
        elif isinstance(part, OpaquePart):
            rest.extend([part.block] if part.provider == "openai" else [])
        elif isinstance(part, (TextPart, ImagePart, AudioPart, FilePart)):
            rest.extend(item for piece in _bracketed(part) for item in _content(piece))
    content = [*moved, *rest]
    # Silence has no form on this wire: an empty list is refused (R084).
    return [*answers, *([{"role": "user", "content": content}] if content else [])]


def _assistant(message: Message, names: WireNames) -> dict[str, Any]:
    texts = []
    calls: list[Any] = []
    for part in parts_of(message):
        if isinstance(part, TextPart):
            texts.append(plain(part.text))
        elif isinstance(part, ToolUsePart):
            meta = (part.provider_meta or {}).get("openai", {})
            function = {
                "name": names.to_wire(part.name),
                "arguments": arguments_text(part.input),
            }
            calls.append({"id": part.id, "type": "function", "function": function, **meta})
        elif isinstance(part, OpaquePart) and part.provider == "openai":
            calls.append(part.block)
    text = "".join(texts)
    made: dict[str, Any] = {"role": "assistant", "content": text or (None if calls else "")}
    return {**made, "tool_calls": calls} if calls else made


def _bracketed(part: TextPart | MediaPart) -> list[TextPart | MediaPart]:
    return [part] if isinstance(part, TextPart) else bracketed(part)


def _content(part: TextPart | MediaPart) -> list[dict[str, Any]]:
    if isinstance(part, TextPart):
        return [{"type": "text", "text": plain(part.text)}]
    data = media_data(part)
    if isinstance(part, ImagePart):
        return [{"type": "image_url", "image_url": {"url": f"data:{part.media_type};base64,{data}"}}]
    if isinstance(part, AudioPart):
        if part.media_type not in SOUNDS:
            raise NoForm(part, "openai")
        kind = SOUNDS[part.media_type]
        return [{"type": "input_audio", "input_audio": {"data": data, "format": kind}}]
    name = part.name or f"file.{part.media_type.rpartition('/')[2]}"
    return [
        {"type": "file", "file": {"filename": name, "file_data": f"data:{part.media_type};base64,{data}"}}
    ]


def _usage(usage: Mapping[str, Any]) -> Usage:
    return Usage(
        input_tokens=usage.get("prompt_tokens") or 0,
        output_tokens=usage.get("completion_tokens") or 0,
        cached_input_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
        reasoning_tokens=(usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0,
    )


class _Decoder:
    """One stream: deltas are joined to the message that `complete` would have got."""

    def __init__(self, provider: OpenAIChatProvider, names: WireNames) -> None:
        self._provider = provider
        self._names = names
        self._message: dict[str, Any] = {"content": "", "refusal": "", "reasoning_content": ""}
        self._calls: dict[int, dict[str, Any]] = {}
        self._finish: object = None
        self._usage: Mapping[str, Any] = {}

    def feed(self, event: SseEvent) -> Iterator[Chunk]:
        if event.data.strip() == "[DONE]":
            return
        data = json.loads(event.data)
        if data.get("error"):
            raise ValueError(str(data["error"])[:500])
        self._usage = data.get("usage") or self._usage
        for choice in data.get("choices") or ():
            if choice.get("index", 0) != 0:
                continue
            self._finish = choice.get("finish_reason") or self._finish
            yield from self._delta(choice.get("delta") or {})

    def _delta(self, delta: Mapping[str, Any]) -> Iterator[Chunk]:
        for field in ("content", "refusal"):
            if delta.get(field):
                self._message[field] += delta[field]
                yield Chunk(text_delta=delta[field])
        if thought := delta.get("reasoning_content") or delta.get("reasoning"):
            self._message["reasoning_content"] += thought
            yield Chunk(reasoning_delta=thought)
        for piece in delta.get("tool_calls") or ():
            # Some compatible servers send no index, and each call whole.
            index = piece.get("index", len(self._calls) - (0 if piece.get("id") else 1))
            function = piece.get("function") or {}
            fragment = function.get("arguments") or ""
            if index not in self._calls:
                self._calls[index] = {
                    "id": piece["id"],
                    "type": "function",
                    "function": {"name": function["name"], "arguments": fragment},
                }
                yield Chunk(
                    tool_delta=ToolDelta(
                        index, piece["id"], self._names.from_wire(function["name"]), fragment
                    )
                )
            else:
                self._calls[index]["function"]["arguments"] += fragment
                yield Chunk(tool_delta=ToolDelta(index, fragment=fragment))

    def finish(self) -> Response | None:
        if self._finish is None:
            return None
        message = {**self._message, "tool_calls": [self._calls[index] for index in sorted(self._calls)]}
        choice = {"finish_reason": self._finish, "message": message}
        return self._provider.decode({"choices": [choice], "usage": self._usage}, self._names)
