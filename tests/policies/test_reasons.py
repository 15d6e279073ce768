"""The vocabulary of reasons is complete, unique, and written for each of its readers."""

from __future__ import annotations

import pytest

from fumehood.policies import REASONS, reason

CONTRACT = {
    "limit": "timeout cpu memory processes output tmp events stack tool-calls bridge-bytes pending cancelled",
    "denied": "input-schema approval-declined oversized-input unknown-tool busy",
    "sandbox_error": "tier protocol crashed start",
    "egress": (
        "not-listed denied-by-rule not-public metadata mixed-answers no-answer malformed ambiguous-url "
        "method path port scheme server-name redirect too-many-redirects budget-bytes budget-rate "
        "budget-time upstream policy-changed no-call"
    ),
}


def test_the_codes_are_those_of_the_public_surface() -> None:
    by_family = {family: " ".join(c for c, r in REASONS.items() if r.family == family) for family in CONTRACT}
    assert by_family == CONTRACT


@pytest.mark.promise("policies:denial-has-reasons")
@pytest.mark.parametrize("code", REASONS)
def test_a_reason_has_whole_sentences_for_its_three_readers(code: str) -> None:
    entry = reason(code)
    sentences = (entry.operator, entry.model, entry.doc)
    assert len(set(sentences)) == 3
    for text in sentences:
        assert text.endswith(".") and len(text) < 200 and "  " not in text
        assert text[0].isupper() or text[0] == "`"


def test_an_operator_is_told_which_kind_of_no_it_is() -> None:
    assert reason("not-listed").operator == (
        "No egress entry of the tool names this host; this is not a deny entry. "
        "Add the host to `egress` to allow it."
    )
    for code in ("method", "path", "port", "scheme"):
        assert reason(code).operator.endswith("; this is not a deny entry.")
    assert "Deny wins" in reason("denied-by-rule").operator


def test_a_model_is_never_shown_a_key_of_the_configuration() -> None:
    for entry in REASONS.values():
        assert "`" not in entry.model and "_" not in entry.model


def test_an_unknown_code_is_a_bug_and_not_a_default() -> None:
    with pytest.raises(KeyError):
        reason("because")
