"""Acknowledged means on disk: writers that are killed at random instants, and what SQLite was told
about durability.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fumehood.agent import EventLog


@pytest.mark.promise("agent:acknowledged-is-on-disk")
def test_nothing_acknowledged_is_lost_when_the_writer_is_killed_at_random_instants(tmp_path: Path) -> None:
    program = Path(__file__).with_name("kill_log_rounds.py")
    command = [sys.executable, str(program), str(tmp_path / "log.sqlite3"), "20261130", "150"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert report["rounds"] >= 10 and report["acknowledged"] > report["rounds"], report
    assert (report["lost"], report["repeated"], report["ok"]) == ([], 0, True), report


@pytest.mark.promise("agent:acknowledged-is-on-disk")
def test_every_commit_asks_the_disk(tmp_path: Path) -> None:
    # A power cut cannot be tried here; what can be checked is that the writer asked for the mode in which
    # SQLite syncs each commit.
    log = EventLog(tmp_path / "log.sqlite3")
    connection = log._connect(read_only=False)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    connection.close()
    log.close()
