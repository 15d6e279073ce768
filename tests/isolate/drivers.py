"""Host-side halves of attacks: what is measured in the host's own process while a hostile child does its
work.

Each driver gets the harness and the case, makes its calls, and returns the value that the case's expectation
is compared with.
"""

from __future__ import annotations

import asyncio
import gc
import os
import select
import tempfile
from pathlib import Path
from typing import Any

from fumehood.isolate import CallFrame, Ended, Isolator, Limits, ToolSpec
from fumehood.isolate.child.frames import MAX_ATTACHED
from tests.isolate.attacks._model import Case
from tests.isolate.runner import Harness, Services, record

FLOOD_GROWTH = 64 << 20
"""How much a flood may make the host grow, in bytes."""


def short(ended: Ended) -> str:
    """Outcome and reason as one text."""
    return " ".join(
        part for part in (ended.verdict.outcome, ended.verdict.reason, ended.verdict.signal) if part
    )


class Memory:
    """The host's peak memory since this was made, over what it used then."""

    def __init__(self) -> None:
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the peak (proc(5))
        self._before = self._field("VmRSS")

    @staticmethod
    def _field(name: str) -> int:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"no {name}")

    def grown(self) -> int:
        return self._field("VmHWM") - self._before

    def verdict(self, most: int = FLOOD_GROWTH) -> str:
        grown = self.grown()
        return "bounded" if grown < most else f"grew by {grown >> 20} MiB"


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def next_call(harness: Harness) -> str:
    """Whether an honest call of the same isolator works."""
    spec = ToolSpec("attacked-next", "command", argv=("true",))
    ended = await harness.isolator.call(spec, CallFrame("next", None, {"PATH": "/usr/bin:/bin"}), Services())
    return short(ended)


async def settled(read: Any, wanted: Any) -> Any:
    """`read()` once it equals `wanted`, or what it is after five seconds."""
    for _ in range(500):
        if (found := read()) == wanted:
            return found
        await asyncio.sleep(0.01)
    return found


# -- B -------------------------------------------------------------------------------------------------------


HOSTILE_FILES = {
    "tool.py": "import json, sys\n"
    "def run(input, ctx):\n"
    "    lib = lambda p: 'standard library' if p.startswith(('/usr/lib', sys.base_prefix + '/lib')) else p\n"
    "    return {'json': lib(json.__file__), 'customised': 'hostile_was_here' in sys.modules, "
    "'isolated': bool(sys.flags.isolated),\n"
    "            'user site': any('.local' in p for p in sys.path), 'first on the path': lib(sys.path[0])}\n"
    "if __name__ == '__main__':\n"
    "    print(json.dumps(run(None, None)) if hasattr(json, 'dumps') else 'hostile json')\n",
    "json.py": "import sys; sys.modules['hostile_was_here'] = sys\n",
    "sitecustomize.py": "import sys; sys.modules['hostile_was_here'] = sys\n",
    "usercustomize.py": "import sys; sys.modules['hostile_was_here'] = sys\n",
    "hostile.pth": "import sys; sys.modules['hostile_was_here'] = sys\n",
    "startup.py": "import sys; sys.modules['hostile_was_here'] = sys\n",
}


def hostile_folder(folder: Path) -> dict[str, str]:
    """Write the hostile files; returns the environment that points at them."""
    for name, text in HOSTILE_FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    site = folder / ".local" / "lib" / "python3.11" / "site-packages"
    site.mkdir(parents=True, exist_ok=True)
    (site / "hostile.pth").write_text(HOSTILE_FILES["hostile.pth"], encoding="utf-8")
    return {
        "PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(folder),
        "PYTHONSTARTUP": str(folder / "startup.py"),
        "PYTHONHOME": str(folder), "PYTHONUSERBASE": str(folder / ".local"),
        "PYTHONBREAKPOINT": "hostile.hook", "PYTHONINSPECT": "1",
    }  # fmt: skip


async def interpreter_injection(harness: Harness, module: str, case: Case) -> Any:
    folder = harness.world.folder / "hostile"
    env = hostile_folder(folder)
    spec = harness.spec(
        case, path=folder / "tool.py", cwd=str(folder) if harness.isolator.tier == "namespaces" else "/tmp"
    )
    ended = await harness.isolator.call(spec, CallFrame("injected", None, env), Services())
    return ended.verdict.value if ended.verdict.outcome == "ok" else record(ended)


