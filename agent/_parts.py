"""Messages and their parts as frozen pydantic models: the one canonical shape that every provider maps
(contract.md section 6).

Guarantees: `model_validate` of the JSON form and `to_json` are inverse; optional fields are written only when
set, so old saved conversations load and are written back unchanged (R431); string content stays a string
(R066). A text field may hold a taint wrapper until the guard has fenced it. Does not check positions, taint
or sizes: that is the guard's one walk. There is no tool role (R074) and no constructor for system messages,
because standing guidance belongs in the request's `system` (R086).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
)

from fumehood.agent._taint import TAINT_KEY, is_tainted

MAX_SAFE_INTEGER = 2**53 - 1
"""Largest size a reference may declare (R138): what every JSON reader can hold exactly."""

MaybeTainted: TypeAlias = str | dict[str, Any]
"""Text, or text in a taint wrapper."""

ProviderMeta: TypeAlias = dict[str, Any]
"""What a vendor said with a part beyond what the part holds, by provider name: citations of a text, a cache
mark, the caller of a call. It goes back to that vendor with the same part and to no other (R185).
"""

Role: TypeAlias = Literal["user", "assistant", "system"]
Retention: TypeAlias = Literal["none", "requery", "durable"]
ReasoningKind: TypeAlias = Literal["text", "summary", "redacted"]


class Model(BaseModel):
    """Base of every message model: frozen, no unknown fields, unset optional fields not written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_serializer(mode="wrap")
    def _write(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = type(self).model_fields
        written: dict[str, Any] = handler(self)
        # Only what nobody set is left out: a required field such as a call's `input` may well be null (R195).
        return {
            name: value for name, value in written.items() if value is not None or fields[name].is_required()
        }

    def to_json(self) -> dict[str, Any]:
        """The JSON form, ready for the log or a file.

        Written by hand: pydantic's own walk stops at 255 levels, and a tool input may be deeper than that.
        """
        return {
            name: _as_json(value)
            for name, field in type(self).model_fields.items()
            if (value := getattr(self, name)) is not None or field.is_required()
        }


def _as_json(value: Any) -> Any:
    if isinstance(value, Model):
        return value.to_json()
    if isinstance(value, tuple):
        return [_as_json(item) for item in value]
    return value


class ContentRef(Model):
    """Where stored bytes lie. size: decoded bytes, when known (R491)."""

    address: str
    size: Annotated[int, Field(strict=True, ge=0, le=MAX_SAFE_INTEGER)] | None = None


class RefSource(Model):
    """A claim check: the bytes are fetched right before the provider call (R098)."""

    kind: Literal["ref"] = "ref"
    ref: ContentRef


class DataSource(Model):
    """Bytes inline, as standard base64 with padding."""

    kind: Literal["data"] = "data"
    data: str


Source: TypeAlias = Annotated[RefSource | DataSource, Field(discriminator="kind")]


class Untrusted(Model):
    """The mark on media that came from outside (R050): media cannot carry fence tags inside."""

    origin: str


class TextPart(Model):
    """Text. One logical stream with the text parts next to it."""

    type: Literal["text"] = "text"
    text: MaybeTainted
    provider_meta: ProviderMeta | None = None

    @field_validator("text")
    @classmethod
    def _wrapper_only(cls, value: MaybeTainted) -> MaybeTainted:
        if isinstance(value, dict) and TAINT_KEY not in value:
            raise ValueError("text is a string or a taint wrapper")
        return value


class _Media(Model):
    media_type: str
    source: Source
    name: str | None = None
    untrusted: Untrusted | None = None
    provider_meta: ProviderMeta | None = None


class ImagePart(_Media):
    """An image."""

    type: Literal["image"] = "image"


class AudioPart(_Media):
    """A sound."""

    type: Literal["audio"] = "audio"


class FilePart(_Media):
    """Another document, such as a PDF."""

    type: Literal["file"] = "file"


MediaPart: TypeAlias = ImagePart | AudioPart | FilePart


class ToolUsePart(Model):
    """The model asks for a tool. input: any JSON value. signature: the vendor's, byte for byte, kept with the
    call (R202).

    provider_meta: see ProviderMeta.
    """

    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: Any
    signature: str | None = None
    provider_meta: ProviderMeta | None = None


ResultPart: TypeAlias = Annotated[TextPart | ImagePart | AudioPart | FilePart, Field(discriminator="type")]


class ToolResultPart(Model):
    """The answer to a tool_use. name: the tool's, for vendors that match by name; "" in old data
    (R432). is_error: absent is success.
    """

    type: Literal["tool_result"] = "tool_result"
    tool_use_id: str
    content: MaybeTainted | tuple[ResultPart, ...]
    is_error: bool | None = None
    name: str | None = None
    retention: Retention | None = None
    provider_meta: ProviderMeta | None = None


class ReasoningPart(Model):
    """What a model's reasoning leaves in a transcript: never readable text (R312).

    digest: SHA-256 of the text, hex. omitted: readable text existed and was not kept. text: only between
    resolving and the wire (R316).
    """

    type: Literal["reasoning"] = "reasoning"
    kind: ReasoningKind
    provider: str
    signature: str | None = None
    text_ref: ContentRef | None = None
    digest: str | None = None
    omitted: bool | None = None
    text: str | None = None


class OpaquePart(Model):
    """A vendor's block that fumehood has no name for. It goes back to that provider unchanged and
    to no other.
    """

    type: Literal["opaque"] = "opaque"
    provider: str
    block: Any


Part: TypeAlias = Annotated[
    TextPart | ImagePart | AudioPart | FilePart | ToolUsePart | ToolResultPart | ReasoningPart | OpaquePart,
    Field(discriminator="type"),
]

Content: TypeAlias = MaybeTainted | tuple[Part, ...]


class InjectedBy(Model):
    """Who put a message into the conversation (R271). flavor: the source that the slot records;
    iteration: whose boundary delivered it.
    """

    injection_id: str
    flavor: str
    iteration: int
    reason: str | None = None


class PausedCall(Model):
    """The call of the same batch that the run paused on (R255)."""

    tool_call_id: str
    tool_name: str


class NotDispatched(Model):
    """This answers a call that never ran (R253).

    answers: which results of the message do, by their place among its parts, when others stand beside them;
    None for all of them.
    """

    paused_call: PausedCall
    answers: tuple[Annotated[int, Field(ge=0)], ...] | None = None


class ArgumentsFailure(Model):
    """Why a call's arguments could not be used (R292)."""

    reason: Literal["invalid-json", "invalid-argument-shape", "incomplete-stream"]


FRAMEWORK_FIELDS = (
    "ephemeral",
    "injected_by",
    "not_dispatched",
    "folded_exempt",
    "tool_chars",
    "tool_result_origin",
    "tool_arguments_failure",
    "replay",
)
"""Fields of a message that are fumehood's own bookkeeping and never on a provider's wire."""


class Message(Model):
    """Who spoke, and what. content: a string, or parts; an empty list is legal and means silence (R084)."""

    role: Role
    content: Content
    ephemeral: bool | None = None
    injected_by: InjectedBy | None = None
    not_dispatched: NotDispatched | None = None
    folded_exempt: tuple[str, ...] | None = None
    tool_chars: Annotated[int, Field(ge=0)] | None = None
    tool_result_origin: Literal["not-entered", "input-cancelled"] | None = None
    tool_arguments_failure: ArgumentsFailure | None = None
    replay: dict[str, Any] | None = None

    @field_validator("content")
    @classmethod
    def _wrapper_only(cls, value: Content) -> Content:
        if isinstance(value, dict) and TAINT_KEY not in value:
            raise ValueError("content is a string or a list of parts; a single part is not accepted")
        return value

    @classmethod
    def of(cls, role: Role, parts: Iterable[Part]) -> Self:
        """A message from a role and parts."""
        return cls(role=role, content=tuple(parts))

    @classmethod
    def user(cls, text: MaybeTainted) -> Self:
        """A user text message."""
        return cls(role="user", content=text)

    @classmethod
    def assistant(cls, text: str) -> Self:
        """An assistant text message."""
        return cls(role="assistant", content=text)


class ToolSpec(Model):
    """A tool as the model sees it."""

    name: str
    description: str = ""
    input_schema: dict[str, Any] = Field(default_factory=lambda: {"type": "object"})


class Capabilities(Model):
    """Which media a provider takes, as media types ("image/png", "image/*", "*"), and whether it returns
    reasoning (R147, R163).

    Nothing declared means text and tool calls only (R148).
    """

    image: tuple[str, ...] | None = None
    audio: tuple[str, ...] | None = None
    file: tuple[str, ...] | None = None
    reasoning: bool | None = None


class Request(Model):
    """One model call: what contract.md section 6 calls a request."""

    system: MaybeTainted | None = None
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] | None = None
    capabilities: Capabilities | None = None


def strip_framework_fields(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages without fumehood's own fields, each still in its place (R183, R184): the one way
    out to a wire.
    """
    clear = dict.fromkeys(FRAMEWORK_FIELDS)
    return tuple(
        message.model_copy(update=clear)
        if any(getattr(message, name) is not None for name in FRAMEWORK_FIELDS)
        else message
        for message in messages
    )


def text_part(text: MaybeTainted) -> TextPart:
    """A text part."""
    return TextPart(text=text)


def tool_call_part(id_: str, name: str, input_: object) -> ToolUsePart:
    """A tool call part."""
    return ToolUsePart(id=id_, name=name, input=input_)


def tool_result_part(
    call_id: str,
    name: str,
    content: MaybeTainted | Sequence[ResultPart],
    *,
    is_error: bool = False,
    retention: Retention | None = None,
) -> ToolResultPart:
    """A tool result part; `call_id` is the id of the call it answers (R196)."""
    body = content if isinstance(content, (str, Mapping)) else tuple(content)
    return ToolResultPart(
        tool_use_id=call_id, name=name, content=body, is_error=is_error or None, retention=retention
    )


def is_text(value: object) -> bool:
    """Whether a text field holds text or marked text."""
    return isinstance(value, str) or is_tainted(value)
