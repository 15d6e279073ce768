"""Reading other programs' transcripts."""

from __future__ import annotations

from typing import Any

import pytest

from fumehood.agent._errors import (
    MessageStructureError,
)
from fumehood.agent.messages import (
    from_anthropic,
    from_gemini,
    from_openai,
    from_responses,
)
from tests.agent.samples import (
    assistant,
    call,
    image,
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
