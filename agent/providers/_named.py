"""Providers by the names of the command line: `anthropic:ID`, `openai:ID`, `openai-responses:ID`,
`gemini:ID`, `scripted:FILE`.

`openai:ID` means Responses for models that reason, because only that wire carries their reasoning, and Chat
Completions for the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fumehood.agent._capabilities import OPENAI, capabilities_of
from fumehood.agent.providers._base import HttpProvider
from fumehood.agent.providers._types import ModelHttp, Provider
from fumehood.agent.providers.anthropic import AnthropicProvider
from fumehood.agent.providers.gemini import GeminiProvider
from fumehood.agent.providers.openai_chat import OpenAIChatProvider
from fumehood.agent.providers.openai_responses import OpenAIResponsesProvider
from fumehood.agent.providers.scripted import ScriptedProvider
from fumehood.policies.errors import ConfigError

API_KEYS: Final[Mapping[str, str]] = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
}
"""The variable that holds a vendor's key where the operator names no secret. Read by the host;
nothing here reads the environment.
"""

_KINDS: Final[Mapping[str, type[HttpProvider]]] = {
    "anthropic": AnthropicProvider,
    "openai": OpenAIChatProvider,
    "openai-responses": OpenAIResponsesProvider,
    "gemini": GeminiProvider,
}


def provider_for(
    name: str, http: ModelHttp | None, *, api_key: str | None = None, **options: Any
) -> Provider:
    """The provider that `name` means. http: the way out; None only for scripted ones and for `render`.

    options: the provider's own. Raises: ConfigError for a name that is none.
    """
    vendor, found, model = name.partition(":")
    if vendor == "scripted" and model:
        return ScriptedProvider.from_file(model)
    if vendor not in _KINDS or not found or not model:
        known = ", ".join(f"{kind}:ID" for kind in _KINDS)
        raise ConfigError(f"{name!r} names no model", hint=f"write one of {known}, scripted:FILE")
    kind = _KINDS[vendor]
    if vendor == "openai" and capabilities_of(OPENAI, model, own_url=True).reasoning:
        kind = OpenAIResponsesProvider
    return kind(http, model, api_key=api_key, **options)  # type: ignore[arg-type]
