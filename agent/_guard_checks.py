"""The guard's checks that need no state of the walk: one value and the path to it in, the checked value or a
GuardError out.

Before editing: every search here is iterative and touches each node once, and messages show at most 60
characters of a value, because both the depth and the content of what is checked are a stranger's choice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import ValidationError

from fumehood.agent._canonical import clean_text
from fumehood.agent._deep_json import unwritable, write_deep
from fumehood.agent._errors import MessageStructureError, UntrustedContentError
from fumehood.agent._fence import fence
from fumehood.agent._parts import FRAMEWORK_FIELDS, MAX_SAFE_INTEGER, Message
from fumehood.agent._taint import TAINT_KEY, is_tainted, join_origins, origin_of, taint_origins, without_taint

MAX_TAINT_NODES: Final = 100_000
"""An input with this many nodes or more is refused unread (R048). Every value counts, containers
and scalars alike.
"""

_CAPABILITY_KEYS: Final = frozenset({"image", "audio", "file", "reasoning"})


def json_object(value: object, path: str, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise MessageStructureError(path, f"{shown(value)} is not {what} (a JSON object)")
    return value


def known_fields(body: Mapping[str, Any], known: frozenset[str], path: str, what: str) -> None:
    if body.keys() <= known:
        return
    if TAINT_KEY in body:
        raise UntrustedContentError(path, f"{what} is tainted (from {origin_of(body)})")
    for key in body:
        if key not in known:
            raise MessageStructureError(
                f"{path}.{key}" if path else str(key),
                f"{what} has no such field; it has {', '.join(sorted(known))}",
            )


def plain_text(value: object, path: str, what: str) -> str:
    """A string that must be the application's own."""
    if type(value) is str:
        return clean(value)
    if is_tainted(value):
        raise UntrustedContentError(
            path, f"{what} is tainted (from {origin_of(value)}); only text in a user message may be"
        )
    if not isinstance(value, str):
        raise MessageStructureError(path, f"{shown(value)} is not a string")
    return clean(value)


def clean(value: str) -> str:
    return value if value.isascii() else clean_text(value)


def spoken(value: object, role: str, path: str) -> str:
    """The text of a message or text part: as it is when trusted, fenced in a user message, refused
    elsewhere.
    """
    if is_tainted(value):
        if role != "user":
            raise UntrustedContentError(
                path,
                (
                    f"tainted content (from {origin_of(value)}) in {with_article(role)} message; only a "
                    "user message may hold it"
                ),
            )
        return fenced(value, path)
    if not isinstance(value, str):
        raise MessageStructureError(path, f"{shown(value)} is not a string")
    return clean(value)


def fenced(value: object, path: str) -> str:
    inner, origins = _whole_text(value) or without_taint(value)
    if isinstance(inner, str):
        text = inner
    elif (
        isinstance(inner, dict)
        and set(inner) == {"type", "text"}
        and inner["type"] == "text"
        and isinstance(inner["text"], str)
    ):
        text = inner["text"]
    else:
        try:
            try:
                text = json.dumps(inner, ensure_ascii=False, allow_nan=False)
            except RecursionError:
                text = write_deep(inner)  # how deep it is nested is the outside's choice, and it is only text
        except (ValueError, TypeError, RecursionError) as error:
            where, why = unwritable(inner, path) or (path, f"cannot be written ({type(error).__name__})")
            raise MessageStructureError(where, f"the tainted value {why}") from error
    return fence(clean(text), join_origins(origins))


def _whole_text(value: object) -> tuple[str, tuple[str, ...]] | None:
    """The text and origin of the plainest mark, one around a string, which is nearly every one there is."""
    wrapper = value.get(TAINT_KEY) if isinstance(value, dict) else None
    text = wrapper.get("value") if isinstance(wrapper, dict) else None
    return (text, (origin_of(value),)) if isinstance(text, str) else None


def refuse_taint_below(root: object, path: str, what: str) -> None:
    """Refuse a mark at any depth, and a value too large to be searched. No recursion: depth is the
    sender's choice (R047).
    """
    stack: list[object] = [root]
    nodes = 0
    pop, extend = stack.pop, stack.extend
    while stack:
        value = pop()
        nodes += 1
        if isinstance(value, (str, int)) or value is None:
            continue
        if isinstance(value, dict):
            if TAINT_KEY in value:
                raise UntrustedContentError(
                    _path_to_taint(root, path), f"{what} holds a tainted value (from {origin_of(value)})"
                )
            extend(value.values())
        elif isinstance(value, (list, tuple)):
            extend(value)
        elif not (isinstance(value, float) and value - value == 0.0):
            raise MessageStructureError(*(unwritable(root, path) or (path, "cannot be written as JSON")))
        if nodes + len(stack) >= MAX_TAINT_NODES:
            raise UntrustedContentError(
                path, f"{MAX_TAINT_NODES} nodes or more; too large to be searched for tainted values"
            )


def _path_to_taint(root: object, path: str) -> str:
    """Where in a refused value the first mark sits. Runs only on the way to an error, so the search
    itself carries no paths.
    """
    stack: list[tuple[object, tuple[Any, ...]]] = [(root, ())]
    while stack:
        value, steps = stack.pop()
        if isinstance(value, dict):
            if TAINT_KEY in value:
                flat = []
                while steps:
                    steps, step = steps
                    flat.append(step)
                return path + "".join(reversed(flat))
            # Reversed, so that the first of several marks is the one named.
            stack.extend((item, (steps, f".{key}")) for key, item in reversed(list(value.items())))
        elif isinstance(value, (list, tuple)):
            stack.extend((value[index], (steps, f"[{index}]")) for index in reversed(range(len(value))))
    return path