async def traps_in_a_write_grant(harness: Harness, module: str, case: Case) -> Any:
    first = record(await harness.call(module, case))
    second = await harness.call(module, case, second=True)
    value = (
        second.verdict.value
        if second.verdict.outcome == "ok"
        else {"names": record(second), "secret read": None}
    )
    results = Path(harness.world.values["results"])
    return {
        **first.get("value", {"left": first, "grant replaced": None}),
        "second call": value["names"],
        "still links": (results / "soft").is_symlink() and (results / "fifo").is_fifo(),
        "secret read": value["secret read"],
        "outcome": short(second),
    }


async def descriptors_to_the_host(harness: Harness, module: str, case: Case) -> Any:
    before = descriptors()
    ended = await harness.call(module, case)
    left = await settled(lambda: max(0, descriptors() - before), 0)
    return {
        "sent": ended.verdict.value,
        "descriptors": left,
        "outcome": short(ended),
        "next": await next_call(harness),
    }


async def requests_without_end(harness: Harness, module: str, case: Case) -> Any:
    services, memory = Services(), Memory()
    ended = await harness.call(module, case, services)
    return {
        "answered": services.fetched,
        "most at once": 1 <= services.most_at_once <= 64,
        "outcome": short(ended),
        "next": await next_call(harness),
        "memory": memory.verdict(),
    }


class SlowServices(Services):
    """Answers nothing until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.release = asyncio.Event()

    async def put(self, data: bytes, media_type: str) -> dict[str, Any]:
        await self.release.wait()
        return await super().put(data, media_type)


async def large_bodies_at_once(harness: Harness, module: str, case: Case) -> Any:
    services, memory = SlowServices(), Memory()
    ended = await harness.isolator.call(
        harness.spec(case, limits=Limits(timeout_s=1.5, cpu_s=20.0)), harness.frame(module, case), services
    )
    # Two bodies of the largest size, one of them twice: as read and as handed on.
    return {
        "outcome": ended.verdict.outcome,
        "next": await next_call(harness),
        "memory": memory.verdict(4 * MAX_ATTACHED),
    }


_ODD_MESSAGES: dict[str, Any] = {
    "id is text": {"t": "fetch", "id": "1", "url": "http://a.test/"},
    "id is missing": {"t": "fetch", "url": "http://a.test/"},
    "url is a list": {"t": "fetch", "id": 1, "url": ["http://a.test/"]},
    "method is null": {"t": "fetch", "id": 1, "url": "http://a.test/", "method": None},
    "headers are a number": {"t": "fetch", "id": 1, "url": "http://a.test/", "headers": 7},
    "headers are nested": {
        "t": "fetch",
        "id": 1,
        "url": "http://a.test/",
        "headers": [["a", {"b": []}], "c", 3],
    },
    "too many bytes": {"t": "put", "id": 1, "media_type": "a/b", "bytes": 1 << 40},
    "bytes negative": {"t": "put", "id": 1, "media_type": "a/b", "bytes": -1},
    "bytes is true": {"t": "put", "id": 1, "media_type": "a/b", "bytes": True},
    "unknown type": {"t": "shutdown"},
    "no type": {"id": 1},
    "a list": ["t", "result"],
    "media type is a number": {"t": "put", "id": 1, "media_type": 7},
    "log is a number": {"t": "log", "text": 7},
    "event kind is null": {"t": "emit", "kind": None, "data": 1},
    "event kind is long": {"t": "emit", "kind": "K" * 300, "data": 1},
}


async def requests_that_are_none(harness: Harness, module: str, case: Case) -> Any:
    outcomes = {}
    for name, message in _ODD_MESSAGES.items():
        outcomes[name] = short(await harness.call(module, case, message=message))
    outcomes["data first"] = short(await harness.call(module, case, raw=b"\0\0\0\x01Dx".hex()))
    return {"outcomes": outcomes, "next": await next_call(harness)}


# -- C -------------------------------------------------------------------------------------------------------


def running(marker: str) -> list[int]:
    """Processes of this machine whose arguments hold `marker`."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if marker.encode() in Path(f"/proc/{name}/cmdline").read_bytes():
                    found.append(int(name))
            except OSError:
                continue
    return found


def descendants() -> list[int]:
    """Processes below this one."""
    import psutil

    return [child.pid for child in psutil.Process().children(recursive=True)]


