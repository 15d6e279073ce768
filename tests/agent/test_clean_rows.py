"""A row that needs no copy is told from one that does."""

from __future__ import annotations

import enum
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood.agent._canonical import canonical, clean, is_clean

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(VALUES | st.dictionaries(st.text(max_size=3), LEAVES | st.lists(st.text(max_size=3)), max_size=5))
def test_what_needs_no_cleaning_is_what_cleaning_would_return(value: object) -> None:
    if is_clean(value):
        assert clean(value) == value and canonical(value) == canonical(clean(value))


@given(VALUES)
def test_the_text_of_a_row_is_the_one_that_json_dumps_gives(value: object) -> None:
    cleaned = clean(value)
    assert canonical(cleaned) == json.dumps(cleaned, sort_keys=True, separators=(",", ":"), allow_nan=False)


@pytest.mark.parametrize("value", [float("nan"), {"a": float("inf")}])
def test_what_is_not_clean_has_no_text(value: object) -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical(value)


def test_what_json_has_no_form_for_has_no_text() -> None:
    with pytest.raises(TypeError):
        canonical({"a": {1, 2}})


class _Word(str):
    pass


class _Kind(enum.IntEnum):
    ONE = 1


@pytest.mark.parametrize(
    "value",
    [
        {"a": "\ud800"}, {"\ud800": 1}, {"a": float("nan")}, {"a": float("-inf")},
        {"a": {"b": 1}}, {"a": ["b", 1]}, {"a": 2**63}, {1: "a"}, {"a": _Word("b")}, {"a": _Kind.ONE},
        {"a": ("b",)}, ["a"], "a", None,
    ],
)  # fmt: skip
def test_whatever_is_not_plain_is_copied_with_care(value: object) -> None:
    assert not is_clean(value)


def test_the_rows_of_the_broker_need_no_copy() -> None:
    row = {"door": "fetch", "port": 443, "answers": ["93.184.216.34"], "rule": None, "chain": [], "ms": 1.5}
    assert is_clean(row) and clean(row) == row
