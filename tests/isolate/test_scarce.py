"""A host that has no descriptors or no processes left: the call that needs one is refused, and no other."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from fumehood.isolate import CallFrame, Isolator, Limits, ToolSpec
from fumehood.isolate.tiers import Tier
from fumehood.policies.errors import SandboxUnavailable
from tests.isolate.drivers import settled, short
from tests.isolate.runner import Services
from tests.users import ROOT, run_as_user

pytestmark = pytest.mark.anyio

PATH = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def tool() -> Iterator[Path]:
    """A tool that does nothing."""
    with tempfile.TemporaryDirectory(prefix="scarce-", dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        path = Path(name) / "tool.py"
        path.write_text("def run(input, ctx):\n    return 1\n", encoding="ascii")
        yield path


@pytest.mark.promise("isolate:nothing-outlives-a-call")
@pytest.mark.parametrize("tier", ["namespaces", "landlock"])
@pytest.mark.parametrize("started", [True, False], ids=["a zygote stands", "the first call"])
async def test_without_descriptors_a_call_is_refused_and_nothing_stays_open(
    tool: Path, tier: Tier, started: bool
) -> None:
    spec = ToolSpec("scarce", "module", path=tool, limits=Limits())
    open_now = psutil.Process().num_fds
    refused = 0
    for left in range(40):
        async with Isolator(tier, spares=0) as isolator:
            if started:
                assert short(await isolator.call(spec, CallFrame("c", None, PATH), Services())) == "ok"
                await settled(lambda: isolator.living, 0)
            fewest = open_now()
            with only_so_many(left):
                try:
                    outcome = short(await isolator.call(spec, CallFrame("c", None, PATH), Services()))
                except SandboxUnavailable as error:
                    assert "Too many open files" in str(error)
                    outcome = "refused"
            if started:
                assert await settled(open_now, fewest) == fewest
            assert short(await isolator.call(spec, CallFrame("n", None, PATH), Services())) == "ok"
        if outcome == "ok":
            break
        assert outcome == "refused"
        refused += 1
    assert (outcome, refused > 3) == ("ok", True)


IN_CHILDREN = """
import os, time
def run(input, ctx):
    ctx.emit("NOW")
    while True:
        pid = os.fork()
        if pid == 0:
            while time.process_time() < 0.3:
                pass
            os._exit(0)
        os.waitpid(pid, 0)
"""
"""No process of its own runs long enough for the kernel's limit."""


class WithoutDescriptors(Services):
    """Leaves the host none while the tool works, and some of the time after."""

    async def event(self, kind: str, data: object) -> None:
        with only_so_many(0):
            await asyncio.sleep(0.2)  # the watcher looks four times
        await super().event(kind, data)


@pytest.mark.promise("isolate:limits-hold")
async def test_the_watcher_goes_on_where_it_could_not_look_for_a_while(tool: Path) -> None:
    tool.write_text(IN_CHILDREN, encoding="ascii")
    spec = ToolSpec("watched", "module", path=tool, limits=Limits(cpu_s=1.0, timeout_s=10.0))
    async with Isolator("namespaces", spares=0) as isolator:
        ended = await isolator.call(spec, CallFrame("c", None, PATH), WithoutDescriptors())
    assert short(ended) == "limit cpu"


@contextlib.contextmanager
def only_so_many(left: int) -> Iterator[None]:
    """All descriptors but so many are taken."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, most))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
        for _ in range(left):
            os.close(taken.pop())
        yield
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


@pytest.mark.promise("isolate:verdict-from-the-host")
@pytest.mark.parametrize(
    ("tier", "who"), [("namespaces", "zygote"), ("namespaces", "inits"), ("landlock", "zygote")]
)
def test_without_processes_a_call_is_refused_and_those_that_run_go_on(tier: str, who: str) -> None:
    ran = run_as_user([sys.executable, "-m", "tests.isolate.scarce_host", tier, who], cwd=ROOT)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert json.loads(ran.stdout) == {
        "refused": ["a process cannot be started: [Errno 11] Resource temporarily unavailable"],
        "after": "ok",
        "staying": "ok",
    }
