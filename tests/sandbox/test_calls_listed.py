"""Every call a script made or tried stands in its result, and a refusal is text of bounded length."""

# ruff: noqa: E501 - scripts read better in one line
from __future__ import annotations

import pytest

from fumehood.sandbox import FetchAnswer, FetchCall, Limits, ScriptRunner, ToolRefused
from tests.sandbox.conftest import TOOLS, call_tool

pytestmark = pytest.mark.anyio


@pytest.mark.promise("sandbox:calls-are-always-listed")
@pytest.mark.requirement("R481")
@pytest.mark.parametrize("lang", ["js", "python"])
@pytest.mark.parametrize(
    ("limits", "js", "python", "reasons", "ending"),
    [
        ({}, "try { await tool('rm') } catch {} ; for (;;);", "try:\n  tool('rm')\nexcept ToolError: pass\nwhile True: pass",
         ["unknown-tool"], "timeout"),
        ({}, "try { await tool('x'.repeat(5000)) } catch {} ; 1", "try:\n  tool('x' * 5000)\nexcept ToolError: pass", ["unknown-tool"], None),
        ({"tool_calls": 1}, "try { await tool('rm') } catch {} ; await echo(1)",
         "try:\n  tool('rm')\nexcept ToolError: pass\necho(a=1)", ["unknown-tool", "tool-calls"], "tool-calls"),
        ({"bridge_bytes": 1000}, "await echo('x'.repeat(2000))", "echo(a='x' * 2000)", ["bridge-bytes"], "bridge-bytes"),
    ],
)  # fmt: skip
async def test_a_call_that_was_only_tried_is_listed_with_its_verdict(
    either: ScriptRunner,
    lang: str,
    limits: dict[str, int],
    js: str,
    python: str,
    reasons: list[str],
    ending: str | None,
) -> None:
    result = await either.run(
        js if lang == "js" else python, lang=lang, tools=TOOLS, call_tool=call_tool,
        limits=Limits(wall_s=0.5 if ending == "timeout" else 20.0, **limits),
    )  # fmt: skip
    assert result.reason == ending, result
    assert [(c.outcome, c.reason) for c in result.tool_calls] == [("error", reason) for reason in reasons]
    assert all(len(c.name) <= 257 for c in result.tool_calls)


async def test_a_refusal_that_repeats_a_megabyte_is_cut(either: ScriptRunner) -> None:
    async def fetch(call: FetchCall) -> FetchAnswer:
        raise ToolRefused(f"{call.url} is not listed", reason="not-listed")

    code = "try { await fetch('https://a.test/' + 'x'.repeat(1e6)) } catch (e) { e.message }"
    result = await either.run(code, fetch=fetch)
    assert isinstance(result.value, str) and len(result.value) < 600
    assert result.value.startswith("https://a.test/xx") and result.value.endswith("xx is not listed")
    assert result.tool_calls[0].message == result.value
