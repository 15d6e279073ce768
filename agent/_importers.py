"""Reading other programs' transcripts into ours: loopctl's saved messages, and the request shapes of three
vendors.

Guarantees: text, media, calls, results and errors arrive in order and unchanged; a block without a
counterpart becomes an opaque part for the provider it came from and goes back to it byte for byte; readable
reasoning is never kept (R312, R486), only its digest and signature. Media by URL or by a vendor's file id is
refused, because it has another trust and lifetime than content addressing (R461).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast

from pydantic import ValidationError

from fumehood.agent._errors import MessageStructureError
from fumehood.agent._parts import (
    AudioPart,
    DataSource,
    FilePart,
    ImagePart,
    Message,
    OpaquePart,
    Part,
    ReasoningPart,
    ResultPart,
    Role,
    TextPart,
    ToolResultPart,
    ToolUsePart,
)
from fumehood.agent._taint import is_tainted, unwrap_tainted

Json = Mapping[str, Any]


def media_part(media_type: str, data: str, name: str | None = None) -> ImagePart | AudioPart | FilePart:
    """An inline media part of the modality that the media type belongs to."""
    source = DataSource(data=data)
    if media_type.startswith("image/"):
        return ImagePart(media_type=media_type, source=source, name=name)
    if media_type.startswith("audio/"):
        return AudioPart(media_type=media_type, source=source, name=name)
    return FilePart(media_type=media_type, source=source, name=name)


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


def _read(shape: str, entries: Iterable[Any], convert: Any) -> tuple[Message, ...]:
    made = []
    for index, entry in enumerate(entries):
        try:
            made.append(convert(entry))
        except MessageStructureError as error:
            place = f"messages[{index}]" + (f".{error.path}" if error.path else "")
            why = str(error.args[0]).removeprefix(f"{error.path}: ")
            raise MessageStructureError(place, why, hint=error.hint) from error
        except (KeyError, TypeError, AttributeError, ValidationError) as error:
            what = (
                f"{type(error).__name__}: {error}"
                if not isinstance(error, KeyError)
                else f"{error} is missing"
            )
            raise MessageStructureError(f"messages[{index}]", f"not a message of {shape}: {what}") from error
    return tuple(made)


# -- loopctl -------------------------------------------------------------------------------------------------


def from_loopctl(messages: Json | Sequence[Json], *, provider: str = "anthropic") -> tuple[Message, ...]:
    """loopctl's messages (`parts`, `tool_call`, `call_id`, `output`, `thinking`; R429) as ours.

    messages: one message or a list. provider: who signed the thinking parts. Raises: MessageStructureError.
    """
    return _read(
        "loopctl", [messages] if isinstance(messages, Mapping) else messages, lambda m: _loopctl(m, provider)
    )


def _loopctl(message: Json, provider: str) -> Message:
    return Message.of(message["role"], [_loopctl_part(part, provider) for part in message["parts"]])


def _loopctl_part(part: Json, provider: str) -> Part:
    match part["type"]:
        case "text":
            return TextPart(text=part["text"])
        case "image":
            return _loopctl_image(part)
        case "tool_call":
            return ToolUsePart(id=part["id"], name=part["name"], input=part["input"])
        case "thinking":
            if part.get("redacted") is not None:
                return ReasoningPart(kind="redacted", provider=provider, signature=part["redacted"])
            return recorded_reasoning(part["text"], part.get("signature"), provider)
        case "tool_result":
            output = part["output"]
            content = (
                output
                if isinstance(output, str) or is_tainted(output)
                else tuple(_loopctl_output(item) for item in output)
            )
            return ToolResultPart(
                tool_use_id=part["call_id"],
                name=part.get("name", ""),
                content=content,
                is_error=part.get("is_error"),
                retention=part.get("retention"),
            )
        case kind:
            raise MessageStructureError("parts", f"loopctl has no part of type {kind!r}")


def _loopctl_image(part: Json) -> ImagePart:
    source = part["source"]
    if source["encoding"] != "base64":
        raise MessageStructureError("source.encoding", f"{source['encoding']!r} is not base64")
    return ImagePart(media_type=source["media_type"], source=DataSource(data=source["data"]))


def _loopctl_output(item: Json) -> ResultPart:
    return _loopctl_image(item) if item["type"] == "image" else TextPart(text=item["text"])


def to_loopctl(message: Message) -> dict[str, Any]:
    """Our message in loopctl's shape, for text, inline images, calls and results.

    Raises: MessageStructureError for what loopctl has no part for (other media, references, opaque blocks).
    """
    content = message.content
    parts = (TextPart(text=content),) if isinstance(content, (str, dict)) else content
    return {"role": message.role, "parts": [_to_loopctl_part(part) for part in parts]}


def _to_loopctl_part(part: Part) -> dict[str, Any]:
    match part:
        case TextPart(text=str(text)):
            return {"type": "text", "text": text}
        case ImagePart(source=DataSource(data=data)):
            return {
                "type": "image",
                "source": {"encoding": "base64", "media_type": part.media_type, "data": data},
            }
        case ToolUsePart():
            return {"type": "tool_call", "id": part.id, "name": part.name, "input": part.input}
        case ReasoningPart(kind="redacted"):
            return {"type": "thinking", "text": "", "redacted": part.signature}
        case ReasoningPart():
            return {"type": "thinking", "text": part.text or ""} | (
                {"signature": part.signature} if part.signature else {}
            )
        case ToolResultPart():
            output = (
                part.content
                if isinstance(part.content, (str, dict))
                else [_to_loopctl_part(item) for item in part.content]
            )
            made = {
                "type": "tool_result",
                "call_id": part.tool_use_id,
                "name": part.name or "",
                "output": output,
            }
            return made | {
                k: v for k, v in (("is_error", part.is_error), ("retention", part.retention)) if v is not None
            }
        case _:
            raise MessageStructureError("", f"loopctl has no form for a {part.type} part as it stands here")


# -- Anthropic -----------------------------------------------------------------------------------------------


def from_anthropic(messages: Sequence[Json]) -> tuple[Message, ...]:
    """Messages of an Anthropic Messages request as ours. Raises: MessageStructureError."""
    return _read("Anthropic Messages", messages, _anthropic)


def _anthropic(message: Json) -> Message:
    body = message["content"]
    if isinstance(body, str):
        return Message(role=message["role"], content=body)
    return Message.of(message["role"], [anthropic_part(block) for block in body])


def anthropic_part(block: Json) -> Part:
    """One content block of Anthropic's."""
    match block["type"]:
        case "text" if set(block) <= {"type", "text"}:
            return TextPart(text=block["text"])
        case "image" | "document" if set(block) <= {"type", "source", "title"}:
            return _anthropic_media(block)
        case "tool_use" if set(block) <= {"type", "id", "name", "input"}:
            return ToolUsePart(id=block["id"], name=block["name"], input=block["input"])
        case "tool_result" if set(block) <= {"type", "tool_use_id", "content", "is_error"}:
            inner = block.get("content", "")
            content = (
                inner
                if isinstance(inner, str)
                else tuple(cast(ResultPart, anthropic_part(item)) for item in inner)
            )
            return ToolResultPart(
                tool_use_id=block["tool_use_id"], content=content, is_error=block.get("is_error")
            )
        case "thinking":
            return recorded_reasoning(block["thinking"], block.get("signature"), "anthropic")
        case "redacted_thinking":
            return ReasoningPart(kind="redacted", provider="anthropic", signature=block["data"])
        case _:
            return OpaquePart(provider="anthropic", block=dict(block))


