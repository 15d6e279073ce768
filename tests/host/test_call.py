"""`fumehood call`: the value on stdout, the rest on stderr, an exit code for each outcome."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from fumehood.testing.dns import LyingDns
from tests.host.cli import Cli, Done, finish, spawn, write
from tests.users import PYTHON, give_to_user, run_as_user, user_folder

TOOLS = """\
[tools.echo]
module = "tools/echo.py"
[tools.upper]
command = ["tr", "a-z", "A-Z"]
[tools.text]
command = ["printf", 'plain \\033[31mtext']
result = "text"
[tools.far]
module = "tools/far.py"
[tools.strict]
module = "tools/echo.py"
input_schema = { type = "object", properties = { n = { type = "integer" } } }
"""
ECHO = "def run(input, ctx):\n    return input\n"
FAR = "async def run(input, ctx):\n    return (await ctx.fetch('http://far.example/')).text\n"


@pytest.fixture
def tools(cli: Cli) -> Cli:
    write(cli.folder, TOOLS, echo=ECHO, far=FAR)
    return cli


def _stable(value: dict[str, Any]) -> dict[str, Any]:
    """A result without what differs from run to run."""
    assert value.pop("call_id").startswith("call-")
    assert value.pop("execution_id").startswith("exec-")
    usage = value.pop("usage")
    assert set(usage) == {"wall_ms", "cpu_ms", "max_rss_bytes"}
    return value


def test_json_gives_the_whole_result_with_the_keys_of_the_contract(tools: Cli) -> None:
    done = tools("call", "echo", '{"a": [1, 2.5, null, "ü"]}', "--format", "json")
    assert (done.code, done.err) == (0, "")
    result = _stable(done.json)
    layers = result["enforcement"].pop("layers")
    assert result == {
        "tool": "echo",
        "outcome": "ok",
        "reason": None,
        "value": {"a": [1, 2.5, None, "ü"]},
        "parts": None,
        "error": None,
        "tainted": None,
        "stdout": "",
        "stderr": "",
        "truncated": {"stdout": False, "stderr": False},
        "events": [],
        "enforcement": {"tier": "namespaces"},
        "egress": [],
        "process_code": None,
        "violations": [],
        "uncollected": [],
    }
    assert {layers[name] for name in ("user", "mount", "pid", "net", "seccomp", "environment")} == {"FULL"}


def test_text_gives_the_value_alone_and_is_silent_otherwise(tools: Cli) -> None:
    assert tools("call", "echo", '{"a": 1}') == Done(0, '{\n  "a": 1\n}\n', "")
    assert tools("call", "upper", '{"a": "b"}') == Done(0, '{\n  "A": "B"\n}\n', "")


def test_text_of_a_tool_goes_through_byte_for_byte_where_no_terminal_is(tools: Cli) -> None:
    assert tools("call", "text") == Done(0, "plain \x1b[31mtext\n", "")


def test_input_comes_from_an_argument_a_file_or_stdin_and_is_empty_otherwise(
    tools: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tools.folder / "in.json").write_text('{"from": "file"}', encoding="utf-8")
    assert tools("call", "echo", "@in.json").out == '{\n  "from": "file"\n}\n'
    assert tools("call", "echo", '"text"').out == "text\n"
    assert tools("call", "echo").out == "{}\n"
    assert finish(["call", "echo", "-"], cwd=tools.folder, input=b"[1]").out == "[\n  1\n]\n"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ('{"a": 1', "the input, line 1, column 8: not JSON: Expecting ',' delimiter\nHint: there: {\"a\": 1"),
        (
            "{'a': 1}",
            "the input, line 1, column 2: not JSON: Expecting property name enclosed in double quotes\n"
            'Hint: JSON strings stand in "double quotes"',
        ),
        (
            "{a: 1}",
            "the input, line 1, column 2: not JSON: Expecting property name enclosed in double quotes\n"
            'Hint: names and texts stand in "double quotes"; in a shell write the whole value '
            "in 'single quotes'",
        ),
        ('{"a":\n  nul}', "the input, line 2, column 3: not JSON: Expecting value"),
        ("", "the input: is empty, and that is no JSON\nHint: an empty object is {}"),
        (" \n", "the input: is empty, and that is no JSON"),
        ('{"a": NaN}', "the input: not JSON: NaN is no JSON value"),
        ('{"a": 1, "a": 2}', "the input: not JSON: the name 'a' stands twice in one object"),
        ("[" * 100_000, "the input: is nested too deeply"),
        (
            "@no.json",
            "no.json: cannot be read: No such file or directory\n"
            "Hint: @FILE names a file that holds JSON; - is stdin",
        ),
        ("@.", ".: cannot be read: Is a directory"),
    ],
)
def test_input_that_is_not_json_is_refused_with_its_place(tools: Cli, given: str, message: str) -> None:
    done = tools("call", "echo", given)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: {message}")


def test_a_file_that_is_not_utf8_is_refused_with_its_place(tools: Cli) -> None:
    (tools.folder / "in.json").write_bytes(b'{\n "a": "\xff"}')
    done = tools("call", "echo", "@in.json")
    assert (done.code, done.err) == (2, "error: in.json, line 2, column 8: byte 0xff is not UTF-8\n")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("nope",), 3, "error: nope: denied (unknown-tool): there is no tool 'nope'; configured: "),
        (
            ("strict", '{"n": "x"}'),
            3,
            "error: strict: denied (input-schema): $.n: 'x' is not of type 'integer'",
        ),
        (("far",), 1, "error: far: tool_error: EgressDenied: egress to far.example:80 refused: not-listed."),
    ],
)
def test_a_failure_gives_its_code_one_line_and_the_way_to_more(
    tools: Cli, words: tuple[str, ...], code: int, message: str
) -> None:
    done = tools("call", *words)
    assert (done.code, done.out) == (code, "")
    lines = done.err.splitlines()
    assert next(line for line in lines if line.startswith("error:")).startswith(message)
    assert lines[-1].startswith("More: fumehood explain call-")


@pytest.mark.promise("host:a-denial-has-a-reason")
def test_a_refused_connection_is_named_with_its_reason_in_text_and_in_json(tools: Cli) -> None:
    assert "egress refused: far.example:80 not-listed\n" in tools("call", "far").err
    (row,) = tools("call", "far", "--format", "json").json["egress"]
    assert row.pop("event_id")
    assert row == {
        "outcome": "deny",
        "reason": "not-listed",
        "host": "far.example",
        "port": 80,
        "rule": None,
        "pinned": None,
    }


def test_quiet_leaves_value_and_error_only(tools: Cli) -> None:
    done = tools("call", "far", "--quiet")
    assert done.out == ""
    assert [line.partition(":")[0] for line in done.err.splitlines()] == ["error", "Hint"]


def test_a_limit_and_a_refusal_are_told_with_what_to_change(cli: Cli) -> None:
    write(
        cli.folder,
        """\
        [tools.slow]
        module = "tools/slow.py"
        timeout_s = 0.5
        [tools.far]
        module = "tools/far.py"
        """,
        slow="def run(input, ctx):\n    while True: pass\n",
        far="def run(input, ctx):\n    return ctx.fetch(input).status\n",
    )
    assert cli("call", "slow").err.splitlines()[1] == (
        "Hint: Raise timeout_s in [tools.slow], or give the tool less to do in one call. "
        "It was timeout_s 0.5."
    )
    told = cli("call", "far", '"https://api.example.com/"', width=200).err.splitlines()
    assert told[0] == "egress refused: api.example.com:443 not-listed"
    assert told[2] == 'Hint: To allow it, add "api.example.com" to egress of [tools.far].'
    told = cli("call", "far", '"api.example.com"', width=200).err.splitlines()
    assert told[0] == "egress refused: what names no host: malformed"


def test_what_was_allowed_and_came_to_nothing_is_not_called_refused(cli: Cli) -> None:
    with LyingDns({}) as dns:
        write(
            cli.folder,
            f"""\
            nameservers = ["127.0.0.1:{dns.address[1]}"]
            [tools.far]
            module = "tools/far.py"
            egress = ["api.example.com"]
            """,
            far="def run(input, ctx):\n    return ctx.fetch('https://api.example.com/').status\n",
        )
        told = cli("call", "far", width=200).err.splitlines()
    assert told[0] == "egress failed: api.example.com:443 no-answer"


@pytest.mark.parametrize("option", ["--execution", "--principal"])
@pytest.mark.parametrize("value", ["", " ", "a\nb"])
def test_a_name_that_no_row_could_be_found_by_is_bad_usage(tools: Cli, option: str, value: str) -> None:
    done = tools("call", "echo", option, value)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"error: Invalid value for '{option}': {value!r} is no name: it is empty, or ")


def test_execution_and_principal_stand_in_the_log(tools: Cli) -> None:
    tools("call", "echo", "--execution", "e-1", "--principal", "alice")
    rows = tools("log", "show", "--execution", "e-1", "--format", "json").json["rows"]
    assert [(row["kind"], row["data"].get("principal")) for row in rows] == [
        ("CALL_STARTED", "alice"),
        ("CALL_ENDED", None),
    ]


@pytest.mark.promise("host:no-credential-in-output")
def test_a_credential_reaches_the_tool_and_no_output_of_ours(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_TOKEN", "s3cret-value-of-the-token")
    write(
        cli.folder,
        (
            '[secrets]\nTOKEN = { env = "THE_TOKEN" }\n[tools.has]\nmodule = "tools/has.py"\nenv = '
            '{ TOKEN = { secret = "TOKEN" } }\n'
        ),
        has="""\
        import os
        def run(input, ctx):
            ctx.emit("SEEN", {"token": os.environ["TOKEN"]})
            return len(os.environ["TOKEN"])
        """,
    )
    done = cli("call", "has")
    assert (done.code, done.out) == (0, "25\n")
    assert "s3cret" not in cli("log", "export").out
    assert "[secret TOKEN]" in cli("log", "export").out
    monkeypatch.delenv("THE_TOKEN")
    missing = cli("call", "has")
    assert missing.code == 2
    assert "THE_TOKEN" in missing.err


@pytest.mark.promise("host:a-signal-leaves-nothing")
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_the_call_its_children_and_us(tmp_path: Path, number: int, code: int) -> None:
    write(
        tmp_path,
        '[tools.stays]\nmodule = "tools/stays.py"\n',
        stays="""\
        import time
        def run(input, ctx):
            ctx.emit("UP", None)
            time.sleep(1000)
        """,
    )
    with spawn(["call", "stays"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        _until_logged(tmp_path, "TOOL_EVENT")
        children = _descendants(process.pid)
        assert children
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (code, b"")
    assert [pid for pid in children if _runs(pid)] == []
    assert finish(["log", "verify"], cwd=tmp_path).code == 0


def test_a_call_works_as_an_ordinary_user(tmp_path: Path) -> None:
    with user_folder() as folder:
        write(folder, TOOLS, echo=ECHO, far=FAR)
        give_to_user(folder)
        done = run_as_user([PYTHON, "-m", "fumehood", "call", "echo", '{"a": 1}'], cwd=folder)
        assert (done.returncode, done.stdout, done.stderr) == (0, '{\n  "a": 1\n}\n', "")


def _until_logged(folder: Path, kind: str) -> None:
    """Wait for a row; the writer is another process, so this asks until it is there."""
    from fumehood.agent import EventLog

    log = folder / "state" / "events.sqlite3"
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            if any(event.kind == kind for event in EventLog(log, read_only=True).events()):
                return
        except Exception:
            pass  # not made yet
        time.sleep(0.02)
    raise AssertionError(f"no {kind} in {log}")


def _descendants(pid: int) -> list[int]:
    import psutil

    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


def _runs(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
