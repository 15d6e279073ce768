"""The guard and structure: what is a request, which results answer which calls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fumehood.agent._errors import (
    GuardError,
    MessageStructureError,
    UntrustedContentError,
)
from fumehood.agent._guard import guard_request
from tests.agent.samples import (
    assistant,
    b64,
    bad,
    call,
    image,
    png,
    request,
    result,
    text,
    user,
)

Json = dict[str, Any]


def refusal(body: Any, **caps: Any) -> tuple[str, str]:
    """Error name and path of a refused request."""
    with pytest.raises(GuardError) as caught:
        guard_request(body, **caps)
    return type(caught.value).__name__, caught.value.path


@pytest.mark.requirement("R065")
@pytest.mark.requirement("R074")
@pytest.mark.requirement("R075")
@pytest.mark.requirement("R076")
@pytest.mark.requirement("R078")
@pytest.mark.requirement("R085")
@pytest.mark.parametrize(
    ("body", "path"),
    [
        (request(user(text("a single part"))), "messages[0].content"),
        (request(user(None)), "messages[0].content"),
        (request(user(7)), "messages[0].content"),
        (request({"role": "user"}), "messages[0].content"),
        (request({"role": "tool", "content": "x"}), "messages[0].role"),
        (request({"role": "User", "content": "x"}), "messages[0].role"),
        (request({"content": "x"}), "messages[0].role"),
        (request(user([call()])), "messages[0].content[0]"),
        (request({"role": "system", "content": [call()]}), "messages[0].content[0]"),
        (request(assistant([call(), result()])), "messages[0].content[1]"),
        (request(user([{"type": "reasoning", "kind": "text", "provider": "p"}])), "messages[0].content[0]"),
        (request(user([{"type": "video", "url": "x"}])), "messages[0].content[0].type"),
        (request(user([{"text": "x"}])), "messages[0].content[0].type"),
        (request(user(["bare"])), "messages[0].content[0]"),
        (request(user([{"type": "text"}])), "messages[0].content[0].text"),
        (request(user([{"type": "text", "text": "x", "cache": 1}])), "messages[0].content[0].cache"),
        (request(user([text(7)])), "messages[0].content[0].text"),
        (request({"role": "user", "content": "x", "extra": 1}), "messages[0].extra"),
        (request({"role": "user", "content": "x", "tool_chars": -1}), "messages[0].tool_chars"),
        (
            request({"role": "user", "content": "x", "tool_result_origin": "elsewhere"}),
            "messages[0].tool_result_origin",
        ),
        (request(user("x"), temperature=1), "temperature"),
        (request(system=["x"]), "system"),
        ({"messages": {}}, "messages"),
        ({}, "messages"),
        ([], ""),
        (None, ""),
        (request("x"), "messages[0]"),  # type: ignore[arg-type]
        (request(tools={}), "tools"),
        (request(tools=[{"name": "no spaces"}]), "tools[0].name"),
        (request(tools=[{"name": "a"}, {"name": "a"}]), "tools[1].name"),
        (request(tools=[{"name": "a", "input_schema": []}]), "tools[0].input_schema"),
        (request(tools=[{"name": "a", "returns_media": True}]), "tools[0].returns_media"),
        (
            request(assistant([call()]), user([result(content=[call()])])),
            "messages[1].content[0].content[0].type",
        ),
        (request(assistant([call()]), user([result(is_error="yes")])), "messages[1].content[0].is_error"),
        (
            request(assistant([call()]), user([result(retention="forever")])),
            "messages[1].content[0].retention",
        ),
        (request(assistant([call()]), user([result(content=None)])), "messages[1].content[0].content"),
        (request(capabilities={"image": "image/png"}), "capabilities.image"),
        (request(capabilities={"video": []}), "capabilities.video"),
        (request(capabilities={"reasoning": "yes"}), "capabilities.reasoning"),
        (request(assistant([call(input_=float("nan"))])), "messages[0].content[0].input"),
        (request(assistant([call(input_={"x": b"bytes"})])), "messages[0].content[0].input.x"),
        (
            request(assistant([{"type": "reasoning", "kind": "raw", "provider": "p"}])),
            "messages[0].content[0].kind",
        ),
    ],
)
def test_what_is_not_a_request_is_refused_by_its_place(body: Any, path: str) -> None:
    assert refusal(body) == ("MessageStructureError", path)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("folded_exempt", "x", "folded_exempt: must be a list"),
        ("folded_exempt", [1], "folded_exempt[0]: must be a string"),
        ("injected_by", "x", "injected_by: must be an object"),
        ("injected_by", {"flavor": "f"}, "injected_by.injection_id: is missing"),
        (
            "injected_by",
            {"injection_id": "i", "flavor": "f", "iteration": 1, "z": 1},
            "injected_by.z: is not a field of this object",
        ),
        ("replay", 1, "replay: must be an object"),
        ("ephemeral", "x", "ephemeral: must be true or false"),
        ("tool_chars", "x", "tool_chars: must be a whole number"),
        ("tool_chars", -1, "tool_chars: must be greater than or equal to 0"),
        ("tool_result_origin", "q", "tool_result_origin: must be 'not-entered' or 'input-cancelled'"),
    ],
)
def test_what_is_wrong_with_a_field_is_said_in_the_words_of_json(field: str, value: Any, said: str) -> None:
    with pytest.raises(MessageStructureError) as caught:
        guard_request(request({"role": "user", "content": "x", field: value}))
    assert caught.value.message == f"messages[0].{said}"


@pytest.mark.requirement("R084")
def test_an_empty_list_of_parts_is_legal_and_stays() -> None:
    body = request(user([]), assistant([]), {"role": "system", "content": []})
    assert guard_request(body) == body


@pytest.mark.requirement("R189")
@pytest.mark.requirement("R196")
@pytest.mark.requirement("R197")
@pytest.mark.parametrize(
    ("messages", "path"),
    [
        ([user([result("c1")])], "messages[0].content[0].tool_use_id"),
        ([user([result("c1")]), assistant([call("c1")])], "messages[0].content[0].tool_use_id"),
        ([assistant([call("c1")]), user([result("c2")])], "messages[1].content[0].tool_use_id"),
        ([assistant([call("c1")]), user([result("c1"), result("c1")])], "messages[1].content[1].tool_use_id"),
        (
            [assistant([call("c1")]), user([result("c1")]), user([result("c1")])],
            "messages[2].content[0].tool_use_id",
        ),
    ],
)
def test_orphan_and_repeated_results_are_refused(messages: list[Json], path: str) -> None:
    assert refusal(request(*messages)) == ("MessageStructureError", path)


@pytest.mark.requirement("R197")
def test_ids_that_a_vendor_uses_again_pair_by_position() -> None:
    again = [assistant([call("call_0")]), user([result("call_0")])]
    twins = [
        assistant([call("x"), call("x"), call(""), call("")]),
        user([result("x"), result("x"), result(""), result("")]),
    ]
    body = request(*again, *again, *twins)
    assert guard_request(body) == body


@pytest.mark.requirement("R316")
def test_readable_reasoning_of_a_caller_is_taken_off() -> None:
    part = {
        "type": "reasoning",
        "kind": "text",
        "provider": "anthropic",
        "signature": "S",
        "text": "secret thought",
    }
    guarded = guard_request(request(assistant([part])))
    assert guarded["messages"][0]["content"] == [{k: v for k, v in part.items() if k != "text"}]


def test_opaque_blocks_pass_unchanged_and_never_inside_results() -> None:
    block = {"type": "server_tool_use", "id": "x", "deep": [1, None, {"a": 2**60}]}
    part = {"type": "opaque", "provider": "anthropic", "block": block}
    body = request(assistant([part]), user([part]))
    assert guard_request(body) == body
    assert refusal(request(assistant([call()]), user([result(content=[part])])))[0] == "MessageStructureError"
    tainted_block = part | {"block": {"a": [bad("x")]}}
    assert refusal(request(assistant([tainted_block]))) == (
        "UntrustedContentError",
        "messages[0].content[0].block.a[0]",
    )


@pytest.mark.requirement("R041")
def test_structure_and_provenance_are_checked_in_one_call_and_the_input_is_not_changed() -> None:
    body = request(user([text(bad("x")), image(untrusted={"origin": "o"}, name="n")]))
    before = json.dumps(body)
    guard_request(body)
    assert json.dumps(body) == before
    # One walk, in the order of the request: whichever of two faults stands first is the one that is named.
    broken, tainted_call = user([{"type": "no such part"}]), assistant([call(input_={"q": bad("x")})])
    assert refusal(request(broken, tainted_call)) == ("MessageStructureError", "messages[0].content[0].type")
    assert refusal(request(tainted_call, broken)) == (
        "UntrustedContentError",
        "messages[0].content[0].input.q",
    )


@pytest.mark.requirement("R055")
def test_media_of_the_request_is_not_repeated_as_text_in_a_result() -> None:
    data = png(30, 30, b"\x01\x02\x03")
    letters = b64(data)
    body = request(
        assistant([call()]), user([result(content=[text(json.dumps({"shot": letters})), image(data)])])
    )
    content = guard_request(body)["messages"][1]["content"][0]["content"]
    assert content == [text('{"shot": "[media, see the part]"}'), image(data)]


def test_errors_show_short_values_only() -> None:
    with pytest.raises(MessageStructureError) as caught:
        guard_request(request({"role": "x" * 10_000 + "\x1b[31m", "content": ""}))
    assert len(str(caught.value)) < 200 and "\x1b" not in str(caught.value)


def test_an_untrusted_error_says_where_the_content_came_from() -> None:
    with pytest.raises(UntrustedContentError, match="from mcp:acme/fetch_doc"):
        guard_request(request(system=bad("x")))
