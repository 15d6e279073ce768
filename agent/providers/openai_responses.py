"""OpenAI Responses: the wire that carries reasoning between calls.

Guarantees: every request is self-contained (`store: false`): reasoning goes back as its encrypted content, in
its place among the items, and names no server-side id (E7); results hold their media themselves. Encrypted
reasoning is asked for only of models that reason; a readable summary only when configured. Items without a
counterpart go back unchanged. Leaving out a reasoning item's id follows what OpenAI's own open-source client
does, and was not tried live (R466). Source: Responses API reference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from fumehood.agent._arguments import parse_arguments
from fumehood.agent._capabilities import OPENAI
from fumehood.agent._errors import ProviderError
from fumehood.agent._parts import (
    AudioPart,
    FilePart,
    ImagePart,
    MediaPart,
    Message,
    OpaquePart,
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
    response_of,
    said,
    tokens,
)
from fumehood.agent.providers._base import HttpProvider, StreamDecoder
from fumehood.agent.providers._openai import is_refusal, meta_of, of_chat
from fumehood.agent.providers._sse import SseEvent
from fumehood.agent.providers._types import Chunk, ModelHttp, ToolDelta
from fumehood.agent.providers._wire import (
    NoForm,
    WireNames,
    arguments_text,
    bracketed,
    media_data,
    parts_of,
    plain,
    result_parts,
    with_meta,
)

SEPARATOR = "\n\n"
"""Between the summary parts of one reasoning item."""


class OpenAIResponsesProvider(HttpProvider):
    """OpenAI's models over Responses. reasoning: the request's `reasoning` object ({"effort",
    "summary"}), passed through; None sends none.
    """

    default_url = "https://api.openai.com/v1"
    table = OPENAI
    vendor = "openai"

    def __init__(
        self, http: ModelHttp, model: str, *, reasoning: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        super().__init__(http, model, **options)
        self._reasoning = reasoning
        if self._capabilities.audio and options.get("capabilities") is None:
            self._capabilities = self._capabilities.model_copy(
                update={"audio": None}
            )  # this wire has no sound

    def url(self, *, stream: bool) -> str:
        return f"{self._url}/responses"

    def headers(self) -> tuple[tuple[str, str], ...]:
        return () if self._api_key is None else (("authorization", f"Bearer {self._api_key}"),)

    def encode(self, request: Request, names: WireNames, *, stream: bool) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self._model, "store": False, "max_output_tokens": self._max_tokens}
        if request.system:
            body["instructions"] = plain(request.system)
        body["input"] = [item for message in request.messages for item in _items(message, names)]
        if request.tools:
            body["tools"] = [
                {
                    "type": "function",
                    "name": names.to_wire(tool.name),
                    "description": tool.description,
                    "parameters": tool.input_schema,
                    "strict": False,
                }
                for tool in request.tools
            ]
        if self._capabilities.reasoning:
            body["include"] = ["reasoning.encrypted_content"]
        if self._reasoning is not None:
            body["reasoning"] = dict(self._reasoning)
        if stream:
            body["stream"] = True
        return body

    def decode(self, body: Mapping[str, Any], names: WireNames) -> Response:
        if body.get("status") == "failed":
            error = body.get("error") or {}
            raise ProviderError(
                f"openai: {error.get('code')}: {str(error.get('message'))[:500]}",
                retryable=error.get("code") == "server_error",
            )
        why = (body.get("incomplete_details") or {}).get("reason")
        stop = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}.get(str(why), "end_turn")
        blocks: list[Block] = []
        output = body["output"]
        if not isinstance(output, list):
            raise ValueError("output is not a list")
        for item in output:
            match item["type"]:
                case "message":
                    refused = any(part["type"] == "refusal" for part in item["content"])
                    stop = "refusal" if refused else stop
                    blocks.extend(_said(item))
                case "function_call":
                    cut_off = stop == "max_tokens" and item is output[-1]
                    value, failure = parse_arguments(item["arguments"], cut_off=cut_off)
                    more = beyond(item, "type", "id", "call_id", "name", "arguments", "status")
                    blocks.append(
                        ToolCall(
                            item["call_id"],
                            names.from_wire(item["name"]),
                            value,
                            arguments_failure=failure,
                            provider_meta={self.vendor: more} if more else None,
                        )
                    )
                case "reasoning":
                    blocks.append(_thought(item))
                case _:
                    blocks.append(OpaquePart(provider=self.vendor, block=dict(item)))
        if stop == "end_turn" and any(isinstance(block, ToolCall) for block in blocks):
            stop = "tool_use"
        return response_of(blocks, stop, _usage(body.get("usage") or {}))

    def decoder(self, names: WireNames) -> StreamDecoder:
        return _Decoder(self, names)


def _said(item: Mapping[str, Any]) -> Iterator[Block]:
    """The texts of an answer's message, each with what was said of it and of the message."""
    of_message = beyond(item, "type", "id", "role", "status", "content")
    for part in item["content"]:
        kind = part["type"]
        if kind not in ("output_text", "refusal"):
            alone = {"type": "message", "role": "assistant", "content": [dict(part)], **of_message}
            yield OpaquePart(provider="openai", block=alone)
            continue
        field = "text" if kind == "output_text" else "refusal"
        more = beyond(part, "type", field, "logprobs")
        more |= {"type": "refusal"} if kind == "refusal" else {}
        more |= {"message": of_message} if of_message else {}
        yield said(part[field], more, "openai")


