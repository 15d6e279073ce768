"""One JSON text per value: what the log hashes and what digests of messages are taken over.

Guarantees: `canonical(value)` is pure ASCII, has no spaces, keys sorted by code point, integers in decimal
and floats in the shortest form that reads back equal (Python's repr: exponent below 1e-4 and from 1e16 on).
Equal values give equal bytes on every machine. `clean(value)` returns a value that always has such a text: a
float that is not finite becomes its name ("NaN", "Infinity", "-Infinity"), a lone surrogate becomes U+FFFD;
what JSON has no form for raises ValueNotJson and names the place. Does not promise RFC 8785: that standard
rounds integers to doubles, and a log must not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Final

from fumehood.policies.errors import HostError

MAX_DEPTH: Final = 200
"""Levels of nesting a recorded value may have. The C encoder recurses; this is far below its limit and above
honest data.
"""

MAX_INT_BITS: Final = 14_000
"""Longest integer, in bits. Python refuses to print integers past 4,300 digits, and other readers give up far
earlier.
"""


class ValueNotJson(HostError):
    """A value cannot be written as JSON; `path` says where it sits, as in `data.rows[3].when`."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(
            f"{path}: {what}",
            hint="pass JSON values only: null, true, false, numbers, strings, lists, objects",
        )
        self.path = path


def canonical(value: object) -> str:
    """The one JSON text of an already clean value (source: docs/log.md, "Canonical text").

    Raises: ValueError for a float that is not finite; TypeError for what JSON has no form for.
    """
    return _ENCODE(value)


def _encoder() -> Callable[[object], str]:
    """What `json.dumps` does with these arguments, made once: it builds two encoders for every call, which
    costs as much as the text of a row.
    """
    plain = json.JSONEncoder(ensure_ascii=True, allow_nan=False, sort_keys=True, separators=(",", ":"))
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # an interpreter without the C part
        return plain.encode
    # No search for cycles: a clean value is a tree.
    pieces = make(
        None, plain.default, json.encoder.encode_basestring_ascii, None, ":", ",", True, False, False
    )
    return lambda value: "".join(pieces(value, 0))


_ENCODE: Final = _encoder()


def clean_text(text: str) -> str:
    """The same text with each lone surrogate replaced by U+FFFD, so that it can be stored as UTF-8
    anywhere.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        # The encoder's own replacement is "?", so question marks step aside for a letter the text does not
        # have: a loop over the characters would cost a megabyte with one bad letter a fifth of a second.
        spare = next((letter for letter in _SPARES if letter not in text), None)
        if spare is None:
            return "".join("\ufffd" if "\ud800" <= letter <= "\udfff" else letter for letter in text)
        safe = text.replace("?", spare).encode("utf-8", "replace").decode("utf-8")
        return safe.replace("?", "\ufffd").replace(spare, "?")
    return text


_SPARES: Final = "".join(map(chr, range(0xFDD0, 0xFDF0)))
"""Code points that Unicode keeps free of letters for ever."""


def is_clean(value: object) -> bool:
    """Whether `clean` would return an equal value: true of the flat objects that most rows are, and found out
    at a tenth of the price of a copy. False says nothing.
    """
    if type(value) is not dict:
        return False
    for key, item in value.items():
        if type(key) is not str or not key.isascii():
            return False
        kind = type(item)
        if kind is str:
            if not item.isascii():
                return False
        elif kind is int:
            if not -(2**63) <= item < 2**63:
                return False
        elif kind is float:
            if not math.isfinite(item):
                return False
        elif kind is list:
            if not all(type(one) is str and one.isascii() for one in item):
                return False
        elif kind is not bool and item is not None:
            return False
    return True


def clean(value: object, *, name: str = "data") -> object:
    """A copy of `value` made of dict, list, str, int, float, bool and None only, ready for `canonical`.

    value: anything; mappings and tuples are read as objects and lists. name: how error paths begin. Raises:
    ValueNotJson for other types, keys that are not strings, nesting past MAX_DEPTH, cycles, huge integers.
    """
    try:
        return _clean(value, 0)
    except _Fault as fault:
        raise ValueNotJson(name + "".join(reversed(fault.steps)), fault.what) from None


class _Fault(Exception):
    """Found deep inside; each level adds its step on the way out, so that honest values pay for no
    path at all.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self.steps: list[str] = []


def _clean(value: object, depth: int) -> object:
    # Recursion is safe here, unlike in the guard: MAX_DEPTH bounds it before Python's own limit does.
    kind = type(value)
    if kind is str:
        text = str(value)
        return text if text.isascii() else clean_text(text)
    if value is None or kind is bool:
        return value
    if kind is int and -(2**63) <= value < 2**63:  # type: ignore[operator]
        return value
    if isinstance(value, Mapping):
        return _clean_object(value, depth)
    if isinstance(value, (list, tuple)):
        return _clean_list(value, depth)
    return _clean_scalar(value)


def _clean_object(value: Mapping[object, object], depth: int) -> dict[str, object]:
    if depth >= MAX_DEPTH:
        raise _Fault(f"nested deeper than {MAX_DEPTH} levels")
    result: dict[str, object] = {}
    key: object = None
    try:
        for key, item in value.items():
            if not isinstance(key, str):
                raise _Fault(f"has a key of type {type(key).__name__}; keys are strings")
            name = clean_text(str.__str__(key))
            if name in result:
                raise _Fault("two keys are the same text once lone surrogates are replaced")
            result[name] = _clean(item, depth + 1)
    except _Fault as fault:
        fault.steps.append(f".{key}" if isinstance(key, str) else "")
        raise
    return result


def _clean_list(value: list[object] | tuple[object, ...], depth: int) -> list[object]:
    if depth >= MAX_DEPTH:
        raise _Fault(f"nested deeper than {MAX_DEPTH} levels")
    result: list[object] = []
    try:
        for item in value:
            result.append(_clean(item, depth + 1))
    except _Fault as fault:
        fault.steps.append(f"[{len(result)}]")
        raise
    return result


def _clean_scalar(value: object) -> object:
    if isinstance(value, str):
        # Drops subclasses (an enum, a wrapper with its own repr), which json would otherwise consult.
        return clean_text(str.__str__(value))
    if isinstance(value, int):
        if value.bit_length() > MAX_INT_BITS:
            raise _Fault(f"an integer of {value.bit_length()} bits; at most {MAX_INT_BITS} are kept")
        return int(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    raise _Fault(f"a value of type {type(value).__name__}")
