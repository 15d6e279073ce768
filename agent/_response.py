"""What a provider gives back, and how it becomes the assistant's turn.

Guarantees: the shape is `content, tool_calls, stop_reason, usage`, plus `reasoning`, `layout`, `opaque`,
`text_meta` and `provider_meta` only when the vendor returned such things, so a response without them is
written exactly as before they existed (R198, R319, R322). A text with citations is readable in `content` and
goes back to its vendor with them. `layout` holds positions and never content (R320, R327); a layout that does
not fit drops every reasoning part rather than reordering, because stripping is always valid and moving never
is (R325). A call's own signature is never dropped (R202).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from fumehood.agent._arguments import FailureReason
from fumehood.agent._parts import (
    MAX_SAFE_INTEGER,
    Message,
    OpaquePart,
    Part,
    ReasoningKind,
    ReasoningPart,
    TextPart,
    ToolUsePart,
)
from fumehood.agent._seal import text_digest
from fumehood.agent._taint import tainted

LayoutEntry: TypeAlias = str | Mapping[str, Any]
"""`"reasoning"`, `"opaque"`, `{"call": id}` or `{"text": n}` with n characters of the content."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, as the vendor counted them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    reasoning_tokens: int = 0


def tokens(counts: Mapping[str, Any], name: str) -> int:
    """A vendor's count of tokens; 0 for what is none. A count is no reason to lose an answer over."""
    value = counts.get(name)
    return value if type(value) is int and 0 <= value <= MAX_SAFE_INTEGER else 0


@dataclass(frozen=True, slots=True)
class VendorText:
    """A text block that says more than its letters: its citations, that it is a refusal. provider_meta: see
    `_parts.ProviderMeta`.
    """

    text: str
    provider_meta: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TextMeta:
    """What belongs to one text of a response. text: which one of the layout's texts, from 0."""

    text: int
    provider_meta: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool the model asks for. arguments_failure: why `input` is not usable (R292); the call is
    never run then.
    """

    id: str
    name: str
    input: Any
    signature: str | None = None
    arguments_failure: FailureReason | None = None
    provider_meta: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Reasoning as the vendor returned it (R305): lives on a response only, never in a step value (R310).

    text: "" for a block shown without its text, None for a redacted one. signature: the vendor's bytes, never
    read here.
    """

    kind: ReasoningKind
    provider: str
    text: str | None = None
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """One answer. stop_reason: end_turn | tool_use | max_tokens | stop_sequence | refusal, or the
    vendor's own word.

    provider_meta: what the vendor said of the answer as a whole that has no name here, by provider name, such
    as Gemini's grounding; for reading, since no wire takes it back. Marked as untrusted: titles and
    quotations of web pages are in it.
    """

    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    stop_reason: str = "end_turn"
    usage: Usage = field(default_factory=Usage)
    reasoning: tuple[Reasoning | ReasoningPart, ...] = ()
    layout: tuple[LayoutEntry, ...] | None = None
    opaque: tuple[OpaquePart, ...] = ()
    text_meta: tuple[TextMeta, ...] = ()
    provider_meta: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """The step value. Raises: ValueError while it still holds readable reasoning (R312)."""
        made: dict[str, Any] = {
            "content": self.content,
            "tool_calls": [_call_json(call) for call in self.tool_calls],
            "stop_reason": self.stop_reason,
            "usage": {
                "input_tokens": self.usage.input_tokens,
                "output_tokens": self.usage.output_tokens,
                "cached_input_tokens": self.usage.cached_input_tokens,
                "reasoning_tokens": self.usage.reasoning_tokens,
            },
        }
        if self.reasoning:
            if not all(isinstance(part, ReasoningPart) for part in self.reasoning):
                raise ValueError(
                    "a step value never holds readable reasoning; capture it or use text_free_reasoning first"
                )
            made["reasoning"] = [part.to_json() for part in self.reasoning if isinstance(part, ReasoningPart)]
        if self.layout is not None:
            made["layout"] = [entry if isinstance(entry, str) else dict(entry) for entry in self.layout]
        if self.opaque:
            made["opaque"] = [part.to_json() for part in self.opaque]
        if self.text_meta:
            made["text_meta"] = [
                {"text": entry.text, "provider_meta": dict(entry.provider_meta)} for entry in self.text_meta
            ]
        if self.provider_meta is not None:
            made["provider_meta"] = dict(self.provider_meta)
        return made

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Response:
        """A recorded response. Raises: KeyError, ValueError for what is none."""
        layout = value.get("layout")
        return cls(
            content=value["content"],
            tool_calls=tuple(ToolCall(**call) for call in value.get("tool_calls") or ()),
            stop_reason=value.get("stop_reason", "end_turn"),
            usage=Usage(**(value.get("usage") or {})),
            reasoning=tuple(ReasoningPart.model_validate(part) for part in value.get("reasoning") or ()),
            layout=None if layout is None else tuple(layout),
            opaque=tuple(OpaquePart.model_validate(part) for part in value.get("opaque") or ()),
            text_meta=tuple(TextMeta(**entry) for entry in value.get("text_meta") or ()),
            provider_meta=value.get("provider_meta"),
        )


