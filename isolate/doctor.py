"""What this machine can do, found by doing it: a real cage is built and looked at; where that fails, each
layer is tried alone (design D2).
"""

from __future__ import annotations

import asyncio
import json
import socket
from dataclasses import dataclass, field

from fumehood.isolate import _bpf, _spawn
from fumehood.isolate._session import Doors
from fumehood.isolate._spec import CallFrame, Limits, Machine, ToolSpec
from fumehood.isolate.isolator import Isolator
from fumehood.isolate.tiers import LAYERS, Tier
from fumehood.policies.errors import SandboxUnavailable

PROBE_S = 15.0  # all probes together take well under a second


@dataclass(frozen=True, slots=True)
class LayerReport:
    """One layer: level FULL, PARTIAL or MISSING, and what is missing with its remedy ("" when FULL)."""

    level: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Examination:
    """tier: the strongest this machine reaches.

    layers: every layer of the contract. trouble: why the strongest tier could not be built.
    """

    tier: Tier
    layers: dict[str, LayerReport] = field(default_factory=dict)
    trouble: str | None = None


async def examine() -> Examination:
    """Build a cage on the strongest tier that works and report every layer of it."""
    trouble: str | None = None
    for tier in ("namespaces", "landlock"):
        try:
            layers = await _layers_of(tier)
        except SandboxUnavailable as error:
            trouble = trouble or str(error)
            continue
        return Examination(tier, await _explained(layers, tier == "landlock"), trouble)
    return Examination("none", await _explained({}, True), trouble)


async def _layers_of(tier: Tier) -> dict[str, tuple[str, str]]:
    async with Isolator(tier, spares=0) as isolator:
        spec = ToolSpec("doctor", "command", argv=("true",), limits=Limits(timeout_s=10.0))
        ended = await isolator.call(spec, CallFrame("doctor", None, {"PATH": "/usr/bin:/bin"}), _NoServices())
    if not ended.layers:
        raise SandboxUnavailable(ended.verdict.message or "a child did not start")
    return dict(ended.layers)


async def _explained(layers: dict[str, tuple[str, str]], probe: bool) -> dict[str, LayerReport]:
    """Every layer in order; where the cage could not be built, what each layer's own probe found."""
    found = {name: LayerReport(level, detail) for name, (level, detail) in layers.items()}
    if probe:
        for name, (level, detail) in (await _probes()).items():
            if level != "FULL" or name not in found:
                found[name] = LayerReport(level, detail)
    return {name: found.get(name, LayerReport("MISSING", "not reached")) for name in LAYERS}


async def _probes() -> dict[str, tuple[str, str]]:
    """Each layer tried alone, in throw-away processes below a throw-away interpreter."""
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = await asyncio.wrap_future(
                _spawn.spawn(Machine.read().executable, theirs, 2, module="probes")
            )
        ours.setblocking(False)
        data = b""
        try:
            async with asyncio.timeout(PROBE_S):
                while part := await loop.sock_recv(ours, 65536):
                    data += part
        except TimeoutError:
            process.kill()
        await asyncio.to_thread(process.wait)
    found = {name: (level, detail) for name, (level, detail) in json.loads(data or b"{}").items()}
    try:
        _bpf.program("net")
    except SandboxUnavailable as error:  # the kernel can, the library that names the system calls is missing
        found["seccomp"] = ("MISSING", error.message)
    return found


class _NoServices:
    """`true` asks for nothing."""

    async def doors(self, doors: Doors) -> None:
        return None

    async def fetch(self, request: object, body: bytes) -> tuple[dict[str, object], bytes]:
        return {"t": "refused", "reason": "not-listed", "message": "no network"}, b""

    async def event(self, kind: str, data: object) -> None:
        return None

    async def put(self, data: bytes, media_type: str) -> dict[str, object]:
        return {"t": "failed", "reason": "store", "message": "no store"}

    async def log(self, text: str) -> None:
        return None

    async def collect(self, name: str, data: bytes) -> str | None:
        return "no store"
