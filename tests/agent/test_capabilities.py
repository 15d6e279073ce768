"""Which models take which media, and what happens to a request for more."""

from __future__ import annotations

from typing import Any

import pytest

from fumehood.agent._capabilities import ANTHROPIC, GEMINI, OPENAI, assert_request_supported, capabilities_of
from fumehood.agent._effect import EffectContext, create_llm_effect, warn_unkept_reasoning
from fumehood.agent._errors import UnsupportedModalityError
from fumehood.agent._parts import Capabilities, Request
from fumehood.agent._reasoning import ReasoningOptions
from fumehood.agent.providers import ScriptedProvider
from tests.agent.samples import assistant, audio, call, file, image, ref, request, result, text, user
from tests.agent.wires import offline, render

pytestmark = pytest.mark.anyio


def takes(wire: str, model: str, **options: Any) -> str:
    """The modalities a model declares, as letters."""
    found = offline(wire, model, **options).capabilities
    return "".join(
        letter for letter, types in zip("iaf", (found.image, found.audio, found.file), strict=True) if types
    )


@pytest.mark.requirement("R152")
@pytest.mark.requirement("R153")
@pytest.mark.requirement("R154")
@pytest.mark.requirement("R155")
@pytest.mark.requirement("R156")
@pytest.mark.requirement("R157")
@pytest.mark.requirement("R158")
@pytest.mark.requirement("R159")
@pytest.mark.parametrize(
    ("wire", "model", "expected"),
    [
        ("openai-chat", "gpt-4o", "if"),
        ("openai-chat", "gpt-4o-2024-08-06", "if"),
        ("openai-chat", "gpt-4o-mini", "if"),
        ("openai-chat", "gpt-4.1-nano", "if"),
        ("openai-chat", "gpt-5", "if"),
        ("openai-chat", "gpt-5-mini", "if"),
        ("openai-chat", "o1", "if"),
        ("openai-chat", "o1-2024-12-17", "if"),
        ("openai-chat", "o3", "if"),
        ("openai-chat", "o1-mini", ""),
        ("openai-chat", "o1-preview", ""),
        ("openai-chat", "o3-mini", ""),
        ("openai-chat", "o3-mini-2025-01-31", ""),
        ("openai-chat", "o4-mini", "if"),
        ("openai-chat", "gpt-4-turbo-2024-04-09", "if"),
        ("openai-chat", "gpt-4-turbo", ""),
        ("openai-chat", "gpt-4-turbo-preview", ""),
        ("openai-chat", "gpt-4o-audio-preview", "a"),
        ("openai-chat", "gpt-audio", "a"),
        ("openai-chat", "gpt-4", ""),
        ("openai-chat", "gpt-4-0613", ""),
        ("openai-chat", "gpt-3.5-turbo", ""),
        ("openai-chat", "llama-3", ""),
        ("openai-chat", "gpt-6", ""),
        ("openai-responses", "gpt-5", "if"),
        ("anthropic", "claude-3-opus-20240229", "if"),
        ("anthropic", "claude-3-5-sonnet-latest", "if"),
        ("anthropic", "claude-3-7-sonnet-20250219", "if"),
        ("anthropic", "claude-sonnet-4-20250514", "if"),
        ("anthropic", "claude-opus-4-5", "if"),
        ("anthropic", "claude-2.1", ""),
        ("anthropic", "claude-instant-1.2", ""),
        ("anthropic", "claude", ""),
        ("anthropic", "my-claude-3", ""),
        ("gemini", "gemini-1.5-pro", "iaf"),
        ("gemini", "gemini-2.0-flash-001", "iaf"),
        ("gemini", "gemini-2.5-pro", "iaf"),
        ("gemini", "gemini-3-flash-preview", "iaf"),
        ("gemini", "gemini-flash-latest", "iaf"),
        ("gemini", "gemini-pro-latest", "iaf"),
        ("gemini", "gemini-1.0-pro-latest", ""),
        ("gemini", "gemini-pro", ""),
        ("gemini", "gemma-3", ""),
    ],
)
def test_media_are_declared_for_known_families_only(wire: str, model: str, expected: str) -> None:
    assert takes(wire, model) == expected


