"""Worker processes: a lost one is a clear result, its neighbours go on, and nothing it says can hurt the
host.
"""

# ruff: noqa: E501 - scripts read better in one line
from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil
import pytest

from fumehood.policies.errors import SandboxUnavailable
from fumehood.sandbox import (
    Limits,
    Script,
    ScriptEvent,
    ScriptRunner,
    UncagedLauncher,
    WorkerEntry,
    WorkerProcess,
)
from fumehood.sandbox._pool import WorkerPool
from fumehood.sandbox._wasm_backend import WasmBackend
from fumehood.sandbox.child._frames import pack
from fumehood.sandbox.child._worker import receive_with_fds
from tests.sandbox.conftest import TOOLS, call_tool

pytestmark = pytest.mark.anyio


def pool_of(runner: ScriptRunner) -> WorkerPool:
    runner.backends()
    assert runner._pool is not None
    return runner._pool


async def busy(runner: ScriptRunner, scripts: int) -> None:
    async with asyncio.timeout(10):
        while not (workers := pool_of(runner)._workers) or workers[0].load_now < scripts:
            await asyncio.sleep(0)


@pytest.mark.promise("sandbox:lost-worker-is-a-result")
async def test_a_worker_that_is_killed_costs_only_what_can_not_be_repeated() -> None:
    async with ScriptRunner(workers=1) as runner:
        waiting = asyncio.Event()

        async def tools(name: str, args: object) -> object:
            if name == "echo":
                return args
            waiting.set()
            await asyncio.Event().wait()
            return None

        asked = asyncio.ensure_future(
            runner.run("await echo(1); await never({})", tools=TOOLS, call_tool=tools)
        )
        await waiting.wait()
        code = "let n = 0; for (let i = 0; i < 3e6; i++) n += i; n"
        pure = asyncio.ensure_future(runner.run(code))
        await busy(runner, 2)
        os.kill(pool_of(runner).pids[0], signal.SIGKILL)
        first, second = await asked, await pure
        assert (first.outcome, first.reason) == ("sandbox_error", "crashed")
        assert "signal 9" in first.detail
        assert [(c.name, c.outcome) for c in first.tool_calls] == [("echo", "ok"), ("never", "abandoned")]
        assert (second.outcome, second.value) == ("ok", 4499998500000)
        assert (await runner.run("1 + 1")).value == 2


@pytest.mark.promise("sandbox:lost-worker-is-a-result")
async def test_a_session_on_a_lost_worker_is_lost_and_says_so() -> None:
    async with ScriptRunner(workers=1) as runner:
        await runner.run("var a = 1", session="s")
        running = asyncio.ensure_future(runner.run("for (;;);", session="s"))
        await busy(runner, 1)
        os.kill(pool_of(runner).pids[0], signal.SIGKILL)
        result = await running
        assert (result.outcome, result.reason, result.session_lost) == ("sandbox_error", "crashed", True)
        assert (await runner.run("typeof a", session="s")).value == "undefined"


