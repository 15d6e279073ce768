"""What a tool attempts in its own network and no door takes, through a whole Host: as root and as an ordinary
user, in a call and before it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fumehood import Host, load_config
from fumehood.isolate import _spawn
from tests.users import PYTHON, run_as_user, user_folder

PEOPLE = ["root", "user"] if os.geteuid() == 0 else ["user"]
FROM = 'version = 1\n[host]\nstate = "state"\nnameservers = ["127.0.0.1:9"]\n[tools.t]\n'
TOOL = """
import errno, socket
def attempt(kind, host, port):
    with socket.socket(socket.AF_INET, kind) as s:
        s.settimeout(5)
        try:
            s.connect((host, port))
            if kind == socket.SOCK_DGRAM:
                s.send(b"x")
                s.recv(1)
            return "ok"
        except OSError as error:
            return errno.errorcode.get(error.errno, str(error))
"""


def called(person: str, folder: Path, config: str, code: str) -> dict[str, Any]:
    """The result of one call of a module tool, by a host of this person's."""
    (folder / "t.py").write_text(TOOL + code, encoding="utf-8")
    (folder / "fumehood.toml").write_text(FROM + config, encoding="utf-8")
    argv: list[str] = [
        str(PYTHON),
        "-m",
        "fumehood",
        "--config",
        f"{folder}/fumehood.toml",
        "--format",
        "json",
        "call",
        "t",
    ]
    if person == "user":
        done = run_as_user(argv)
    else:
        done = subprocess.run(argv, capture_output=True, text=True, cwd=folder)
    assert done.stdout, done
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def rows(result: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [(row["outcome"], row["reason"], row["host"], row["port"]) for row in result["egress"]]


@pytest.mark.promise("broker:every-attempt-is-a-row")
@pytest.mark.parametrize("person", PEOPLE)
def test_an_attempt_on_a_port_without_a_door_is_refused_at_once_and_in_the_result(person: str) -> None:
    code = (
        "def run(input, ctx):\n"
        "    tcp, udp = socket.SOCK_STREAM, socket.SOCK_DGRAM\n"
        "    return [attempt(tcp, 'api.example.com', 81), attempt(tcp, '10.0.0.1', 22),\n"
        "            attempt(udp, '8.8.8.8', 53)]\n"
    )
    with user_folder() as folder:
        result = called(person, folder, 'module = "t.py"\negress = ["http://api.example.com"]\n', code)
    assert (result["outcome"], result["value"]) == ("ok", ["ECONNREFUSED"] * 3), result
    assert rows(result) == [
        ("deny", "port", "api.example.com", 81),
        ("deny", "not-listed", "10.0.0.1", 22),
        ("deny", "not-listed", "8.8.8.8", 53),
    ]


@pytest.mark.promise("broker:every-attempt-is-a-row")
@pytest.mark.parametrize("person", PEOPLE)
def test_a_datagram_to_a_group_or_to_everybody_is_in_the_result(person: str) -> None:
    """Nothing answers it, so no refusal of the kernel shows it."""
    code = (
        "def run(input, ctx):\n"
        "    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as four:\n"
        "        four.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)\n"
        "        for place in (('224.0.0.251', 5353), ('255.255.255.255', 9)):\n"
        "            four.sendto(b'x', place)\n"
        "    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as six:\n"
        "        six.sendto(b'x', ('ff02::fb', 5353, 0, 1))\n"
    )
    with user_folder() as folder:
        result = called(person, folder, 'module = "t.py"\negress = ["http://api.example.com"]\n', code)
    assert result["outcome"] == "ok", result
    assert sorted(rows(result)) == [
        ("deny", "not-listed", "224.0.0.251", 5353),
        ("deny", "not-listed", "255.255.255.255", 9),
        ("deny", "not-listed", "ff02::fb", 5353),
    ]


@pytest.mark.promise("broker:no-network-outside-a-call")
@pytest.mark.parametrize("person", PEOPLE)
@pytest.mark.parametrize("ends", ["in an error", "never", "well"])
def test_what_a_tool_attempts_while_it_is_imported_is_a_row_of_its_call(person: str, ends: str) -> None:
    last = {"in an error": "raise OSError('no network')", "never": "while True: pass", "well": ""}[ends]
    code = (
        "first = [attempt(socket.SOCK_STREAM, '10.0.0.1', 80), attempt(socket.SOCK_STREAM, '10.0.0.1', 22)]\n"
        "question = b'\\0\\1\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0' b'\\6secret\\4evil\\4test\\0\\0\\1\\0\\1'\n"
        "look_up = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "look_up.sendto(question, ('127.0.0.1', 53))\n"
        f"{last}\n"
        "def run(input, ctx):\n"
        "    return [*first, look_up.recv(99)[3] & 15]\n"
    )
    config = 'module = "t.py"\nstart_s = 2\negress = ["http://api.example.com"]\n'
    with user_folder() as folder:
        result = called(person, folder, config, code)
    assert result["outcome"] == {"in an error": "tool_error", "never": "sandbox_error", "well": "ok"}[ends]
    assert result["value"] == (["ECONNREFUSED"] * 2 + [5] if ends == "well" else None)
    assert sorted(rows(result), key=str) == [
        ("deny", "no-call", "10.0.0.1", 22),
        ("deny", "no-call", "10.0.0.1", 80),
        ("deny", "no-call", "secret.evil.test", None),
    ]


@pytest.mark.anyio
async def test_where_the_host_may_not_look_landlock_refuses_what_has_no_door(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that refuses raw sockets: the attempt fails at once, and the layer says what it holds."""
    child = tmp_path / "child"
    shutil.copytree(_spawn._CHILD_FOLDER, child)
    net = child / "layers/net.py"
    text = net.read_text(encoding="utf-8")
    assert text.count("def can_watch() -> bool:\n") == 1
    net.write_text(text.replace("def can_watch() -> bool:\n", "def can_watch() -> bool:\n    return False\n"))
    (tmp_path / "t.py").write_text(
        TOOL + "def run(input, ctx):\n    return attempt(socket.SOCK_STREAM, '10.0.0.1', 22)\n"
    )
    config = 'module = "t.py"\negress = ["http://api.example.com"]\n'
    (tmp_path / "fumehood.toml").write_text(FROM + config, encoding="utf-8")
    monkeypatch.setattr(_spawn, "_CHILD_FOLDER", str(child))
    async with Host(load_config(tmp_path / "fumehood.toml")) as host:
        result = await host.call("t", None)
    # Below ABI 4 Landlock knows nothing of TCP, and the namespace's kernel refuses it unseen.
    level, value = result.layers["landlock-net"], result.value
    assert (level, value) in [("FULL", "EACCES"), ("MISSING", "ECONNREFUSED")], result.error
    assert result.egress == []
