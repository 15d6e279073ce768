"""What `fumehood guard check` and `guard render` say about one request, as plain data.

Guarantees: a report is the object that contract.md section 6 names, for any text that comes in; nothing is
sent and nothing but the given resolver is asked. A request without `capabilities` takes text and tool calls
only, as a provider without a declaration does (R148).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import ValidationError

from fumehood.agent._capabilities import assert_request_supported
from fumehood.agent._deep_json import read_deep
from fumehood.agent._effect import parse_request
from fumehood.agent._errors import GuardError, MessageStructureError
from fumehood.agent._guard import guard_request
from fumehood.agent._guard_checks import first_fault
from fumehood.agent._parts import Capabilities, Request
from fumehood.agent._resolve import ContentResolver, ResolveContext, resolve_request_content
from fumehood.agent.providers import (
    AnthropicProvider,
    GeminiProvider,
    OpenAIChatProvider,
    OpenAIResponsesProvider,
)
from fumehood.agent.providers._base import HttpProvider
from fumehood.policies.errors import ConfigError

PROVIDERS: Final[Mapping[str, tuple[Callable[..., HttpProvider], str]]] = {
    "anthropic": (AnthropicProvider, "claude-sonnet-4-5"),
    "openai": (OpenAIChatProvider, "gpt-4o"),
    "openai-responses": (OpenAIResponsesProvider, "gpt-5"),
    "gemini": (GeminiProvider, "gemini-2.5-flash"),
}
"""Provider names of the command line, each with the model that is meant when none is named."""


def read_request(text: str, *, source: str) -> Any:
    """The JSON of a request. Raises: ConfigError when it is none; source: the file's name, for the
    message.
    """
    try:
        try:
            return json.loads(text)
        except RecursionError:
            return read_deep(text)  # how deep is not the parser's to judge
    except ValueError as error:
        raise ConfigError(
            f"{source}: not JSON: {error}", hint="a request is one JSON object; see docs/messages.md"
        ) from error


def check_report(request: object) -> dict[str, Any]:
    """`{"outcome": "ok", "request": ...}` with the guarded request, or `{"outcome": "refused", ...}`."""
    try:
        guarded = guard_request(request)  # type: ignore[call-overload]
        _assert_supported(guarded)
    except GuardError as error:
        return error.as_dict()
    return {"outcome": "ok", "request": guarded}


def _assert_supported(guarded: dict[str, Any]) -> None:
    try:
        read = Request.model_validate(guarded)
    except ValidationError as error:
        raise MessageStructureError(*first_fault(error)) from error
    assert_request_supported(read, read.capabilities)


async def render_report(
    request: object, provider: str, model: str | None, *, resolver: ContentResolver | None = None
) -> dict[str, Any]:
    """The body that would go on the provider's wire, or `{"outcome": "refused", ...}`.

    provider: a key of PROVIDERS. model: its default when None. resolver: reads references; without it they
    are refused. The request's own `capabilities` win over the model's, as an operator's word does (R161).
    """
    kind, default = PROVIDERS[provider]
    try:
        guarded = guard_request(request)  # type: ignore[call-overload]
        asked = parse_request(guarded)
        made = kind(None, model or default, capabilities=asked.capabilities)
        assert_request_supported(asked, made.capabilities, can_resolve=resolver is not None)
        context = ResolveContext("guard-render", principal="operator")
        resolved = await resolve_request_content(asked, resolver, context)
        return made.render(resolved)
    except GuardError as error:
        return error.as_dict()


def declared(provider: str, model: str | None) -> Capabilities:
    """What a provider's model declares, for a hint."""
    kind, default = PROVIDERS[provider]
    return kind(None, model or default).capabilities
