"""loopctl's saved messages (`parts`, `tool_call`, `call_id`, `output`, `thinking`; R429), there and back.

Readable reasoning is never kept (R312, R486), only its digest and signature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fumehood.agent._errors import MessageStructureError
from fumehood.agent._guard_checks import shown
from fumehood.agent._importing import Json, below, each, field, recorded_reasoning, role_of
from fumehood.agent._parts import (
    DataSource,
    ImagePart,
    Message,
    Part,
    ReasoningPart,
    ResultPart,
    TextPart,
    ToolResultPart,
    ToolUsePart,
)
from fumehood.agent._taint import is_tainted


def from_loopctl(messages: Json | Sequence[Json], *, provider: str = "anthropic") -> tuple[Message, ...]:
    """loopctl's messages as ours.

    messages: one message or a list. provider: who signed the thinking parts. Raises: MessageStructureError.
    """

    def read(message: Json) -> Message:
        role = role_of(message, {"user": "user", "assistant": "assistant", "system": "system"})
        return Message.of(role, each("parts", field(message, "parts", list), lambda p: _part(p, provider)))

    return tuple(each("messages", [messages] if isinstance(messages, Mapping) else messages, read))


def _part(part: Json, provider: str) -> Part:
    match field(part, "type"):
        case "text":
            return TextPart(text=field(part, "text", str, dict))
        case "image":
            return _image(part)
        case "tool_call":
            if "input" not in part:
                raise MessageStructureError("input", "is missing")
            return ToolUsePart(id=field(part, "id"), name=field(part, "name"), input=part["input"])
        case "thinking":
            if part.get("redacted") is not None:
                return ReasoningPart(kind="redacted", provider=provider, signature=field(part, "redacted"))
            return recorded_reasoning(field(part, "text"), part.get("signature"), provider)
        case "tool_result":
            output = field(part, "output", str, dict, list)
            return ToolResultPart(
                tool_use_id=field(part, "call_id"),
                name=part.get("name", ""),
                content=tuple(each("output", output, _output)) if isinstance(output, list) else output,
                is_error=part.get("is_error"),
                retention=part.get("retention"),
            )
        case kind:
            raise MessageStructureError("type", f"loopctl has no part of type {shown(kind)}")


def _image(part: Json) -> ImagePart:
    source = field(part, "source", dict)
    with below("source"):
        if (encoding := field(source, "encoding")) != "base64":
            raise MessageStructureError("encoding", f"{shown(encoding)} is not base64")
        return ImagePart(
            media_type=field(source, "media_type"), source=DataSource(data=field(source, "data"))
        )


def _output(item: Json) -> ResultPart:
    return _image(item) if field(item, "type") == "image" else TextPart(text=field(item, "text", str, dict))


def to_loopctl(message: Message) -> dict[str, Any]:
    """Our message in loopctl's shape, for text, inline images, calls and results.

    Raises: MessageStructureError for what loopctl has no part for (other media, references, opaque blocks).
    """
    content = message.content
    parts = (TextPart(text=content),) if isinstance(content, (str, dict)) else content
    return {"role": message.role, "parts": each("content", parts, _to_part)}


def _to_part(part: Part) -> dict[str, Any]:
    match part:
        case TextPart(text=str(text)):
            return {"type": "text", "text": text}
        case ImagePart(source=DataSource(data=data)):
            return {
                "type": "image",
                "source": {"encoding": "base64", "media_type": part.media_type, "data": data},
            }
        case ToolUsePart():
            return {"type": "tool_call", "id": part.id, "name": part.name, "input": part.input}
        case ReasoningPart(kind="redacted"):
            return {"type": "thinking", "text": "", "redacted": part.signature}
        case ReasoningPart():
            return {"type": "thinking", "text": part.text or ""} | (
                {"signature": part.signature} if part.signature else {}
            )
        case ToolResultPart():
            output = (
                part.content
                if isinstance(part.content, (str, dict))
                else each("content", part.content, _to_part)
            )
            made = {
                "type": "tool_result",
                "call_id": part.tool_use_id,
                "name": part.name or "",
                "output": output,
            }
            return made | {
                k: v for k, v in (("is_error", part.is_error), ("retention", part.retention)) if v is not None
            }
        case _:
            mark = " that is marked" if isinstance(part, TextPart) and is_tainted(part.text) else ""
            raise MessageStructureError("", f"loopctl has no form for a {part.type} part{mark}")
