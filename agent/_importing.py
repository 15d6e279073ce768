"""What the readers of other programs' transcripts share: fields with their places, media, reasoning, merging.

Guarantees: whatever comes in, a refusal is a MessageStructureError whose path says where in the foreign
transcript it lies, in that program's own words (`messages[3].content[2].source.type`).
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from fumehood.agent._deep_json import read_deep, unwritable, write_deep
from fumehood.agent._errors import MessageStructureError
from fumehood.agent._guard_checks import shown
from fumehood.agent._parts import (
    AudioPart,
    DataSource,
    FilePart,
    ImagePart,
    Message,
    Part,
    ReasoningPart,
    Role,
    TextPart,
)

Json = Mapping[str, Any]
Meta = dict[str, Any] | None
T = TypeVar("T")


@contextmanager
def below(place: str) -> Iterator[None]:
    """Refusals from inside get the place in front of their path."""
    try:
        yield
    except MessageStructureError as error:
        raise error.below(place) from error
    except (ValidationError, TypeError, ValueError, AttributeError, KeyError, RecursionError) as error:
        what = "a field has the wrong type" if isinstance(error, ValidationError) else str(error)
        raise MessageStructureError(place, f"{type(error).__name__}: {what[:200]}") from error


def each(place: str, items: object, convert: Callable[[Any], T]) -> list[T]:
    """Every item converted, its place in the list in front of what goes wrong with it."""
    if not isinstance(items, (list, tuple)):
        raise MessageStructureError(place, f"{shown(items)} is not a list")
    made = []
    for at, item in enumerate(items):
        with below(f"{place}[{at}]"):
            made.append(convert(item))
    return made


def field(block: object, name: str, *kinds: type) -> Any:
    """One field of a block. kinds: what it may be, text by default. Raises: MessageStructureError."""
    if not isinstance(block, Mapping):
        raise MessageStructureError("", f"{shown(block)} is not an object")
    if name not in block:
        raise MessageStructureError(name, "is missing")
    value = block[name]
    if not isinstance(value, kinds or str):
        raise MessageStructureError(name, f"{shown(value)} is not {_words(kinds or (str,))}")
    return value


def _words(kinds: tuple[type, ...]) -> str:
    names = {str: "a string", list: "a list", dict: "an object", bool: "true or false", type(None): "null"}
    return " or ".join(names[kind] for kind in kinds)


def role_of(message: object, roles: Mapping[str, Role]) -> Role:
    """A message's role in our words."""
    role = field(message, "role")
    if role not in roles:
        raise MessageStructureError("role", f"{shown(role)} is not one of {', '.join(roles)}")
    return roles[role]


def meta_of(block: Json, vendor: str, *known: str) -> Meta:
    """The fields that have no name here, to go back to that vendor with the part."""
    more = {name: value for name, value in block.items() if name not in known and value is not None}
    return {vendor: more} if more else None


def media_part(
    media_type: str, data: str, name: str | None = None, meta: Meta = None
) -> ImagePart | AudioPart | FilePart:
    """An inline media part of the modality that the media type belongs to."""
    kind = {"image": ImagePart, "audio": AudioPart}.get(media_type.partition("/")[0], FilePart)
    made: ImagePart | AudioPart | FilePart = kind(
        media_type=media_type, source=DataSource(data=data), name=name, provider_meta=meta
    )
    return made


def text_file(text: str, name: str | None, meta: Meta) -> FilePart:
    """A document whose words stand in the transcript."""
    data = base64.b64encode(text.encode("utf-8", "replace")).decode("ascii")
    return FilePart(media_type="text/plain", source=DataSource(data=data), name=name, provider_meta=meta)


def data_url(url: str, name: str | None = None, meta: Meta = None) -> ImagePart | AudioPart | FilePart:
    """Media in a `data:` URL. Raises: MessageStructureError for any other."""
    head, found, data = url.partition(";base64,")
    if not found or not head.startswith("data:"):
        raise out_of_scope("", "a URL")
    return media_part(head.removeprefix("data:"), data, name, meta)


def out_of_scope(path: str, what: str) -> MessageStructureError:
    """Media by URL or by a vendor's id have another trust and lifetime than content addressing (R461)."""
    return MessageStructureError(
        path, f"media by {what} is not supported", hint="store the bytes and cite the address"
    )


def recorded_reasoning(
    text: str, signature: str | None, provider: str, kind: Literal["text", "summary"] = "text"
) -> ReasoningPart:
    """A reasoning block from elsewhere in its recorded form: no text, its digest, and `omitted`
    when there was text to lose.
    """
    if not text:
        return ReasoningPart(kind=kind, provider=provider, signature=signature)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return ReasoningPart(kind=kind, provider=provider, signature=signature, digest=digest, omitted=True)


def arguments(holder: object) -> Any:
    """The `arguments` of a call, from their JSON text."""
    text = field(holder, "arguments")
    try:
        try:
            return json.loads(text)
        except RecursionError:
            return read_deep(text)
    except ValueError as error:
        raise MessageStructureError("arguments", f"a call's arguments are not JSON: {error}") from error


def json_text(value: object, path: str) -> str:
    """A value as text. Raises: MessageStructureError with the place of what JSON has no form for."""
    try:
        try:
            return json.dumps(value, ensure_ascii=False, allow_nan=False)
        except RecursionError:
            return write_deep(value)
    except (ValueError, TypeError) as error:
        where, why = unwritable(value, path, levels=10**9) or (path, str(error))
        raise MessageStructureError(where, why) from error


def merged(messages: Sequence[Message], role: Role, mergeable: Callable[[Part], bool]) -> tuple[Message, ...]:
    """Messages of one role next to each other as one, where every part of both may be merged."""
    made: list[Message] = []
    groups: list[list[Part]] = []
    for message in messages:
        here = _parts(message)
        fits = message.role == role and bool(here) and all(map(mergeable, here))
        if fits and groups and groups[-1] and made[-1].role == role:
            groups[-1].extend(here)
        else:
            made.append(message)
            groups.append(list(here) if fits else [])
    return tuple(
        Message.of(role, group) if len(group) > len(_parts(message)) else message
        for message, group in zip(made, groups, strict=True)
    )


def _parts(message: Message) -> tuple[Part, ...]:
    content = message.content
    if isinstance(content, (str, dict)):
        return (TextPart(text=content),)
    return content
