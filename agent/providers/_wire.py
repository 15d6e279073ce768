"""What the vendors' mappings share: wire names, call ids, failed calls, fenced media, and JSON bytes.

Guarantees: a tool name that a vendor would refuse becomes one that it takes, and comes back as it was; ids
that are empty, used twice or refused somewhere get unique wire ids, paired with their results by an ordered
walk (R197, R482); untrusted media stand between the fence's open and close wherever they are moved (R055),
and the words of an untrusted text file cannot close it; what is still tainted, unresolved or not JSON never
reaches a wire. Pure functions; no I/O.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fumehood.agent._arguments import FAILURE_SENTENCES, failure_of
from fumehood.agent._canonical import clean_text
from fumehood.agent._capabilities import media_parts
from fumehood.agent._deep_json import unwritable
from fumehood.agent._errors import (
    MessageStructureError,
    UnresolvedContentError,
    UnsupportedModalityError,
    UntrustedContentError,
)
from fumehood.agent._fence import FENCE_CLOSE, escape, fence_open
from fumehood.agent._media import decode_base64, encode_base64, is_text
from fumehood.agent._parts import (
    AudioPart,
    DataSource,
    FilePart,
    ImagePart,
    MediaPart,
    Message,
    OpaquePart,
    Part,
    Request,
    ResultPart,
    TextPart,
    ToolResultPart,
    ToolUsePart,
)

_WIRE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""What all four wires take as a tool's name."""

_WIRE_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
"""What all four wires take as a call's id, and what cannot say anything where an id stands beside text."""

CAPTION_CHARS: Final = 500
"""A text before an image in a result is repeated beside the image, where the wire moves the image
away, up to this length.
"""


class WireNames:
    """Tool names as they stand on the wire, and back."""

    def __init__(self, names: Iterable[str]) -> None:
        self._wire: dict[str, str] = {}
        self._back: dict[str, str] = {}
        wanted = list(dict.fromkeys(names))
        # Names that need no change first, so that none of them loses its own name to a changed one.
        for name in sorted(wanted, key=lambda name: not _WIRE_NAME.fullmatch(name)):
            wire = name if _WIRE_NAME.fullmatch(name) else self._made_up(name)
            self._wire[name] = wire
            self._back[wire] = name

    @classmethod
    def of(cls, request: Request) -> WireNames:
        """The names of a request's tools and calls."""
        names = [tool.name for tool in request.tools or ()]
        for message in request.messages:
            for part in parts_of(message):
                if isinstance(part, ToolUsePart) or (isinstance(part, ToolResultPart) and part.name):
                    names.append(str(part.name))
        return cls(names)

    def _made_up(self, name: str) -> str:
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)
        plain = plain if re.match(r"[A-Za-z_]", plain) else f"_{plain}"
        if len(plain) <= 64 and plain not in self._back:
            return plain
        return f"{plain[:55]}_{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"

    def to_wire(self, name: str) -> str:
        """The name that the vendor sees."""
        return self._wire.get(name) or self._made_up(name)

    def from_wire(self, name: str) -> str:
        """The tool that the vendor means; a name nobody offered comes back as it is."""
        return self._back.get(name, name)


def parts_of(message: Message) -> Sequence[Part]:
    """A message's parts, a string as one text part. For mappings; others use `messages.to_parts`."""
    content = message.content
    if isinstance(content, (str, dict)):
        return (TextPart(text=content),)
    return content


