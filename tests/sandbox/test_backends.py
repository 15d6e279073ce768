"""Every backend keeps the same promises; others come by entry point; what isn't installed says what to
install.
"""

from __future__ import annotations

from importlib import metadata

import pytest

from fumehood.policies.errors import ConfigError, SandboxUnavailable
from fumehood.sandbox import GROUP, Limits, ProcessBackend, SandboxBackend, ScriptRunner, UncagedLauncher
from fumehood.sandbox._monty import MontyBackend
from fumehood.sandbox._pool import WorkerPool
from fumehood.sandbox._wasm_backend import InProcessBackend, WasmBackend
from fumehood.testing.sandbox import check_sandbox_backend

pytestmark = pytest.mark.anyio


def quickjs() -> SandboxBackend:
    return WasmBackend("js", WorkerPool(UncagedLauncher(), size=1), owns_pool=True)


def cpython() -> SandboxBackend:
    return WasmBackend("python", WorkerPool(UncagedLauncher(), size=1), owns_pool=True)


BACKENDS = {
    "quickjs": quickjs,
    "cpython": cpython,
    "quickjs in process": lambda: InProcessBackend("js"),
    "cpython in process": lambda: InProcessBackend("python"),
    "process": lambda: ProcessBackend(UncagedLauncher(), dangerously_uncaged=True),
    "monty": MontyBackend,
}
LACKS = {"monty": {"the input is a variable": "its strings are UTF-8, so there are no lone surrogates"}}


@pytest.mark.requirement("R018")
@pytest.mark.promise("sandbox:backends-conform")
@pytest.mark.parametrize("name", BACKENDS)
async def test_a_backend_conforms(name: str) -> None:
    await check_sandbox_backend(BACKENDS[name], lacks=LACKS.get(name))


async def test_the_conformance_check_tells_a_false_lack_and_a_promise_that_does_not_exist() -> None:
    with pytest.raises(AssertionError, match="the last expression is the value: holds, though"):
        await check_sandbox_backend(MontyBackend, lacks={"the last expression is the value": "wrong"})
    with pytest.raises(AssertionError, match="there is no promise"):
        await check_sandbox_backend(MontyBackend, lacks={"world peace": "hard"})


async def test_monty_runs_scripts_with_tools() -> None:
    async def tools(name: str, args: object) -> object:
        return args

    from tests.sandbox.conftest import TOOLS

    async with ScriptRunner() as runner:
        how = {"lang": "python", "backend": "monty", "tools": TOOLS, "call_tool": tools}
        ok = await runner.run("print('hi')\nx = await echo(a=1)\nx['a'] + input", input=41, **how)  # type: ignore[arg-type]
        assert (ok.outcome, ok.value, ok.stdout) == ("ok", 42, "hi\n"), ok
        mixed = await runner.run(
            "import asyncio\na = echo(a=1)['a']\nb = await asyncio.gather(echo(a=2), echo(a=3))\n"
            "def f():\n    return tool('fetch-metrics', a=4)['a']\n[a, b, f(), (await echo(a=5))['a']]",
            **how,  # type: ignore[arg-type]
        )
        assert mixed.value == [1, [{"a": 2}, {"a": 3}], 4, 5], mixed
        bad = await runner.run("\n1 / 0", **how)  # type: ignore[arg-type]
        assert bad.error is not None and (bad.error.type, bad.error.line) == ("ZeroDivisionError", 2)
        slow = await runner.run("while True:\n    pass", limits=Limits(wall_s=0.3), **how)  # type: ignore[arg-type]
        assert (slow.outcome, slow.reason) == ("limit", "timeout")