def _message(part: TextPart) -> dict[str, Any]:
    """An assistant's text as an item; as a plain string when nothing more was said of it."""
    text, meta = plain(part.text), dict(meta_of(part))
    if not meta:
        return {"type": "message", "role": "assistant", "content": text}
    of_message = meta.pop("message", None) or {}
    if is_refusal(part):
        content: dict[str, Any] = {"type": "refusal", "refusal": text}
    else:
        content = {"type": "output_text", "text": text, "annotations": []}
        meta.pop("text", None)
        content |= meta
    return {"type": "message", "role": "assistant", "content": [content], **of_message}


def _thought(item: Mapping[str, Any]) -> Reasoning:
    """A reasoning item. The signature holds what the vendor wants back and how the text was cut
    into parts.
    """
    texts = [part["text"] for part in item.get("content") or ()]
    kind = "text" if texts else "summary"
    texts = texts or [part["text"] for part in item.get("summary") or ()]
    encrypted = item.get("encrypted_content")
    signature = encrypted
    if encrypted is not None and (len(texts) > 1 or kind == "text"):
        signature = json.dumps(
            {"encrypted_content": encrypted, "kind": kind, "lengths": [len(text) for text in texts]}
        )
    return Reasoning(kind, "openai", SEPARATOR.join(texts), signature)  # type: ignore[arg-type]


def _thought_item(part: ReasoningPart) -> list[dict[str, Any]]:
    if part.signature is None:
        return []  # without encrypted content there is nothing that the vendor could continue from
    encrypted, kind, texts = part.signature, "summary", [part.text] if part.text else []
    if (packed := _packed(part.signature)) is not None:
        encrypted, kind, lengths = packed
        texts, at = [], 0
        for length in lengths if part.text else ():
            texts.append((part.text or "")[at : at + length])
            at += length + len(SEPARATOR)
    summary = [{"type": "summary_text", "text": text} for text in texts] if kind == "summary" else []
    item: dict[str, Any] = {"type": "reasoning", "summary": summary, "encrypted_content": encrypted}
    if kind == "text":
        item["content"] = [{"type": "reasoning_text", "text": text} for text in texts]
    return [item]


def _packed(signature: str) -> tuple[str, str, list[int]] | None:
    """What `_thought` packed into a signature; None for any other, which is the vendor's own and goes back as
    it is.
    """
    if not signature.startswith('{"encrypted_content": '):
        return None
    try:
        value = json.loads(signature)
        encrypted, kind, lengths = value["encrypted_content"], value["kind"], value["lengths"]
    except (ValueError, KeyError, RecursionError):
        return None
    fits = (
        isinstance(encrypted, str)
        and kind in ("text", "summary")
        and isinstance(lengths, list)
        and all(type(length) is int and length >= 0 for length in lengths)
    )
    return (encrypted, kind, lengths) if fits else None


