"""The log can be read where it cannot be written: a read-only disk, a folder of somebody else's."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fumehood.agent import EventLog, StorageError
from tests.users import run_as_user, user_folder

ROWS = 5
LEAVE = """
import os, signal, sys
from fumehood.agent import EventLog
log = EventLog(sys.argv[1])
for number in range(int(sys.argv[2])):
    log.record_sync("TOOL_EVENT", {"n": number})
if sys.argv[3] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
log.close()
"""
READ = """
import json, sys
from fumehood.agent import EventLog
log = EventLog(sys.argv[1], read_only=True)
result = log.verify()
print(json.dumps([result.ok, result.rows, log.head().seq, [row.data["n"] for row in log.events()]]))
"""
WHOLE = [True, ROWS, ROWS, list(range(ROWS))]


def left(folder: Path, how: str) -> Path:
    """A log as it is found afterwards: closed in order, its host killed, or copied without what SQLite
    shares between processes.
    """
    path = folder / how / "events.sqlite3"
    path.parent.mkdir()
    subprocess.run(
        [sys.executable, "-c", LEAVE, str(path), str(ROWS), "closed" if how == "closed" else "killed"],
        check=False,
    )
    if how == "copied":
        path.with_name(f"{path.name}-shm").unlink()
    names = {"closed": [""], "killed": ["", "-shm", "-wal"], "copied": ["", "-wal"]}[how]
    assert sorted(entry.name for entry in path.parent.iterdir()) == [path.name + name for name in names]
    return path


@pytest.mark.promise("host:log-is-read-anywhere")
@pytest.mark.parametrize("how", ["closed", "killed", "copied"])
def test_a_log_on_a_read_only_disk_is_read_whole_by_every_verb(tmp_path: Path, how: str) -> None:
    path = left(tmp_path, how)
    (tmp_path / "fumehood.toml").write_text(f'version = 1\n[host]\nstate = "{how}"\n', encoding="utf-8")
    mine = [] if os.geteuid() == 0 else ["--map-current-user", "--keep-caps"]
    fumehood = f"{sys.executable} -m fumehood --config {tmp_path}/fumehood.toml --format json"
    script = (
        f"mount --bind {tmp_path} {tmp_path} && mount -o remount,bind,ro {tmp_path} && cd / && "
        f"! touch {path.parent}/x 2>/dev/null && {fumehood} log verify && {fumehood} log show && "
        f"{fumehood} log export"
    )
    ran = subprocess.run(["unshare", *mine, "--mount", "sh", "-c", script], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    verified, shown, exported = (json.loads(text) for text in _objects(ran.stdout))
    assert (verified["ok"], verified["rows"]) == (True, ROWS)
    assert [row["data"]["n"] for row in shown["rows"]] == list(range(ROWS))
    assert [row["data"]["n"] for row in exported["rows"]] == list(range(ROWS))


def _objects(text: str) -> list[str]:
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text.rstrip()):
        _, end = decoder.raw_decode(text, at)
        found.append(text[at:end])
        at = end + len(text[end:]) - len(text[end:].lstrip())
    return found


@pytest.mark.promise("host:log-is-read-anywhere")
@pytest.mark.parametrize("how", ["closed", "killed", "copied"])
def test_whoever_may_read_a_log_and_not_write_it_reads_it_whole(how: str) -> None:
    with user_folder() as folder:
        path = left(folder, how)
        for entry in path.parent.iterdir():
            entry.chmod(0o444)
        path.parent.chmod(0o555)
        done = run_as_user([sys.executable, "-c", READ, str(path)])
        path.parent.chmod(0o755)
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout) == WHOLE
        assert not list(Path("/tmp").glob("fumehood-*/events.sqlite3"))


def test_a_log_that_may_not_be_read_says_so(tmp_path: Path) -> None:
    with user_folder() as folder:
        path = left(folder, "closed")
        path.chmod(0)
        done = run_as_user([sys.executable, "-c", READ, str(path)])
    assert f"StorageError: {path}: Permission denied" in done.stderr


def test_a_reader_of_a_living_log_sees_what_is_written_meanwhile(tmp_path: Path) -> None:
    with EventLog(tmp_path / "log" / "events.sqlite3") as log:
        log.record_sync("TOOL_EVENT", {"n": 0})
        reading = EventLog(log.path, read_only=True)
        log.record_sync("TOOL_EVENT", {"n": 1})
        assert [row.data for row in reading.events()] == [{"n": 0}, {"n": 1}]
    shutil.rmtree(tmp_path / "log")
    with pytest.raises(StorageError, match="there is no such file"):
        EventLog(log.path, read_only=True)