@pytest.mark.requirement("R160")
@pytest.mark.requirement("R161")
def test_another_base_url_declares_nothing_and_the_operators_word_wins() -> None:
    assert takes("openai-chat", "gpt-4o", base_url="http://localhost:8000/v1") == ""
    assert takes("openai-chat", "gpt-4o", base_url="https://api.openai.com/v1/") == "if"
    assert takes("anthropic", "claude-opus-4-5", base_url="https://proxy.corp") == ""
    assert takes("openai-chat", "gpt-4o", capabilities={}) == ""
    assert (
        takes(
            "openai-chat", "llama-3", base_url="http://localhost:8000/v1", capabilities={"image": ["image/*"]}
        )
        == "i"
    )


@pytest.mark.requirement("R147")
@pytest.mark.requirement("R148")
@pytest.mark.parametrize(
    ("declared", "part", "passes"),
    [
        ({"image": ["image/png"]}, image(), True),
        ({"image": ["image/*"]}, image(), True),
        ({"image": ["*"]}, image(), True),
        ({"image": ["image/jpeg"]}, image(), False),
        ({"image": []}, image(), False),
        ({"audio": ["*"]}, image(), False),
        ({}, image(), False),
        (None, image(), False),
        ({"file": ["application/pdf"]}, file(), True),
        ({"file": ["text/*"]}, file(), False),
        ({"audio": ["audio/wav"]}, audio(), True),
        ({}, text("x"), True),
    ],
)
def test_a_declaration_is_a_list_of_media_types(declared: Any, part: Any, passes: bool) -> None:
    for body in (request(user([part])), request(assistant([call()]), user([result(content=[part])]))):
        if passes:
            assert_request_supported(body, declared)
            continue
        with pytest.raises(UnsupportedModalityError) as caught:
            assert_request_supported(Request.model_validate(body), declared)
        assert caught.value.path.startswith("messages[") and "was not declared by this provider" in str(
            caught.value
        )


def test_calls_and_results_need_no_declaration() -> None:
    assert_request_supported(request(user("x"), assistant([call()]), user([result()])), None)


@pytest.mark.requirement("R117")
def test_a_reference_counts_as_unsupported_when_nothing_can_read_it() -> None:
    body = request(user([ref()]))
    assert_request_supported(body, {"image": ["*"]})
    with pytest.raises(UnsupportedModalityError, match="no resolver"):
        assert_request_supported(body, {"image": ["*"]}, can_resolve=False)


@pytest.mark.requirement("R150")
@pytest.mark.requirement("R426")
async def test_the_effect_refuses_before_the_provider_is_asked_and_can_be_told_more() -> None:
    provider = ScriptedProvider([{"text": "x"}] * 2, capabilities=Capabilities())
    for stream in (False, True):
        with pytest.raises(UnsupportedModalityError):
            await create_llm_effect(provider, stream=stream)(
                request(user([image()])), EffectContext("e", "s")
            )
    assert provider.requests == []


@pytest.mark.requirement("R163")
def test_reasoning_is_declared_and_drives_the_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert offline("anthropic").capabilities.reasoning and offline("openai-responses").capabilities.reasoning
    assert capabilities_of(OPENAI, "gpt-4o", own_url=True).reasoning is None
    assert capabilities_of(GEMINI, "gemini-2.0-flash", own_url=True).reasoning is None
    assert capabilities_of(ANTHROPIC, "claude-3-opus-20240229", own_url=True).reasoning is None
    provider = ScriptedProvider([])
    assert warn_unkept_reasoning("fx", provider, None)
    assert (
        "reasoning of fx is not kept for audit" in caplog.text
        and "observability.reasoning.store" in caplog.text
    )
    assert not warn_unkept_reasoning("fx", provider, ReasoningOptions(capture=False))
    assert not warn_unkept_reasoning("fx", ScriptedProvider([], capabilities=Capabilities()), None)


@pytest.mark.requirement("R164")
def test_the_checklist_for_authors_of_providers_is_in_the_documentation() -> None:
    from pathlib import Path

    document = (Path(__file__).parents[2] / "docs" / "providers.md").read_text(encoding="utf-8")
    for line in ("text_of", "assert_request_supported", "check_provider"):
        assert line in document


def test_the_limit_goes_by_the_name_that_the_server_knows() -> None:
    body = request(user("x"))
    ours, theirs = (
        render("openai-chat", body),
        render("openai-chat", body, base_url="http://localhost:8000/v1"),
    )
    assert ours.keys() - theirs.keys() == {"max_completion_tokens"} and theirs.keys() - ours.keys() == {
        "max_tokens"
    }
