"""From what a tool returned to the tool_result that enters the transcript.

Guarantees: only a tool whose definition declares `returns_media`, and only with output that carries no taint,
can put media into a transcript (R103, R104); the same shape from anyone else is data in text (R105). Text
results are the `{tool, result}` envelope with the taint outside of it (R061, R190). What is too large inline
becomes an error result the model can recover from, before it enters (R110 to R113), and base64 of an image or
a document is taken out of text. Labels a tool writes into its own result are data (R479).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from fumehood.agent._deep_json import unwritable
from fumehood.agent._errors import MessageStructureError
from fumehood.agent._guard import MAX_INLINE_BYTES, MAX_INLINE_TOTAL_BYTES, MAX_TAINT_NODES
from fumehood.agent._letters import heads, letters_in, without_media
from fumehood.agent._media import MEDIA_TYPE, base64_fault, base64_size, decode_base64, media_fault
from fumehood.agent._parts import (
    AudioPart,
    DataSource,
    FilePart,
    ImagePart,
    MaybeTainted,
    Message,
    ResultPart,
    Retention,
    TextPart,
    ToolResultPart,
    ToolUsePart,
)
from fumehood.agent._taint import join_origins, taint_origins, tainted, without_taint

MEDIA_RESULT_KEY: Final = "__media_result__"
OVERSIZED_INPUT: Final[Mapping[str, Any]] = {"__oversizedInput": True}
"""What stands for a call's input that the guard would not search (R204)."""

_PARTS: TypeAdapter[tuple[ResultPart, ...]] = TypeAdapter(tuple[ResultPart, ...])


def media_result(parts: Iterable[ResultPart | str | Mapping[str, Any]]) -> dict[str, Any]:
    """What a tool returns to hand over text and media, in order (R102, R115). A string is a text part.

    Raises: ValueError (pydantic) for what is neither text nor media.
    """
    made = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return {MEDIA_RESULT_KEY: [part.to_json() for part in _PARTS.validate_python(made)]}


@dataclass(slots=True)
class InlineBudget:
    """Inline bytes that a transcript holds already; shared by the results that enter it one after
    the other (R113).
    """

    used: int = 0
    total: int = MAX_INLINE_TOTAL_BYTES
    per_part: int = MAX_INLINE_BYTES

    @classmethod
    def of(cls, messages: Iterable[Message]) -> InlineBudget:
        """The budget that a transcript leaves."""
        return cls(sum(_inline_size(part) for message in messages for part in _flat(message)))


def tool_result(
    call_id: str,
    tool: str,
    output: object,
    *,
    returns_media: bool = False,
    is_error: bool = False,
    retention: Retention | None = None,
    budget: InlineBudget | None = None,
) -> ToolResultPart:
    """The transcript's answer to a call.

    output: what the tool returned, with the taint that the host gave it. returns_media, retention: from the
    definition, never from the tool's own words. budget: the transcript's; inline media that fit are counted
    in it.
    """
    budget = budget or InlineBudget()
    keep = None if retention == "none" else retention

    def answer(content: MaybeTainted | tuple[ResultPart, ...], failed: bool) -> ToolResultPart:
        return ToolResultPart(
            tool_use_id=call_id, name=tool, content=content, is_error=failed or None, retention=keep
        )

    claimed = (
        output.get(MEDIA_RESULT_KEY)
        if isinstance(output, Mapping) and set(output) == {MEDIA_RESULT_KEY}
        else None
    )
    if claimed is not None and returns_media and not taint_origins(output):
        parts, fault, size = _media_parts(claimed, budget)
        if fault is not None:
            return answer(envelope(tool, {"error": fault}), True)
        budget.used += size
        return answer(parts, is_error)
    try:
        return answer(envelope(tool, output), is_error)
    except MessageStructureError as error:
        # What a tool returns may fail its own call, never the conversation.
        return answer(envelope(tool, {"error": error.message}), True)


