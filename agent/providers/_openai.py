"""What OpenAI's two wires share: one vendor's name on parts of two shapes."""

from __future__ import annotations

from typing import Any

from fumehood.agent._parts import TextPart


def meta_of(part: Any) -> dict[str, Any]:
    """What OpenAI said with a part beyond what the part holds."""
    return (part.provider_meta or {}).get("openai") or {}


def is_refusal(part: TextPart) -> bool:
    """Whether OpenAI said this text as a refusal."""
    return meta_of(part).get("type") == "refusal"


def of_chat(block: Any) -> bool:
    """Whether an opaque block is one of Chat Completions, which puts what it says under the name of its type;
    items of Responses never do. Neither wire takes the other's.
    """
    return isinstance(block, dict) and isinstance(block.get(str(block.get("type"))), dict)
