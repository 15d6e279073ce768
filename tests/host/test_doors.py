"""Programs inside a real cage, the broker outside: unmodified clients, through a Host."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from fumehood import Host, load_config
from fumehood.testing.http import Reply, Seen
from tests.broker.world import PUBLIC, World

pytestmark = pytest.mark.anyio


def configured(tmp_path: Path, world: World, tools: str) -> Path:
    dns = world.dns or world.name({"*": [PUBLIC]})
    path = tmp_path / "fumehood.toml"
    path.write_text(
        f'version = 1\n[host]\nstate = "state"\ntrust = "{world.trust}"\n'
        f'nameservers = ["{dns.address[0]}:{dns.address[1]}"]\n{tools}',
        encoding="utf-8",
    )
    return path


@pytest.mark.promise("host:unmodified-clients")
async def test_curl_reaches_the_listed_name_end_to_end_and_no_other(tmp_path: Path, world: World) -> None:
    world.serve(443, lambda seen: Reply(200, b"hello " + (seen.header("host") or "").encode()), tls=True)
    path = configured(
        tmp_path,
        world,
        '[tools.good]\ncommand = ["curl", "-sS", "https://api.example.com/"]\nresult = "text"\n'
        'egress = ["https://api.example.com"]\nread = ["' + str(world.trust) + '"]\n'
        f'env = {{ CURL_CA_BUNDLE = "{world.trust}" }}\n'
        '[tools.evil]\ncommand = ["curl", "-sS", "https://evil.test/"]\nresult = "text"\n'
        'egress = ["https://api.example.com"]\n'
        '[tools.literal]\ncommand = ["curl", "-sS", "-k", "https://93.184.216.34/"]\nresult = "text"\n'
        'egress = ["https://api.example.com"]\n',
    )
    async with Host(load_config(path), dial=world.dial) as host:
        good, evil, literal = [await host.call(name, None) for name in ("good", "evil", "literal")]
        rows = list(host.log.events(call_id=good.call_id))
    assert (good.outcome, good.value) == ("ok", "hello api.example.com"), good.stderr
    assert [(row["host"], row["outcome"], row["pinned"]) for row in good.egress] == [
        ("api.example.com", "allow", PUBLIC)
    ]
    assert [row.kind for row in rows] == ["CALL_STARTED", "EGRESS_ALLOWED", "EGRESS_CLOSED", "CALL_ENDED"]
    assert evil.outcome == "tool_error" and "Could not resolve host: evil.test" in evil.stderr
    assert [(row["host"], row["reason"]) for row in evil.egress][0] == ("evil.test", "not-listed")
    assert literal.outcome == "tool_error"
    assert ("93.184.216.34", "not-listed") in [(row["host"], row["reason"]) for row in literal.egress]
    assert good.tainted == {"origin": "tool:good api.example.com"}
    assert world.dns is not None
    assert world.dns.names == ["api.example.com"], "what is refused is never resolved"


@pytest.mark.promise("host:secret-filled-in-outside")
async def test_a_secret_is_filled_in_outside_and_the_tool_never_has_it(
    tmp_path: Path,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOKEN_OF_THE_TEST", "t0ken-of-the-test")

    def answer(seen: Seen) -> Reply:
        return Reply(200, json.dumps([seen.method, seen.target]).encode())

    server = world.serve(443, answer, tls=True)
    path = configured(
        tmp_path,
        world,
        '[secrets]\nTOKEN = { env = "TOKEN_OF_THE_TEST" }\n[tools.t]\nmodule = "t.py"\n'
        'egress = [{ host = "api.example.com", scheme = "https", methods = ["GET"], inspect = true, '
        'secret = { header = "Authorization", value = "Bearer {TOKEN}" } }]\n',
    )
    (tmp_path / "t.py").write_text(
        "import os, subprocess, urllib.request\n"
        "def run(input, ctx):\n"
        "    url = 'https://api.example.com/'\n"
        "    argv = ['curl', '-sS', '-i', '--http1.1', '-X', 'POST', url]\n"
        "    post = subprocess.run(argv, capture_output=True, text=True)\n"
        "    return {'fetch': ctx.fetch(url + 'a').json(),\n"
        "            'urllib': urllib.request.urlopen(url + 'b').read().decode(),\n"
        "            'post': post.stdout.split('\\r\\n')[0],\n"
        "            'env': sorted(os.environ)}\n",
        encoding="utf-8",
    )
    async with Host(load_config(path), dial=world.dial) as host:
        result = await host.call("t", None)
    assert result.outcome == "ok", (result.error, result.stderr)
    value: Any = result.value
    assert (value["fetch"], value["urllib"]) == (["GET", "/a"], '["GET", "/b"]')
    assert value["post"].startswith("HTTP/1.1 403 EGRESS_DENIED method")
    assert "TOKEN" not in " ".join(value["env"])
    assert [seen.header("authorization") for seen in server.seen] == ["Bearer t0ken-of-the-test"] * 2
    for file in (tmp_path / "state").glob("events*"):
        assert b"t0ken-of-the-test" not in file.read_bytes()


async def test_proxy_true_leads_clients_to_the_proxy_door_and_nothing_is_set_without_it(
    tmp_path: Path,
    world: World,
) -> None:
    world.serve(80, lambda seen: Reply(200, b"by proxy"))
    tool = (
        'command = ["sh", "-c", "env | grep -ci proxy; curl -sS http://api.example.com/"]\nresult = "text"\n'
        'egress = ["http://api.example.com"]\n'
    )
    path = configured(tmp_path, world, f"[tools.with]\nproxy = true\n{tool}[tools.without]\n{tool}")
    async with Host(load_config(path), dial=world.dial) as host:
        with_it = await host.call("with", None)
        without = await host.call("without", None)
    assert with_it.value.splitlines()[1:] == ["by proxy"] and int(with_it.value.splitlines()[0]) >= 8
    assert without.value.splitlines() == ["0", "by proxy"]


async def test_audit_lets_the_unlisted_through_and_says_that_it_would_be_refused(
    tmp_path: Path,
    world: World,
) -> None:
    world.serve(80, lambda seen: Reply(200, b"seen"))
    path = configured(
        tmp_path,
        world,
        '[tools.t]\ncommand = ["curl", "-sS", "http://anything.example.com/"]\n'
        'result = "text"\nmode = "audit"\n',
    )
    async with Host(load_config(path), dial=world.dial) as host:
        result = await host.call("t", None)
    assert (result.outcome, result.value) == ("ok", "seen"), result.stderr
    assert [(row["outcome"], row["would_deny"]) for row in result.egress] == [("allow", "not-listed")]


async def test_a_reload_closes_what_the_new_policy_refuses_and_the_call_goes_on(
    tmp_path: Path, world: World
) -> None:
    world.serve(80, lambda seen: Reply(200, b"x"))
    tool = '[tools.t]\nmodule = "t.py"\negress = ["tcp://{}:80"]\n'
    (tmp_path / "t.py").write_text(
        "import socket\n"
        "def run(input, ctx):\n"
        "    open_one = socket.create_connection(('api.example.com', 80))\n"
        "    open_one.sendall(b'GET / HTTP/1.1\\r\\nHost: api.example.com\\r\\n\\r\\n')\n"
        "    first = open_one.recv(12)\n"
        "    ctx.emit('CONNECTED')\n"
        "    while open_one.recv(65536):\n"
        "        pass\n"
        "    try:\n"
        "        ctx.fetch('http://api.example.com/')\n"
        "    except Exception as error:\n"
        "        return [first.decode(), error.reason]\n",
        encoding="utf-8",
    )
    path = configured(tmp_path, world, tool.format("api.example.com"))
    async with Host(load_config(path), dial=world.dial) as host:
        call = asyncio.create_task(host.call("t", None, execution_id="one"))
        while not any(row.kind == "TOOL_EVENT" for row in host.log.events(execution_id="one")):
            await asyncio.sleep(0.01)
        configured(tmp_path, world, tool.format("other.example.com"))
        await host.reload(load_config(path))
        result = await call
    assert (result.outcome, result.value) == ("ok", ["HTTP/1.1 200", "not-listed"]), result.error
    assert "policy-changed" in [row["reason"] for row in result.egress]


async def test_a_process_that_is_used_again_has_its_network_in_every_call_and_between_them_none(
    tmp_path: Path, world: World
) -> None:
    server = world.serve(80, lambda seen: Reply(200, b"x"))
    (tmp_path / "t.py").write_text(
        "import socket, threading, urllib.request\n"
        "def leave():\n"
        "    for port in (80, 81):\n"
        "        try: socket.create_connection(('10.0.0.1', port)).recv(1)\n"
        "        except OSError: pass\n"
        "    open('/tmp/left', 'w').close()\n"
        "def run(input, ctx):\n"
        "    if input == 'leave':\n"
        "        threading.Timer(0.2, leave).start()\n"
        "        return 0\n"
        "    return urllib.request.urlopen('http://api.example.com/').status\n",
        encoding="utf-8",
    )
    tool = '[tools.t]\nmodule = "t.py"\nreuse = true\negress = ["http://api.example.com"]\n'
    path = configured(tmp_path, world, tool)
    async with Host(load_config(path), dial=world.dial) as host:
        first, left = await host.call("t", None), await host.call("t", "leave")
        (child,) = host.isolator._cages["t"].kept.values()
        while not Path(f"/proc/{child.pid}/root/tmp/left").exists():  # what it left behind tries meanwhile
            await asyncio.sleep(0.01)
        later = [await host.call("t", None), await host.call("t", None)]
    assert [result.value for result in (first, *later)] == [200] * 3, [first.error, later[0].error]
    assert len(server.seen) == 3 and left.egress == []
    assert [(row["reason"], row["host"], row["port"]) for row in later[0].egress] == [
        ("no-call", "10.0.0.1", 80),
        ("no-call", "10.0.0.1", 81),
        (None, "api.example.com", 80),
    ]
