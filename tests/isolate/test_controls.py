"""Controls of the attacks on the host's own code: a careless host, a few lines long, falls to each
of them.
"""

from __future__ import annotations

import array
import asyncio
import json
import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fumehood.isolate.child.frames import FrameParser
from tests.isolate.attacks._kernel import value_apart
from tests.isolate.attacks._wire import frame, result
from tests.isolate.attacks.flooding import ODD_BYTES
from tests.isolate.attacks.forging import TRAPS
from tests.isolate.attacks.storing import leftovers
from tests.isolate.drivers import Touch, hostile_folder, running

pytestmark = pytest.mark.anyio


def test_38_a_host_that_receives_descriptors_has_them() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        files = [os.open("/dev/null", os.O_RDONLY) for _ in range(100)]
        theirs.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])
        _, received, _, _ = socket.recv_fds(ours, 1, 253)
    for fd in (*files, *received):
        os.close(fd)
    assert len(received) == 100


async def test_39_a_host_that_starts_a_task_a_request_has_them_all_at_once() -> None:
    at_once = most = 0

    async def serve() -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        at_once -= 1

    frames = FrameParser().feed(b"".join(frame(b'{"t":"fetch"}') for _ in range(2000)))
    await asyncio.gather(*(asyncio.create_task(serve()) for _ in frames))
    assert most == 2000


def test_40_a_plain_interpreter_runs_what_lies_beside_the_tool(tmp_path: Path) -> None:
    env = hostile_folder(tmp_path)
    del env["PYTHONHOME"]  # with it the interpreter does not even start
    ran = subprocess.run(
        [sys.executable, str(tmp_path / "tool.py")],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert ran.stdout == "hostile json\n"


def test_52_a_daemon_of_a_plain_process_lives_on(tmp_path: Path) -> None:
    marker = f"31536000.{os.getpid()}{time.monotonic_ns() % 10**9}"
    script = (
        "import os, sys; from tests.isolate.attacks.multiplying import daemon; "
        f"daemon({{'ctx': None, 'marker': '{marker}'}})"
    )
    subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        cwd=Path(__file__).resolve().parents[2],
        stdout=subprocess.DEVNULL,
    )
    end = time.monotonic() + 30
    while not (left := running(marker)) and time.monotonic() < end:
        time.sleep(0.01)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert len(left) == 1


def test_56_two_calls_in_one_process_see_each_other(tmp_path: Path) -> None:
    def both() -> Any:
        world = {"ctx": SimpleNamespace(tmp=str(tmp_path)), "abstract": f"fumehood-control-{os.getpid()}"}
        leftovers(world)
        found = leftovers({**world, "second": True})
        subprocess.run(["ipcrm", "-M", str(0xF00D), "-Q", str(0xF00D)], check=False)
        subprocess.run(["pkill", "-KILL", "-P", str(os.getpid())], check=False)
        Path("/dev/shm/fumehood-left").unlink(missing_ok=True)
        (tmp_path / "closed").chmod(0o700)
        return found

    assert value_apart(both) == {
        "files": ["closed", "left"], "shared memory": ["fumehood-left"], "segments": 1, "queues": 1,
        "abstract": "ok",
    }  # fmt: skip


def test_60_a_host_that_takes_every_frame_takes_the_last() -> None:
    taken = [
        json.loads(payload)["value"] for _, payload in FrameParser().feed(result("first") + result("second"))
    ]
    assert taken[-1] == "second"


def test_61_a_host_that_believes_a_length_allocates_it() -> None:
    length = int.from_bytes(frame(b"x", length=1 << 28)[:4], "big")
    assert len(bytearray(length)) == 1 << 28


@pytest.mark.parametrize("trap", ["100000 lists", "100000 objects", "long integer"])
def test_62_pythons_own_parser_raises_what_is_no_error_of_the_text(trap: str) -> None:
    with pytest.raises((RecursionError, ValueError)) as raised:
        json.loads(TRAPS[trap]()[5:])
    assert not isinstance(raised.value, json.JSONDecodeError)


def test_62_pythons_own_parser_takes_what_is_no_json() -> None:
    taken = [
        json.loads(TRAPS[trap]()[5:])["value"] for trap in ("NaN", "Infinity", "1e400", "lone surrogate")
    ]
    assert [math.isnan(taken[0]), *taken[1:]] == [True, -math.inf, math.inf, "\ud800"]


def test_59_bytes_that_are_no_text_raise_where_text_is_expected() -> None:
    with pytest.raises(UnicodeDecodeError):
        ODD_BYTES.decode()


def test_63_a_host_that_unpickles_runs_it(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Touch(str(tmp_path / "ran"))))
    assert (tmp_path / "ran").exists()
