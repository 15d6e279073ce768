"""Whether a tool's value is plain JSON, and if not, where in it and why: for the tool's author.

Only a courtesy: the host decodes strictly whatever is sent. The quick look is made at every value and touches
containers alone; the walk that finds the place runs when something is wrong already.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

MAX_DEPTH = 190
"""Levels of lists and objects in a result; the host's parser takes a few more, for the frame around it."""
MAX_BITS = 4096
"""Of an integer; the host refuses longer ones."""
_LONG = b"0" * 1234  # digits of the shortest integer of more than 4096 bits
_DIGITS = bytes(ord("0") if 48 <= byte <= 57 else ord(" ") for byte in range(256))
_MANY = 1000
_WALKED = 2_000_000  # a value that refers to itself in many ways has no end
_TEXT = {str}

_REMEDIES: dict[type, str] = {
    set: "a set; return a list",
    frozenset: "a frozenset; return a list",
    bytes: "bytes; return text, or an address from ctx.put",
    bytearray: "a bytearray; return text, or an address from ctx.put",
    memoryview: "a memoryview; return text, or an address from ctx.put",
    complex: "a complex number; return a list of two",
}


class NotPlain(ValueError):
    """A value that JSON cannot hold."""


def look(value: Any) -> None:
    """A quick look at the containers. Raises NotPlain for too deep ones, and for keys that are no text."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for outer in level:
            if isinstance(outer, dict):
                if set(map(type, outer)) - _TEXT and not all(isinstance(key, str) for key in outer):
                    raise NotPlain("a key is no text")
                outer = outer.values()
            elif not isinstance(outer, (list, tuple)):
                continue
            inner += [item for item in outer if isinstance(item, (list, tuple, dict))]
        # One that stands in many places, or in itself, is looked at once.
        level = list({id(item): item for item in inner}.values()) if len(inner) > _MANY else inner
        if not level:
            return
    raise NotPlain(f"the value is nested deeper than {MAX_DEPTH} levels")


def may_be_long(payload: bytes) -> bool:
    """Whether JSON text may hold an integer that is too long: it has so many digits in a row."""
    return len(payload) > len(_LONG) and _LONG in payload.translate(_DIGITS)


def fault(value: Any) -> str | None:
    """The first thing in `value` that JSON cannot hold, with the path to it; None when there is none."""
    path: list[str] = []
    try:
        what = _wrong(value)
        stack: list[tuple[Any, Iterator[tuple[str, Any]]]] = [] if what else [(value, _items(value))]
        around = {id(value)}
        for _ in range(_WALKED):
            if what or not stack:
                break
            del path[len(stack) - 1 :]
            step, item = next(stack[-1][1], ("", stack))
            if item is stack:
                around.discard(id(stack.pop()[0]))
                continue
            path.append(step)
            what = _wrong(item)
            if what is None and isinstance(item, (list, tuple, dict)):
                if id(item) in around:
                    what = "a value that holds itself"
                elif len(stack) >= MAX_DEPTH:
                    what = f"a value nested deeper than {MAX_DEPTH} levels"
                around.add(id(item))
                stack.append((item, _items(item)))
    except BaseException:  # noqa: BLE001 - methods of the tool's own classes; the error that led here is told
        return None
    return f"{_shown(path)} is {what}" if what else None


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        return ((f".{key}" if key.isidentifier() else f"[{key[:80]!r}]", item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ((f"[{number}]", item) for number, item in enumerate(value))
    return iter(())


def _wrong(value: Any) -> str | None:
    """What one value is, when it is nothing that JSON knows."""
    if value is None or isinstance(value, (bool, list, tuple)):
        return None
    if isinstance(value, dict):
        odd = next((key for key in value if not isinstance(key, str)), None)
        if odd is None and None not in value:
            told = (f"an object: its key is {wrong}" for key in value if (wrong := _surrogate(key)))
            return next(told, None)
        return f"an object with a key of the type {_name(odd)}; keys are text: write str(key)"
    if isinstance(value, str):
        return _surrogate(value)
    if isinstance(value, int):
        if (bits := value.bit_length()) <= MAX_BITS:
            return None
        return f"an integer of {bits} bits, and {MAX_BITS} are taken; return it as text"
    if isinstance(value, float):
        return None if math.isfinite(value) else f"{value!r}, which is no JSON number; return None or text"
    return _REMEDIES.get(type(value), f"of the type {_name(value)}; return what JSON knows, such as its text")


def _surrogate(text: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = f"U+{ord(text[error.start]):04X} at {error.start}"
        return f"text with half a character ({half}), which UTF-8 has not"
    return None


def _name(value: Any) -> str:
    return type(value).__name__[:80]


def _shown(path: list[str]) -> str:
    text = "value" + "".join(path)
    return text if len(text) <= 300 else f"{text[:140]}…{text[-140:]}"
