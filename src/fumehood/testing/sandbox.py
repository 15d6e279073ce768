"""`check_sandbox_backend`: what any backend of the script sandbox has to do, as one call for the people
who write one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fumehood.sandbox import Limits, SandboxBackend, ScriptResult, ScriptRunner, ToolRefused, ToolSignature

WALL_S = 1.0  # of the scripts that are meant to run out of time; enough for a slow start
BOUND_S = 30.0  # a backend that has not ended a script by then hangs


@dataclass(frozen=True, slots=True)
class _Case:
    """promise: what has to hold. code: by language. expect: fields of the result."""

    promise: str
    code: dict[str, str]
    expect: dict[str, Any]
    limits: dict[str, Any] = field(default_factory=dict)
    input: object = None


_CASES = (
    _Case(
        "the last expression is the value",
        {"js": "6 * 7", "python": "6 * 7"},
        {"outcome": "ok", "value": 42},
    ),
    _Case(
        "the input is a variable",
        {"js": "input.a[1]", "python": "input['a'][1]"},
        {"outcome": "ok", "value": "é\ud800"},
        input={"a": [1, "é\ud800"]},
    ),
    _Case(
        "what is printed is kept",
        {"js": "console.log('hi'); 1", "python": "print('hi')\n1"},
        {"outcome": "ok", "value": 1, "stdout": "hi\n"},
    ),
    _Case(
        "a tool is a function and its result a value",
        {"js": "(await echo({ a: [1, 2] })).a", "python": "echo(a=[1, 2])['a']"},
        {"outcome": "ok", "value": [1, 2]},
    ),
    _Case(
        "what a tool raises stays with the host",
        {
            "js": "try { await broken({}) } catch (e) { e.message }",
            "python": "try:\n    broken()\nexcept Exception as e:\n    said = str(e)\nsaid",
        },
        {"outcome": "ok", "value": "the tool failed"},
    ),
    _Case(
        "a refusal can be read",
        {
            "js": "try { await refused({}) } catch (e) { e.message }",
            "python": "try:\n    refused()\nexcept Exception as e:\n    said = str(e)\nsaid",
        },
        {"outcome": "ok", "value": "not today"},
    ),
    _Case(
        "an exception is the script's, with its line",
        {"js": "\nnull.x", "python": "\n1 / 0"},
        {"outcome": "tool_error", "reason": None, "line": 2},
    ),
    _Case("a syntax error is an error", {"js": "let = ;", "python": "x = ="}, {"outcome": "tool_error"}),
    _Case(
        "time runs out",
        {"js": "for (;;);", "python": "while True:\n    pass"},
        {"outcome": "limit", "reason": "timeout"},
        {"wall_s": WALL_S},
    ),
    _Case(
        "time runs out while a tool is waited for",
        {"js": "await never({})", "python": "never()"},
        {"outcome": "limit", "reason": "timeout", "calls": ["abandoned"]},
        {"wall_s": WALL_S},
    ),
    _Case(
        "output is capped",
        {"js": "for (;;) console.log('x'.repeat(99))", "python": "while True:\n    print('x' * 99)"},
        {"outcome": "limit", "reason": "output"},
        {"output": 10_000},
    ),
    _Case(
        "tool calls are capped, and those made are listed with the one too many",
        {"js": "for (;;) await echo({})", "python": "while True:\n    echo()"},
        {"outcome": "limit", "reason": "tool-calls", "calls": ["ok", "ok", "ok", "tool-calls"]},
        {"tool_calls": 3},
    ),
    _Case(
        "bytes to tools are capped",
        {"js": "await echo({ a: 'x'.repeat(9999) })", "python": "echo(a='x' * 9999)"},
        {"outcome": "limit", "reason": "bridge-bytes", "calls": ["bridge-bytes"]},
        {"bridge_bytes": 5000},
    ),
    _Case(
        "a tool that is not granted is refused, and the attempt is listed",
        {
            "js": "try { await tool('rm', {}) } catch (e) { e.message }",
            "python": "try:\n    tool('rm')\nexcept Exception as e:\n    said = str(e)\nsaid",
        },
        {
            "outcome": "ok",
            "value": "no tool named 'rm' is granted to this script",
            "calls": ["unknown-tool"],
        },
    ),
    _Case(
        "memory runs out",
        {
            "js": "const a = []; for (;;) a.push(new Uint8Array(1 << 20).fill(1))",
            "python": "a = []\nwhile True:\n    a.append('x' * (1 << 20) + str(len(a)))",
        },
        {"outcome": "limit", "reason": "memory"},
        {"wall_s": 10.0},
    ),
    _Case(
        "a script leaves nothing for the next",
        {"js": "globalThis.left = 1", "python": "left = 1"},
        {"outcome": "ok"},
    ),
    _Case(
        "and the next finds nothing",
        {"js": "typeof left", "python": "try:\n    left\nexcept NameError:\n    found = 'undefined'\nfound"},
        {"outcome": "ok", "value": "undefined"},
    ),
)  # fmt: skip


async def _call_tool(name: str, args: object) -> object:
    if name == "broken":
        raise RuntimeError("secret of the host")
    if name == "refused":
        raise ToolRefused("not today", reason="approval-declined")
    if name == "never":
        await asyncio.Event().wait()
    return args


async def check_sandbox_backend(
    make: Callable[[], SandboxBackend], *, lacks: Mapping[str, str] | None = None
) -> None:
    """Run every case in every language of the backend; close it at the end.

    make: called once, inside the running loop. lacks: what the backend cannot do, promise -> reason; such a
    promise has to fail, so that the list stays true. Raises: AssertionError naming the promise that does not
    hold and what came instead.
    """
    lacks = lacks or {}
    unknown = set(lacks) - {case.promise for case in _CASES}
    assert not unknown, f"there is no promise {sorted(unknown)}"
    backend = make()
    tools = {name: ToolSignature(name) for name in ("echo", "broken", "refused", "never")}
    assert backend.unavailable() is None, f"the backend can't be used here: {backend.unavailable()}"
    async with ScriptRunner(backends={backend.name: backend}) as runner:
        for lang in sorted(backend.languages):
            for case in _CASES:
                async with asyncio.timeout(BOUND_S):
                    result = await runner.run(
                        case.code[lang],
                        lang=lang,
                        input=case.input,
                        tools=tools,
                        call_tool=_call_tool,
                        limits=Limits(**case.limits),
                        backend=backend.name,
                    )
                if case.promise not in lacks:
                    _judge(case, lang, result)
                    continue
                try:
                    _judge(case, lang, result)
                except AssertionError:
                    continue
                raise AssertionError(f"{lang}: {case.promise}: holds, though it is said to be lacking")
            await _cancelled(runner, backend, lang)


def _judge(case: _Case, lang: str, result: ScriptResult) -> None:
    found = {
        "outcome": result.outcome,
        "reason": result.reason,
        "value": result.value,
        "stdout": result.stdout,
        "calls": [call.reason or call.outcome for call in result.tool_calls],
        "line": None if result.error is None else result.error.line,
    }
    shown = {key: found[key] for key in case.expect}
    assert shown == case.expect, f"{lang}: {case.promise}: expected {case.expect}, got {result}"
    assert "secret" not in str(result.error), f"{lang}: {case.promise}: the host's own words came through"


async def _cancelled(runner: ScriptRunner, backend: SandboxBackend, lang: str) -> None:
    code = "for (;;);" if lang == "js" else "while True:\n    pass"
    task = asyncio.ensure_future(
        runner.run(code, lang=lang, backend=backend.name, limits=Limits(wall_s=20.0))
    )
    await asyncio.sleep(0.2)  # only to let it start; nothing is asserted about time
    task.cancel()
    async with asyncio.timeout(BOUND_S / 2):
        try:
            await task
        except asyncio.CancelledError:
            return
    raise AssertionError(f"{lang}: a cancelled script came to an end of its own")
