"""Every reason that the code gives is told at length, and nothing is told that no code gives."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from fumehood._cli import _advice
from fumehood.policies.reasons import REASONS
from fumehood.policies.script_reasons import SCRIPT_REASONS
from tests.tree import ROOT

TEXTS = {"reasons.py", "script_reasons.py", "_advice.py"}
GIVERS = ("agent", "broker", "isolate", "sandbox", "src/fumehood/_cli", "src/fumehood")
NOT_GIVEN_YET = {
    "approval-declined"
}  # approval is not supported yet, and a file that asks for it does not load


def _literals() -> set[str]:
    """Every text that stands in the code as it is."""
    files: list[Path] = [
        path
        for folder in GIVERS
        for path in (
            (ROOT / folder).glob("*.py") if folder.startswith("src") else (ROOT / folder).rglob("*.py")
        )
        if path.name not in TEXTS
    ]
    return {
        node.value
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_every_reason_has_a_next_step_and_every_next_step_a_reason() -> None:
    of_outcomes = {code for code, known in REASONS.items() if known.family != "egress"}
    assert set(_advice._STEPS) == of_outcomes
    assert set(_advice._EGRESS_STEPS) == set(REASONS) - of_outcomes
    for others in (_advice._RUN_STEPS, _advice._SCRIPT_STEPS, _advice._EVAL_STEPS):
        assert set(others) <= set(REASONS)


def test_every_reason_is_given_somewhere() -> None:
    assert set(REASONS) - _literals() == NOT_GIVEN_YET


@pytest.mark.parametrize("code", REASONS)
@pytest.mark.parametrize("tool", ["t", "run", "script"])
@pytest.mark.parametrize("script", [False, True], ids=["tool", "script"])
def test_every_reason_is_told_in_whole_sentences(code: str, tool: str, script: bool) -> None:
    request = {"outcome": "deny", "reason": code, "host": "a.example", "port": 443}
    request |= {"rule": "a.example", "where": "fumehood.toml: host.deny[0]"}
    end = {"outcome": REASONS[code].family, "reason": code, "error": {"of": "script"} if script else {}}
    if REASONS[code].family == "egress":
        told = [*_advice.about_decision(request)[:1], *_advice.steps(tool, {}, [request])]
    else:
        told = [_advice.sentence(end), *_advice.steps(tool, end, [], {"timeout_s": 5.0, "memory": 1 << 20})]
        assert bool(_advice.background(end)) is not (script and code in SCRIPT_REASONS)
    assert len(told) == 2
    for text in told:
        assert text.endswith(".") and text[0] in "`N" or text[0].isupper(), text
        assert "{" not in text and "None" not in text


def test_a_limit_is_told_with_what_was_in_force() -> None:
    end = {"outcome": "limit", "reason": "memory"}
    assert _advice.steps("t", end, [], {"memory": 64 << 20}) == [
        "Raise memory in [tools.t], or let the tool work on smaller pieces. It was memory 64 MiB."
    ]
    assert _advice.steps("t", end, []) == [
        "Raise memory in [tools.t], or let the tool work on smaller pieces."
    ]
