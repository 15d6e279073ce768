"""The Host as a program uses it: real children, the real log, the real store."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fumehood import Host, RunScript, load_config, media_result
from fumehood.agent._results import MEDIA_RESULT_KEY
from fumehood.policies.errors import ConfigError

pytestmark = pytest.mark.anyio

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Write a configuration and its tool files; returns the path of the file."""

    def write(text: str, **files: str) -> Path:
        (tmp_path / "tools").mkdir(exist_ok=True)
        for name, source in files.items():
            (tmp_path / "tools" / name.replace("__", ".")).write_text(source, encoding="utf-8")
        path = tmp_path / "fumehood.toml"
        path.write_text(f'version = 1\n[host]\nstate = "state"\n{text}', encoding="utf-8")
        return path

    return write


def kinds(host: Host, call_id: str) -> list[str]:
    return [event.kind for event in host.log.events(call_id=call_id)]


@pytest.mark.requirement("R010")
@pytest.mark.promise("host:events-before-the-result")
async def test_events_are_on_record_in_order_before_the_call_ends(make: Make) -> None:
    path = make(
        '[tools.t]\nmodule = "tools/t.py"\n',
        t__py="def run(input, ctx):\n    for n in range(5):\n        ctx.emit('N', n)\n    return 'done'\n",
    )
    async with Host(load_config(path)) as host:
        result = await host.call("t", None)
        rows = list(host.log.events(call_id=result.call_id))
    assert result.events == [{"kind": "N", "data": n} for n in range(5)]
    assert [row.kind for row in rows] == ["CALL_STARTED", *["TOOL_EVENT"] * 5, "CALL_ENDED"]
    assert [row.data["data"] for row in rows[1:6]] == [0, 1, 2, 3, 4]  # type: ignore[index]


async def test_a_result_reads_like_the_object_that_the_command_line_prints(make: Make) -> None:
    source = "def run(input, ctx):\n    ctx.emit('N', 1)\n    print('said')\n    return [1]\n"
    path = make('[tools.t]\nmodule = "tools/t.py"\ntaint = "always"\n', t__py=source)
    async with Host(load_config(path)) as host:
        done, refused = await host.call("t", None, execution_id="e"), await host.call("no-such-tool")
    for result in (done, refused):
        shown = result.to_json()
        assert json.loads(json.dumps(shown)) == shown
        assert {name: getattr(result, name) for name in shown} == shown
    assert (done.enforcement["tier"], done.enforcement.tier) == ("namespaces", "namespaces")
    assert done.enforcement["layers"] == done.layers == done.enforcement.layers
    assert sorted(done.usage) == ["cpu_ms", "max_rss_bytes", "wall_ms"]
    assert done.usage["wall_ms"] == done.usage.wall_ms > 0
    with pytest.raises(KeyError):
        done.usage["no such figure"]


