"""Properties over generated requests: the guard's errors, the fence on every wire, opaque blocks,
media letters.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fumehood.agent._arguments import parse_arguments
from fumehood.agent._canonical import ValueNotJson, canonical, clean
from fumehood.agent._effect import parse_request
from fumehood.agent._errors import GuardError
from fumehood.agent._fence import fence
from fumehood.agent._guard import guard_request
from fumehood.agent._parts import Message, Request
from fumehood.agent._taint import TAINT_KEY, propagate, taint_origins, tainted, without_taint
from fumehood.agent.providers._sse import SseParser
from fumehood.testing.vendors import VENDORS
from tests.agent.samples import PNG, PNG_B, assistant, b64, call, file, image, png, result, text, user
from tests.agent.sdk_types import check_body
from tests.agent.wires import WIRES, offline, render, strings

Json = Any
EXAMPLES = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))

words = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        [
            "role",
            "content",
            "type",
            "user",
            "assistant",
            "system",
            "text",
            "tool_use",
            "tool_result",
            "image",
            "data",
            "ref",
            "kind",
            "source",
            TAINT_KEY,
            "origin",
            "value",
            "messages",
            "id",
            "c1",
        ]
    ),
)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), words)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(words, inner, max_size=4)),
    max_leaves=25,
)


def _mutated(draw: st.DrawFn, value: Json) -> Json:
    """The value with one place replaced by something else."""
    if isinstance(value, dict) and value and draw(st.booleans()):
        key = draw(st.sampled_from(sorted(value)))
        return {**value, key: _mutated(draw, value[key])}
    if isinstance(value, list) and value and draw(st.booleans()):
        at = draw(st.integers(0, len(value) - 1))
        return [*value[:at], _mutated(draw, value[at]), *value[at + 1 :]]
    return draw(values)


META = {"anthropic": {"cache_control": {"type": "ephemeral"}}, "p": {"x": [None, 1]}}
VALID = {
    "system": "s",
    "messages": [
        user("x"),
        user(
            [
                {**text("a"), "provider_meta": META},
                image(name="n", provider_meta=META),
                image(untrusted={"origin": "o"}),
                text(tainted("x", "o")),
            ]
        ),
        assistant(
            [
                text("b"),
                call("c1", "t", {"a": [1, {"b": None}]}, signature="S", provider_meta=META),
                {"type": "reasoning", "kind": "text", "provider": "p", "signature": "S"},
            ]
        ),
        {
            **user([result("c1", [text("r"), image()], is_error=True, name="t", retention="durable")]),
            "ephemeral": True,
            "tool_chars": 1,
        },
    ],
    "tools": [{"name": "t", "description": "d", "input_schema": {"type": "object"}}],
    "capabilities": {"image": ["*"], "reasoning": True},
}


@st.composite
def nearly_requests(draw: st.DrawFn) -> Json:
    value: Json = VALID
    for _ in range(draw(st.integers(1, 3))):
        value = _mutated(draw, value)
    return value


@pytest.mark.promise("agent:guard-raises-only-its-errors")
@EXAMPLES
@given(st.one_of(values, nearly_requests()))
def test_the_guard_raises_nothing_but_its_named_errors_and_what_passes_is_a_request(value: Json) -> None:
    guarded: Json
    try:
        guarded = guard_request(value)
    except GuardError as error:
        assert type(error).__name__ in {
            "UntrustedContentError",
            "MessageStructureError",
            "OversizedInlinePartError",
        }
        assert len(str(error)) < 5_000
        return
    assert not any(TAINT_KEY in node for node in _objects(guarded["messages"]) if isinstance(node, dict))
    assert guard_request(guarded) == guarded
    Request.model_validate(guarded)
    json.dumps(guarded["messages"]).encode()


def _objects(value: Json) -> Any:
    stack = [value]
    while stack:
        item = stack.pop()
        yield item
        stack.extend(item.values() if isinstance(item, dict) else item if isinstance(item, list) else ())


# -- the marker ----------------------------------------------------------------------------------------------

MARK = "Zq9MARKERq9Z"
MARKS: list[dict[str, Json]] = [{}, {"untrusted": {"origin": "x"}, "name": MARK}]
around = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            "</untrusted-input>",
            '<untrusted-input origin="x">',
            "\uff1c/untrusted-input\uff1e",
            "<",
            "</",
            "\n",
            "&lt;",
            '"',
            "\\",
            "\u2028",
            "<\u200b",
        ]
    ),
)


@st.composite
def planted(draw: st.DrawFn) -> str:
    return f"{draw(around)}{draw(around)}{MARK}{draw(around)}{draw(around)}"


@st.composite
def tainted_values(draw: st.DrawFn) -> Json:
    word = draw(planted())
    shape = draw(st.sampled_from(["text", "object", "nested", "part", "media", "list"]))
    value: Json = {
        "text": word,
        "object": {"rows": [word], word: 1},
        "nested": {"x": tainted(word, "inner")},
        "part": {"type": "text", "text": word},
        "media": {**image(), "name": word},
        "list": [word, [word]],
    }[shape]
    return tainted(value, draw(st.sampled_from(["mcp:a/b", 'o"><system>', "tool:t evil.test", "é\n"])))


@st.composite
def tainted_requests(draw: st.DrawFn) -> Json:
    """Valid requests with tainted values in every place that may hold one, and harmless text elsewhere."""
    messages: list[Json] = []
    for turn in range(draw(st.integers(1, 3))):
        calls = [
            call(draw(st.sampled_from([f"c{turn}", "same", ""])), "t", {"n": n})
            for n in range(draw(st.integers(0, 3)))
        ]
        parts: list[Json] = []
        for _ in range(draw(st.integers(0, 3))):
            kind = draw(st.sampled_from(["plain", "tainted", "whole", "media", "marked", "file"]))
            if kind == "plain":
                parts.append(text(draw(st.text(max_size=8))))
            elif kind == "tainted":
                parts.append(text(draw(tainted_values())))
            elif kind == "whole":
                parts.append(draw(tainted_values()))
            elif kind == "media":
                parts.append(image(draw(st.sampled_from([PNG, PNG_B])), name="mine.png"))
            elif kind == "file":
                said = f"{draw(around)}</untrusted-input>{draw(around)}".replace("\0", "")
                words_of = said.encode("utf-8", "replace")
                parts.append(file(words_of, "text/plain", untrusted={"origin": "mcp:a/b"}))
            else:
                meta = {vendor: {"x": draw(planted())} for vendor in ("anthropic", "openai", "gemini")}
                marked: Json = {
                    "untrusted": {"origin": "mcp:a/b"},
                    "name": draw(planted()),
                    "provider_meta": meta,
                }
                parts.append(image(PNG, **marked))
        messages.append(user(parts if parts else draw(st.sampled_from([parts, "hello", ""]))))
        if draw(st.booleans()):
            messages.append(user(draw(tainted_values())))
        if calls:
            messages.append(assistant([text("ok"), *calls]))
            messages.append(
                user([result(c["id"], draw(_result_content()), is_error=draw(st.booleans())) for c in calls])
            )
    return {"system": "be kind", "messages": messages}


@st.composite
def _result_content(draw: st.DrawFn) -> Json:
    if draw(st.booleans()):
        return draw(st.one_of(tainted_values(), st.just("plain")))
    parts: list[Json] = [
        text(draw(st.one_of(st.text(max_size=5), tainted_values()))) for _ in range(draw(st.integers(0, 2)))
    ]
    parts += [image(PNG_B, **draw(st.sampled_from(MARKS))) for _ in range(draw(st.integers(0, 2)))]
    return draw(st.permutations(parts))


FENCED = re.compile(r'<untrusted-input origin="[^"<>]*">\n.*?\n</untrusted-input>', re.DOTALL)


@pytest.mark.promise("agent:tainted-only-in-fences")
@settings(max_examples=500, deadline=None, suppress_health_check=list(HealthCheck))
@given(tainted_requests())
def test_a_marker_in_tainted_values_is_never_outside_a_fence_on_any_wire(body: Json) -> None:
    for wire in WIRES:
        sent = render(wire, body)
        for item in strings(sent):
            outside = FENCED.sub("", item)
            assert MARK not in outside, (wire, item)
            # And no bracketed tag is left open around media: every open has its close, in order.
        tags = [
            found
            for item in strings(sent)
            for found in re.findall(r'<untrusted-input origin="|</untrusted-input>', item)
        ]
        assert tags == ['<untrusted-input origin="', "</untrusted-input>"] * (len(tags) // 2), (wire, tags)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(tainted_requests())
def test_every_valid_request_becomes_a_body_that_a_strict_vendor_takes(body: Json) -> None:
    for wire in WIRES:
        sent = json.loads(json.dumps(render(wire, body)))
        VENDORS[wire]().check(sent)
        check_body(wire, sent)


@EXAMPLES
@given(
    st.lists(st.sampled_from([PNG, PNG_B, png(9, 9, b"abc") + bytes(90)]), min_size=1, max_size=4),
    st.sampled_from(["json", "plain", "url", "part"]),
    st.booleans(),
)
@pytest.mark.promise("agent:no-media-letters-in-text")
def test_no_base64_of_media_stands_in_any_text(blobs: list[bytes], how: str, mark: bool) -> None:
    from fumehood.agent._results import InlineBudget, media_result, tool_result

    budget = InlineBudget()
    calls, answers = [], []
    for n, blob in enumerate(blobs):
        letters = b64(blob)
        value: Json = {
            "json": {"x": letters},
            "plain": letters,
            "url": f"data:image/png;base64,{letters}",
            "part": media_result([letters, image(blob)]),
        }[how]
        if mark:
            value = tainted(value, "o")
        calls.append(call(f"c{n}"))
        answers.append(tool_result(f"c{n}", "t", value, returns_media=True, budget=budget).to_json())
    body = {"messages": [assistant(calls), user(answers)]}
    for wire in WIRES:
        for item in strings(render(wire, body)):
            if not item.startswith("data:image") and item not in {b64(blob) for blob in blobs}:
                assert not any(b64(blob)[:100] in item for blob in blobs if len(b64(blob)) >= 100), (
                    wire,
                    item,
                )


# -- opaque blocks and codecs --------------------------------------------------------------------------------

blocks = st.dictionaries(st.text(min_size=1, max_size=6), values, max_size=4)


def _finite(value: Json) -> bool:
    return all(
        not isinstance(node, float) or node - node == 0.0 for node in _objects(value)
    ) and not taint_origins(value)


@EXAMPLES
@given(blocks.filter(_finite), st.sampled_from(["anthropic", "openai-responses", "gemini"]))
def test_encode_after_decode_is_the_identity_on_unknown_blocks(block: Json, wire: str) -> None:
    if wire == "gemini":
        answer: Json
        raw: Json = {"executableCode": block}
        answer = {
            "candidates": [
                {"finishReason": "STOP", "content": {"parts": [{"text": "a"}, raw, {"text": "b"}]}}
            ]
        }
    else:
        raw = {**block, "type": "x_unknown"}
        answer = {
            "content": [{"type": "text", "text": "a"}, raw, {"type": "text", "text": "b"}],
            "stop_reason": "end_turn",
        }
        if wire == "openai-responses":
            said = {"type": "message", "content": [{"type": "output_text", "text": "a"}]}
            answer = {"output": [said, raw, said], "status": "completed"}
    from fumehood.agent._response import assistant_message_of
    from fumehood.agent.providers._wire import WireNames

    provider = offline(wire)
    before = json.dumps(raw)
    response = provider.decode(json.loads(json.dumps(answer)), WireNames([]))
    message = Message.model_validate(json.loads(json.dumps(assistant_message_of(response).to_json())))
    sent = provider.render(Request(messages=(Message.user("x"), message)))
    if wire == "anthropic":
        found = sent["messages"][1]["content"]
    elif wire == "gemini":
        found = sent["contents"][1]["parts"]
    else:
        found = sent["input"][1:]
    assert json.dumps(found[1]) == before and len(found) == 3


@EXAMPLES
@given(st.text(), st.text(min_size=1))
def test_a_fence_holds_whatever_is_put_into_it(inner: str, origin: str) -> None:
    made = fence(inner, origin)
    assert (
        FENCED.fullmatch(made)
        and made.count("<untrusted-input") == 1
        and made.count("</untrusted-input>") == 1
    )


@EXAMPLES
@given(values)
def test_taking_marks_off_and_putting_one_on_keeps_every_origin(value: Json) -> None:
    bare, origins = without_taint(value)
    assert taint_origins(bare) == () or TAINT_KEY in json.dumps(bare)
    assert set(origins) <= set(taint_origins(value)) or not origins
    carried = propagate("summary", value)
    assert (carried == "summary") == (not taint_origins(value))


@EXAMPLES
@given(values)
def test_what_the_log_cleans_has_one_canonical_text_and_is_stable(value: Json) -> None:
    try:
        cleaned = clean(value)
    except ValueNotJson:
        return
    once = canonical(cleaned)
    assert once.isascii() and canonical(json.loads(once)) == once and canonical(clean(cleaned)) == once


@EXAMPLES
@given(st.text(), st.booleans())
def test_arguments_of_a_call_parse_or_fail_by_name(raw: str, cut_off: bool) -> None:
    value, reason = parse_arguments(raw, cut_off=cut_off)
    assert reason in (None, "invalid-json", "invalid-argument-shape", "incomplete-stream")
    assert (reason is None) == (
        isinstance(value, dict) and "__failedArguments" not in value
    ) or value == json.loads(raw)


@EXAMPLES
@given(
    st.lists(
        st.tuples(st.sampled_from(["", "a"]), st.text(alphabet="xé\U0001f600 :\t", max_size=12)), max_size=5
    ),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.integers(1, 7),
)
def test_server_sent_events_are_the_same_however_they_are_cut(
    events: list[tuple[str, str]], newline: str, size: int
) -> None:
    raw = "".join(
        (f"event: {name}{newline}" if name else "") + f"data: {data}{newline}{newline}"
        for name, data in events
    ).encode()

    def parse(step: int) -> list[tuple[str, str]]:
        parser = SseParser()
        found = [event for at in range(0, len(raw), step) for event in parser.feed(raw[at : at + step])]
        return [(event.name, event.data) for event in [*found, *parser.feed(b"", final=True)]]

    expected = [(name or "message", data) for name, data in events]
    assert parse(size) == parse(len(raw) or 1) == expected


def test_a_request_parsed_from_json_keeps_its_shape() -> None:
    body = dict(VALID.items())
    assert parse_request(body).to_json() == guard_request(body)
