"""Section C: bombs beside a sibling, processes that stay or grow while parked, leftovers."""

from __future__ import annotations

import asyncio
import os
import select
import tempfile
from pathlib import Path
from typing import Any

from fumehood.isolate import CallFrame, Isolator, Limits, ToolSpec
from tests.isolate.attacks._model import Case
from tests.isolate.drivers.measures import descendants, descriptors, next_call, running, settled, short
from tests.isolate.runner import Harness, Services, record


async def bomb_beside_a_sibling(harness: Harness, module: str, case: Case) -> Any:
    await next_call(harness)  # its zygote stands before the bomb goes off
    before = len(descendants())
    bomb = asyncio.create_task(harness.call(module, case))
    sibling = await next_call(harness)
    ended = await bomb
    # The case's own zygote and what it keeps ready are new and stay.
    gone = await settled(lambda: len(descendants()) <= before + 6, True)
    return {"bomb": ended.verdict.reason, "sibling": sibling, "gone": gone, "next": await next_call(harness)}


async def a_burst(harness: Harness, module: str, case: Case) -> Any:
    ended = await harness.call(module, case)
    memory = harness.spec(case).limits.memory
    # What docs/isolation.md says that one process may hold: twice the limit, and a stack a task.
    most = 2 * memory + harness.spec(case).limits.processes * (8 << 20)
    held = ended.max_rss or most + 1
    return {
        "outcome": short(ended),
        "of one process": "bounded" if held <= most else f"{held >> 20} MiB",
        "next": await next_call(harness),
    }


async def signals_through_descriptors(harness: Harness, module: str, case: Case) -> Any:
    ended = await harness.call(module, case)
    if ended.verdict.outcome != "ok":
        return record(ended)
    state = Path(f"/proc/{harness.world.values['victim_pid']}/stat").read_text(encoding="ascii")
    # A killed one stays a zombie until the world is taken apart.
    lives = state.rpartition(")")[2].split()[0] != "Z"
    return {**ended.verdict.value, "victim": "lives" if lives else "gone"}


_GROWING = """
import os, threading, time
def grow():
    time.sleep(0.3)
    kept = []
    while len(kept) < 100:
        kept.append(os.urandom(4 << 20))
    time.sleep(600)
threading.Thread(target=grow, daemon=True).start()
def run(input, ctx):
    return "done"
"""


async def grows_while_parked(harness: Harness, module: str, case: Case) -> Any:
    tool = harness.world.folder / "hostile" / "growing.py"
    tool.write_text(_GROWING, encoding="ascii")
    limit = int(dict(case.cage.limits)["memory"])
    spec = harness.spec(case, path=tool)
    frame = CallFrame("growing", {}, {"PATH": "/usr/bin"})
    async with Isolator(harness.isolator.tier, spares=1) as isolator:
        first = await isolator.call(spec, frame, Services())
        await settled(lambda: len(isolator.parked(spec.name)), 1)
        (pid,) = isolator.parked(spec.name)

        ended = os.pidfd_open(pid)

        def held() -> str:
            """Gone, or how large it is."""
            if select.select([ended], [], [], 0)[0]:
                return "gone"
            pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
            return f"{pages * os.sysconf('SC_PAGE_SIZE') >> 20} MiB"

        # A kill must come, because it asks for six times its limit.
        waiting = await settled(held, "gone")
        os.close(ended)
        last = await isolator.call(spec, frame, Services())
    small = waiting == "gone" or int(waiting.split()[0]) <= limit >> 20
    return {"first": short(first), "waiting": "gone or small" if small else waiting, "next": short(last)}


