"""What holds for every verb: options before and after it, one JSON object, exit codes, quiet failures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.host.cli import COMMAND, Cli, finish, spawn, write
from tests.users import PYTHON

UPPER = '[tools.upper]\ncommand = ["tr", "a-z", "A-Z"]\n'


@pytest.mark.parametrize(
    "words",
    [
        ("--format", "json", "--config", "fumehood.toml", "policy", "check"),
        ("policy", "check", "--format", "json", "--config", "fumehood.toml"),
        ("--format", "json", "policy", "--config", "fumehood.toml", "check"),
        ("policy", "--format=json", "check", "--quiet"),
    ],
)
def test_global_options_stand_before_or_after_the_verb(cli: Cli, words: tuple[str, ...]) -> None:
    write(cli.folder, UPPER)
    done = cli(*words)
    assert (done.code, done.err) == (0, "")
    assert done.json["tools"] == ["upper"]


def test_the_option_nearest_to_the_verb_wins(cli: Cli) -> None:
    write(cli.folder, UPPER)
    assert cli("--config", "nowhere.toml", "tools", "--config", "fumehood.toml").code == 0
    assert cli("--config", "fumehood.toml", "tools", "--config", "nowhere.toml").code == 2


@pytest.mark.promise("host:json-is-one-object")
@pytest.mark.parametrize(
    ("words", "kind", "message", "code"),
    [
        (("--format", "json", "bogus"), "UsageError", "no command 'bogus'; there are: ", 2),
        (("doctr", "--format=json"), "UsageError", "no command 'doctr'; did you mean 'doctor'?", 2),
        (("call", "--format", "json"), "UsageError", "Missing argument 'TOOL'.", 2),
        (("call", "upper", "--format", "json", "--nope"), "UsageError", "No such option '--nope'", 2),
        (
            ("call", "upper", "{", "--format", "json"),
            "ConfigError",
            "the input, line 1, column 2: not JSON",
            2,
        ),
        (
            ("tools", "--config", "no.toml", "--format", "json"),
            "ConfigError",
            "no.toml: there is no such file",
            2,
        ),
        (
            ("explain", "call-1", "--format", "json"),
            "StorageError",
            "events.sqlite3: there is no such file",
            1,
        ),
    ],
)
def test_an_error_in_json_is_one_object_on_stdout_and_nothing_else(
    cli: Cli, words: tuple[str, ...], kind: str, message: str, code: int
) -> None:
    write(cli.folder, UPPER)
    done = cli(*words)
    assert (done.code, done.err) == (code, "")
    error = done.json.pop("error")
    assert error["type"] == kind
    assert message in error["message"]
    assert error["exit_code"] == code
    assert set(error) == {"type", "message", "hint", "problems", "exit_code"}


def test_an_error_in_text_is_on_stderr_with_its_hint(cli: Cli) -> None:
    done = cli("tools")
    assert (done.code, done.out) == (2, "")
    assert done.err == (
        f"error: fumehood.toml: there is no such file (looked for in {cli.folder}; "
        "$FUMEHOOD_CONFIG is not set)\n"
        "Hint: name the file with --config FILE or $FUMEHOOD_CONFIG\n"
    )


def test_a_verb_of_a_later_part_is_absent_and_no_stub(cli: Cli) -> None:
    from fumehood._cli._verbs import VERBS

    absent = [name for name, verb in VERBS.items() if not verb.present]
    listed = cli("--help").out
    for name in absent:
        assert f"\n  {name} " not in listed
        assert cli(name).code == 2


def test_every_present_verb_can_be_loaded_and_explains_itself(cli: Cli) -> None:
    from fumehood._cli._verbs import POLICY_VERBS, VERBS

    for prefix, table in (((), VERBS), (("policy",), POLICY_VERBS)):
        for name, verb in table.items():
            if verb.present:
                done = cli(*prefix, name, "--help")
                assert (done.code, done.err) == (0, ""), name
                assert "--format [text|json]" in done.out, name


def test_version_and_bare_invocation(cli: Cli) -> None:
    assert cli("--version").out == "fumehood 0.1.0\n"
    bare = cli()
    assert bare.code == 2
    assert "Usage: fumehood" in bare.out + bare.err


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nsys.argv = ['fumehood', '--help']\nfrom fumehood.cli import main\n"
        "try:\n    main()\nfinally:\n    print([m for m in ('pydantic', 'httpx', 'rich', 'dns', "
        "'asyncio') if m in sys.modules])"
    )
    done = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_import_fumehood_imports_nothing_heavy() -> None:
    code = (
        "import sys, fumehood\nprint([m for m in ('pydantic', 'httpx', 'asyncio', 'click') if m in "
        "sys.modules])"
    )
    done = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_reader_that_goes_away_ends_us_quietly(tmp_path: Path) -> None:
    finish(["run", "--", "true"], cwd=tmp_path)
    read, wrote = os.pipe()
    os.close(read)
    with spawn(["log", "export"], cwd=tmp_path, stdout=wrote, stderr=subprocess.PIPE) as process:
        os.close(wrote)
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_a_fault_inside_fumehood_is_one_line_and_a_traceback_on_request(tmp_path: Path) -> None:
    code = (
        "import sys, fumehood._cli.tools as t\n"
        "def broken(*a, **k): raise RuntimeError('the sky fell')\n"
        "t.Settings.load = broken\nfrom fumehood.cli import main\nmain(['tools'])"
    )
    plain = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (plain.returncode, plain.stdout) == (1, "")
    assert plain.stderr == (
        "error: an error inside fumehood: RuntimeError: the sky fell (<string>, line 2)\n"
        "Hint: FUMEHOOD_DEBUG=1 shows where; please report it\n"
    )
    env = {**os.environ, "FUMEHOOD_DEBUG": "1"}
    told = subprocess.run(
        [PYTHON, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=env, check=False
    )
    assert "Traceback (most recent call last)" in told.stderr


@pytest.mark.parametrize(
    "env", [{"NO_COLOR": "1", "FORCE_COLOR": "1"}, {"FORCE_COLOR": "1", "_OPTION": "--no-color"}]
)
def test_no_color_is_obeyed_even_where_colour_is_forced(tmp_path: Path, env: dict[str, str]) -> None:
    write(tmp_path, UPPER)
    option = [env.pop("_OPTION")] if "_OPTION" in env else []
    done = finish(["policy", "check", *option], cwd=tmp_path, env=env)
    assert "\x1b[3" not in done.out
    coloured = finish(["policy", "check"], cwd=tmp_path, env={"FORCE_COLOR": "1"})
    assert "\x1b[32m" in coloured.out


def test_python_dash_m_and_the_script_are_the_same_program(tmp_path: Path) -> None:
    script = Path(sys.executable).parent / "fumehood"
    outs = [
        subprocess.run([*command, "--version"], capture_output=True, text=True, check=True).stdout
        for command in (COMMAND, [str(script)])
    ]
    assert outs == ["fumehood 0.1.0\n"] * 2


def test_json_output_is_valid_json_whatever_a_tool_returns(cli: Cli) -> None:
    write(
        cli.folder,
        '[tools.odd]\nmodule = "tools/odd.py"\n',
        odd="""\
        def run(input, ctx):
            return {"text": "\\x1b[2J\\u009b\\u202e\\u2028\\u200b \\U0001f9ea"}
        """,
    )
    done = cli("call", "odd", "--format", "json")
    assert json.loads(done.out)["value"] == {"text": "\x1b[2J\x9b\u202e\u2028\u200b \U0001f9ea"}
    assert not any(char in done.out for char in "\x1b\x9b\u202e\u2028\u200b")