def _call_json(call: ToolCall) -> dict[str, Any]:
    made: dict[str, Any] = {"id": call.id, "name": call.name, "input": call.input}
    for name in ("signature", "arguments_failure", "provider_meta"):
        if (value := getattr(call, name)) is not None:
            made[name] = dict(value) if isinstance(value, Mapping) else value
    return made


# -- building from a vendor's blocks -------------------------------------------------------------------------


Block: TypeAlias = str | VendorText | Reasoning | ToolCall | OpaquePart
"""A vendor's blocks in their order: text, reasoning, calls, and what has no name here."""


def layout_of(blocks: Sequence[Block]) -> tuple[LayoutEntry, ...] | None:
    """The order of the blocks, or None when it needs no saying (R321): nothing but text and calls,
    or reasoning, one text, then calls.
    """
    if not any(isinstance(block, (Reasoning, OpaquePart, VendorText)) for block in blocks):
        return None
    entries: list[LayoutEntry] = []
    for block in blocks:
        if isinstance(block, str):
            entries.append({"text": len(block)})
        elif isinstance(block, VendorText):
            entries.append({"text": len(block.text)})
        elif isinstance(block, ToolCall):
            entries.append({"call": block.id})
        else:
            entries.append("reasoning" if isinstance(block, Reasoning) else "opaque")
    ranks = [0 if entry == "reasoning" else 1 if "text" in entry else 2 for entry in entries]
    canonical = "opaque" not in entries and ranks == sorted(ranks) and ranks.count(1) <= 1
    return None if canonical else tuple(entries)


def response_of(
    blocks: Sequence[Block],
    stop_reason: str,
    usage: Usage,
    *,
    provider_meta: Mapping[str, Any] | None = None,
) -> Response:
    """A response from a vendor's blocks. Raises: TypeError for blocks that hold no text where one belongs."""
    for block in blocks:
        # What a vendor sends in the place of a text would come up later, in another module's error.
        words: tuple[object, ...] = ()
        if isinstance(block, ToolCall):
            words = (block.id, block.name, "" if block.signature is None else block.signature)
        elif isinstance(block, Reasoning):
            words = tuple("" if word is None else word for word in (block.text, block.signature))
        if not all(isinstance(word, str) for word in words):
            raise TypeError("an id, name, signature or thought is not a text")
    texts = [block for block in blocks if isinstance(block, (str, VendorText))]
    return Response(
        content="".join(block if isinstance(block, str) else block.text for block in texts),
        tool_calls=tuple(block for block in blocks if isinstance(block, ToolCall)),
        stop_reason=stop_reason,
        usage=usage,
        reasoning=tuple(block for block in blocks if isinstance(block, Reasoning)),
        layout=layout_of(blocks),
        opaque=tuple(block for block in blocks if isinstance(block, OpaquePart)),
        text_meta=tuple(
            TextMeta(at, block.provider_meta)
            for at, block in enumerate(texts)
            if isinstance(block, VendorText)
        ),
        provider_meta=provider_meta,
    )


def noted(more: Mapping[str, Any], vendor: str) -> dict[str, Any] | None:
    """What a vendor said of an answer as a whole, marked; None for nothing."""
    return {vendor: tainted(dict(more), f"llm-notes:{vendor}")} if more else None


def said(text: object, more: Mapping[str, Any], vendor: str) -> str | VendorText:
    """A text block, with what the vendor said beyond its letters. Raises: TypeError for what is no text."""
    if not isinstance(text, str):
        raise TypeError(f"a {type(text).__name__} where a text belongs")
    return VendorText(text, {vendor: dict(more)}) if more else text


def beyond(block: Mapping[str, Any], *known: str) -> dict[str, Any]:
    """The fields of a vendor's block that have no name here and say something."""
    return {name: value for name, value in block.items() if name not in known and value not in (None, [])}


