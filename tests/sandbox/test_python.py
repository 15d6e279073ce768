"""What a Python script is given, and what becomes of it."""

# ruff: noqa: E501 - scripts of several lines read better in one
from __future__ import annotations

import pytest

from fumehood.sandbox import FetchAnswer, FetchCall, ScriptRunner
from tests.sandbox.conftest import TOOLS, call_tool

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("input['a'] + 1", 42),
        ("x = 5\nx * 2", 10),
        ("x = 5", None),
        ("", None),
        ("import asyncio\nasync def f(): return 7\nawait f()", 7),
        ("import asyncio\nasync def f(): return 8\nasyncio.run(f())", 8),
        ("async def f(): return 9\nf()", 9),
        ("await echo(x=1)", {"x": 1}),
        ("import asyncio\nasync def f(i): return await echo(i=i)\nawait asyncio.gather(f(1), echo(i=2), f(3))", [{"i": 1}, {"i": 2}, {"i": 3}]),
        ("import asyncio\nawait asyncio.wait_for(echo(i=1), 5)", {"i": 1}),
        ("import asyncio\nasync def f():\n  async with asyncio.TaskGroup() as g:\n    a = g.create_task(asyncio.sleep(5, 1))\n  return a.result()\nawait f()", 1),
        ("{1, 2}", [1, 2]),
        ("(1, 2)", [1, 2]),
        ("import datetime\ndatetime.date(2024, 1, 2)", "2024-01-02"),
        ("import decimal\ndecimal.Decimal('1.10')", "1.10"),
        ("import dataclasses\n@dataclasses.dataclass\nclass P:\n  x: int\nP(3)", {"x": 3}),
        ("[i async for i in (j for j in ()) ] if False else 3", 3),
        ("import math, json, re, statistics, collections, itertools\nmath.sqrt(16)", 4.0),
        ("'\\ud800'", "\ud800"),
        ("10 ** 30", 10**30),
        ("-0.0", -0.0),
        ("class C:\n  def __init__(self): self.v = 2\nC().v", 2),
        ("def f(): return lambda: 4\nf()()", 4),
    ],
)  # fmt: skip
async def test_the_value_is_that_of_the_last_expression(
    runner: ScriptRunner, code: str, value: object
) -> None:
    result = await runner.run(code, lang="python", input={"a": 41}, tools=TOOLS, call_tool=call_tool)
    assert (result.outcome, result.value) == ("ok", value), result.error


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("1 / 0", ("ZeroDivisionError", "division by zero", 1, 1)),
        ("x = (1,", ("SyntaxError", "'(' was never closed", 1, 5)),
        (
            "def f():\n  return 1 +  None\nf()",
            ("TypeError", "unsupported operand type(s) for +: 'int' and 'NoneType'", 2, 10),
        ),
        ("import numpy", ("ModuleNotFoundError", "No module named 'numpy' in this sandbox", 1, 1)),
        ("import sys\nsys.exit('done')", ("SystemExit", "done", None, None)),
        ("object()", ("TypeError", "the script's value is a object, which JSON can't hold", None, None)),
        ("return 5", ("SyntaxError", "'return' outside function", 1, 1)),
    ],
)
async def test_an_error_has_its_place_in_the_script(
    runner: ScriptRunner, code: str, error: tuple[str, str, int | None, int | None]
) -> None:
    result = await runner.run(code, lang="python")
    found = result.error
    assert found is not None and result.outcome == "tool_error"
    assert (found.type, found.message, found.line, found.column) == error


async def test_a_traceback_shows_the_lines_of_the_script_alone(runner: ScriptRunner) -> None:
    code = 'def f(x):\n  return g(x)\ndef g(x):\n  raise ValueError("bad " + x)\nimport re\nf("y")'
    result = await runner.run(code, lang="python")
    assert result.error is not None
    assert result.error.trace.splitlines() == [
        "Traceback (most recent call last):",
        '  File "script.py", line 6, in <module>',
        '    f("y")',
        '  File "script.py", line 2, in f',
        "    return g(x)",
        '  File "script.py", line 4, in g',
        '    raise ValueError("bad " + x)',
        "ValueError: bad y",
    ]


