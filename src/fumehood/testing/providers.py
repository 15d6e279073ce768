"""`check_provider`: what every provider must do, its author's or ours (R452 to R460).

Call it with a factory that builds the provider under test with given capabilities and base tools, and with
the bodies that it put on its wire, as parsed JSON, in order; for a provider without HTTP that is whatever it
hands on. The other end is to answer anything. A provider that checks nothing itself passes the first two
cases by one line: `assert_request_supported(request, self.capabilities)`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from fumehood.agent import GuardError, Request, Response, UnsupportedModalityError, fence
from fumehood.agent._media import encode_base64
from fumehood.agent._parts import Capabilities, InjectedBy, Message
from fumehood.agent._taint import tainted
from fumehood.agent.messages import DataSource, ImagePart, TextPart
from fumehood.agent.providers import Chunk, Provider

_PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63606060000000040001f61738550000000049454e44ae426082"
)


async def check_provider(
    factory: Callable[[Capabilities], Provider], wire: Callable[[], Sequence[Any]]
) -> None:
    """Raise AssertionError when the provider drops, stringifies or leaks what it was given, or streams
    another answer than it completes.

    factory: the provider with these capabilities. wire: every body it sent so far.
    """
    await _check_refusal(factory(Capabilities()), wire)
    await _check_media(factory(Capabilities(image=("image/png",))), wire)
    provider = factory(Capabilities())
    await _check_text(provider, wire)
    await _check_leaks(factory(Capabilities(image=("*",))), wire)
    await _check_stream(provider)


def _image_request() -> Request:
    image = ImagePart(media_type="image/png", source=DataSource(data=encode_base64(_PNG)))
    return Request(messages=(Message.of("user", [TextPart(text="look"), image]),))


async def _check_refusal(provider: Provider, wire: Callable[[], Sequence[Any]]) -> None:
    before = len(wire())
    for name, act in (("complete", provider.complete), ("stream", _collect(provider))):
        try:
            await act(_image_request())
        except UnsupportedModalityError:
            continue
        raise AssertionError(f"{name} must refuse an image that was not declared (R452, R453)")
    assert len(wire()) == before, "a refused request must not reach the wire"


async def _check_media(provider: Provider, wire: Callable[[], Sequence[Any]]) -> None:
    for name, act in (("complete", provider.complete), ("stream", _collect(provider))):
        before = len(wire())
        await act(_image_request())
        sent = json.dumps(wire()[before:])
        assert encode_base64(_PNG) in sent, f"{name} must put a declared image on the wire (R454)"


async def _check_text(provider: Provider, wire: Callable[[], Sequence[Any]]) -> None:
    before = len(wire())
    parts = [TextPart(text="first piece, "), TextPart(text="second piece")]
    await provider.complete(Request(messages=(Message.of("user", parts),)))
    strings = list(_strings(wire()[before:]))
    joined = "".join(strings)
    assert "first piece, " in joined and "second piece" in joined, "text parts must be read as text (R455)"
    assert not any("TextPart" in text or '"type"' in text or "[object" in text for text in strings), (
        "a list of parts must not be turned into a string (R455)"
    )


async def _check_leaks(provider: Provider, wire: Callable[[], Sequence[Any]]) -> None:
    try:
        await provider.complete(Request(system=tainted("x", "o"), messages=(Message.user("hi"),)))
    except GuardError:
        pass
    else:
        raise AssertionError(
            "tainted content in the system prompt must be refused, also for direct callers (R031)"
        )
    before = len(wire())
    image = {
        "type": "image",
        "media_type": "image/png",
        "source": {"kind": "data", "data": encode_base64(_PNG)},
    }
    marked = Message.model_validate(
        {
            "role": "user",
            "content": [
                {"type": "text", "text": tainted("MARKER", "mcp:a/b")},
                {**image, "untrusted": {"origin": "mcp:a/b"}},
            ],
        }
    )
    kept = Message(
        role="user",
        content="hello",
        ephemeral=True,
        tool_chars=3,
        injected_by=InjectedBy(injection_id="LEAK", flavor="f", iteration=1),
    )
    await provider.complete(Request(messages=(kept, marked)))
    strings = list(_strings(wire()[before:]))
    assert fence("MARKER", "mcp:a/b") in strings, "tainted text must stand in its fence"
    assert not any("MARKER" in text for text in strings if text != fence("MARKER", "mcp:a/b")), (
        "and nowhere else"
    )
    assert '<untrusted-input origin="mcp:a/b">' in strings and "</untrusted-input>" in strings, (
        "untrusted media must stand between the fence's tags (R051)"
    )
    keys = set(_keys(wire()[before:]))
    leaked = keys & {"untrusted", "ephemeral", "tool_chars", "injected_by"} | ({"LEAK"} & set(strings))
    assert not leaked, f"framework fields must not reach the wire: {sorted(leaked)} (R054, R183)"


async def _check_stream(provider: Provider) -> None:
    request = Request(messages=(Message.user("think"),))
    whole = await provider.complete(request)
    chunks: list[Chunk] = [chunk async for chunk in provider.stream(request)]
    last = chunks[-1].response
    assert last is not None and all(chunk.response is None for chunk in chunks[:-1]), (
        "the last chunk alone carries the response (R401)"
    )
    assert last.reasoning == whole.reasoning, "stream and complete must report equal reasoning (R456)"
    assert last == whole, "stream and complete must give the same answer"
    shown = "".join(chunk.reasoning_delta for chunk in chunks)
    assert shown == "".join(part.text or "" for part in last.reasoning), (
        "joined reasoning deltas must equal the text (R457)"
    )
    assert "".join(chunk.text_delta for chunk in chunks) == last.content, (
        "joined text deltas must equal the content"
    )
    for index, call in enumerate(last.tool_calls):
        pieces = [
            chunk.tool_delta
            for chunk in chunks
            if chunk.tool_delta is not None and chunk.tool_delta.index == index
        ]
        if call.arguments_failure is None and pieces:
            assert json.loads("".join(piece.fragment for piece in pieces)) == call.input, (
                "joined fragments must be the input (R399)"
            )
            assert pieces[0].name == call.name, "the first piece must name the tool (R399)"


def _collect(provider: Provider) -> Callable[[Request], Any]:
    async def collect(request: Request) -> Response | None:
        last = None
        async for chunk in provider.stream(request):
            last = chunk.response
        return last

    return collect


def _strings(value: Any) -> Any:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings(item)


def _keys(value: Any) -> Any:
    if isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from _keys(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _keys(item)
