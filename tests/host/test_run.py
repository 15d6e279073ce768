"""`fumehood run`: streams pass through, the exit code is the command's own, and nothing outlives us."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest

from fumehood.testing.http import HttpServer
from tests.host.cli import COMMAND, Cli, Done, finish, spawn, write
from tests.users import PYTHON, give_to_user, run_as_user, user_folder


def test_streams_pass_through_and_the_code_is_the_commands_own(tmp_path: Path) -> None:
    script = 'read word; echo "out $word"; echo "err $word" >&2; exit 7'
    done = finish(["run", "--", "sh", "-c", script], cwd=tmp_path, input=b"hello\n")
    assert done == Done(7, "out hello\n", "err hello\n")


def test_bytes_pass_through_unchanged_and_the_end_of_input_is_seen(tmp_path: Path) -> None:
    data = bytes(range(256)) * 400
    pipe = subprocess.PIPE
    with spawn(["run", "--", "cat"], cwd=tmp_path, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.communicate(data, 60) == (data, b"")
    assert process.returncode == 0


@pytest.mark.parametrize(("name", "code"), [("KILL", 137), ("TERM", 143), ("SEGV", 139)])
def test_a_command_that_dies_of_a_signal_gives_128_and_its_number(
    tmp_path: Path, name: str, code: int
) -> None:
    assert finish(["run", "--", "sh", "-c", f"kill -{name} $$"], cwd=tmp_path).code == code


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            ["--", "no-such-program"],
            2,
            "error: run: sandbox_error (start): the program 'no-such-program' cannot be run",
        ),
        (["--time", "0.5", "--", "sleep", "100"], 5, "error: run: limit (timeout): "),
        (["--allow", "bad rule", "--", "true"], 2, "error: --allow: egress rule 'bad rule': "),
        (
            ["--allow", "GET https://api.example.com", "--", "true"],
            2,
            "error: --allow: egress rule 'GET https://api.example.com': methods, paths and secrets",
        ),
        (["--deny", "*.*", "--", "true"], 2, "error: --deny: egress rule '*.*': "),
        (
            ["--read", "no/where", "--", "true"],
            2,
            "error: --read 'no/where': there is no such file or folder",
        ),
        (
            ["--write", "no/where", "--", "true"],
            2,
            "error: --write 'no/where': there is no such file or folder",
        ),
        (
            ["--memory", "5M", "--", "true"],
            2,
            "error: --memory '5M': '5M' has an unclear unit; write \"5 MiB\"",
        ),
        (["--memory", "1 MiB", "--", "true"], 2, "error: --memory '1 MiB': must be from 8 MiB to 4 TiB"),
        (
            ["--memory", "512", "--", "true"],
            2,
            "error: --memory '512': must be from 8 MiB to 4 TiB; without a unit it counts bytes, write "
            '"512 MiB"',
        ),
        (["--time", "nan", "--", "true"], 2, "error: Invalid value for '--time': 'nan' is no number of "),
        (["--time", "inf", "--", "true"], 2, "error: Invalid value for '--time': 'inf' is no number of "),
        (["--time", "5s", "--", "true"], 2, "error: Invalid value for '--time': '5s' is no number of "),
        (["--read", "", "--", "true"], 2, "error: --read '': there is no such file or folder"),
        (["--collect", "../x", "--", "true"], 2, "error: collect '../x': names files below the call's own"),
        (["--time", "0", "--", "true"], 2, "error: Invalid value for '--time'"),
        (["--env", "1x=2", "--", "true"], 2, "error: --env '1x=2': '1x' is no name of a variable"),
        (["--env", "NOT_SET_ANYWHERE", "--", "true"], 2, "error: --env NOT_SET_ANYWHERE: is not set"),
        (["--policy", "no.toml", "--", "true"], 2, "error: no.toml: there is no such file"),
        ([], 2, "error: Missing argument '-- CMD [ARG]...'."),
    ],
)
def test_what_keeps_a_command_from_running_has_our_codes(
    cli: Cli, words: list[str], code: int, message: str
) -> None:
    done = cli("run", *words)
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith(message)


def test_options_behind_the_command_belong_to_the_command(tmp_path: Path) -> None:
    assert (
        finish(["run", "--", "echo", "--format", "json", "--", "-x"], cwd=tmp_path).out
        == "--format json -- -x\n"
    )
    assert (
        finish(["run", "echo", "--quiet", "--format", "json"], cwd=tmp_path).out == "--quiet --format json\n"
    )


@pytest.mark.promise("host:json-is-one-object")
def test_json_holds_the_output_instead_of_letting_it_through(tmp_path: Path) -> None:
    done = finish(
        ["run", "--format", "json", "--", "sh", "-c", "cat; echo err >&2; exit 4"],
        cwd=tmp_path,
        input=b"in\n",
    )
    assert (done.code, done.err) == (4, "")
    result = done.json
    assert {
        name: result[name] for name in ("tool", "outcome", "reason", "stdout", "stderr", "process_code")
    } == {
        "tool": "run",
        "outcome": "tool_error",
        "reason": None,
        "stdout": "in\n",
        "stderr": "err\n",
        "process_code": 4,
    }


def test_no_configuration_is_needed_and_one_that_is_wrong_is_never_taken_for_none(cli: Cli) -> None:
    assert cli("run", "--", "true").code == 0
    assert (cli.folder / "fumehood" / "events.sqlite3").exists()
    (cli.folder / "fumehood.toml").write_text("version = 2\n", encoding="utf-8")
    done = cli("run", "--", "true")
    assert (done.code, done.out) == (2, "")
    assert "version" in done.err


@pytest.mark.requirement("R005")
@pytest.mark.promise("host:run-passes-no-environment")
def test_the_environment_is_path_and_what_was_named(tmp_path: Path) -> None:
    env = {"SECRET_OF_THE_CALLER": "1", "HOME": "/home/someone"}
    done = finish(["run", "--env", "A=b=c", "--env", "HOME", "--", "env"], cwd=tmp_path, env=env)
    assert sorted(line for line in done.out.splitlines() if not line.startswith("PATH=")) == [
        "A=b=c",
        "HOME=/home/someone",
    ]


def test_the_current_folder_is_seen_only_when_it_is_granted(tmp_path: Path) -> None:
    (tmp_path / "here").write_text("x", encoding="utf-8")
    assert finish(["run", "--", "sh", "-c", "pwd; ls"], cwd=tmp_path).out == "/tmp\n"
    assert "here\n" in finish(["run", "--read", ".", "--", "ls"], cwd=tmp_path).out
    refused = finish(["run", "--read", ".", "--", "sh", "-c", "echo x > new"], cwd=tmp_path)
    assert refused.code != 0
    assert not (tmp_path / "new").exists()
    assert finish(["run", "--write", ".", "--", "sh", "-c", "echo x > new"], cwd=tmp_path).code == 0
    assert (tmp_path / "new").read_text(encoding="utf-8") == "x\n"


POLICY = """\
[secrets]
TOKEN = { file = "token" }
[tools.server]
command = ["true"]
env = { TOKEN = { secret = "TOKEN" }, LANG = "C.UTF-8" }
timeout_s = 1
[tools.other]
command = ["true"]
"""


def test_policy_takes_env_rules_and_limits_from_one_tool_of_a_file(cli: Cli) -> None:
    (cli.folder / "elsewhere").mkdir()
    write(cli.folder, POLICY).rename(cli.folder / "policy.toml")
    (cli.folder / "token").write_text("t0ken-of-the-server\n", encoding="utf-8")
    several = cli("run", "--policy", "policy.toml", "--", "env")
    assert (several.code, several.err) == (
        2,
        "error: policy.toml has 2 tools: other, server\nHint: say whose rules hold: --tool NAME\n",
    )
    unknown = cli("run", "--policy", "policy.toml", "--tool", "x", "--", "env")
    assert (unknown.code, unknown.err) == (
        2,
        "error: there is no tool 'x' in policy.toml\nHint: configured: other, server\n",
    )
    done = cli("run", "--policy", "policy.toml", "--tool", "server", "--format", "json", "--", "env")
    assert "TOKEN=t0ken-of-the-server\n" in done.json["stdout"]
    assert "LANG=C.UTF-8\n" in done.json["stdout"]
    assert cli("run", "--policy", "policy.toml", "--tool", "server", "--", "sleep", "9").code == 5
    assert cli("run", "--policy", "policy.toml", "--tool", "other", "--time", "9", "--", "true").code == 0
    assert "t0ken" not in cli("log", "export", "--config", "policy.toml").out


@pytest.mark.promise("host:closed-descriptors-are-not-ours")
def test_a_closed_standard_input_is_never_a_file_of_ours(tmp_path: Path) -> None:
    script = "import os,sys,subprocess\nos.close(0)\nos.execv(sys.argv[1], sys.argv[1:])"
    words = [*COMMAND, "run", "--", "sh", "-c", "wc -c; ls -l /proc/self/fd/0"]
    done = subprocess.run(
        [PYTHON, "-c", script, *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        check=False,
    )
    assert done.stdout.startswith("0\n")
    assert "sqlite" not in done.stdout + done.stderr


@pytest.mark.promise("host:a-signal-leaves-nothing")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_command_with_all_it_started(tmp_path: Path, number: int, code: int) -> None:
    import psutil

    script = "trap '' INT TERM HUP; setsid sh -c 'echo up; sleep 1000' & while :; do sleep 1; done"
    with spawn(["run", "--", "sh", "-c", script], cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) > 3, "interpreters, the command, and what it started"
        process.send_signal(number)
        process.wait(30)
    assert process.returncode == code
    psutil.wait_procs(children, timeout=5)
    assert [
        child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE
    ] == []


@pytest.mark.promise("host:a-signal-leaves-nothing")
def test_sigkill_to_us_leaves_no_command_behind(tmp_path: Path) -> None:
    import psutil

    with spawn(
        ["run", "--", "sh", "-c", "echo up; sleep 1000"], cwd=tmp_path, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
    gone, alive = psutil.wait_procs(children, timeout=5)
    assert [child for child in alive if child.status() != psutil.STATUS_ZOMBIE] == []
    assert gone


SERVER = """\
import json, sys
INFO = {"protocolVersion": "2025-11-25", "serverInfo": {"name": "s", "version": "1"}, "capabilities": {}}
for line in sys.stdin:
    request = json.loads(line)
    result = INFO
    if request["method"] == "tools/call":
        text = request["params"]["arguments"]["text"].upper()
        result = {"content": [{"type": "text", "text": text}]}
    if "id" in request:
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


