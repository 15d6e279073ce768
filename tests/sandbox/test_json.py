"""JSON across the bridge, both ways: what comes back is what went in, or a clear error."""

# ruff: noqa: E501 - scripts read better in one line
from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fumehood.policies.errors import ConfigError
from fumehood.sandbox import Limits, ScriptRunner
from fumehood.sandbox._json import MAX_DEPTH, NotJson, decode, depth, encode
from tests.sandbox.conftest import TOOLS, call_tool

pytestmark = pytest.mark.anyio
MIB = 1 << 20

texts = st.text(st.characters(exclude_categories=()), max_size=20)  # surrogates included
numbers = st.integers(-(2**200), 2**200) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=25,
)
HOW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def as_js(value: Any) -> Any:
    """What JavaScript makes of a JSON value: doubles for numbers, and no -0 in what JSON.stringify writes."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float):
        return float(value) + 0.0
    if isinstance(value, str):
        # pairs are one character
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    if isinstance(value, list):
        return [as_js(v) for v in value]
    return {as_js(k): as_js(v) for k, v in value.items()}


def exact(value: Any) -> str:
    """Text that tells -0.0 from 0.0 and 1 from 1.0."""
    return json.dumps(value, sort_keys=True)


@HOW
@given(value=values)
async def test_javascript_gives_back_its_input(runner: ScriptRunner, value: Any) -> None:
    result = await runner.run("input", input=value)
    assert result.outcome == "ok", result
    assert as_js(result.value) == as_js(value)


@HOW
@given(value=values)
async def test_a_tool_sees_what_javascript_gave_it_and_the_script_its_answer(
    runner: ScriptRunner, value: Any
) -> None:
    seen: list[object] = []

    async def tools(name: str, args: object) -> object:
        seen.append(args)
        return value

    result = await runner.run("await echo(input)", input=value, tools=TOOLS, call_tool=tools)
    assert as_js(seen) == [as_js(value)]
    assert as_js(result.value) == as_js(value)


@settings(HOW, max_examples=25)
@given(value=values)
async def test_python_gives_back_its_input_exactly(runner: ScriptRunner, value: Any) -> None:
    plain = as_js_text(value)
    result = await runner.run(
        "echo({'v': input})['v']", lang="python", input=plain, tools=TOOLS, call_tool=call_tool
    )
    assert result.outcome == "ok", result
    assert exact(result.value) == exact(plain)


def as_js_text(value: Any) -> Any:
    """Surrogate pairs joined, as any JSON reader does; everything else as it is."""
    if isinstance(value, str):
        return as_js(value)
    if isinstance(value, list):
        return [as_js_text(v) for v in value]
    if isinstance(value, dict):
        return {as_js_text(k): as_js_text(v) for k, v in value.items()}
    return value


@pytest.mark.parametrize(("lang", "code"), [("js", "input"), ("python", "input")])
async def test_a_string_of_ten_megabytes_goes_there_and_back(
    runner: ScriptRunner, lang: str, code: str
) -> None:
    text = "0123456789abcdefé" * (10 * MIB // 17)
    limits = Limits(output=32 * MIB, memory=256 * MIB, wall_s=30)
    result = await runner.run(code, lang=lang, input=text, limits=limits)
    assert result.value == text


@pytest.mark.parametrize("lang", ["js", "python"])
async def test_nesting_up_to_the_cap_goes_through_and_past_it_is_an_error(
    runner: ScriptRunner, lang: str
) -> None:
    deep: Any = 1
    for _ in range(MAX_DEPTH - 1):
        deep = [deep]
    assert (await runner.run("input", lang=lang, input=deep)).value == deep
    grow = (
        "let a = 1; for (let i = 0; i < 300; i++) a = [a]; a"
        if lang == "js"
        else "a = 1\nfor _ in range(300): a = [a]\na"
    )
    result = await runner.run(grow, lang=lang)
    assert (
        result.error is not None
        and result.error.message == f"the value is nested deeper than {MAX_DEPTH} levels"
    )


@pytest.mark.promise("sandbox:json-of-a-script-can-not-hurt")
@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        '{"a":' * 200_000,
        "9" * 5000,
        "NaN",
        "-Infinity",
        "1e400",
        "[-1e999]",
        "[1,",
        '"\\ud8',
        "",
        "\0",
        "[" * 300 + "]" * 300,
    ],
    ids=lambda t: t[:12] or "nothing",
)
def test_text_that_no_script_should_send_is_refused(text: str) -> None:
    with pytest.raises(NotJson):
        decode(text)


@pytest.mark.promise("sandbox:json-of-a-script-can-not-hurt")
@given(text=st.text() | st.binary().map(lambda b: b.decode("latin-1")) | values.map(json.dumps))
def test_any_text_is_a_value_or_refused(text: str) -> None:
    try:
        value = decode(text)
    except NotJson:
        return
    assert depth(value) <= MAX_DEPTH


async def test_an_argument_with_a_huge_number_is_an_error_of_the_script(runner: ScriptRunner) -> None:
    code = "import sys\nsys.set_int_max_str_digits(0)\ntry:\n  echo(a=10**6000)\nexcept ToolError as e:\n  s = e.reason\ns"
    result = await runner.run(code, lang="python", tools=TOOLS, call_tool=call_tool)
    assert result.value == "input-schema"


@pytest.mark.parametrize("bad", [math.nan, {1, 2}, object(), {"a": math.inf}], ids=str)
async def test_an_input_that_is_not_json_is_the_callers_mistake(runner: ScriptRunner, bad: object) -> None:
    with pytest.raises(ConfigError, match="the script's input is not JSON"):
        await runner.run("1", input=bad)


def test_encoding_refuses_cycles() -> None:
    cyclic: list[object] = []
    cyclic.append(cyclic)
    with pytest.raises(NotJson):
        encode(cyclic)
