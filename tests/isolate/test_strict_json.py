"""JSON of a hostile child: what is refused, and that nothing else ever happens."""

from __future__ import annotations

import contextlib
import gc
import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood.isolate import NotStrict, decode_strict_json
from fumehood.isolate._strict_json import _may_hold_huge

_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(_VALUES)
def test_a_strict_value_comes_back_as_it_was(value: object) -> None:
    assert decode_strict_json(json.dumps(value).encode()) == value


@given(st.binary(max_size=400))
def test_any_bytes_give_a_value_or_not_strict(data: bytes) -> None:
    try:
        decode_strict_json(data)
    except NotStrict:
        pass


@pytest.mark.parametrize(
    "text",
    [
        "1e999",
        "-1E+400",
        '[0.5, {"a": 2e308}]',
        "9" * 1300,
        '{"a": [' + "1" * 5000 + "]}",
        "NaN",
        "-Infinity",
    ],
)
def test_a_number_that_no_float_holds_and_an_integer_without_end_are_refused(text: str) -> None:
    with pytest.raises(NotStrict):
        decode_strict_json(text.encode())


@pytest.mark.parametrize("text", ["1e308", "1E+300", "9" * 1000, '"1e999"', '"' + "9" * 5000 + '"'])
def test_the_largest_numbers_and_texts_that_look_like_larger_ones_pass(text: str) -> None:
    assert decode_strict_json(text.encode()) == json.loads(text)


@given(
    st.text(alphabet="019eE+-., x", max_size=700) | st.integers(290, 310).map(lambda n: "x" + "7" * n + "x")
)
def test_every_number_worth_a_look_is_looked_at(text: str) -> None:
    wanted = re.search(r"[0-9][eE]\+?[0-9]{3}|[0-9]{300}", text) is not None
    assert _may_hold_huge(text.encode()) is wanted


def test_a_float_is_finite_wherever_it_stands() -> None:
    value = decode_strict_json(b'[1e307, {"a": [1.5e-400]}]')
    assert value == [1e307, {"a": [0.0]}]
    assert all(map(math.isfinite, (value[0], value[1]["a"][0])))


@pytest.mark.parametrize("text", [b"[" + b"[]," * 100_000 + b"0]", b"[" + b"[]," * 100_000])
def test_the_collector_pauses_for_a_large_value_and_no_longer(text: bytes) -> None:
    passes = []
    gc.callbacks.append(lambda phase, _: passes.append(phase))
    try:
        with contextlib.suppress(NotStrict):
            decode_strict_json(text)
        during = len(passes)
    finally:
        gc.callbacks.pop()
    assert (during <= 2, gc.isenabled()) == (True, True)  # one, at the first object after it
