"""The four wires as the tests use them: a fake vendor on a loopback server, our provider in front
of it, and a reader of its bodies.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from fumehood.agent._parts import Capabilities, Request
from fumehood.agent.providers import (
    AnthropicProvider,
    GeminiProvider,
    HttpxHttp,
    OpenAIChatProvider,
    OpenAIResponsesProvider,
)
from fumehood.agent.providers._base import HttpProvider
from fumehood.testing.http import HttpServer
from fumehood.testing.vendors import VENDORS, FakeVendor

Json = dict[str, Any]

MODELS = {
    "anthropic": (AnthropicProvider, "claude-opus-4-5"),
    "openai-chat": (OpenAIChatProvider, "gpt-4o"),
    "openai-responses": (OpenAIResponsesProvider, "gpt-5"),
    "gemini": (GeminiProvider, "gemini-2.5-pro"),
}
WIRES = list(MODELS)
EVERYTHING = {"image": ["*"], "audio": ["*"], "file": ["*"], "reasoning": True}


def offline(wire: str, model: str | None = None, **options: Any) -> HttpProvider:
    """Our provider without a network, for `render`."""
    kind, default = MODELS[wire]
    return kind(None, model or default, **options)  # type: ignore[arg-type]


def render(wire: str, request: Mapping[str, Any], **options: Any) -> Json:
    """The body that would go on the wire."""
    from fumehood.agent._effect import parse_request

    options.setdefault("capabilities", EVERYTHING)
    return offline(wire, **options).render(parse_request(request))


@dataclass
class Wire:
    """A fake vendor that listens, and the way to it."""

    name: str
    vendor: FakeVendor
    http: HttpxHttp
    url: str

    def provider(
        self, capabilities: Mapping[str, Any] | Capabilities | None = EVERYTHING, **options: Any
    ) -> HttpProvider:
        kind, model = MODELS[self.name]
        return kind(self.http, model, base_url=self.url, capabilities=capabilities, **options)


@asynccontextmanager
async def live(name: str) -> AsyncIterator[Wire]:
    """A fake vendor on loopback."""
    vendor = VENDORS[name]()
    with HttpServer(vendor) as server:
        async with httpx.AsyncClient(trust_env=False) as client:
            url = server.url.rstrip("/") + ("/v1" if name.startswith("openai") else "")
            yield Wire(name, vendor, HttpxHttp(client), url)


def strings(value: Any) -> Iterator[str]:
    """Every string of a body, keys left out, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def texts(body: Json) -> Iterator[str]:
    """Every string that is prompt text, not media data."""
    for text in strings(body):
        if not text.startswith("data:") and not _is_media(body, text):
            yield text


def _is_media(body: Any, text: str) -> bool:
    """Whether the string stands in a media data field somewhere in the body."""
    stack = [body]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if item.get("data") == text and len(text) >= 40:
                return True
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
    return False


def order(body: Json) -> list[str]:
    """What a model reads, in order: texts as they are, media as <media>."""
    made = []
    for text in strings(body.get("messages") or body.get("input") or body.get("contents")):
        made.append("<media>" if text.startswith("data:") or text.startswith("iVBOR") else text)
    return made


def no_network() -> Request:
    raise AssertionError("no network here")
