"""The four wires against fake vendors that check bodies strictly, against the SDKs' types, and both ways."""

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
from fumehood.agent._parts import Capabilities, Message, Request
from fumehood.agent._response import Reasoning, ToolCall, assistant_message_of
from fumehood.agent.messages import (
    TextPart,
    ToolUsePart,
    from_anthropic,
    from_gemini,
    from_openai,
    from_responses,
)
from fumehood.agent.providers import BrokerHttp, Chunk, ScriptedProvider
from fumehood.testing import check_provider
from fumehood.testing.http import Reply
from fumehood.testing.vendors import Say
from tests.agent.samples import (
    PNG,
    PNG_B,
    assistant,
    audio,
    b64,
    bad,
    call,
    fenced,
    file,
    image,
    ref,
    request,
    result,
    text,
    user,
)
from tests.agent.sdk_types import check_body
from tests.agent.wires import WIRES, Wire, live, offline, order, render, strings

pytestmark = pytest.mark.anyio
Json = dict[str, Any]

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


@pytest.mark.requirement("R165")
@pytest.mark.requirement("R097")
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
                    parts = (
                        [TextPart(text=message.content)]
                        if isinstance(message.content, str)
                        else message.content
                    )
                    for part in parts:  # type: ignore[union-attr]
                        pieces = bracketed(part) if part.type == "image" else [part]  # type: ignore[arg-type, union-attr]
                        body.append(
                            [
                                piece.text if isinstance(piece, TextPart) else piece.source.to_json()
                                for piece in pieces
                            ]
                        )  # type: ignore[union-attr]
                bodies.append(body)
        return bodies

    await check_provider(factory, wire)


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
        await check_provider(lambda capabilities: Careless(), lambda: bodies)  # type: ignore[arg-type, return-value]


# -- positions -----------------------------------------------------------------------------------------------


@pytest.mark.requirement("R166")
@pytest.mark.requirement("R087")
def test_anthropic_takes_blocks_in_order_and_one_system_text() -> None:
    body = render("anthropic", FULL, max_tokens=100)
    assert body["system"] == "be kind\n\ninjected context"
    assert [message["role"] for message in body["messages"]] == [
        "user",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert body["messages"][0] == {"role": "user", "content": "hi"}
    assert body["messages"][2]["content"] == [
        {"type": "text", "text": "let me look"},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {"q": "x"}},
        {"type": "tool_use", "id": "c2", "name": "acme_fetch_doc", "input": {}},
    ]
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": b64(PNG)}}
    assert body["messages"][3]["content"] == [
        {
            "type": "tool_result",
            "tool_use_id": "c1",
            "content": [{"type": "text", "text": "caption"}, picture],
        },
        {"type": "tool_result", "tool_use_id": "c2", "content": fenced('{"t": 1}'), "is_error": True},
        {"type": "text", "text": "go on"},
    ]


