"""JSON across the bridge, under caps that keep the host safe from what a script sends.

Text is ASCII with escapes on the way in, so lone surrogates and NUL survive. NaN and the infinities are
refused, numbers are exact in Python and IEEE doubles in JavaScript, `-0` becomes `0` in what JavaScript
gives back (JSON.stringify does that).
"""

from __future__ import annotations

import json
import math
from typing import Any

MAX_DEPTH = 256  # far below the recursion limit, so that whoever handles the value next is safe too
_encoder = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))


class NotJson(ValueError):
    """The value or text isn't JSON as the bridge takes it; the message says what is wrong."""


def encode(value: object) -> str:
    """JSON text of a value. Raises: NotJson."""
    try:
        return _encoder.encode(value)
    except RecursionError:
        raise NotJson(f"the value is cyclic or nested deeper than {MAX_DEPTH} levels") from None
    except (TypeError, ValueError) as error:
        raise NotJson(str(error)) from None


def decode(text: str | bytes) -> Any:
    """The value of JSON text that a sandbox sent. Raises: NotJson for what isn't JSON, too deep, or an
    absurdly long number.
    """
    try:
        value = _decoder.decode(text if isinstance(text, str) else text.decode())
    except RecursionError:
        raise NotJson(f"the value is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:
        raise NotJson(f"not JSON: {error}"[:300]) from None
    open_mark, list_mark = ("{", "[") if isinstance(text, str) else (b"{", b"[")
    if text.count(open_mark) + text.count(list_mark) > MAX_DEPTH and depth(value) > MAX_DEPTH:  # type: ignore[arg-type]
        raise NotJson(f"the value is nested deeper than {MAX_DEPTH} levels")
    return value


def _refuse(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):  # 1e999: JSON by its grammar, and nothing that could be written as JSON again
        raise ValueError("a number is too large")
    return number


_decoder = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)


def depth(value: object) -> int:
    """How deep containers are nested; 0 for a plain value."""
    level, layer = 0, [value]
    while True:
        inner: list[object] = []
        found = False
        for item in layer:
            if isinstance(item, dict):
                inner.extend(item.values())
                found = True
            elif isinstance(item, list | tuple):
                inner.extend(item)
                found = True
        if not found:
            return level
        level += 1
        if level > MAX_DEPTH:
            return level
        layer = inner
