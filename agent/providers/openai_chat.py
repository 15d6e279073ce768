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
from dataclasses import dataclass, field
from typing import Any

from fumehood.agent._arguments import parse_arguments
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
from fumehood.agent._response import (
    Block,
    Reasoning,
    Response,
    ToolCall,
    Usage,
    beyond,
    noted,
    response_of,
    said,
    tokens,
)
from fumehood.agent.providers._base import HttpProvider, StreamDecoder
from fumehood.agent.providers._openai import is_refusal, of_chat
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
    with_meta,
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
        # Sound has no part here (R462); what was said in it has.
        text = message.get("content") or (message.get("audio") or {}).get("transcript")
        if text:
            blocks.append(said(text, {}, self.vendor))
        if message.get("refusal"):
            blocks.append(said(message["refusal"], {"type": "refusal"}, self.vendor))
            stop = "refusal"
        calls = message.get("tool_calls") or []
        if old := message.get("function_call"):
            calls = [*calls, {"id": "", "function": old}]  # how servers of the first kind say it
        for call in calls:
            if call.get("type", "function") != "function":
                blocks.append(OpaquePart(provider=self.vendor, block=dict(call)))
                continue
            cut_off = stop == "max_tokens" and call is calls[-1]
            value, failure = parse_arguments(call["function"]["arguments"], cut_off=cut_off)
            more = beyond(call, "id", "type", "function", "index")
            blocks.append(
                ToolCall(
                    call["id"] or "",
                    names.from_wire(call["function"]["name"]),
                    value,
                    arguments_failure=failure,
                    provider_meta={self.vendor: more} if more else None,
                )
            )
        if stop == "end_turn" and calls:
            stop = "tool_use"  # compatible servers say "stop" after calls as well
        notes = noted({"annotations": found} if (found := message.get("annotations")) else {}, self.vendor)
        return response_of(blocks, stop, _usage(body.get("usage") or {}), provider_meta=notes)

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
            rest.extend([part.block] if part.provider == "openai" and of_chat(part.block) else [])
        elif isinstance(part, (TextPart, ImagePart, AudioPart, FilePart)):
            rest.extend(item for piece in _bracketed(part) for item in _content(piece))
    content = [*moved, *rest]
    # Silence has no form on this wire: an empty list is refused (R084).
    return [*answers, *([{"role": "user", "content": content}] if content else [])]


def _assistant(message: Message, names: WireNames) -> dict[str, Any]:
    texts: list[str] = []
    refusals: list[str] = []
    calls: list[Any] = []
    for part in parts_of(message):
        if isinstance(part, TextPart):
            (refusals if is_refusal(part) else texts).append(plain(part.text))
        elif isinstance(part, ToolUsePart):
            function = {
                "name": names.to_wire(part.name),
                "arguments": arguments_text(part.input),
            }
            calls.append(with_meta({"id": part.id, "type": "function", "function": function}, part, "openai"))
        elif isinstance(part, OpaquePart) and part.provider == "openai" and of_chat(part.block):
            calls.append(part.block)
    text = "".join(texts)
    made: dict[str, Any] = {"role": "assistant", "content": text or (None if calls or refusals else "")}
    if refusals:
        made["refusal"] = "".join(refusals)
    return {**made, "tool_calls": calls} if calls else made


def _bracketed(part: TextPart | MediaPart) -> list[TextPart | MediaPart]:
    return [part] if isinstance(part, TextPart) else bracketed(part)


def _content(part: TextPart | MediaPart) -> list[dict[str, Any]]:
    if isinstance(part, TextPart):
        return [{"type": "text", "text": plain(part.text)}]
    data = media_data(part)
    if isinstance(part, ImagePart):
        image = {"url": f"data:{part.media_type};base64,{data}"}
        return [{"type": "image_url", "image_url": with_meta(image, part, "openai")}]
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
        input_tokens=tokens(usage, "prompt_tokens"),
        output_tokens=tokens(usage, "completion_tokens"),
        cached_input_tokens=tokens(usage.get("prompt_tokens_details") or {}, "cached_tokens"),
        reasoning_tokens=tokens(usage.get("completion_tokens_details") or {}, "reasoning_tokens"),
    )


