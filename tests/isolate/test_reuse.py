"""A process that serves more than one call: whose, and what of an earlier call the next one must not see."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fumehood.isolate import CallFrame, Isolator, Limits, ToolSpec
from fumehood.isolate.tiers import Tier
from tests.isolate.drivers import settled, short
from tests.isolate.runner import Services

pytestmark = pytest.mark.anyio

PATH = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that a tool's user can pass through."""
    with tempfile.TemporaryDirectory(prefix="reuse-", dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def tool(folder: Path, text: str) -> Path:
    path = folder / "tool.py"
    path.write_text(text, encoding="utf-8")
    return path


COUNTING = """
import os, threading, time
count = 0
def run(input, ctx):
    global count
    count += 1
    if input == "thread":
        def talk():
            time.sleep(0.05)
            os.write(3, b"talking between calls")
        threading.Thread(target=talk, daemon=True).start()
    if input == "fail":
        raise ValueError("x")
    return count
"""

ORPHANED = """
import os, time
def burn(seconds):
    started = time.process_time()
    while time.process_time() - started < seconds:
        pass
def run(input, ctx):
    if input == "orphan":
        read, write = os.pipe()
        if os.fork() == 0:
            if os.fork() == 0:
                burn(0.7)
            os._exit(0)
        os.wait()
        os.close(write)
        os.read(read, 1)  # its end
        time.sleep(0.2)  # the init has seen it, and the watcher has looked
        return "orphan"
    burn(0.5)
    return "own"
"""

BUSY_FIRST = """
import ctypes, os, signal, time
def run(input, ctx):
    if input == "busy":
        ctypes.CDLL(None).ptrace(0, 0, 0, 0)
        children = []
        try:
            while True:
                pid = os.fork()
                if pid == 0:
                    signal.pause()
                children.append(pid)
        except OSError:
            pass
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        return len(os.urandom(100 << 20))
    raise ValueError("its own")
"""

IMPATIENT = """
import asyncio
count = 0
async def run(input, ctx):
    global count
    count += 1
    if input == "ask":
        try:
            await asyncio.wait_for(ctx.fetch("http://a.test/"), 0.05)
        except asyncio.TimeoutError:
            pass
        ctx.emit("GAVE_UP")
    return count
"""


@pytest.mark.promise("isolate:fresh-child")
async def test_a_fresh_process_serves_every_call_unless_reuse_is_named(folder: Path) -> None:
    spec = ToolSpec("fresh", "module", path=tool(folder, COUNTING), limits=Limits())
    async with Isolator("namespaces", spares=1) as isolator:
        ended = [await isolator.call(spec, CallFrame("c", None, PATH), Services()) for _ in range(3)]
    assert [one.verdict.value for one in ended] == [1, 1, 1]


@pytest.mark.promise("isolate:reuse-is-keyed")
@pytest.mark.requirement("R476")
async def test_reuse_goes_by_tool_environment_and_principal(folder: Path) -> None:
    spec = ToolSpec("reused", "module", path=tool(folder, COUNTING), limits=Limits(), reuse=True)
    calls = [("a", "1"), ("a", "1"), ("b", "1"), ("a", "2"), ("a", "1"), ("b", "1")]
    async with Isolator("namespaces", spares=1) as isolator:
        values = []
        for principal, secret in calls:
            frame = CallFrame("c", None, PATH | {"SECRET": secret})
            values.append((await isolator.call(spec, frame, Services(), principal=principal)).verdict.value)
    assert values == [1, 2, 1, 1, 3, 2]


@pytest.mark.promise("isolate:verdict-from-the-host")
@pytest.mark.parametrize("tier", ["namespaces", "landlock"])
async def test_what_a_reused_process_did_before_is_not_counted_again(folder: Path, tier: Tier) -> None:
    """Refused system calls, forks refused, memory and time of the first call are not the second one's."""
    limits = Limits(processes=12)
    spec = ToolSpec("busy", "module", path=tool(folder, BUSY_FIRST), limits=limits, reuse=True)
    async with Isolator(tier, spares=0) as isolator:
        first = await isolator.call(spec, CallFrame("c", "busy", PATH), Services())
        second = await isolator.call(spec, CallFrame("c", "fail", PATH), Services())
    assert (short(first), first.violations) == ("ok", {"ptrace": 1})
    assert (short(second), second.violations) == ("tool_error", {})
    assert first.max_rss is not None and second.max_rss is not None
    assert first.max_rss > 100 << 20 > second.max_rss
    assert first.cpu_s is not None and second.cpu_s is not None and second.cpu_s < first.cpu_s


@pytest.mark.promise("isolate:limits-hold")
async def test_the_time_of_an_earlier_calls_orphan_is_not_counted_again(folder: Path) -> None:
    spec = ToolSpec("orphaned", "module", path=tool(folder, ORPHANED), limits=Limits(cpu_s=1.0), reuse=True)
    async with Isolator("namespaces", spares=0) as isolator:
        calls = [await isolator.call(spec, CallFrame("c", i, PATH), Services()) for i in ("orphan", "own")]
    assert [(short(ended), ended.verdict.value) for ended in calls] == [("ok", "orphan"), ("ok", "own")]


@pytest.mark.promise("isolate:reuse-is-keyed")
@pytest.mark.parametrize("way", ["fail", "thread"])
async def test_a_process_that_failed_or_talks_between_calls_is_not_used_again(folder: Path, way: str) -> None:
    spec = ToolSpec(f"reused-{way}", "module", path=tool(folder, COUNTING), limits=Limits(), reuse=True)
    async with Isolator("namespaces", spares=0) as isolator:
        first = await isolator.call(spec, CallFrame("c", way, PATH), Services())
        if way == "thread":
            (child,) = isolator._endings.living
            assert await settled(lambda: child.line.spoke, True)
        second = await isolator.call(spec, CallFrame("c", None, PATH), Services())
    assert short(first) == {"fail": "tool_error", "thread": "ok"}[way]
    assert (short(second), second.verdict.value) == ("ok", 1)


class Answering(Services):
    """Answers when nobody waits for it any more."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.body, self.given_up = b"x" * size, asyncio.Event()

    async def fetch(self, request: Mapping[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        await self.given_up.wait()
        return {"t": "reply", "status": 200, "headers": [], "url": "http://a.test/"}, self.body

    async def event(self, kind: str, data: Any) -> None:
        self.given_up.set()
        for _ in range(20):  # turns of the loop, in which the answer is sent, as far as the socket takes it
            await asyncio.sleep(0)


@pytest.mark.promise("isolate:reuse-is-keyed")
@pytest.mark.parametrize(("size", "second"), [(0, 2), (16 << 20, 1)])
async def test_an_answer_that_no_call_waited_for_is_not_the_next_ones_call(
    folder: Path, size: int, second: int
) -> None:
    """A small one is passed over; of a large one half may be in the socket, and such a process ends."""
    spec = ToolSpec("impatient", "module", path=tool(folder, IMPATIENT), limits=Limits(), reuse=True)
    async with Isolator("namespaces", spares=0) as isolator:
        first = await isolator.call(spec, CallFrame("c", "ask", PATH), Answering(size))
        again = await isolator.call(spec, CallFrame("c", None, PATH), Services())
    assert (short(first), first.verdict.value) == ("ok", 1)
    assert (short(again), again.verdict.value) == ("ok", second)