async def bomb_beside_a_sibling(harness: Harness, module: str, case: Case) -> Any:
    await next_call(harness)  # its zygote stands before the bomb goes off
    before = len(descendants())
    bomb = asyncio.create_task(harness.call(module, case))
    sibling = await next_call(harness)
    ended = await bomb
    # The case's own zygote and what it keeps ready are new and stay.
    gone = await settled(lambda: len(descendants()) <= before + 6, True)
    return {"bomb": ended.verdict.reason, "sibling": sibling, "gone": gone, "next": await next_call(harness)}


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
    await harness.call(module, case, second=True)  # its zygote is there from now on
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


# -- D -------------------------------------------------------------------------------------------------------


async def flood(harness: Harness, module: str, case: Case) -> Any:
    memory = Memory()
    ended = await harness.call(module, case)
    return {
        "outcome": short(ended),
        "kept": len(ended.stdout) + len(ended.stderr) <= dict(case.cage.limits)["output"]
        and len(ended.stdout) > 0,
        "cut": [ended.stdout_cut, ended.stderr_cut],
        "other stream": ended.stderr.decode(),
        "memory": memory.verdict(),
        "next": await next_call(harness),
    }


async def flood_of_everything(harness: Harness, module: str, case: Case) -> Any:
    memory, services = Memory(), Services()
    ended = await harness.call(module, case, services)
    held = (
        len(ended.stdout)
        + len(ended.stderr)
        + sum(map(len, services.lines))
        + sum(len(str(data)) for _, data in services.events)
    )
    return {
        "outcome": short(ended),
        "kept": held <= dict(case.cage.limits)["output"],
        "cut": "any",
        "other stream": "",
        "memory": memory.verdict(),
        "next": await next_call(harness),
    }


async def flood_of_lines(harness: Harness, module: str, case: Case) -> Any:
    memory, services = Memory(), Services()
    ended = await harness.call(module, case, services)
    return {
        "outcome": short(ended),
        "lines": len(services.lines) <= 100_000,
        "memory": memory.verdict(),
        "next": await next_call(harness),
    }


async def odd_text(harness: Harness, module: str, case: Case) -> Any:
    services = Services()
    ended = await harness.call(module, case, services)
    return {
        "stdout": ended.stdout.hex(),
        "outcome": short(ended),
        "events": [kind for kind, _ in services.events],
        "lines": services.lines,
        "next": await next_call(harness),
    }


async def forged_frames(harness: Harness, module: str, case: Case) -> Any:
    services = Services()
    found: dict[str, Any] = {}
    for name in case.caged:
        if name not in ("next", "late events"):
            ended = await harness.call(module, case, services, forgery=name)
            found[name] = {"value": ended.verdict.value} if ended.verdict.outcome == "ok" else short(ended)
    return {**found, "next": await next_call(harness), "late events": len(services.events)}


async def frames_before_the_call(harness: Harness, module: str, case: Case) -> Any:
    from tests.isolate.attacks.forging import IMPORTED

    found: dict[str, Any] = {}
    for name, sent in IMPORTED.items():
        folder = harness.world.folder / "hostile" / name.replace(" ", "-")
        folder.mkdir()
        text = f"import os\nos.write(3, bytes.fromhex({sent!r}))\ndef run(input, ctx):\n    return 'real'\n"
        (folder / "tool.py").write_text(text, encoding="utf-8")
        limits = Limits(timeout_s=5.0, start_s=5.0)
        spec = harness.spec(case, path=folder / "tool.py", limits=limits, name=f"attacked-{name}")
        ended = await harness.isolator.call(spec, CallFrame("early", None, {"PATH": "/usr/bin"}), Services())
        found[name] = short(ended)
    return {**found, "next": await next_call(harness)}


async def frame_on_stdout(harness: Harness, module: str, case: Case) -> Any:
    ended = await harness.call(module, case)
    shown = b'"value": "forged"' in ended.stdout and b'"value": "forged"' in ended.stderr
    return {"value": ended.verdict.value, "stdout": shown, "next": await next_call(harness)}


async def length_prefix(harness: Harness, module: str, case: Case) -> Any:
    memory = Memory()
    found = {
        name: short(await harness.call(module, case, lie=name))
        for name in case.caged
        if name not in ("memory", "next")
    }
    return {**found, "memory": memory.verdict(), "next": await next_call(harness)}


