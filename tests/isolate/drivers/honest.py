"""Honest programs beside each other, under changing limits, and in a repository."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from fumehood.isolate import CallFrame, Limits, ToolSpec
from tests.isolate.attacks._model import Case
from tests.isolate.drivers.measures import running, settled, short
from tests.isolate.runner import Harness, Services, record


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
