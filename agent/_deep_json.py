"""JSON of any depth, read and written without recursion.

Guarantees: `read_deep` gives what `json.loads` gives, and the same JSONDecodeError for what is no JSON;
`write_deep` gives pure ASCII that reads back equal. Python's own reader and writer give up at a thousand
levels, and how deep a request is nested is a stranger's choice: the guard is to answer it, not the parser
(R047). Slower than the built-in ones, so they are asked first. `unwritable` says where a value is no JSON.
"""

from __future__ import annotations

import json
import re
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from typing import Any, Final

from fumehood.agent._canonical import MAX_INT_BITS

_BLANK: Final = re.compile(r"[ \t\n\r]*+")
_SCALAR: Final = re.compile(
    r"true|false|null|NaN|-?Infinity|-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?"
)


def read_deep(text: str) -> Any:
    """The value that a JSON text stands for. Raises: JSONDecodeError (a ValueError)."""
    top: list[Any] = []
    open_: list[Any] = [top]
    key: Any = None
    at = _past_blank(text, 0)
    while True:
        letter = text[at : at + 1]
        if letter and letter in "{[":
            made: Any = {} if letter == "{" else []
            _put(open_[-1], key, made)
            at = _past_blank(text, at + 1)
            if text[at : at + 1] != ("}" if letter == "{" else "]"):
                open_.append(made)
                if letter == "{":
                    key, at = _key(text, at)
                continue
            at += 1
        elif letter == '"':
            value, at = scanstring(text, at + 1)
            _put(open_[-1], key, value)
        elif found := _SCALAR.match(text, at):
            _put(open_[-1], key, json.loads(found.group()))
            at = found.end()
        else:
            raise JSONDecodeError("Expecting value", text, at)
        # A value ended here: so may any number of the containers around it.
        while True:
            at = _past_blank(text, at)
            if len(open_) == 1:
                if at != len(text):
                    raise JSONDecodeError("Extra data", text, at)
                return top[0]
            keyed = isinstance(open_[-1], dict)
            mark = text[at : at + 1]
            if mark == ",":
                at = _past_blank(text, at + 1)
                if keyed:
                    key, at = _key(text, at)
                break
            if mark != ("}" if keyed else "]"):
                raise JSONDecodeError("Expecting ',' delimiter", text, at)
            open_.pop()
            at += 1


def _put(into: Any, key: str, value: object) -> None:
    if isinstance(into, dict):
        into[key] = value
    else:
        into.append(value)


def _key(text: str, at: int) -> tuple[str, int]:
    if text[at : at + 1] != '"':
        raise JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
    key, at = scanstring(text, at + 1)
    at = _past_blank(text, at)
    if text[at : at + 1] != ":":
        raise JSONDecodeError("Expecting ':' delimiter", text, at)
    return key, _past_blank(text, at + 1)


def _past_blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


class _Piece(str):
    """Finished text on the writer's stack, to tell it from a string still to be written."""

    __slots__ = ()


def write_deep(value: object) -> str:
    """A JSON value as one line of ASCII. Raises: TypeError or ValueError for what JSON has no form for."""
    written: list[str] = []
    stack: list[object] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, _Piece):
            written.append(item)
        elif isinstance(item, dict):
            stack.append(_Piece("}"))
            for at, (key, inner) in reversed(list(enumerate(item.items()))):
                stack += [inner, _Piece(f"{',' if at else ''}{json.dumps(key)}:")]
            stack.append(_Piece("{"))
        elif isinstance(item, (list, tuple)):
            stack.append(_Piece("]"))
            for at, inner in reversed(list(enumerate(item))):
                stack += [inner, _Piece("," if at else "")]
            stack.append(_Piece("["))
        else:
            written.append(json.dumps(item, allow_nan=False))
    return "".join(written)


MAX_LEVELS: Final = 500
"""Levels of nesting that the built-in writer takes wherever it is called; it gives up at about a thousand,
the caller's own frames among them.
"""

MAX_NODES: Final = 5_000_000
MAX_STEPS: Final = 64
"""Steps of a path that are told: how deep it goes is the sender's choice."""


def unwritable(root: object, path: str, *, levels: int = MAX_LEVELS) -> tuple[str, str] | None:
    """Where a value holds what JSON has no form for, and why; the whole value when it is nested deeper than
    `levels`; None when it holds nothing of the kind. For the way to an error: it keeps a path for each value.
    """
    deepest = nodes = 0
    stack: list[tuple[object, tuple[Any, ...], int]] = [(root, (), 0)]
    while stack:
        value, steps, depth = stack.pop()
        why = None
        deepest = max(deepest, depth)
        nodes += 1
        if nodes + len(stack) > MAX_NODES:
            return path, f"has more than {MAX_NODES} values or contains itself"
        if isinstance(value, dict):
            for key, item in reversed(list(value.items())):
                if not isinstance(key, str):
                    return _joined(path, steps), f"has a key of type {type(key).__name__}; keys are strings"
                stack.append((item, (steps, f".{key}"), depth + 1))
        elif isinstance(value, (list, tuple)):
            for at in reversed(range(len(value))):
                stack.append((value[at], (steps, f"[{at}]"), depth + 1))
        elif isinstance(value, float):
            why = f"holds {value}, which JSON has no number for" if value - value != 0.0 else None
        elif isinstance(value, int):
            if value.bit_length() > MAX_INT_BITS:
                why = f"holds a number of {value.bit_length()} bits; at most {MAX_INT_BITS} can be written"
        elif not (value is None or isinstance(value, str)):
            why = f"holds a {type(value).__name__}, which JSON has no form for"
        if why is not None:
            return _joined(path, steps), why
    return (path, f"is nested {deepest} levels deep") if deepest > levels else None


def _joined(path: str, steps: tuple[Any, ...]) -> str:
    flat: list[str] = []
    while steps:
        steps, step = steps
        flat.append(step)
    shown = flat[: -MAX_STEPS - 1 : -1] + (["..."] if len(flat) > MAX_STEPS else [])
    return (path + "".join(shown)).removeprefix("." if not path else "")