def test_it_fronts_a_stdio_mcp_server_message_by_message(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER, encoding="utf-8")
    words = ["run", "--read", str(tmp_path), "--", "python3", str(tmp_path / "server.py")]
    pipe = subprocess.PIPE
    with spawn(words, cwd=tmp_path, stdin=pipe, stdout=pipe, stderr=pipe) as process:

        def ask(number: int, method: str, params: dict[str, Any]) -> Any:
            assert process.stdin is not None and process.stdout is not None
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        assert ask(1, "initialize", {})["result"]["serverInfo"] == {"name": "s", "version": "1"}
        called = ask(2, "tools/call", {"name": "up", "arguments": {"text": "abc"}})
        assert called == {"jsonrpc": "2.0", "id": 2, "result": {"content": [{"type": "text", "text": "ABC"}]}}
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, b"")


@pytest.mark.requirement("R025")
def test_no_network_without_allow_and_only_the_allowed_name_with_it(tmp_path: Path) -> None:
    code = "import urllib.request,sys; print(urllib.request.urlopen(sys.argv[1], timeout=5).status)"
    with HttpServer() as server, HttpServer() as other:
        literal = f"127.0.0.1:{server.port}"
        ask = ["--", "python3", "-c", code]
        allowed = ["--allow", f"http://{literal} +private"]
        denied = finish(["run", *ask, f"http://{literal}/"], cwd=tmp_path)
        elsewhere = finish(["run", *allowed, *ask, f"http://127.0.0.1:{other.port}/"], cwd=tmp_path)
        assert (denied.code, elsewhere.code) == (1, 1)
        assert (server.connections, other.connections) == (0, 0)
        control = finish(["run", *allowed, *ask, f"http://{literal}/"], cwd=tmp_path)
        assert (control.code, control.out, server.connections) == (0, "200\n", 1)


def test_a_command_runs_as_an_ordinary_user(tmp_path: Path) -> None:
    with user_folder() as folder:
        (folder / "data").write_text("of the user\n", encoding="utf-8")
        give_to_user(folder, folder / "data")
        words = [*COMMAND, "run", "--read", ".", "--", "sh", "-c", textwrap.dedent("cat data; id -u; exit 3")]
        done = run_as_user(words, cwd=folder)
        assert (done.returncode, done.stdout, done.stderr) == (3, "of the user\n1000\n", "")