# -- the assistant's turn ------------------------------------------------------------------------------------


def text_free_reasoning(response: Response) -> Response:
    """The response with reasoning in its recorded form and no readable text: for paths that capture
    nothing (R332, R350).
    """
    return replace(response, reasoning=tuple(_recorded(part) for part in response.reasoning))


def _recorded(part: Reasoning | ReasoningPart) -> ReasoningPart:
    if isinstance(part, ReasoningPart):
        return part.model_copy(update={"text": None})
    if part.text:
        return ReasoningPart(
            kind=part.kind,
            provider=part.provider,
            signature=part.signature,
            digest=text_digest(part.text),
            omitted=True,
        )
    return ReasoningPart(kind=part.kind, provider=part.provider, signature=part.signature)


def assistant_message_of(
    response: Response, *, replaced_inputs: Mapping[int, object] | None = None, left_out: Collection[int] = ()
) -> Message:
    """The assistant message for a response: text, then one tool_use per call, or the vendor's order when it
    was another (R199, R323).

    replaced_inputs: inputs that the loop screened, by the call's position (R204). left_out: calls that may
    not enter at all. Reasoning after such a call is dropped, because its signature covers the call as it was
    (R326).
    """
    replaced = replaced_inputs or {}
    reasoning = [_recorded(part) for part in response.reasoning]
    calls = [
        ToolUsePart(
            id=call.id,
            name=call.name,
            input=replaced.get(index, call.input),
            signature=call.signature,
            provider_meta=None if call.provider_meta is None else dict(call.provider_meta),
        )
        for index, call in enumerate(response.tool_calls)
    ]
    changed = frozenset(left_out) | frozenset(replaced)
    if not reasoning and not response.opaque and not calls and not response.text_meta:
        return Message.assistant(response.content)
    order, fits = _order(response, len(reasoning))
    metas = {entry.text: entry.provider_meta for entry in response.text_meta} if fits else {}
    parts: list[Part] = []
    edited = False
    texts = 0
    for kind, at in order:
        if kind == "call":
            edited = edited or at in changed
            if at not in left_out:
                parts.append(calls[at])
        elif kind == "reasoning":
            if not edited:
                parts.append(reasoning[at])
        elif kind == "opaque":
            parts.append(response.opaque[at])
        else:
            start, end = divmod(at, _SPAN)
            meta = metas.get(texts)
            texts += 1
            parts.append(
                TextPart(text=response.content[start:end], provider_meta=None if meta is None else dict(meta))
            )
    return Message.of("assistant", parts)


_SPAN: Final = 1 << 40
"""Packs the start and end of a text into one number of the order."""


def _order(response: Response, reasoning: int) -> tuple[list[tuple[str, int]], bool]:
    """The order of the parts, and whether it is the vendor's own."""
    text = [("text", len(response.content))] if response.content else []
    calls = [("call", index) for index in range(len(response.tool_calls))]
    opaque = [("opaque", index) for index in range(len(response.opaque))]
    if response.layout is None:
        return [*(("reasoning", index) for index in range(reasoning)), *text, *calls, *opaque], True
    found = _replayed(response, reasoning)
    # Stripping every reasoning part is always valid, moving one never is.
    return ([*text, *calls, *opaque], False) if found is None else (found, True)


def _replayed(response: Response, reasoning: int) -> list[tuple[str, int]] | None:
    """The order that the layout describes, or None when it does not fit the response."""
    order: list[tuple[str, int]] = []
    taken: set[int] = set()
    at = thoughts = others = 0
    for entry in response.layout or ():
        if entry == "reasoning":
            order.append(("reasoning", thoughts))
            thoughts += 1
        elif entry == "opaque":
            order.append(("opaque", others))
            others += 1
        elif (
            isinstance(entry, Mapping)
            and set(entry) == {"text"}
            and type(entry["text"]) is int
            and entry["text"] >= 0
        ):
            order.append(("text", at * _SPAN + at + entry["text"]))
            at += entry["text"]
        elif isinstance(entry, Mapping) and set(entry) == {"call"}:
            calls = response.tool_calls
            index = next(
                (i for i, call in enumerate(calls) if call.id == entry["call"] and i not in taken), None
            )
            if index is None:
                return None
            taken.add(index)
            order.append(("call", index))
        else:
            return None
    fits = (at, thoughts, others, len(taken)) == (
        len(response.content),
        reasoning,
        len(response.opaque),
        len(response.tool_calls),
    )
    return order if fits else None