@pytest.mark.requirement("R018")
async def test_another_package_adds_a_backend_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = (
        metadata.EntryPoint("mine", "tests.sandbox.test_backends:Mine", GROUP),
        metadata.EntryPoint("broken", "tests.sandbox.nothing:Here", GROUP),
        metadata.EntryPoint("quickjs", "tests.sandbox.test_backends:Mine", GROUP),
    )
    monkeypatch.setattr(metadata, "entry_points", lambda group: metadata.EntryPoints(entries))
    async with ScriptRunner() as runner:
        assert isinstance(runner.backends()["mine"], Mine)
        assert isinstance(runner.backends()["quickjs"], WasmBackend)
        assert "broken" not in runner.backends()


class Mine(MontyBackend):
    """A backend of somebody else."""


@pytest.mark.parametrize(
    ("lang", "backend", "message"),
    [
        ("perl", None, "lang is 'perl'; it must be one of js, python"),
        ("js", "v8", "no sandbox backend 'v8'; there are cpython, monty, process, quickjs"),
        ("js", "cpython", "backend 'cpython' runs python, not js"),
    ],
)
async def test_a_backend_that_does_not_fit_is_named(
    runner: ScriptRunner, lang: str, backend: str | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        await runner.run("1", lang=lang, backend=backend)


@pytest.mark.promise("sandbox:process-needs-a-cage")
async def test_the_process_backend_refuses_to_run_without_a_cage(runner: ScriptRunner) -> None:
    with pytest.raises(SandboxUnavailable, match="no wall but a cage"):
        await runner.run("1", lang="python", backend="process")


async def test_what_is_not_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fumehood.sandbox._wasm_backend.util.find_spec", lambda name: None)
    async with ScriptRunner() as runner:
        with pytest.raises(
            SandboxUnavailable, match=r"wasmtime is not installed; pip install 'fumehood\[sandbox\]'"
        ):
            await runner.run("1")


async def test_in_process_is_named_for_what_it_is() -> None:
    async with ScriptRunner(in_process=True) as runner:
        result = await runner.run("1")
    assert result.enforcement == {
        "backend": "quickjs-in-process",
        "where": "host process",
        "cage": {"tier": "none", "layers": {}},
    }


@pytest.mark.promise("sandbox:no-weaker-backend-unasked")
@pytest.mark.parametrize(("lang", "backend"), [("python", "mine"), ("js", "quickjs")])
async def test_a_host_that_requires_a_cage_gets_no_backend_without_one(lang: str, backend: str) -> None:
    async with ScriptRunner(require_cage=True, backends={"mine": Mine()}) as runner:
        with pytest.raises(SandboxUnavailable, match="outside the cage|pip install pydantic-monty"):
            await runner.run("1", lang=lang, backend=backend)


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"wall_s": -1}, "wall_s is -1; it must be 0 to 86400"),
        ({"wall_s": float("inf")}, "it must be 0 to 86400"),
        ({"wall_s": "5"}, "wall_s is '5'"),
        ({"wall_s": float("nan")}, "wall_s is nan"),
        ({"output": 1 << 40}, "output is 1099511627776; at most"),
        ({"fuel": 0}, "fuel is 0; use None"),
        ({"fuel": 1 << 64}, "fuel is 18446744073709551616; it must be"),
        ({"fuel": 2.5}, "fuel is 2.5; it must be a whole number"),
        ({"memory": 0}, "memory is 0; use None"),
        ({"memory": -1}, "memory is -1"),
        ({"memory": 1.5}, "memory is 1.5; it must be a whole number"),
        ({"memory": float("nan")}, "memory is nan"),
        ({"stack": -1}, "stack is -1"),
        ({"stack": 1 << 32}, "stack is 4294967296; at most"),
        ({"tool_calls": float("inf")}, "tool_calls is inf; it must be a whole number"),
    ],
)
def test_limits_that_can_not_be_meant_are_refused(limits: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Limits(**limits)  # type: ignore[arg-type]


async def test_a_memory_limit_below_the_engine_itself_is_a_limit_like_any_other(runner: ScriptRunner) -> None:
    for lang in ("js", "python"):
        result = await runner.run("1", lang=lang, limits=Limits(memory=1 << 20))
        assert (result.outcome, result.reason) == ("limit", "memory"), result