@pytest.mark.requirement("R006")
@pytest.mark.promise("host:secret-only-to-its-tool")
async def test_a_secret_reaches_its_tool_alone_and_never_the_log(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_OF_IT", "s3cr3t-of-a-test")
    source = (
        "import os\nSEEN_AT_IMPORT = os.environ.get('TOKEN')\n"
        "def run(input, ctx):\n"
        "    ctx.emit('LEAK', {'token': os.environ.get('TOKEN')})\n"
        "    ctx.log('token ' + str(os.environ.get('TOKEN')))\n"
        "    return [dict(os.environ), SEEN_AT_IMPORT, open('/proc/self/environ').read()]\n"
    )
    path = make(
        '[secrets]\nTOKEN = { env = "SOURCE_OF_IT" }\n'
        '[tools.has]\nmodule = "tools/t.py"\nenv = { TOKEN = { secret = "TOKEN" }, LANG = "C.UTF-8" }\n'
        '[tools.other]\nmodule = "tools/t.py"\n',
        t__py=source,
    )
    async with Host(load_config(path)) as host:
        has = await host.call("has", None)
        other = await host.call("other", None)
    default = other.value[0]["PATH"]
    assert has.value[0] == {"PATH": default, "TOKEN": "s3cr3t-of-a-test", "LANG": "C.UTF-8"}
    assert has.value[1] is None, "credentials come with the call, after the import"
    assert other.value[0] == {"PATH": default}
    assert "s3cr3t" not in has.value[2] and "SOURCE" not in has.value[2]
    for file in (path.parent / "state").iterdir():
        if file.is_file():
            assert b"s3cr3t-of-a-test" not in file.read_bytes(), file


async def test_a_module_that_reads_its_secret_while_it_is_imported_is_imported_again(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_OF_IT", "late")
    path = make(
        '[secrets]\nTOKEN = { env = "SOURCE_OF_IT" }\n'
        '[tools.t]\nmodule = "tools/t.py"\nenv = { TOKEN = { secret = "TOKEN" } }\n',
        t__py="import os\nTOKEN = os.environ['TOKEN']\ndef run(input, ctx):\n    return len(TOKEN)\n",
    )
    async with Host(load_config(path)) as host:
        result = await host.call("t", None)
    assert (result.outcome, result.value) == ("ok", 4)


@pytest.mark.promise("host:reuse-is-keyed")
async def test_reuse_keeps_a_process_for_one_principal_and_environment_and_a_fresh_one_is_the_rule(
    make: Make,
) -> None:
    source = "N = 0\ndef run(input, ctx):\n    global N\n    N += 1\n    return N\n"
    path = make(
        '[tools.kept]\nmodule = "tools/t.py"\nreuse = true\n[tools.fresh]\nmodule = "tools/t.py"\n',
        t__py=source,
    )
    async with Host(load_config(path)) as host:
        kept = [(await host.call("kept", None, principal=who)).value for who in ("a", "a", "b", "a", None)]
        fresh = [(await host.call("fresh", None, principal="a")).value for _ in range(3)]
    assert kept == [1, 2, 1, 3, 1]
    assert fresh == [1, 1, 1]


async def test_a_changed_file_holds_from_the_next_call_on_and_a_running_call_ends_on_the_old_code(
    make: Make,
) -> None:
    source = (
        "import time\ndef run(input, ctx):\n    ctx.emit('UP')\n    time.sleep(input)\n    return 'old'\n"
    )
    path = make('[tools.t]\nmodule = "tools/t.py"\n', t__py=source)
    async with Host(load_config(path), spares=2) as host:
        running = asyncio.create_task(host.call("t", 0.5, execution_id="one"))
        while not any(row.kind == "TOOL_EVENT" for row in host.log.events(execution_id="one")):
            await asyncio.sleep(0.01)
        make('[tools.t]\nmodule = "tools/t.py"\n', t__py=source.replace("old", "new!"))
        assert (await host.call("t", 0)).value == "new!"
        assert (await running).value == "old"


@pytest.mark.promise("host:refusals-are-on-record")
async def test_what_is_refused_before_it_starts_is_on_record_with_its_reason(make: Make) -> None:
    path = make(
        '[tools.t]\nmodule = "tools/t.py"\ninput_schema = { type = "object", required = ["a"] }\n',
        t__py="def run(input, ctx):\n    return input\n",
    )
    async with Host(load_config(path)) as host:
        found = [
            await host.call("nobody", {}),
            await host.call("t", {"b": 1}),
            await host.call("t", {"a": "x" * (9 << 20)}),
        ]
        recorded = [kinds(host, result.call_id) for result in found]
    assert [(result.outcome, result.reason) for result in found] == [
        ("denied", "unknown-tool"),
        ("denied", "input-schema"),
        ("denied", "oversized-input"),
    ]
    assert recorded == [["CALL_STARTED", "CALL_ENDED"]] * 3


async def test_calls_past_the_queue_are_refused_as_busy_and_the_others_run(make: Make) -> None:
    path = make(
        "max_parallel = 1\nqueue_limit = 1\n[tools.t]\nmodule = 'tools/t.py'\n",
        t__py="import time\ndef run(input, ctx):\n    time.sleep(0.3)\n    return 1\n",
    )
    async with Host(load_config(path)) as host:
        results = await asyncio.gather(*(host.call("t", None) for _ in range(4)))
    assert sorted((r.outcome, r.reason or "") for r in results) == [
        ("denied", "busy"),
        ("denied", "busy"),
        ("ok", ""),
        ("ok", ""),
    ]


@pytest.mark.promise("host:refused-calls-are-named")
async def test_a_refused_system_call_is_named_in_the_result_and_on_record(make: Make) -> None:
    source = "import ctypes\ndef run(input, ctx):\n    return ctypes.CDLL(None).unshare(0x10000000)\n"
    path = make('[tools.t]\nmodule = "tools/t.py"\n', t__py=source)
    async with Host(load_config(path)) as host:
        result = await host.call("t", None)
        rows = [row for row in host.log.events(call_id=result.call_id) if row.kind == "SANDBOX_VIOLATION"]
    why = "a fresh user namespace brings capabilities back"
    assert result.value == -1
    assert result.violations == [{"syscall": "unshare", "count": 1, "why": why}]
    assert [row.data for row in rows] == [{"tool": "t", "syscall": "unshare", "count": 1, "why": why}]


async def test_a_write_grant_takes_files_that_belong_to_the_folders_owner(make: Make, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    path = make(
        '[tools.t]\nmodule = "tools/t.py"\nwrite = ["out"]\n',
        t__py=f"def run(input, ctx):\n    open({str(tmp_path / 'out' / 'made')!r}, 'w').write('x')\n",
    )
    async with Host(load_config(path)) as host:
        result = await host.call("t", None)
    made = tmp_path / "out" / "made"
    assert (result.outcome, result.error) == ("ok", None)
    assert (made.read_text(), made.stat().st_uid) == ("x", os.getuid())


@pytest.mark.promise("host:state-is-hidden")
async def test_a_tool_beside_the_state_folder_does_not_see_what_is_in_it(make: Make, tmp_path: Path) -> None:
    path = make('[tools.t]\nmodule = "tool.py"\n')
    (tmp_path / "tool.py").write_text("import os\ndef run(input, ctx):\n    return os.listdir(input)\n")
    async with Host(load_config(path)) as host:
        seen = await host.call("t", str(tmp_path / "state"))
        control = os.listdir(tmp_path / "state")
    assert seen.value == []
    assert "events.sqlite3" in control


async def test_cancelling_a_call_ends_its_processes(make: Make) -> None:
    source = "import os, time\ndef run(input, ctx):\n    ctx.emit('UP')\n    time.sleep(1000)\n"
    path = make('[tools.t]\nmodule = "tools/t.py"\n', t__py=source)
    async with Host(load_config(path), spares=0) as host:
        call = asyncio.create_task(host.call("t", None, execution_id="one"))
        while not any(row.kind == "TOOL_EVENT" for row in host.log.events(execution_id="one")):
            await asyncio.sleep(0.01)
        assert "children: 1" in repr(host.isolator)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        while "children: 0" not in repr(host.isolator):
            await asyncio.sleep(0.01)


@pytest.mark.requirement("R102")
async def test_a_tool_imports_media_result_inside_its_cage_and_nothing_else_of_the_host(make: Make) -> None:
    source = (
        "from fumehood import media_result\n"
        "async def run(input, ctx):\n"
        "    if input:\n        from fumehood import Host\n"
        "    ref = await ctx.put(bytes.fromhex('89504e470d0a1a0a') + bytes(8), 'image/png')\n"
        "    shown = {'type': 'image', 'media_type': 'image/png', 'source': {'kind': 'ref', 'ref': ref}}\n"
        "    return media_result(['a caption', shown])\n"
    )
    path = make('[tools.t]\nmodule = "tools/t.py"\nreturns_media = true\n', t__py=source)
    async with Host(load_config(path)) as host:
        result, failed = await host.call("t", False), await host.call("t", True)
    assert result.parts is not None, result.error
    caption, picture = result.parts
    assert (caption, picture["source"]["ref"]["size"]) == ({"type": "text", "text": "a caption"}, 16)
    assert result.value == media_result([caption, picture]), "as the host's own function writes it"
    assert failed.error is not None and failed.error["message"] == (
        "of fumehood a tool can import media_result, and 'Host' is the host's"
    )


@pytest.mark.requirement("R103")
@pytest.mark.promise("host:media-only-when-declared")
async def test_media_is_read_only_from_a_declared_tool_and_while_untainted(make: Make) -> None:
    source = (
        "import base64\nPNG = base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
        "YPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==')\n"
        "async def run(input, ctx):\n"
        "    ref = await ctx.put(PNG, 'image/png')\n"
        "    source = {'kind': 'ref', 'ref': ref}\n"
        "    return {'__media_result__': [{'type': 'image', 'media_type': 'image/png', 'source': source}]}\n"
    ).replace("__media_result__", MEDIA_RESULT_KEY)
    tools = "".join(
        f'[tools.{name}]\nmodule = "tools/t.py"\n{lines}'
        for name, lines in (
            ("declared", "returns_media = true\n"),
            ("plain", ""),
            ("tainted", 'returns_media = true\ntaint = "always"\n'),
        )
    )
    async with Host(load_config(make(tools, t__py=source))) as host:
        declared, plain, tainted = [await host.call(name, None) for name in ("declared", "plain", "tainted")]
    assert declared.parts is not None and [part["type"] for part in declared.parts] == ["image"]
    assert (plain.parts, tainted.parts) == (None, None)
    assert plain.value == tainted.value == declared.value


# -- scripts -------------------------------------------------------------------------------------------------


@pytest.fixture
def scripts(make: Make) -> Path:
    return make(
        '[tools.upper]\ncommand = ["tr", "a-z", "A-Z"]\ndescription = "Upper case"\n'
        '[tools.double]\nscript = "tools/double.js"\ntimeout_s = 5\n',
        double__js="input * 2",
    )


@pytest.mark.requirement("R016")
@pytest.mark.promise("host:scripts-in-cages")
async def test_a_script_runs_in_a_caged_worker_with_the_tools_it_was_granted(scripts: Path) -> None:
    async with Host(load_config(scripts)) as host:
        result = await host.eval("(await tool('upper', {a: input})).A", input="x", tools=["upper"])
        inner: Any = result.events[0]["data"]
        recorded = kinds(host, inner["call_id"])
    assert (result.outcome, result.value, result.tier) == ("ok", "X", "namespaces")
    assert {layer: level for layer, level in result.layers.items() if level != "FULL"} == {}
    assert (inner["tool"], inner["outcome"]) == ("upper", "ok")
    assert recorded == ["CALL_STARTED", "CALL_ENDED"], "a script's tool call is an ordinary call"


async def test_a_script_without_rules_has_no_fetch_and_with_rules_the_brokers(scripts: Path) -> None:
    async with Host(load_config(scripts)) as host:
        without = await host.eval("typeof fetch")
        refused = await host.eval("await fetch('https://evil.test/')", allow=["api.example.com"])
    assert without.value == "undefined"
    assert refused.outcome == "tool_error"
    assert [(row["host"], row["reason"]) for row in refused.egress] == [("evil.test", "not-listed")]


async def test_run_script_is_offered_to_a_model_and_does_what_it_says(scripts: Path) -> None:
    async with Host(load_config(scripts)) as host:
        run_script = RunScript(host, ["upper"], languages=("js", "python"), allow=["api.example.com"])
        offered = str(run_script.definition["description"])
        code = "const one = await upper({a: input}); one.A + (typeof fetch)"
        done = await run_script.call({"language": "js", "code": code, "input": "x"}, execution_id="e")
        wrong = await run_script.call({"language": "perl", "code": "1"}, execution_id="e")
        rows: list[Any] = [event.data for event in host.log.events("e") if event.kind == "CALL_STARTED"]
    assert "declare function upper(" in offered and "def upper(" in offered and "fetch" in offered
    assert (done.outcome, done.value) == ("ok", "Xfunction")
    assert (wrong.outcome, wrong.reason) == ("denied", "input-schema")
    assert wrong.error is not None and "language" in wrong.error["message"]
    assert [row["tool"] for row in rows] == ["script", "upper", "run_script"]


async def test_run_script_grants_only_tools_that_are_configured(scripts: Path) -> None:
    async with Host(load_config(scripts)) as host:
        with pytest.raises(ConfigError, match="no tool 'lower' to grant"):
            RunScript(host, ["lower"])


async def test_a_script_file_is_a_tool_like_any_other(scripts: Path) -> None:
    async with Host(load_config(scripts)) as host:
        result = await host.call("double", 21)
    assert (result.outcome, result.value, result.tool) == ("ok", 42, "double")


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda path: path.write_bytes(b"\xff"), "UnicodeDecodeError"),
        (lambda path: path.unlink(), "FileNotFoundError"),
    ],
    ids=["no UTF-8", "gone"],
)
async def test_a_script_file_that_cannot_be_read_is_a_result(
    scripts: Path, damage: Callable[[Path], object], error: str
) -> None:
    async with Host(load_config(scripts)) as host:
        damage(scripts.parent / "tools" / "double.js")
        result = await host.call("double", 21)
        recorded = kinds(host, result.call_id)
    assert (result.outcome, result.reason, (result.error or {})["type"]) == ("sandbox_error", "start", error)
    assert recorded == ["CALL_STARTED", "CALL_ENDED"]


