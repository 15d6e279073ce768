"""Instances made ahead, and scripts that run on the event loop's own thread: faster, and nothing else may
be different.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from fumehood.sandbox import Limits, Script, ScriptRunner
from fumehood.sandbox._inprocess import job_of, roomy_stack
from fumehood.sandbox._wasm_backend import DEFAULT_MEMORY, load_here
from fumehood.sandbox.child._worker import ThreadTransport

pytestmark = pytest.mark.anyio
SET = {"js": "globalThis.left = 1", "python": "import builtins\nbuiltins.left = 1"}
LOOK = {"js": "typeof left", "python": "import builtins\nhasattr(builtins, 'left')"}
CLEAN = {"js": b'"undefined"', "python": b"false"}


def run(engine: Any, lang: str, code: str, **limits: Any) -> Any:
    script = Script(lang, code, Limits(**limits))
    job = job_of(script, script.limits.memory or DEFAULT_MEMORY[lang])
    return engine.run(job, ThreadTransport(None, lambda _stream, _data: None))


async def rested(engine: Any) -> None:
    """A spare is there: made on this thread for JavaScript, on one of its own for Python."""
    engine.rest()
    async with asyncio.timeout(30):
        while not engine._spares:
            await asyncio.sleep(0.001)


@pytest.mark.promise("sandbox:fresh-per-script")
@pytest.mark.requirement("R016")
@pytest.mark.parametrize("lang", ["js", "python"])
async def test_an_instance_made_ahead_serves_one_script_and_is_never_used_again(lang: str) -> None:
    engine: Any = await load_here(lang, False, None, None)
    await rested(engine)
    seen: list[Any] = []
    for _ in range(5):
        spare = engine._spares[-1]
        assert all(spare is not other for other in seen)
        seen.append(spare)
        assert run(engine, lang, LOOK[lang]).value == CLEAN[lang]
        await rested(engine)
        run(engine, lang, SET[lang])
        await rested(engine)
    engine.close()
    assert engine._spares == [] and engine._used == []


@pytest.mark.requirement("R481")
@pytest.mark.parametrize("lang", ["js", "python"])
async def test_an_instance_made_ahead_has_the_limits_of_its_script(lang: str) -> None:
    engine: Any = await load_here(lang, False, None, None)
    grow = {
        "js": "const a = []; for (;;) a.push(new Uint8Array(1 << 20).fill(1))",
        "python": "a = []\nwhile True:\n    a.append('x' * (1 << 20) + str(len(a)))",
    }[lang]
    for memory in (64 << 20, 100 << 20):
        await rested(engine)
        end = run(engine, lang, grow, memory=memory)
        assert (end.outcome, end.reason) == ("limit", "memory"), end
    await rested(engine)
    small = run(engine, lang, "1", memory=1 << 20)
    assert (small.outcome, small.reason) == ("limit", "memory"), small
    engine.close()


async def test_randomness_and_fuel_are_the_same_with_and_without_an_instance_made_ahead() -> None:
    engine: Any = await load_here("js", True, None, None)
    found = []
    for ahead in (True, False):
        if ahead:
            await rested(engine)
        else:
            engine._spares.clear()
        end = run(engine, "js", "[Math.random(), 1 + 1]", fuel=10**9)
        found.append((end.value, end.usage["fuel"]))
    assert found[0] == found[1]


@pytest.mark.promise("sandbox:in-process-does-not-hold-the-loop")
async def test_a_long_script_in_process_does_not_hold_the_event_loop_and_prints_once() -> None:
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with ScriptRunner(in_process=True) as runner:
        await runner.run("1")
        other = asyncio.ensure_future(turn())
        result = await runner.run("console.log('once'); for (;;);", limits=Limits(wall_s=0.3))
        other.cancel()
    assert (result.outcome, result.reason, result.stdout) == ("limit", "timeout", "once\n")
    assert turns > 10  # the loop went round while the script ran


async def test_a_short_script_in_process_runs_at_once_and_any_other_thread_has_a_stack_for_it() -> None:
    assert roomy_stack() == (threading.current_thread() is threading.main_thread())
    found: list[object] = []

    async def work() -> None:
        async with ScriptRunner(in_process=True) as runner:
            found.append((await runner.run("eval('('.repeat(1e5))")).reason)
            found.append((await runner.run("console.log(1); 2")).stdout)

    before = threading.stack_size(512 << 10)  # a guest would run past its end
    try:
        thread = threading.Thread(target=lambda: asyncio.run(work()))
        thread.start()
    finally:
        threading.stack_size(before)
    await asyncio.to_thread(thread.join)
    assert found == ["stack", "1\n"]
    await work()
    assert found == ["stack", "1\n"] * 2
