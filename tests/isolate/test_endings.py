"""Children are taken apart whatever else happens meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fumehood.isolate import CallFrame, Isolator, Limits, ToolSpec, _child, _session
from fumehood.isolate._endings import Endings
from tests.isolate.drivers import running, settled, short
from tests.isolate.runner import Services
from tests.marks import only_root

pytestmark = pytest.mark.anyio


class Dying:
    """A child whose tree is gone the second time one asks."""

    def __init__(self) -> None:
        self.asked = 0
        self.closed = 0

    @property
    def gone(self) -> bool:
        self.asked += 1
        return self.asked > 1

    def bury(self) -> None:
        return None

    async def close(self) -> None:
        self.closed += 1


async def test_a_child_that_goes_while_the_dead_are_sorted_is_taken_apart_once() -> None:
    endings, child = Endings(), Dying()
    endings.living.add(child)  # type: ignore[arg-type]
    endings.bury(child)  # type: ignore[arg-type]
    await endings.settle()
    assert (child.closed, endings.living) == (1, set())


async def test_one_that_cannot_be_taken_apart_keeps_none_of_the_others() -> None:
    class Stuck(Dying):
        gone = True

        async def close(self) -> None:
            raise OSError("a folder that cannot be removed")

    endings, stuck, other = Endings(), Stuck(), Dying()
    other.asked = 1  # gone at the first look
    for child in (stuck, other):
        endings.living.add(child)  # type: ignore[arg-type]
        endings.bury(child)  # type: ignore[arg-type]
    await endings.settle()
    assert other.closed == 1
    assert list(endings.living) == [stuck]  # type: ignore[comparison-overlap]


TALKING = """
import time
def run(input, ctx):
    for _ in range(10):
        print("a line", flush=True)
        time.sleep(0.01)
    if input == "hang":
        time.sleep(60)
    return "done"
"""


def _readers() -> dict[int, bool]:
    """What the loop reads from: descriptor, whether the kernel still has it."""
    loop = asyncio.get_running_loop()
    return {fd: os.path.exists(f"/proc/self/fd/{fd}") for fd in loop._selector.get_map()}  # type: ignore[attr-defined]


@pytest.mark.promise("isolate:nothing-outlives-a-call")
@pytest.mark.parametrize("way", ["return", "hang", "cancel"])
async def test_nothing_is_read_from_a_descriptor_of_a_child_that_is_gone(tmp_path: Path, way: str) -> None:
    """Its number is another child's next, and a reader that stands there would hide that from the loop."""
    tool = tmp_path / "talking.py"
    tool.write_text(TALKING, encoding="utf-8")
    spec = ToolSpec("talking", "module", path=tool, limits=Limits(timeout_s=0.3))
    frame = CallFrame("c", "hang" if way == "cancel" else way, {"PATH": "/usr/bin"})
    async with Isolator("namespaces", spares=0) as isolator:
        await isolator.call(spec, CallFrame("first", "return", {"PATH": "/usr/bin"}), Services())
        await isolator._endings.settle()
        before = _readers()
        call = asyncio.create_task(isolator.call(spec, frame, Services()))
        if way == "cancel":
            await asyncio.sleep(0.05)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        else:
            expected = {"return": "ok", "hang": "limit timeout"}[way]
            assert short(await call) == expected
        assert _readers() == before  # not only when everything of it is closed, a little later
        await isolator._endings.settle()
        assert _readers() == before
        assert all(before.values())


@contextlib.asynccontextmanager
async def _freezer(folder: Path) -> AsyncIterator[Path]:
    """A group whose processes, once frozen, do not even take SIGKILL (freezer of version 1)."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "cgroup", "-o", "freezer", "freezer", folder], check=True)
    group = folder / f"fumehood-test-{os.getpid()}"
    try:
        group.mkdir()
        yield group
    finally:
        (group / "freezer.state").write_text("THAWED", encoding="ascii")
        await settled(lambda: (group / "cgroup.procs").read_text(encoding="ascii"), "")
        group.rmdir()
        subprocess.run(["umount", folder], check=True)


@only_root("nobody else mounts a freezer")
@pytest.mark.promise("isolate:verdict-from-the-host")
async def test_a_tree_that_hangs_in_the_kernel_holds_up_neither_its_call_nor_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (_session, _child):
        monkeypatch.setattr(module, "GONE_S", 0.5)
    marker = f"31536000.{os.getpid()}7"
    limits = Limits(timeout_s=2.0)
    spec = ToolSpec("stuck", "command", argv=("sleep", marker), limits=limits)
    async with _freezer(tmp_path / "freezer") as group:
        async with Isolator("namespaces", spares=0) as isolator:
            call = asyncio.create_task(
                isolator.call(spec, CallFrame("c", None, {"PATH": "/usr/bin"}), Services())
            )
            assert await settled(lambda: len(running(marker)), 1) == 1
            (group / "cgroup.procs").write_text(str(running(marker)[0]), encoding="ascii")
            (group / "freezer.state").write_text("FROZEN", encoding="ascii")
            ended = await call
            assert short(ended) == "limit timeout"
            assert len(running(marker)) == 1
            other = ToolSpec("stuck", "command", argv=("true",), limits=limits)
            ended = await isolator.call(other, CallFrame("n", None, {"PATH": "/usr/bin"}), Services())
            assert short(ended) == "ok"
            (group / "freezer.state").write_text("THAWED", encoding="ascii")
            assert await settled(lambda: running(marker), []) == []
