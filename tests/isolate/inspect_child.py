"""What the kernel says of a running child, its init, its zygote and the launcher, read from outside: plain
values, numbers that differ from run to run put into words.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import psutil

from fumehood.isolate import CallFrame, Isolator, Limits, ToolSpec, tiers
from tests.isolate.runner import Services

NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")
CAPABILITIES = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
LIMITS = Limits(timeout_s=30.0, cpu_s=7.0, memory=256 << 20, processes=33, output=1 << 20, tmp=8 << 20)
TOOL = "def run(input, ctx):\n    ctx.put(b'look', 'text/plain')\n    return 1\n"


class Look(Services):
    """Inspects while two calls wait for their answer."""

    def __init__(self, isolator: Isolator, calls: int) -> None:
        super().__init__()
        self.isolator = isolator
        self.barrier = asyncio.Barrier(calls)
        self.seen: list[dict[str, Any]] = []

    async def put(self, data: bytes, media_type: str) -> dict[str, Any]:
        if await self.barrier.wait() == 0:
            self.seen = [
                look(child.pid, child.init)
                for child in sorted(self.isolator._endings.living, key=lambda child: child.pid)
            ]
        await self.barrier.wait()
        return await super().put(data, media_type)


async def inspect(folder: Path, secret: str) -> dict[str, Any]:
    """Tier -> [first call, second call of the same tool, both running], and what stands around them."""
    tool = folder / "inspected.py"
    tool.write_text(TOOL, encoding="ascii")
    found: dict[str, Any] = {}
    levels: tuple[tiers.Tier, ...] = ("namespaces", "landlock")
    for tier in levels:
        async with Isolator(tier, spares=0) as isolator:
            spec = ToolSpec("inspected", "module", path=tool, limits=LIMITS, env={"LANG": "C.UTF-8"})
            services = Look(isolator, 2)
            frame = CallFrame("inspected", {}, {"PATH": "/usr/bin", "SECRET": secret}, frozenset({"SECRET"}))
            await asyncio.gather(*(isolator.call(spec, frame, services) for _ in range(2)))
            found[tier] = services.seen
    return found


def look(pid: int, process_one: int) -> dict[str, Any]:
    """One process and those above it, up to this one. process_one: of its own namespace; 0 without one."""
    seen = {"child": process(pid) | ({"init": init(process_one)} if process_one else {})}
    above = psutil.Process(pid).parents()
    names = ("zygote", "process 1", "launcher")
    for name, parent in zip(names, [p for p in above if p.pid != os.getpid()], strict=False):
        if os.getpid() in [p.pid for p in parent.parents()] or parent.ppid() == os.getpid():
            seen[name] = process(parent.pid)
    return seen


def init(pid: int) -> dict[str, Any]:
    """What holds a call's process namespace. Only root can look into it."""
    base = Path(f"/proc/{pid}")
    status = (base / "status").read_text(encoding="utf-8").splitlines()
    values = dict(line.split(":\t", 1) for line in status if ":\t" in line)
    try:
        descriptors = [fd.name for fd in (base / "fd").iterdir()]
    except PermissionError:
        descriptors = []
    return {
        "capabilities": {name: int(values[name], 16) for name in CAPABILITIES},
        "no new privs": values["NoNewPrivs"],
        "inner pid": int(values["NSpid"].split()[-1]),
        "threads": int(values["Threads"]),
        "descriptors": descriptors,
        "readable by its user": os.stat(base / "environ").st_uid != 0,
    }


def process(pid: int) -> dict[str, Any]:
    base = Path(f"/proc/{pid}")
    status = dict(
        line.split(":\t", 1)
        for line in (base / "status").read_text(encoding="utf-8").splitlines()
        if ":\t" in line
    )
    stat = (base / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return {
        "uid": sorted(set(status["Uid"].split())),
        "gid": sorted(set(status["Gid"].split())),
        "groups": status["Groups"].strip(),
        "no new privs": status["NoNewPrivs"],
        "seccomp": [status["Seccomp"], status["Seccomp_filters"]],
        "capabilities": {name: int(status[name], 16) for name in CAPABILITIES},
        "umask": status["Umask"],
        "blocked": int(status["SigBlk"], 16),
        "ignored": int(status["SigIgn"], 16),
        "threads": int(status["Threads"]),
        "inner pid": int(status["NSpid"].split()[-1]),
        "own namespaces": sorted(
            name for name in NAMESPACES if _namespace(pid, name) != _namespace("self", name)
        ),
        "namespaces": {name: _namespace(pid, name) for name in NAMESPACES},
        "environment": sorted(part.decode() for part in (base / "environ").read_bytes().split(b"\0") if part),
        "arguments": (base / "cmdline").read_bytes().decode("utf-8", "replace"),
        "descriptors": {int(fd.name): _kind(os.readlink(fd)) for fd in (base / "fd").iterdir()},
        "limits": _limits(base),
        "mounts": _mounts(base),
        "groups of control": sorted(
            {line.rpartition(":")[2] for line in (base / "cgroup").read_text(encoding="utf-8").splitlines()}
        ),
        "cwd": os.readlink(base / "cwd"),
        "leads its session": int(stat[3]) == pid,
        "terminal": int(stat[4]),
        "nice": int(stat[16]),
        "oom": int((base / "oom_score_adj").read_text(encoding="ascii")),
    }


def _namespace(pid: int | str, name: str) -> str:
    return os.readlink(f"/proc/{pid}/ns/{name}")


def _kind(target: str) -> str:
    return target.partition(":")[0] if ":[" in target else target


def _limits(base: Path) -> dict[str, list[str]]:
    lines = (base / "limits").read_text(encoding="ascii").splitlines()[1:]
    return {line[:26].strip(): [line[26:47].strip(), line[47:68].strip()] for line in lines}


def _mounts(base: Path) -> dict[str, str]:
    """Mount point -> file system and flags, of the uppermost mount at each point."""
    found = {}
    for line in (base / "mountinfo").read_text(encoding="utf-8").splitlines():
        left, _, right = line.partition(" - ")
        point, flags = left.split()[4:6]
        found[point] = (
            f"{right.split()[0]} {','.join(flag for flag in flags.split(',') if flag != 'relatime')}"
        )
    return found
