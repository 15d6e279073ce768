"""A call from fork to gone: cancelled, its zygote killed, its process used again, its grants led astray."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from fumehood.isolate import CallFrame, Isolator, Limits, ToolSpec
from fumehood.isolate.tiers import Tier
from fumehood.policies.errors import SandboxUnavailable
from tests.isolate.drivers import running, settled, short
from tests.isolate.runner import Services
from tests.marks import only_root

pytestmark = pytest.mark.anyio

PATH = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that a tool's user can pass through."""
    with tempfile.TemporaryDirectory(prefix="lifecycle-", dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def tool(folder: Path, text: str) -> Path:
    path = folder / "tool.py"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.promise("isolate:nothing-outlives-a-call")
@pytest.mark.requirement("R477")
async def test_a_cancelled_call_takes_its_processes_with_it() -> None:
    marker = f"31536000.{os.getpid()}1"
    spec = ToolSpec(
        "cancelled", "command", argv=("sh", "-c", f"sleep {marker} & sleep {marker}"), limits=Limits()
    )
    async with Isolator("namespaces", spares=0) as isolator:
        call = asyncio.create_task(isolator.call(spec, CallFrame("c", None, PATH), Services()))
        assert await settled(lambda: len(running(marker)) >= 2, True)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await settled(lambda: running(marker), []) == []
        ended = await isolator.call(
            ToolSpec("next", "command", argv=("true",)), CallFrame("n", None, PATH), Services()
        )
        assert short(ended) == "ok"


@pytest.mark.promise("isolate:verdict-from-the-host")
async def test_a_killed_zygote_ends_its_calls_with_a_verdict_and_the_next_call_has_another() -> None:
    marker = f"31536000.{os.getpid()}2"
    spec = ToolSpec("orphaned", "command", argv=("sleep", marker), limits=Limits())
    async with Isolator("namespaces", spares=0) as isolator:
        call = asyncio.create_task(isolator.call(spec, CallFrame("c", None, PATH), Services()))
        assert await settled(lambda: bool(running(marker)), True)
        (child,) = isolator._endings.living
        zygote = psutil.Process(child.pid).parent()
        assert zygote is not None
        zygote.send_signal(signal.SIGKILL)
        assert short(await call) == "sandbox_error crashed"
        quick = ToolSpec("orphaned", "command", argv=("true",), limits=Limits())
        assert short(await isolator.call(quick, CallFrame("n", None, PATH), Services())) == "ok"


@pytest.mark.promise("isolate:nothing-outlives-a-call")
@pytest.mark.parametrize("tier", ["namespaces", "landlock"])
async def test_who_closes_ends_what_runs_and_refuses_what_begins(folder: Path, tier: Tier) -> None:
    marker = f"31536000.{os.getpid()}3"
    asleep = ToolSpec("asleep", "module", path=tool(folder, ASLEEP), limits=Limits())
    other = ToolSpec("other", "command", argv=("sleep", marker), limits=Limits())
    host = psutil.Process()
    before = (host.num_fds(), len(host.children(recursive=True)))
    isolator = Isolator(tier, spares=1)
    running_calls = [
        asyncio.create_task(isolator.call(asleep, CallFrame("c", marker, PATH), Services())) for _ in range(2)
    ]
    assert await settled(lambda: len(running(marker)) >= 2, True)
    beginning = asyncio.create_task(isolator.call(other, CallFrame("n", None, PATH), Services()))
    await asyncio.sleep(0)  # it has asked for a zygote
    await isolator.close()
    assert all(call.done() for call in (*running_calls, beginning))
    assert [short(await call) for call in running_calls] == ["sandbox_error crashed SIGKILL"] * 2
    for late in (beginning, isolator.call(other, CallFrame("l", None, PATH), Services())):
        with pytest.raises(SandboxUnavailable, match="the isolator is closed"):
            await late
    assert (running(marker), isolator.living) == ([], 0)
    assert await settled(lambda: (host.num_fds(), len(host.children(recursive=True))), before) == before


async def test_a_library_of_preload_that_is_not_there_is_no_fault_of_the_machine(folder: Path) -> None:
    path = tool(folder, "def run(input, ctx):\n    return 1\n")
    spec = ToolSpec("loading", "module", path=path, preload=("json", "no_such_library"))
    async with Isolator("namespaces", spares=0) as isolator:
        ended = await isolator.call(spec, CallFrame("c", None, PATH), Services())
    assert short(ended) == "sandbox_error start"
    told = "a library of `preload` cannot be imported: ModuleNotFoundError: No module named 'no_such_library'"
    assert ended.verdict.message == told


HOLDING = """
import os
held = []
def run(input, ctx):
    held.append(os.urandom(1) * (20 << 20))
    return len(held)
"""


@pytest.mark.promise("isolate:reuse-is-keyed")
async def test_a_process_that_fills_up_makes_room_before_a_call_of_it_fails(folder: Path) -> None:
    """Without that every fifth call would be killed for what four others left behind."""
    limits = Limits(memory=100 << 20)
    spec = ToolSpec("filling", "module", path=tool(folder, HOLDING), limits=limits, reuse=True)
    async with Isolator("namespaces", spares=0) as isolator:
        ended = [await isolator.call(spec, CallFrame("c", None, PATH), Services()) for _ in range(8)]
    assert [short(one) for one in ended] == ["ok"] * 8
    assert [one.verdict.value for one in ended] == [1, 2, 3, 1, 2, 3, 1, 2]


ASLEEP = """
import subprocess
def run(input, ctx):
    subprocess.run(["sleep", input])
"""


@pytest.mark.promise("isolate:the-view-is-what-was-granted")
@pytest.mark.parametrize("tier", ["namespaces", "landlock"])
async def test_a_grant_shows_what_stands_there_when_the_call_begins(folder: Path, tier: Tier) -> None:
    """A file that was written anew and put in the place of the old one, a folder that was made again, a link
    that leads elsewhere now: as deployments and builds do it.
    """
    places = {name: folder / name for name in ("file", "out", "current")}
    (folder / "tools").mkdir()
    text = f"def run(input, ctx):\n    open({str(places['out'] / 'left')!r}, 'w').close()\n    return "
    text += f"[open(p).read() for p in {[str(places['file']), str(places['current'] / 'data')]}]\n"
    spec = ToolSpec(
        "granted",
        "module",
        path=tool(folder / "tools", text),
        read=(places["file"], places["current"]),
        write=(places["out"],),
    )
    seen = []
    async with Isolator(tier, spares=1) as isolator:
        for round in ("first", "second"):
            (folder / round).mkdir()
            (folder / round / "data").write_text(round, encoding="ascii")
            (folder / "new").write_text(round, encoding="ascii")
            (folder / "new").replace(places["file"])
            (folder / "link").symlink_to(folder / round)
            (folder / "link").replace(places["current"])
            places["out"].mkdir()
            places["out"].chmod(0o777)
            ended = await isolator.call(spec, CallFrame("c", None, PATH), Services())
            seen.append((ended.verdict.value, sorted(path.name for path in places["out"].iterdir())))
            shutil.rmtree(places["out"])
    assert seen == [(["first", "first"], ["left"]), (["second", "second"], ["left"])]


@pytest.mark.promise("isolate:the-view-is-what-was-granted")
async def test_a_grant_inside_a_writable_one_cannot_be_led_elsewhere(folder: Path) -> None:
    """Call 1 moves the folder above a read grant away and puts a link to the host's files there; call 2
    reads.
    """
    out, secret = folder / "out", folder / "private" / "data"
    (out / "sub" / "data").mkdir(parents=True)
    for path in (out, out / "sub", out / "sub" / "data"):
        path.chmod(0o777)
    secret.mkdir(parents=True)
    (secret / "key").write_text("the host's own", encoding="ascii")
    script = f"mv {out}/sub {out}/old && ln -s {folder}/private {out}/sub"
    read = (out / "sub" / "data",)
    async with Isolator("namespaces", spares=0) as isolator:
        mover = ToolSpec("mover", "command", argv=("sh", "-c", script), read=read, write=(out,))
        await isolator.call(mover, CallFrame("c", None, PATH), Services())
        script = f"cat {out}/sub/data/key {secret}/key"
        reader = ToolSpec("reader", "command", argv=("sh", "-c", script), read=read, write=(out,))
        try:
            ended = await isolator.call(reader, CallFrame("c", None, PATH), Services())
        except Exception as error:  # refused: as good
            assert type(error).__name__ == "SandboxUnavailable"
            return
    assert b"the host's own" not in ended.stdout


@pytest.mark.promise("isolate:the-view-is-what-was-granted")
async def test_a_link_that_another_tool_may_have_made_leads_no_grant_on(folder: Path) -> None:
    (folder / "shared").mkdir()
    (folder / "shared" / "data").symlink_to(folder / "private")
    (folder / "private").mkdir()
    reader = ToolSpec(
        "reader",
        "command",
        argv=("true",),
        read=(folder / "shared" / "data",),
        untrusted=(folder / "shared",),
    )
    async with Isolator("namespaces", spares=0) as isolator:
        with pytest.raises(SandboxUnavailable, match="which a tool may have made"):
            await isolator.call(reader, CallFrame("c", None, PATH), Services())


class SwappingIsolator(Isolator):
    """Replaces a granted folder by a link between the look at it and its use."""

    def __init__(self, tier: Tier, granted: Path, elsewhere: Path) -> None:
        super().__init__(tier, spares=0)
        self._granted, self._elsewhere = granted, elsewhere

    def _plan(self, spec: ToolSpec) -> dict[str, Any]:
        plan = super()._plan(spec)
        self._granted.rename(self._granted.with_suffix(".old"))
        self._granted.symlink_to(self._elsewhere)
        return plan


@pytest.mark.promise("isolate:the-view-is-what-was-granted")
@pytest.mark.parametrize("tier", ["namespaces", "landlock"])
async def test_a_grant_that_becomes_a_link_at_the_last_moment_shows_nothing(folder: Path, tier: Tier) -> None:
    granted, private = folder / "granted", folder / "private"
    for place in (granted, private):
        place.mkdir()
        place.chmod(0o755)
    (private / "key").write_text("the host's own", encoding="ascii")
    spec = ToolSpec("swapped", "command", argv=("cat", str(granted / "key")), read=(granted,))
    async with SwappingIsolator(tier, granted, private) as isolator:
        if tier == "namespaces":
            with pytest.raises(SandboxUnavailable, match="cannot be shown to the tool"):
                await isolator.call(spec, CallFrame("c", None, PATH), Services())
        else:
            ended = await isolator.call(spec, CallFrame("c", None, PATH), Services())
            assert (short(ended), ended.stdout) == ("tool_error", b"")


_PATTERN = Path("/proc/sys/kernel/core_pattern")


@pytest.mark.soak
@pytest.mark.promise("isolate:posture")
@only_root("nobody else says where core dumps go")
async def test_a_crash_starts_no_program_of_the_host_that_takes_core_dumps(folder: Path) -> None:
    """Attack 41 where core_pattern names a program, as on Ubuntu and Fedora. The control is a plain crash."""
    witness, handler = folder / "handled", folder / "handler"
    handler.write_text(f"#!/bin/sh\ncat > /dev/null\necho $1 >> {witness}\n", encoding="ascii")
    handler.chmod(0o755)
    before = _PATTERN.read_text(encoding="ascii")
    _PATTERN.write_text(f"|{handler} %p", encoding="ascii")
    try:
        crash = ("python3", "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
        plain = await asyncio.create_subprocess_exec(*crash)
        await plain.wait()
        assert (
            await settled(lambda: witness.exists() and witness.read_text(encoding="ascii").count("\n"), 1)
            == 1
        )
        async with Isolator("namespaces", spares=0) as isolator:
            spec = ToolSpec("crashing", "command", argv=crash, limits=Limits())
            ended = await isolator.call(spec, CallFrame("c", None, PATH), Services())
        assert short(ended) == "sandbox_error crashed SIGSEGV"
        assert witness.read_text(encoding="ascii").split() == [str(plain.pid)]
    finally:
        _PATTERN.write_text(before, encoding="ascii")


LEFT_OPEN = {
    "mount": ("metadata of any path",),  # 15, 42, 46
    "pid": ("every process and its arguments",),  # 1, 3, 54
    "proc": ("the host's /proc",),  # 6
    "net": ("only ctx.fetch", "no socket can be connected"),  # 14, 37, I22
    "ipc": ("no System V objects",),  # 46
}
"""Layer -> what its report says; the numbers are the attacks that measured it."""


@pytest.mark.promise("isolate:container-tier")
async def test_what_stays_open_without_namespaces_is_listed() -> None:
    async with Isolator("landlock", spares=0) as isolator:
        spec = ToolSpec("listed", "command", argv=("true",))
        ended = await isolator.call(spec, CallFrame("c", None, PATH), Services())
    levels = {layer: ended.layers[layer][0] for layer in LEFT_OPEN}
    assert levels == dict.fromkeys(LEFT_OPEN, "MISSING")
    assert {
        layer: tuple(word for word in words if word in ended.layers[layer][1])
        for layer, words in LEFT_OPEN.items()
    } == LEFT_OPEN