@pytest.mark.requirement("R167")
@pytest.mark.requirement("R169")
@pytest.mark.requirement("R055")
@pytest.mark.requirement("R200")
@pytest.mark.requirement("R201")
def test_openai_answers_come_first_and_their_media_follow_under_a_header() -> None:
    messages = render("openai-chat", FULL)["messages"]
    assert [message["role"] for message in messages] == [
        *("system", "system", "user", "user", "assistant", "tool", "tool", "user", "assistant", "user"),
    ]
    assert "tool_calls" not in messages[8] and [call["id"] for call in messages[4]["tool_calls"]] == [
        "c1",
        "c2",
    ]
    assert messages[5] == {
        "role": "tool",
        "tool_call_id": "c1",
        "content": "caption\n[image 1 of this result follows below]",
    }
    assert messages[6] == {
        "role": "tool",
        "tool_call_id": "c2",
        "content": f"[tool error]\n{fenced(json.dumps({'t': 1}))}",
    }
    assert messages[7]["content"] == [
        {"type": "text", "text": "Media returned by the tool call c1 (look):"},
        {"type": "text", "text": "caption"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{b64(PNG)}"}},
        {"type": "text", "text": "go on"},
    ]


@pytest.mark.requirement("R168")
@pytest.mark.requirement("R170")
@pytest.mark.requirement("R171")
def test_gemini_answers_by_name_with_media_beside_them() -> None:
    body = render("gemini", FULL)
    assert body["systemInstruction"] == {"parts": [{"text": "be kind\n\ninjected context"}]}
    assert [entry["role"] for entry in body["contents"]] == ["user", "user", "model", "user", "model", "user"]
    answers = body["contents"][3]["parts"]
    assert answers[:2] == [
        {
            "functionResponse": {
                "name": "look",
                "response": {"output": "caption\n[image 1 of this result follows below]"},
                "id": "c1",
            }
        },
        {
            "functionResponse": {
                "name": "acme_fetch_doc",
                "response": {"error": fenced('{"t": 1}')},
                "id": "c2",
            }
        },
    ]
    assert answers[2:] == [
        {"text": "Media returned by the tool call c1 (look):"},
        {"text": "caption"},
        {"inlineData": {"mimeType": "image/png", "data": b64(PNG)}},
        {"text": "go on"},
    ]


@pytest.mark.requirement("R051")
@pytest.mark.requirement("R054")
@pytest.mark.requirement("R055")
@pytest.mark.promise("agent:untrusted-media-bracketed")
@pytest.mark.parametrize("wire", WIRES)
def test_untrusted_media_stand_between_the_tags_wherever_they_are_moved(wire: str) -> None:
    marked = image(untrusted={"origin": "mcp:a/b"}, name="EVIL NAME")
    body = render(
        wire, request(user([marked]), assistant([call()]), user([result(content=[text("one"), marked])]))
    )
    read = order(body)
    opened = '<untrusted-input origin="mcp:a/b">'
    spans = [read[at : at + 4] for at, item in enumerate(read) if item == opened]
    assert len(spans) == 2
    for span in spans:
        inside = [
            item
            for item in span
            if item not in ("image/png", "text", "image", "base64", "input_text", "input_image", "image_url")
        ]
        assert inside[0] == opened and "<media>" in read[read.index(opened) :]
    flat = [item for item in read if item in (opened, "<media>", "</untrusted-input>")]
    assert flat == [opened, "<media>", "</untrusted-input>"] * 2
    assert "EVIL NAME" not in json.dumps(body) and "untrusted" not in set(_keys(body))


def _keys(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(key for item in value.values() for key in _keys(item))]
    return [key for item in value for key in _keys(item)] if isinstance(value, list) else []


@pytest.mark.parametrize("wire", WIRES)
def test_a_bare_request_without_parts_is_the_same_on_the_wire_as_ever(wire: str) -> None:
    body = render(wire, request(user("hello"), assistant("hi"), user("bye")))
    if wire == "gemini":
        turns = [(entry["role"], entry["parts"][0]["text"]) for entry in body["contents"]]
        assert turns == [("user", "hello"), ("model", "hi"), ("user", "bye")]
    else:
        turns = [(entry["role"], entry["content"]) for entry in body.get("messages") or body["input"]]
        assert turns == [("user", "hello"), ("assistant", "hi"), ("user", "bye")]


@pytest.mark.requirement("R183")
@pytest.mark.requirement("R184")
@pytest.mark.requirement("R261")
@pytest.mark.requirement("R270")
@pytest.mark.requirement("R276")
@pytest.mark.requirement("R285")
@pytest.mark.requirement("R291")
@pytest.mark.parametrize("wire", WIRES)
def test_no_framework_field_reaches_a_wire_and_no_message_is_lost(wire: str) -> None:
    fields: Json = {
        "ephemeral": True,
        "injected_by": {
            "injection_id": "ZZZ-id",
            "flavor": "ZZZ-flavor",
            "iteration": 3,
            "reason": "ZZZ-reason",
        },
        "not_dispatched": {"paused_call": {"tool_call_id": "ZZZ-call", "tool_name": "ZZZ-tool"}},
        "folded_exempt": ["ZZZ-form"],
        "tool_chars": 2,
        "tool_result_origin": "not-entered",
        "tool_arguments_failure": {"reason": "invalid-json"},
        "replay": {"ZZZ": "replay"},
    }
    plain = request(user("one"), assistant("two"), user("three"))
    dressed = request(*({**message, **fields} for message in plain["messages"]))
    assert render(wire, dressed) == render(wire, plain)
    assert "ZZZ" not in json.dumps(render(wire, dressed))


# -- calls and results ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
async def test_calls_with_one_id_or_none_are_sent_apart_and_paired(wire: str) -> None:
    body = request(
        user("go"),
        assistant(
            [
                call("x", "look", {"n": 1}),
                call("x", "look", {"n": 2}),
                call("", "look", {"n": 3}),
                call("", "look", {"n": 4}),
            ]
        ),
        user([result("x", "r1"), result("x", "r2"), result("", "r3"), result("", "r4")]),
        assistant([call("x", "look", {"n": 5})]),
        user([result("x", "r5")]),
    )
    async with live(wire) as here:
        await here.provider().complete(
            parse_request(body)
        )  # the fake refuses ids that are used twice or unanswered
        sent = here.vendor.bodies[-1]
    pairs = _pairs(wire, sent)
    assert pairs == [({"n": n}, f"r{n}") for n in range(1, 6)]


def _pairs(wire: str, body: Json) -> list[tuple[Any, str]]:
    calls: list[tuple[str, Any]] = []
    answers: list[tuple[str, str]] = []
    if wire == "anthropic":
        blocks = [
            block
            for message in body["messages"]
            if isinstance(message["content"], list)
            for block in message["content"]
        ]
        calls = [(block["id"], block["input"]) for block in blocks if block["type"] == "tool_use"]
        answers = [
            (block["tool_use_id"], block["content"]) for block in blocks if block["type"] == "tool_result"
        ]
    elif wire == "openai-chat":
        for message in body["messages"]:
            calls += [
                (c["id"], json.loads(c["function"]["arguments"])) for c in message.get("tool_calls") or ()
            ]
            answers += [(message["tool_call_id"], message["content"])] if message["role"] == "tool" else []
    elif wire == "openai-responses":
        calls = [
            (item["call_id"], json.loads(item["arguments"]))
            for item in body["input"]
            if item["type"] == "function_call"
        ]
        answers = [
            (item["call_id"], item["output"])
            for item in body["input"]
            if item["type"] == "function_call_output"
        ]
    else:
        parts = [part for entry in body["contents"] for part in entry["parts"]]
        return list(
            zip(
                [part["functionCall"]["args"] for part in parts if "functionCall" in part],
                [
                    part["functionResponse"]["response"]["output"]
                    for part in parts
                    if "functionResponse" in part
                ],
                strict=True,
            )
        )
    known = dict(answers)
    assert len(known) == len(answers)
    return [(value, known[id_]) for id_, value in calls]


@pytest.mark.parametrize("wire", WIRES)
def test_tool_names_that_a_wire_refuses_are_changed_there_and_back(wire: str) -> None:
    odd = ["a.b", "a_b", "1st", "x" * 80, "größe"]
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in odd if name.isascii()]
    body = render(wire, request(user("x"), assistant([call("c", "größe")]), user([result("c")]), tools=tools))
    names = list(strings(body.get("tools")))
    wired = {"a_b"} & set(names)
    assert wired == {"a_b"} and not any("." in name or name == "1st" or len(name) > 64 for name in names)
    assert len({name for name in names if name not in ("function", "object")}) >= 4


