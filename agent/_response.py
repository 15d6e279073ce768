"""What a provider gives back, and how it becomes the assistant's turn.

Guarantees: the shape is `content, tool_calls, stop_reason, usage`, plus `reasoning`, `layout` and `opaque`
only when the vendor returned such blocks, so a response without them is written exactly as before they
existed (R198, R319, R322). `layout` holds positions and never content (R320, R327); a layout that does not
fit drops every reasoning part rather than reordering, because stripping is always valid and moving never is
(R325). A call's own signature is never dropped (R202). Arguments that failed are carried as failed, never as
an empty input (R294).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from fumehood.agent._parts import (
    Message,
    OpaquePart,
    Part,
    ReasoningKind,
    ReasoningPart,
    TextPart,
    ToolUsePart,
)
from fumehood.agent._seal import text_digest

FAILED_ARGUMENTS: Final = "__failedArguments"
"""Key of the placeholder that stands for an input that could not be read; see `failed_input`."""

FailureReason: TypeAlias = Literal["invalid-json", "invalid-argument-shape", "incomplete-stream"]
LayoutEntry: TypeAlias = str | Mapping[str, Any]
"""`"reasoning"`, `"opaque"`, `{"call": id}` or `{"text": n}` with n characters of the content."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, as the vendor counted them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    reasoning_tokens: int = 0


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
    """

    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    stop_reason: str = "end_turn"
    usage: Usage = field(default_factory=Usage)
    reasoning: tuple[Reasoning | ReasoningPart, ...] = ()
    layout: tuple[LayoutEntry, ...] | None = None
    opaque: tuple[OpaquePart, ...] = ()

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
        )


def _call_json(call: ToolCall) -> dict[str, Any]:
    made: dict[str, Any] = {"id": call.id, "name": call.name, "input": call.input}
    for name in ("signature", "arguments_failure", "provider_meta"):
        if (value := getattr(call, name)) is not None:
            made[name] = dict(value) if isinstance(value, Mapping) else value
    return made


# -- building from a vendor's blocks -------------------------------------------------------------------------


Block: TypeAlias = str | Reasoning | ToolCall | OpaquePart
"""A vendor's blocks in their order: text, reasoning, calls, and what has no name here."""


def layout_of(blocks: Sequence[Block]) -> tuple[LayoutEntry, ...] | None:
    """The order of the blocks, or None when it needs no saying (R321): nothing but text and calls,
    or reasoning, one text, then calls.
    """
    if not any(isinstance(block, (Reasoning, OpaquePart)) for block in blocks):
        return None
    entries: list[LayoutEntry] = []
    for block in blocks:
        if isinstance(block, str):
            entries.append({"text": len(block)})
        elif isinstance(block, ToolCall):
            entries.append({"call": block.id})
        else:
            entries.append("reasoning" if isinstance(block, Reasoning) else "opaque")
    ranks = [0 if entry == "reasoning" else 1 if "text" in entry else 2 for entry in entries]
    canonical = "opaque" not in entries and ranks == sorted(ranks) and ranks.count(1) <= 1
    return None if canonical else tuple(entries)


def response_of(blocks: Sequence[Block], stop_reason: str, usage: Usage) -> Response:
    """A response from a vendor's blocks."""
    return Response(
        content="".join(block for block in blocks if isinstance(block, str)),
        tool_calls=tuple(block for block in blocks if isinstance(block, ToolCall)),
        stop_reason=stop_reason,
        usage=usage,
        reasoning=tuple(block for block in blocks if isinstance(block, Reasoning)),
        layout=layout_of(blocks),
        opaque=tuple(block for block in blocks if isinstance(block, OpaquePart)),
    )


def parse_arguments(text: str, *, cut_off: bool) -> tuple[Any, FailureReason | None]:
    """A call's input from its JSON text, or the placeholder and why (R293).

    cut_off: the answer ended at its length limit inside this call, so even text that parses may lack its last
    fields.
    """
    reason: FailureReason
    if cut_off:
        return failed_input("incomplete-stream"), "incomplete-stream"
    try:
        value = json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError):
        reason = "invalid-json"
        return failed_input(reason), reason
    if not isinstance(value, dict):
        reason = "invalid-argument-shape"
        return failed_input(reason), reason
    return value, None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value - value != 0.0:
        raise ValueError(f"{text} is too large for a number")
    return value


def failed_input(reason: FailureReason) -> dict[str, Any]:
    """What stands in the transcript for an input that could not be read."""
    return {FAILED_ARGUMENTS: reason}


def failure_of(input_: object) -> str | None:
    """The failure that a placeholder stands for, or None for an ordinary input."""
    if isinstance(input_, dict) and set(input_) == {FAILED_ARGUMENTS}:
        return str(input_[FAILED_ARGUMENTS])
    return None


FAILURE_SENTENCES: Final[Mapping[str, str]] = {
    "invalid-json": "its arguments were not valid JSON",
    "invalid-argument-shape": "its arguments were not a JSON object",
    "incomplete-stream": "the answer was cut off at its length limit inside the call",
}
"""What the model is told about a call that was not run (A16: a model that does not know it was cut
off tries the same again).
"""


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
    if not reasoning and not response.opaque and not calls:
        return Message.assistant(response.content)
    order = _order(response, len(reasoning))
    parts: list[Part] = []
    edited = False
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
            parts.append(TextPart(text=response.content[start:end]))
    return Message.of("assistant", parts)


_SPAN: Final = 1 << 40
"""Packs the start and end of a text into one number of the order."""


def _order(response: Response, reasoning: int) -> list[tuple[str, int]]:
    text = [("text", len(response.content))] if response.content else []
    calls = [("call", index) for index in range(len(response.tool_calls))]
    opaque = [("opaque", index) for index in range(len(response.opaque))]
    if response.layout is None:
        return [*(("reasoning", index) for index in range(reasoning)), *text, *calls, *opaque]
    found = _replayed(response, reasoning)
    # Stripping every reasoning part is always valid, moving one never is.
    return [*text, *calls, *opaque] if found is None else found


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
