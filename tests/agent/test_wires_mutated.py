"""Answers with a few things changed: each can be recorded and sent back, or is a provider error."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest

from fumehood.agent import GuardError
from fumehood.agent._canonical import canonical, clean
from fumehood.agent._errors import ProviderError
from fumehood.agent._parts import Message, Request
from fumehood.agent._response import Response, assistant_message_of, text_free_reasoning
from fumehood.agent._results import screen_input
from fumehood.testing.vendors import VENDORS, Say
from tests.agent.test_wires_fidelity import SAID
from tests.agent.test_wires_hostile import _ask, _events
from tests.agent.wires import WIRES, offline

pytestmark = pytest.mark.anyio
Json = Any

JUNK: list[Json] = [
    None, 7, -1, "", "x", [], {}, [1], {"a": 1}, True, 1.5, "\ud800", ["a"], {"type": "text"}, 2**70, [[[]]],
]  # fmt: skip
NAMES = ["type", "id", "index", "text", "content", "parts", "extra", "name"]
USUAL = [
    Say("thinking", "hm", "S"),
    Say("text", "hello", "G"),
    Say("call", id="c1", name="look", input={"q": 1}),
    Say("call", id="c2", name="look", input={"q": 2}),
]


def _places(value: Json) -> list[tuple[Json, ...]]:
    found: list[tuple[Json, ...]] = []
    stack: list[tuple[Json, tuple[Json, ...]]] = [(value, ())]
    while stack:
        item, path = stack.pop()
        found.append(path)
        keys = item if isinstance(item, dict) else range(len(item)) if isinstance(item, list) else ()
        stack.extend((item[key], (*path, key)) for key in keys)
    return found[1:]


def _mutated(value: Json, random_: random.Random) -> Json:
    made = copy.deepcopy(value)
    for _ in range(random_.choice([1, 1, 2, 3])):
        *path, last = random_.choice(_places(made) or [(0,)])
        target = made
        for key in path:
            target = target[key]
        act = random_.random()
        if act < 0.6:
            target[last] = copy.deepcopy(random_.choice(JUNK))
        elif act < 0.8:
            del target[last]
        elif isinstance(target, list):
            target.append(copy.deepcopy(target[last]))
        else:
            target[random_.choice(NAMES)] = copy.deepcopy(target[last])
    return made


@pytest.mark.promise("agent:no-half-answers")
@pytest.mark.parametrize("said", [USUAL, "more"])
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("wire", WIRES)
async def test_a_changed_answer_is_a_provider_error_or_one_that_can_go_back(
    wire: str, streamed: bool, said: Json
) -> None:
    vendor = VENDORS[wire]()
    blocks = SAID[wire] if said == "more" else said
    whole: Json = vendor.answer(blocks, "end")
    if streamed:
        sent = [event.partition("data: ")[2] for event in vendor.events(blocks, "end")]
        whole = [json.loads(event) for event in sent if "[DONE]" not in event]
    random_ = random.Random(f"{wire} {streamed} {said == 'more'}")
    outcomes = {"refused": 0, "answer": 0}
    for _ in range(300):
        changed = _mutated(whole, random_)
        body = _events(*changed) if streamed else json.dumps(changed).encode()
        try:
            response = await _ask(wire, body, streamed=streamed)
        except ProviderError:
            outcomes["refused"] += 1
            continue
        outcomes["answer"] += 1
        value = text_free_reasoning(response).to_json()
        canonical(clean(value))
        kept = Response.from_json(json.loads(json.dumps(value)))
        screened = {at: screen_input(call.input)[0] for at, call in enumerate(kept.tool_calls)}
        turn = assistant_message_of(kept, replaced_inputs=screened)
        try:
            offline(wire).render(Request(messages=(Message.user("x"), turn, Message.user("y"))))
        except GuardError as error:  # names the place, whatever it is
            assert error.path.startswith("messages[1]")
    assert all(outcomes.values()), outcomes
