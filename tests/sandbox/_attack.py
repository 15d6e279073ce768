"""One attack: run it in a process of its own, watch memory from outside the sandbox, then run an innocent
script.

As a program it reads a request as JSON on stdin and runs the engine in its own process; `test_attacks.py`
starts it for that.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from fumehood.sandbox import FetchAnswer, FetchCall, Limits, ScriptRunner, ToolRefused, ToolSignature


def memory_kib(pid: int | str, field: str) -> int:
    """A memory figure of a process, as the kernel counts it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    return 0


async def call_tool(name: str, args: object) -> object:
    """The tools an attack may play with."""
    if name == "echo":
        return args
    if name == "big":
        return "x" * int(args["size"]) if isinstance(args, dict) else None
    if name == "fails":
        raise RuntimeError("/etc/shadow of host 10.1.2.3 says: secret")
    if name == "refuses":
        raise ToolRefused("not for you", reason="approval-declined")
    if name == "never":
        await asyncio.Event().wait()
    return None


async def fetch(call: FetchCall) -> FetchAnswer:
    """A broker that gives back what it was asked."""
    return FetchAnswer(200, (("content-type", "text/plain"),), call.url.encode(), call.url, "fetch:test")


async def attack(request: dict[str, Any]) -> dict[str, Any]:
    """Run it in a fresh runner with one worker, or in this process."""
    lang, limits = request["lang"], Limits(**request["limits"])
    tools = {name: ToolSignature(name) for name in ("echo", "big", "fails", "refuses", "never")}
    async with ScriptRunner(in_process=request["in_process"], workers=1) as runner:
        await runner.run("1", lang=lang)
        pool = runner._pool  # the watch needs the worker's process id, which no user of the API does
        engine: int | str = "self" if request["in_process"] or pool is None else pool.pids[0]
        before = {}
        for pid in (engine, "self"):
            # the high water mark starts again at what is resident now
            Path(f"/proc/{pid}/clear_refs").write_text("5")
            before[pid] = memory_kib(pid, "VmRSS")
        result = await runner.run(
            request["code"],
            lang=lang,
            limits=limits,
            tools=tools,
            call_tool=call_tool,
            fetch=fetch if request["fetch"] else None,
        )
        grew = {pid: (memory_kib(pid, "VmHWM") - before[pid]) / 1024 for pid in (engine, "self")}
        after = await runner.run("1 + 1", lang=lang)
        same_worker = request["in_process"] or (pool is not None and pool.pids == (engine,))
    return {
        "outcome": result.outcome,
        "reason": result.reason,
        "value": result.value,
        "error": None if result.error is None else [result.error.type, result.error.message],
        "calls": len(result.tool_calls),
        "stdout": result.stdout[:200],
        "stderr": result.stderr[:200],
        "grew_mib": grew[engine],
        "host_grew_mib": grew["self"],
        "next": [after.outcome, after.value],
        "same_worker": same_worker,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(attack(json.load(sys.stdin)))))
