"""What goes wrong at a user's place is said with its place and its remedy: machine, configuration, tool."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.host.cli import COMMAND, Cli, Done, write
from tests.marks import only_root
from tests.users import PYTHON, ROOT, give_to_user, run_as_user, user_folder

WITHOUT = [str(PYTHON), str(ROOT / "tests" / "host" / "without.py")]
ECHO = '[tools.echo]\nmodule = "tools/echo.py"\n'
ECHO_PY = "def run(input, ctx):\n    return input\n"
NO_LIBRARY = """\
import ctypes, sys
load = ctypes.CDLL
def load_others(name, *more, **options):
    if name and name.startswith("libseccomp"):
        raise OSError(f"{name}: cannot open shared object file")
    return load(name, *more, **options)
ctypes.CDLL = load_others
from fumehood.cli import main
main(sys.argv[1:])
"""


# -- the machine ---------------------------------------------------------------------------------------------


def _without_libseccomp(folder: Path, *words: str) -> Done:
    done = subprocess.run(
        [PYTHON, "-c", NO_LIBRARY, *words], capture_output=True, text=True, cwd=folder, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.promise("host:weaker-is-refused")
def test_a_missing_libseccomp_names_the_package(tmp_path: Path) -> None:
    write(tmp_path, ECHO, echo=ECHO_PY)
    done = _without_libseccomp(tmp_path, "call", "echo")
    assert (done.code, done.out) == (4, "")
    assert done.err.splitlines()[:2] == [
        "error: echo: sandbox_error (tier): seccomp filters cannot be made: libseccomp.so.2: "
        "cannot open shared object file",
        "Hint: install libseccomp (Debian: apt install libseccomp2)",
    ]
    told = _without_libseccomp(tmp_path, "doctor", "--format", "json")
    assert told.code == 4
    assert (told.json["tier"], told.json["met"]) == ("none", False)
    assert told.json["layers"]["seccomp"] == {
        "level": "MISSING",
        "reason": "seccomp filters cannot be made: libseccomp.so.2: cannot open shared object file",
        "remedy": "a kernel with seccomp filters, and libseccomp (Debian: apt install libseccomp2)",
    }


@pytest.mark.promise("host:weaker-is-refused")
def test_without_user_namespaces_nothing_runs_and_doctor_says_what_to_do() -> None:
    with user_folder() as folder:
        write(
            folder, '[tools.mark]\nmodule = "tools/mark.py"\nwrite = ["out"]\n', mark="open('out/ran', 'w')\n"
        )
        (folder / "out").mkdir()
        give_to_user(folder, folder / "out")
        done = run_as_user([*WITHOUT, "userns", *COMMAND, "call", "mark"], cwd=folder)
        assert (done.returncode, done.stdout) == (4, "")
        first = done.stderr.splitlines()[0]
        assert first.startswith(
            "error: mark: sandbox_error (tier): the sandbox cannot be built: layer `user`: [Errno 1]"
        )
        assert list((folder / "out").iterdir()) == []
        told = run_as_user([*WITHOUT, "userns", *COMMAND, "doctor"], cwd=folder)
    assert told.returncode == 4
    assert "tier: landlock" in told.stdout
    assert 'or else: require_tier = "landlock" in [host] ' in told.stdout
    assert "user.max_user_namespaces" in told.stdout
    assert told.stdout.count("Ubuntu 24.04") == told.stdout.count("seccomp=unconfined") == 1, (
        "each remedy stands once"
    )
    assert "required: namespaces (require_tier); calls are refused on this machine" in told.stdout


def test_where_the_operator_lets_weaker_tiers_run_the_result_says_which() -> None:
    with user_folder() as folder:
        file = write(folder, ECHO, echo=ECHO_PY)
        file.write_text(
            file.read_text(encoding="utf-8").replace("[host]", '[host]\nrequire_tier = "any"'),
            encoding="utf-8",
        )
        give_to_user(folder)
        words = [*WITHOUT, "userns", *COMMAND, "call", "echo", '{"a": 1}', "--format", "json"]
        done = run_as_user(words, cwd=folder)
    import json

    result = json.loads(done.stdout)
    assert (done.returncode, result["outcome"], result["value"]) == (0, "ok", {"a": 1})
    assert result["enforcement"]["tier"] == "landlock"
    assert result["enforcement"]["layers"]["user"] == "MISSING"


@only_root("nobody else can mask /proc for a test")
def test_a_masked_proc_is_partial_and_calls_still_run(tmp_path: Path) -> None:
    write(tmp_path, ECHO, echo=ECHO_PY)
    place = '"$(ls -d /proc/acpi /proc/fs /proc/irq 2>/dev/null | head -1)"'
    mask = f'mount -t tmpfs fumehood-test {place} && exec "$@"'
    masked = ["unshare", "--mount", "sh", "-c", mask, "sh"]

    def run(*words: str) -> Done:
        done = subprocess.run(
            [*masked, *COMMAND, *words], capture_output=True, text=True, cwd=tmp_path, check=False
        )
        return Done(done.returncode, done.stdout, done.stderr)

    told = run("doctor", "--format", "json")
    assert (told.code, told.json["tier"]) == (0, "namespaces")
    proc = told.json["layers"]["proc"]
    assert proc["level"] == "PARTIAL"
    assert proc["reason"].startswith("the outer /proc is masked")
    assert "procMount: Unmasked" in proc["remedy"]
    assert run("call", "echo", '{"a": 1}') == Done(0, '{\n  "a": 1\n}\n', "")


# -- the configuration ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            '[tools.t]\ncommand = ["true"]\ntimeot_s = 5\n',
            "tools.t.timeot_s = 5: unknown key; write timeout_s",
        ),
        ('[tools.t]\nmodule = "tools/none.py"\n', 'tools.t.module = "tools/none.py": '),
        ('[tools.t]\ncommand = ["tools/none"]\n', 'tools.t.command = ["tools/none"]: '),
        ("[tools.t]\nmodule = tools/t.py\n", "not TOML"),
    ],
)
def test_a_wrong_configuration_names_file_key_value_and_the_right_word(
    cli: Cli, config: str, message: str
) -> None:
    write(cli.folder, config)
    for words in (("policy", "check"), ("call", "t"), ("tools",), ("run", "--", "true")):
        done = cli(*words)
        assert (done.code, done.out) == (2, ""), words
        assert done.err.startswith("error: fumehood.toml") and message in done.err


# -- the tool ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "code", "outcome", "message"),
    [
        (
            "def run(input, ctx)\n    return 1\n",
            1,
            "tool_error",
            "while it was imported: SyntaxError: expected ':' (t.py, line 1)",
        ),
        (
            "import no_such_library\ndef run(input, ctx): pass\n",
            1,
            "tool_error",
            "while it was imported: ModuleNotFoundError: No module named 'no_such_library'",
        ),
        ("x = 1\n", 1, "tool_error", "t.py defines no function `run(input, ctx)`"),
        (
            "def run(input, ctx):\n    return {1, 2}\n",
            1,
            "tool_error",
            "TypeError: run() returned what JSON cannot hold: value is a set; return a list",
        ),
        (
            "def run(input, ctx):\n    return [float('nan')]\n",
            1,
            "tool_error",
            "ValueError: run() returned what JSON cannot hold: value[0] is nan, which is no JSON number",
        ),
        (
            "def run(input, ctx):\n    raise KeyError('day')\n",
            1,
            "tool_error",
            "KeyError: 'day'",
        ),
        (
            "import time\ndef run(input, ctx):\n    time.sleep(1000)\n",
            5,
            "limit (timeout)",
            "the call did not end within its wall time",
        ),
        (
            "import ctypes\ndef run(input, ctx):\n    ctypes.string_at(0)\n",
            1,
            "sandbox_error (crashed)",
            "the tool's process was ended by SIGSEGV",
        ),
    ],
)
def test_a_tool_that_fails_is_told_by_kind_and_place(
    cli: Cli, source: str, code: int, outcome: str, message: str
) -> None:
    write(cli.folder, '[tools.t]\nmodule = "tools/t.py"\ntimeout_s = 1\n', t=source)
    done = cli("call", "t")
    assert (done.code, done.out) == (code, "")
    line = next(line for line in done.err.splitlines() if line.startswith("error:"))
    assert line.startswith(f"error: t: {outcome}: ")
    assert message in line


def test_an_error_in_a_tool_shows_the_line_of_the_tool_and_none_of_ours(cli: Cli) -> None:
    write(
        cli.folder, '[tools.t]\nmodule = "tools/t.py"\n', t="async def run(input, ctx):\n    return 1 / 0\n"
    )
    err = cli("call", "t").err
    assert f'File "{cli.folder}/tools/t.py", line 2, in run' in err
    assert "isolate" not in err


def test_what_a_tool_prints_does_not_stand_in_its_value(cli: Cli) -> None:
    write(
        cli.folder,
        '[tools.t]\nmodule = "tools/t.py"\n',
        t="""\
        import sys
        def run(input, ctx):
            print("debug")
            print("more", file=sys.stderr)
            return 7
        """,
    )
    assert cli("call", "t") == Done(0, "7\n", "--- stdout of the tool\ndebug\n--- stderr of the tool\nmore\n")
    assert cli("call", "t", "--quiet") == Done(0, "7\n", "")
    result = cli("call", "t", "--format", "json").json
    assert (result["value"], result["stdout"], result["stderr"]) == (7, "debug\n", "more\n")


def test_a_command_that_prints_no_json_is_told_which_word_to_write(cli: Cli) -> None:
    write(cli.folder, '[tools.t]\ncommand = ["echo", "hello"]\n')
    done = cli("call", "t")
    assert (done.code, done.out) == (1, "")
    assert 'set result = "text" for text' in done.err


def test_a_state_folder_that_cannot_be_used_is_named() -> None:
    with user_folder() as folder:
        write(folder, ECHO, echo=ECHO_PY)
        (folder / "state").write_text("a file stands here", encoding="utf-8")
        give_to_user(folder)
        done = run_as_user([sys.executable, "-m", "fumehood", "call", "echo"], cwd=folder)
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        'error: fumehood.toml: host.state = "state": is no folder; name one, which is made when it is '
        "missing\n",
    )


def test_a_log_that_holds_nothing_yet_or_is_a_folder_is_said(cli: Cli) -> None:
    write(cli.folder, ECHO, echo=ECHO_PY)
    log = cli.folder / "state" / "events.sqlite3"
    log.parent.mkdir()
    log.touch()
    for words in (["log", "show"], ["log", "verify"], ["explain", "last"]):
        done = cli(*words)
        assert (done.code, done.err) == (
            1,
            f"error: {log}: is empty\n"
            "Hint: nothing was recorded here yet, or --config names another state folder\n",
        )
    assert cli("call", "echo").code == 0
    assert cli("log", "show").code == 0
    for path in log.parent.glob("events.sqlite3*"):
        path.unlink()
    log.mkdir()
    done = cli("log", "show")
    assert done.err.startswith(f"error: {log}: Is a directory\nHint: move the folder {log} away, or ")


def test_code_that_nobody_can_read_is_pointed_out_before_a_call(tmp_path: Path) -> None:
    with user_folder() as folder:
        write(folder, ECHO, echo=ECHO_PY)
        give_to_user(folder)
        (folder / "tools" / "echo.py").chmod(0)
        words = [sys.executable, "-m", "fumehood"]
        told = run_as_user([*words, "--quiet", "policy", "check"], cwd=folder).stdout
        assert " ".join(told.split()).startswith("note: fumehood.toml: tools.echo.module: uid ")
        assert f"cannot read it, so no call will work; try: chmod a+r {folder}" in " ".join(told.split())
        done = run_as_user([*words, "call", "echo"], cwd=folder)
        assert (done.returncode, "Permission denied" in done.stderr) == (1, True)
