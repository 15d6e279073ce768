"""What may reach a terminal, and how tables and paragraphs bend to its width."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from fumehood._cli._output import Output, json_text, one_line, visible, wrapped
from fumehood._cli._settings import Settings
from tests.host.cli import COMMAND, write
from tests.users import PYTHON

HOSTILE = "\x1b]0;title\x07 \x9b31m \u202e \u2066 \u200b \ufeff \x7f \r \u2028 \ud800"


@pytest.mark.promise("host:terminal-safe")
def test_no_control_bidi_or_invisible_character_stays_as_it_is() -> None:
    told = visible(HOSTILE)
    assert told.isascii() and told.isprintable()
    assert told == (r"\x1b]0;title\x07 \x9b31m \u202e \u2066 \u200b \ufeff \x7f \x0d \u2028 \ud800")
    assert visible("tab\tand\nline, ü, 漢字, 🧪") == "tab\tand\nline, ü, 漢字, 🧪"
    assert one_line("a\tb\nc") == r"a b\nc"


@pytest.mark.promise("host:terminal-safe")
def test_json_with_hostile_text_is_safe_and_still_the_same_value() -> None:
    import json

    text = json_text({HOSTILE: [HOSTILE, "漢"]})
    assert json.loads(text) == {HOSTILE: [HOSTILE, "漢"]}
    assert not any(char in text for char in HOSTILE if not char.isascii() or not char.isprintable())
    assert "漢" in text


def test_wrapping_loses_nothing_and_breaks_what_has_no_blank() -> None:
    assert wrapped("one two three", 8) == ["one two", "three"]
    assert wrapped("a" * 20, 8) == ["a" * 8, "a" * 8, "a" * 4]
    assert wrapped("one\n\ntwo", 20) == ["one", "", "two"]


@pytest.mark.parametrize("width", [40, 50, 80])
def test_a_table_loses_no_word_and_no_line_is_too_long(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    rows = [
        ("first", "short", "a sentence of some length that has to wrap somewhere"),
        ("second", "x" * 30, "漢字 " * 20),
    ]
    Output(Settings()).table(("name", "kind", "what"), rows)
    out = capsys.readouterr().out
    assert all(_cells(line) <= width and line == line.rstrip() for line in out.splitlines())
    for word in ("first", "short", "sentence", "somewhere", "second", "x" * 30):
        assert word in out
    assert out.count("漢字") == 20


def _cells(line: str) -> int:
    from fumehood._cli._output import cell_len

    return cell_len(line)


@pytest.mark.promise("host:terminal-safe")
def test_on_a_terminal_a_tools_text_is_made_visible(tmp_path: Path) -> None:
    write(tmp_path, '[tools.evil]\ncommand = ["printf", \'a\\033[2Jb\']\nresult = "text"\n')
    ours, theirs = pty.openpty()
    with subprocess.Popen([*COMMAND, "call", "evil"], cwd=tmp_path, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        try:
            while data := os.read(ours, 4096):
                shown += data
        except OSError:
            pass  # EIO: the other side is closed
        os.close(ours)
    assert process.returncode == 0
    assert shown == rb"a\x1b[2Jb" + b"\r\n"


PATIENT_WITHOUT_A_LOOP = """\
import signal, time
import fumehood._cli._loop as loop
from fumehood._cli._settings import Settings
loop.PROGRESS_AFTER_S = 0.0
signal.signal(signal.SIGINT, signal.SIG_DFL)

with loop.progress(Settings(), "waiting for it"):
    time.sleep(0.3)
print("done")
"""
PATIENT = """\
import asyncio, sys
import fumehood._cli._loop as loop
from fumehood._cli._settings import Settings
loop.PROGRESS_AFTER_S = 0.0

async def work():
    with loop.progress(Settings(), "waiting for it"):
        await asyncio.sleep(0.3)

loop.run_async(work())
print("done")
"""


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("program", [PATIENT, PATIENT_WITHOUT_A_LOOP], ids=["loop", "no loop"])
def test_a_long_wait_is_shown_on_a_terminal_only(terminal: bool, program: str) -> None:
    ours, theirs = pty.openpty()
    error = theirs if terminal else subprocess.PIPE
    with subprocess.Popen([PYTHON, "-c", program], stdout=subprocess.PIPE, stderr=error) as process:
        os.close(theirs)
        out, err = process.communicate(timeout=30)
    shown = b""
    try:
        while terminal and (data := os.read(ours, 4096)):
            shown += data
    except OSError:
        pass  # EIO: the other side is closed
    os.close(ours)
    assert out == b"done\n"
    assert (b"waiting for it" in shown) is terminal
    assert not err
