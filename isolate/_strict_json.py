"""JSON from a hostile child: strict, bounded, and never an exception but one.

NaN and Infinity, numbers too large for a float, lone surrogates, duplicate-key tricks of nesting and integers
of thousands of digits are refused or bounded here, once, so that nothing behind it has to think of them
(R478, attack 62).
"""

from __future__ import annotations

import gc
import math
from typing import Any

MAX_DEPTH = 200
"""Nesting that pydantic-core's parser accepts; deeper is refused before any Python object is made."""

# Digits as 0, e and E as e, + as itself, everything else a space: then three searches for plain bytes tell
# what a regular expression would need seconds for when eight megabytes of digits are made for it.
_SHAPE = bytes(
    ord("0") if 48 <= byte <= 57 else ord("e") if byte in b"eE" else byte if byte == ord("+") else ord(" ")
    for byte in range(256)
)
_LONG_RUN = b"0" * 300
_LARGE = 64 << 10


class NotStrict(Exception):
    """The bytes are no strict JSON; the text says why, for the operator."""


def decode(data: bytes) -> Any:
    """The value `data` holds.

    Raises NotStrict, and nothing else, for anything that is not strict JSON in UTF-8.
    """
    import pydantic_core

    # Every object that is made is looked at again and again while they become more: eight megabytes of empty
    # lists take a second and a half with the collector, and a fifth of a second without.
    pausing = len(data) > _LARGE and gc.isenabled()
    if pausing:
        gc.disable()
    try:
        value = pydantic_core.from_json(data, allow_inf_nan=False)
    except (ValueError, RecursionError, OverflowError) as error:
        raise NotStrict(str(error)[:200]) from error
    finally:
        if pausing:
            gc.enable()
    if _may_hold_huge(data):
        _refuse_huge(value)
    return value


def _may_hold_huge(data: bytes) -> bool:
    """Whether there is a number with an exponent of three digits or one of 300 digits, or a text like one."""
    shape = data.translate(_SHAPE)
    return b"0e000" in shape or b"0e+000" in shape or _LONG_RUN in shape


def _refuse_huge(value: Any) -> None:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, float) and not math.isfinite(item):
            raise NotStrict("a number larger than a float can hold")
        if isinstance(item, int) and item.bit_length() > 4096:
            raise NotStrict("an integer of more than 4096 bits")
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