async def json_traps(harness: Harness, module: str, case: Case) -> Any:
    found: dict[str, Any] = {}
    for name in case.caged:
        if name == "next":
            continue
        ended = await harness.call(module, case, trap=name)
        value = ended.verdict.value
        if ended.verdict.outcome != "ok":
            found[name] = short(ended)
        else:
            found[name] = (
                {"keys": len(value)} if isinstance(value, dict) and len(value) > 100 else {"value": value}
            )
    return {**found, "next": await next_call(harness)}


async def objects_out_of_bytes(harness: Harness, module: str, case: Case) -> Any:
    memory = Memory()
    outcome = short(await harness.call(module, case))
    return {"outcome": outcome, "memory": memory.verdict(), "next": await next_call(harness)}


class Touch:
    """Unpickled, it makes a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (self.path,))


async def pickled(harness: Harness, module: str, case: Case) -> Any:
    import pickle

    witness = harness.world.folder / "unpickled"
    data = pickle.dumps(Touch(str(witness))).hex()
    outcomes = [
        short(await harness.call(module, case, pickle=data, how=how)) for how in ("frame", "bytes", "naked")
    ]
    return {"outcomes": outcomes, "ran": witness.exists(), "next": await next_call(harness)}


async def late_result(harness: Harness, module: str, case: Case) -> Any:
    services = Services()
    ended = await harness.call(module, case, services)
    following = await next_call(harness)
    return {
        "outcome": short(ended),
        "value": ended.verdict.value,
        "events": len(services.events),
        "next": following,
    }


async def endings(harness: Harness, module: str, case: Case) -> Any:
    found: dict[str, Any] = {}
    longest = 0
    for name in case.caged:
        if name in ("longest text", "next"):
            continue
        ended = await harness.call(module, case, ending=name)
        error = ended.verdict.error or {}
        longest = max(longest, *(len(str(error.get(key, ""))) for key in ("type", "message", "trace")))
        kind = error.get("type") if ended.verdict.outcome == "tool_error" else None
        crashed = ended.verdict.reason == "crashed"
        found[name] = [short(ended), kind, ended.exit_code if crashed else None]
    return {**found, "longest text": longest <= 65536, "next": await next_call(harness)}


async def text_like_a_verdict(harness: Harness, module: str, case: Case) -> Any:
    ended = await harness.call(module, case)
    return {
        "outcome": short(ended),
        "value": ended.verdict.value,
        "violations": dict(ended.violations),
        "next": await next_call(harness),
    }


async def order_of_threads(harness: Harness, module: str, case: Case) -> Any:
    services = Services()
    ended = await harness.call(module, case, services)
    events = [data for _, data in services.events]
    lines = [line.split() for line in ended.stdout.decode().splitlines()]

    def ordered(pairs: list[Any]) -> bool:
        return all([int(n) for t, n in pairs if int(t) == thread] == list(range(10)) for thread in range(50))

    return {
        "outcome": short(ended),
        "events": len(events),
        "in order": ordered(events) and [list(e) for e in (data for _, data in ended.events)] == events,
        "lines": len(lines),
        "lines in order": ordered(lines),
    }


# -- E -------------------------------------------------------------------------------------------------------


async def two_calls(harness: Harness, module: str, case: Case) -> Any:
    await harness.call(module, case)
    second = await harness.call(module, case, second=True)
    return second.verdict.value if second.verdict.outcome == "ok" else record(second)


async def two_calls_two_credentials(harness: Harness, module: str, case: Case) -> Any:
    first = harness.frame(module, case)
    secret = "sk-" + os.urandom(16).hex()
    given = CallFrame(first.call_id, first.input, {**first.env, "TOOL_SECRET": secret}, first.late_names)
    kept = await harness.isolator.call(harness.spec(case), given, Services())
    if kept.verdict.value != "kept":
        return record(kept)
    # The halves of the secret go in apart, so that the looker's own memory does not hold the whole.
    second = await harness.call(module, case, second=True, halves=[secret[:12], secret[12:]])
    return second.verdict.value if second.verdict.outcome == "ok" else record(second)


class Waiting(SlowServices):
    """Learns the folder of the call, and keeps the call waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.told: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def event(self, kind: str, data: Any) -> None:
        self.told.set_result(str(data))


async def neighbours(harness: Harness, module: str, case: Case) -> Any:
    services = Waiting()
    first = asyncio.create_task(harness.call(module, case, services))
    there = await services.told
    second = await harness.call(module, case, second=True, there=there)
    services.release.set()
    value = second.verdict.value if second.verdict.outcome == "ok" else record(second)
    return {**value, "outcome": short(await first)}


