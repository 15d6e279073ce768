"""Honest programs work inside as outside: the "Isolation" scenarios of public bug reports (the id is the
report's), as root, as an ordinary user, and on the tier without namespaces where the report concerns it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from fumehood.isolate import Isolator, Limits, Machine, ToolSpec
from fumehood.isolate._zygote import ZygoteHandle
from tests.isolate.attacks._model import Case
from tests.isolate.runner import all_cases
from tests.isolate.setups import MARKER, ROOTLESS, RUNNABLE, compare, results
from tests.marks import only_root
from tests.users import ROOT

HONEST = {name: case for name, (_, case) in all_cases().items() if name.startswith("I")}


@pytest.mark.promise("isolate:programs-work")
@pytest.mark.parametrize(
    ("setup", "case"),
    [
        pytest.param(setup, case, id=f"{setup}-{name}")
        for setup in RUNNABLE
        for name, case in HONEST.items()
        if case.runs_in(setup)
    ],
)
def test_a_program_works_inside(setup: str, case: Case) -> None:
    compare(case.expected(setup), results(setup)[case.id])


@pytest.mark.promise("isolate:programs-work")
@pytest.mark.parametrize(
    "case", [] if ROOTLESS else [pytest.param(c, id=name) for name, c in HONEST.items() if not c.no_control]
)
def test_the_same_program_works_outside(case: Case) -> None:
    compare(case.control, results("control")[case.id])


@pytest.mark.promise("isolate:programs-work")
@only_root("nobody else covers /etc")
def test_authorities_behind_links_are_read_and_private_keys_beside_them_are_not(tmp_path: Path) -> None:
    """Fedora's layout (report I17): the bundle is a link into /etc/pki, where the private keys lie too."""
    etc = tmp_path / "etc"
    subprocess.run(["cp", "-a", "/etc", str(etc)], check=True)
    bundle = etc / "ssl" / "certs" / "ca-certificates.crt"
    real = etc / "pki" / "x.pem"
    (etc / "pki" / "tls" / "private").mkdir(parents=True)
    (etc / "pki" / "tls" / "private" / "key.pem").write_text("a private key", encoding="ascii")
    shutil.move(bundle.resolve(), real)
    bundle.unlink(missing_ok=True)
    bundle.symlink_to("../../pki/x.pem")
    for link in (etc / "ssl" / "certs").iterdir():
        if link != bundle and not link.is_dir():
            link.unlink()  # the single files would do as well: only the bundle is left
    runner = f"{sys.executable} -m tests.isolate.runner root I17-certificates"
    ran = subprocess.run(
        [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-ec",
            f"mount --bind {etc} /etc; exec {runner}",
        ],
        cwd=ROOT,
        env={**os.environ, "FUMEHOOD_ATTACK_MARKER": MARKER},
        capture_output=True,
        text=True,
        check=True,
    )
    compare(HONEST["I17-certificates"].caged, json.loads(ran.stdout)["I17-certificates"])


@pytest.mark.promise("isolate:gone-with-the-host")
def test_a_zygote_outlives_the_thread_that_asked_for_it() -> None:
    """Report I30: the parent-death signal follows the thread that forked, and that is the spawner's own."""
    started: list[ZygoteHandle] = []

    async def start() -> None:
        isolator = Isolator("namespaces", spares=0)
        spec = ToolSpec("thread", "command", argv=("true",), limits=Limits())
        started.append(ZygoteHandle(isolator._plan(spec), Machine.read().executable))
        await started[0].start()
        await isolator.close()

    thread = threading.Thread(target=lambda: asyncio.run(start()))
    thread.start()
    thread.join()
    (handle,) = started
    assert handle.pid is not None
    launcher = psutil.Process(handle.pid)
    assert len(launcher.children(recursive=True)) >= 2  # process 1 and the zygote
    assert handle._control is not None and handle._process is not None
    handle._control.close()  # what a host does that ends
    assert handle._process.wait(timeout=30) == 0
    os.close(handle._errors_fd)