@pytest.mark.promise("sandbox:ended-script-uses-no-cpu")
@pytest.mark.parametrize("lang", ["js", "python"])
async def test_a_script_that_was_ended_uses_no_more_processor_time(runner: ScriptRunner, lang: str) -> None:
    loop = "for (;;);" if lang == "js" else "while True: pass"

    def ticks() -> int:
        fields = Path(f"/proc/{pool_of(runner).pids[0]}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    await runner.run(loop, lang=lang, limits=Limits(wall_s=0.2))
    task = asyncio.ensure_future(runner.run(loop, lang=lang, limits=Limits(wall_s=60)))
    await asyncio.sleep(0.1)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    before = ticks()
    await asyncio.sleep(0.5)
    assert ticks() - before <= 5  # of 50 hundredths; the ticker goes to sleep in the first of them


async def test_cancelling_leaves_the_worker_in_use(runner: ScriptRunner) -> None:
    await runner.run("1")
    pids = pool_of(runner).pids
    for code in ("for (;;);", "await never({})"):
        asked = asyncio.Event()

        async def tools(name: str, args: object, asked: asyncio.Event = asked) -> object:
            asked.set()
            await asyncio.Event().wait()
            return None

        task = asyncio.ensure_future(runner.run(code, tools=TOOLS, call_tool=tools, limits=Limits(wall_s=60)))
        if "never" in code:
            await asked.wait()
        else:
            await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert (await runner.run("1 + 1")).value == 2
    assert pool_of(runner).pids == pids


async def test_more_scripts_than_lanes_wait_their_turn() -> None:
    pool = WorkerPool(UncagedLauncher(), size=1, lanes=2)
    async with ScriptRunner(backends={"quickjs": WasmBackend("js", pool, owns_pool=True)}) as runner:
        results = await asyncio.gather(*(runner.run(f"{n} * 2") for n in range(30)))
        assert [r.value for r in results] == [n * 2 for n in range(30)]
        assert len(pool.pids) == 1
        assert repr(pool) == "<WorkerPool 1 of 1 workers, 0 waiting, 0 sessions>"


async def test_closing_ends_what_runs() -> None:
    runner = ScriptRunner(workers=1)
    await runner.run("1")
    running = asyncio.ensure_future(runner.run("for (;;);"))
    await asyncio.sleep(0.05)
    await runner.close()
    result = await running
    assert (result.outcome, result.reason) == ("sandbox_error", "crashed")


@pytest.mark.parametrize("turns", [0, 1, 3, 6, 12, 25, 400])
async def test_closing_refuses_what_begins_and_leaves_nothing(turns: int) -> None:
    """At whatever point a script is on its way, closing is not its cancellation, and no worker stays."""
    before = psutil.Process().children()
    runner = ScriptRunner(workers=1)
    beginning = asyncio.ensure_future(runner.run("1"))
    for _ in range(turns):
        await asyncio.sleep(0)
    await runner.close()
    with pytest.raises(SandboxUnavailable, match="the sandbox is closed"):
        await beginning
    assert psutil.Process().children() == before


@pytest.mark.promise("sandbox:lost-worker-is-a-result")
@pytest.mark.parametrize("turns", range(8))
async def test_a_script_that_is_cancelled_as_it_begins_costs_its_neighbour_nothing(turns: int) -> None:
    pool = WorkerPool(UncagedLauncher(), size=1, lanes=2)
    async with ScriptRunner(backends={"quickjs": WasmBackend("js", pool, owns_pool=True)}) as runner:
        await runner.run("1")
        neighbour = asyncio.ensure_future(runner.run("for (;;);", limits=Limits(wall_s=0.5)))
        (worker,) = pool._workers
        while not worker.lanes[0].busy:
            await asyncio.sleep(0)
        beginning = asyncio.ensure_future(runner.run("2"))  # in a second lane, opened for it
        for _ in range(turns):
            await asyncio.sleep(0)
        beginning.cancel()
        await asyncio.gather(beginning, return_exceptions=True)
        result = await neighbour
        assert (result.outcome, result.reason) == ("limit", "timeout")
        assert (await runner.run("3")).value == 3
        assert pool._workers == [worker]
        assert len(worker.idle) == len(worker.lanes)


@pytest.mark.promise("sandbox:host-loads-no-engine")
def test_the_host_does_not_load_wasmtime() -> None:
    code = (
        "import asyncio, sys\nfrom fumehood.sandbox import ScriptRunner\n"
        "async def main():\n  async with ScriptRunner(workers=1) as r:\n    assert (await r.run('1 + 1')).value == 2\n"
        "asyncio.run(main())\nprint([m for m in sys.modules if 'wasmtime' in m])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.promise("sandbox:errors-stay-with-their-script")
@pytest.mark.parametrize("lang", ["js", "python"])
async def test_scripts_that_fail_in_many_ways_at_once_each_hear_their_own(
    either: ScriptRunner, lang: str
) -> None:
    """Host errors of one thread once surfaced in another: the engine's binding keeps them in one slot."""

    async def tools(name: str, args: object) -> object:
        if name == "broken":
            raise RuntimeError("secret")
        return args

    scripts = {
        "js": (
            "try { await broken({}) } catch (e) { e.message }",
            "eval('('.repeat(1e5))",
            "null.x",
            "for (;;) console.log('x'.repeat(9999))",
        ),
        "python": (
            "try:\n  broken()\nexcept ToolError as e:\n  s = str(e)\ns",
            "a = []\nfor _ in range(100000): a = [a]\nrepr(a)",
            "1 / 0",
            "while True: print('x' * 9999)",
        ),
    }[lang]
    limits = Limits(output=100_000, wall_s=20)
    for _ in range(10 if lang == "js" else 3):
        results = await asyncio.gather(
            *(either.run(code, lang=lang, tools=TOOLS, call_tool=tools, limits=limits) for code in scripts)
        )
        assert [(r.outcome, r.reason) for r in results] == [
            ("ok", None), ("limit", "stack"), ("tool_error", None), ("limit", "output"),
        ]  # fmt: skip
        assert results[0].value == "the tool failed"


# --- a worker that something else speaks from
# ---------------------------------------------------------------------


class _Fake:
    """A "process" that is a thread of the test, saying what it is told."""

    def __init__(self, sock: socket.socket, say: Callable[[socket.socket], None]) -> None:
        self.gone = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._sock = sock
        self._lanes: list[socket.socket] = []
        self._say = say
        threading.Thread(target=self._work, daemon=True).start()

    pid = 4_000_000

    @property
    def enforcement(self) -> Mapping[str, object]:
        return {}

    def _work(self) -> None:
        with self._sock, contextlib.suppress(OSError, EOFError):
            self._sock.sendall(pack({"op": "ready"}))
            while True:
                header, _, fds = receive_with_fds(self._sock)
                if header["op"] == "load":
                    os.close(fds[0])
                    self._sock.sendall(pack({"op": "loaded"}))
                elif header["op"] == "lane":
                    lane = socket.socket(fileno=fds[0])
                    self._lanes.append(lane)
                    threading.Thread(target=self._speak, args=(lane,), daemon=True).start()

    def _speak(self, lane: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if lane.recv(1 << 20):
                self._say(lane)

    async def wait(self) -> int:
        await self.gone.wait()
        return -9

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        for lane in self._lanes:
            lane.close()
        self.gone.set()


class _FakeLauncher:
    def __init__(self, say: Callable[[socket.socket], None]) -> None:
        self._say = say

    async def launch(self, entry: WorkerEntry, sock: socket.socket) -> WorkerProcess:
        return _Fake(sock.dup(), self._say)


def _end(**changed: object) -> bytes:
    header: dict[str, object] = {
        "op": "end", "outcome": "ok", "reason": None, "detail": "", "usage": {}, "parts": [1, 0],
        "has": [True, False], "lost": False, "failure": None,
    }  # fmt: skip
    return pack(header | changed, b"1")


LIES = {
    "a length past every cap": struct.pack("<II", 10, 0xFFFFFFFF),
    "a header past the cap": struct.pack("<II", 0xFFFFFFFF, 0),
    "a header that is no JSON": struct.pack("<II", 3, 0) + b"abc",
    "a header that is no object": struct.pack("<II", 2, 0) + b"[]",
    "a header nested without end": struct.pack("<II", 200000, 0) + b"[" * 200000,
    "an unknown op": pack({"op": "exec"}),
    "an end without its fields": pack({"op": "end"}),
    "an outcome that does not exist": _end(outcome="root"),
    "parts that do not add up": _end(parts=[100, 0]),
    "parts below zero": _end(parts=[-1, 2]),
    "parts that are no list": _end(parts=7),
    "usage that is no number": _end(usage={"wall_ms": "x"}),
    "usage that is not a number at all": _end(usage={"memory_bytes": float("nan")}),
    "usage without end": _end(usage={"cpu_ms": float("inf")}),
    "usage below zero": _end(usage={"memory_bytes": -1}),
    "a failure of the wrong shape": _end(failure=[1, 2]),
    "a question with a number for a name": pack({"op": "ask", "id": "x", "kind": 4, "name": 1}),
    "a question tried past a cap that does not exist": pack({"op": "tried", "name": "x", "reason": "root"}),
    "a body past what the script may send": pack({"op": "out", "stream": 0}, b"x" * (5 << 20)),
}


@pytest.mark.promise("sandbox:worker-is-not-believed")
@pytest.mark.parametrize("lie", LIES)
async def test_a_worker_that_lies_about_frames_is_killed_and_the_script_ends(lie: str) -> None:
    async with ScriptRunner(
        launcher=_FakeLauncher(lambda lane: lane.sendall(LIES[lie])), workers=1
    ) as runner:
        result = await runner.run("1", limits=Limits(bridge_bytes=1 << 20))
        assert (result.outcome, result.reason) == ("sandbox_error", "protocol"), result


@pytest.mark.promise("sandbox:worker-is-not-believed")
async def test_a_worker_that_asks_for_what_is_not_granted_gets_a_no_from_the_host() -> None:
    def say(lane: socket.socket) -> None:
        lane.sendall(pack({"op": "ask", "id": 1, "kind": 4, "name": "rm"}, b"{}"))
        lane.recv(1 << 16)
        lane.sendall(pack({"op": "ask", "id": 2, "kind": 5, "name": "fetch"}, b'{"url": "https://a.test"}'))
        lane.recv(1 << 16)
        lane.sendall(_end())

    async def tools(name: str, args: object) -> object:
        raise AssertionError("called")

    async with ScriptRunner(launcher=_FakeLauncher(say), workers=1) as runner:
        result = await runner.run("1", tools=TOOLS, call_tool=tools)
    assert [(c.name, c.outcome, c.reason) for c in result.tool_calls] == [
        ("rm", "error", "unknown-tool"),
        ("fetch", "error", "not-listed"),
    ]


@pytest.mark.promise("sandbox:worker-is-not-believed")
async def test_a_worker_that_ignores_caps_is_stopped_by_the_host() -> None:
    def flood(lane: socket.socket) -> None:
        for n in range(100):
            lane.sendall(pack({"op": "ask", "id": n, "kind": 4, "name": "echo"}, b"{}"))

    async def tools(name: str, args: object) -> object:
        return args

    async with ScriptRunner(launcher=_FakeLauncher(flood), workers=1) as runner:
        result = await runner.run("1", tools=TOOLS, call_tool=tools, limits=Limits(tool_calls=5))
        assert (result.outcome, result.reason) == ("limit", "tool-calls")
        assert [call.reason for call in result.tool_calls] == [None] * 5 + ["tool-calls"]


@pytest.mark.promise("sandbox:worker-is-not-believed")
async def test_a_worker_that_never_answers_is_killed_after_the_deadline() -> None:
    async with ScriptRunner(launcher=_FakeLauncher(lambda lane: None), workers=1) as runner:
        result = await runner.run("1", limits=Limits(wall_s=0.1))
        assert (result.outcome, result.reason) == ("limit", "timeout")


@pytest.mark.promise("sandbox:lost-worker-is-a-result")
async def test_a_fault_of_the_worker_itself_ends_its_script_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from fumehood.sandbox import _worker

    honest = _worker.run_frame

    def foreign(script: Script, memory: int, serial: int) -> bytes:
        return honest(script, "much" if script.code == "faulty" else memory, serial)  # type: ignore[arg-type]

    monkeypatch.setattr(_worker, "run_frame", foreign)
    async with ScriptRunner(workers=1) as runner:
        await runner.run("1")
        before = pool_of(runner).pids
        result = await runner.run("faulty")
        assert (result.outcome, result.reason, pool_of(runner).pids) == ("sandbox_error", "crashed", before)
        assert (await runner.run("1 + 1")).value == 2


async def test_an_event_sink_that_fails_does_not_end_the_script(runner: ScriptRunner) -> None:
    def sink(event: ScriptEvent) -> None:
        raise ValueError(event.kind)

    result = await runner.run(
        "console.log('a'); await echo(1)", tools=TOOLS, call_tool=call_tool, on_event=sink
    )
    assert (result.outcome, result.value, result.stdout) == ("ok", 1, "a\n"), result


async def test_a_worker_that_cannot_be_started_is_an_error_with_a_hint() -> None:
    class Broken:
        async def launch(self, entry: WorkerEntry, sock: socket.socket) -> WorkerProcess:
            raise OSError(1, "no more processes")

    async with ScriptRunner(launcher=Broken(), workers=1) as runner:
        with pytest.raises(SandboxUnavailable, match="could not be started: .*no more processes"):
            await runner.run("1")
