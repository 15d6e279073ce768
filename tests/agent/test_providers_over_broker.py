"""Providers over the real broker: the vendor's host is an egress rule, the vendor's own address is
the default, TLS is checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fumehood.agent._parts import Message, Request
from fumehood.agent.providers import AnthropicProvider, BrokerHttp, GeminiProvider, OpenAIChatProvider
from fumehood.agent.providers._base import HttpProvider
from fumehood.broker import EgressRefused, FetchRequest
from fumehood.testing.http import Reply
from fumehood.testing.vendors import FakeAnthropic, FakeGemini, FakeOpenAIChat, FakeVendor, Say
from tests.broker.world import PUBLIC, Authority, World, open_world

pytestmark = pytest.mark.anyio

VENDORS: dict[str, tuple[type[HttpProvider], str, FakeVendor]] = {
    "api.anthropic.com": (AnthropicProvider, "claude-opus-4-5", FakeAnthropic()),
    "api.openai.com": (OpenAIChatProvider, "gpt-4o", FakeOpenAIChat()),
    "generativelanguage.googleapis.com": (GeminiProvider, "gemini-2.5-pro", FakeGemini()),
}
ASKED = Request(messages=(Message.user("hi"),))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    authority = Authority()
    with open_world(authority, authority.write(tmp_path / "ca.pem")) as made:
        yield made


@pytest.mark.parametrize("host", VENDORS)
async def test_a_model_call_goes_through_the_broker_and_leaves_its_row(world: World, host: str) -> None:
    kind, model, vendor = VENDORS[host]
    vendor.say(Say("text", "hello"))
    world.serve(443, vendor, tls=True)
    world.name({host: [PUBLIC]})
    async with world.call(f"POST https://{host}/") as call:
        provider = kind(BrokerHttp(call, FetchRequest), model, api_key="KEY")
        assert (await provider.complete(ASKED)).content == "hello"
        chunks = [chunk async for chunk in provider.stream(ASKED)]
        assert chunks[-1].response is not None and chunks[-1].response.content == "hello"
        assert call.hosts == (host,)
    assert "EGRESS_ALLOWED" in world.journal.kinds()
    assert any("KEY" in value for value in vendor.headers[-1].values())


async def test_a_vendor_that_policy_does_not_name_is_never_resolved(world: World) -> None:
    dns = world.name({"api.anthropic.com": [PUBLIC]})
    async with world.call("https://api.openai.com") as call:
        provider = AnthropicProvider(BrokerHttp(call, FetchRequest), "claude-opus-4-5", api_key="KEY")
        for act in (provider.complete, _drain(provider)):
            with pytest.raises(EgressRefused):
                await act(ASKED)
    assert dns.names == [] and world.journal.kinds().count("EGRESS_DENIED") == 2


async def test_a_redirect_does_not_carry_the_key_anywhere(world: World) -> None:
    server = world.serve(443, lambda seen: Reply.redirect("https://evil.test/"), tls=True)
    world.name({"api.anthropic.com": [PUBLIC], "evil.test": [PUBLIC]})
    from fumehood.agent import ProviderError

    async with world.call("https://api.anthropic.com", "https://evil.test") as call:
        provider = AnthropicProvider(BrokerHttp(call, FetchRequest), "claude-opus-4-5", api_key="KEY")
        with pytest.raises(ProviderError):
            await provider.complete(ASKED)
    assert len(server.seen) == 1


def _drain(provider: HttpProvider) -> Any:
    async def drain(asked: Request) -> None:
        async for _ in provider.stream(asked):
            pass

    return drain
