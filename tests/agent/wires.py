"""The four wires as the tests use them: a fake vendor on a loopback server, our provider in front
of it, and a reader of its bodies.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from fumehood.agent._effect import parse_request
from fumehood.agent._parts import Capabilities, Message, Request, ToolUsePart, tool_result_part
from fumehood.agent._response import Response, assistant_message_of
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
from tests.agent.samples import (
    PNG_B,
    assistant,
    bad,
    call,
    file,
    image,
    parts_of,
    request,
    result,
    text,
    user,
)

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
    made: HttpProvider = kind(None, model or default, **options)
    return made


def render(wire: str, request: Mapping[str, Any], **options: Any) -> Json:
    """The body that would go on the wire."""
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
        made: HttpProvider = kind(self.http, model, base_url=self.url, capabilities=capabilities, **options)
        return made


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
    for item in strings(body):
        if not item.startswith("data:") and not _is_media(body, item):
            yield item


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
    for item in strings(body.get("messages") or body.get("input") or body.get("contents")):
        made.append("<media>" if item.startswith("data:") or item.startswith("iVBOR") else item)
    return made


def no_network() -> Request:
    raise AssertionError("no network here")


TOOLS = [
    {
        "name": "look",
        "description": "Look at it",
        "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}},
    },
    {"name": "acme.fetch_doc", "description": "", "input_schema": {"type": "object"}},
]

FULL = request(
    {"role": "system", "content": "injected context"},
    user("hi"),
    user([text("see"), image(name="a.png"), file(name="r.pdf"), text(bad("untrusted words"))]),
    assistant([text("let me look"), call("c1", "look", {"q": "x"}), call("c2", "acme.fetch_doc", {})]),
    user(
        [result("c1", [text("caption"), image()]), result("c2", bad({"t": 1}), is_error=True), text("go on")]
    ),
    assistant("fine"),
    user([image(PNG_B, untrusted={"origin": "mcp:a/b"})]),
    system="be kind",
    tools=TOOLS,
)


def failed_answer(id_: str) -> Any:
    return tool_result_part(
        id_, "look", "The call was cut off and not run; send it again, shorter.", is_error=True
    )


async def answer(here: Wire, body: Json, streamed: bool, **options: Any) -> Any:
    provider = here.provider(**options)
    if not streamed:
        return await provider.complete(parse_request(body))
    return [chunk async for chunk in provider.stream(parse_request(body))][-1].response


def second_turn(response: Response, first: str = "go") -> Request:
    """The next request, with readable reasoning filled in as the effect would have from its store."""
    thoughts = iter(response.reasoning)
    parts = []
    for part in parts_of(assistant_message_of(response)):
        if part.type == "reasoning":
            part = part.model_copy(update={"text": next(thoughts).text, "omitted": None, "digest": None})
        parts.append(part)
    answers = [failed_answer(part.id) for part in parts if isinstance(part, ToolUsePart)]
    return Request(
        messages=(Message.user(first), Message.of("assistant", parts), Message.of("user", answers))
    )