@pytest.mark.requirement("R182")
@pytest.mark.requirement("R292")
@pytest.mark.requirement("R294")
@pytest.mark.parametrize("wire", WIRES)
async def test_a_call_whose_arguments_failed_is_told_as_text_and_never_as_an_empty_input(wire: str) -> None:
    raw = {"title": "abc"} if wire == "gemini" else None
    cut = '{"title": "abc"'
    async with live(wire) as here:
        here.vendor.say(
            Say("call", id="c1", name="look", input=raw, raw_input=None if raw else cut), stop="length"
        )
        response = await here.provider().complete(parse_request(request(user("go"), tools=TOOLS)))
        streamed = [
            chunk async for chunk in here.provider().stream(parse_request(request(user("go"), tools=TOOLS)))
        ][-1].response
        assert streamed == response
        (failed,) = response.tool_calls
        assert (failed.arguments_failure, failed.input, response.stop_reason) == (
            "incomplete-stream",
            {"__failedArguments": "incomplete-stream"},
            "max_tokens",
        )
        told = Message.of("user", [ToolResultLike("c1")])
        after = Request(messages=(Message.user("go"), assistant_message_of(response), told))
        await here.provider().complete(after)
        sent = json.dumps(here.vendor.bodies[-1])
    assert (
        "was cut off at its length limit" in sent
        and '"input": {}' not in sent
        and "__failedArguments" not in sent
    )


