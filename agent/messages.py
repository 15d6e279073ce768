"""Reading and building messages: the public face of the message models, and importers of other shapes.

Guarantees: `text_of` and `to_parts` read either form of content (R068), so nobody has to look at `.content`,
which joins, format strings and JSON dumps would turn into wrong text (R081; a lint in the tests holds this
over our own code). Text that is still tainted is never handed out as plain text: `text_of` raises,
`tainted_text_of` keeps the mark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fumehood.agent._errors import UntrustedContentError
from fumehood.agent._import_anthropic import from_anthropic
from fumehood.agent._import_gemini import from_gemini
from fumehood.agent._import_loopctl import from_loopctl, to_loopctl
from fumehood.agent._import_openai import from_openai, from_responses
from fumehood.agent._parts import (
    AudioPart,
    Capabilities,
    Content,
    ContentRef,
    DataSource,
    FilePart,
    ImagePart,
    MediaPart,
    Message,
    OpaquePart,
    Part,
    ReasoningPart,
    RefSource,
    Request,
    ResultPart,
    TextPart,
    ToolResultPart,
    ToolSpec,
    ToolUsePart,
    strip_framework_fields,
    text_part,
    tool_call_part,
    tool_result_part,
)
from fumehood.agent._taint import TaintedJson, is_tainted, propagate, unwrap_tainted

__all__ = [
    "AudioPart",
    "Capabilities",
    "Content",
    "ContentRef",
    "DataSource",
    "FilePart",
    "ImagePart",
    "MediaPart",
    "Message",
    "OpaquePart",
    "Part",
    "ReasoningPart",
    "RefSource",
    "Request",
    "ResultPart",
    "TextPart",
    "ToolCallTriple",
    "ToolResultPart",
    "ToolSpec",
    "ToolUsePart",
    "as_text",
    "display",
    "from_anthropic",
    "from_gemini",
    "from_loopctl",
    "from_openai",
    "from_responses",
    "has_structured_parts",
    "strip_framework_fields",
    "tainted_text_of",
    "text_of",
    "text_part",
    "to_loopctl",
    "to_parts",
    "tool_bytes_of",
    "tool_call_part",
    "tool_calls_of",
    "tool_result_part",
]


class ToolCallTriple(NamedTuple):
    """One tool call of a message."""

    id: str
    name: str
    input: Any


def to_parts(content: Content) -> tuple[Part, ...]:
    """The content as parts; a string is one text part, an empty string none."""
    if isinstance(content, (str, Mapping)):
        return (TextPart(text=content),) if content else ()
    return tuple(content)


def has_structured_parts(content: Content) -> bool:
    """Whether the content has anything but text, so that its text alone would lose something."""
    return any(not isinstance(part, TextPart) for part in to_parts(content))


def text_of(content: Content | Message) -> str:
    """The text parts joined with nothing between them; other parts are skipped (R089).

    Raises: UntrustedContentError when a text is tainted; see `tainted_text_of`.
    """
    text = tainted_text_of(content)
    if not isinstance(text, str):
        parts = to_parts(content.content if isinstance(content, Message) else content)
        at = next(at for at, part in enumerate(parts) if isinstance(part, TextPart) and is_tainted(part.text))
        raise UntrustedContentError(
            f"content[{at}]",
            "this text is tainted",
            hint="keep the mark with tainted_text_of, or decide to trust it with unwrap_tainted",
        )
    return text


def tainted_text_of(content: Content | Message) -> str | TaintedJson:
    """`text_of` that keeps the mark: a wrapper with every origin when any text is tainted."""
    parts = to_parts(content.content if isinstance(content, Message) else content)
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    joined = propagate("".join(str(unwrap_tainted(text)) for text in texts), *texts)
    return joined if isinstance(joined, dict) else str(joined)


def as_text(part: Part) -> str | None:
    """The text of a text part; None for any other part, and for tainted text (R093)."""
    return part.text if isinstance(part, TextPart) and isinstance(part.text, str) else None


def tool_calls_of(message: Message) -> list[ToolCallTriple]:
    """Every tool call of a message as (id, name, input), in order (R092)."""
    return [
        ToolCallTriple(part.id, part.name, part.input)
        for part in to_parts(message.content)
        if isinstance(part, ToolUsePart)
    ]


def tool_bytes_of(message: Message) -> str:
    """The tool's own words in a message's text: everything before `tool_chars`, the rest is the
    library's note (R262, R263).
    """
    parts = to_parts(message.content)
    text = "".join(
        result_text(part.content) if isinstance(part, ToolResultPart) else str(unwrap_tainted(part.text))
        for part in parts
        if isinstance(part, (ToolResultPart, TextPart))
    )
    return text if message.tool_chars is None else text[: message.tool_chars]


def result_text(content: object) -> str:
    """A tool output for display: its texts joined with newlines, media skipped (R095)."""
    if isinstance(content, str) or is_tainted(content):
        value = unwrap_tainted(content)
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if not isinstance(content, Sequence):
        return ""
    return "\n".join(str(unwrap_tainted(part.text)) for part in content if isinstance(part, TextPart))


def display(message: Message) -> str:
    """A message for people: parts on lines of their own, everything but text in brackets (R090). Never for a
    model.

    It may differ from `text_of` on purpose (R091).
    """
    return "\n".join(_display_part(part) for part in to_parts(message.content))


def _display_part(part: Part) -> str:
    match part:
        case TextPart():
            return str(unwrap_tainted(part.text))
        case ImagePart() | AudioPart() | FilePart():
            return f"[{part.type.capitalize()}: {part.media_type}]"
        case ToolUsePart():
            return f"[Tool: {part.name} with input: {json.dumps(part.input, ensure_ascii=False)}]"
        case ToolResultPart():
            return f"[Tool Result: {result_text(part.content)}]"
        case ReasoningPart():
            return f"[Reasoning: {part.kind} from {part.provider}]"
        case OpaquePart():
            return f"[Block of {part.provider}]"
