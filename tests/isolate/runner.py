"""Runs every attack of one set-up in one process and prints one JSON object: case id -> what came of it.

`python -m tests.isolate.runner SETUP [CASE...]`, SETUP one of `attacks._model.SETUPS`, or `control` for the
same bodies outside any cage. Each case gets a fresh child of one Isolator, two at a time; heavy ones run
alone. The tests only compare.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fumehood.isolate import CallFrame, Ended, Isolator, Limits, ToolSpec, _posture, _spawn, tiers
from fumehood.isolate._session import Doors
from fumehood.policies.errors import SandboxUnavailable
from tests.isolate.attacked import World
from tests.isolate.attacks._model import SETUPS, Case
from tests.users import as_user

HERE = Path(__file__).resolve().parent
TOOL = HERE / "attacks" / "tool.py"
DEGRADED = HERE / "degraded"
MODULES = (
    "reading", "viewing", "reaching", "namespaces", "rising", "calling", "planting", "asking", "multiplying",
    "hoarding", "draining", "storing", "staying", "flooding", "forging", "pretending", "leaving", "repeating",
    "handing", "honest", "honest_files",
)  # fmt: skip
ALLOW_EVERYTHING = bytes.fromhex("060000000000ff7f").hex()  # one instruction: return SECCOMP_RET_ALLOW
AT_ONCE = 2
CASE_S = 60.0  # no case takes that long; a hang becomes a record
PLAIN_LIMITS = {"timeout_s": 20.0, "cpu_s": 20.0}


def all_cases() -> dict[str, tuple[str, Case]]:
    """Case id -> (module, case), of every table."""
    return {
        case.id: (name, case)
        for name in MODULES
        for case in importlib.import_module(f"tests.isolate.attacks.{name}").TABLE.cases.values()
    }


class Services:
    """What a tool may ask the host for, counted."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.lines: list[str] = []
        self.files: dict[str, bytes] = {}
        self.fetched = 0
        self.at_once = 0
        self.most_at_once = 0

    async def doors(self, doors: Doors) -> None:
        """Nobody answers behind these doors: what matters is that nobody else does."""
        for sock in (doors.dns_udp, doors.dns_tcp, doors.proxy, *doors.listeners.values(), *doors.watches):
            sock.close()

    async def fetch(self, request: Mapping[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        self.fetched += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        return {"t": "refused", "reason": "not-listed", "message": "no rule allows it"}, b""

    async def event(self, kind: str, data: Any) -> None:
        self.events.append((kind, data))

    async def put(self, data: bytes, media_type: str) -> dict[str, Any]:
        return {"t": "stored", "address": "sha256:00", "size": len(data)}

    async def log(self, text: str) -> None:
        self.lines.append(text)

    async def collect(self, name: str, data: bytes) -> str | None:
        self.files[name] = data
        return None


class DegradedIsolator(Isolator):
    """An Isolator whose children lack walls. without: names of `degraded.launch.REMOVALS`;
    "seccomp-rules" leaves a filter that allows all.
    """

    def __init__(self, tier: tiers.Tier, without: Sequence[str] = (), **options: Any) -> None:
        super().__init__(tier, **options)
        self.without = list(without)

    def _plan(self, spec: ToolSpec) -> dict[str, Any]:
        plan = super()._plan(spec)
        if "seccomp-rules" in self.without:
            plan |= {"seccomp": ALLOW_EVERYTHING, "seccomp_notify": ALLOW_EVERYTHING}
        return {**plan, "without": [name for name in self.without if name != "seccomp-rules"]}


@contextlib.contextmanager
def degraded_children() -> Iterator[None]:
    """The host starts `tests/isolate/degraded` instead of `isolate/child`."""
    before, _spawn._CHILD_FOLDER = _spawn._CHILD_FOLDER, str(DEGRADED)
    try:
        yield
    finally:
        _spawn._CHILD_FOLDER = before


@contextlib.contextmanager
def looking_away() -> Iterator[None]:
    """The host does not refuse a child that lacks a wall: so the next wall can be asked."""
    faults, reached = _posture.faults, tiers.reached
    _posture.faults = lambda *_: {}
    tiers.reached = lambda *_: "namespaces"
    try:
        yield
    finally:
        _posture.faults, tiers.reached = faults, reached


class Harness:
    """One set-up under attack."""

    def __init__(self, setup: str, isolator: Isolator, world: World) -> None:
        self.setup, self.isolator, self.world = setup, isolator, world

    def spec(self, case: Case, **changes: Any) -> ToolSpec:
        """The tool of one case; cases with the same cage share a zygote."""
        cage, values = case.cage, self.world.values
        name = changes.pop("name", f"attacked-{case.id}" if changes else f"attacked-{abs(hash(cage)):x}")
        fields: dict[str, Any] = {
            "path": TOOL,
            "limits": Limits(**{**PLAIN_LIMITS, **dict(cage.limits)}),  # type: ignore[arg-type]
            "read": tuple(Path(values[key]) for key in cage.read),
            "write": tuple(Path(values[key]) for key in cage.write),
            "doors": cage.doors if self.isolator.tier == "namespaces" else None,
        }
        return ToolSpec(name, "module", **{**fields, **changes})

    def frame(self, module: str, case: Case, **more: Any) -> CallFrame:
        """The call of one case: which body, and the world it attacks."""
        env = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "TOOL_SECRET": self.world.values["tool_secret"],
        }
        private = self.isolator.tier == "namespaces"
        given = {
            "module": module,
            "case": case.id,
            "world": {**self.world.values, "private": private, **more},
        }
        return CallFrame(f"call-{case.id}", given, env | dict(case.cage.env), frozenset({"TOOL_SECRET"}))

    async def call(self, module: str, case: Case, services: Services | None = None, **more: Any) -> Ended:
        """One child, one body."""
        return await self.isolator.call(
            self.spec(case), self.frame(module, case, **more), services or Services()
        )


def record(ended: Ended) -> dict[str, Any]:
    """What a test compares: the value, or the verdict."""
    verdict = ended.verdict
    if verdict.outcome == "ok":
        return {"value": verdict.value, "violations": dict(ended.violations)}
    error = verdict.error or {}
    return {
        "outcome": verdict.outcome,
        "reason": verdict.reason,
        "signal": verdict.signal,
        "error": error.get("type"),
        "violations": dict(ended.violations),
        "detail": [
            verdict.message,
            error.get("message"),
            error.get("trace"),
            ended.stderr.decode("utf-8", "replace")[-2000:],
        ],
    }


async def _run_case(harness: Harness, module: str, case: Case) -> dict[str, Any]:
    try:
        async with asyncio.timeout(CASE_S):
            if case.host:
                drivers = importlib.import_module("tests.isolate.drivers")
                return {"value": await getattr(drivers, case.host)(harness, module, case)}
            return record(await harness.call(module, case))
    except TimeoutError:
        return {
            "outcome": "harness",
            "reason": f"no end within {CASE_S:.0f} s",
            "signal": None,
            "error": None,
        }
    except SandboxUnavailable as error:
        return {"outcome": "refused", "reason": str(error), "signal": None, "error": None}
    except Exception as error:  # what a child does must never raise here: a finding, told by the test
        return {
            "outcome": "raised",
            "reason": repr(error),
            "signal": None,
            "error": None,
            "detail": traceback.format_exc(),
        }


async def run_setup(setup: str, wanted: Sequence[str]) -> dict[str, Any]:
    """Every case of a set-up."""
    _, _, without = setup.partition("-without-")
    cases = [
        (module, case)
        for name, (module, case) in all_cases().items()
        if case.runs_in(setup) and (not wanted or name in wanted)
    ]
    results: dict[str, Any] = {}
    removed = {"seccomp": ["seccomp-rules"], "landlock": ["landlock"]}.get(without, [])
    with contextlib.ExitStack() as stack:
        world = stack.enter_context(World())
        if removed:
            stack.enter_context(degraded_children())
            stack.enter_context(looking_away())
        tier: tiers.Tier = "landlock" if without == "namespaces" else "namespaces"
        isolator = DegradedIsolator(tier, removed, spares=0) if removed else Isolator(tier, spares=0)
        async with isolator:
            harness = Harness(setup, isolator, world)
            room = asyncio.Semaphore(AT_ONCE)

            async def one(module: str, case: Case) -> None:
                async with room:
                    started = time.perf_counter()
                    results[case.id] = await _run_case(harness, module, case)
                    results[case.id]["seconds"] = round(time.perf_counter() - started, 3)

            await asyncio.gather(*(one(module, case) for module, case in cases if not case.heavy))
            for module, case in cases:
                if case.heavy:
                    await one(module, case)
    return results


async def run_refusals() -> dict[str, Any]:
    """Every wall left out in turn: what the host says of such a child. It must never come to the
    tool's code.
    """
    from tests.isolate.degraded.launch import REMOVALS

    results: dict[str, Any] = {}
    with World() as world, degraded_children():
        witness = Path(world.values["results"]) / "ran"
        tool = world.folder / "witness.py"
        tool.write_text(
            f"open({str(witness)!r}, 'w').close()\ndef run(input, ctx):\n    return 'ran'\n", encoding="utf-8"
        )
        for wall in ("nothing", *REMOVALS):
            async with DegradedIsolator(
                "namespaces", [] if wall == "nothing" else [wall], spares=0
            ) as isolator:
                spec = ToolSpec(
                    f"witness-{wall}",
                    "module",
                    path=tool,
                    write=(witness.parent,),
                    limits=Limits(timeout_s=10.0),
                )
                try:
                    ended = await isolator.call(
                        spec, CallFrame("refused", None, {"PATH": "/usr/bin"}), Services()
                    )
                    told = ended.verdict.message or str(ended.verdict.value)
                except SandboxUnavailable as error:
                    told = error.message
                except Exception as error:  # told by the test
                    told = f"raised {error!r}"
            results[wall] = {"told": told, "ran": witness.exists()}
            if wall == "group" and told == "ran":
                results[wall]["group"] = ended.layers["cgroup-limits"][0]
            witness.unlink(missing_ok=True)
    return results


async def run_posture() -> dict[str, Any]:
    """What running children look like from outside."""
    from tests.isolate.inspect_child import inspect

    with World() as world:
        found = await inspect(world.folder, world.values["tool_secret"])
        return {
            **found,
            "host": {"pid": os.getpid(), "secret": world.values["tool_secret"], "folder": str(world.folder)},
        }


def run_controls(wanted: Sequence[str]) -> dict[str, Any]:
    """The same bodies in a plain process each, as whoever the case says. Needs root, because some need it."""
    results: dict[str, Any] = {}
    with World() as world:
        for name, (module, case) in all_cases().items():
            if case.no_control or (wanted and name not in wanted):
                continue
            results[name] = _control(world, module, case)
    return results


def _control(world: World, module: str, case: Case) -> dict[str, Any]:
    argv = [sys.executable, str(TOOL)]
    secret = world.values["tool_secret"]
    given = {
        "module": module,
        "case": case.id,
        "world": {**world.values, "halves": [secret[:12], secret[12:]]},
    }
    ran = subprocess.run(
        as_user(argv) if case.control_as == "user" else argv,
        input=json.dumps(given).encode(),
        capture_output=True,
        pass_fds=(77, 78, 79),
        timeout=CASE_S,
        cwd="/",
        env={**os.environ, "TOOL_SECRET": secret},
    )
    try:
        return {"value": json.loads(ran.stdout)}
    except ValueError:
        detail = [ran.stdout.decode("utf-8", "replace")[-500:], ran.stderr.decode("utf-8", "replace")[-2000:]]
        return {
            "outcome": "control",
            "reason": f"exit code {ran.returncode}",
            "signal": None,
            "error": None,
            "detail": detail,
        }


def main(arguments: Sequence[str]) -> int:
    """Command line."""
    known = (*SETUPS, "control", "refusals", "posture")
    if not arguments or arguments[0] not in known:
        sys.stderr.write(f"usage: python -m tests.isolate.runner {'|'.join(known)} [CASE...]\n")
        return 2
    setup, *wanted = arguments
    if setup == "control":
        results = run_controls(wanted)
    elif setup == "posture":
        results = asyncio.run(run_posture())
    else:
        results = asyncio.run(run_refusals() if setup == "refusals" else run_setup(setup, wanted))
    sys.stdout.write(json.dumps(results) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
