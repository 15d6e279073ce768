"""Checking request bodies against the official SDKs' own types, with nothing the types do not name
allowed.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import types
from collections.abc import Mapping
from typing import Any

from pydantic import ConfigDict, TypeAdapter
from typing_extensions import is_typeddict

Json = dict[str, Any]


def _forbid_extra(package: str) -> None:
    """Make every TypedDict of a package refuse unknown keys; without this pydantic drops them silently."""
    root = importlib.import_module(package)
    for found in pkgutil.walk_packages(root.__path__, f"{package}."):
        if found.name.endswith("_param") or found.name.endswith("_params"):
            module = importlib.import_module(found.name)
            for value in vars(module).values():
                if is_typeddict(value):
                    value.__pydantic_config__ = ConfigDict(extra="forbid", arbitrary_types_allowed=True)


@functools.cache
def _adapter(wire: str) -> TypeAdapter[Any]:
    if wire == "anthropic":
        _forbid_extra("anthropic.types")
        from anthropic.types.message_create_params import MessageCreateParamsNonStreaming as Anthropic

        return TypeAdapter(Anthropic)
    if wire == "openai-chat":
        _forbid_extra("openai.types.chat")
        from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming as Chat

        return TypeAdapter(Chat)
    _forbid_extra("openai.types.responses")
    from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming as Responses

    return TypeAdapter(Responses)


def check_body(wire: str, body: Json) -> None:
    """Raise pydantic's ValidationError when the SDK's types do not allow this body."""
    if wire == "gemini":
        _check_gemini(body)
        return
    if wire == "openai-responses":
        # The types demand a reasoning item's id; we leave it out on purpose (see the module), so it is lent
        # one here.
        items = [
            {**item, "id": "rs_lent"} if item.get("type") == "reasoning" else item for item in body["input"]
        ]
        body = {**body, "input": items}
    _consume(_adapter(wire).validate_python(body))


def _check_gemini(body: Json) -> None:
    from google.genai import types as genai

    for entry in body["contents"]:
        genai.Content.model_validate(entry)
    if "systemInstruction" in body:
        genai.Content.model_validate(body["systemInstruction"])
    for tool in body.get("tools") or ():
        genai.Tool.model_validate(tool)
    genai.GenerationConfig.model_validate(body["generationConfig"])
    assert body.keys() <= {"contents", "systemInstruction", "tools", "generationConfig"}


def _consume(value: Any) -> None:
    """Walk the validated value: fields typed Iterable are validated only when they are read."""
    if isinstance(value, Mapping):
        for item in value.values():
            _consume(item)
    elif (
        isinstance(value, (list, tuple))
        or type(value).__name__ == "ValidatorIterator"
        or isinstance(value, types.GeneratorType)
    ):
        for item in value:
            _consume(item)
