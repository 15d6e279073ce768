"""Signals to `fumehood run` reach the command, as if nobody stood between."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.host.cli import spawn


def _answer(folder: Path, script: str, *numbers: int) -> tuple[int, str, float]:
    """Exit code, output, and how long it took from the first signal on."""
    with spawn(["run", "--", "sh", "-c", script], cwd=folder, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        sent = time.monotonic()
        for number in numbers:
            process.send_signal(number)
            time.sleep(0.3)
        out, _ = process.communicate(timeout=40)
    return process.returncode, out.decode(), time.monotonic() - sent


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2"])
def test_the_command_hears_it_and_ends_as_it_likes(tmp_path: Path, name: str) -> None:
    script = f"trap 'echo heard; exit 9' {name}; echo up; while :; do sleep 0.05; done"
    code, out, _ = _answer(tmp_path, script, getattr(signal, f"SIG{name}"))
    assert (code, out) == (9, "heard\n")


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "QUIT", "USR1"])
def test_one_that_does_not_listen_dies_of_it(tmp_path: Path, name: str) -> None:
    number = getattr(signal, f"SIG{name}")
    code, _, _ = _answer(tmp_path, "echo up; sleep 100; echo not reached", number)
    assert code == 128 + number


def test_a_deaf_one_is_killed_by_the_second(tmp_path: Path) -> None:
    script = "trap '' TERM; echo up; while :; do sleep 0.05; done"
    code, _, took = _answer(tmp_path, script, signal.SIGTERM, signal.SIGTERM)
    assert code == 128 + signal.SIGTERM
    assert took < 4.5, "the second signal does not wait"


def test_an_interrupt_reaches_the_whole_group_as_from_a_terminal(tmp_path: Path) -> None:
    # The child says "up", not the shell: dash drops a signal that comes between its vfork and the exec.
    child = 'import time; print("up", flush=True); time.sleep(50)'
    script = f"trap 'exit 3' INT; python3 -c '{child}'; exit 4"
    code, _, took = _answer(tmp_path, script, signal.SIGINT)
    assert code == 3, "the shell acts once its child has ended, so the child was told too"
    assert took < 4.5


STOPPED = """
import os, signal, sys
def say(word, code=None):
    os.write(1, word.encode() + b"\\n")  # a handler may come while another line is written
    if code is not None:
        os._exit(code)
signal.signal(signal.SIGCONT, lambda *_: say("on"))
signal.signal(signal.SIGTERM, lambda *_: say("end", 5))
say("up")
while True:
    signal.pause()
"""


def _states(process: subprocess.Popen[bytes]) -> set[str]:
    """States of fumehood and of the command."""
    import psutil

    whole = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    return {one.status() for one in whole if one.pid == process.pid or STOPPED in one.cmdline()}


def test_a_stop_stops_the_command_too_and_both_go_on_together(tmp_path: Path) -> None:
    words = ["run", "--", "/usr/bin/python3", "-c", STOPPED]
    with spawn(words, cwd=tmp_path, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGTSTP)
        end = time.monotonic() + 20
        while (states := _states(process)) != {"stopped"} and time.monotonic() < end:
            time.sleep(0.02)
        process.send_signal(signal.SIGCONT)
        assert states == {"stopped"}
        assert process.stdout.readline() == b"on\n"
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=40)
    assert (process.returncode, out) == (5, b"end\n")


def test_a_change_of_the_window_is_passed_on_where_the_terminal_is_not_joined(tmp_path: Path) -> None:
    code, out, _ = _answer(
        tmp_path, "trap 'echo wide; exit 6' WINCH; echo up; while :; do sleep 0.05; done", signal.SIGWINCH
    )
    assert (code, out) == (6, "wide\n")


def test_a_lot_goes_in_and_out_at_once(tmp_path: Path) -> None:
    data = bytes(range(256)) * 40_000
    with spawn(["run", "--", "cat"], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        out, _ = process.communicate(data, timeout=60)
    assert (process.returncode, out == data) == (0, True)
    text = "x" * 7_000_000
    (tmp_path / "fumehood.toml").write_text(
        'version = 1\n[host]\nstate = "state"\n[tools.t]\ncommand = ["cat"]\n', encoding="utf-8"
    )
    with spawn(["call", "t", "-"], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        out, _ = process.communicate(f'"{text}"'.encode(), timeout=60)
    assert (process.returncode, out == f"{text}\n".encode()) == (0, True)


def test_an_input_that_ends_is_the_end_of_the_commands_input(tmp_path: Path) -> None:
    with spawn(
        ["run", "--", "sh", "-c", "cat; echo end"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"line\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"line\n"
        process.stdin.close()
        assert process.stdout.read() == b"end\n"
        assert process.wait(timeout=60) == 0


def test_what_the_host_s_parent_ignored_is_not_ignored_in_the_cage(tmp_path: Path) -> None:
    shown = "sed -n s/^SigIgn:.//p /proc/self/status"
    shell = f"trap '' HUP QUIT USR1 ALRM; {shown}; exec {sys.executable} -m fumehood run -- {shown}"
    done = subprocess.run(["sh", "-c", shell], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    outside, inside = (int(line, 16) for line in done.stdout.split())
    ignored = [signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGALRM]
    assert [bool(outside >> number - 1 & 1) for number in ignored] == [True] * 4, "the control"
    assert inside == 0
