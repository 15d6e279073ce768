"""How the command line ends: interrupted, with nobody who reads on, where letters cannot be written."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.host.cli import Cli, spawn, write

PIPE = subprocess.PIPE


@pytest.mark.parametrize("module", ["click", "rich", "pydantic"])
def test_an_interrupt_in_the_middle_of_an_import_ends_without_a_word(tmp_path: Path, module: str) -> None:
    """Each of them is imported at another stage: the parser, the output, the configuration."""
    write(tmp_path, '[tools.t]\ncommand = ["true"]\n')
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / f"{module}.py").write_text(
        "import signal\nprint('here', flush=True)\nsignal.pause()\n"
    )
    env = {"PYTHONPATH": str(tmp_path / "late")}
    words = ["tools"] if module == "rich" else ["call", "t"]
    with spawn(words, cwd=tmp_path, env=env, stdout=PIPE, stderr=PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, out, err) == (-signal.SIGINT, b"", b"")


@pytest.mark.parametrize("words", [["tools"], ["doctor"], ["log", "show"], ["explain", "last"], ["--help"]])
def test_a_reader_that_went_away_is_exit_code_141_and_no_word(tmp_path: Path, words: list[str]) -> None:
    write(tmp_path, '[tools.t]\ncommand = ["true"]\nresult = "text"\n')
    with spawn(["call", "t"], cwd=tmp_path, stdout=PIPE) as process:
        process.communicate()
    theirs, ours = os.pipe()
    os.close(theirs)
    with spawn(words, cwd=tmp_path, stdout=ours, stderr=PIPE) as process:
        os.close(ours)
        _, err = process.communicate()
    assert (process.returncode, err) == (141, b"")


def test_what_the_encoding_has_no_letter_for_is_written_as_an_escape(tmp_path: Path) -> None:
    write(tmp_path, '[tools.t]\ncommand = ["printf", "caf\\u00e9"]\nresult = "text"\n')
    env = {"PYTHONIOENCODING": "ascii"}
    with spawn(["call", "t"], cwd=tmp_path, env=env, stdout=PIPE, stderr=PIPE) as process:
        assert process.communicate() == (b"caf\\xe9\n", b"")
    with spawn(["call", "tö"], cwd=tmp_path, env=env, stdout=PIPE, stderr=PIPE) as process:
        out, err = process.communicate()
    assert (process.returncode, out) == (3, b"")
    assert err.startswith(b"error: t\\xf6: denied (unknown-tool)")


def test_an_export_that_breaks_off_leaves_no_half_file(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    import fumehood._cli.log as verb

    write(cli.folder, '[tools.t]\ncommand = ["true"]\nresult = "text"\n')
    assert cli("call", "t").code == 0
    kept = signal.getsignal(signal.SIGINT)
    exact = verb._exact
    written: list[str] = []

    def interrupted(event: object) -> str:
        if written:
            signal.raise_signal(signal.SIGINT)
        written.append(exact(event))  # type: ignore[arg-type]
        return written[-1]

    monkeypatch.setattr(verb, "_exact", interrupted)
    assert cli("log", "export", "--output", "rows.jsonl").code == 130
    assert (len(written), (cli.folder / "rows.jsonl").exists()) == (1, False)
    assert signal.getsignal(signal.SIGINT) is kept
    monkeypatch.setattr(verb, "_exact", exact)
    assert cli("log", "export", "--output", "rows.jsonl").code == 0
    assert len((cli.folder / "rows.jsonl").read_text().splitlines()) == 4


def test_a_shell_asks_for_completions_and_hears_nothing_else(tmp_path: Path) -> None:
    env = {"_FUMEHOOD_COMPLETE": "bash_complete", "COMP_WORDS": "fumehood log sh", "COMP_CWORD": "2"}
    with spawn([], cwd=tmp_path, env=env, stdout=PIPE, stderr=PIPE) as process:
        assert process.communicate() == (b"plain,show\n", b"")
    assert process.returncode == 0
