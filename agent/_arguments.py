"""A model's tool input: read, or told why it cannot be.

Guarantees: arguments that failed are carried as failed, never as an empty input (R294); what could not be
recorded or sent back (numbers without a value, nesting past the log's) fails here instead of failing every
later request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from fumehood.agent._canonical import MAX_INT_BITS

FAILED_ARGUMENTS: Final = "__failedArguments"
"""Key of the placeholder that stands for an input that could not be read; see `failed_input`."""

FailureReason: TypeAlias = Literal["invalid-json", "invalid-argument-shape", "incomplete-stream"]


def parse_arguments(text: str, *, cut_off: bool) -> tuple[Any, FailureReason | None]:
    """A call's input from its JSON text, or the placeholder and why (R293).

    cut_off: the answer ended at its length limit inside this call, so even text that parses may lack its last
    fields.
    """
    reason: FailureReason
    if cut_off:
        return failed_input("incomplete-stream"), "incomplete-stream"
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        reason = "invalid-json"
        return failed_input(reason), reason
    return checked_input(value)


def checked_input(value: object) -> tuple[Any, FailureReason | None]:
    """A call's input that came as a value, or the placeholder and why: what could not be recorded or sent
    back may not enter a conversation.
    """
    reason: FailureReason
    if not isinstance(value, dict):
        reason = "invalid-argument-shape"
    elif not _recordable(value):
        reason = "invalid-json"
    else:
        return value, None
    return failed_input(reason), reason


MAX_INPUT_LEVELS: Final = 100
"""Levels of nesting that a call's input may have: the log keeps two hundred, and the input stands inside of
something.
"""


def _recordable(value: object) -> bool:
    """Whether a value has finite numbers of a length that others can read, and few enough levels."""
    level: list[object] = [value]
    for _ in range(MAX_INPUT_LEVELS):
        inner: list[object] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(item.values())
            elif isinstance(item, list):
                inner.extend(item)
            elif isinstance(item, float):
                if item - item != 0.0:
                    return False
            elif isinstance(item, int) and item.bit_length() > MAX_INT_BITS:
                return False
        if not inner:
            return True
        level = inner
    return False


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
