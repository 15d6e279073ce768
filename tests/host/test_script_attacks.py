"""The attacks on the two backends that are not WASM: a caged process, and monty in its own workers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from fumehood._workers import CagedLauncher
from fumehood.isolate import Isolator, doctor
from fumehood.sandbox import Limits, ScriptRunner, ToolSignature
from tests.sandbox._attack import call_tool
from tests.sandbox.attacks_js import TIMEOUT
from tests.sandbox.attacks_py import ATTACKS

pytestmark = pytest.mark.anyio
TOOLS = {name: ToolSignature(name) for name in ("echo", "big", "fails", "refuses", "never")}
NAMES = (
    "an endless loop", "a huge factorial", "catching everything and going on",
    "waiting for a tool that never answers", "strings that double", "output without end",
    "a value past the cap", "an argument past the cap", "answers past the cap", "tool calls without end",
    "a deep list as the result", "a dictionary for ever", "recursion", "a busy loop of asyncio",
    "questions all at once",
)  # fmt: skip
BY_NAME = {attack.name: attack for attack in ATTACKS}
OTHERWISE = {
    # native code ends where the engine's counters would have been looked at, or at its own recursion limit
    "process": {TIMEOUT, ("limit", "memory"), ("tool_error", None), ("sandbox_error", "crashed")},
    "monty": {TIMEOUT, ("limit", "memory"), ("limit", "pending"), ("tool_error", None)},
}


@pytest.fixture(scope="module")
async def caged() -> AsyncIterator[ScriptRunner]:
    """Scripts in processes that stand in cages."""
    found = await doctor.examine()
    async with (
        Isolator(found.tier, spares=0) as isolator,
        ScriptRunner(launcher=CagedLauncher(isolator)) as runner,
    ):
        yield runner


@pytest.mark.promise("sandbox:attack-is-contained")
@pytest.mark.requirement("R016")
@pytest.mark.parametrize("backend", ["process", "monty"])
@pytest.mark.parametrize("name", NAMES)
async def test_a_backend_without_wasm_contains(caged: ScriptRunner, backend: str, name: str) -> None:
    attack = BY_NAME[name]
    short = TIMEOUT in attack.right or name in ("a dictionary for ever", "questions all at once")
    limits = {"wall_s": 1.0 if short else 20.0, "memory": 128 << 20, "output": 1 << 20} | attack.limits
    result = await caged.run(
        attack.code.replace("tools.", ""), lang="python", backend=backend, tools=TOOLS, call_tool=call_tool,
        limits=Limits(**limits),  # type: ignore[arg-type]
    )  # fmt: skip
    assert (result.outcome, result.reason) in {*attack.right, *OTHERWISE[backend]}, result
    assert result.outcome != "ok" or attack.right[0][0] == "ok", result
    after = await caged.run("1 + 1", lang="python", backend=backend)
    assert after.value == 2, after
