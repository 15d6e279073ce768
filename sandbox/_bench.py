"""What scripts cost here and in peers, side by side in one run: `rows()` for `fumehood bench sandbox`.

Each line is measured in rounds that take turns, so that a noisy machine is noisy for all. A peer that
isn't installed is absent. The figures are of this machine; compare ratios, not microseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Any

from fumehood.sandbox._launch import WorkerLauncher
from fumehood.sandbox._model import ToolSignature
from fumehood.sandbox._runner import ScriptRunner

ROUNDS = 3
Once = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Row:
    """One line: what was done, by whom, how long one took. ratio: to our own line of the same task; None
    for our own.
    """

    task: str
    who: str
    p50_ms: float
    p99_ms: float
    n: int
    ratio: float | None = None
    note: str = ""


async def rows(launcher: WorkerLauncher | None = None, *, quick: bool = False) -> list[Row]:
    """Measure everything. launcher: the caged one; without it workers are plain processes and the lines
    say so.
    """
    where = "caged worker" if launcher is not None else "uncaged worker"
    scale = 5 if quick else 1
    async with contextlib.AsyncExitStack() as stack:
        worker = await stack.enter_async_context(ScriptRunner(launcher=launcher, workers=1))
        inside = await stack.enter_async_context(ScriptRunner(in_process=True))
        tasks: list[tuple[str, int, list[tuple[str, Once]]]] = []
        js: list[tuple[str, Once]] = [
            ("fumehood in-process", lambda: inside.run("1 + 1")),
            ("fumehood engine alone, no host around it", await _engine_alone("js", "1 + 1")),
            (f"fumehood {where}", lambda: worker.run("1 + 1")),
            *_javascript_peers(),
        ]
        tasks.append(("fresh JavaScript, 1 + 1", 1000 // scale, js))
        if util.find_spec("componentize_py"):
            python: list[tuple[str, Once]] = [
                ("fumehood in-process", lambda: inside.run("print(1 + 1)", lang="python")),
                ("fumehood engine alone, no host around it", await _engine_alone("python", "print(1 + 1)")),
                (f"fumehood {where}", lambda: worker.run("print(1 + 1)", lang="python")),
                *await _python_peers(stack),
            ]
            tasks.append(("fresh Python, print(1 + 1)", 200 // scale, python))
        found = [row for task, n, who in tasks for row in await _measure(task, n, who)]
        found += await _bridge(inside, worker, where, scale)
        found.append(await _throughput(worker, where, scale))
    return found


async def _measure(task: str, n: int, who: list[tuple[str, Once]]) -> list[Row]:
    times: dict[str, list[float]] = {name: [] for name, _ in who}
    for name, once in who:
        await once()
        await once()
        del name
    for _ in range(ROUNDS):
        for name, once in who:
            slow = "process" in name and "in-process" not in name
            for _ in range(max(3, n // (ROUNDS * (40 if slow else 1)))):
                started = time.perf_counter()
                await once()
                times[name].append((time.perf_counter() - started) * 1e3)
    ours = statistics.median(times[who[0][0]])
    return [_row(task, name, times[name], ours if name != who[0][0] else None) for name, _ in who]


def _row(task: str, who: str, times: list[float], ours: float | None, note: str = "") -> Row:
    ordered = sorted(times)
    p50 = statistics.median(ordered)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return Row(
        task,
        who,
        round(p50, 4),
        round(p99, 4),
        len(ordered),
        None if ours is None else round(p50 / ours, 2),
        note,
    )


async def _bridge(inside: ScriptRunner, worker: ScriptRunner, where: str, scale: int) -> list[Row]:
    async def echo(_name: str, args: object) -> object:
        return args

    tools = {"echo": ToolSignature("echo")}
    calls = 100
    found = []
    for runner, who in ((inside, "fumehood in-process"), (worker, f"fumehood {where}")):
        for lang, code in (
            ("js", f"for (let i = 0; i < {calls}; i++) await echo('xxxxxxxxxxxxxxxxxxxx')"),
            ("python", f"for i in range({calls}): echo(x='xxxxxxxxxxxxxxxxxxxx')"),
        ):
            if lang == "python" and not util.find_spec("componentize_py"):
                continue
            times = []
            for _ in range(max(3, 30 // scale)):
                started = time.perf_counter()
                await runner.run(code, lang=lang, tools=tools, call_tool=echo)
                times.append((time.perf_counter() - started) * 1e3 / calls)
            note = "script to tool and back, per call"
            found.append(_row(f"tool call from {lang}", who, times, None, note))
    return found


async def _throughput(worker: ScriptRunner, where: str, scale: int) -> Row:
    n = 1000 // scale
    started = time.perf_counter()
    for _ in range(n // 10):
        await asyncio.gather(*(worker.run("1 + 1") for _ in range(10)))
    each = (time.perf_counter() - started) * 1e3 / n
    pool = worker._pool
    resident = sum(_resident_mib(pid) for pid in pool.pids) if pool is not None else 0.0
    note = f"{1000 / each:.0f} scripts a second through one worker of {resident:.0f} MiB resident"
    return Row(
        "fresh JavaScript, ten at a time", f"fumehood {where}", round(each, 4), round(each, 4), n, None, note
    )


def _resident_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


async def _engine_alone(lang: str, code: str) -> Once:
    """A fresh instance to its result on this thread: what peers that are plain libraries measure."""
    from fumehood.sandbox._inprocess import job_of
    from fumehood.sandbox._model import Limits, Script
    from fumehood.sandbox._wasm_backend import DEFAULT_MEMORY, load_here
    from fumehood.sandbox.child._worker import ThreadTransport

    engine: Any = await load_here(lang, False, None, None)
    job = job_of(Script(lang, code, Limits()), DEFAULT_MEMORY[lang])
    transport = ThreadTransport(None, lambda _stream, _data: None)

    async def once() -> object:
        return engine.run(job, transport)

    return once


def _process(*argv: str) -> Once:
    async def once() -> object:
        return await asyncio.to_thread(
            subprocess.run, argv, stdin=subprocess.DEVNULL, capture_output=True, check=True
        )

    return once


def _javascript_peers() -> list[tuple[str, Once]]:
    found: list[tuple[str, Once]] = []
    if util.find_spec("quickjs_rs"):
        quickjs_rs: Any = importlib.import_module("quickjs_rs")

        async def fresh() -> object:
            with quickjs_rs.Runtime() as runtime, runtime.new_context() as context:
                return context.eval("1 + 1")

        found.append(("quickjs-rs", fresh))
    for name, argv in (
        ("node process", ("node", "-p", "1 + 1")),
        ("deno process", ("deno", "eval", "1 + 1")),
    ):
        path = shutil.which(argv[0])
        if path is not None:
            found.append((name, _process(path, *argv[1:])))
    return found


async def _python_peers(stack: contextlib.AsyncExitStack) -> list[tuple[str, Once]]:
    found: list[tuple[str, Once]] = [
        ("python3 -I process", _process(sys.executable, "-I", "-c", "print(1 + 1)"))
    ]
    if util.find_spec("pydantic_monty"):
        monty: Any = importlib.import_module("pydantic_monty")
        pool = await stack.enter_async_context(monty.AsyncMonty())

        async def fresh() -> object:
            async with pool.checkout() as session:
                return await session.feed_run("print(1 + 1)", print_callback=monty.CollectString())

        found.append(("pydantic-monty (no WASM)", fresh))
    return found
