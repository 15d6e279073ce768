"""Anthropic Messages: the canonical request as content blocks, and back.

Guarantees: blocks go in message order and are never regrouped (R181); thinking blocks go back with text and
signature as they came, redacted ones with their data (R172); an unknown block goes back unchanged. Thinking
is asked for only when configured (R179). The vendor's rules on thinking are from its documentation and were
not tried live (R466). Source: Messages API reference, version header 2023-06-01.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from fumehood.agent._arguments import checked_input, parse_arguments
from fumehood.agent._capabilities import ANTHROPIC
from fumehood.agent._errors import ProviderError
from fumehood.agent._media import decode_base64
from fumehood.agent._parts import (
    AudioPart,
    FilePart,
    ImagePart,
    MediaPart,
    OpaquePart,
    Part,
    ReasoningPart,
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
from fumehood.agent.providers._sse import SseEvent
from fumehood.agent.providers._types import Chunk, ModelHttp, ToolDelta
from fumehood.agent.providers._wire import (
    NoForm,
    WireNames,
    bracketed,
    media_data,
    object_input,
    parts_of,
    plain,
    result_parts,
    system_text,
    with_meta,
)

VERSION: Final = "2023-06-01"

_ENVELOPE: Final = ("id", "type", "role", "model", "content", "stop_reason", "usage")
"""The fields of an answer that have a name here or belong to the exchange. The others, such as the container
that code ran in, are kept for reading.
"""


class AnthropicProvider(HttpProvider):
    """Anthropic's models. thinking: the request's `thinking` object, passed through as it is; None
    sends none.
    """

    default_url = "https://api.anthropic.com"
    table = ANTHROPIC
    vendor = "anthropic"

    def __init__(
        self, http: ModelHttp, model: str, *, thinking: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        super().__init__(http, model, **options)
        self._thinking = thinking

    def url(self, *, stream: bool) -> str:
        return f"{self._url}/v1/messages"

    def headers(self) -> tuple[tuple[str, str], ...]:
        key = () if self._api_key is None else (("x-api-key", self._api_key),)
        return (("anthropic-version", VERSION), *key)

    def encode(self, request: Request, names: WireNames, *, stream: bool) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self._model, "max_tokens": self._max_tokens}
        if (system := system_text(request)) is not None:
            body["system"] = system
        body["messages"] = []
        for message in request.messages:
            if message.role == "system":
                continue
            if isinstance(message.content, str):
                content: Any = message.content
            else:
                content = [block for part in parts_of(message) for block in _blocks(part, names)]
            if content:  # silence has no form on this wire (R084)
                body["messages"].append({"role": message.role, "content": content})
        if request.tools:
            body["tools"] = [
                {
                    "name": names.to_wire(tool.name),
                    "description": tool.description,
                    "input_schema": tool.input_schema,
                }
                for tool in request.tools
            ]
        if self._thinking is not None:
            body["thinking"] = dict(self._thinking)
        if stream:
            body["stream"] = True
        return body

    def decode(self, body: Mapping[str, Any], names: WireNames) -> Response:
        stop = _stop(body.get("stop_reason"))
        found = body["content"]
        blocks = [
            self._block(block, names, cut_off=stop == "max_tokens" and block is found[-1]) for block in found
        ]
        notes = noted(beyond(body, *_ENVELOPE), self.vendor)
        return response_of(blocks, stop, _usage(body.get("usage") or {}), provider_meta=notes)

    def decoder(self, names: WireNames) -> StreamDecoder:
        return _Decoder(self, names)

    def _block(self, block: Mapping[str, Any], names: WireNames, *, cut_off: bool) -> Block:
        match block["type"]:
            case "text":
                return said(block["text"], beyond(block, "type", "text"), self.vendor)
            case "thinking":
                # The display that was asked for is the vendor's own label of what comes back (R306).
                kind = "summary" if (self._thinking or {}).get("display") == "summarized" else "text"
                return Reasoning(kind, self.vendor, block["thinking"], block.get("signature"))  # type: ignore[arg-type]
            case "redacted_thinking":
                return Reasoning("redacted", self.vendor, None, block["data"])
            case "tool_use":
                raw = block["input"]
                value, failure = (
                    parse_arguments(raw, cut_off=cut_off)
                    if cut_off or isinstance(raw, str)
                    else checked_input(raw)
                )
                more = beyond(block, "type", "id", "name", "input")
                return ToolCall(
                    block["id"],
                    names.from_wire(block["name"]),
                    value,
                    arguments_failure=failure,
                    provider_meta={self.vendor: more} if more else None,
                )
            case _:
                return OpaquePart(provider=self.vendor, block=dict(block))


def _blocks(part: Part, names: WireNames) -> list[dict[str, Any]]:
    match part:
        case TextPart():
            return _content(part)
        case ImagePart() | AudioPart() | FilePart():
            return [block for item in bracketed(part) for block in _content(item)]
        case ToolUsePart():
            call = {
                "type": "tool_use",
                "id": part.id,
                "name": names.to_wire(part.name),
                "input": object_input(part.input),
            }
            return [with_meta(call, part, "anthropic")]
        case ToolResultPart():
            return [_result(part)]
        case ReasoningPart(provider="anthropic", kind="redacted", signature=str(data)):
            return [{"type": "redacted_thinking", "data": data}]
        case ReasoningPart(provider="anthropic", signature=str(signature)):
            return [{"type": "thinking", "thinking": part.text or "", "signature": signature}]
        case OpaquePart(provider="anthropic"):
            return [part.block]
        case _:
            return []  # another vendor's block, or thinking without a signature: neither may be sent here


def _result(part: ToolResultPart) -> dict[str, Any]:
    if isinstance(part.content, str):
        content: Any = part.content
    else:
        content = [
            block
            for inner in result_parts(part)
            for item in (bracketed(inner) if not isinstance(inner, TextPart) else [inner])
            for block in _content(item)
        ]
    made = {"type": "tool_result", "tool_use_id": part.tool_use_id, "content": content}
    return with_meta({**made, "is_error": True} if part.is_error else made, part, "anthropic")


def _content(part: TextPart | MediaPart) -> list[dict[str, Any]]:
    if isinstance(part, TextPart):
        return [with_meta({"type": "text", "text": plain(part.text)}, part, "anthropic")] if part.text else []
    data = media_data(part)
    if isinstance(part, ImagePart):
        image = {"type": "base64", "media_type": part.media_type, "data": data}
        return [with_meta({"type": "image", "source": image}, part, "anthropic")]
    source: dict[str, Any]
    if part.media_type == "application/pdf":
        source = {"type": "base64", "media_type": part.media_type, "data": data}
    elif part.media_type.startswith("text/") or part.media_type == "application/json":
        source = {
            "type": "text",
            "media_type": "text/plain",
            "data": decode_base64(data).decode("utf-8", "replace"),
        }
    else:
        raise NoForm(part, "anthropic")
    title = {"title": part.name} if part.name else {}
    return [with_meta({"type": "document", "source": source, **title}, part, "anthropic")]


def _stop(reason: object) -> str:
    return reason if isinstance(reason, str) else "end_turn"


def _usage(usage: Mapping[str, Any]) -> Usage:
    return Usage(
        input_tokens=tokens(usage, "input_tokens"),
        output_tokens=tokens(usage, "output_tokens"),
        cached_input_tokens=tokens(usage, "cache_read_input_tokens"),
    )


class _Decoder:
    """One stream. Blocks are kept by index and count only once the vendor closed them."""

    def __init__(self, provider: AnthropicProvider, names: WireNames) -> None:
        self._provider = provider
        self._names = names
        self._open: dict[int, dict[str, Any]] = {}
        self._pieces: dict[int, dict[str, list[str]]] = {}
        self._done: dict[int, dict[str, Any]] = {}
        self._calls: dict[int, int] = {}
        self._envelope: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._stop: object = None
        self._ended = False

    def feed(self, event: SseEvent) -> Iterator[Chunk]:
        data = json.loads(event.data)
        match data["type"]:
            case "message_start":
                self._usage.update(data["message"].get("usage") or {})
                self._envelope.update(beyond(data["message"], *_ENVELOPE))
            case "content_block_start":
                yield from self._start(data["index"], dict(data["content_block"]))
            case "content_block_delta":
                yield from self._delta(data["index"], data["delta"])
            case "content_block_stop":
                self._close(data["index"])
            case "message_delta":
                self._stop = data["delta"].get("stop_reason", self._stop)
                self._envelope.update(beyond(data["delta"], *_ENVELOPE))
                self._usage.update({k: v for k, v in (data.get("usage") or {}).items() if v is not None})
            case "message_stop":
                self._ended = True
            case "error":
                error = data.get("error") or {}
                kind = error.get("type")
                retryable = kind in ("overloaded_error", "api_error", "rate_limit_error")
                raise ProviderError(
                    f"anthropic: {kind}: {str(error.get('message'))[:500]}", retryable=retryable
                )
            case _:
                pass  # ping, and events this code has no name for yet

    def _start(self, index: int, block: dict[str, Any]) -> Iterator[Chunk]:
        if self._ended or index in self._open or index in self._done:
            raise ValueError(f"a second block {index}")
        self._open[index] = block
        self._pieces[index] = {}
        if block["type"] == "tool_use":
            self._calls[index] = len(self._calls)
            name = self._names.from_wire(block["name"])
            yield Chunk(tool_delta=ToolDelta(self._calls[index], block["id"], name))
        elif block["type"] == "text" and block.get("text"):
            yield Chunk(text_delta=block["text"])

    def _delta(self, index: int, delta: Mapping[str, Any]) -> Iterator[Chunk]:
        block, pieces = self._open[index], self._pieces[index]
        match delta["type"]:
            case "citations_delta":
                block["citations"] = block.get("citations") or []
                block["citations"].append(delta["citation"])
            case "input_json_delta":
                pieces.setdefault("input", []).append(delta["partial_json"])
                if index in self._calls:
                    yield Chunk(tool_delta=ToolDelta(self._calls[index], fragment=delta["partial_json"]))
            case kind:
                # text, thinking and signature deltas, and those to come: a field's next letters, or a value.
                for name, value in delta.items():
                    if name != "type":
                        self._grow(block, pieces, name, value)
                if kind == "text_delta":
                    yield Chunk(text_delta=delta["text"])
                elif kind == "thinking_delta":
                    yield Chunk(reasoning_delta=delta["thinking"])

    @staticmethod
    def _grow(block: dict[str, Any], pieces: dict[str, list[str]], name: str, value: Any) -> None:
        if isinstance(value, str):
            pieces.setdefault(name, [block.get(name) or ""]).append(value)
        elif isinstance(value, list):
            block[name] = block.get(name) or []
            block[name].extend(value)
        else:
            block[name] = value

    def _close(self, index: int) -> None:
        block = self._open.pop(index)
        # Joined once: a piece added to a long text copies the text.
        whole = {name: "".join(found) for name, found in self._pieces.pop(index).items()}
        text = whole.pop("input", "")
        block.update(whole)
        if text and "input" in block:
            # A call's text is judged later, with the stop reason at hand; another block's input is the
            # vendor's own JSON.
            block["input"] = text if block["type"] == "tool_use" else json.loads(text)
        self._done[index] = block

    def finish(self) -> Response | None:
        if not self._ended or self._open:
            return None  # an open block is half a block: its signature covers more than came (A13)
        content = [self._done[index] for index in sorted(self._done)]
        return self._provider.decode(
            {**self._envelope, "content": content, "stop_reason": self._stop, "usage": self._usage},
            self._names,
        )