def ToolResultLike(id_: str) -> Any:
    from fumehood.agent._parts import tool_result_part

    return tool_result_part(
        id_, "look", "The call was cut off and not run; send it again, shorter.", is_error=True
    )


@pytest.mark.requirement("R293")
@pytest.mark.parametrize(
    ("raw", "stop", "reason"),
    [
        ('{"a": 1', "end", "invalid-json"),
        ("", "end", "invalid-json"),
        ('{"a": NaN}', "end", "invalid-json"),
        ('{"a": 1e999}', "end", "invalid-json"),
        ("[" * 100_000, "end", "invalid-json"),
        ("null", "end", "invalid-argument-shape"),
        ("[]", "end", "invalid-argument-shape"),
        ('"x"', "end", "invalid-argument-shape"),
        ('{"a": 1', "length", "incomplete-stream"),
        ('{"a": 1}', "length", "incomplete-stream"),
        ('{"a": 1}', "end", None),
    ],
)
@pytest.mark.parametrize("wire", ["openai-chat", "openai-responses"])
async def test_each_way_that_arguments_fail_has_its_reason(
    wire: str, raw: str, stop: Any, reason: str | None
) -> None:
    async with live(wire) as here:
        here.vendor.say(Say("call", id="c1", name="look", raw_input=raw), stop=stop)
        response = await here.provider().complete(parse_request(request(user("go"))))
    assert response.tool_calls[0].arguments_failure == reason
    assert response.tool_calls[0].input == ({"a": 1} if reason is None else {"__failedArguments": reason})


# -- field reports -------------------------------------------------------------------------------------------


@pytest.mark.requirement("R115")
@pytest.mark.parametrize("wire", WIRES)
def test_captions_stay_by_their_images(wire: str) -> None:
    # A26: caption, image, caption, image.
    parts = [text("one"), image(PNG), text("two"), image(PNG_B)]
    body = render(wire, request(assistant([call()]), user([result(content=parts)])))
    read = [item for item in order(body) if item in ("one", "two", "<media>")]
    assert read[-4:] == ["one", "<media>", "two", "<media>"]


@pytest.mark.parametrize("wire", WIRES)
def test_an_image_is_on_the_wire_once_and_never_as_letters(wire: str) -> None:
    # A9 and E8: one native image, no run of its base64 in any text.
    from fumehood.agent._results import media_result, tool_result

    shot = image(PNG + bytes(200))
    letters = shot["source"]["data"]
    output = media_result([json.dumps({"screenshot": letters}), shot])
    part = tool_result("c1", "shot", output, returns_media=True)
    body = render(wire, request(assistant([call(name="shot")]), user([part.to_json()])))
    assert json.dumps(body).count(letters) == 1


@pytest.mark.requirement("R162")
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("part", [image(), file(), audio()], ids=["image", "file", "audio"])
async def test_media_are_on_the_wire_or_refused_never_dropped(wire: str, part: Json) -> None:
    # A24.
    body = request(user([text("what is this?"), part]))
    async with live(wire) as here:
        for provider in (
            here.provider({}),
            here.provider(None),
        ):  # declares nothing; behind a base URL of its own
            with pytest.raises(UnsupportedModalityError):
                await provider.complete(parse_request(body))
        assert here.vendor.bodies == []
        if part["type"] == "audio" and wire in ("anthropic", "openai-responses"):
            return  # these wires have no sound, and declare none
        await here.provider().complete(parse_request(body))
        assert part["source"]["data"] in json.dumps(here.vendor.bodies[-1])


