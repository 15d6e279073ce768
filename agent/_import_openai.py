"""Messages of OpenAI's Chat Completions and items of its Responses as ours.

Guarantees: parts arrive in order; what a block says beyond its part (annotations, the detail of an image, a
message's phase) stays with the part and goes back to OpenAI with it; a block without a counterpart becomes an
opaque part that goes back byte for byte on the wire that it came from. Readable reasoning is never kept
(R312, R486). The `name` of a speaker has no counterpart and is left behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from fumehood.agent._errors import MessageStructureError
from fumehood.agent._guard_checks import shown
from fumehood.agent._importing import (
    Json,
    Meta,
    arguments,
    below,
    data_url,
    each,
    field,
    merged,
    meta_of,
    out_of_scope,
    recorded_reasoning,
    role_of,
)
from fumehood.agent._parts import (
    AudioPart,
    DataSource,
    Message,
    OpaquePart,
    Part,
    ResultPart,
    Role,
    TextPart,
    ToolResultPart,
    ToolUsePart,
)

_VENDOR = "openai"
_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "user",
    "function": "user",
}
_SOUNDS = {"mp3": "audio/mpeg", "wav": "audio/wav"}


def from_openai(messages: Sequence[Json]) -> tuple[Message, ...]:
    """Messages of an OpenAI Chat Completions request as ours; tool messages next to each other become one
    user message.

    System and developer messages become system messages. Raises: MessageStructureError.
    """
    made = each("messages", messages, _message)
    return merged(made, "user", lambda part: isinstance(part, ToolResultPart))


def _message(message: Json) -> Message:
    role = role_of(message, _ROLES)
    if message["role"] in ("tool", "function"):
        old = message["role"] == "function"
        body = field(message, "content", str, list)
        answer = ToolResultPart(
            tool_use_id="" if old else field(message, "tool_call_id"),
            name=field(message, "name") if old else None,
            content=body if isinstance(body, str) else tuple(each("content", body, _answer_text)),
        )
        return Message.of("user", [answer])
    body = message.get("content")
    if body is not None:
        field(message, "content", str, list)
    calls: list[Part] = each("tool_calls", message.get("tool_calls") or [], _call)
    if (old_call := message.get("function_call")) is not None:
        with below("function_call"):
            name = field(old_call, "name")
            calls.append(ToolUsePart(id="", name=name, input=arguments(old_call)))
    refusal = message.get("refusal")
    if isinstance(body, str) and not calls and not refusal:
        return Message(role=role, content=body)
    parts: list[Part] = [TextPart(text=body)] if isinstance(body, str) and body else []
    if isinstance(body, list):
        parts = each("content", body, _part)
    if refusal:
        parts.append(TextPart(text=field(message, "refusal"), provider_meta={_VENDOR: {"type": "refusal"}}))
    return Message.of(role, [*parts, *calls])


def _answer_text(item: Json) -> ResultPart:
    return TextPart(text=field(item, "text"))


def _call(call: Json) -> Part:
    if isinstance(call, dict) and call.get("type", "function") != "function":
        return OpaquePart(provider=_VENDOR, block=dict(call))
    function = field(call, "function", dict)
    with below("function"):
        name, input_ = field(function, "name"), arguments(function)
    return ToolUsePart(
        id=field(call, "id"),
        name=name,
        input=input_,
        provider_meta=meta_of(call, _VENDOR, "id", "type", "function"),
    )


def _part(item: Json, of_message: Json | None = None) -> Part:
    """A content part of either wire. of_message: what Responses said of the whole message."""
    around = {"message": dict(of_message)} if of_message else {}
    match field(item, "type"):
        case "text" | "input_text" | "output_text":
            said = meta_of({**item, **around}, _VENDOR, "type", "text", "logprobs")
            if said == {_VENDOR: {"annotations": []}}:
                said = None
            return TextPart(text=field(item, "text"), provider_meta=said)
        case "refusal":
            return TextPart(
                text=field(item, "refusal"), provider_meta={_VENDOR: {"type": "refusal", **around}}
            )
        case "image_url":
            image = field(item, "image_url", dict)
            with below("image_url"):
                return _url(image, "url", None, meta_of(image, _VENDOR, "url"))
        case "input_image":
            if item.get("image_url") is None:
                raise out_of_scope("file_id", "a file id")
            detail = item.get("detail")
            return _url(item, "image_url", None, meta_of({"detail": detail}, _VENDOR))
        case "input_audio":
            sound = field(item, "input_audio", dict)
            with below("input_audio"):
                if (kind := field(sound, "format")) not in _SOUNDS:
                    raise MessageStructureError("format", f"{shown(kind)} is not mp3 or wav")
                return AudioPart(media_type=_SOUNDS[kind], source=DataSource(data=field(sound, "data")))
        case "file":
            with below("file"):
                return _file(field(item, "file", dict))
        case "input_file":
            return _file(item)
        case _:
            return OpaquePart(provider=_VENDOR, block=dict(item))


def _file(file: Json) -> Part:
    if file.get("file_data") is None:
        raise out_of_scope("file_id", "a file id")
    return _url(file, "file_data", file.get("filename"), None)


def _url(holder: Json, name: str, file_name: str | None, meta: Meta) -> Part:
    url = field(holder, name)
    with below(name):
        return data_url(url, file_name, meta)


def from_responses(items: Sequence[Json]) -> tuple[Message, ...]:
    """Input items of an OpenAI Responses request as ours; calls, reasoning and text of one assistant turn
    become one message.

    Raises: MessageStructureError.
    """
    made = merged(each("input", items, _item), "assistant", lambda part: True)
    return merged(made, "user", lambda part: isinstance(part, ToolResultPart))


def _item(item: Json) -> Message:
    match item.get("type", "message") if isinstance(item, dict) else field(item, "type"):
        case "message":
            return _item_message(item)
        case "function_call":
            call = ToolUsePart(
                id=field(item, "call_id"),
                name=field(item, "name"),
                input=arguments(item),
                provider_meta=meta_of(item, _VENDOR, "type", "id", "call_id", "name", "arguments", "status"),
            )
            return Message.of("assistant", [call])
        case "function_call_output":
            body = field(item, "output", str, list)
            answer = ToolResultPart(
                tool_use_id=field(item, "call_id"),
                content=body if isinstance(body, str) else tuple(each("output", body, _output)),
                provider_meta=meta_of(item, _VENDOR, "type", "id", "call_id", "output", "status"),
            )
            return Message.of("user", [answer])
        case "reasoning":
            texts = each("summary", item.get("summary") or [], lambda part: field(part, "text"))
            made = recorded_reasoning("\n\n".join(texts), item.get("encrypted_content"), _VENDOR, "summary")
            return Message.of("assistant", [made])
        case _:
            return Message.of("assistant", [OpaquePart(provider=_VENDOR, block=dict(item))])


def _item_message(item: Json) -> Message:
    roles = {name: role for name, role in _ROLES.items() if name not in ("tool", "function")}
    role = role_of(item, roles)
    body = field(item, "content", str, list)
    more = meta_of(item, _VENDOR, "type", "id", "role", "content", "status")
    of_message: Any = None if more is None else more[_VENDOR]
    if isinstance(body, str):
        meta = {_VENDOR: {"message": of_message}} if of_message else None
        return (
            Message(role=role, content=body)
            if meta is None
            else Message.of(role, [TextPart(text=body, provider_meta=meta)])
        )
    parts = each("content", body, lambda part: _part(part, of_message))
    if any(isinstance(part, OpaquePart) for part in parts):
        # A part without a counterpart stands in no other place than in its message: the message is the block.
        return Message.of(role, [OpaquePart(provider=_VENDOR, block=dict(item))])
    return Message.of(role, parts)


def _output(part: Json) -> ResultPart:
    made = _part(part)
    if isinstance(made, OpaquePart):
        raise MessageStructureError("type", f"{shown(part['type'])} in an output has no form here")
    return cast(ResultPart, made)
