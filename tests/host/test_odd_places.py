"""Started in odd places, with odd descriptors, for programs that cannot be run: place, value and remedy are
told, and the exit code is the one of docs/cli.md.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.host.cli import Done

MODULE = "def run(input, ctx):\n    return 'x' * (input or 1)\n"
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a configuration, a tool, and files that are no programs."""
    (tmp_path / "t.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "fumehood.toml").write_text(
        f'version = 1\n[host]\nstate = "{tmp_path}/state"\n[tools.t]\nmodule = "{tmp_path}/t.py"\n'
        f'[tools.path]\ncommand = ["{tmp_path}/hello"]\nresult = "text"\n'
        '[tools.none]\ncommand = ["no-such"]\n',
        encoding="utf-8",
    )
    for name, text, mode in (
        ("hello", f"#!/bin/sh\ncat {tmp_path}/beside\n", 0o755),
        ("beside", "hello\n", 0o644),
        ("interpreter", "#! /no/such/python3 -x\n", 0o755),
        ("closed", "#!/bin/sh\n", 0o644),
        ("junk", "no program", 0o755),
        ("elf", "\x7fELF", 0o755),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(mode)
    (tmp_path / "dangling").symlink_to("/no/such/program")
    (tmp_path / "pipe").mkdir()
    return tmp_path


def shell(place: Path, script: str, **env: str) -> Done:
    """`fumehood` in a shell script."""
    fumehood = f"{shlex.quote(sys.executable)} -m fumehood"
    ran = subprocess.run(
        ["sh", "-c", f'fumehood() {{ {fumehood} "$@"; }}\n{script}'],
        cwd=place,
        env={
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(place / "home"),
            "COLUMNS": "200",
            **env,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    return Done(ran.returncode, ran.stdout, ran.stderr)


@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize("words", ["call t", "call t 100000", "call t --format json", "log show", "--help"])
def test_a_full_stdout_is_told_on_stderr_once_and_without_a_traceback(
    place: Path, words: str, buffered: str
) -> None:
    script = f"fumehood call t >/dev/null; fumehood {words} > /dev/full"
    done = shell(place, script, PYTHONUNBUFFERED=buffered)
    assert done == Done(
        1,
        "",
        "error: stdout cannot be written: No space left on device\n"
        "Hint: what it leads to is full or broken; a call that ran is on the log: fumehood log show\n",
    )


def test_a_full_stderr_changes_no_exit_code_and_nothing_on_stdout(place: Path) -> None:
    assert shell(place, "fumehood call no-such 2> /dev/full") == Done(3, "", "")
    assert shell(place, "fumehood call t 2> /dev/full") == Done(0, "x\n", "")
    assert shell(place, "fumehood --config none.toml call t 2> /dev/full") == Done(2, "", "")


def test_too_few_descriptors_are_told_with_the_limit_and_the_remedy(place: Path) -> None:
    for number in (10, 14, 20, 24):  # wherever the last one goes
        few = shell(place, f"ulimit -n {number}; fumehood call t")
        assert few.out == ""
        assert few.code in (1, 4), few
        assert few.err.lower().startswith("error: ")
        assert "open files" in few.err.lower()
        assert "ulimit -n 1024" in few.err
        assert "inside fumehood" not in few.err
    assert shell(place, "ulimit -n 64; fumehood call t") == Done(0, "x\n", "")


def test_a_current_folder_that_was_removed_matters_only_where_it_is_needed(place: Path) -> None:
    gone = "mkdir gone; cd gone; rmdir ../gone; "
    lost = Done(
        2,
        "",
        "error: the current folder is there no more\nHint: cd into one that exists, or give absolute paths\n",
    )
    # The shell of the fixture's function says a word of its own where it starts another one.
    assert shell(place, f"{gone}fumehood call t") == lost
    assert shell(place, f"{gone}fumehood --config {place}/fumehood.toml run --read . -- true") == lost
    assert shell(place, f"{gone}fumehood --config {place}/fumehood.toml call t") == Done(0, "x\n", "")
    assert shell(place, f"{gone}fumehood run -- pwd") == Done(0, "/tmp\n", "")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_descriptors_are_no_ones_business(place: Path, closed: str) -> None:
    out = "" if ">&-" in closed.replace("2>&-", "") else "x\n"
    assert shell(place, f"fumehood call t {closed}") == Done(0, out, "")
    assert shell(place, f"fumehood run -- sh -c 'exit 7' {closed}") == Done(7, "", "")


def test_a_home_that_is_none_is_told_and_one_that_is_not_set_is_looked_up(tmp_path: Path) -> None:
    relative = shell(tmp_path, "fumehood run -- true", HOME="here")
    assert relative == Done(
        2,
        "",
        "error: host.state: is missing, and this user has no home folder\nHint: write state = PATH\n",
    )
    nowhere = shell(tmp_path, "fumehood run -- true", HOME="/proc")
    assert (nowhere.code, nowhere.out) == (1, "")
    assert "Hint: /proc/.local/state/fumehood cannot be made there; name another state folder" in nowhere.err
    assert shell(tmp_path, "unset HOME; fumehood run -- echo ok", XDG_STATE_HOME=str(tmp_path)).out == "ok\n"


NOT_RUN = {
    "/tmp": "it is a folder; name the program in it",
    "./closed": "it is not executable (mode 0644); chmod +x it",
    "./junk": "it is neither a binary of this machine nor a script that begins with #!",
    "./elf": "it is neither a binary of this machine nor a script that begins with #!",
    "./interpreter": "its first line names /no/such/python3, which is not there inside; "
    "correct that line, or grant its folder",
    "./missing": "it is not there inside; grant its folder under `read` (--read), or name one below /usr",
    "./dangling": "it is a link to /no/such/program, which is not there inside; grant that folder too",
    "no-such": f"it is in no folder of PATH ({PATH})",
}


@pytest.mark.parametrize("program", NOT_RUN)
def test_a_program_that_cannot_be_run_is_named_with_why_and_the_remedy(place: Path, program: str) -> None:
    done = shell(place, f"fumehood run --read {place} -- {program}")
    told = f"error: run: sandbox_error (start): the program '{program}' cannot be run inside the sandbox: "
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"{told}{NOT_RUN[program]}\n")


def test_a_program_whose_name_is_no_text_is_refused_as_any_other(place: Path) -> None:
    done = shell(place, "fumehood run -- $(printf '\\344-no-such')")
    assert done.code == 2
    assert f"the program '?-no-such' cannot be run inside the sandbox: {NOT_RUN['no-such']}" in done.err


def test_a_program_outside_of_the_grants_says_what_to_grant(place: Path) -> None:
    done = shell(place, "fumehood run -- ./hello")
    assert done.code == 2
    assert f"the program '{place}/hello' cannot be run inside the sandbox: it is not there inside" in done.err


def test_a_configured_program_sees_its_own_folder_as_a_module_does(place: Path) -> None:
    assert shell(place, "fumehood call path") == Done(0, "hello\n", "")
    done = shell(place, "fumehood call none")
    assert (done.code, done.out) == (1, "")
    assert f"it is in no folder of PATH ({PATH})" in done.err


def test_a_folder_as_command_is_an_error_of_the_file(place: Path) -> None:
    (place / "x.toml").write_text('version = 1\n[tools.x]\ncommand = ["/tmp"]\n', encoding="utf-8")
    done = shell(place, "fumehood --config x.toml call x")
    assert done == Done(
        2, "", 'error: x.toml: tools.x.command = ["/tmp"]: /tmp is a folder; name the program in it\n'
    )
