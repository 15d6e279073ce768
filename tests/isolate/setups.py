"""The runner's results, one process a set-up, kept for the session: tests only compare."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any

from tests.isolate.attacks._model import SETUPS, Ends, settle
from tests.users import ROOT, as_user, reachable

MARKER = "env-marker-of-the-host"
RUN_S = 600.0  # a set-up takes half a minute on two idle cores; a hang must end all the same

ROOTLESS = os.geteuid() != 0
"""As an ordinary user only that user's set-ups can run; `tests/test_promises.py` says what the
machine must be able to do.
"""

RUNNABLE = tuple(setup for setup in SETUPS if setup.startswith("user") or not ROOTLESS)


WANTED: list[str] = []
"""Set-ups that the tests of this session ask for, in their order: filled by `conftest.py`."""


@dataclass(frozen=True, slots=True)
class Run:
    """A runner at work, and where its words go."""

    process: subprocess.Popen[bytes]
    out: IO[bytes]
    err: IO[bytes]


_runs: dict[tuple[str, str], Run] = {}


@functools.cache
def results(setup: str, person: str = "") -> Mapping[str, Any]:
    """Case id -> record. person: "user" runs a set-up that does not say so itself as the ordinary user.

    The next set-up that will be asked for starts beside this one: much of a run is waiting for deadlines.
    """
    run = _start(setup, person)
    if setup in WANTED[:-1]:
        _start(WANTED[WANTED.index(setup) + 1], "")
    run.process.wait(timeout=RUN_S)
    run.out.seek(0)
    run.err.seek(0)
    out, err = run.out.read().decode(), run.err.read().decode()
    # Not a word on standard error: a callback that failed in the host's loop would end there.
    assert (run.process.returncode, err) == (0, ""), (
        f"{setup}: exit code {run.process.returncode}\n{err}\n{out[-2000:]}"
    )
    found: Mapping[str, Any] = json.loads(out)
    return found


def _start(setup: str, person: str) -> Run:
    if (setup, person) not in _runs:
        argv = [sys.executable, "-m", "tests.isolate.runner", setup]
        if "user" in (person, setup.partition("-")[0]):
            argv = as_user(argv)
        elif not ROOTLESS:
            argv = reachable(argv)  # without mounts of its own a sandbox's user sees the checkout as it is
        out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - closed by end_all
        process = subprocess.Popen(
            argv,
            cwd=ROOT,
            env={
                "PATH": os.environ["PATH"],
                "LANG": "C.UTF-8",
                "HOME": "/tmp",
                "PYTHONDONTWRITEBYTECODE": "1",
                "FUMEHOOD_ATTACK_MARKER": MARKER,
            },
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        _runs[setup, person] = Run(process, out, err)
    return _runs[setup, person]


def end_all() -> None:
    """Kill what still runs; the session is over."""
    for run in _runs.values():
        if run.process.poll() is None:
            os.killpg(run.process.pid, signal.SIGKILL)
            run.process.wait()
        run.out.close()
        run.err.close()
    _runs.clear()


def compare(expected: Any, found: Mapping[str, Any]) -> None:
    """Assert a record against an expectation: the value, or how the call must end."""
    if isinstance(expected, Ends):
        ended = {key: found.get(key) for key in ("outcome", "reason", "signal")}
        wanted = {"outcome": expected.outcome, "reason": expected.reason, "signal": expected.signal}
        if expected.error is not None:
            ended["error"], wanted["error"] = found.get("error"), expected.error
        assert ended == wanted, found
    else:
        assert "value" in found, found
        assert found["value"] == settle(expected, found["value"])