def _items(message: Message, names: WireNames) -> list[dict[str, Any]]:
    if isinstance(message.content, str):
        return [{"type": "message", "role": message.role, "content": message.content}]
    items: list[dict[str, Any]] = []
    content: list[dict[str, Any]] = []

    def flush() -> None:
        if content:
            items.append({"type": "message", "role": message.role, "content": list(content)})
            content.clear()

    for part in parts_of(message):
        match part:
            case TextPart() if message.role == "assistant":
                if part.text:
                    flush()
                    items.append(_message(part))
            case TextPart():
                content.append({"type": "input_text", "text": plain(part.text)})
            case ImagePart() | AudioPart() | FilePart():
                content.extend(block for item in bracketed(part) for block in _content(item))
            case ToolUsePart():
                flush()
                call = {
                    "type": "function_call",
                    "call_id": part.id,
                    "name": names.to_wire(part.name),
                    "arguments": arguments_text(part.input),
                }
                items.append(with_meta(call, part, "openai"))
            case ToolResultPart():
                flush()
                answer = {
                    "type": "function_call_output",
                    "call_id": part.tool_use_id,
                    "output": _output(part),
                }
                items.append(with_meta(answer, part, "openai"))
            case ReasoningPart(provider="openai"):
                flush()
                items.extend(_thought_item(part))
            case OpaquePart(provider="openai") if not of_chat(part.block):
                flush()
                items.append(part.block)
            case _:
                pass
    flush()
    return items


def _output(part: ToolResultPart) -> Any:
    lead = "[tool error]\n" if part.is_error else ""
    if isinstance(part.content, str):
        return lead + part.content
    blocks = [
        block
        for inner in result_parts(part)
        for item in (bracketed(inner) if not isinstance(inner, TextPart) else [inner])
        for block in _content(item)
    ]
    if not blocks:
        return lead.strip()  # an empty list is no output on this wire
    return [{"type": "input_text", "text": lead.strip()}, *blocks] if lead else blocks


def _content(part: TextPart | MediaPart) -> list[dict[str, Any]]:
    if isinstance(part, TextPart):
        return [with_meta({"type": "input_text", "text": plain(part.text)}, part, "openai")]
    if isinstance(part, AudioPart):
        raise NoForm(part, "openai")
    url = f"data:{part.media_type};base64,{media_data(part)}"
    if isinstance(part, ImagePart):
        image = with_meta({"type": "input_image", "image_url": url}, part, "openai")
        return [{"detail": "auto", **image}]
    name = part.name or f"file.{part.media_type.rpartition('/')[2]}"
    return [with_meta({"type": "input_file", "filename": name, "file_data": url}, part, "openai")]


def _usage(usage: Mapping[str, Any]) -> Usage:
    return Usage(
        input_tokens=tokens(usage, "input_tokens"),
        output_tokens=tokens(usage, "output_tokens"),
        cached_input_tokens=tokens(usage.get("input_tokens_details") or {}, "cached_tokens"),
        reasoning_tokens=tokens(usage.get("output_tokens_details") or {}, "reasoning_tokens"),
    )


class _Decoder:
    """One stream. The terminal event repeats the whole response, so that alone is decoded; deltas
    are only shown.
    """

    def __init__(self, provider: OpenAIResponsesProvider, names: WireNames) -> None:
        self._provider = provider
        self._names = names
        self._calls: dict[int, int] = {}
        self._response: Mapping[str, Any] | None = None

    def feed(self, event: SseEvent) -> Iterator[Chunk]:
        data = json.loads(event.data)
        match data["type"]:
            case "response.output_text.delta" | "response.refusal.delta":
                yield Chunk(text_delta=data["delta"])
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                yield Chunk(reasoning_delta=data["delta"])
            case "response.reasoning_summary_part.added" if data["summary_index"] > 0:
                yield Chunk(reasoning_delta=SEPARATOR)
            case "response.output_item.added" if data["item"]["type"] == "function_call":
                self._calls[data["output_index"]] = index = len(self._calls)
                item = data["item"]
                yield Chunk(tool_delta=ToolDelta(index, item["call_id"], self._names.from_wire(item["name"])))
            case "response.function_call_arguments.delta":
                yield Chunk(tool_delta=ToolDelta(self._calls[data["output_index"]], fragment=data["delta"]))
            case "response.completed" | "response.incomplete" | "response.failed":
                self._response = data["response"]
            case "error":
                raise ProviderError(
                    f"openai: {data.get('code')}: {str(data.get('message'))[:500]}", retryable=True
                )
            case _:
                pass

    def finish(self) -> Response | None:
        return None if self._response is None else self._provider.decode(self._response, self._names)
