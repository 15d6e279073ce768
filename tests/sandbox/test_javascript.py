"""What a JavaScript script is given, and what becomes of it."""

from __future__ import annotations

import pytest

from fumehood.sandbox import (
    FetchAnswer,
    FetchCall,
    Limits,
    ScriptError,
    ScriptRunner,
    ToolAnswer,
    ToolCall,
    ToolSignature,
)
from tests.sandbox.conftest import TOOLS, call_tool

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("input.a + 1", 42),
        ("return input.a", 41),
        ("const x = 5; x * 2", 10),
        ("await Promise.resolve(7)", 7),
        ("(async () => 8)()", 8),
        ("const f = async () => { return await 9 };\nawait f()", 9),
        ("undefined", None),
        ("", None),
        ("let a = 1;", None),
        ("({ a: undefined, b: () => 1, c: NaN, d: -0 })", {"c": None, "d": 0}),
        ("new Date(0).toISOString()", "1970-01-01T00:00:00.000Z"),
        ("[1, [2, { three: '3' }], null, true]", [1, [2, {"three": "3"}], None, True]),
        ("if (input.a > 1) { return 'big' }\nreturn 'small'", "big"),
        ("'\\ud800'", "\ud800"),
    ],
)
async def test_the_value_is_that_of_the_last_expression(
    runner: ScriptRunner, code: str, value: object
) -> None:
    result = await runner.run(code, input={"a": 41})
    assert (result.outcome, result.reason, result.value) == ("ok", None, value)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("let a = 1;\nfoo.bar", ("ReferenceError", "foo is not defined", 2, 1)),
        ("let x = ;", ("SyntaxError", "unexpected token in expression: ';'", 1, 9)),
        ("function f() {\n  throw new TypeError('no')\n}\nf()", ("TypeError", "no", 2, 13)),
        ("await 0;\nnull.x", ("TypeError", "cannot read property 'x' of null", 2, 1)),
        ("return null.x", ("TypeError", "cannot read property 'x' of null", 1, 1)),
        ("throw 5", ("Error", "5", None, None)),
        ("throw { code: 7 }", ("Error", '{"code":7}', None, None)),
        ("10n", ("TypeError", "BigInt are forbidden in JSON.stringify", None, None)),
        (
            "await new Promise(() => {})",
            ("Deadlock", "the script waits for a promise that nothing can settle", None, None),
        ),
    ],
)
async def test_an_error_has_its_place_in_the_script(
    runner: ScriptRunner, code: str, error: tuple[str, str, int | None, int | None]
) -> None:
    result = await runner.run(code)
    found = result.error
    assert found is not None
    assert (result.outcome, result.reason) == ("tool_error", None)
    assert (found.type, found.message, found.line, found.column) == error


def test_an_error_reads_as_one_line() -> None:
    assert str(ScriptError("TypeError", "no", 2, 22)) == "TypeError: no (line 2, column 22)"


async def test_the_console_is_captured_and_reads_like_node(runner: ScriptRunner) -> None:
    code = """
    console.log('text', 1, -0, 10n, null, undefined, true, Symbol('s'));
    console.log({ a: [1, 'x', { b: null }], 'odd key': 1 }, [], {}, [undefined, ,]);
    console.log(new Map([['k', 1]]), new Set([1]), /a+/g, new Date(0), function f() {}, class K {});
    const cyclic = {}; cyclic.me = cyclic; console.log(cyclic);
    console.error('to stderr');
    console.warn('too'); console.info('and'); console.assert(1 === 2, 'off');
    """
    result = await runner.run(code)
    assert result.outcome == "ok"
    assert result.stdout.splitlines() == [
        "text 1 -0 10n null undefined true Symbol(s)",
        "{ a: [ 1, 'x', { b: null } ], 'odd key': 1 } [] {} [ undefined, <empty> ]",
        "Map(1) { 'k' => 1 } Set(1) { 1 } /a+/g 1970-01-01T00:00:00.000Z [Function: f] [Function: K]",
        "{ me: [Circular] }",
        "and",
    ]
    assert result.stderr.splitlines() == ["to stderr", "too", "Assertion failed: off"]


async def test_tools_have_every_name_that_code_may_use_for_them(runner: ScriptRunner) -> None:
    code = """[await echo({ n: 1 }), await tools.echo({ n: 2 }), await tool('echo', { n: 3 }),
      await fetch_metrics({ n: 4 }), await tools['fetch-metrics']({ n: 5 }),
      await tools.docs.search({ n: 6 }), await docs_search({ n: 7 }), await echo()]"""
    result = await runner.run(code, tools=TOOLS, call_tool=call_tool)
    assert result.value == [{"n": n} for n in range(1, 8)] + [{}]
    assert [c.name for c in result.tool_calls] == [
        "echo", "echo", "echo", "fetch-metrics", "fetch-metrics", "docs.search", "docs.search", "echo",
    ]  # fmt: skip


@pytest.mark.promise("sandbox:calls-are-always-listed")
async def test_calls_are_listed_with_what_became_of_them(runner: ScriptRunner) -> None:
    async def tools(name: str, args: object) -> object:
        if name == "slow":
            return ToolAnswer(1, taint="tool:slow example.org", call_id="c7")
        return await call_tool(name, args)

    code = "await slow({ a: 1 }); try { await broken({}) } catch {} ; never({}); await echo(3); for (;;);"
    result = await runner.run(code, tools=TOOLS, call_tool=tools, limits=Limits(wall_s=0.3))
    calls = [ToolCall(c.name, c.outcome, c.args, c.reason, c.message, c.call_id) for c in result.tool_calls]
    assert (result.outcome, result.reason) == ("limit", "timeout")
    assert calls == [
        ToolCall("slow", "ok", {"a": 1}, call_id="c7"),
        ToolCall("broken", "error", {}, message="the tool failed"),
        ToolCall("never", "ok", {}),
        ToolCall("echo", "ok", 3),
    ]
    assert result.tainted == ("tool:slow example.org",)