def _anthropic_media(block: Json) -> Part:
    source = block["source"]
    if source["type"] == "base64":
        return media_part(source["media_type"], source["data"], block.get("title"))
    if source["type"] == "text":
        return OpaquePart(provider="anthropic", block=dict(block))
    raise _out_of_scope(source["type"])


# -- OpenAI --------------------------------------------------------------------------------------------------


def from_openai(messages: Sequence[Json]) -> tuple[Message, ...]:
    """Messages of an OpenAI Chat Completions request as ours; tool messages next to each other become one
    user message.

    System and developer messages become system messages. Raises: MessageStructureError.
    """
    made = _read("OpenAI Chat Completions", messages, _openai)
    return _merge_results(made)


def _openai(message: Json) -> Message:
    role = message["role"]
    if role == "tool":
        body = message["content"]
        content = body if isinstance(body, str) else tuple(TextPart(text=item["text"]) for item in body)
        return Message.of("user", [ToolResultPart(tool_use_id=message["tool_call_id"], content=content)])
    body = message.get("content")
    calls = message.get("tool_calls") or []
    ours: Role = "system" if role == "developer" else role
    if isinstance(body, str) and not calls:
        return Message(role=ours, content=body)
    parts: list[Part] = [TextPart(text=body)] if isinstance(body, str) and body else []
    if isinstance(body, Sequence) and not isinstance(body, str):
        parts = [_openai_part(item) for item in body]
    return Message.of(ours, [*parts, *(_openai_call(call) for call in calls)])