@pytest.mark.requirement("R172")
@pytest.mark.requirement("R296")
@pytest.mark.requirement("R301")
@pytest.mark.requirement("R302")
@pytest.mark.requirement("R324")
@pytest.mark.requirement("R181")
@pytest.mark.requirement("R459")
@pytest.mark.parametrize("streamed", [False, True])
async def test_anthropic_thinking_goes_back_byte_for_byte_and_in_its_order(streamed: bool) -> None:
    # A6, and the order that must not be regrouped: thinking, text, tool_use, thinking, tool_use.
    blocks = [
        Say("thinking", "step one ü", "S1=="),
        Say("redacted", signature="REDACTED=="),
        Say("text", "let me"),
        Say("call", id="c1", name="look", input={"q": 1}),
        Say("thinking", "", "S2=="),
        Say("call", id="c2", name="look", input={"q": 2}),
    ]
    async with live("anthropic") as here:
        here.vendor.say(*blocks)
        response = await _answer(here, request(user("go"), tools=TOOLS), streamed)
        assert response.reasoning == (
            Reasoning("text", "anthropic", "step one ü", "S1=="),
            Reasoning("redacted", "anthropic", None, "REDACTED=="),
            Reasoning("text", "anthropic", "", "S2=="),
        )
        await here.provider().complete(_second_turn(response))
        sent = here.vendor.bodies[-1]["messages"][1]["content"]
    assert sent == [
        {"type": "thinking", "thinking": "step one ü", "signature": "S1=="},
        {"type": "redacted_thinking", "data": "REDACTED=="},
        {"type": "text", "text": "let me"},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {"q": 1}},
        {"type": "thinking", "thinking": "", "signature": "S2=="},
        {"type": "tool_use", "id": "c2", "name": "look", "input": {"q": 2}},
    ]


async def _answer(here: Wire, body: Json, streamed: bool, **options: Any) -> Any:
    provider = here.provider(**options)
    if not streamed:
        return await provider.complete(parse_request(body))
    return [chunk async for chunk in provider.stream(parse_request(body))][-1].response


def _second_turn(response: Any, first: str = "go") -> Request:
    """The next request, with readable reasoning filled in as the effect would have from its store."""
    message = assistant_message_of(response)
    thoughts = iter(response.reasoning)
    parts = [
        part.model_copy(update={"text": next(thoughts).text, "omitted": None, "digest": None})
        if part.type == "reasoning"
        else part
        for part in (message.content if not isinstance(message.content, str) else ())
    ]
    answers = [ToolResultLike(part.id) for part in parts if isinstance(part, ToolUsePart)]
    return Request(
        messages=(Message.user(first), Message.of("assistant", parts), Message.of("user", answers))
    )


@pytest.mark.requirement("R175")
@pytest.mark.requirement("R176")
@pytest.mark.requirement("R177")
@pytest.mark.requirement("R202")
@pytest.mark.parametrize("streamed", [False, True])
async def test_gemini_signatures_stay_on_their_own_call(streamed: bool) -> None:
    # A21: only the first of two parallel calls is signed; save and load lie between.
    async with live("gemini") as here:
        here.vendor.say(
            Say("thinking", "summary"),
            Say("call", name="look", input={"q": 1}, signature="SIG1=="),
            Say("call", name="look", input={"q": 2}),
        )
        response = await _answer(here, request(user("go"), tools=TOOLS), streamed)
        assert [(c.signature, c.id) for c in response.tool_calls] == [
            ("SIG1==", "fh-call-1"),
            (None, "fh-call-2"),
        ]
        message = Message.model_validate(json.loads(json.dumps(assistant_message_of(response).to_json())))
        answers = Message.of("user", [ToolResultLike("fh-call-1"), ToolResultLike("fh-call-2")])
        await here.provider().complete(Request(messages=(Message.user("go"), message, answers)))
        sent = here.vendor.bodies[-1]["contents"]
    assert sent[1] == {
        "role": "model",
        "parts": [
            {"functionCall": {"name": "look", "args": {"q": 1}}, "thoughtSignature": "SIG1=="},
            {"functionCall": {"name": "look", "args": {"q": 2}}},
        ],
    }
    assert [part["functionResponse"]["name"] for part in sent[2]["parts"]] == ["look", "look"]