async def test_calls_run_at_the_same_time(runner: ScriptRunner) -> None:
    import asyncio

    both = asyncio.Barrier(2)

    async def tools(name: str, args: object) -> object:
        await both.wait()  # passes only when two calls are in it at once
        return args

    result = await runner.run("await Promise.all([echo(1), echo(2)])", tools=TOOLS, call_tool=tools)
    assert result.value == [1, 2]


async def test_fetch_exists_only_with_a_grant_and_is_the_hosts(runner: ScriptRunner) -> None:
    seen: list[FetchCall] = []

    async def fetch(call: FetchCall) -> FetchAnswer:
        seen.append(call)
        return FetchAnswer(
            201, (("X-A", "b"),), b"\xff\x00" if "raw" in call.url else b'{"n": 1}', call.url, "fetch:a.test"
        )

    code = """const r = await fetch('https://a.test/', { method: 'POST', headers: { k: 'v' }, body: 'text' });
      const raw = await fetch('https://a.test/raw');
      [r.status, r.ok, r.headers.get('x-a'), (await r.json()).n, [...await raw.bytes()]]"""
    result = await runner.run(code, fetch=fetch)
    assert result.value == [201, True, "b", 1, [255, 0]]
    assert seen == [
        FetchCall("https://a.test/", "POST", (("k", "v"),), b"text"),
        FetchCall("https://a.test/raw", "GET", (), b""),
    ]
    assert result.tainted == ("fetch:a.test",)
    assert (await runner.run("typeof fetch")).value == "undefined"


@pytest.mark.promise("sandbox:randomness-is-fresh")
async def test_two_fresh_instances_draw_different_numbers_and_a_seed_repeats_them(
    either: ScriptRunner,
) -> None:
    code = "[Math.random(), Math.random()]"
    first, second = [(await either.run(code)).value for _ in range(2)]
    assert first != second
    seeded = [(await either.run(code, seed=bytes(range(16)))).value for _ in range(2)]
    assert seeded[0] == seeded[1]


@pytest.mark.promise("sandbox:no-clock-unless-granted")
async def test_the_clock_is_there_when_granted(either: ScriptRunner) -> None:
    denied = await either.run("try { new Date() } catch (e) { e.message }")
    assert denied.value == "the clock is not granted to this script"
    granted = await either.run(
        "[Date.now() > 1.7e12, new Date().getFullYear() > 2023, typeof Date()]", clock=True
    )
    assert granted.value == [True, True, "string"]


@pytest.mark.promise("sandbox:fresh-per-script")
@pytest.mark.requirement("R016")
async def test_nothing_is_left_for_the_next_script(either: ScriptRunner) -> None:
    await either.run(
        "globalThis.x = 1; Array.prototype.push = null; JSON.stringify = null; Object.prototype.y = 2"
    )
    result = await either.run("[typeof x, typeof [].push, typeof JSON.stringify, ({}).y === undefined]")
    assert result.value == ["undefined", "function", "function", True]


@pytest.mark.requirement("R481")
async def test_a_fuel_budget_is_the_same_every_time(runner: ScriptRunner) -> None:
    code = "let s = 0; for (let i = 0; i < 1000; i++) s += i; s"
    used = [
        (await runner.run(code, limits=Limits(fuel=10**9), seed=bytes(16))).usage["fuel"] for _ in range(3)
    ]
    assert used[0] == used[1] == used[2] > 0
    over = await runner.run(code, limits=Limits(fuel=int(used[0]) // 2), seed=bytes(16))
    assert (over.outcome, over.reason) == ("limit", "cpu")


@pytest.mark.requirement("R481")
async def test_a_smaller_stack_is_reached_sooner(runner: ScriptRunner) -> None:
    code = "let n = 0; try { (function f() { n++; f() })() } catch {} n"
    small = await runner.run(code, limits=Limits(stack=64 << 10))
    usual = await runner.run(code)
    assert isinstance(small.value, int) and isinstance(usual.value, int)
    assert 10 < small.value < usual.value


async def test_a_script_or_input_past_its_cap_is_denied_before_anything_starts(runner: ScriptRunner) -> None:
    long = await runner.run(" " * (5 << 20))
    large = await runner.run("1", input="x" * 2000, limits=Limits(bridge_bytes=1000))
    assert [(r.outcome, r.reason) for r in (long, large)] == [("denied", "oversized-input")] * 2


async def test_signatures_of_tools_do_not_limit_what_the_host_checks() -> None:
    async with ScriptRunner(workers=1) as runner:
        result = await runner.run(
            "await echo({ any: 1 })", tools={"echo": ToolSignature("echo")}, call_tool=call_tool
        )
    assert result.value == {"any": 1}


async def test_a_tool_and_a_group_of_tools_may_share_a_name(runner: ScriptRunner) -> None:
    for names in (("docs", "docs.search"), ("docs.search", "docs")):
        result = await runner.run(
            "[await tools.docs(1), await tools['docs.search'](2)]",
            tools={name: ToolSignature(name) for name in names},
            call_tool=call_tool,
        )
        assert result.value == [1, 2], (names, result.error)
