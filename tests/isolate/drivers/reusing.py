"""Section E: two calls, of which the second looks."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from fumehood.isolate import CallFrame
from tests.isolate.attacks._model import Case
from tests.isolate.drivers.measures import SlowServices, short
from tests.isolate.runner import Harness, Services, record


async def two_calls(harness: Harness, module: str, case: Case) -> Any:
    await harness.call(module, case)
    second = await harness.call(module, case, second=True)
    return second.verdict.value if second.verdict.outcome == "ok" else record(second)


async def two_calls_two_credentials(harness: Harness, module: str, case: Case) -> Any:
    first = harness.frame(module, case)
    secret = "sk-" + os.urandom(16).hex()
    given = CallFrame(first.call_id, first.input, {**first.env, "TOOL_SECRET": secret}, first.late_names)
    kept = await harness.isolator.call(harness.spec(case), given, Services())
    if kept.verdict.value != "kept":
        return record(kept)
    # The halves of the secret go in apart, so that the looker's own memory does not hold the whole.
    second = await harness.call(module, case, second=True, halves=[secret[:12], secret[12:]])
    return second.verdict.value if second.verdict.outcome == "ok" else record(second)


class Waiting(SlowServices):
    """Learns the folder of the call, and keeps the call waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.told: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def event(self, kind: str, data: Any) -> None:
        self.told.set_result(str(data))


async def neighbours(harness: Harness, module: str, case: Case) -> Any:
    services = Waiting()
    first = asyncio.create_task(harness.call(module, case, services))
    there = await services.told
    second = await harness.call(module, case, second=True, there=there)
    services.release.set()
    value = second.verdict.value if second.verdict.outcome == "ok" else record(second)
    return {**value, "outcome": short(await first)}


async def two_calls_and_output(harness: Harness, module: str, case: Case) -> Any:
    first = await harness.call(module, case)
    second = await harness.call(module, case, second=True)
    own = second.verdict.value["own"] if second.verdict.outcome == "ok" else record(second)
    return {
        "own": own,
        "stdout": second.stdout.decode(),
        "first": first.stdout.startswith(b"left unflushed") or first.verdict.outcome == "ok",
    }


async def two_calls_outcomes(harness: Harness, module: str, case: Case) -> Any:
    first = await harness.call(module, case)
    second = await harness.call(module, case, second=True)
    return {"first": " ".join(short(first).split()[:2]), "second": short(second)}


async def calls_that_fill(harness: Harness, module: str, case: Case) -> Any:
    names = ("first", "second", "third", "fourth")
    return {name: short(await harness.call(module, case, turn=turn)) for turn, name in enumerate(names, 1)}


async def twenty_calls(harness: Harness, module: str, case: Case) -> Any:
    return {"outcomes": [short(await harness.call(module, case)) for _ in range(20)]}


async def two_draws(harness: Harness, module: str, case: Case) -> Any:
    spec = harness.spec(case, preload=("random", "ssl", "tempfile", "uuid"))
    drawn = []
    for _ in range(2):
        ended = await harness.isolator.call(spec, harness.frame(module, case), Services())
        if ended.verdict.outcome != "ok":
            return record(ended)
        drawn.append(ended.verdict.value)
    return {name: "same" if drawn[0][name] == drawn[1][name] else "differ" for name in drawn[0]}
