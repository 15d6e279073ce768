"""Section D: floods, forged frames, traps, false ends."""

from __future__ import annotations

import os
from typing import Any

from fumehood.isolate import CallFrame, Limits
from tests.isolate.attacks._model import Case
from tests.isolate.drivers.measures import Memory, next_call, short
from tests.isolate.runner import Harness, Services


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
