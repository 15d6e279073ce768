"""The manifest of promises and the tests agree, in both directions; the machine is as strong as the tests
believe.
"""

from __future__ import annotations

import ast
import dataclasses

import pytest

from fumehood.isolate.doctor import Examination, LayerReport, examine
from fumehood.isolate.tiers import LAYERS
from tests import promises, tier
from tests.marks import KINDS, marks
from tests.tree import python_files, syntax

pytestmark = pytest.mark.anyio


def test_every_promise_without_a_gap_is_named_by_a_test() -> None:
    named = {mark.value for mark in marks("promise")}
    assert [id_ for id_, promise in promises.load().items() if promise.gap is None and id_ not in named] == []


def test_every_promise_that_a_test_names_is_in_the_manifest() -> None:
    known = promises.load()
    assert [str(mark) for mark in marks("promise") if mark.value not in known] == []


def test_a_promise_with_a_gap_is_named_by_no_test() -> None:
    """Once a test holds it, the gap's reason has to go from the table."""
    gaps = {id_ for id_, promise in promises.load().items() if promise.gap is not None}
    assert [str(mark) for mark in marks("promise") if mark.value in gaps] == []


def test_no_test_is_left_out_but_for_what_only_root_can_do() -> None:
    left_out = {"skip", "skipif", "importorskip", "xfail", "skipTest"}
    found = [
        f"{path}:{node.lineno}"
        for path in python_files("tests")
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.Attribute) and node.attr in left_out and path.name != "marks.py"
    ]
    assert found == []


def test_every_promise_is_a_whole_sentence_with_a_source() -> None:
    unfinished = [
        id_
        for id_, promise in promises.load().items()
        if not promise.source or not promise.sentence.endswith(".") or promise.gap == "" or " " in id_
    ]
    assert unfinished == []


@pytest.mark.parametrize("kind", KINDS)
def test_marks_are_plain_strings(kind: str) -> None:
    """Only so can they be read without running anything, and found with grep."""
    assert [str(mark) for mark in marks(kind) if mark.value is None] == []


def test_marks_that_the_running_tests_carry_are_the_ones_read_from_their_source(
    request: pytest.FixtureRequest,
) -> None:
    read = {kind: {mark.value for mark in marks(kind)} for kind in KINDS}
    carried = {
        (kind, mark.args[0])
        for item in request.session.items
        for kind in KINDS
        for mark in item.iter_markers(kind)
    }
    assert [(kind, value) for kind, value in sorted(carried) if value not in read[kind]] == []


async def test_this_machine_is_as_strong_as_FUMEHOOD_TEST_TIER_says() -> None:
    assert list(tier.shortfalls(tier.wanted(), await examine())) == []


_FULL = Examination("namespaces", {layer: LayerReport("FULL") for layer in LAYERS})
_NO_NAMESPACES = dataclasses.replace(
    _FULL,
    tier="landlock",
    layers=_FULL.layers
    | {"user": LayerReport("MISSING", "unshare: EPERM"), "landlock-net": LayerReport("MISSING", "ABI 4")},
    trouble="no user namespace",
)


@pytest.mark.parametrize(
    ("words", "seen", "missing"),
    [
        ("namespaces landlock=7 seccomp user", _FULL, []),
        ("namespaces", _NO_NAMESPACES, ["tier landlock, not namespaces: no user namespace"]),
        ("seccomp", _NO_NAMESPACES, []),
        ("user", _NO_NAMESPACES, ["layer user is MISSING: unshare: EPERM"]),
        ("landlock", _NO_NAMESPACES, ["layer landlock-net is MISSING: ABI 4"]),
        ("landlock=8", _FULL, ["Landlock has version 7, not 8"]),
    ],
)
def test_a_machine_that_is_weaker_than_said_is_told_how(
    words: str, seen: Examination, missing: list[str]
) -> None:
    assert list(tier.shortfalls(words.split(), seen, landlock=7)) == missing


@pytest.mark.parametrize("word", ["namespace", "landlock=x", "seccomp=2", "none"])
def test_a_word_that_means_nothing_is_an_error_and_not_a_pass(word: str) -> None:
    with pytest.raises(ValueError, match="is no tier, no layer"):
        list(tier.shortfalls([word], _FULL, landlock=7))
