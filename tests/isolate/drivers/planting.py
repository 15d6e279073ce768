"""Section B: what was planted is met by the next call; the call's socket is turned on the host."""

from __future__ import annotations

import resource
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fumehood.isolate import CallFrame, Limits
from fumehood.isolate.child.frames import MAX_ATTACHED
from tests.isolate.attacks._model import Case
from tests.isolate.drivers.measures import Memory, SlowServices, descriptors, next_call, settled, short
from tests.isolate.runner import Harness, Services, record

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


class _Meanwhile(Services):
    """Does something while the tool waits for its `put`."""

    def __init__(self, work: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self.work = work

    async def put(self, data: bytes, media_type: str) -> dict[str, Any]:
        await self.work()
        return await super().put(data, media_type)


async def descriptors_under_way(harness: Harness, module: str, case: Case) -> Any:
    found: dict[str, str] = {}
    hog, other = harness.spec(case, name="under-way"), harness.spec(case, name="under-way-beside")

    async def neighbours() -> None:
        frame = harness.frame(module, case, second=True)
        for name, spec in (("same tool", hog), ("other tool", other)):
            found[name] = short(await harness.isolator.call(spec, frame, Services()))

    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, most))  # as a login has it
    try:
        ended = await harness.isolator.call(hog, harness.frame(module, case), _Meanwhile(neighbours))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))
    return {"filled": ended.verdict.value, **found, "outcome": short(ended)}


class _Storing(Services):
    """Counts what it is given to store."""

    def __init__(self) -> None:
        super().__init__()
        self.times = self.bytes = 0

    async def put(self, data: bytes, media_type: str) -> dict[str, Any]:
        self.times, self.bytes = self.times + 1, self.bytes + len(data)
        return await super().put(data, media_type)


async def content_without_end(harness: Harness, module: str, case: Case) -> Any:
    many, large = _Storing(), _Storing()
    first = await harness.call(module, case, many, size=1)
    second = await harness.call(module, case, large, size=30 << 20)
    return {
        "many": first.verdict.value,
        "large": second.verdict.value,
        "stored": [many.times, large.bytes],
        "outcomes": [short(first), short(second)],
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