@pytest.mark.parametrize(
    "wrong", [{"tools": ["none"]}, {"lang": "ruby"}, {"input": float("nan")}, {"input": b"x"}], ids=str
)
async def test_a_script_that_cannot_be_meant_is_an_error_and_no_open_call(
    scripts: Path, wrong: dict[str, Any]
) -> None:
    async with Host(load_config(scripts)) as host:
        with pytest.raises(ConfigError):
            await host.eval("1", execution_id="e", **wrong)
        found = [event.kind for event in host.log.events(execution_id="e")]
    assert found in ([], ["CALL_STARTED", "CALL_ENDED"])


async def test_a_session_is_of_one_execution_and_principal_whatever_their_names(scripts: Path) -> None:
    async with Host(load_config(scripts)) as host:
        await host.eval("var a = 1", execution_id="e", principal="p", session="q\0s")
        others = [("e", "p\0q", "s"), ("e\0p", "q", "s"), ("e", None, "q\0s"), ("e", "", "q\0s")]
        for execution, principal, session in others:
            result = await host.eval(
                "typeof a; ", execution_id=execution, principal=principal, session=session
            )
            assert result.value == "undefined", (execution, principal, session)
        kept = await host.eval("a", execution_id="e", principal="p", session="q\0s")
    assert kept.value == 1