async def test_gemini_signatures_on_text_go_back_on_that_text() -> None:
    async with live("gemini") as here:
        here.vendor.say(Say("text", "answer", "TEXTSIG=="), Say("text", " more"))
        response = await here.provider().complete(parse_request(request(user("go"))))
        assert response.content == "answer more"
        await here.provider().complete(
            Request(messages=(Message.user("go"), assistant_message_of(response), Message.user("on")))
        )
        assert here.vendor.bodies[-1]["contents"][1]["parts"] == [
            {"text": "answer", "thoughtSignature": "TEXTSIG=="},
            {"text": " more"},
        ]


@pytest.mark.requirement("R463")
@pytest.mark.parametrize("streamed", [False, True])
async def test_openai_reasoning_continues_without_any_server_side_id(streamed: bool) -> None:
    # E7: the fake forgets every id, and refuses items that name one.
    async with live("openai-responses") as here:
        here.vendor.say(
            Say("thinking", "part one\n\npart two", "ENC=="),
            Say("call", id="c1", name="look", input={"q": 1}),
            Say("thinking", "", "ENC2=="),
            Say("call", id="c2", name="look", input={"q": 2}),
        )
        response = await _answer(here, request(user("go"), tools=TOOLS), streamed)
        assert [part.text for part in response.reasoning] == ["part one\n\npart two", ""]
        await here.provider().complete(_second_turn(response))
        body = here.vendor.bodies[-1]
    items = [item for item in body["input"] if item["type"] in ("reasoning", "function_call")]
    summary = [{"type": "summary_text", "text": "part one"}, {"type": "summary_text", "text": "part two"}]
    assert items == [
        {"type": "reasoning", "summary": summary, "encrypted_content": "ENC=="},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"q": 1}'},
        {"type": "reasoning", "summary": [], "encrypted_content": "ENC2=="},
        {"type": "function_call", "call_id": "c2", "name": "look", "arguments": '{"q": 2}'},
    ]
    assert (body["store"], body["include"]) == (False, ["reasoning.encrypted_content"])
    assert "include" not in render("openai-responses", request(user("x")), capabilities={})


@pytest.mark.requirement("R178")
async def test_a_compatible_servers_reasoning_is_read_and_not_sent_back() -> None:
    async with live("openai-chat") as here:
        here.vendor.say(Say("thinking", "hm"), Say("text", "yes"))
        response = await here.provider().complete(parse_request(request(user("go"))))
        assert response.reasoning == (Reasoning("text", "openai", "hm"),)
        await here.provider().complete(
            _second_turn(response, "go")
            if response.tool_calls
            else Request(messages=(Message.user("go"), assistant_message_of(response), Message.user("x")))
        )
        assert here.vendor.bodies[-1]["messages"][1] == {"role": "assistant", "content": "yes"}


@pytest.mark.requirement("R179")
@pytest.mark.requirement("R180")
@pytest.mark.requirement("R174")
@pytest.mark.requirement("R306")
@pytest.mark.requirement("R458")
async def test_readable_reasoning_is_asked_for_only_when_configured() -> None:
    body = request(user("x"))
    assert "thinking" not in render("anthropic", body)
    assert "thinkingConfig" not in render("gemini", body)["generationConfig"]
    assert "reasoning" not in render("openai-responses", body)
    thinking = {"type": "adaptive", "display": "summarized"}
    assert render("anthropic", body, thinking=thinking)["thinking"] == thinking
    assert render("gemini", body, include_thoughts=True)["generationConfig"]["thinkingConfig"] == {
        "includeThoughts": True
    }
    assert render("openai-responses", body, reasoning={"effort": "low", "summary": "auto"})["reasoning"] == {
        "effort": "low",
        "summary": "auto",
    }
    async with live("anthropic") as here:
        here.vendor.say(Say("thinking", "s", "S"))
        plain = await here.provider().complete(parse_request(body))
        summarized = await here.provider(thinking=thinking).complete(parse_request(body))
    assert [part.kind for part in (*plain.reasoning, *summarized.reasoning)] == ["text", "summary"]


