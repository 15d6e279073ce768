"""A script's ending is told in a script's words, whichever code it has."""

from __future__ import annotations

import pytest

from fumehood.policies.reasons import REASONS
from fumehood.policies.script_reasons import SCRIPT_REASONS, script_reason

OF_TOOLS = {"processes", "tmp", "events", "approval-declined", "unknown-tool", "busy"}
"""Endings no script has: what it calls may have them."""
OF_SCRIPTS = sorted(
    code
    for code, reason in REASONS.items()
    if reason.family in ("limit", "denied", "sandbox_error") and code not in OF_TOOLS
)


@pytest.mark.parametrize("code", OF_SCRIPTS)
def test_every_ending_of_a_script_speaks_of_the_script(code: str) -> None:
    reason = script_reason(code)
    assert reason is not None and reason.code == code and reason.family == REASONS[code].family
    for sentence in (reason.operator, reason.model):
        assert "script" in sentence.lower(), sentence
        assert not sentence.startswith(("The tool ", "The call ", "The child ")), sentence
        assert "timeout_s" not in sentence and "cpu_s" not in sentence, sentence


def test_only_codes_that_exist_have_other_words_and_an_unknown_one_has_none() -> None:
    assert set(SCRIPT_REASONS) <= set(REASONS)
    assert script_reason("none") is None and script_reason(None) is None
    assert script_reason("not-listed") is REASONS["not-listed"]
