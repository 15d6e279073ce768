"""Reading, building, showing and storing messages."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from pydantic import ValidationError

from fumehood.agent._errors import MessageStructureError, UntrustedContentError
from fumehood.agent._parts import FRAMEWORK_FIELDS, Message, Request, strip_framework_fields
from fumehood.agent._response import assistant_message_of
from fumehood.agent.messages import (
    AudioPart,
    DataSource,
    FilePart,
    ImagePart,
    OpaquePart,
    ReasoningPart,
    TextPart,
    ToolResultPart,
    ToolUsePart,
    as_text,
    display,
    from_loopctl,
    has_structured_parts,
    tainted_text_of,
    text_of,
    text_part,
    to_loopctl,
    to_parts,
    tool_bytes_of,
    tool_call_part,
    tool_calls_of,
    tool_result_part,
)
from fumehood.agent.providers import ScriptedProvider
from tests.agent.samples import PNG, assistant, b64, bad, call, image, request, result, text, user
from tests.agent.wires import WIRES, render

pytestmark = pytest.mark.anyio
Json = dict[str, Any]


@pytest.mark.requirement("R065")
def test_content_is_a_string_or_a_list_and_never_a_bare_part() -> None:
    assert Message.user("x").content == "x"
    assert Message.model_validate(user([text("x")])).content == (TextPart(text="x"),)
    for wrong in (text("x"), 7, None):
        with pytest.raises(ValidationError):
            Message.model_validate(user(wrong))


@pytest.mark.requirement("R068")
def test_either_form_is_read_by_the_same_helpers() -> None:
    assert (text_of("ab"), to_parts("ab")) == ("ab", (TextPart(text="ab"),))
    parts = Message.model_validate(user([text("a"), text("b")]))
    assert (text_of(parts), to_parts(parts.content)) == ("ab", (TextPart(text="a"), TextPart(text="b")))
    assert to_parts("") == ()
    assert not has_structured_parts("ab") and not has_structured_parts(parts.content)
    assert has_structured_parts(Message.model_validate(user([text("a"), image()])).content)


@pytest.mark.requirement("R081")
def test_tainted_text_is_never_handed_out_as_plain_text() -> None:
    message = Message.model_validate(user([text("a"), text(bad("b"))]))
    with pytest.raises(UntrustedContentError, match="this text is tainted"):
        text_of(message)
    assert tainted_text_of(message) == bad("ab")
    assert as_text(to_parts(message.content)[1]) is None


@pytest.mark.requirement("R069")
@pytest.mark.requirement("R070")
@pytest.mark.requirement("R071")
@pytest.mark.requirement("R072")
@pytest.mark.requirement("R073")
@pytest.mark.requirement("R311")
@pytest.mark.requirement("R428")
@pytest.mark.requirement("R427")
@pytest.mark.parametrize(
    "part",
    [
        text("x"),
        text(bad("x")),
        image(name="n"),
        image(untrusted={"origin": "o"}),
        {"type": "audio", "media_type": "audio/wav", "source": {"kind": "data", "data": ""}},
        {
            "type": "file",
            "media_type": "application/pdf",
            "source": {"kind": "ref", "ref": {"address": "a", "size": 0}},
            "name": "r",
        },
        {"type": "image", "media_type": "image/png", "source": {"kind": "ref", "ref": {"address": "a"}}},
        call(),
        call(input_={"deep": [None, 1.5, {"x": []}]}, signature="S=="),
        {"type": "tool_use", "id": "c", "name": "t", "input": None},
        call(provider_meta={"gemini": {"x": 1}}),
        result(),
        result(content=[text("a"), image()], is_error=True, name="t", retention="durable"),
        result(is_error=False),
        result(content=bad({"a": 1})),
        {"type": "reasoning", "kind": "redacted", "provider": "anthropic", "signature": "S"},
        {
            "type": "reasoning",
            "kind": "summary",
            "provider": "gemini",
            "text_ref": {"address": "a", "size": 3},
            "digest": "d",
        },
        {"type": "reasoning", "kind": "text", "provider": "p", "digest": "d", "omitted": True},
        {"type": "opaque", "provider": "anthropic", "block": {"type": "x", "deep": [None]}},
    ],
)
def test_every_part_goes_through_json_unchanged(part: Json) -> None:
    message = {"role": "assistant", "content": [part]}
    read = Message.model_validate(json.loads(json.dumps(message)))
    assert read.to_json() == message
    assert json.loads(read.model_dump_json()) == message
    assert Message.model_validate(read.to_json()) == read
    for role in ("Assistant", "USER", "tool"):
        with pytest.raises(ValueError, match="role"):
            Message.model_validate({**message, "role": role})


@pytest.mark.requirement("R195")
@pytest.mark.parametrize("value", [None, 0, "", [], {}, True, 2**70, [[None]]])
def test_a_calls_input_may_be_any_json_value(value: Any) -> None:
    part = {"type": "tool_use", "id": "c", "name": "t", "input": value}
    assert Message.model_validate(assistant([part])).to_json() == assistant([part])


def test_models_are_frozen_and_refuse_unknown_fields() -> None:
    message = Message.user("x")
    with pytest.raises(ValidationError):
        message.role = "assistant"
    with pytest.raises(ValidationError):
        Message.model_validate({"role": "user", "content": "x", "extra": 1})
    with pytest.raises(ValidationError):
        Message.model_validate({"role": "User", "content": "x"})


@pytest.mark.requirement("R088")
@pytest.mark.requirement("R086")
def test_there_are_constructors_for_everything_but_system_messages() -> None:
    assert Message.user("a").to_json() == user("a")
    assert Message.assistant("a").to_json() == assistant("a")
    made = Message.of("assistant", [text_part("x"), tool_call_part("c1", "t", {"a": 1})])
    assert made.to_json() == assistant([text("x"), call("c1", "t", {"a": 1})])
    answer = Message.of("user", [tool_result_part("c1", "t", "done", is_error=True, retention="requery")])
    assert answer.to_json() == user([result("c1", "done", is_error=True, name="t", retention="requery")])
    assert tool_result_part("c", "t", "x").is_error is None
    assert not hasattr(Message, "system")


@pytest.mark.requirement("R089")
@pytest.mark.requirement("R090")
@pytest.mark.requirement("R091")
@pytest.mark.requirement("R092")
@pytest.mark.requirement("R093")
@pytest.mark.requirement("R095")
def test_text_and_display_of_one_message_differ_on_purpose() -> None:
    message = Message.model_validate(
        assistant([text("a"), text("b"), call("c1", "read_file", {"path": "é"}), call("c2", "t", [])])
    )
    assert text_of(message) == "ab"
    assert display(message) == 'a\nb\n[Tool: read_file with input: {"path": "é"}]\n[Tool: t with input: []]'
    assert tool_calls_of(message) == [("c1", "read_file", {"path": "é"}), ("c2", "t", [])]
    answer = Message.model_validate(
        user([result("c1", [text("one"), image(), text("two")]), image(), result("c2", "x")])
    )
    assert display(answer) == "[Tool Result: one\ntwo]\n[Image: image/png]\n[Tool Result: x]"
    assert text_of(answer) == ""
    assert [as_text(part) for part in to_parts(message.content)] == ["a", "b", None, None]


@pytest.mark.requirement("R094")
def test_a_tools_output_is_text_or_parts() -> None:
    assert tool_result_part("c", "t", "x").content == "x"
    parts = tool_result_part(
        "c", "t", [text_part("x"), ImagePart(media_type="image/png", source=DataSource(data=b64(PNG)))]
    )
    assert [type(part) for part in parts.content] == [TextPart, ImagePart]


# -- framework fields ----------------------------------------------------------------------------------------

FIELDS: Json = {
    "ephemeral": True,
    "injected_by": {"injection_id": "i", "flavor": "rag", "iteration": 3, "reason": "why"},
    "not_dispatched": {"paused_call": {"tool_call_id": "c", "tool_name": "t"}},
    "folded_exempt": ["form"],
    "tool_chars": 4,
    "tool_result_origin": "input-cancelled",
    "tool_arguments_failure": {"reason": "incomplete-stream"},
    "replay": {"layout": [1]},
}


@pytest.mark.requirement("R435")
@pytest.mark.requirement("R271")
@pytest.mark.requirement("R274")
@pytest.mark.requirement("R275")
@pytest.mark.requirement("R277")
@pytest.mark.requirement("R283")
@pytest.mark.requirement("R284")
@pytest.mark.requirement("R286")
@pytest.mark.requirement("R289")
@pytest.mark.requirement("R290")
@pytest.mark.requirement("R291")
@pytest.mark.requirement("R292")
def test_framework_fields_survive_a_checkpoint_and_are_absent_when_unset() -> None:
    assert set(FIELDS) == set(FRAMEWORK_FIELDS)
    dressed = {**user("x"), **FIELDS}
    read = Message.model_validate(json.loads(json.dumps(dressed)))
    assert read.to_json() == dressed
    assert Message.user("x").to_json() == user("x")
    for origin in ("not-entered", "input-cancelled"):
        assert (
            Message.model_validate({**user("x"), "tool_result_origin": origin}).tool_result_origin == origin
        )
    for reason in ("invalid-json", "invalid-argument-shape", "incomplete-stream"):
        assert Message.model_validate(
            {**user("x"), "tool_arguments_failure": {"reason": reason}}
        ).tool_arguments_failure
    for wrong in (
        {"tool_result_origin": "x"},
        {"tool_arguments_failure": {"reason": "x"}},
        {"injected_by": {"flavor": "f"}},
    ):
        with pytest.raises(ValidationError):
            Message.model_validate({**user("x"), **wrong})


@pytest.mark.requirement("R183")
@pytest.mark.requirement("R184")
async def test_stripping_removes_fields_and_never_messages() -> None:
    messages = tuple(Message.model_validate({**user(str(n)), **FIELDS}) for n in range(3))
    assert [message.to_json() for message in strip_framework_fields(messages)] == [
        user("0"),
        user("1"),
        user("2"),
    ]
    # A third-party adapter that serializes whole messages cannot leak what it never got.
    provider = ScriptedProvider([{"text": "ok"}])
    await provider.complete(Request(messages=messages))
    assert provider.requests[0].to_json() == request(user("0"), user("1"), user("2"))


@pytest.mark.requirement("R185")
@pytest.mark.parametrize(
    ("wire", "name"), [("anthropic", "anthropic"), ("openai-chat", "openai"), ("gemini", "gemini")]
)
def test_a_calls_provider_meta_goes_back_unchanged_to_its_provider_alone(wire: str, name: str) -> None:
    meta = {n: {"mark": f"META-{n}"} for n in ("anthropic", "openai", "gemini")}
    sent = json.dumps(
        render(wire, request(user("x"), assistant([call(provider_meta=meta)]), user([result()])))
    )
    assert [n for n in meta if f"META-{n}" in sent] == [name]
    kept = strip_framework_fields([Message.model_validate(assistant([call(provider_meta=meta)]))])
    assert kept[0].to_json() == assistant([call(provider_meta=meta)])


@pytest.mark.requirement("R262")
@pytest.mark.requirement("R263")
@pytest.mark.requirement("R268")
@pytest.mark.requirement("R269")
@pytest.mark.parametrize("wire", WIRES)
def test_a_note_on_a_result_is_cut_off_by_the_one_reader_and_still_read_by_the_model(wire: str) -> None:
    noted = {**user([result("c1", "tool words" + " [note: 42]")]), "tool_chars": 10}
    message = Message.model_validate(noted)
    assert tool_bytes_of(message) == "tool words"
    assert tool_bytes_of(message.model_copy(update={"tool_chars": None})) == "tool words [note: 42]"
    assert "tool words [note: 42]" in json.dumps(render(wire, request(assistant([call("c1")]), noted)))


# -- retention -----------------------------------------------------------------------------------------------


@pytest.mark.requirement("R240")
@pytest.mark.requirement("R241")
@pytest.mark.requirement("R246")
def test_the_retention_tag_travels_with_the_part() -> None:
    for tag in ("requery", "durable", "none"):
        part = result(retention=tag)
        assert Message.model_validate(json.loads(json.dumps(user([part])))).to_json() == user([part])
    from fumehood.agent._results import tool_result

    assert tool_result("c", "t", 1, retention="durable").retention == "durable"
    assert tool_result("c", "t", 1, retention="none").retention is None
    assert tool_result("c", "t", {"retention": "durable"}).retention is None


# -- loopctl -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R096")
@pytest.mark.requirement("R429")
@pytest.mark.requirement("R430")
@pytest.mark.requirement("R431")
@pytest.mark.requirement("R432")
@pytest.mark.requirement("R433")
@pytest.mark.requirement("R299")
def test_loopctls_saved_messages_load_and_save_again() -> None:
    picture = {"type": "image", "source": {"encoding": "base64", "media_type": "image/png", "data": b64(PNG)}}
    saved: list[Json] = [
        {"role": "system", "parts": [{"type": "text", "text": "be kind"}]},
        {"role": "user", "parts": [{"type": "text", "text": "hello"}, picture]},
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": "call_1", "name": "read_file", "input": {"path": "a.rs"}}],
        },
        {
            "role": "user",
            "parts": [
                {
                    "type": "tool_result",
                    "call_id": "call_1",
                    "name": "read_file",
                    "output": "x",
                    "is_error": True,
                },
                {
                    "type": "tool_result",
                    "call_id": "call_2",
                    "name": "t",
                    "output": [{"type": "text", "text": "a"}, picture],
                    "retention": "durable",
                },
            ],
        },
        {"role": "assistant", "parts": []},
    ]
    messages = from_loopctl(saved)
    assert [to_loopctl(message) for message in messages] == saved
    assert [message.role for message in messages] == ["system", "user", "assistant", "user", "assistant"]
    old = from_loopctl({"role": "user", "parts": [{"type": "tool_result", "call_id": "c", "output": "x"}]})
    assert old[0].to_json() == user([result("c", "x", name="")])


@pytest.mark.requirement("R486")
@pytest.mark.requirement("R312")
@pytest.mark.requirement("R314")
def test_loopctls_thinking_loads_without_its_readable_text() -> None:
    parts = [
        {"type": "thinking", "text": "secret é", "signature": "S"},
        {"type": "thinking", "text": "", "signature": "T"},
        {"type": "thinking", "text": "", "redacted": "R"},
    ]
    (message,) = from_loopctl({"role": "assistant", "parts": parts})
    digest = hashlib.sha256("secret é".encode()).hexdigest()
    assert message.content == (
        ReasoningPart(kind="text", provider="anthropic", signature="S", digest=digest, omitted=True),
        ReasoningPart(kind="text", provider="anthropic", signature="T"),
        ReasoningPart(kind="redacted", provider="anthropic", signature="R"),
    )
    assert "secret" not in json.dumps(message.to_json())


@pytest.mark.parametrize(
    "junk",
    [
        {},
        [{}],
        [{"role": "user"}],
        [{"role": "user", "parts": [{"type": "dance"}]}],
        [{"role": "user", "parts": [{"type": "image", "source": {"encoding": "hex"}}]}],
        ["x"],
    ],
)
def test_what_is_not_loopctls_is_refused_by_name(junk: Any) -> None:
    with pytest.raises(MessageStructureError):
        from_loopctl(junk)


def test_what_loopctl_has_no_form_for_is_refused() -> None:
    for part in (
        OpaquePart(provider="p", block=1),
        AudioPart(media_type="audio/wav", source=DataSource(data="")),
        FilePart(media_type="a/b", source=DataSource(data="")),
        TextPart(text=bad("x")),
    ):
        with pytest.raises(MessageStructureError):
            to_loopctl(Message.of("user", [part]))


@pytest.mark.requirement("R192")
@pytest.mark.parametrize(("value", "failed"), [(None, False), (False, False), (True, True)])
@pytest.mark.parametrize("wire", WIRES)
def test_only_true_marks_a_failed_result(wire: str, value: bool | None, failed: bool) -> None:
    answer = result("c1", "words") | ({} if value is None else {"is_error": value})
    sent = json.dumps(render(wire, request(assistant([call("c1")]), user([answer]))))
    mark = {"anthropic": '"is_error": true', "gemini": '"error": "words"'}.get(wire, "[tool error]")
    assert (mark in sent) == failed


def test_a_plain_response_becomes_a_string_message() -> None:
    from fumehood.agent._response import Response

    assert assistant_message_of(Response("hi")).to_json() == assistant("hi")
    assert isinstance(tool_call_part("c", "t", 1), ToolUsePart) and isinstance(
        tool_result_part("c", "t", ""), ToolResultPart
    )