async def two_calls_and_output(harness: Harness, module: str, case: Case) -> Any:
    first = await harness.call(module, case)
    second = await harness.call(module, case, second=True)
    own = second.verdict.value["own"] if second.verdict.outcome == "ok" else record(second)
    return {
        "own": own,
        "stdout": second.stdout.decode(),
        "first": first.stdout.startswith(b"left unflushed") or first.verdict.outcome == "ok",
    }


async def two_calls_outcomes(harness: Harness, module: str, case: Case) -> Any:
    first = await harness.call(module, case)
    second = await harness.call(module, case, second=True)
    return {"first": " ".join(short(first).split()[:2]), "second": short(second)}


async def calls_that_fill(harness: Harness, module: str, case: Case) -> Any:
    names = ("first", "second", "third", "fourth")
    return {name: short(await harness.call(module, case, turn=turn)) for turn, name in enumerate(names, 1)}


async def twenty_calls(harness: Harness, module: str, case: Case) -> Any:
    return {"outcomes": [short(await harness.call(module, case)) for _ in range(20)]}


async def two_draws(harness: Harness, module: str, case: Case) -> Any:
    spec = harness.spec(case, preload=("random", "ssl", "tempfile", "uuid"))
    drawn = []
    for _ in range(2):
        ended = await harness.isolator.call(spec, harness.frame(module, case), Services())
        if ended.verdict.outcome != "ok":
            return record(ended)
        drawn.append(ended.verdict.value)
    return {name: "same" if drawn[0][name] == drawn[1][name] else "differ" for name in drawn[0]}


# -- honest programs -----------------------------------------------------------------------------------------


class Together(Services):
    """Lets nobody go before all have come."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.barrier = asyncio.Barrier(count)

    async def put(self, data: bytes, media_type: str) -> dict[str, Any]:
        await self.barrier.wait()
        return await super().put(data, media_type)


async def five_at_once(harness: Harness, module: str, case: Case) -> Any:
    services = Together(5)
    ended = await asyncio.gather(*(harness.call(module, case, services) for _ in range(5)))
    return {"outcomes": [short(one) for one in ended]}


async def limits_up_and_down(harness: Harness, module: str, case: Case) -> Any:
    outcomes = []
    for limit, size in ((64, 40), (256, 200), (32, 200), (64, 40)):
        spec = harness.spec(case, name="attacked-one-slot", limits=Limits(memory=limit << 20, timeout_s=20.0))
        ended = await harness.isolator.call(spec, harness.frame(module, case, size=size), Services())
        outcomes.append(short(ended))
    return {"outcomes": outcomes}


async def grandchild_on_the_pipe(harness: Harness, module: str, case: Case) -> Any:
    marker = f"30.{os.getpid()}"
    spec = ToolSpec(
        "attacked-pipe", "command", argv=("sh", "-c", f"sleep {marker} & wait"), limits=Limits(timeout_s=1.0)
    )
    ended = await harness.isolator.call(spec, CallFrame("pipe", None, {"PATH": "/usr/bin:/bin"}), Services())
    gone = await settled(lambda: running(marker), [])
    return {"outcome": short(ended), "gone": gone == [], "waited": ended.wall_s > 25}


class Looking(Services):
    """Looks at a repository while the call runs."""

    def __init__(self, repository: Path) -> None:
        super().__init__()
        self.repository, self.during = repository, "not looked"

    async def put(self, data: bytes, media_type: str) -> dict[str, Any]:
        self.during = await git_status(self.repository)
        return await super().put(data, media_type)


async def git_status(repository: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        "git",
        "-C",
        str(repository),
        "status",
        "--porcelain",
        "--untracked-files=all",
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    return out.decode()


async def grants_in_a_repository(harness: Harness, module: str, case: Case) -> Any:
    repository = Path(harness.world.values["repository"])
    out = repository / "out"  # ignored by git; a mount point anywhere else would show
    spec = harness.spec(case, write=(out,), read=(repository / "data", repository / "file"))
    services = Looking(repository)
    ended = await harness.isolator.call(spec, harness.frame(module, case, out=str(out)), services)
    if ended.verdict.outcome != "ok":
        return record(ended)
    return {"during": services.during, "after": await git_status(repository), "made": sorted(os.listdir(out))}
