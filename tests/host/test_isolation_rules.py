"""The first rules of isolation (R001 to R015), each held by a call through a Host."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fumehood import Host, load_config
from fumehood.agent import EventLog
from tests.broker.world import PUBLIC, World

pytestmark = pytest.mark.anyio

IGNORES_EVERYTHING = """
import os, signal, time

def run(input, ctx):
    for number in range(1, 65):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
    if os.fork() == 0:
        os.execvp("sleep", ["sleep", input])
    while True:
        time.sleep(60)
"""


def configured(tmp_path: Path, text: str, source: str, host: str = "") -> Path:
    (tmp_path / "tool.py").write_text(source, encoding="utf-8")
    path = tmp_path / "fumehood.toml"
    path.write_text(f'version = 1\n[host]\nstate = "state"\n{host}{text}', encoding="utf-8")
    return path


@pytest.mark.requirement("R001")
async def test_a_call_runs_in_a_process_that_was_made_and_had_imported_the_tool_before_it(
    tmp_path: Path,
) -> None:
    source = (
        "import os, time\nIMPORTED = time.monotonic()\n"
        "def run(input, ctx):\n    return [IMPORTED, os.readlink('/proc/self/ns/pid')]\n"
    )
    path = configured(tmp_path, '[tools.t]\nmodule = "tool.py"\n', source)
    async with Host(load_config(path)) as host:
        first = await host.call("t", None)
        while not host.isolator.parked("t"):
            await asyncio.sleep(0.01)
        (spare,) = host.isolator.parked("t")
        its_own = os.readlink(f"/proc/{spare}/ns/pid")
        asked = time.monotonic()
        second = await host.call("t", None)
    imported, seen = second.value
    assert imported < asked and first.value[0] < imported
    assert seen == its_own != os.readlink("/proc/self/ns/pid")
    assert "tool" not in sys.modules, "the host never imports it"


@pytest.mark.requirement("R002")
@pytest.mark.promise("host:checked-before-a-process")
async def test_the_input_is_checked_before_any_process_of_the_tool_exists(tmp_path: Path) -> None:
    path = configured(
        tmp_path,
        '[tools.t]\nmodule = "tool.py"\ninput_schema = { type = "integer" }\n',
        "def run(input, ctx):\n    return input\n",
    )
    async with Host(load_config(path)) as host:
        refused = await host.call("t", "text")
        assert "tools: 0, children: 0" in repr(host.isolator)
        control = await host.call("t", 1)
        assert "tools: 1" in repr(host.isolator)
    assert (refused.outcome, refused.reason) == ("denied", "input-schema")
    assert (control.outcome, control.value) == ("ok", 1)


@pytest.mark.requirement("R003")
async def test_only_json_crosses_and_a_live_object_does_not(tmp_path: Path) -> None:
    path = configured(tmp_path, '[tools.t]\nmodule = "tool.py"\n', "def run(input, ctx):\n    return 1\n")
    async with Host(load_config(path)) as host:
        for thing in (object(), print, host, {1, 2}, float("nan"), b"bytes"):
            result = await host.call("t", thing)
            assert (result.outcome, result.reason) == ("denied", "input-schema"), thing


@pytest.mark.requirement("R004")
async def test_ctx_is_a_shim_of_messages_with_nothing_of_the_host(tmp_path: Path) -> None:
    source = (
        "async def run(input, ctx):\n"
        "    return [sorted(n for n in dir(ctx) if not n.startswith('_')), ctx.tool, ctx.call_id, ctx.tmp]\n"
    )
    path = configured(tmp_path, '[tools.t]\nmodule = "tool.py"\n', source)
    async with Host(load_config(path)) as host:
        result = await host.call("t", None)
    names = ["call_id", "emit", "fetch", "log", "put", "tmp", "tool"]
    assert result.value == [names, "t", result.call_id, "/tmp"]


@pytest.mark.requirement("R008")
@pytest.mark.promise("host:deadline-needs-no-help")
async def test_a_tool_that_ignores_everything_is_gone_with_its_children_at_the_deadline(
    tmp_path: Path,
) -> None:
    seconds = str(1_000_000 + os.getpid())  # a command line that nobody else has
    path = configured(tmp_path, '[tools.t]\nmodule = "tool.py"\ntimeout_s = 0.5\n', IGNORES_EVERYTHING)
    async with Host(load_config(path)) as host:
        result = await host.call("t", seconds)
        left = subprocess.run(["pgrep", "-f", f"sleep {seconds}"], capture_output=True, text=True).stdout
    assert (result.outcome, result.reason) == ("limit", "timeout")
    assert left == ""


@pytest.mark.requirement("R011")
@pytest.mark.requirement("R480")
async def test_ctx_fetch_gives_the_body_as_text_and_refusals_as_errors_with_a_reason(
    tmp_path: Path, world: World
) -> None:
    world.serve(80)
    dns = world.name({"*": [PUBLIC]})
    source = (
        "async def run(input, ctx):\n"
        "    reply = await ctx.fetch('http://api.example.com/x')\n"
        "    try:\n"
        "        await ctx.fetch('http://evil.test/')\n"
        "    except Exception as error:\n"
        "        return [reply.status, type(reply.text).__name__, type(error).__name__, error.reason,\n"
        "                reply.headers['content-type'], reply.headers.get('Content-Type'),\n"
        "                'CONTENT-TYPE' in reply.headers, reply.headers.get('Missing', 'none'),\n"
        "                sorted(reply.headers)[1:2]]\n"
    )
    path = configured(
        tmp_path,
        '[tools.t]\nmodule = "tool.py"\negress = ["http://api.example.com"]\n',
        source,
        host=f'nameservers = ["{dns.address[0]}:{dns.address[1]}"]\n',
    )
    async with Host(load_config(path), dial=world.dial) as host:
        result = await host.call("t", None)
    assert result.value[:4] == [200, "str", "EgressDenied", "not-listed"], result.error
    assert result.value[4:] == [*["application/json"] * 2, True, "none", ["content-type"]]
    assert result.tainted == {"origin": "tool:t api.example.com"}, (
        "the host it reached, and none it was refused"
    )


async def test_a_tool_without_egress_is_told_so_by_the_errors_of_its_sockets(tmp_path: Path) -> None:
    source = (
        "import errno, socket\n"
        "def run(input, ctx):\n"
        "    said = []\n"
        "    for host in ('api.example.com', '93.184.216.34', '127.0.0.1'):\n"
        "        try:\n            socket.create_connection((host, 443), 5)\n"
        "        except OSError as error:\n"
        "            said.append([type(error).__name__, str(error)])\n"
        "    return said\n"
    )
    tools = (
        '[tools.none]\nmodule = "tool.py"\n[tools.has]\nmodule = "tool.py"\negress = ["a.example.com:99"]\n'
    )
    path = configured(tmp_path, tools, source)
    async with Host(load_config(path)) as host:
        none, has = (await host.call("none", None)).value, (await host.call("has", None)).value
    why = ": this tool has no `egress`, and so no network"
    assert [kind for kind, _ in none] == ["gaierror", *[none[1][0]] * 2]
    assert none[1][0] in ("PermissionError", "OSError"), "by Landlock, or by a network of nothing"
    assert [text.endswith(why) for _, text in none] == [True] * 3, none
    assert [text.endswith(why) for _, text in has] == [False] * 3, (
        "the control: its refusals are the broker's"
    )


@pytest.mark.requirement("R015")
async def test_a_script_calls_the_tools_it_was_granted_and_no_other_configured_one(tmp_path: Path) -> None:
    path = configured(
        tmp_path,
        '[tools.granted]\nmodule = "tool.py"\n[tools.other]\nmodule = "tool.py"\n',
        "def run(input, ctx):\n    return ctx.tool\n",
    )
    async with Host(load_config(path)) as host:
        granted = await host.eval("await tool('granted', null)", tools=["granted"])
        other = await host.eval("await tool('other', null)", tools=["granted"])
        started = [row.data for row in host.log.events() if row.kind == "CALL_STARTED"]
    assert (granted.outcome, granted.value) == ("ok", "granted")
    assert other.outcome == "tool_error"
    assert [row for row in started if isinstance(row, dict) and row["tool"] == "other"] == []
    assert [row for row in started if isinstance(row, dict) and row["tool"] == "granted"] != []


@pytest.mark.parametrize("script", [False, True])
async def test_a_call_whose_caller_goes_away_has_an_end_on_the_log(tmp_path: Path, script: bool) -> None:
    path = configured(
        tmp_path,
        '[tools.t]\nmodule = "tool.py"\n',
        "import time\n\ndef run(input, ctx):\n    ctx.emit('WAITING', {})\n    time.sleep(30)\n",
    )
    async with Host(load_config(path)) as host:
        work = host.eval("await tool('t', null)", tools=["t"]) if script else host.call("t", None)
        running = asyncio.ensure_future(work)
        while not any(row.kind == "TOOL_EVENT" for row in host.log.events()):
            await asyncio.sleep(0.01)
            assert not running.done()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    # Read afterwards: the tool that a cancelled script had called ends a moment later.
    with EventLog(path.parent / "state" / "events.sqlite3") as log:
        rows = [(row.kind, row.data) for row in log.events()]
    ends = [data for kind, data in rows if kind == "CALL_ENDED"]
    started = [data for kind, data in rows if kind == "CALL_STARTED"]
    assert len(started) == len(ends) == (2 if script else 1)
    assert {data["reason"] for data in ends if isinstance(data, dict)} == {"cancelled"}
