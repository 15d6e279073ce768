"""Streams and errors of each wire, and what may not come to one."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from fumehood.agent._effect import parse_request
from fumehood.agent._errors import (
    MessageStructureError,
    ProviderError,
    UnresolvedContentError,
    UnsupportedModalityError,
    UntrustedContentError,
)
from fumehood.agent._parts import Message, Request
from fumehood.agent._response import ToolCall
from fumehood.agent.providers import BrokerHttp
from fumehood.testing.http import Reply
from fumehood.testing.vendors import Say
from tests.agent.samples import (
    bad,
    ref,
    request,
    result,
    user,
)
from tests.agent.wires import FULL, TOOLS, WIRES, live, offline, render

pytestmark = pytest.mark.anyio
Json = dict[str, Any]


@pytest.mark.requirement("R173")
@pytest.mark.requirement("R318")
@pytest.mark.requirement("R399")
@pytest.mark.requirement("R401")
@pytest.mark.parametrize("wire", WIRES)
async def test_a_stream_shows_reasoning_text_and_calls_apart_and_ends_with_the_whole(wire: str) -> None:
    async with live(wire) as here:
        here.vendor.say(
            Say("thinking", "hmm", "S"),
            Say("text", "hello"),
            Say("call", id="c1", name="acme_fetch_doc", input={"q": "x"}),
        )
        chunks = [
            chunk async for chunk in here.provider().stream(parse_request(request(user("go"), tools=TOOLS)))
        ]
    assert "".join(chunk.reasoning_delta for chunk in chunks) == "hmm"
    assert "".join(chunk.text_delta for chunk in chunks) == "hello"
    deltas = [chunk.tool_delta for chunk in chunks if chunk.tool_delta is not None]
    assert (deltas[0].id, deltas[0].name) == ("c1", "acme.fetch_doc")
    assert json.loads("".join(delta.fragment for delta in deltas)) == {"q": "x"}
    assert [chunk.response is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    last = chunks[-1].response
    assert last is not None and last.tool_calls == (ToolCall("c1", "acme.fetch_doc", {"q": "x"}),)


@pytest.mark.requirement("R405")
async def test_geminis_whole_answer_needs_no_stream() -> None:
    async with live("gemini") as here:
        here.vendor.say(Say("text", "hello"))
        assert (await here.provider().complete(parse_request(request(user("go"))))).content == "hello"
        assert "stream" not in here.vendor.bodies[-1]


@pytest.mark.parametrize("wire", WIRES)
async def test_a_stream_that_ends_early_is_an_error_and_no_answer(wire: str) -> None:
    # A13: the reasoning block was never closed, so nothing of it may be kept.
    async with live(wire) as here:
        here.vendor.say(Say("thinking", "ab", "S"))
        events = "".join(here.vendor.events([Say("thinking", "ab", "S"), Say("text", "x")], "end"))
        cut = events[: events.rindex("ab" if "ab" in events else "b")]
        here.vendor.raw = (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + cut.encode()
        )
        with pytest.raises(
            ProviderError, match="the stream ended before the answer did|is not one"
        ) as caught:
            async for chunk in here.provider().stream(parse_request(request(user("go")))):
                assert chunk.response is None
        assert caught.value.retryable


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("status", "retryable"), [(400, False), (401, False), (429, True), (503, True), (529, True)]
)
async def test_a_vendors_refusal_is_an_error_that_says_whether_to_try_again(
    wire: str, status: int, retryable: bool
) -> None:
    async with live(wire) as here:
        here.vendor.raw = Reply.json({"error": {"message": "no\x1b[31m " + "x" * 5000, "type": "t"}}, status)
        provider = here.provider(api_key="SECRET-KEY")
        for act in (provider.complete, lambda asked: _drain(provider, asked)):
            with pytest.raises(ProviderError) as caught:
                await act(parse_request(request(user("go"))))
            assert (caught.value.status, caught.value.retryable) == (status, retryable)
            assert (
                "\x1b" not in str(caught.value)
                and len(str(caught.value)) < 700
                and "SECRET-KEY" not in str(caught.value)
            )
        assert any("SECRET-KEY" in value for value in here.vendor.headers[-1].values())
        assert "SECRET-KEY" not in repr(provider)


async def _drain(provider: Any, asked: Request) -> None:
    async for _ in provider.stream(asked):
        pass


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff",
        b'{"choices": [], "content": 7, "output": {}, "candidates": 3}',
        b"[" * 50_000,
    ],
)
async def test_an_answer_that_is_none_is_an_error_and_never_a_traceback(wire: str, raw: bytes) -> None:
    async with live(wire) as here:
        here.vendor.raw = Reply(200, raw)
        with pytest.raises(ProviderError):
            await here.provider().complete(parse_request(request(user("go"))))
        stream = b"data: " + raw + b"\n\n"
        here.vendor.raw = Reply(200, stream)
        with pytest.raises(ProviderError):
            await _drain(here.provider(), parse_request(request(user("go"))))


async def test_a_vendors_error_inside_a_stream_is_an_error() -> None:
    async with live("anthropic") as here:
        here.vendor.raw = Reply(
            200, b'data: {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}\n\n'
        )
        with pytest.raises(ProviderError, match="overloaded_error: busy") as caught:
            await _drain(here.provider(), parse_request(request(user("go"))))
        assert caught.value.retryable


@pytest.mark.requirement("R101")
@pytest.mark.requirement("R150")
@pytest.mark.requirement("R151")
@pytest.mark.parametrize("wire", WIRES)
async def test_direct_callers_are_checked_too(wire: str) -> None:
    tainted_system = Request(system=bad("x"), messages=(Message.user("x"),))
    orphan = Request.model_validate(request(user([result()])))
    with_ref = Request.model_validate(request(user([ref()])))
    async with live(wire) as here:
        for asked, error in (
            (tainted_system, UntrustedContentError),
            (orphan, MessageStructureError),
            (with_ref, UnsupportedModalityError),
        ):
            with pytest.raises(error):
                await here.provider().complete(asked)
            with pytest.raises(error):
                await _drain(here.provider(), asked)
        assert here.vendor.bodies == []


def test_mappings_themselves_refuse_marks_and_references() -> None:
    from fumehood.agent.providers._wire import Unwritable, media_data, plain, wire_bytes

    with pytest.raises(UntrustedContentError):
        plain(bad("x"))
    with pytest.raises(UnresolvedContentError):
        media_data(Request.model_validate(request(user([ref()]))).messages[0].content[0])  # type: ignore[arg-type, index]
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for value in ({"a": deep}, {"a": float("nan")}, {"a": object()}):
        with pytest.raises(Unwritable):
            wire_bytes(value)
    assert wire_bytes({"a": "\ud800é"}) == '{"a":"\ufffdé"}'.encode()


async def test_the_broker_is_asked_with_its_own_request_and_no_redirect_is_followed() -> None:
    asked: list[Any] = []

    class FetchRequest:
        def __init__(self, method: str, url: str, headers: Any, body: bytes, *, follow: bool) -> None:
            asked.append((method, url, dict(headers), json.loads(body), follow))

    class Call:
        async def fetch(self, made: FetchRequest) -> Any:
            return Reply(
                200,
                json.dumps({"content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn"}).encode(),
            )

        def stream(self, made: FetchRequest) -> Any:
            raise AssertionError("not asked")

    provider = offline("anthropic", api_key="K")
    provider._http = BrokerHttp(Call(), FetchRequest)
    assert (await provider.complete(Request(messages=(Message.user("x"),)))).content == "hi"
    method, url, headers, _, follow = asked[0]
    assert (method, url, follow) == ("POST", "https://api.anthropic.com/v1/messages", False)
    assert headers == {
        "content-type": "application/json",
        "anthropic-version": "2023-06-01",
        "x-api-key": "K",
    }


def test_nothing_is_logged_about_content(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="fumehood"):
        render("anthropic", FULL)
    assert caplog.text == ""