def wire_request(request: Request) -> Request:
    """The request with unique call ids, results paired to them, and failed calls told as text (R182).

    A result without its call's name gets it (R171).
    """
    seen: set[str] = set()
    open_calls: dict[str, deque[ToolUsePart]] = {}
    order: dict[str, int] = {}
    failed: set[str] = set()
    messages = []
    for at, message in enumerate(request.messages):
        made: list[Part] = []
        changed = False
        for index, part in enumerate(parts_of(message)):
            new: Part = part
            if isinstance(part, ToolUsePart):
                wire_id = part.id if _WIRE_ID.fullmatch(part.id) else f"call_{at}_{index}"
                if wire_id in seen:
                    wire_id = f"call_{at}_{index}"
                while wire_id in seen:
                    wire_id += "x"
                seen.add(wire_id)
                call = part if wire_id == part.id else part.model_copy(update={"id": wire_id})
                open_calls.setdefault(part.id, deque()).append(call)
                order[wire_id] = len(order)
                new = call
                if (reason := failure_of(part.input)) is not None:
                    failed.add(wire_id)
                    new = TextPart(
                        text=(
                            f"[A call to {part.name} was not run: {FAILURE_SENTENCES.get(reason, reason)}.]"
                        )
                    )
            elif isinstance(part, ToolResultPart):
                waiting = open_calls.get(part.tool_use_id)
                if waiting:
                    call = waiting.popleft()
                    new = part.model_copy(update={"tool_use_id": call.id, "name": part.name or call.name})
                    if call.id in failed:
                        new = TextPart(text=result_text(part))
            changed = changed or new is not part
            made.append(new)
        if changed and message.role == "user":
            # Vendors want results first, and those that pair by position want them in the order of the calls,
            # however they arrived (A20); a result that became text must not stand between two others.
            made.sort(
                key=lambda item: (
                    order.get(item.tool_use_id, -1) if isinstance(item, ToolResultPart) else len(order)
                )
            )
        messages.append(message.model_copy(update={"content": tuple(made)}) if changed else message)
    return request.model_copy(update={"messages": tuple(messages)})


def plain(text: object) -> str:
    """Text that may stand on a wire. Raises: UntrustedContentError when it is still marked."""
    if not isinstance(text, str):
        raise UntrustedContentError(
            "", "tainted text came to a provider without the guard", hint="call guard_request first"
        )
    return text


def with_meta(block: dict[str, Any], part: Any, vendor: str) -> dict[str, Any]:
    """A vendor's block with what that vendor said with the part. The block's own fields win: a note of the
    vendor's may not put other words in their place.
    """
    meta = (part.provider_meta or {}).get(vendor) or {}
    return {**block, **{name: value for name, value in meta.items() if name not in block}} if meta else block


def media_data(part: MediaPart) -> str:
    """The base64 of a media part. Raises: UnresolvedContentError for a reference."""
    if not isinstance(part.source, DataSource):
        raise UnresolvedContentError(
            "", f"{part.source.ref.address} came to a provider unresolved", hint="resolve references first"
        )
    return part.source.data


class NoForm(Exception):
    """This vendor's wire has no form for a media part, whatever the operator declared: a wrong form would be
    a vendor's 400 later. Becomes the named refusal, with its place, in `_base`.
    """

    def __init__(self, part: MediaPart, vendor: str) -> None:
        super().__init__(f"{part.media_type} has no form on the wire of {vendor}")
        self.part = part

    def refusal(self, request: Request) -> UnsupportedModalityError:
        """The refusal, with the part's place in the request that the caller gave."""
        path = next(
            (
                path
                for path, part, _ in media_parts(request)
                if (part.media_type, part.source) == (self.part.media_type, self.part.source)
            ),
            "",
        )
        return UnsupportedModalityError(path, str(self), hint="leave it out of the provider's capabilities")


def bracketed(part: MediaPart) -> list[TextPart | MediaPart]:
    """The media part, between the fence's tags when it is untrusted (R051). The mark itself stays
    behind (R054).
    """
    if part.untrusted is None:
        return [part]
    bare: MediaPart = part.model_copy(update={"untrusted": None, "name": None, "provider_meta": None})
    if isinstance(part.source, DataSource) and is_text(part.media_type):
        # A wire may show a text file as text: its words must not close the fence around it either.
        words = escape(decode_base64(part.source.data).decode("utf-8", "replace"))
        source = DataSource(data=encode_base64(words.encode("utf-8")))
        bare = bare.model_copy(update={"source": source})
    return [TextPart(text=fence_open(part.untrusted.origin)), bare, TextPart(text=FENCE_CLOSE)]


