"""Readers and editors of a transcript: what is kept, who put it there, what may be cleared, what a fold
leaves exempt.

Guarantees: every function here is pure and keeps the order and number of messages unless it says otherwise.
Pruning clears untagged results first, then `requery`, never `durable`, and keeps `is_error` and the call's
name (R242 to R245, R487). A summary's exemptions come from the messages it folds, never from its own text
(R279, R280). Notices carry their facts as fields; no reader parses their sentence (R256). Does not decide
when to prune or fold: that is the loop's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from fumehood.agent._parts import (
    AudioPart,
    FilePart,
    ImagePart,
    InjectedBy,
    MediaPart,
    Message,
    Part,
    TextPart,
    ToolResultPart,
    ToolUsePart,
)
from fumehood.agent._taint import is_tainted, map_tainted, unwrap_tainted
from fumehood.agent.messages import text_of, to_parts


def persistent_messages(messages: Iterable[Message]) -> tuple[Message, ...]:
    """What goes into the kept history: everything but ephemeral messages, which the model and the
    journal do see (R247 to R250).
    """
    return tuple(message for message in messages if not message.ephemeral)


@dataclass(frozen=True, slots=True)
class InjectionRecord:
    """One injected message: its place on the wire and who put it there."""

    index: int
    by: InjectedBy


def injected_records(messages: Sequence[Message]) -> tuple[InjectionRecord, ...]:
    """One record for each message that came from an injection; attribution is the field's alone,
    never the role's (R272, R273).
    """
    return tuple(
        InjectionRecord(index, message.injected_by)
        for index, message in enumerate(messages)
        if message.injected_by is not None
    )


def exempt_forms(
    messages: Iterable[Message], forms_of: Callable[[str], Iterable[str]]
) -> tuple[str, ...] | None:
    """The lookup forms that a fold of these messages leaves exempt, for the summary's `folded_exempt` (R277
    to R283).

    forms_of: the forms of one text. Read are the person's and the application's user and system turns and,
    for an earlier summary, its field instead of its text. None when there are none.
    """
    found: dict[str, None] = {}
    for message in messages:
        if message.folded_exempt is not None:
            found.update(dict.fromkeys(message.folded_exempt))
        elif message.role != "assistant" and message.injected_by is None and not _is_summary(message):
            for part in to_parts(message.content):
                if isinstance(part, TextPart) and not is_tainted(part.text):
                    found.update(dict.fromkeys(forms_of(str(part.text))))
    return tuple(found) or None


SUMMARY_PREFIX = "[summary of earlier messages]"
"""How a fold's summary begins. A summary without the field exempts nothing (R282)."""


def _is_summary(message: Message) -> bool:
    parts = to_parts(message.content)
    first = parts[0] if parts else None
    return isinstance(first, TextPart) and str(unwrap_tainted(first.text)).startswith(SUMMARY_PREFIX)


# -- pruning -------------------------------------------------------------------------------------------------


def prune_results(messages: Sequence[Message], *, max_bytes: int, keep_last: int = 1) -> tuple[Message, ...]:
    """The messages with old tool results cleared until at most `max_bytes` of result text are left, or
    nothing more may be cleared.

    keep_last: newest messages that are left alone. Untagged results go first, oldest first, then `requery`;
    `durable` stays.
    """
    places = [
        (message_at, part_at, part)
        for message_at, message in enumerate(messages[: max(0, len(messages) - keep_last)])
        for part_at, part in enumerate(to_parts(message.content))
        if isinstance(part, ToolResultPart) and not _is_cleared(part)
    ]
    total = sum(
        _size(part)
        for message in messages
        for part in to_parts(message.content)
        if isinstance(part, ToolResultPart)
    )
    cleared: dict[tuple[int, int], ToolResultPart] = {}
    for wanted in (None, "requery"):
        for message_at, part_at, part in places:
            tag = None if part.retention == "none" else part.retention
            if total <= max_bytes or tag != wanted:
                continue
            small = _cleared(part)
            if _size(small) < _size(part):
                total -= _size(part) - _size(small)
                cleared[message_at, part_at] = small
    return tuple(_with_parts(message, at, cleared) for at, message in enumerate(messages))


def _with_parts(message: Message, at: int, cleared: dict[tuple[int, int], ToolResultPart]) -> Message:
    if not any(place[0] == at for place in cleared):
        return message
    parts: list[Part] = [
        cleared.get((at, index), part) for index, part in enumerate(to_parts(message.content))
    ]
    return message.model_copy(update={"content": tuple(parts)})


def _cleared(part: ToolResultPart) -> ToolResultPart:
    # The marker names the call, so that a summary cannot restate what it never saw (R244). A failure stays a
    # failure (R487).
    marker = f"[the result of {part.name or 'a tool'} (call {part.tool_use_id}) was cleared]"
    return part.model_copy(update={"content": marker})


def _is_cleared(part: ToolResultPart) -> bool:
    return part.content == _cleared(part).content


def _size(part: ToolResultPart) -> int:
    content = part.content
    if isinstance(content, (str, dict)):
        return len(str(unwrap_tainted(content)).encode("utf-8", "replace"))
    return sum(
        len(str(unwrap_tainted(inner.text)).encode("utf-8", "replace"))
        for inner in content
        if isinstance(inner, TextPart)
    )


# -- results as text, for a fold -----------------------------------------------------------------------------


def results_as_parts(message: Message) -> tuple[TextPart | MediaPart, ...]:
    """A results message as text and media parts for a compacted request: a label for each result, failures
    marked (R232).

    Each result keeps a text part of its own, with its own mark; a label never stands in the same text as what
    a tool said (R063).
    """
    made: list[TextPart | MediaPart] = []
    for part in to_parts(message.content):
        if not isinstance(part, ToolResultPart):
            if isinstance(part, (TextPart, ImagePart, AudioPart, FilePart)):
                made.append(part)
            continue
        failed = ", which failed" if part.is_error is True else ""
        made.append(TextPart(text=f"[result of {part.name or 'a tool'}{failed}]"))
        content = part.content
        if isinstance(content, (str, dict)):
            made.append(TextPart(text=map_tainted(str, content) if isinstance(content, dict) else content))  # type: ignore[arg-type]
        else:
            made.extend(content)
    return tuple(made)


# -- notices -------------------------------------------------------------------------------------------------


def notice_message(
    call: ToolUsePart, sentence: str, *, origin: Literal["not-entered", "input-cancelled"]
) -> Message:
    """The host's answer to a call that has no result: refused before the tool was entered, or cancelled
    (R287, R288).

    An error that a tool raised is a result, not a notice.
    """
    part = ToolResultPart(tool_use_id=call.id, name=call.name, content=sentence, is_error=True)
    return Message.of("user", [part]).model_copy(update={"tool_result_origin": origin})


def plain_history(messages: Iterable[Message]) -> tuple[Message, ...]:
    """A conversation's turns as plain text, for layers that keep text alone: no calls, no media, no
    reasoning (R376).
    """
    made = []
    for message in messages:
        if any(isinstance(part, TextPart) for part in to_parts(message.content)):
            made.append(Message(role=message.role, content=text_of(message)))
    return tuple(made)
