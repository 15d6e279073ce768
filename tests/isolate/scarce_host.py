"""A host whose zygote, or the process that makes inits, gets no more processes while a call runs.

`python -m tests.isolate.scarce_host TIER WHO` as an ordinary user, who may change the limits of his own
processes; prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil

from fumehood.isolate import CallFrame, Isolator, Limits, ToolSpec
from fumehood.policies.errors import SandboxUnavailable
from tests.isolate.drivers import short
from tests.isolate.runner import Services

_TOOL = """
def run(input, ctx):
    if input == "stay":
        ctx.emit("STARTED")
        ctx.put(b"", "text/plain")
    return "done"
"""


class Holding(Services):
    """Tells when the tool has started, and answers its `put` when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.started, self.enough = asyncio.Event(), asyncio.Event()

    async def event(self, kind: str, data: Any) -> None:
        self.started.set()

    async def put(self, data: bytes, media_type: str) -> dict[str, Any]:
        await self.enough.wait()
        return await super().put(data, media_type)


async def scarce(tier: Any, who: str, tool: Path) -> dict[str, Any]:
    """What calls say while there is no process, what becomes of the one that runs, and how it is after."""
    spec, services = ToolSpec("scarce", "module", path=tool, limits=Limits()), Holding()
    async with Isolator(tier, spares=0) as isolator:

        async def call(input: str, services: Services) -> str:
            try:
                return short(await isolator.call(spec, CallFrame(input, input, {}), services))
            except SandboxUnavailable as error:
                return str(error).splitlines()[0]

        staying = asyncio.create_task(call("stay", services))
        await services.started.wait()
        (child,) = isolator._endings.living
        forker = psutil.Process(child.pid).parent()
        assert forker is not None
        if who == "inits":
            forker = forker.parent()
            assert forker is not None
        _, most = resource.prlimit(forker.pid, resource.RLIMIT_NPROC)
        resource.prlimit(forker.pid, resource.RLIMIT_NPROC, (1, most))
        refused = {await call("go", Services()) for _ in range(5)} - {"ok"}  # two inits are made ahead
        resource.prlimit(forker.pid, resource.RLIMIT_NPROC, (most, most))
        after = await call("go", Services())
        services.enough.set()
        return {"refused": sorted(refused), "after": after, "staying": await staying}


def main() -> None:
    """Command line."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        tool = Path(folder) / "tool.py"
        tool.write_text(_TOOL, encoding="ascii")
        print(json.dumps(asyncio.run(scarce(sys.argv[1], sys.argv[2], tool))))


if __name__ == "__main__":
    main()
