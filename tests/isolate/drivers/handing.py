"""Section D, row 70: what the host collects of a hostile /tmp."""

from __future__ import annotations

import fcntl
import os
from typing import Any

from fumehood.isolate import Ended
from tests.isolate.attacks._model import Case
from tests.isolate.drivers.measures import Memory, descriptors, next_call, settled, short
from tests.isolate.runner import Harness, Services, record

_ASKED = (
    "out/*", "out/.a", "out/to folder/*.db", "out/to folder/events.db", "out/loop/x", "out/gone",
    "out/a/b/c*",
)  # fmt: skip


async def collecting(
    harness: Harness, module: str, case: Case, services: Services, *patterns: str
) -> tuple[Ended, dict[str, str]]:
    """One call of the case's tool that hands back `patterns`; what was refused, by name."""
    spec = harness.spec(case, collect=patterns, name=f"attacked-{case.id}-{len(patterns)}-{patterns[0]}")
    ended = await harness.isolator.call(spec, harness.frame(module, case), services)
    return ended, dict(ended.uncollected)


async def files_that_are_none(harness: Harness, module: str, case: Case) -> Any:
    await collecting(harness, module, case, Services(), *_ASKED)  # its zygote has descriptors of its own
    before, services = descriptors(), Services()
    ended, refused = await collecting(harness, module, case, services, *_ASKED)
    if ended.verdict.outcome != "ok":
        return record(ended)
    if services.files.pop("out/closed", None) is not None:
        refused["out/closed"] = "taken"  # root reads what is closed to its owner
    if harness.isolator.tier == "landlock":
        # Without a file system of its own nobody knows where a second name stands.
        for name in ("out/a", "out/same"):
            assert refused.pop(name) == "it has a second name (a hard link)"
            services.files[name] = b"text"
        services.files.pop("out/granted", None)  # what the tool could read it could as well have copied
    return {
        "told": ended.verdict.value,
        "taken": {name: data.decode() for name, data in services.files.items()},
        "refused": {name.replace("\\udcff", "\udcff"): why for name, why in refused.items()},
        "descriptors": await settled(lambda: max(0, descriptors() - before), 0),
        "outcome": short(ended),
        "next": await next_call(harness),
    }


class Holding(Services):
    """Sees, whenever it is given a file, whether anything of the call still holds the lock."""

    def __init__(self, lock: str) -> None:
        super().__init__()
        self._lock = lock
        self.running = False

    async def collect(self, name: str, data: bytes) -> str | None:
        fd = os.open(self._lock, os.O_RDWR)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.running = True
        finally:
            os.close(fd)
        return await super().collect(name, data)


async def swapped_while_it_is_read(harness: Harness, module: str, case: Case) -> Any:
    seen: dict[str, Any] = {"secret": False, "contents": "whole", "still running": False}
    for _ in range(5):
        services = Holding(f"{harness.world.values['results']}/lock")
        ended, _refused = await collecting(harness, module, case, services, "out/*", "out/folder/events.db")
        if ended.verdict.outcome != "ok" or not services.files:
            return record(ended)
        for name, data in services.files.items():
            seen["secret"] |= b"not the tool's" in data
            if data != b"text" and data.strip(b"x") != b"text":
                seen["contents"] = f"{name}: {data[:40]!r}"
        seen["still running"] |= services.running
    return {**seen, "outcome": short(ended), "next": await next_call(harness)}


async def too_many_names(harness: Harness, module: str, case: Case) -> Any:
    memory, services = Memory(), Services()
    ended, refused = await collecting(harness, module, case, services, "out/*")
    return {
        "made": (ended.verdict.value or {}).get("made"),
        "taken": len(services.files),
        "refused": refused,
        "memory": memory.verdict(),
        "outcome": short(ended),
        "next": await next_call(harness),
    }


async def more_than_is_taken(harness: Harness, module: str, case: Case) -> Any:
    memory, files, holes = Memory(), Services(), Services()
    ended, many = await collecting(harness, module, case, files, "out/n*")
    _, large = await collecting(harness, module, case, holes, "out/h*", "out/none*")
    return {
        "files": [len(files.files), *set(many.values()), len(many)],
        "bytes": [len(holes.files), *set(large.values()), len(large)],
        "sparse": (ended.verdict.value or {}).get("sparse"),
        "memory": memory.verdict(),
        "outcome": short(ended),
        "next": await next_call(harness),
    }
