"""From faults to sentences: "file: key.path = value: what is wrong; write this".

Guarantees: every fault names its key path and, where one stands there, the value; a value that is or may be a
secret is never shown: nothing below [secrets], no literal of an `env` table, no secret template, nothing
under a key or of a shape that credentials have. Faults come out in the order of the file.
Before editing: nothing may put a raw value into a message except `_shown`.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

KeyPath = tuple[str | int, ...]
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_SENSITIVE_KEY = re.compile(
    r"token|secret|passw|pwd|api_?key|private_?key|access_?key|credential|bearer|auth", re.I
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}", re.ASCII)
CREDENTIAL_SHAPE = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|\b(?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{30,}|\bgithub_pat_[A-Za-z0-9_]{30,}|\bglpat-[A-Za-z0-9_-]{20,}"
    r"|\bsk-(?:ant-|proj-)?[A-Za-z0-9_-]{20,}|\bxox[abpors]-[A-Za-z0-9-]{10,}|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}|\bAIza[A-Za-z0-9_-]{35}\b"
)
"""Shapes that providers give their credentials so that they can be found by a search like this one."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault. path: where, from the top of the file. text: what is wrong and what to write instead."""

    path: KeyPath
    text: str


def key_text(path: Iterable[str | int]) -> str:
    """A key path as TOML writes it: tools.fetch.egress[0], with quotes around keys that need them."""
    out = ""
    for step in path:
        if isinstance(step, int):
            out += f"[{step}]"
        else:
            key = step if _BARE_KEY.fullmatch(step) else _quoted(step)
            out += f".{key}" if out else key
    return out


def _quoted(text: str) -> str:
    short = text if len(text) <= 80 else text[:77] + "…"
    return (
        '"'
        + "".join(char if char.isprintable() and char not in '"\\' else _escape(char) for char in short)
        + '"'
    )


def _escape(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def is_hidden(path: KeyPath, value: object) -> bool:
    """Whether the value at `path` may be a secret and so is never shown."""
    match path:
        case ("secrets", _, *_):
            return True
        case ("tools", _, "env", _, "secret"):
            return not (isinstance(value, str) and _NAME.fullmatch(value))
        case ("tools", _, "env", _, *_):
            return True
    named_by_operator = 2 if path[:1] == ("tools",) else 0  # a tool may be called "token-check"
    keys = [step for step in path[named_by_operator:] if isinstance(step, str)]
    if any(_SENSITIVE_KEY.search(key) for key in keys):
        return True
    return isinstance(value, str) and CREDENTIAL_SHAPE.search(value) is not None


def _shown(path: KeyPath, value: object) -> str:
    if is_hidden(path, value):
        return "(not shown)"
    match value:
        case bool():
            return str(value).lower()
        case str():
            return _quoted(value)
        case float() if math.isnan(value) or math.isinf(value):
            return str(value)
        case int() | float():
            return str(value) if abs(value) < 10**20 else "(a very large number)"
        case dict():
            return "{…}" if value else "{}"
        case list():
            if len(value) > 4 or any(isinstance(item, dict | list) for item in value):
                return "[…]"
            return "[" + ", ".join(_shown(path, item) for item in value) + "]"
    return str(value)  # dates and times, which TOML has and no key here takes


_ABSENT = object()


def value_at(data: object, path: KeyPath) -> object:
    """What stands at `path` in the parsed file, or a marker that nothing does."""
    for step in path:
        try:
            data = data[step]  # type: ignore[index]  # whatever cannot be indexed this way lands below
        except (KeyError, IndexError, TypeError):
            return _ABSENT
    return data


def sentence(source: str, data: object, problem: Problem) -> str:
    """The finished line for one fault."""
    value = value_at(data, problem.path)
    place = f"{source}: {key_text(problem.path)}" if problem.path else source
    shown = "" if value is _ABSENT or not problem.path else f" = {_shown(problem.path, value)}"
    # A corrected value is made from the value, so the same shapes are taken out of it.
    return printable(f"{place}{shown}: {CREDENTIAL_SHAPE.sub('(not shown)', problem.text)}")


def printable(text: str) -> str:
    """`text` with what a terminal would obey or hide written as an escape."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)


def in_file_order(data: object, problems: Iterable[Problem]) -> list[Problem]:
    """The faults in the order of the file, each once; one about an absent key stands where its table
    begins."""
    order: dict[KeyPath, int] = {}

    def walk(node: object, path: KeyPath) -> None:
        order[path] = len(order)
        if isinstance(node, Mapping):
            for key, value in node.items():
                walk(value, (*path, key))
        elif isinstance(node, list):
            for index, value in enumerate(node):
                walk(value, (*path, index))

    walk(data, ())

    def position(problem: Problem) -> int:
        path = problem.path
        while path not in order:
            path = path[:-1]
        return order[path]

    return sorted(dict.fromkeys(problems), key=position)


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known word that `word` most likely means, letter case aside, or None."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[found[0]] if found else None


_SECONDS = {"": 1, "s": 1, "sec": 1, "secs": 1, "second": 1, "seconds": 1, "m": 60, "min": 60, "h": 3600}


def _number_in(text: str) -> str | None:
    """The number that a text was meant for, in seconds where it has a unit of time."""
    found = re.fullmatch(r"\s*([0-9]{1,9})(\.[0-9]{1,9})?\s*([a-z]*)\s*", text, re.ASCII | re.IGNORECASE)
    if found is None or found[3].lower() not in _SECONDS:
        return None
    factor = _SECONDS[found[3].lower()]
    return f"{float(found[1] + found[2]) * factor:g}" if found[2] else str(int(found[1]) * factor)


def type_text(kind: str, value: object, context: Mapping[str, Any]) -> str:
    """The sentence for a fault that pydantic found, with the corrected value where one is known."""
    if kind == "value_error":
        return str(context["error"])
    if kind in ("greater_than", "greater_than_equal", "less_than_equal"):
        words = {"greater_than": "more than", "greater_than_equal": "at least", "less_than_equal": "at most"}
        limit = next(context[name] for name in ("gt", "ge", "le") if name in context)
        return f"must be {words[kind]} {int(limit) if limit == int(limit) else limit}"
    if kind in ("int_type", "int_from_float", "float_type", "finite_number"):
        whole = "a whole number" if kind.startswith("int") else "a number"
        number = _number_in(value) if isinstance(value, str) else None
        return f"must be {whole}" + (f"; write {number}" if number else "")
    if kind == "bool_type":
        meant = {"true": "true", "yes": "true", "on": "true", "1": "true", "false": "false", "no": "false"}
        fix = meant.get(str(value).lower())
        return "must be true or false" + (f"; write {fix}" if fix else "")
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", context["expected"])
        fix = nearest(value, choices) if isinstance(value, str) else None
        text = "must be one of " + ", ".join(f'"{choice}"' for choice in choices)
        return text + (f'; write "{fix}"' if fix else "")
    if kind == "tuple_type":
        return "must be an array" + (f"; write [{_quoted(value)}]" if isinstance(value, str) else "")
    simple = {
        "string_type": "must be a string in quotes",
        "dict_type": "must be a table",
        "model_type": "must be a table",
        "missing": "is missing",
    }
    return simple.get(kind, f"is not accepted ({kind})")
