"""Signals to `fumehood run` reach the command, as if nobody stood between."""

from __future__ import annotations

import signal
import subprocess
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
