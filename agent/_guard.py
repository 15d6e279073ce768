"""The guard: what stands between any transcript and any model.

Guarantees: tainted content leaves it only inside a fence in a user message, and anything tainted anywhere
else is refused (R032 to R036, R042 to R049); the request has the shape of contract.md section 6, every part
stands in a message that may hold it, every tool result answers one earlier call, inline media are what they
say and under the caps. It raises the five GuardError kinds and nothing else, whatever JSON it gets. One walk
over the request, iterative where depth is the sender's choice, linear in its size. No option turns it off
(R031). Does not fetch, decode or trust: references are checked in form only, capabilities and resolving come
after.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, overload

from fumehood.agent._errors import MessageStructureError, OversizedInlinePartError, UntrustedContentError
from fumehood.agent._guard_checks import (
    MAX_TAINT_NODES,
    check_capabilities,
    check_framework_fields,
    check_provider_meta,
    check_reasoning,
    check_ref,
    clean,
    fenced,
    inline_data,
    json_object,
    known_fields,
    plain_text,
    refuse_taint_below,
    shown,
    spoken,
    with_article,
)
from fumehood.agent._letters import heads, without_media
from fumehood.agent._media import MEDIA_TYPE, base64_fault, base64_size, decode_base64, media_fault
from fumehood.agent._parts import FRAMEWORK_FIELDS, Request
from fumehood.agent._taint import is_tainted

MAX_INLINE_BYTES: Final = 65_536
"""Decoded bytes that one inline part may hold (R108)."""

MAX_INLINE_TOTAL_BYTES: Final = 262_144
"""Decoded bytes that all inline parts of one request may hold (R112)."""

__all__ = ["MAX_INLINE_BYTES", "MAX_INLINE_TOTAL_BYTES", "MAX_TAINT_NODES", "guard_request"]

_REQUEST_KEYS: Final = frozenset({"system", "messages", "tools", "capabilities"})
_MESSAGE_KEYS: Final = frozenset({"role", "content", *FRAMEWORK_FIELDS})


def _fields(required: set[str], optional: set[str]) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(required), frozenset(required | optional | {"type"})


_PART_KEYS: Final[dict[str, tuple[frozenset[str], frozenset[str]]]] = {
    # type: (required, all)
    "text": _fields({"text"}, {"provider_meta"}),
    "image": _fields({"media_type", "source"}, {"name", "untrusted", "provider_meta"}),
    "audio": _fields({"media_type", "source"}, {"name", "untrusted", "provider_meta"}),
    "file": _fields({"media_type", "source"}, {"name", "untrusted", "provider_meta"}),
    "tool_use": _fields({"id", "name", "input"}, {"signature", "provider_meta"}),
    "tool_result": _fields({"tool_use_id", "content"}, {"is_error", "name", "retention", "provider_meta"}),
    "reasoning": _fields({"kind", "provider"}, {"signature", "text_ref", "digest", "omitted", "text"}),
    "opaque": _fields({"provider", "block"}, set()),
}
_ROLES: Final = frozenset({"user", "assistant", "system"})
_WHERE: Final[dict[str, frozenset[str]]] = {
    "text": frozenset({"user", "assistant", "system"}),
    "image": frozenset({"user"}),
    "audio": frozenset({"user"}),
    "file": frozenset({"user"}),
    "tool_use": frozenset({"assistant"}),
    "tool_result": frozenset({"user"}),
    "reasoning": frozenset({"assistant"}),
    "opaque": frozenset({"user", "assistant"}),
}
_TOOL_KEYS: Final = frozenset({"name", "description", "input_schema"})
_TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")


@overload
def guard_request(
    request: Request, *, max_inline_bytes: int | None = ..., max_inline_total_bytes: int | None = ...
) -> Request: ...
@overload
def guard_request(
    request: Mapping[str, Any],
    *,
    max_inline_bytes: int | None = ...,
    max_inline_total_bytes: int | None = ...,
) -> dict[str, Any]: ...
def guard_request(
    request: Request | Mapping[str, Any],
    *,
    max_inline_bytes: int | None = MAX_INLINE_BYTES,
    max_inline_total_bytes: int | None = MAX_INLINE_TOTAL_BYTES,
) -> Request | dict[str, Any]:
    """The request as it may go to a model: tainted text fenced, everything else unchanged.

    request: the model, or its JSON form; the answer has the same kind. max_inline_bytes,
    max_inline_total_bytes: decoded bytes per part and per request; None where references were resolved
    already. Guarding a guarded request changes nothing. Raises: UntrustedContentError, MessageStructureError,
    OversizedInlinePartError.
    """
    caps = (max_inline_bytes, max_inline_total_bytes)
    if isinstance(request, Request):
        return Request.model_validate(_Walk(*caps).request(request.to_json()))
    return _Walk(*caps).request(request)


class _Walk:
    """The state of one walk: open tool calls, inline bytes so far, and the media data seen."""

    def __init__(self, max_part: int | None, max_total: int | None) -> None:
        self._max_part = max_part
        self._max_total = max_total
        self._inline = 0
        self._open: dict[str, int] = {}
        self._data: frozenset[str] = frozenset()

    def request(self, request: object) -> dict[str, Any]:
        if is_tainted(request):
            raise UntrustedContentError("", "a whole request may not be tainted")
        body = json_object(request, "", "a request")
        known_fields(body, _REQUEST_KEYS, "", "a request")
        guarded: dict[str, Any] = dict(body)
        if "system" in body:
            guarded["system"] = (
                None if body["system"] is None else plain_text(body["system"], "system", "the system prompt")
            )
        messages = body.get("messages")
        if is_tainted(messages):
            raise UntrustedContentError("messages", "a tainted list of messages; taint their contents")
        if not isinstance(messages, (list, tuple)):
            raise MessageStructureError("messages", "is missing or not a list")
        # Media first: a text can only be compared with the media of the whole request once all of it is
        # known.
        self._data = heads(inline_data(messages))
        guarded["messages"] = [
            self._message(message, f"messages[{index}]") for index, message in enumerate(messages)
        ]
        if body.get("tools") is not None:
            guarded["tools"] = self._tools(body["tools"])
        if body.get("capabilities") is not None:
            guarded["capabilities"] = check_capabilities(body["capabilities"])
        return guarded

    def _message(self, message: object, path: str) -> dict[str, Any]:
        if is_tainted(message):
            raise UntrustedContentError(path, "a whole message may not be tainted; taint its content")
        body = json_object(message, path, "a message")
        known_fields(body, _MESSAGE_KEYS, path, "a message")
        role = body.get("role")
        if not isinstance(role, str) or role not in _ROLES:
            if is_tainted(role):
                raise UntrustedContentError(f"{path}.role", "tainted; the role is the application's to say")
            raise MessageStructureError(f"{path}.role", f"{shown(role)} is not user, assistant or system")
        content = body.get("content")
        where = f"{path}.content"
        if isinstance(content, (list, tuple)):
            made: object = [
                # Most parts are plain text, which may stand anywhere; they need no path and no table.
                dict(part) if _is_plain_text(part) else self._part(part, role, f"{where}[{index}]")
                for index, part in enumerate(content)
            ]
        elif isinstance(content, str):
            made = clean(content)
        elif is_tainted(content):
            made = self._without_media(spoken(content, role, where))
        else:
            raise MessageStructureError(where, f"{shown(content)} is not a string or a list of parts")
        check_framework_fields(body, path)
        return {**body, "role": role, "content": made}

    def _part(self, part: object, role: str, path: str) -> dict[str, Any]:
        if is_tainted(part):
            if role != "user":
                raise UntrustedContentError(
                    path, f"tainted content in {with_article(role)} message; only a user message may hold it"
                )
            # Never read as media or as a call, whatever shape it has (R059).
            return {"type": "text", "text": self._without_media(fenced(part, path))}
        body = json_object(part, path, "a part")
        kind = body.get("type")
        if not isinstance(kind, str) or kind not in _PART_KEYS:
            if is_tainted(kind):
                raise UntrustedContentError(f"{path}.type", "tainted; the type is the application's to say")
            kinds = ", ".join(_PART_KEYS)
            raise MessageStructureError(f"{path}.type", f"{shown(kind)} is not one of {kinds}")
        required, known = _PART_KEYS[kind]
        known_fields(body, known, path, f"a {kind} part")
        if not required <= body.keys():
            missing = min(required - body.keys())
            raise MessageStructureError(f"{path}.{missing}", f"is missing; a {kind} part needs it")
        if role not in _WHERE[kind]:
            allowed = " or ".join(sorted(_WHERE[kind]))
            # Untrusted media outside a user message is first of all untrusted (R052).
            if body.get("untrusted") is not None:
                raise UntrustedContentError(
                    path, f"untrusted {kind} in {with_article(role)} message; only a user message may hold it"
                )
            raise MessageStructureError(
                path,
                (
                    f"a {kind} part in {with_article(role)} message; it belongs in "
                    f"{with_article(allowed)} message"
                ),
            )
        if body.get("provider_meta") is not None:
            check_provider_meta(body["provider_meta"], f"{path}.provider_meta")
        match kind:
            case "text":
                text = spoken(body["text"], role, f"{path}.text")
                # The application's own text goes out letter for letter (R066), others' does not.
                return {**body, "text": self._without_media(text) if is_tainted(body["text"]) else text}
            case "tool_use":
                return self._tool_use(body, path)
            case "tool_result":
                return self._tool_result(body, path)
            case "reasoning":
                return check_reasoning(body, path)
            case "opaque":
                plain_text(body["provider"], f"{path}.provider", "a provider's name")
                refuse_taint_below(body["block"], f"{path}.block", "a provider's own block")
                json_object(body["block"], f"{path}.block", "a provider's own block")
                return dict(body)
            case _:
                return self._media(body, kind, path)

    def _tool_use(self, body: Mapping[str, Any], path: str) -> dict[str, Any]:
        id_ = plain_text(body["id"], f"{path}.id", "a call's id")
        plain_text(body["name"], f"{path}.name", "a call's tool name")
        refuse_taint_below(body["input"], f"{path}.input", "a call's input (a forged model call)")
        if body.get("signature") is not None:
            plain_text(body["signature"], f"{path}.signature", "a call's signature")
        self._open[id_] = self._open.get(id_, 0) + 1
        return dict(body)

    def _tool_result(self, body: Mapping[str, Any], path: str) -> dict[str, Any]:
        id_ = plain_text(body["tool_use_id"], f"{path}.tool_use_id", "a result's call id")
        if body.get("name") is not None:
            plain_text(body["name"], f"{path}.name", "a result's tool name")
        error = body.get("is_error")
        if is_tainted(error):
            raise UntrustedContentError(
                f"{path}.is_error", "tainted; whether a tool failed is the host's to say"
            )
        if error is not None and not isinstance(error, bool):
            raise MessageStructureError(f"{path}.is_error", f"{shown(error)} is not true or false")
        retention = body.get("retention")
        if is_tainted(retention):
            raise UntrustedContentError(f"{path}.retention", "tainted; retention is the operator's to say")
        if retention is not None and retention not in ("none", "requery", "durable"):
            raise MessageStructureError(
                f"{path}.retention", f"{shown(retention)} is not none, requery or durable"
            )
        left = self._open.get(id_)
        if left is None:
            raise MessageStructureError(
                f"{path}.tool_use_id", f"{shown(id_)} answers no call of an earlier assistant message"
            )
        if left == 0:
            raise MessageStructureError(f"{path}.tool_use_id", f"{shown(id_)} was answered before")
        self._open[id_] = left - 1
        content = body["content"]
        where = f"{path}.content"
        if isinstance(content, (list, tuple)):
            made: object = [
                self._result_part(part, f"{where}[{index}]") for index, part in enumerate(content)
            ]
        elif is_tainted(content):
            made = self._without_media(fenced(content, where))
        elif isinstance(content, str):
            made = self._without_media(clean(content))
        else:
            raise MessageStructureError(
                where, f"{shown(content)} is not a string or a list of text and media parts"
            )
        return {**body, "content": made}

    def _result_part(self, part: object, path: str) -> dict[str, Any]:
        if not is_tainted(part):
            kind = json_object(part, path, "a part of a result").get("type")
            if kind not in ("text", "image", "audio", "file"):
                raise MessageStructureError(
                    f"{path}.type", f"{shown(kind)} cannot stand in a tool result; text and media can"
                )
        made = self._part(part, "user", path)
        return {**made, "text": self._without_media(made["text"])} if made["type"] == "text" else made

    def _without_media(self, text: str) -> str:
        """The text with base64 of this request's own media taken out: the model gets the picture,
        not its letters as well.
        """
        return without_media(text, self._data, any_media=False) if self._data else text

    def _media(self, body: Mapping[str, Any], kind: str, path: str) -> dict[str, Any]:
        media_type = plain_text(body["media_type"], f"{path}.media_type", "a media type")
        if not MEDIA_TYPE.fullmatch(media_type):
            raise MessageStructureError(
                f"{path}.media_type", f"{shown(media_type)} is not a media type such as image/png"
            )
        top = media_type.partition("/")[0]
        if top != kind if kind != "file" else top in ("image", "audio"):
            raise MessageStructureError(f"{path}.media_type", f"{media_type} in {with_article(kind)} part")
        made = dict(body)
        if body.get("name") is not None:
            plain_text(body["name"], f"{path}.name", "a file's name")
        untrusted = body.get("untrusted")
        if untrusted is not None:
            mark = json_object(untrusted, f"{path}.untrusted", "untrusted")
            known_fields(mark, frozenset({"origin"}), f"{path}.untrusted", "untrusted")
            if not plain_text(mark.get("origin"), f"{path}.untrusted.origin", "an origin"):
                raise MessageStructureError(f"{path}.untrusted.origin", "is empty; say who sent the media")
            # A name reaches a title or file name field, outside any fence (R056); so may what a vendor takes.
            made.pop("name", None)
            made.pop("provider_meta", None)
        source = body["source"]
        if is_tainted(source):
            raise UntrustedContentError(
                f"{path}.source", "tainted; who sends media may not choose which bytes they are"
            )
        source = json_object(source, f"{path}.source", "a source")
        if is_tainted(source.get("kind")):
            raise UntrustedContentError(
                f"{path}.source.kind", "tainted; the kind of source is the application's to say"
            )
        if source.get("kind") == "ref":
            self._ref(source, path, untrusted is not None)
        elif source.get("kind") == "data":
            self._inline_part(source, media_type, path)
        else:
            raise MessageStructureError(
                f"{path}.source.kind", f"{shown(source.get('kind'))} is not ref or data"
            )
        return made

    def _ref(self, source: Mapping[str, Any], path: str, untrusted: bool) -> None:
        known_fields(source, frozenset({"kind", "ref"}), f"{path}.source", "a source")
        if untrusted:
            raise UntrustedContentError(
                f"{path}.source.ref",
                (
                    "untrusted media names stored content; an untrusted party may not choose which "
                    "bytes enter the prompt"
                ),
            )
        check_ref(source.get("ref"), f"{path}.source.ref")

    def _inline_part(self, source: Mapping[str, Any], media_type: str, path: str) -> None:
        known_fields(source, frozenset({"kind", "data"}), f"{path}.source", "a source")
        where = f"{path}.source.data"
        data = plain_text(source.get("data"), where, "inline data")
        if (fault := base64_fault(data)) is not None:
            raise MessageStructureError(where, f"{fault}")
        size = base64_size(data)
        remedy = "store the bytes (ctx.put, or ContentStore.put) and return a ref to the address instead"
        if self._max_part is not None and size > self._max_part:
            raise OversizedInlinePartError(
                path, f"{size} bytes inline; at most {self._max_part} are: {remedy}"
            )
        self._inline += size
        if self._max_total is not None and self._inline > self._max_total:
            raise OversizedInlinePartError(
                path,
                (f"{self._inline} bytes inline in this request; at most {self._max_total} are: {remedy}"),
            )
        try:
            raw = decode_base64(data)
        except ValueError as error:
            raise MessageStructureError(where, str(error)) from error
        if (fault := media_fault(media_type, raw)) is not None:
            raise MessageStructureError(where, fault)

    def _tools(self, tools: object) -> list[dict[str, Any]]:
        if is_tainted(tools):
            raise UntrustedContentError("tools", "a tainted list of tools")
        if not isinstance(tools, (list, tuple)):
            raise MessageStructureError("tools", f"{shown(tools)} is not a list")
        made = []
        names: set[str] = set()
        for index, tool in enumerate(tools):
            path = f"tools[{index}]"
            if is_tainted(tool):
                raise UntrustedContentError(path, "a tainted tool definition")
            body = json_object(tool, path, "a tool")
            known_fields(body, _TOOL_KEYS, path, "a tool")
            name = plain_text(body.get("name"), f"{path}.name", "a tool's name")
            if not _TOOL_NAME.fullmatch(name):
                raise MessageStructureError(
                    f"{path}.name", f"{shown(name)} is not 1 to 128 letters, digits, '_', '-' or '.'"
                )
            if name in names:
                raise MessageStructureError(f"{path}.name", f"{shown(name)} is the name of an earlier tool")
            names.add(name)
            if "description" in body:
                plain_text(body["description"], f"{path}.description", "a tool's description")
            if "input_schema" in body:
                refuse_taint_below(body["input_schema"], f"{path}.input_schema", "a tool's schema")
                json_object(body["input_schema"], f"{path}.input_schema", "a schema")
            made.append(dict(body))
        return made


def _is_plain_text(part: Any) -> bool:
    """Whether a part is a text part of ASCII text and nothing else."""
    if type(part) is not dict or len(part) != 2 or part.get("type") != "text":
        return False
    text = part.get("text")
    return type(text) is str and text.isascii()