def _openai_call(call: Json) -> Part:
    if call.get("type", "function") != "function":
        return OpaquePart(provider="openai", block=dict(call))
    return ToolUsePart(
        id=call["id"], name=call["function"]["name"], input=_arguments(call["function"]["arguments"])
    )


def _arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise MessageStructureError("arguments", f"a call's arguments are not JSON: {error}") from error


def _openai_part(item: Json) -> Part:
    match item["type"]:
        case "text" | "input_text" | "output_text":
            return TextPart(text=item["text"])
        case "refusal":
            return TextPart(text=item["refusal"])
        case "image_url":
            return _data_url(item["image_url"]["url"])
        case "input_image":
            return _data_url(item.get("image_url") or "")
        case "input_audio":
            sound = item["input_audio"]
            media_type = {"mp3": "audio/mpeg", "wav": "audio/wav"}[sound["format"]]
            return AudioPart(media_type=media_type, source=DataSource(data=sound["data"]))
        case "file" | "input_file":
            file = item.get("file", item)
            if "file_data" not in file:
                raise _out_of_scope("a file id")
            return _data_url(file["file_data"], file.get("filename"))
        case _:
            return OpaquePart(provider="openai", block=dict(item))


def _data_url(url: str, name: str | None = None) -> ImagePart | AudioPart | FilePart:
    head, found, data = url.partition(";base64,")
    if not found or not head.startswith("data:"):
        raise _out_of_scope("a URL")
    return media_part(head.removeprefix("data:"), data, name)


def from_responses(items: Sequence[Json]) -> tuple[Message, ...]:
    """Input items of an OpenAI Responses request as ours; calls, reasoning and text of one assistant turn
    become one message.

    Raises: MessageStructureError.
    """
    return _merge_results(_merge_assistant(_read("OpenAI Responses", items, _response_item)))


def _response_item(item: Json) -> Message:
    match item.get("type", "message"):
        case "message":
            role: Role = "system" if item["role"] in ("system", "developer") else item["role"]
            body = item["content"]
            return (
                Message(role=role, content=body)
                if isinstance(body, str)
                else Message.of(role, [_openai_part(p) for p in body])
            )
        case "function_call":
            call = ToolUsePart(id=item["call_id"], name=item["name"], input=_arguments(item["arguments"]))
            return Message.of("assistant", [call])
        case "function_call_output":
            body = item["output"]
            content = (
                body
                if isinstance(body, str)
                else tuple(cast(ResultPart, _openai_part(part)) for part in body)
            )
            return Message.of("user", [ToolResultPart(tool_use_id=item["call_id"], content=content)])
        case "reasoning":
            text = "\n\n".join(part["text"] for part in item.get("summary") or [])
            return Message.of(
                "assistant", [recorded_reasoning(text, item.get("encrypted_content"), "openai", "summary")]
            )
        case _:
            return Message.of("assistant", [OpaquePart(provider="openai", block=dict(item))])


