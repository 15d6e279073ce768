"""Providers: the one canonical request on four vendors' wires, and a scripted one."""

from __future__ import annotations

from fumehood.agent.providers._named import API_KEYS, provider_for
from fumehood.agent.providers._over import BrokerHttp, HttpxHttp
from fumehood.agent.providers._types import (
    Chunk,
    HttpReply,
    HttpRequest,
    HttpStream,
    ModelHttp,
    Provider,
    ToolDelta,
)
from fumehood.agent.providers._wire import fence_untrusted_media
from fumehood.agent.providers.anthropic import AnthropicProvider
from fumehood.agent.providers.gemini import GeminiProvider
from fumehood.agent.providers.openai_chat import OpenAIChatProvider
from fumehood.agent.providers.openai_responses import OpenAIResponsesProvider
from fumehood.agent.providers.scripted import ScriptedProvider

__all__ = [
    "API_KEYS",
    "AnthropicProvider",
    "BrokerHttp",
    "Chunk",
    "GeminiProvider",
    "HttpReply",
    "HttpRequest",
    "HttpStream",
    "HttpxHttp",
    "ModelHttp",
    "OpenAIChatProvider",
    "OpenAIResponsesProvider",
    "Provider",
    "ScriptedProvider",
    "ToolDelta",
    "fence_untrusted_media",
    "provider_for",
]