async def test_a_script_that_never_ends_is_stopped_and_the_next_one_runs(scripts: Path) -> None:
    from fumehood.sandbox import Limits

    async with Host(load_config(scripts)) as host:
        endless = await host.eval("for (;;) {}", limits=Limits(wall_s=0.3))
        after = await host.eval("1 + 1")
    assert (endless.outcome, endless.reason) == ("limit", "timeout")
    assert after.value == 2


async def test_a_package_beside_the_tool_that_changes_is_seen_by_the_next_call(make: Make) -> None:
    text = '[tools.t]\nmodule = "tools/t.py"\n'
    path = make(text, t__py="from lib.x import VALUE\n\ndef run(input, ctx):\n    return VALUE\n")
    package = path.parent / "tools" / "lib"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "x.py").write_text("VALUE = 1\n")
    async with Host(load_config(path), spares=2) as host:
        values = [(await host.call("t", None)).value for _ in range(3)]
        (package / "x.py").write_text("VALUE = 22\n")
        values.append((await host.call("t", None)).value)
    assert values == [1, 1, 1, 22]


@pytest.mark.parametrize("name", ["squares", "json"])
async def test_workers_started_by_spawn_find_the_tools_functions(make: Make, name: str) -> None:
    """And a tool named as a module of the standard library takes nobody's place; its workers fork."""
    source = (
        "import json, multiprocessing\n\ndef square(x):\n    return x * x\n\ndef run(input, ctx):\n"
        "    assert json.dumps([1]) == '[1]'\n"
        "    with multiprocessing.get_context(input).Pool(2) as pool:\n"
        "        return pool.map(square, [1, 2, 3])\n"
    )
    path = make(f'[tools.t]\nmodule = "tools/{name}.py"\ntimeout_s = 20\n', **{f"{name}__py": source})
    async with Host(load_config(path)) as host:
        result = await host.call("t", "fork" if name == "json" else "spawn")
    assert (result.outcome, result.value) == ("ok", [1, 4, 9]), (result.error, result.stderr)
