"""What every driver measures with: outcomes as words, memory, descriptors, processes."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path
from typing import Any

from fumehood.isolate import CallFrame, Ended, ToolSpec
from tests.isolate.runner import Harness, Services

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


class SlowServices(Services):
    """Answers nothing until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.release = asyncio.Event()

    async def put(self, data: bytes, media_type: str) -> dict[str, Any]:
        await self.release.wait()
        return await super().put(data, media_type)


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
