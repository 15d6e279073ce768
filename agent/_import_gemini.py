"""Contents of a Gemini generateContent request as ours.

Guarantees: parts arrive in order, each signature with its own part; what a part says beyond text, call or
media stays with it and goes back to Gemini with it; a part without a counterpart becomes an opaque part that
goes back byte for byte. Readable reasoning is never kept (R312, R486).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from fumehood.agent._errors import MessageStructureError
from fumehood.agent._importing import (
    Json,
    below,
    each,
    field,
    json_text,
    media_part,
    meta_of,
    out_of_scope,
    recorded_reasoning,
    role_of,
)
from fumehood.agent._parts import (
    Message,
    OpaquePart,
    Part,
    ReasoningPart,
    ResultPart,
    TextPart,
    ToolResultPart,
    ToolUsePart,
)

_VENDOR = "gemini"
_SAYS = frozenset({"text", "inlineData", "fileData", "functionCall", "functionResponse"})


def from_gemini(contents: Sequence[Json]) -> tuple[Message, ...]:
    """Contents of a Gemini generateContent request as ours. Calls without an id get one by
    position. Raises: MessageStructureError.
    """
    reader = _Reader()
    return tuple(each("contents", contents, reader.message))


class _Reader:
    """The calls of a transcript that wait for their answers, which Gemini pairs by name and order."""

    def __init__(self) -> None:
        self._waiting: list[tuple[str, str]] = []
        self._numbers: Iterator[int] = count(1)

    def message(self, entry: Json) -> Message:
        roles: Any = {"user": "user", "function": "user", "model": "assistant"}
        role = role_of(entry, roles) if isinstance(entry, dict) and "role" in entry else "user"
        parts = field(entry, "parts", list) if isinstance(entry, dict) and "parts" in entry else []
        if not isinstance(entry, dict):
            field(entry, "parts", list)
        return Message.of(role, [part for made in each("parts", parts, self._parts) for part in made])

    def _parts(self, part: Json) -> list[Part]:
        if not isinstance(part, dict):
            raise MessageStructureError("", "is not an object")
        says = _SAYS.intersection(part)
        signature = part.get("thoughtSignature")
        if says == {"text"}:
            text = field(part, "text")
            if part.get("thought"):
                return [recorded_reasoning(text, signature, _VENDOR, "summary")]
            meta = meta_of(part, _VENDOR, "text", "thought", "thoughtSignature")
            mark = ReasoningPart(kind="redacted", provider=_VENDOR, signature=signature)
            return [TextPart(text=text, provider_meta=meta), *([] if signature is None else [mark])]
        if says == {"inlineData"}:
            return [self._media(part)]
        if says == {"fileData"}:
            raise out_of_scope("fileData", "a file URI")
        if says == {"functionCall"}:
            return [self._call(part, signature)]
        if says == {"functionResponse"}:
            answer = field(part, "functionResponse", dict)
            with below("functionResponse"):
                return [self._answer(answer)]
        return [OpaquePart(provider=_VENDOR, block=dict(part))]

    def _media(self, part: Json) -> Any:
        data = field(part, "inlineData", dict)
        with below("inlineData"):
            return media_part(
                field(data, "mimeType"), field(data, "data"), meta=meta_of(part, _VENDOR, "inlineData")
            )

    def _call(self, part: Json, signature: str | None) -> Part:
        call = field(part, "functionCall", dict)
        with below("functionCall"):
            name = field(call, "name")
        id_ = call.get("id") or f"call_{next(self._numbers)}"
        self._waiting.append((id_, name))
        return ToolUsePart(
            id=id_,
            name=name,
            input=call.get("args", {}),
            signature=signature,
            provider_meta=meta_of(part, _VENDOR, "functionCall", "thoughtSignature"),
        )

    def _answer(self, answer: Json) -> Part:
        name = field(answer, "name")
        id_ = answer.get("id") or next((id_ for id_, of in self._waiting if of == name), "")
        self._waiting[:] = [entry for entry in self._waiting if entry[0] != id_]
        body = field(answer, "response", dict) if "response" in answer else {}
        failed, plain = set(body) == {"error"}, set(body) == {"output"}
        value = body["error"] if failed else body["output"] if plain else body
        text = value if isinstance(value, str) else json_text(value, "response")
        media: list[ResultPart] = each("parts", answer.get("parts") or [], self._media)
        return ToolResultPart(
            tool_use_id=id_,
            name=name,
            content=(TextPart(text=text), *media) if media else text,
            is_error=True if failed else None,
            provider_meta=meta_of(answer, _VENDOR, "id", "name", "response", "parts"),
        )
