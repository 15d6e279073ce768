"""Calls on each wire: ids, names, failed arguments."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fumehood.agent._effect import parse_request
from fumehood.agent._parts import Message, Request
from fumehood.agent._response import assistant_message_of
from fumehood.testing.vendors import Say
from tests.agent.samples import (
    assistant,
    call,
    request,
    result,
    user,
)
from tests.agent.wires import TOOLS, WIRES, failed_answer, live, render, strings

pytestmark = pytest.mark.anyio
Json = dict[str, Any]


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
        told = Message.of("user", [failed_answer("c1")])
        after = Request(messages=(Message.user("go"), assistant_message_of(response), told))
        await here.provider().complete(after)
        sent = json.dumps(here.vendor.bodies[-1])
    assert (
        "was cut off at its length limit" in sent
        and '"input": {}' not in sent
        and "__failedArguments" not in sent
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