# -- Gemini --------------------------------------------------------------------------------------------------


def from_gemini(contents: Sequence[Json]) -> tuple[Message, ...]:
    """Contents of a Gemini generateContent request as ours. Calls without an id get one by
    position. Raises: MessageStructureError.
    """
    open_calls: list[tuple[str, str]] = []
    counter = iter(range(1, 1_000_000))

    def convert(entry: Json) -> Message:
        role: Role = "assistant" if entry.get("role") == "model" else "user"
        return Message.of(role, [_gemini_part(part, open_calls, counter) for part in entry.get("parts", [])])

    return _read("Gemini generateContent", contents, convert)


def _gemini_part(part: Json, open_calls: list[tuple[str, str]], counter: Any) -> Part:
    signature = part.get("thoughtSignature")
    known = {name for name in part if name not in ("thoughtSignature", "thought")}
    if part.get("thought") and known == {"text"}:
        return recorded_reasoning(part["text"], signature, "gemini", "summary")
    if known == {"text"} and signature is None:
        return TextPart(text=part["text"])
    if known == {"inlineData"} and signature is None:
        return media_part(part["inlineData"]["mimeType"], part["inlineData"]["data"])
    if known == {"fileData"}:
        raise _out_of_scope("a file URI")
    if known == {"functionCall"}:
        call = part["functionCall"]
        id_ = call.get("id") or f"call_{next(counter)}"
        open_calls.append((id_, call["name"]))
        return ToolUsePart(id=id_, name=call["name"], input=call.get("args", {}), signature=signature)
    if known == {"functionResponse"}:
        answer = part["functionResponse"]
        id_ = answer.get("id") or next(
            (open_id for open_id, name in open_calls if name == answer["name"]), ""
        )
        open_calls[:] = [entry for entry in open_calls if entry[0] != id_]
        body = answer.get("response", {})
        failed = set(body) == {"error"}
        value = body.get("error") if failed else body.get("output", body)
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return ToolResultPart(
            tool_use_id=id_, name=answer["name"], content=text, is_error=True if failed else None
        )
    return OpaquePart(provider="gemini", block=dict(part))


# -- shared --------------------------------------------------------------------------------------------------


def _merge_results(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Answers that stand in messages of their own, as one user message (R186)."""
    return _merge(messages, "user", lambda part: isinstance(part, ToolResultPart))


def _merge_assistant(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    return _merge(messages, "assistant", lambda part: True)


def _merge(messages: tuple[Message, ...], role: Role, mergeable: Any) -> tuple[Message, ...]:
    made: list[Message] = []
    for message in messages:
        last = made[-1] if made else None
        if last is not None and last.role == message.role == role:
            before, here = _parts(last), _parts(message)
            if before and here and all(map(mergeable, before)) and all(map(mergeable, here)):
                made[-1] = Message.of(role, [*before, *here])
                continue
        made.append(message)
    return tuple(made)


def _parts(message: Message) -> tuple[Part, ...]:
    content = message.content
    if isinstance(content, (str, dict)):
        return (TextPart(text=content),)
    return content


def _out_of_scope(what: str) -> MessageStructureError:
    return MessageStructureError(
        "source", f"media by {what} is not supported", hint="store the bytes and cite the address"
    )


def plain_text(value: object) -> str:
    """The letters of a text, marked or not. For sizes and comparisons, never for a model."""
    return str(unwrap_tainted(value)) if is_tainted(value) else str(value)
