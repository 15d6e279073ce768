"""A host with busy calls, to be killed: `python -m tests.isolate.doomed_host TIER MARKER CALLS`.

Everything the calls start has MARKER in its arguments. Prints the names of its control groups and folders
once the calls run.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Any

from fumehood.isolate import CallFrame, Isolator, Limits, ToolSpec
from fumehood.isolate.tiers import Tier
from tests.isolate.runner import Services


async def main(tier: Tier, marker: str, calls: int) -> None:
    """Run until killed."""
    # Deeper than Python's own removal can go; on the tier without a view it is a folder of the host's.
    deep = "n=0; while [ $n -lt 1100 ]; do mkdir d && cd d; n=$((n+1)); done; " if calls == 1 else ""
    script = (
        f"{deep}(setsid sleep {marker} || sleep {marker}) & (sleep {marker} &) ; trap '' TERM INT HUP; "
        f"echo up; sleep {marker}"
    )
    async with Isolator(tier, spares=1) as isolator:

        async def call(number: int) -> Any:
            spec = ToolSpec(
                f"busy-{number % 2}", "command", argv=("sh", "-c", script), limits=Limits(timeout_s=300.0)
            )
            return await isolator.call(
                spec, CallFrame(f"busy-{number}", None, {"PATH": "/usr/bin:/bin"}), Services()
            )

        tasks = [asyncio.create_task(call(number)) for number in range(calls)]
        sys.stdout.write("running\n")
        sys.stdout.flush()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))  # type: ignore[arg-type]
