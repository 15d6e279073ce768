"""What is kept of a transcript, who put it there, what may be cleared, what a fold leaves exempt."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fumehood.agent._effect import EffectContext, create_llm_effect
from fumehood.agent._guard import guard_request
from fumehood.agent._history import (
    SUMMARY_PREFIX,
    exempt_forms,
    injected_records,
    notice_message,
    persistent_messages,
    plain_history,
    prune_results,
    results_as_parts,
)
from fumehood.agent._parts import Message, Request
from fumehood.agent._response import (
    Reasoning,
    ToolCall,
    Usage,
    assistant_message_of,
    response_of,
    text_free_reasoning,
)
from fumehood.agent._taint import tainted
from fumehood.agent.messages import ToolUsePart
from fumehood.agent.providers import ScriptedProvider
from tests.agent.samples import assistant, bad, call, image, parts_of, request, result, text, user

pytestmark = pytest.mark.anyio
DOCS = Path(__file__).parents[2] / "docs"


def read(*messages: Any) -> list[Message]:
    return [Message.model_validate(message) for message in messages]


@pytest.mark.requirement("R247")
@pytest.mark.requirement("R248")
@pytest.mark.requirement("R249")
@pytest.mark.requirement("R250")
@pytest.mark.requirement("R251")
@pytest.mark.requirement("R252")
@pytest.mark.requirement("R488")
async def test_an_ephemeral_message_is_sent_and_journalled_and_not_kept() -> None:
    retry = {**user("your answer was not valid JSON"), "ephemeral": True}
    provider = ScriptedProvider([{"text": "ok"}])
    journalled = request(user("q"), retry)
    await create_llm_effect(provider)(journalled, EffectContext("e", "s"))
    assert provider.requests[0].to_json() == request(user("q"), user("your answer was not valid JSON"))
    assert "not valid JSON" in json.dumps(journalled)
    assert [message.to_json() for message in persistent_messages(read(user("q"), retry, assistant("a")))] == [
        user("q"),
        assistant("a"),
    ]


@pytest.mark.requirement("R272")
@pytest.mark.requirement("R273")
def test_injections_are_told_by_their_field_one_record_each() -> None:
    by = {"injection_id": "i", "flavor": "memory", "iteration": 2}
    messages = read(
        {"role": "system", "content": "x"},
        {**user("x"), "injected_by": by},
        user("x"),
        {**assistant("x"), "injected_by": by},
    )
    assert [(record.index, record.by.injection_id) for record in injected_records(messages)] == [
        (1, "i"),
        (3, "i"),
    ]


@pytest.mark.requirement("R277")
@pytest.mark.requirement("R278")
@pytest.mark.requirement("R279")
@pytest.mark.requirement("R280")
@pytest.mark.requirement("R281")
@pytest.mark.requirement("R282")
@pytest.mark.requirement("R283")
def test_a_fold_exempts_what_the_folded_messages_said_and_nothing_that_a_summary_invented() -> None:
    def forms(words: str) -> list[str]:
        return re.findall(r"[A-Z]+-\d+", words)

    earlier = {**user(f"{SUMMARY_PREFIX} INVENTED-1"), "folded_exempt": ["OLD-1"]}
    bare_summary = user(f"{SUMMARY_PREFIX} INVENTED-2")
    messages = read(
        {"role": "system", "content": "APP-1"},
        user("ORDER-7 and ORDER-7"),
        assistant("MODEL-1"),
        user([result("c", "TOOL-1"), text(bad("WEB-1")), text("ORDER-8")]),
        {**user("INJECTED-1"), "injected_by": {"injection_id": "i", "flavor": "f", "iteration": 1}},
        earlier,
        bare_summary,
    )
    assert exempt_forms(messages, forms) == ("APP-1", "ORDER-7", "ORDER-8", "OLD-1")
    assert exempt_forms(read(assistant("MODEL-1"), bare_summary), forms) is None


@pytest.mark.requirement("R242")
@pytest.mark.requirement("R243")
@pytest.mark.requirement("R244")
@pytest.mark.requirement("R245")
@pytest.mark.requirement("R487")
def test_pruning_clears_untagged_results_first_then_requery_and_never_durable() -> None:
    big = "x" * 1000
    messages = read(
        assistant([call("a"), call("b"), call("c"), call("d")]),
        user(
            [
                result("a", big, name="read", retention="requery"),
                result("b", big, name="keep", retention="durable"),
                result("c", big, name="old", is_error=True),
                result("d", big, name="shot", retention="none"),
            ]
        ),
        user([result("e", big, name="newest")]),
    )

    def left(limit: int) -> list[str]:
        parts = [
            part for message in prune_results(messages, max_bytes=limit)[1:] for part in parts_of(message)
        ]
        return [part.name for part in parts if part.content == big]

    assert left(10_000) == ["read", "keep", "old", "shot", "newest"]
    assert left(4_200) == ["read", "keep", "shot", "newest"]
    assert left(3_300) == ["read", "keep", "newest"]
    assert left(2_300) == ["keep", "newest"]
    assert left(0) == ["keep", "newest"]
    pruned = prune_results(messages, max_bytes=0)
    cleared = parts_of(pruned[1])[2]
    assert cleared.to_json() == result(
        "c", "[the result of old (call c) was cleared]", name="old", is_error=True
    )
    assert prune_results(pruned, max_bytes=0) == pruned
    guard_request(Request(messages=(*pruned[:2],)))


@pytest.mark.requirement("R063")
def test_results_that_become_text_keep_their_own_marks_in_parts_of_their_own() -> None:
    message = read(
        user(
            [
                result("a", bad("web words"), name="fetch"),
                result("b", "plain", name="calc", is_error=True),
                result("c", [text("cap"), image()], name="shot"),
            ]
        )
    )[0]
    parts = [part.to_json() for part in results_as_parts(message)]
    assert parts == [
        text("[result of fetch]"),
        text(bad("web words")),
        text("[result of calc, which failed]"),
        text("plain"),
        text("[result of shot]"),
        text("cap"),
        image(),
    ]


@pytest.mark.requirement("R287")
@pytest.mark.requirement("R288")
def test_a_cancelled_turn_is_answered_by_a_notice_and_takes_a_new_prompt() -> None:
    # A15: cancel while the first tool still runs; save; load; go on.
    asked = ToolUsePart(id="c1", name="slow", input={})
    notice = notice_message(asked, "The person stopped this call.", origin="input-cancelled")
    saved = json.dumps([message.to_json() for message in (Message.of("assistant", [asked]), notice)])
    loaded = read(*json.loads(saved), user("what now?"))
    assert loaded[1].tool_result_origin == "input-cancelled"
    assert guard_request(Request(messages=tuple(loaded)))
    assert notice_message(asked, "No such tool.", origin="not-entered").tool_result_origin == "not-entered"


@pytest.mark.requirement("R376")
def test_a_history_of_plain_text_never_carries_reasoning_across_a_turn() -> None:
    response = response_of(
        [Reasoning("text", "anthropic", "secret", "S"), "answer", ToolCall("c", "t", {})], "tool_use", Usage()
    )
    history = plain_history([Message.user("q"), assistant_message_of(response), Message.of("user", [])])
    assert [message.to_json() for message in history] == [user("q"), assistant("answer")]


@pytest.mark.requirement("R350")
@pytest.mark.requirement("R351")
def test_a_path_without_a_sidecar_records_no_text_and_keeps_the_calls_signature() -> None:
    response = response_of(
        [Reasoning("text", "gemini", "secret", "S"), ToolCall("c", "t", {}, signature="CALL")],
        "tool_use",
        Usage(),
    )
    value = json.dumps(text_free_reasoning(response).to_json())
    assert "secret" not in value and '"signature": "CALL"' in value
    # R340, the new attempt of a rerun, is held by the capture test in test_reasoning.py.


@pytest.mark.requirement("R037")
@pytest.mark.requirement("R040")
@pytest.mark.requirement("R114")
@pytest.mark.requirement("R345")
@pytest.mark.requirement("R349")
@pytest.mark.requirement("R403")
@pytest.mark.requirement("R342")
@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("taint-and-guard.md", "The fence is a label; the refusal is what protects"),
        ("taint-and-guard.md", "What the taint rules do not cover"),
        ("media.md", "return a reference"),
        ("providers.md", "two executions that capture the same text store two blobs"),
        ("providers.md", "at least as sensitive as the request"),
        ("providers.md", "no delta guard, validator or token budget sees them"),
        ("providers.md", "goes through the log like every other event"),
    ],
)
def test_the_documentation_says_what_the_requirements_ask_it_to_say(file: str, sentence: str) -> None:
    document = re.sub(r"\s+", " ", (DOCS / file).read_text(encoding="utf-8"))
    assert sentence in document


def test_a_mark_that_a_label_would_swallow_stays() -> None:
    parts = results_as_parts(read(user([result("a", tainted({"x": 1}, "o"))]))[0])
    assert parts[1].to_json() == text(tainted("{'x': 1}", "o"))