@pytest.mark.requirement("R309")
@pytest.mark.requirement("R365")
@pytest.mark.parametrize("wire", WIRES)
def test_reasoning_and_opaque_blocks_go_to_their_own_provider_only(wire: str) -> None:
    parts = []
    for provider in ("anthropic", "openai", "gemini", "scripted"):
        parts.append(
            {"type": "reasoning", "kind": "redacted", "provider": provider, "signature": f"R-{provider}"}
        )
        parts.append(
            {
                "type": "opaque",
                "provider": provider,
                "block": {"type": "web_search_call", "mark": f"O-{provider}"},
            }
        )
    sent = json.dumps(render(wire, request(user("x"), assistant([text("a"), *parts]), user("y"))))
    own = {"openai-chat": "openai", "openai-responses": "openai"}.get(wire, wire)
    found = {
        name
        for name in ("anthropic", "openai", "gemini", "scripted")
        if f"R-{name}" in sent or f"O-{name}" in sent
    }
    assert found == {own}


# -- streams and errors --------------------------------------------------------------------------------------


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


# -- what may not come to a wire -----------------------------------------------------------------------------


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
    from fumehood.agent.providers._wire import media_data, plain, wire_bytes

    with pytest.raises(UntrustedContentError):
        plain(bad("x"))
    with pytest.raises(UnresolvedContentError):
        media_data(Request.model_validate(request(user([ref()]))).messages[0].content[0])  # type: ignore[arg-type, index]
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for value in ({"a": deep}, {"a": float("nan")}, {"a": object()}):
        with pytest.raises(MessageStructureError):
            wire_bytes(value)
    assert wire_bytes({"a": "\ud800é"}) == '{"a":"\ufffdé"}'.encode()


# -- importers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
def test_what_a_wire_holds_can_be_read_back(wire: str) -> None:
    body = request(
        user("hi"),
        user([text("see"), image()]),
        assistant([text("let me"), call("c1", "look", {"q": "x"})]),
        user([result("c1", "fine", name="look")]),
        assistant("done"),
    )
    sent = render(wire, body)
    read = {
        "anthropic": lambda: from_anthropic(sent["messages"]),
        "openai-chat": lambda: from_openai(sent["messages"]),
        "openai-responses": lambda: from_responses(sent["input"]),
        "gemini": lambda: from_gemini(sent["contents"]),
    }[wire]()
    again = render(wire, {"messages": [message.to_json() for message in read]})
    assert again == sent


@pytest.mark.requirement("R461")
@pytest.mark.parametrize(
    ("read", "messages"),
    [
        (
            from_anthropic,
            [
                {
                    "role": "user",
                    "content": [{"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}}],
                }
            ],
        ),
        (
            from_anthropic,
            [{"role": "user", "content": [{"type": "document", "source": {"type": "file", "file_id": "f"}}]}],
        ),
        (
            from_openai,
            [
                {
                    "role": "user",
                    "content": [{"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}],
                }
            ],
        ),
        (from_openai, [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]),
        (from_responses, [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]),
        (
            from_gemini,
            [{"role": "user", "parts": [{"fileData": {"fileUri": "gs://x", "mimeType": "image/png"}}]}],
        ),
    ],
)
def test_media_by_url_or_file_id_is_refused(read: Any, messages: list[Json]) -> None:
    with pytest.raises(MessageStructureError, match="media by .* is not supported"):
        read(messages)


@pytest.mark.parametrize("read", [from_anthropic, from_openai, from_gemini, from_responses])
@pytest.mark.parametrize(
    "junk",
    [
        [{}],
        [[]],
        ["x"],
        [None],
        [{"role": "user", "content": [{}], "parts": [7]}],
        [{"role": 7, "content": 7, "parts": 7}],
    ],
)
def test_what_is_no_transcript_is_refused_by_name(read: Any, junk: list[Any]) -> None:
    try:
        read(junk)
    except MessageStructureError:
        pass


# -- the broker's door ---------------------------------------------------------------------------------------


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
