"""Reading captured reasoning back, and providers by name."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from fumehood.agent import ContentStore, EffectContext, EventLog, UntrustedContentError, guard_request
from fumehood.agent._audit import (
    REASONING_RESPONSE_MAX_BYTES,
    REASONING_RESPONSE_MAX_PARTS,
    ReadPart,
    read_reasoning,
    read_reasoning_bounded,
)
from fumehood.agent._blobs import blob_path
from fumehood.agent._reasoning import ReasoningOptions, capture_reasoning, captured_event
from fumehood.agent._response import Reasoning, Usage, response_of
from fumehood.agent._seal import seal, text_digest
from fumehood.agent.providers import (
    API_KEYS,
    AnthropicProvider,
    GeminiProvider,
    OpenAIChatProvider,
    OpenAIResponsesProvider,
    ScriptedProvider,
    provider_for,
)
from fumehood.policies.errors import ConfigError
from fumehood.policies.rules import parse_rule

pytestmark = pytest.mark.anyio


@pytest.fixture
def log(tmp_path: Path) -> Any:
    with EventLog(tmp_path / "events.sqlite3") as opened:
        yield opened


async def capture(
    log: EventLog,
    store: ContentStore,
    *texts: str | None,
    step: str = "s1",
    attempt: int = 1,
    execution: str = "e1",
) -> None:
    blocks = [Reasoning("redacted" if words is None else "text", "anthropic", words, "S") for words in texts]
    options = ReasoningOptions(store=store)
    _, parts = await capture_reasoning(
        response_of(blocks, "end_turn", Usage()), options, execution_id=execution
    )
    event = captured_event(parts, step_id=step, attempt=attempt, provider="anthropic", model="m")
    await log.record("LLM_REASONING_CAPTURED", event, execution_id=execution, step_id=step)


@pytest.mark.requirement("R352")
@pytest.mark.requirement("R353")
@pytest.mark.requirement("R354")
@pytest.mark.requirement("R355")
async def test_text_comes_back_checked_and_marked_and_withheld_blocks_as_withheld(
    log: EventLog, store: ContentStore
) -> None:
    await capture(log, store, "words é", None)
    await capture(log, store, "other step", step="s2")
    found = read_reasoning(log, store, execution_id="e1", step_id="s1")
    address = found.parts[0].ref
    text = {"__tainted__": {"origin": "llm-reasoning:s1", "value": "words é"}}
    assert found.parts == (
        ReadPart("s1", 1, "text", "ok", text, address, text_digest("words é"), 8, "anthropic", "m", True),
        ReadPart("s1", 1, "redacted", "redacted", None, None, None, None, "anthropic", "m", True),
    )
    with pytest.raises(UntrustedContentError):
        guard_request({"system": found.parts[0].text, "messages": []})
    assert [part.step_id for part in read_reasoning(log, store, execution_id="e1").parts] == [
        "s1",
        "s1",
        "s2",
    ]


@pytest.mark.requirement("R353")
@pytest.mark.requirement("R358")
async def test_what_became_of_a_blob_is_said(log: EventLog, store: ContentStore) -> None:
    await capture(log, store, "erased", "altered", "foreign")
    erased, altered, foreign = read_reasoning(log, store, execution_id="e1").parts
    assert erased.ref and altered.ref and foreign.ref
    store.erase(erased.ref)
    blob_path(store.path, altered.ref).write_bytes(seal("forged", "e1"))
    database = sqlite3.connect(log.path)
    database.execute(
        "UPDATE events SET execution_id = 'e2'"
    )  # someone points another execution at these blobs
    database.commit()
    database.close()
    statuses = [part.status for part in read_reasoning(log, store, execution_id="e2").parts]
    assert statuses == ["erased", "digest-mismatch", "digest-mismatch"]


@pytest.mark.requirement("R340")
@pytest.mark.requirement("R359")
async def test_superseded_attempts_stay_and_are_told_apart(log: EventLog, store: ContentStore) -> None:
    await capture(log, store, "first try")
    await capture(log, store, "second try", attempt=2)
    assert [
        (part.attempt, part.recorded) for part in read_reasoning(log, store, execution_id="e1").parts
    ] == [(1, False), (2, True)]


@pytest.mark.requirement("R360")
@pytest.mark.requirement("R361")
@pytest.mark.requirement("R362")
async def test_a_bounded_read_selects_first_and_reads_nothing_past_its_caps(
    log: EventLog, store: ContentStore
) -> None:
    assert (REASONING_RESPONSE_MAX_PARTS, REASONING_RESPONSE_MAX_BYTES) == (256, 1_048_576)
    await capture(log, store, "aaaa", "bbbb", step="turn:1:x")
    await capture(log, store, "cccc", "dddd", step="turn:2:x")
    asked: list[str] = []

    class Counting:
        def put(self, data: bytes, media_type: str, *, owner: str) -> Any:
            raise AssertionError

        def get(self, address: str) -> bytes:
            asked.append(address)
            return store.get(address)

    def read(**limits: Any) -> tuple[list[str], bool, int]:
        asked.clear()
        found = read_reasoning_bounded(log, Counting(), execution_id="e1", **limits)
        return (
            [part.text["__tainted__"]["value"] for part in found.parts if part.text],
            found.truncated,
            len(asked),
        )

    assert read() == (["aaaa", "bbbb", "cccc", "dddd"], False, 4)
    assert read(step_prefix="turn:2:") == (["cccc", "dddd"], False, 2)
    assert read(step_id="turn:1:x") == (["aaaa", "bbbb"], False, 2)
    assert read(max_parts=3) == (["aaaa", "bbbb", "cccc"], True, 3)
    assert read(max_bytes=9) == (["aaaa", "bbbb"], True, 2)
    assert read(max_bytes=0) == ([], True, 0)


@pytest.mark.requirement("R356")
@pytest.mark.requirement("R357")
async def test_flows_get_no_accessor_and_a_step_that_reads_records_marked_text(
    log: EventLog, store: ContentStore
) -> None:
    assert not [name for name in EffectContext.__dataclass_fields__ if "read" in name or name == "reasoning"]
    await capture(log, store, "words")
    (part,) = read_reasoning(log, store, execution_id="e1").parts
    await log.record("STEP_COMPLETED", {"value": part.text}, execution_id="e1", step_id="audit")
    value = log.fold("e1").steps["audit"].value
    assert value == {"value": {"__tainted__": {"origin": "llm-reasoning:s1", "value": "words"}}}


# -- providers by name ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("anthropic:claude-opus-4-5", AnthropicProvider),
        ("openai:gpt-4o", OpenAIChatProvider),
        ("openai:gpt-5", OpenAIResponsesProvider),
        ("openai:o3", OpenAIResponsesProvider),
        ("openai-responses:gpt-4o", OpenAIResponsesProvider),
        ("gemini:gemini-2.5-pro", GeminiProvider),
    ],
)
def test_a_name_means_one_provider_and_one_egress_rule(name: str, kind: type) -> None:
    made = provider_for(name, None)
    assert type(made) is kind and made.model == name.partition(":")[2] and name.partition(":")[0] in API_KEYS
    rule = parse_rule(made.egress)  # type: ignore[attr-defined]
    assert (rule.scheme, rule.methods, rule.port) == ("https", frozenset({"POST"}), 443)


def test_a_script_is_a_provider_too(tmp_path: Path) -> None:
    file = tmp_path / "script.json"
    file.write_text('[{"text": "hi"}]', encoding="utf-8")
    assert isinstance(provider_for(f"scripted:{file}", None), ScriptedProvider)
    for text, said in (
        ("{", "not JSON"),
        ('{"a": 1}', "a script is a list of objects"),
        ("[1]", "a script is a list of objects"),
    ):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(ConfigError, match=said):
            provider_for(f"scripted:{file}", None)
    with pytest.raises(ConfigError, match="No such file"):
        provider_for("scripted:/nowhere.json", None)


@pytest.mark.parametrize("name", ["", "gpt-4o", "openai:", "mistral:x", ":x", "scripted:"])
def test_a_name_that_is_none_is_refused_with_the_forms(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        provider_for(name, None)
    assert "anthropic:ID" in str(caught.value) and "scripted:FILE" in str(caught.value)
