"""Python scripts that ask several tools at once, in the forms in which people write it."""

# ruff: noqa: E501 - scripts of several lines read better in one
from __future__ import annotations

import asyncio

import pytest

from fumehood.sandbox import FetchAnswer, FetchCall, Limits, ScriptRunner, ToolRefused
from tests.sandbox.conftest import TOOLS

pytestmark = pytest.mark.anyio

TOGETHER = {
    "gather of calls": "await asyncio.gather(echo(i=1), echo(i=2))",
    "gather of a list": "await asyncio.gather(*[echo(i=i) for i in (1, 2)])",
    "gather of a generator": "await asyncio.gather(*(echo(i=i) for i in (1, 2)))",
    "gather of coroutines": "async def one(i):\n    return await echo(i=i)\nawait asyncio.gather(*map(one, (1, 2)))",
    "tasks at the top level": "a = asyncio.create_task(echo(i=1))\nb = asyncio.create_task(echo(i=2))\n[await a, await b]",
    "a task group": "async def main():\n    async with asyncio.TaskGroup() as g:\n        t = [g.create_task(echo(i=i)) for i in (1, 2)]\n    return [x.result() for x in t]\nasyncio.run(main())",
    "wait": "done, _ = await asyncio.wait([echo(i=1), echo(i=2)])\nsorted([d.result() for d in done], key=lambda r: r['i'])",
    "as_completed": "out = []\nfor f in asyncio.as_completed([echo(i=1), echo(i=2)]):\n    out.append(await f)\nsorted(out, key=lambda r: r['i'])",
    "a tool by its name": "await asyncio.gather(tool('echo', i=1), tools['echo'](i=2))",
    "a task beside a plain call": "t = asyncio.create_task(echo(i=1))\nasync def later():\n    await asyncio.sleep(0)\n    return await echo(i=2)\nawait asyncio.gather(t, later())",
}


@pytest.mark.parametrize("form", TOGETHER)
async def test_tools_that_are_asked_together_run_together(either: ScriptRunner, form: str) -> None:
    both = asyncio.Barrier(2)

    async def tools(name: str, args: object) -> object:
        await both.wait()  # passes only when two calls are in it at once
        return args

    code = "import asyncio\n" + TOGETHER[form]
    result = await either.run(code, lang="python", tools=TOOLS, call_tool=tools, limits=Limits(wall_s=20.0))
    assert (result.outcome, result.value) == ("ok", [{"i": 1}, {"i": 2}]), result


async def test_an_answer_finds_its_question_also_when_another_is_waited_for_plainly(
    runner: ScriptRunner,
) -> None:
    order: list[int] = []
    first_asked = asyncio.Event()

    async def tools(name: str, args: object) -> object:
        assert isinstance(args, dict)
        if args["i"] == 2:
            first_asked.set()
        else:
            await first_asked.wait()
        order.append(args["i"])
        return args

    code = "import asyncio\nt = asyncio.create_task(echo(i=1))\nawait asyncio.sleep(0)\nx = echo(i=2)\n[x, await t]"
    result = await runner.run(code, lang="python", tools=TOOLS, call_tool=tools)
    assert (result.value, order) == ([{"i": 2}, {"i": 1}], [2, 1]), result


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("await asyncio.gather(broken(), echo(a=1), return_exceptions=True)\nr = await asyncio.gather(broken(), echo(a=1), return_exceptions=True)\n[type(r[0]).__name__, r[0].reason, r[1]]", ["ToolError", "no", {"a": 1}]),
        ("try:\n    await asyncio.gather(echo(a=1), broken())\nexcept ToolError as e:\n    x = str(e)\nx", "not today"),
        ("t = asyncio.create_task(echo(a=1))\nwhile not t.done():\n    await asyncio.sleep(0)\nt.result()", {"a": 1}),
        ("await asyncio.wait_for(echo(a=1), 0.001)", {"a": 1}),
        ("len(await asyncio.gather(*[echo(i=i) for i in range(300)]))", 300),
        ("r = (await fetch('https://a.test/')).status\n[r, [x.status for x in await asyncio.gather(fetch('https://a.test/'), fetch('https://a.test/'))]]", [200, [200, 200]]),
        ("echo(a=1)['a'] + (await echo(a=2))['a']", 3),
        ("calls = [echo(i=i) for i in (1, 2)]\nawait asyncio.gather(*calls)", [{"i": 1}, {"i": 2}]),
        ("class A:\n    async def f(self):\n        return await self.g(3, k=4)\n    async def g(self, n, *, k):\n        return n + k\nawait A().f()", 7),
    ],
)  # fmt: skip
async def test_the_value_is_right(either: ScriptRunner, code: str, value: object) -> None:
    async def tools(name: str, args: object) -> object:
        if name == "broken":
            raise ToolRefused("not today", reason="no")
        return args

    async def fetch(call: FetchCall) -> FetchAnswer:
        return FetchAnswer(200, (), b"x", call.url)

    result = await either.run(
        "import asyncio\n" + code, lang="python", tools=TOOLS, call_tool=tools, fetch=fetch
    )
    assert (result.outcome, result.value) == ("ok", value), result


@pytest.mark.promise("sandbox:session-answers-stay-in-their-script")
async def test_a_session_ends_with_a_question_left_open(runner: ScriptRunner) -> None:
    async def tools(name: str, args: object) -> object:
        await asyncio.Event().wait()
        return None

    code = "import asyncio\nasync def ask():\n    await never(x=1)\nasync def main():\n    t = asyncio.create_task(ask())\n    await asyncio.sleep(0)\n    return 5\nleft = 1\nasyncio.run(main())"
    result = await runner.run(code, lang="python", tools=TOOLS, call_tool=tools, session="open")
    assert (result.outcome, result.value, result.session_lost) == ("ok", 5, True), result
    assert [c.outcome for c in result.tool_calls] == ["abandoned"]
    again = await runner.run("'left' in globals()", lang="python", session="open")
    assert again.value is False


async def test_waiting_for_what_nothing_brings_is_still_a_deadlock(runner: ScriptRunner) -> None:
    code = "import asyncio\nawait echo(a=1)\nawait asyncio.Event().wait()"

    async def tools(name: str, args: object) -> object:
        return args

    result = await runner.run(code, lang="python", tools=TOOLS, call_tool=tools)
    assert result.error is not None and result.error.type == "Deadlock"
