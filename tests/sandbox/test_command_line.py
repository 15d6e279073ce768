"""`fumehood eval`: value on stdout, errors with their place, exit codes, and a caged worker underneath."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TIMEOUT_S = 120
TOOL = "def run(input, ctx):\n    return {'twice': input['n'] * 2}\n"
CONFIG = """
version = 1
[host]
state = "state"
require_tier = "any"
dangerously_allow_unsandboxed = true
[tools.double-it]
description = "Twice the number"
module = "double.py"
"""


def fumehood(folder: Path, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fumehood", *words],
        cwd=folder, input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip


def test_the_value_goes_to_stdout(tmp_path: Path) -> None:
    done = fumehood(tmp_path, "eval", "--input", '{"a": 41}', "-", text="input.a + 1")
    assert (done.returncode, done.stdout.strip()) == (0, "42"), done.stderr


def test_a_file_says_its_language_and_json_has_all(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("print('hi')\n[x * 2 for x in range(3)]")
    done = fumehood(tmp_path, "eval", "--format", "json", "s.py")
    found = json.loads(done.stdout)
    assert (done.returncode, found["outcome"], found["value"], found["stdout"]) == (
        0,
        "ok",
        [0, 2, 4],
        "hi\n",
    )


@pytest.mark.promise("sandbox:engine-stands-in-a-cage")
def test_the_engine_stands_in_the_cage_that_the_machine_can_build(tmp_path: Path) -> None:
    found = json.loads(fumehood(tmp_path, "eval", "--format", "json", "-", text="1").stdout)
    assert found["enforcement"]["tier"] in ("namespaces", "landlock")
    assert found["enforcement"]["layers"]["seccomp"] == "FULL"


@pytest.mark.parametrize(
    ("words", "code", "status", "said"),
    [
        ((), "null.x", 1, "TypeError: cannot read property 'x' of null"),
        (("--time", "0.3"), "for (;;);", 5, "timeout"),
        (("--memory", "8 MiB"), "const a = []; for (;;) a.push(new Uint8Array(1 << 20))", 5, "memory"),
        (("--memory", "lots"), "1", 2, "--memory"),
        (("--backend", "v8"), "1", 2, "no sandbox backend 'v8'"),
        (("--tool", "nope"), "1", 2, "nope"),
        (("--input", "{"), "1", 2, "not JSON"),
    ],
)
def test_the_exit_code_says_what_happened(
    tmp_path: Path, words: tuple[str, ...], code: str, status: int, said: str
) -> None:
    (tmp_path / "fumehood.toml").write_text('version = 1\n[host]\nstate = "state"\n')
    done = fumehood(tmp_path, "eval", *words, "-", text=code)
    assert done.returncode == status, done.stderr
    assert said in done.stderr


def test_a_missing_file_is_bad_usage(tmp_path: Path) -> None:
    done = fumehood(tmp_path, "eval", "nothing.js")
    assert done.returncode == 2 and "nothing.js: cannot be read" in done.stderr


def test_a_granted_tool_is_a_call_of_the_host(tmp_path: Path) -> None:
    (tmp_path / "fumehood.toml").write_text(CONFIG)
    (tmp_path / "double.py").write_text(TOOL)
    code = "const r = await Promise.all([1, 2].map((n) => double_it({ n }))); r.map((x) => x.twice)"
    done = fumehood(tmp_path, "eval", "--tool", "double-it", "--format", "json", "-", text=code)
    found = json.loads(done.stdout)
    assert (found["outcome"], found["value"]) == ("ok", [2, 4]), found
    calls = [e["data"] for e in found["events"] if e["kind"] == "SCRIPT_TOOL_CALL"]
    assert [(c["tool"], c["outcome"]) for c in calls] == [("double-it", "ok")] * 2
    shown = fumehood(tmp_path, "log", "verify")
    assert shown.returncode == 0, shown.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--time", "100000"), "limits.wall_s is 100000.0; it must be 0 to 86400 seconds"),
        (("--time", "nan"), "'nan' is no number of seconds above 0, such as 90 or 0.5"),
        (("--memory", "0"), "--memory '0': must be from 1 MiB to 4 TiB\n"),
        (("--memory", "64"), 'to 4 TiB; without a unit it counts bytes, write "64 MiB"\n'),
    ],
)
def test_a_limit_that_can_not_be_meant_is_named(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    done = fumehood(tmp_path, "eval", *words, "-", text="1")
    assert (done.returncode, message in done.stderr, "--memory None" in done.stderr) == (2, True, False)