class _Decoder:
    """One stream: deltas are joined to the message that `complete` would have got."""

    def __init__(self, provider: OpenAIChatProvider, names: WireNames) -> None:
        self._provider = provider
        self._names = names
        # Joined at the end: a piece added to a long text copies the text.
        self._texts: dict[str, list[str]] = {}
        self._annotations: list[Any] = []
        self._calls: dict[int, _Call] = {}
        self._finish: object = None
        self._usage: Mapping[str, Any] = {}

    def feed(self, event: SseEvent) -> Iterator[Chunk]:
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
        for name in ("content", "refusal"):
            if delta.get(name):
                self._texts.setdefault(name, []).append(delta[name])
                yield Chunk(text_delta=delta[name])
        if heard := (delta.get("audio") or {}).get("transcript"):
            self._texts.setdefault("transcript", []).append(heard)
            yield Chunk(text_delta=heard)
        if thought := delta.get("reasoning_content") or delta.get("reasoning"):
            self._texts.setdefault("reasoning_content", []).append(thought)
            yield Chunk(reasoning_delta=thought)
        self._annotations.extend(delta.get("annotations") or ())
        if old := delta.get("function_call"):
            yield from self._call(-1, {"id": "", "function": old})
        for piece in delta.get("tool_calls") or ():
            # Some compatible servers send no index, and each call whole.
            yield from self._call(piece.get("index", len(self._calls) - (0 if piece.get("id") else 1)), piece)

    def _call(self, index: int, piece: Mapping[str, Any]) -> Iterator[Chunk]:
        call = self._calls.get(index)
        if call is None:
            kind = piece.get("type") or "function"
            if not isinstance(kind, str):
                raise TypeError(f"the call {index} has no kind")
            call = self._calls[index] = _Call(
                kind, {**beyond(piece, "index", kind), "id": piece.get("id") or ""}
            )
        else:
            call.head.update(beyond(piece, "index", "id", "type", call.kind))
        body = dict(piece.get(call.kind) or {})
        fragment = body.pop(call.long, None) or ""
        call.pieces.append(fragment)
        first = not call.body
        call.body.update(body)
        if call.kind == "function":
            at, name = max(index, 0), self._names.from_wire(call.body["name"])
            yield Chunk(
                tool_delta=ToolDelta(at, call.head["id"], name, fragment)
                if first
                else ToolDelta(at, fragment=fragment)
            )

    def finish(self) -> Response | None:
        if self._finish is None:
            return None
        message: dict[str, Any] = {name: "".join(found) for name, found in self._texts.items()}
        message["audio"] = {"transcript": message.pop("transcript", None)}
        message["annotations"] = self._annotations
        in_order = sorted(self._calls, key=lambda index: (index < 0, index))
        message["tool_calls"] = [self._calls[index].whole() for index in in_order]
        choice = {"finish_reason": self._finish, "message": message}
        return self._provider.decode({"choices": [choice], "usage": self._usage}, self._names)


@dataclass(slots=True)
class _Call:
    """A call in pieces: a function's, or another kind's. What it says stands under the name of its kind."""

    kind: str
    head: dict[str, Any]
    body: dict[str, Any] = field(default_factory=dict)
    pieces: list[str] = field(default_factory=list)

    @property
    def long(self) -> str:
        """The field that comes in pieces."""
        return "arguments" if self.kind == "function" else "input"

    def whole(self) -> dict[str, Any]:
        """The call as `complete` would have got it."""
        return {**self.head, "type": self.kind, self.kind: {**self.body, self.long: "".join(self.pieces)}}
