"""Messages of an Anthropic Messages request as ours.

Guarantees: blocks arrive in order; what a block says beyond its part (a cache mark, citations, the caller of
a call) stays with the part and goes back to Anthropic with it; a block without a counterpart becomes an
opaque part that goes back byte for byte. Readable reasoning is never kept (R312, R486).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from fumehood.agent._errors import MessageStructureError
from fumehood.agent._guard_checks import shown
from fumehood.agent._importing import (
    Json,
    below,
    each,
    field,
    media_part,
    meta_of,
    out_of_scope,
    recorded_reasoning,
    role_of,
    text_file,
)
from fumehood.agent._parts import (
    FilePart,
    ImagePart,
    Message,
    OpaquePart,
    Part,
    ReasoningPart,
    ResultPart,
    TextPart,
    ToolResultPart,
    ToolUsePart,
)

_VENDOR = "anthropic"


def from_anthropic(messages: Sequence[Json]) -> tuple[Message, ...]:
    """Messages of an Anthropic Messages request as ours. Raises: MessageStructureError."""
    return tuple(each("messages", messages, _message))


def _message(message: Json) -> Message:
    role = role_of(message, {"user": "user", "assistant": "assistant"})
    body = field(message, "content", str, list)
    return Message(role=role, content=body if isinstance(body, str) else tuple(each("content", body, _part)))


def _part(block: Json) -> Part:
    match field(block, "type"):
        case "text":
            return TextPart(text=field(block, "text"), provider_meta=meta_of(block, _VENDOR, "type", "text"))
        case "image" | "document":
            return _media(block)
        case "tool_use":
            if "input" not in block:
                raise MessageStructureError("input", "is missing")
            return ToolUsePart(
                id=field(block, "id"),
                name=field(block, "name"),
                input=block["input"],
                provider_meta=meta_of(block, _VENDOR, "type", "id", "name", "input"),
            )
        case "tool_result":
            inner = "" if block.get("content") is None else field(block, "content", str, list)
            return ToolResultPart(
                tool_use_id=field(block, "tool_use_id"),
                content=inner if isinstance(inner, str) else tuple(each("content", inner, _inner)),
                is_error=block.get("is_error"),
                provider_meta=meta_of(block, _VENDOR, "type", "tool_use_id", "content", "is_error"),
            )
        case "thinking":
            return recorded_reasoning(field(block, "thinking"), block.get("signature"), _VENDOR)
        case "redacted_thinking":
            return ReasoningPart(kind="redacted", provider=_VENDOR, signature=field(block, "data"))
        case _:
            return OpaquePart(provider=_VENDOR, block=dict(block))


def _inner(block: Json) -> ResultPart:
    made = _part(block)
    if not isinstance(made, (TextPart, ImagePart, FilePart)):
        raise MessageStructureError("type", f"{shown(block['type'])} in a tool_result has no form here")
    return cast(ResultPart, made)


def _media(block: Json) -> Part:
    source = field(block, "source", dict)
    meta = meta_of(block, _VENDOR, "type", "source", "title")
    name = block.get("title")
    with below("source"):
        match field(source, "type"):
            case "base64":
                return media_part(field(source, "media_type"), field(source, "data"), name, meta)
            case "text":
                return text_file(field(source, "data"), name, meta)
            case "content":
                return OpaquePart(provider=_VENDOR, block=dict(block))
            case kind:
                raise out_of_scope("type", shown(kind))