def envelope(tool: str, value: object) -> MaybeTainted:
    """`{tool, result}` as JSON text; when anything in the value is tainted, the whole text is,
    outside the JSON (R061).
    """
    inner, origins = without_taint(value)
    try:
        text = json.dumps({"tool": tool, "result": inner}, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        where, why = unwritable(inner, "result") or ("result", f"{type(error).__name__}: {error}")
        raise MessageStructureError(where, f"{why}; it cannot be written as JSON") from error
    text = without_media_text(text)
    return tainted(text, join_origins(origins)) if origins else text


def without_media_text(text: str, known: frozenset[str] = frozenset()) -> str:
    """The text without base64 of media: of media with these heads, and of whatever begins as a media file
    does.
    """
    return without_media(text, known, any_media=True)


def _media_parts(claimed: object, budget: InlineBudget) -> tuple[tuple[ResultPart, ...], str | None, int]:
    """The parts of a media result, or why they cannot enter, and their inline bytes."""
    try:
        parts = _PARTS.validate_python(claimed)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        return (), f"media_result: {'.'.join(map(str, first['loc']))}: {first['msg']}", 0
    size = 0
    known: set[str] = set()
    for part in parts:
        if isinstance(part, TextPart):
            size += letters_in(str(part.text))
            continue
        if (fault := _media_fault(part, budget)) is not None:
            return (), fault, 0
        if isinstance(part.source, DataSource):
            known.add(part.source.data)
            size += base64_size(part.source.data)
    if budget.used + size > budget.total:
        return (
            (),
            (
                f"{budget.used + size} inline bytes in this conversation; at most {budget.total} fit: "
                f"{_REMEDY}"
            ),
            0,
        )
    # What goes to a vendor beside a part is not a tool's to say (R479).
    cleaned = tuple(
        part.model_copy(
            update={"text": without_media_text(str(part.text), heads(known)), "provider_meta": None}
        )
        if isinstance(part, TextPart)
        else part.model_copy(update={"provider_meta": None})
        for part in parts
    )
    return cleaned, None, size


_REMEDY: Final = "store the bytes with ctx.put and return a ref to the address instead"


def _media_fault(part: ImagePart | AudioPart | FilePart, budget: InlineBudget) -> str | None:
    if not MEDIA_TYPE.fullmatch(part.media_type):
        return f"{part.media_type!r} is not a media type"
    top = part.media_type.partition("/")[0]
    if (top != part.type) if part.type != "file" else top in ("image", "audio"):
        return f"{part.media_type} in a part of type {part.type}"
    if part.untrusted is not None and not isinstance(part.source, DataSource):
        return "untrusted media may not name stored content"
    if not isinstance(part.source, DataSource):
        return None
    data = part.source.data
    if (fault := base64_fault(data)) is not None:
        return f"inline data: {fault}"
    if (size := base64_size(data)) > budget.per_part:
        return f"{size} inline bytes; at most {budget.per_part} are: {_REMEDY}"
    try:
        return media_fault(part.media_type, decode_base64(data))
    except ValueError as error:
        return f"inline data: {error}"


def results_message(calls: Sequence[ToolUsePart], answers: Mapping[int, ToolResultPart]) -> Message:
    """ONE user message with the answers in the order of the calls, however they arrived (R186, R482).

    answers: by the call's position in `calls`, because a vendor may use one id twice. Raises: ValueError when
    one is missing.
    """
    missing = [index for index in range(len(calls)) if index not in answers]
    if missing:
        raise ValueError(f"no answer for the calls at {missing}; a batch is answered whole")
    return Message.of("user", [answers[index] for index in range(len(calls))])


def screen_input(value: object) -> tuple[object, str | None]:
    """A model's tool input as it may enter the transcript, and why it may not run, or None (R203 to R206).

    An input too large to be searched, or one that forges a taint mark, would make the guard refuse every
    later request.
    """
    nodes = 0
    stack = [value]
    while stack:
        item = stack.pop()
        nodes += 1
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, (list, tuple)):
            stack.extend(item)
        if nodes + len(stack) >= MAX_TAINT_NODES:
            return dict(OVERSIZED_INPUT), f"the input has {MAX_TAINT_NODES} values or more and was not run"
    if taint_origins(value):
        return without_taint(value)[0], "the input carries a taint mark of its own making and was not run"
    return value, None


def _flat(message: Message) -> Iterable[object]:
    content = message.content
    if isinstance(content, (str, dict)):
        return
    for part in content:
        yield part
        if isinstance(part, ToolResultPart) and not isinstance(part.content, (str, dict)):
            yield from part.content


def _inline_size(part: object) -> int:
    source = getattr(part, "source", None)
    return base64_size(source.data) if isinstance(source, DataSource) else 0
