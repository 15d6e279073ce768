"""kill -9 of the host leaves nothing: no process, no control group, no folder; on every tier, as
root and as an ordinary user.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from fumehood.isolate import CallFrame, ToolSpec
from fumehood.policies.errors import SandboxUnavailable
from tests.isolate.drivers import running, settled
from tests.isolate.runner import DEGRADED, DegradedIsolator, Services, degraded_children
from tests.isolate.setups import ROOTLESS
from tests.users import ROOT, as_user

BUSY = 5
PROMISED_S = 1.0
REMOVED_S = 30.0  # a thousand folders in each other, on whatever disk this is
START_S = 60.0


def _within(seconds: float, found: Callable[[], list[object]]) -> list[object]:
    """What `found` still finds after `seconds`, times as much as more processes want the cores than
    there are.
    """
    end = time.monotonic() + seconds * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    while (left := found()) and time.monotonic() < end:
        time.sleep(0.005)
    return left


def _left_on_disk(pid: int) -> list[object]:
    groups = [root for root, _, _ in os.walk("/sys/fs/cgroup") if f"/fumehood-{pid}" in root]
    return [*groups]


@contextlib.contextmanager
def doomed_host(person: str, tier: str, calls: int) -> Iterator[tuple[str, subprocess.Popen[bytes], Path]]:
    """A running host with busy calls: (marker of its processes, itself, its folder for temporary files)."""
    marker, folder = f"31536000.{os.getpid()}{time.monotonic_ns() % 10**9}", Path(tempfile.mkdtemp())
    folder.chmod(0o1777)
    argv = [sys.executable, "-m", "tests.isolate.doomed_host", tier, marker, str(calls)]
    command = as_user(argv) if person == "user" else argv
    env = {
        "PATH": os.environ["PATH"],
        "HOME": "/tmp",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(folder),
    }
    host = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE)
    try:
        assert host.stdout is not None and host.stdout.readline() == b"running\n"
        end = time.monotonic() + START_S
        # The shell and its three sleeps.
        while len([pid for pid in running(marker) if pid != host.pid]) < 4 * calls:
            assert host.poll() is None and time.monotonic() < end, running(marker)
            time.sleep(0.01)
        yield marker, host, folder
    finally:
        host.kill()
        host.wait()
        if host.stdout is not None:
            host.stdout.close()
        for pid in running(marker):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.promise("isolate:gone-with-the-host")
@pytest.mark.requirement("R477")
@pytest.mark.parametrize("tier", ["namespaces", "landlock"])
@pytest.mark.parametrize("person", ["user"] if ROOTLESS else ["root", "user"])
def test_a_killed_host_takes_everything_with_it(person: str, tier: str) -> None:
    with doomed_host(person, tier, BUSY) as (marker, host, folder):
        tree = psutil.Process(host.pid).children(recursive=True)
        assert len(tree) >= 4 * BUSY
        host.kill()
        host.wait()

        def alive() -> list[object]:
            found: list[object] = []
            for process in tree:
                with contextlib.suppress(psutil.NoSuchProcess):
                    if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                        found.append(process)
            return found + list(running(marker))

        assert _within(PROMISED_S, alive) == []
        assert _within(PROMISED_S, lambda: _left_on_disk(host.pid)) == []
        assert _within(PROMISED_S, lambda: list(os.listdir(folder))) == []
        folder.rmdir()


@pytest.mark.promise("isolate:gone-with-the-host")
def test_folders_deeper_than_python_can_follow_go_with_a_killed_host() -> None:
    with doomed_host("user" if ROOTLESS else "root", "landlock", 1) as (_, host, folder):
        host.kill()
        host.wait()
        assert _within(REMOVED_S, lambda: list(os.listdir(folder))) == []
        folder.rmdir()


@pytest.mark.promise("isolate:gone-with-the-host")
def test_the_same_programs_outlive_a_parent_that_only_runs_them() -> None:
    """The control: a plain subprocess tree stays when its parent is killed."""
    marker = f"31536000.{os.getpid()}{time.monotonic_ns() % 10**9}"
    code = (
        f"import subprocess, time; subprocess.Popen(['setsid', 'sleep', '{marker}']); print(1, "
        "flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert parent.stdout is not None and parent.stdout.readline() == b"1\n"
    parent.kill()
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + START_S
    while not (left := running(marker)) and time.monotonic() < end:
        time.sleep(0.01)  # between two execs a process has no arguments
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert len(left) == 1


def _left_alone() -> list[int]:
    """Processes of a launcher with walls taken out whose launcher is gone."""
    mine = set(running(str(DEGRADED)))
    found = []
    for pid in mine:
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = psutil.Process(pid).parent()
            if parent is None or parent.pid not in mine and "pytest" not in " ".join(parent.cmdline()):
                found.append(pid)
    return found


@pytest.mark.anyio
@pytest.mark.promise("isolate:gone-with-the-host")
async def test_an_init_ends_with_its_maker_where_no_namespace_ends_it(tmp_path: Path) -> None:
    tool = tmp_path / "tool.py"
    tool.write_text("def run(input, ctx):\n    return 1\n", encoding="utf-8")
    before = set(_left_alone())
    with degraded_children():
        async with DegradedIsolator("namespaces", ["pid"], spares=0) as isolator:
            with pytest.raises(SandboxUnavailable, match="not caged as planned"):
                await isolator.call(ToolSpec("t", "module", path=tool), CallFrame("c", None, {}), Services())
    assert await settled(lambda: set(_left_alone()) <= before, True)
