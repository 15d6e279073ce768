"""`fumehood log`: what was recorded, how it is followed, and that a changed row is found."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests.host.cli import Cli, finish, spawn, write

TOOLS = '[tools.upper]\ncommand = ["tr", "a-z", "A-Z"]\n'


@pytest.fixture
def logged(cli: Cli) -> Cli:
    """A folder in which two calls were made, in executions e-1 and e-2."""
    write(cli.folder, TOOLS)
    for execution in ("e-1", "e-2"):
        assert cli("call", "upper", '{"a": 1}', "--execution", execution).code == 0
    return cli


KINDS = ["HOST_STARTED", "POLICY_LOADED", "CALL_STARTED", "CALL_ENDED"]


def test_show_gives_whole_rows_oldest_first(logged: Cli) -> None:
    rows = logged("log", "show", "--format", "json").json["rows"]
    assert [row["kind"] for row in rows] == KINDS * 2
    assert [row["seq"] for row in rows] == list(range(1, 9))
    keys = {"seq", "id", "execution_id", "call_id", "step_id", "at", "kind", "data", "prev", "hash"}
    assert {frozenset(row) for row in rows} == {frozenset(keys)}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--execution", "e-2"), [7, 8]),
        (("--kind", "call_ended"), [4, 8]),
        (("--kind", "CALL-ENDED", "--limit", "1"), [8]),
        (("--limit", "3"), [6, 7, 8]),
        (("--limit", "0"), [1, 2, 3, 4, 5, 6, 7, 8]),
        (("--call", "no-such"), []),
    ],
)
def test_show_filters(logged: Cli, words: tuple[str, ...], expected: list[int]) -> None:
    rows = logged("log", "show", *words, "--format", "json").json["rows"]
    assert [row["seq"] for row in rows] == expected


def test_show_as_text_on_a_wide_and_on_a_narrow_terminal(logged: Cli) -> None:
    wide = logged("log", "show", "--execution", "e-1", width=120).out.splitlines()
    assert wide[0].split() == ["seq", "time", "kind", "what"]
    assert wide[1].split()[3] == "CALL_STARTED"
    assert wide[1].endswith('upper {"a":1}')
    narrow = logged("log", "show", "--execution", "e-1", width=50).out.splitlines()
    assert max(map(len, narrow)) <= 50
    assert narrow[0].startswith("3  ") and narrow[0].endswith("  CALL_STARTED")
    assert narrow[1].startswith("  call-") and narrow[1].endswith(' upper {"a":1}')


def test_nothing_logged_yet_is_said_as_such(cli: Cli) -> None:
    write(cli.folder, TOOLS)
    done = cli("log", "show")
    assert done.code == 1
    assert done.err == (
        f"error: {cli.folder}/state/events.sqlite3: there is no such file\n"
        "Hint: nothing was recorded here yet, or --config names another state folder\n"
    )


@pytest.mark.promise("host:verify-finds-a-changed-row")
def test_verify_says_which_rows_an_execution_has_and_checks_no_less_for_it(logged: Cli) -> None:
    told = logged("log", "verify", "--execution", "e-2")
    assert (told.code, told.out.splitlines()[-1]) == (0, "    of execution e-2: 2 rows, 7 to 8")
    assert logged("log", "verify", "--execution", "no").out.splitlines()[-1] == "    of execution no: 0 rows"
    found = logged("log", "verify", "--execution", "e-1", "--format", "json").json
    assert (found["ok"], found["execution"]) == (True, {"id": "e-1", "rows": 2, "first": 3, "last": 4})
    assert "execution" not in logged("log", "verify", "--format", "json").json
    with sqlite3.connect(logged.folder / "state" / "events.sqlite3") as database:
        database.execute("UPDATE events SET data = '{}' WHERE seq = 1")
    database.close()
    assert logged("log", "verify", "--execution", "e-2").code == 2, "a row of nobody's was changed"


def test_verify_is_0_for_an_intact_log_and_2_for_a_changed_one(logged: Cli) -> None:
    good = logged("log", "verify")
    assert (good.code, good.err) == (0, "")
    head = logged("log", "verify", "--format", "json").json["head"]
    assert good.out == f"OK  8 rows, chain intact\n    head 8:{head['hash']}\n"
    assert logged("log", "verify", "--quiet").out == ""
    with sqlite3.connect(logged.folder / "state" / "events.sqlite3") as log:
        log.execute("""UPDATE events SET data = replace(data, '"upper"', '"lower"') WHERE seq = 4""")
    log.close()
    bad = logged("log", "verify")
    assert (bad.code, bad.out) == (2, "")
    assert bad.err.startswith("error: the log does not verify: row 4: its content gives the hash ")
    told = logged("log", "verify", "--format", "json")
    assert told.code == 2
    assert {name: told.json[name] for name in ("ok", "rows", "first_bad")} == {
        "ok": False,
        "rows": 3,
        "first_bad": 4,
    }


@pytest.mark.promise("host:verify-finds-a-changed-row")
def test_an_anchor_shows_that_the_tail_was_cut_off(logged: Cli) -> None:
    head = logged("log", "verify", "--format", "json").json["head"]
    anchor = f"{head['seq']}:{head['hash']}"
    assert logged("log", "verify", "--anchor", anchor).code == 0
    with sqlite3.connect(logged.folder / "state" / "events.sqlite3") as log:
        log.execute("DELETE FROM events WHERE seq = 8")
    log.close()
    assert logged("log", "verify").code == 0
    cut = logged("log", "verify", "--anchor", anchor)
    assert cut.code == 2
    assert "the log ends at row 7, but the anchor names row 8: the tail was cut off" in cut.err
    wrong = logged("log", "verify", "--anchor", "8:short")
    assert (wrong.code, wrong.err.splitlines()[0]) == (2, "error: --anchor '8:short' is not SEQ:HASH")


def test_export_is_json_lines_with_hashes_or_one_object(logged: Cli) -> None:
    lines = logged("log", "export").out.splitlines()
    assert [json.loads(line)["kind"] for line in lines] == KINDS * 2
    assert logged("log", "export", "--format", "json").json["rows"] == [json.loads(line) for line in lines]
    one = logged("log", "export", "--execution", "e-2", "--output", "out.jsonl")
    assert (one.code, one.out, one.err) == (0, "", "")
    exported = (logged.folder / "out.jsonl").read_text(encoding="utf-8")
    assert exported.splitlines() == lines[6:]
    again = logged("log", "export", "--output", "out.jsonl")
    assert (again.code, again.err) == (
        2,
        "error: --output out.jsonl: exists already\nHint: name a file that does not\n",
    )
    assert (logged.folder / "out.jsonl").read_text(encoding="utf-8") == exported


def test_tail_shows_the_last_rows_and_those_that_come(tmp_path: Path) -> None:
    finish(["run", "--", "true"], cwd=tmp_path)
    words = ["log", "tail", "--lines", "1", "--format", "json"]
    with spawn(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["kind"] == "CALL_ENDED"
        finish(["run", "--", "true"], cwd=tmp_path)
        assert [json.loads(process.stdout.readline())["kind"] for _ in range(4)] == KINDS
        process.terminate()
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (143, b"")


def test_what_a_tool_emitted_cannot_write_to_the_terminal(cli: Cli) -> None:
    tool = "def run(input, ctx):\n    ctx.emit('K\\x1b[2J', '\\x9b31m\\u202eevil\\nline')\n"
    write(cli.folder, '[tools.evil]\nmodule = "tools/evil.py"\n', evil=tool)
    cli("call", "evil")
    shown = cli("log", "show", "--kind", "TOOL_EVENT", width=200).out
    assert not any(char in shown for char in "\x1b\x9b\u202e")
    assert r'evil K\x1b[2J "\u009b31m\u202eevil\nline"' in shown