def check_ref(ref: object, path: str) -> None:
    if is_tainted(ref):
        raise UntrustedContentError(path, "a tainted reference")
    body = json_object(ref, path, "a reference")
    known_fields(body, frozenset({"address", "size"}), path, "a reference")
    address = plain_text(body.get("address"), f"{path}.address", "an address")
    if not address or len(address) > 512 or not address.isprintable() or " " in address:
        raise MessageStructureError(f"{path}.address", f"{shown(address)} is not an address")
    size = body.get("size")
    if is_tainted(size):
        raise UntrustedContentError(f"{path}.size", "a tainted size")
    if size is not None and (
        not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= MAX_SAFE_INTEGER
    ):
        raise MessageStructureError(f"{path}.size", f"{shown(size)} is not a whole number from 0 to 2^53 - 1")


def check_provider_meta(value: object, path: str) -> None:
    refuse_taint_below(value, path, "provider_meta")
    for vendor, meta in json_object(value, path, "provider_meta").items():
        json_object(meta, f"{path}.{vendor}", "what one provider wants back")


def check_reasoning(body: Mapping[str, Any], path: str) -> dict[str, Any]:
    refuse_taint_below(dict(body), path, "a reasoning part")
    kind = plain_text(body["kind"], f"{path}.kind", "a kind")
    if kind not in ("text", "summary", "redacted"):
        raise MessageStructureError(f"{path}.kind", f"{shown(kind)} is not text, summary or redacted")
    for name in ("provider", "signature", "digest"):
        if body.get(name) is not None:
            plain_text(body[name], f"{path}.{name}", name)
    plain_text(body["provider"], f"{path}.provider", "a provider's name")
    if body.get("text_ref") is not None:
        check_ref(body["text_ref"], f"{path}.text_ref")
    if body.get("omitted") is not None and not isinstance(body["omitted"], bool):
        raise MessageStructureError(f"{path}.omitted", f"{shown(body['omitted'])} is not true or false")
    # Readable reasoning is filled in by the resolver alone; what a caller wrote there is dropped (R316).
    return {name: value for name, value in body.items() if name != "text"}


def check_capabilities(value: object) -> dict[str, Any]:
    if is_tainted(value):
        raise UntrustedContentError("capabilities", "tainted capabilities")
    body = json_object(value, "capabilities", "capabilities")
    known_fields(body, _CAPABILITY_KEYS, "capabilities", "capabilities")
    for name, types in body.items():
        if name == "reasoning":
            if types is not None and not isinstance(types, bool):
                raise MessageStructureError("capabilities.reasoning", f"{shown(types)} is not true or false")
            continue
        if types is not None and not isinstance(types, (list, tuple)):
            raise MessageStructureError(
                f"capabilities.{name}", f"{shown(types)} is not a list of media types"
            )
        for index, item in enumerate(types or ()):
            plain_text(item, f"capabilities.{name}[{index}]", "a media type")
    return dict(body)


def check_framework_fields(body: Mapping[str, Any], path: str) -> None:
    if len(body) == 2:
        return  # role and content alone, as nearly every message
    fields = {name: body[name] for name in FRAMEWORK_FIELDS if body.get(name) is not None}
    if not fields:
        return
    try:
        Message.model_validate({"role": "user", "content": "", **fields})
    except ValidationError as error:
        where, why = first_fault(error)
        if taint_origins({name: value for name, value in fields.items() if name != "replay"}):
            raise UntrustedContentError(
                f"{path}.{where}", "tainted; these fields are the framework's own"
            ) from error
        raise MessageStructureError(f"{path}.{where}", why) from error
    # The one field without a shape. A mark in it is harmless, because it never reaches a wire; what no JSON
    # can hold is not.
    if (fault := unwritable(fields.get("replay"), f"{path}.replay", levels=MAX_TAINT_NODES)) is not None:
        raise MessageStructureError(*fault)


def first_fault(error: ValidationError) -> tuple[str, str]:
    """Where and why a model refused, the path as contract.md section 6 writes it, in the words of JSON."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in first["loc"]]
    said = _IN_JSON.get(first["type"]) or first["msg"].replace("Input should be", "must be")
    return "".join(steps).removeprefix("."), said


_IN_JSON: Final = {
    "tuple_type": "must be a list",
    "model_type": "must be an object",
    "dict_type": "must be an object",
    "string_type": "must be a string",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "missing": "is missing",
    "extra_forbidden": "is not a field of this object",
}


def inline_data(messages: list[object] | tuple[object, ...]) -> Iterator[str]:
    """Inline data of every media part, wherever the guard will find it; shapes that are wrong are
    left for the walk to name.
    """
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        parts = list(content) if isinstance(content, (list, tuple)) else []
        for part in parts:
            if not isinstance(part, dict):
                continue
            inner = part.get("content")
            for candidate in (part, *(inner if isinstance(inner, (list, tuple)) else ())):
                source = candidate.get("source") if isinstance(candidate, dict) else None
                data = source.get("data") if isinstance(source, dict) else None
                if isinstance(data, str) and len(data) >= 64:
                    yield data


def with_article(word: str) -> str:
    return f"{'an' if word[:1] in 'aeiou' and not word.startswith('user') else 'a'} {word}"


def shown(value: object) -> str:
    """A value for an error message, short and on one line."""
    if isinstance(value, str):
        text = ascii(value)
    elif (
        value is None
        or isinstance(value, (bool, float))
        or (isinstance(value, int) and value.bit_length() < 128)
    ):
        text = (
            {None: "null", True: "true", False: "false"}.get(value, repr(value))
            if value is None or isinstance(value, bool)
            else repr(value)
        )
    else:
        return {"dict": "an object", "list": "a list", "int": "a huge number"}.get(
            type(value).__name__, f"a {type(value).__name__}"
        )
    return text if len(text) <= 60 else f"{text[:57]}..."
