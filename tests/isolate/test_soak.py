"""Many calls, then nothing is left: no process, descriptor, mount, control group, folder; and the host has
not grown.

A short run belongs to the suite; ten thousand honest calls and a hundred thousand of which half are hostile
are `make soak`. FUMEHOOD_SOAK_CALLS sets another number.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fumehood.isolate import CallFrame, Isolator, Limits, ToolSpec
from fumehood.isolate.tiers import Tier
from tests.isolate.drivers import descendants, settled, short
from tests.isolate.runner import Services
from tests.isolate.soak_tool import WAYS

pytestmark = pytest.mark.anyio

TOOL = Path(__file__).with_name("soak_tool.py")
AT_ONCE = 4
LIMITS = Limits(timeout_s=0.5, cpu_s=5.0, memory=64 << 20, processes=32, output=1 << 18, tmp=4 << 20)
GROWTH = 16 << 20
HOSTILE = sorted(set(WAYS) - {"honest"})
SLOW = {"hangs", "stops"}
"""Ways that last as long as their deadline: rare in the long runs."""

EXPECTED = {
    "honest": {"ok"}, "daemon": {"ok"}, "children": {"ok"}, "descriptors": {"ok", "sandbox_error protocol"},
    "threads": {"ok"}, "links": {"ok"},
    "flood": {"limit output"}, "nonsense": {"sandbox_error protocol"}, "ends": {"sandbox_error crashed"},
    "killed": {"sandbox_error crashed SIGKILL"},
    "raises": {"tool_error"}, "hangs": {"limit timeout"}, "stops": {"limit timeout"},
    "hoards": {"limit memory"}, "fills": {"limit tmp"},
}  # fmt: skip


def left_on_the_host() -> dict[str, Any]:
    """What a call could leave behind, outside of what an open Isolator keeps."""
    groups = [root for root, _, _ in os.walk("/sys/fs/cgroup") if f"/fumehood-{os.getpid()}" in root]
    return {
        "processes": len(descendants()),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "mounts": len(Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()),
        "groups": groups,
        "folders": os.listdir(tempfile.gettempdir()),
    }


@pytest.fixture(autouse=True)
def folder_of_our_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Other programs come and go in /tmp; a tool's user must be able to pass through."""
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        os.chmod(name, 0o711)
        monkeypatch.setattr(tempfile, "tempdir", name)
        yield


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def soak(calls: int, hostile: float, tier: Tier) -> None:
    """`calls` calls, `hostile` of them hostile, and what is left afterwards."""
    dice = random.Random(calls)
    gc.collect()  # what earlier tests left to the collector is not this one's to lose
    before = left_on_the_host()
    spec = ToolSpec("soak", "module", path=TOOL, limits=LIMITS)
    wrong: list[tuple[str, str]] = []
    sizes: list[int] = []
    async with Isolator(tier, spares=2) as isolator:
        room = asyncio.Semaphore(AT_ONCE)
        done = 0

        async def one(way: str) -> None:
            nonlocal done
            async with room:
                ended = await isolator.call(
                    spec, CallFrame(f"soak-{way}", {"way": way}, {"PATH": "/usr/bin"}), Services()
                )
            # Without a view the folder has no size of its own, only the file has.
            expected = {"tool_error"} if (way, tier) == ("fills", "landlock") else EXPECTED[way]
            if short(ended) not in expected:
                wrong.append((way, f"{short(ended)}: {ended.verdict.message} {ended.verdict.error}"))
            done += 1
            if done in (calls // 10, calls):
                sizes.append(resident())

        waiting: set[asyncio.Task[None]] = set()
        for _ in range(calls):
            way = dice.choice(HOSTILE) if dice.random() < hostile else "honest"
            if way in SLOW and calls > 1000 and dice.random() < 0.9:
                way = "daemon"
            waiting.add(asyncio.create_task(one(way)))
            if len(waiting) >= 4 * AT_ONCE:
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*waiting)
    assert wrong == []
    assert sizes[1] - sizes[0] < GROWTH, sizes
    after = await settled(left_on_the_host, before)
    assert after == before


def _calls(usual: int) -> int:
    return int(os.environ.get("FUMEHOOD_SOAK_CALLS", usual))


@pytest.mark.promise("isolate:leaves-nothing")
@pytest.mark.parametrize("tier", ["namespaces", "landlock"])
async def test_a_hundred_calls_half_of_them_hostile_leave_nothing(tier: Tier) -> None:
    await soak(100, 0.5, tier)


@pytest.mark.soak
@pytest.mark.promise("isolate:leaves-nothing")
async def test_ten_thousand_calls_leave_nothing() -> None:
    await soak(_calls(10_000), 0.0, "namespaces")


@pytest.mark.soak
@pytest.mark.promise("isolate:leaves-nothing")
async def test_a_hundred_thousand_calls_half_of_them_hostile_leave_nothing() -> None:
    await soak(_calls(100_000), 0.5, "namespaces")