class _Holding(Services):
    """Learns where the tool listens, and answers its `put` when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.listens: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self.enough = asyncio.Event()

    async def event(self, kind: str, data: Any) -> None:
        self.listens.set_result(data)

    async def put(self, data: bytes, media_type: str) -> dict[str, Any]:
        await self.enough.wait()
        return await super().put(data, media_type)


async def handed_to_another_call(harness: Harness, module: str, case: Case) -> Any:
    tool = harness.world.folder / "hostile" / "honest.py"
    tool.write_text(
        "import os\ndef run(input, ctx):\n    return len(os.urandom(36 << 20))\n", encoding="ascii"
    )
    isolator, services = harness.isolator, _Holding()
    holding = asyncio.create_task(harness.call(module, case, services))
    place, refused = await services.listens
    giver = await harness.call(module, case, socket=place)
    await settled(lambda: isolator.living, 1)  # its group is free again
    frame = CallFrame("beside", None, {"PATH": "/usr/bin"})
    beside = await isolator.call(harness.spec(case, path=tool, name="beside"), frame, Services())
    services.enough.set()
    ended = await holding
    return {
        "a socket in the grant": refused,
        "beside": short(beside),
        "outcomes": [short(giver), short(ended)],
    }


async def terminal_of_run(harness: Harness, module: str, case: Case) -> Any:
    """A program that was given a terminal, as `fumehood run` does: it writes what it found there."""
    import pty

    script = (
        "import ctypes, errno, fcntl, os, termios\n"
        "def ask(request):\n"
        "    libc = ctypes.CDLL(None, use_errno=True)\n"
        "    if libc.ioctl(0, ctypes.c_ulong(request), ctypes.create_string_buffer(b'x')) == 0: return 'ok'\n"
        "    return errno.errorcode[ctypes.get_errno()]\n"
        "print(os.isatty(0), ask(0x5412), ask(0x100005412), ask(0x541C))\n"
    )
    ours, theirs = pty.openpty()
    spec = ToolSpec(
        "attacked-terminal", "command", argv=("python3", "-c", script), limits=Limits(timeout_s=10.0)
    )
    frame = CallFrame("terminal", None, {"PATH": "/usr/bin:/bin"})
    try:
        ended = await harness.isolator.call(spec, frame, Services(), streams=(theirs, theirs, theirs))
        os.set_blocking(ours, False)
        shown = os.read(ours, 4096).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    words = shown.split()[:4]
    return {
        "outcome": short(ended),
        "terminal": words[0],
        "TIOCSTI": words[1],
        "high bits": words[2],
        "TIOCLINUX": words[3],
    }


class WatchingServices(Services):
    """Looks at the machine's processes when the tool emits an event."""

    def __init__(self, marker: str) -> None:
        super().__init__()
        self.marker, self.seen = marker, False

    async def event(self, kind: str, data: Any) -> None:
        self.seen = bool(await settled(lambda: bool(running(self.marker)), True))


async def daemon(harness: Harness, module: str, case: Case) -> Any:
    marker = f"31536000.{os.getpid()}"
    services = WatchingServices(marker)
    ended = await harness.call(module, case, services, marker=marker)
    gone = await settled(lambda: running(marker), [])
    return {
        "outcome": short(ended),
        "value": ended.verdict.value,
        "alive while it runs": services.seen,
        "gone": gone == [],
    }


def host_state(harness: Harness) -> dict[str, int]:
    """What a call could leave on the host, counted."""
    mounts = len(Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines())
    groups = sum(
        1
        for root, folders, _ in os.walk("/sys/fs/cgroup")
        if f"fumehood-{os.getpid()}" in root
        for _ in folders
    )
    scratch = sum(len(folders) + len(files) for _, folders, files in os.walk(tempfile.gettempdir()))
    return {
        "mounts": mounts,
        "descriptors": descriptors(),
        "groups": groups,
        "folders": scratch,
        "processes": len(descendants()),
    }


async def leftovers(harness: Harness, module: str, case: Case) -> Any:
    for again in (False, True):  # its zygote and the groups that are kept for reuse are there from now on
        await harness.call(module, case, second=again)
    before = await steady(harness)
    first = await harness.call(module, case)
    second = await harness.call(module, case, second=True)
    found = second.verdict.value if second.verdict.outcome == "ok" else {"error": record(second)}
    after = await settled(lambda: host_state(harness), before)
    more = {name: max(0, after[name] - before[name]) for name in before}
    return {**found, **more, "outcome": f"{short(first)} {short(second)}"}


async def steady(harness: Harness) -> dict[str, int]:
    """The host's state once it no longer changes: what earlier calls left has been cleared away."""
    state = host_state(harness)
    for _ in range(50):
        await asyncio.sleep(0.02)
        if (now := host_state(harness)) == state:
            return state
        state = now
    return state
