"""Reading other programs' transcripts."""

from __future__ import annotations

from typing import Any

import pytest

from fumehood.agent._deep_json import write_deep
from fumehood.agent._errors import (
    MessageStructureError,
)
from fumehood.agent.messages import (
    from_anthropic,
    from_gemini,
    from_loopctl,
    from_openai,
    from_responses,
    to_parts,
)
from tests.agent.samples import (
    assistant,
    call,
    image,
    ref,
    request,
    result,
    text,
    user,
)
from tests.agent.wires import WIRES, render

pytestmark = pytest.mark.anyio
Json = dict[str, Any]


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


DEEP = "[" * 2_000 + "]" * 2_000
FUNCTION = {"name": "t", "arguments": "{}"}


@pytest.mark.parametrize(
    ("read", "entry", "path"),
    [
        (from_anthropic, {"content": "x"}, "messages[1].role"),
        (from_anthropic, {"role": "tool", "content": "x"}, "messages[1].role"),
        (from_anthropic, {"role": "user", "content": 7}, "messages[1].content"),
        (from_anthropic, user([text("a"), 7]), "messages[1].content[1]"),
        (from_anthropic, user([{"type": "text"}]), "messages[1].content[0].text"),
        (from_anthropic, user([{"type": "text", "text": None}]), "messages[1].content[0].text"),
        (
            from_anthropic,
            user([{"type": "tool_use", "id": "c", "name": "t"}]),
            "messages[1].content[0].input",
        ),
        (
            from_anthropic,
            user([{"type": "image", "source": {"type": "base64", "data": ""}}]),
            "messages[1].content[0].source.media_type",
        ),
        (
            from_anthropic,
            user([{"type": "image", "source": {"type": "url", "url": "u"}}]),
            "messages[1].content[0].source.type",
        ),
        (
            from_anthropic,
            user(
                [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c",
                        "content": [text("a"), {"type": "search_result"}],
                    }
                ]
            ),
            "messages[1].content[0].content[1].type",
        ),
        (from_openai, {"role": "owner", "content": "x"}, "messages[1].role"),
        (from_openai, {"role": "tool", "content": "x"}, "messages[1].tool_call_id"),
        (from_openai, {"role": "user", "content": {}}, "messages[1].content"),
        (
            from_openai,
            {"role": "assistant", "tool_calls": [{"id": "a", "function": FUNCTION}, {"id": "b"}]},
            "messages[1].tool_calls[1].function",
        ),
        (
            from_openai,
            {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "t", "arguments": "{"}}]},
            "messages[1].tool_calls[0].function.arguments",
        ),
        (
            from_openai,
            user([{"type": "image_url", "image_url": {"url": "https://x.test/"}}]),
            "messages[1].content[0].image_url.url",
        ),
        (
            from_openai,
            user([{"type": "input_audio", "input_audio": {"format": "aac", "data": ""}}]),
            "messages[1].content[0].input_audio.format",
        ),
        (
            from_openai,
            user([{"type": "file", "file": {"file_id": "f"}}]),
            "messages[1].content[0].file.file_id",
        ),
        (from_responses, {"type": "function_call", "call_id": "c", "name": "t"}, "input[1].arguments"),
        (
            from_responses,
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text"}]},
            "input[1].output[0].text",
        ),
        (
            from_responses,
            {"type": "reasoning", "summary": [{"type": "summary_text"}]},
            "input[1].summary[0].text",
        ),
        (from_responses, {"type": 7}, None),
        (from_gemini, {"parts": {}}, "contents[1].parts"),
        (from_gemini, {"parts": [{"text": 7}]}, "contents[1].parts[0].text"),
        (
            from_gemini,
            {"parts": [{"text": "a"}, {"functionCall": {}}]},
            "contents[1].parts[1].functionCall.name",
        ),
        (
            from_gemini,
            {
                "parts": [
                    {"functionResponse": {"name": "t", "response": {"output": {"a": [1, float("nan")]}}}}
                ]
            },
            "contents[1].parts[0].functionResponse.response.a[1]",
        ),
        (
            from_gemini,
            {"parts": [{"functionResponse": {"name": "t", "parts": [{"inlineData": {"data": ""}}]}}]},
            "contents[1].parts[0].functionResponse.parts[0].inlineData.mimeType",
        ),
        (
            from_loopctl,
            {
                "role": "user",
                "parts": [{"type": "tool_result", "call_id": "c", "output": [{"type": "text"}]}],
            },
            "messages[1].parts[0].output[0].text",
        ),
        (
            from_loopctl,
            {"role": "user", "parts": [{"type": "image", "source": {"encoding": "hex"}}]},
            "messages[1].parts[0].source.encoding",
        ),
    ],
)
def test_a_refusal_names_the_place_in_the_foreign_transcript(
    read: Any, entry: Json, path: str | None
) -> None:
    firsts: dict[Any, Json] = {
        from_gemini: {"role": "user", "parts": [{"text": "hi"}]},
        from_loopctl: {"role": "user", "parts": []},
    }
    first = firsts.get(read, user("hi"))
    if path is None:
        assert read([first, entry])[1].role == "assistant"  # a type that nobody knows is an opaque block
        return
    with pytest.raises(MessageStructureError) as caught:
        read([first, entry])
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: ") and str(caught.value).count(path) == 1


@pytest.mark.parametrize("read", [from_anthropic, from_openai, from_gemini, from_responses, from_loopctl])
@pytest.mark.parametrize("junk", [None, 7, "text", [7], [None], [[]], [{}]])
def test_what_is_no_list_of_messages_is_refused_or_empty(read: Any, junk: Any) -> None:
    if junk == [{}] and read is from_gemini:
        assert read(junk)[0].to_json() == {"role": "user", "content": []}
        return
    with pytest.raises(MessageStructureError) as caught:
        read(junk)
    assert caught.value.path.partition("[")[0].partition(".")[0] in ("messages", "contents", "input")


def test_what_loopctl_has_no_form_for_is_named_by_its_part() -> None:
    from fumehood.agent.messages import Message, to_loopctl

    for content, path in (
        ([text("a"), {"type": "opaque", "provider": "p", "block": {}}], "content[1]"),
        ([result("c", [text("a"), ref()])], "content[0].content[1]"),
    ):
        with pytest.raises(MessageStructureError) as caught:
            to_loopctl(Message.model_validate(user(content)))
        assert caught.value.path == path


@pytest.mark.parametrize("words", [DEEP, '{"a":' + DEEP + "}"])
def test_arguments_of_any_depth_are_read(words: str) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "t", "arguments": words}}
    (message,) = from_openai([{"role": "assistant", "content": None, "tool_calls": [call]}])
    (part,) = to_parts(message.content)
    assert write_deep(part.input) == words  # type: ignore[union-attr]


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
