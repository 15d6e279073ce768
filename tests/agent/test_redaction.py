"""Taking out of readable reasoning what nobody is to keep or read."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fumehood.agent import ContentStore, EventLog, RedactionPolicy, read_reasoning, unwrap_tainted
from fumehood.agent._audit import read_reasoning_bounded
from fumehood.agent._effect import EffectContext, create_llm_effect
from fumehood.agent._parts import Capabilities, Message, Request
from fumehood.agent._reasoning import ReasoningOptions, carry_reasoning
from fumehood.agent._resolve import ResolveContext
from fumehood.agent._response import Response, assistant_message_of
from fumehood.agent.providers import Chunk, ScriptedProvider
from fumehood.policies.errors import ConfigError
from tests.agent.samples import parts_of, request, user

pytestmark = pytest.mark.anyio
SECRET = "the key is sk-12345, I think"
POLICY = RedactionPolicy([r"sk-\d+"])


async def _captured(
    store: ContentStore, log: EventLog, policy: RedactionPolicy | None, *words: str
) -> list[Any]:
    async def emit(kind: str, data: Mapping[str, Any]) -> str:
        return await log.record(kind, data, execution_id="e1")

    provider = ScriptedProvider([{"reasoning": word, "text": "hi"} for word in words], name="anthropic")
    options = ReasoningOptions(store=store, redact=policy)
    effect = create_llm_effect(provider, reasoning=options)
    return [
        await effect(request(user("x")), EffectContext("e1", f"s{at}", emit=emit)) for at in range(len(words))
    ]


@pytest.mark.requirement("R298")
@pytest.mark.requirement("R486")
@pytest.mark.promise("agent:redacted-reasoning-is-never-at-rest")
@pytest.mark.parametrize("policy", [None, POLICY])
async def test_a_pattern_is_taken_out_before_anything_is_stored_and_an_audit_sees_what_is_left(
    policy: RedactionPolicy | None, tmp_path: Path, store: ContentStore
) -> None:
    with EventLog(tmp_path / "log.sqlite3") as log:
        secret, plain = await _captured(store, log, policy, SECRET, "nothing to hide")
        found = read_reasoning(log, store, execution_id="e1").parts
        told = [event.data for event in log.events()]
    at_rest = b"".join(store.get(item.address) for item in store.ls())
    # The control: without a policy the words are there, and everybody sees them by default.
    assert (b"sk-12345" in at_rest) == (policy is None)
    shown = [unwrap_tainted(part.text) for part in found]
    left = SECRET if policy is None else "the key is [redacted], I think"
    assert shown == [left, "nothing to hide"]
    assert [(part.status, part.scrubbed) for part in found] == [("ok", 0 if policy is None else 1), ("ok", 0)]
    assert "sk-12345" not in json.dumps([secret, plain, told])
    assert secret["reasoning"][0].get("omitted") == (None if policy is None else True)
    assert "omitted" not in plain["reasoning"][0]


@pytest.mark.requirement("R379")
async def test_a_scrubbed_part_is_dropped_with_all_after_it_and_a_whole_one_goes_back(
    tmp_path: Path, store: ContentStore
) -> None:
    with EventLog(tmp_path / "log.sqlite3") as log:
        values = await _captured(store, log, POLICY, "first", SECRET, "third")
    turns = [assistant_message_of(Response.from_json(value)) for value in values]
    asked = Request(messages=tuple(m for turn in turns for m in (Message.user("x"), turn)))
    resolver = ReasoningOptions(store=store).resolver()
    carried = await carry_reasoning(asked, "anthropic", resolver, ResolveContext("e1"))
    kept = [
        part.text
        for message in carried.messages
        for part in parts_of(message)
        if not isinstance(part, str) and part.type == "reasoning"
    ]
    assert kept == ["first"]


async def test_what_was_stored_before_the_policy_is_scrubbed_when_it_is_read(
    tmp_path: Path, store: ContentStore
) -> None:
    with EventLog(tmp_path / "log.sqlite3") as log:
        await _captured(store, log, None, SECRET)
        for found in (
            read_reasoning(log, store, execution_id="e1", redact=POLICY),
            read_reasoning_bounded(log, store, execution_id="e1", redact=POLICY),
        ):
            (part,) = found.parts
            assert part.text == {
                "__tainted__": {"origin": "llm-reasoning:s0", "value": "the key is [redacted], I think"}
            }
            assert part.scrubbed == 1


async def test_live_deltas_are_shown_scrubbed_even_when_the_match_is_cut() -> None:
    class Cut:
        name, model, capabilities = "anthropic", "m", Capabilities(reasoning=True)

        async def complete(self, asked: Request) -> Response:
            raise AssertionError("streamed")

        async def stream(self, asked: Request) -> AsyncIterator[Chunk]:
            for piece in ("the key is sk-1", "2345", ", I think"):
                yield Chunk(reasoning_delta=piece)
            yield Chunk(text_delta="hi")
            yield Chunk(reasoning_delta="again sk-9")
            yield Chunk(response=Response("hi"))

    for policy, wanted in (
        (POLICY, ["the key is [redacted], I think", "again [redacted]"]),
        (None, ["the key is sk-1", "2345", ", I think", "again sk-9"]),
    ):
        seen: list[Any] = []
        options = ReasoningOptions(live=True, redact=policy)
        effect = create_llm_effect(Cut(), reasoning=options, stream=True)
        await effect(request(user("x")), EffectContext("e", "s", on_reasoning_delta=seen.append))
        assert [unwrap_tainted(entry["reasoning"]) for entry in seen] == wanted


@pytest.mark.parametrize(
    ("pattern", "why"), [("(", "not a regular expression"), ("a*", "matches the empty text")]
)
def test_a_pattern_that_cannot_be_meant_is_a_configuration_error(pattern: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        RedactionPolicy([pattern])
    assert RedactionPolicy(["a"], replacement=r"\1").scrub("banana") == (r"b\1n\1n\1", 3)
