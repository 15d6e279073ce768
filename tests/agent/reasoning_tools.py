"""What the tests of reasoning share."""

from __future__ import annotations

from typing import Any

from fumehood.agent._parts import Message
from fumehood.agent._response import Block, Reasoning, Response, Usage, response_of
from tests.agent.samples import parts_of


def thought(words: str | None = "hm", signature: str | None = "S", kind: Any = "text") -> Reasoning:
    """A reasoning block of Anthropic's."""
    return Reasoning(kind, "anthropic", words, signature)


def made(*blocks: Block) -> Response:
    """A response of these blocks."""
    return response_of(blocks, "end_turn", Usage())


def kinds(message: Message) -> list[str]:
    """The parts of a message in short: texts as they are, others as type and signature or id."""
    return [part if isinstance(part, str) else _kind(part) for part in parts_of(message)]


def _kind(part: Any) -> str:
    if part.type == "text":
        return str(part.text)
    return f"{part.type}:{getattr(part, 'signature', None) or getattr(part, 'id', '')}"