async def test_print_goes_to_the_two_streams(runner: ScriptRunner) -> None:
    code = "import sys\nprint('a', 1, end='!')\nprint('b', file=sys.stderr)\nsys.stdout.write('c')"
    result = await runner.run(code, lang="python")
    assert (result.stdout, result.stderr, result.value) == ("a 1!c", "b\n", 1)


async def test_exit_with_zero_is_no_failure(runner: ScriptRunner) -> None:
    result = await runner.run("print('x')\nraise SystemExit", lang="python")
    assert (result.outcome, result.value, result.stdout) == ("ok", None, "x\n")


async def test_tools_have_every_name_that_code_may_use_for_them(runner: ScriptRunner) -> None:
    code = (
        "[echo(n=1), echo({'n': 2}), tools.echo(n=3), tool('echo', n=4), fetch_metrics(n=5), tools['fetch-metrics'](n=6), "
        "tools.docs.search(n=7), docs_search(n=8), echo()]"
    )
    result = await runner.run(code, lang="python", tools=TOOLS, call_tool=call_tool)
    assert result.value == [{"n": n} for n in range(1, 9)] + [{}]
    assert len(result.tool_calls) == 9


async def test_fetch_is_the_hosts(runner: ScriptRunner) -> None:
    seen: list[FetchCall] = []

    async def fetch(call: FetchCall) -> FetchAnswer:
        seen.append(call)
        return FetchAnswer(200, (("X-A", "b"),), b'{"n": 1}', call.url)

    code = "r = fetch('https://a.test/', method='POST', headers={'k': 'v'}, json={'q': 1})\n[r.status, r.ok, r.headers['x-a'], r.json()]"
    result = await runner.run(code, lang="python", fetch=fetch)
    assert result.value == [200, True, "b", {"n": 1}]
    headers = (("k", "v"), ("content-type", "application/json"))
    assert seen == [FetchCall("https://a.test/", "POST", headers, b'{"q": 1}')]


@pytest.mark.promise("sandbox:randomness-is-fresh")
async def test_two_fresh_instances_draw_different_numbers_and_a_seed_repeats_them(
    runner: ScriptRunner,
) -> None:
    code = "import random, uuid, secrets, os\n[random.random(), str(uuid.uuid4()), secrets.token_hex(4), os.urandom(4).hex()]"
    first, second = [(await runner.run(code, lang="python")).value for _ in range(2)]
    assert isinstance(first, list) and isinstance(second, list)
    assert all(a != b for a, b in zip(first, second, strict=True))
    seeded = [(await runner.run(code, lang="python", seed=bytes(range(16)))).value for _ in range(2)]
    assert seeded[0] == seeded[1]


@pytest.mark.promise("sandbox:no-clock-unless-granted")
async def test_the_clock_is_there_when_granted(runner: ScriptRunner) -> None:
    code = "import time, datetime\n[time.time() > 1.7e9, datetime.datetime.now().year > 2023, datetime.date.today().year > 2023, time.strftime('%Y') > '2023']"
    assert (await runner.run(code, lang="python", clock=True)).value == [True] * 4
    denied = await runner.run("import time\ntime.time()", lang="python")
    assert denied.error is not None and "clock is not granted" in denied.error.message


@pytest.mark.promise("sandbox:fresh-per-script")
async def test_nothing_is_left_for_the_next_script(runner: ScriptRunner) -> None:
    await runner.run("import builtins, json\nbuiltins.len = None\njson.dumps = None\nx = 1", lang="python")
    result = await runner.run("import json\n[len([1]), json.dumps(1), 'x' in globals()]", lang="python")
    assert result.value == [1, "1", False]
