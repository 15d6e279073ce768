"""What no JSON can hold is refused, and the refusal names the place inside the value."""

from __future__ import annotations

from typing import Any

import pytest

from tests.agent.samples import assistant, bad, call, request, result, text, user
from tests.agent.test_broken_positions import WIRES, refusal, render

Json = Any


def test_what_no_wire_can_hold_is_refused_with_its_place() -> None:
    deep: Json = 1
    for _ in range(2_000):
        deep = [deep]
    odd = [
        ({"q": {"a": [1, {"b": 10**5_000}]}}, "messages[1].content[1].input.q.a[1].b", "16610 bits"),
        ({"q": {(1, 2): 3}}, "messages[1].content[1].input.q", "key of type tuple"),
        (deep, "messages[1].content[1].input", "nested 2000 levels deep"),
    ]
    for value, path, why in odd:
        turns = user("x"), assistant([text("a"), call(input_=value)]), user([result()])
        for wire in WIRES:
            report = render(request(*turns), wire)
            assert (report["error"], report["path"]) == ("MessageStructureError", path)
            assert why in report["message"]
    schema = {"type": "object", "properties": {"q": {"const": 10**5_000}}}
    report = render(request(user("x"), tools=[{"name": "t", "input_schema": schema}]), "gemini")
    assert report["path"] == "tools[0].input_schema.properties.q.const"
    block = {"type": "opaque", "provider": "anthropic", "block": {"x": [10**5_000]}}
    report = render(request(user("x"), assistant([block])), "anthropic")
    assert report["path"] == "messages[1].content[0].block.x[0]"


@pytest.mark.parametrize("value", [{"a": [float("inf")]}, {"a": [{1}]}, {"a": [b"x"]}])
def test_the_place_inside_a_value_that_is_no_json_is_named(value: Json) -> None:
    meta = {"anthropic": value}
    for body, path in (
        (request(assistant([call(input_=value)])), "messages[0].content[0].input.a[0]"),
        (
            request(user([{**text("x"), "provider_meta": meta}])),
            "messages[0].content[0].provider_meta.anthropic.a[0]",
        ),
        (request({**user("x"), "replay": value}), "messages[0].replay.a[0]"),
        (request(user(bad(value))), "messages[0].content.a[0]"),
        (request(user("x"), tools=[{"name": "t", "input_schema": value}]), "tools[0].input_schema.a[0]"),
    ):
        assert refusal(body) == ("MessageStructureError", path)


def test_a_value_that_contains_itself_is_refused() -> None:
    ring: Json = {}
    ring["again"] = [ring, ring]
    assert refusal(request({**user("x"), "replay": ring}))[0] == "MessageStructureError"
    assert refusal(request(user(bad(ring))))[0] == "MessageStructureError"
    assert refusal(request(assistant([call(input_=ring)])))[0] == "UntrustedContentError"
