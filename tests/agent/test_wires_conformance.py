"""The four wires against the SDKs' types, strict vendors and the conformance check."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fumehood.agent._effect import parse_request
from fumehood.agent._parts import Capabilities, Request
from fumehood.agent.messages import (
    TextPart,
)
from fumehood.agent.providers import Chunk, ScriptedProvider
from fumehood.testing import check_provider
from fumehood.testing.vendors import Say
from tests.agent.samples import parts_of
from tests.agent.sdk_types import check_body
from tests.agent.wires import FULL, WIRES, live, render

pytestmark = pytest.mark.anyio
Json = dict[str, Any]


@pytest.mark.requirement("R165")
@pytest.mark.parametrize("wire", WIRES)
def test_a_full_request_has_the_types_of_the_official_sdk(wire: str) -> None:
    check_body(wire, render(wire, FULL))
    with pytest.raises(
        Exception, match="(?i)extra|not permitted|Invalid|Field"
    ):  # the control: the types do catch strangers
        body = json.loads(json.dumps(render(wire, FULL)).replace('"role": "user"', '"roll": "user"'))
        check_body(wire, body)


@pytest.mark.parametrize("wire", WIRES)
async def test_a_full_request_is_taken_by_a_strict_vendor_and_answered(wire: str) -> None:
    async with live(wire) as here:
        here.vendor.say(Say("text", "done"))
        response = await here.provider().complete(parse_request(FULL))
        assert (response.content, response.stop_reason) == ("done", "end_turn")
        assert (
            response.usage.input_tokens,
            response.usage.output_tokens,
            response.usage.cached_input_tokens,
        ) == (5, 7, 3)


@pytest.mark.requirement("R452")
@pytest.mark.requirement("R453")
@pytest.mark.requirement("R454")
@pytest.mark.requirement("R455")
@pytest.mark.requirement("R317")
@pytest.mark.requirement("R456")
@pytest.mark.requirement("R457")
@pytest.mark.promise("agent:providers-conform")
@pytest.mark.parametrize("wire", WIRES)
async def test_our_providers_pass_the_conformance_check(wire: str) -> None:
    async with live(wire) as here:
        here.vendor.say(
            *(
                [Say("thinking", "first\n\nthen", "SIG")]
                if wire != "openai-chat"
                else [Say("thinking", "hm")]
            ),
            Say("text", "héllo \U0001f600 world"),
            Say("call", id="c1", name="look", input={"q": "ü\n"}),
            Say("call", id="c2", name="look", input={}),
        )
        await check_provider(lambda capabilities: here.provider(capabilities), lambda: here.vendor.bodies)


async def test_the_scripted_provider_passes_the_conformance_check() -> None:
    made: list[ScriptedProvider] = []

    def factory(capabilities: Capabilities) -> ScriptedProvider:
        steps = [
            {
                "reasoning": "hm",
                "text": "hi there",
                "tool_calls": [{"id": "c", "name": "t", "input": {"a": 1}}],
            }
        ] * 9
        made.append(ScriptedProvider(steps, capabilities=capabilities))
        return made[-1]

    def wire() -> list[Any]:
        from fumehood.agent.providers._wire import bracketed

        bodies = []
        for provider in made:
            for asked in provider.requests:
                body = []
                for message in asked.messages:
                    for part in parts_of(message):
                        pieces: list[Any] = [part]
                        if not isinstance(part, str) and part.type == "image":
                            pieces = list(bracketed(part))
                        body.append([_handed_on(piece) for piece in pieces])
                bodies.append(body)
        return bodies

    await check_provider(factory, wire)


def _handed_on(piece: Any) -> Any:
    if isinstance(piece, str):
        return piece
    return piece.text if isinstance(piece, TextPart) else piece.source.to_json()


@pytest.mark.requirement("R460")
async def test_a_provider_that_drops_or_stringifies_fails_the_check() -> None:
    bodies: list[Any] = []

    class Careless:
        name, model, capabilities = "careless", "m", Capabilities()

        async def complete(self, asked: Request) -> Any:
            bodies.append({"prompt": str(asked.messages)})
            return None

        async def stream(self, asked: Request) -> Any:
            bodies.append({})
            yield Chunk()

    with pytest.raises(AssertionError, match="must refuse an image that was not declared"):
        await check_provider(lambda capabilities: Careless(), lambda: bodies)
