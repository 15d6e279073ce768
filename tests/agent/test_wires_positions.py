"""Where things stand on each wire: blocks, answers, moved media, fences, framework fields."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fumehood.agent._effect import parse_request
from fumehood.agent._errors import (
    UnsupportedModalityError,
)
from tests.agent.samples import (
    PNG,
    PNG_B,
    assistant,
    audio,
    b64,
    call,
    fenced,
    file,
    image,
    request,
    result,
    text,
    user,
)
from tests.agent.wires import FULL, WIRES, live, order, render

pytestmark = pytest.mark.anyio
Json = dict[str, Any]


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


@pytest.mark.requirement("R097")
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
            with pytest.raises(UnsupportedModalityError, match="has no form on the wire"):
                await here.provider().complete(parse_request(body))
            assert here.vendor.bodies == []
            return
        await here.provider().complete(parse_request(body))
        assert part["source"]["data"] in json.dumps(here.vendor.bodies[-1])


@pytest.mark.parametrize(
    ("wire", "part", "refused"),
    [
        ("anthropic", file(b"hi", "text/markdown"), False),
        ("anthropic", file(b"{}", "application/json"), False),
        ("anthropic", file(b"PK\x03\x04" + bytes(30), "application/zip"), True),
        ("openai-chat", audio(b"OggS" + bytes(30), "audio/ogg"), True),
        ("gemini", audio(b"OggS" + bytes(30), "audio/ogg"), False),
    ],
)
def test_what_a_wire_has_no_form_for_is_refused_here_whatever_was_declared(
    wire: str, part: Json, refused: bool
) -> None:
    if refused:
        with pytest.raises(UnsupportedModalityError, match="has no form on the wire"):
            render(wire, request(user([part])))
    else:
        render(wire, request(user([part])))