fence_untrusted_media = bracketed


def result_parts(part: ToolResultPart) -> tuple[ResultPart, ...]:
    """A result's content as parts."""
    if isinstance(part.content, (str, dict)):
        return (TextPart(text=part.content),) if part.content else ()
    return part.content


def result_text(part: ToolResultPart) -> str:
    """A result's text for wires whose results are text only, with a marker where each media part stood."""
    lines = []
    number = 0
    for inner in result_parts(part):
        if isinstance(inner, TextPart):
            lines.append(plain(inner.text))
        else:
            number += 1
            lines.append(f"[{inner.type} {number} of this result follows below]")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class MovedMedia:
    """Media that a wire moves out of a result: a header that says whose they are, then captions,
    fences and media in order.
    """

    parts: tuple[TextPart | MediaPart, ...]


def moved_media(part: ToolResultPart, wire_name: str) -> MovedMedia | None:
    """What of a result has to travel beside it, or None (R055, R169, R170)."""
    inner = result_parts(part)
    if not any(isinstance(item, (ImagePart, AudioPart, FilePart)) for item in inner):
        return None
    moved: list[TextPart | MediaPart] = [
        TextPart(text=f"Media returned by the tool call {part.tool_use_id} ({wire_name}):")
    ]
    caption: TextPart | None = None
    for item in inner:
        if isinstance(item, TextPart):
            caption = item
            continue
        if caption is not None and len(plain(caption.text)) <= CAPTION_CHARS:
            moved.append(caption)
        caption = None
        moved.extend(bracketed(item))
    return MovedMedia(tuple(moved))


def system_text(request: Request) -> str | None:
    """The system prompt and the system messages as one text, for vendors with one field for it (R087)."""
    texts = [plain(request.system)] if request.system else []
    for message in request.messages:
        if message.role == "system":
            texts.append(
                "".join(plain(part.text) for part in parts_of(message) if isinstance(part, TextPart))
            )
    joined = "\n\n".join(text for text in texts if text)
    return joined or None


class Unwritable(Exception):
    """A body, or an input inside of it, cannot be written as JSON. Becomes the named refusal, with its place,
    in `_base`.
    """

    def refusal(self, request: Request, extra: Mapping[str, Any]) -> MessageStructureError:
        """The refusal, with the place in the request that the caller gave."""
        for path, value in _free_values(request, extra):
            if (fault := unwritable(value, path)) is not None:
                return MessageStructureError(fault[0], f"{fault[1]}; the request cannot be written as JSON")
        return MessageStructureError("", f"the request cannot be written as JSON ({self})")


def _free_values(request: Request, extra: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Every value of a request that has no shape of its own, with its path."""
    for at, message in enumerate(request.messages):
        for index, part in enumerate(parts_of(message)):
            path = f"messages[{at}].content[{index}]"
            if isinstance(part, ToolUsePart):
                yield f"{path}.input", part.input
                yield f"{path}.provider_meta", part.provider_meta
            elif isinstance(part, OpaquePart):
                yield f"{path}.block", part.block
    for index, tool in enumerate(request.tools or ()):
        yield f"tools[{index}].input_schema", tool.input_schema
    yield "extra_body", extra


def arguments_text(value: object) -> str:
    """A call's input as JSON text inside a body. Raises: Unwritable for what a text cannot hold, such as an
    input nested deeper than the encoder goes.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as error:
        raise Unwritable(f"{type(error).__name__}: {error}") from error


def object_input(value: object) -> dict[str, Any]:
    """A call's input for vendors that take objects only."""
    return value if isinstance(value, dict) else {"input": value}


def wire_bytes(body: Mapping[str, Any]) -> bytes:
    """The JSON bytes of a request body: UTF-8, keys in the order given. Raises: Unwritable."""
    try:
        text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (ValueError, TypeError, RecursionError) as error:
        raise Unwritable(f"{type(error).__name__}: {error}") from error
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return clean_text(text).encode("utf-8")
