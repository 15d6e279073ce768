"""The runner's results, one process a set-up, kept for the session: tests only compare."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from tests.isolate.attacks._model import SETUPS, Ends, settle
from tests.users import ROOT, as_user

MARKER = "env-marker-of-the-host"
RUN_S = 600.0  # a set-up takes half a minute on two idle cores; a hang must end all the same

ROOTLESS = os.geteuid() != 0
"""As an ordinary user only that user's set-ups can run; `tests/test_promises.py` says what the
machine must be able to do.
"""

RUNNABLE = tuple(setup for setup in SETUPS if setup.startswith("user") or not ROOTLESS)


@functools.cache
def results(setup: str, person: str = "") -> Mapping[str, Any]:
    """Case id -> record. person: "user" runs a set-up that does not say so itself as the ordinary user."""
    argv = [sys.executable, "-m", "tests.isolate.runner", setup]
    command = as_user(argv) if "user" in (person, setup.partition("-")[0]) else argv
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": "/tmp",
            "PYTHONDONTWRITEBYTECODE": "1",
            "FUMEHOOD_ATTACK_MARKER": MARKER,
        },
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=RUN_S,
        check=False,
    )
    # Not a word on standard error: a callback that failed in the host's loop would end there.
    assert (ran.returncode, ran.stderr) == (0, ""), (
        f"{setup}: exit code {ran.returncode}\n{ran.stderr}\n{ran.stdout[-2000:]}"
    )
    found: Mapping[str, Any] = json.loads(ran.stdout)
    return found


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
