"""The host's view of one worker process and of the lanes in it.

Guarantees: every wait is bounded; frames are capped by what the script may send; a worker that breaks the
protocol, dies or outlives a deadline is killed, and every script in it ends with `WorkerLost` at once.
What a worker says about itself is used for nothing but the result of its own scripts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Mapping
from typing import Any

from fumehood.policies.descriptors import send_with_descriptors
from fumehood.policies.errors import SandboxUnavailable
from fumehood.sandbox._launch import WorkerEntry, WorkerLauncher, WorkerProcess
from fumehood.sandbox._model import Ending, Script, ScriptError
from fumehood.sandbox._protocol import Bridge, LimitHit
from fumehood.sandbox.child._frames import HEAD, FrameError, pack, parse_head, parse_header

logger = logging.getLogger(__name__)

START_S = 30.0  # a cold import of wasmtime on a busy machine takes a second; this is for a machine in trouble
LOAD_S = 60.0  # mapping a compiled engine takes milliseconds, copying a large one a second
GRACE_S = 1.0  # past its own deadline, before the worker as a whole is taken for stuck
CANCEL_S = 1.0  # a cancelled script is looked at every few milliseconds
SLACK = 256 << 10  # headers, an error text and its trace
OUTCOMES = frozenset({"ok", "tool_error", "limit", "sandbox_error"})
USAGE = ("wall_ms", "cpu_ms", "memory_bytes", "fuel")


class WorkerLost(Exception):
    """The worker died or was killed under a script. signal: the number that ended it, or None; why: for
    the operator.
    """

    def __init__(self, why: str, signal: int | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.signal = signal


class _Run:
    """One script on a lane."""

    def __init__(
        self, serial: int, script: Script, bridge: Bridge, max_body: int, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.serial = serial
        self.script = script
        self.bridge = bridge
        self.max_body = max_body
        self.ended: asyncio.Future[Ending] = loop.create_future()
        self.asking: set[asyncio.Task[None]] = set()


class Lane(asyncio.Protocol):
    """One thread of a worker, and the socket to it. Runs one script at a time."""

    def __init__(self, worker: Worker, number: int) -> None:
        self.worker = worker
        self.number = number
        self.reserved = True  # taken by the pool, also before and after its script runs
        self.was_busy = False  # a script ran on it when the worker was lost
        self._transport: asyncio.WriteTransport | None = None
        self._buffer = bytearray()
        self._need = HEAD.size
        self._run: _Run | None = None
        self._serial = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio has the socket."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """The worker closed it, or died; the worker's own watcher says which."""
        self.worker.lane_gone()

    def data_received(self, data: bytes) -> None:
        """Take whole frames out of what has come."""
        buffer = self._buffer
        buffer += data
        try:
            while len(buffer) >= self._need:
                run = self._run
                header_size, body_size = parse_head(
                    bytes(buffer[: HEAD.size]), max_body=0 if run is None else run.max_body
                )
                total = HEAD.size + header_size + body_size
                if len(buffer) < total:
                    self._need = total
                    return
                header = parse_header(bytes(buffer[HEAD.size : HEAD.size + header_size]))
                body = bytes(buffer[HEAD.size + header_size : total])
                del buffer[:total]
                self._need = HEAD.size
                if run is None:
                    raise FrameError("a frame without a script")
                self._frame(run, header, body)
        except (FrameError, KeyError, TypeError, ValueError, AttributeError) as error:
            # Anything but our worker's own frames means that something else speaks from in there.
            self.worker.condemn(f"protocol: {type(error).__name__}: {error}"[:300], protocol=True)

    def _frame(self, run: _Run, header: Mapping[str, Any], body: bytes) -> None:
        op = header["op"]
        if op == "ask":
            task = asyncio.ensure_future(
                self._ask(run, int(header["id"]), int(header["kind"]), str(header["name"]), body)
            )
            run.asking.add(task)
            task.add_done_callback(run.asking.discard)
        elif op == "out":
            with contextlib.suppress(LimitHit):  # the runner sees the bridge's stop and ends the script
                run.bridge.output(1 if header["stream"] else 0, body)
        elif op == "tried":
            run.bridge.tried(str(header["name"]), str(header["reason"]))
        elif op == "end":
            ending = ending_from(header, body)
            self._run = None
            if not run.ended.done():
                run.ended.set_result(ending)
        else:
            raise FrameError("unknown op")

    async def _ask(self, run: _Run, id_: int, kind: int, name: str, args: bytes) -> None:
        try:
            ok, text = await run.bridge.call(name, args.decode("utf-8", "replace"), fetch=kind == 5)
        except LimitHit:
            return
        if self._run is run and self._transport is not None:
            self._transport.write(pack({"op": "answer", "id": id_, "ok": ok}, text.encode()))

    async def run(self, script: Script, bridge: Bridge, memory: int) -> Ending:
        """Run one script. Raises: WorkerLost. When cancelled, the script is stopped first."""
        assert self._transport is not None and self._run is None
        loop = asyncio.get_running_loop()
        self._serial += 1
        limits = script.limits
        largest = max(limits.output, limits.bridge_bytes) + SLACK + (2 * memory if script.snapshot else 0)
        run = self._run = _Run(self._serial, script, bridge, largest, loop)
        self._transport.write(run_frame(script, memory, self._serial))
        watchdog = loop.call_later(
            limits.wall_s + GRACE_S, self.worker.condemn, "a script outlived its deadline", False, self
        )
        try:
            return await run.ended
        except asyncio.CancelledError:
            await self._stop(run)
            raise
        finally:
            watchdog.cancel()
            for task in run.asking:
                task.cancel()

    async def _stop(self, run: _Run) -> None:
        if self._run is not run or self._transport is None:
            return
        self._transport.write(pack({"op": "cancel"}))
        self.worker.send({"op": "cancel", "lane": self.number, "run": run.serial})
        again: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        run.ended = again  # the old future was cancelled with its waiter
        again.add_done_callback(lambda done: None if done.cancelled() else done.exception() and None)
        stopped = False
        try:
            done, _ = await asyncio.wait([again], timeout=CANCEL_S)
            stopped = bool(done)
        finally:
            if not stopped:
                self.worker.condemn("a cancelled script did not stop", False, self)

    def fail(self, error: WorkerLost) -> None:
        """The worker is gone."""
        run, self._run = self._run, None
        self.was_busy = run is not None
        if run is not None and not run.ended.done():
            run.ended.set_exception(error)
        if self._transport is not None:
            self._transport.abort()

    @property
    def busy(self) -> bool:
        """A script runs on it."""
        return self._run is not None


class Worker:
    """One worker process."""

    def __init__(self, process: WorkerProcess, control: socket.socket) -> None:
        self.process = process
        self.lanes: list[Lane] = []
        self.idle: list[Lane] = []
        self.lost: WorkerLost | None = None
        self.culprit: Lane | None = None
        self.protocol_broken = False
        self.served = 0
        self.gone = asyncio.Event()
        self._control = control
        self._loaded: dict[tuple[str, bool], asyncio.Task[None]] = {}
        self._lock = asyncio.Lock()
        self._watch = asyncio.ensure_future(self._watch_exit())

    def __repr__(self) -> str:
        state = "lost" if self.lost else "ready"
        counts = f"lanes={len(self.lanes)} idle={len(self.idle)} served={self.served}"
        return f"<Worker pid={self.process.pid} {state} {counts}>"

    @classmethod
    async def start(cls, launcher: WorkerLauncher, entry: WorkerEntry | None = None) -> Worker:
        """Start a process and hear that it is ready. Raises: SandboxUnavailable."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        ours.setblocking(False)
        try:
            process = await launcher.launch(entry or WorkerEntry(), theirs)
        except BaseException as error:
            ours.close()
            if isinstance(error, OSError):
                raise SandboxUnavailable(f"the script worker could not be started: {error}") from error
            raise
        finally:
            theirs.close()
        worker = cls(process, ours)  # no await between the launch and this: now somebody owns the process
        try:
            async with asyncio.timeout(START_S):
                header = await worker._read()
            if header.get("op") != "ready":
                raise FrameError("its first word was not that it is ready")
        except BaseException as error:
            await asyncio.shield(worker.close())
            if isinstance(error, TimeoutError | EOFError | OSError | FrameError):
                raise SandboxUnavailable(
                    f"the script worker did not start: {type(error).__name__} {error}",
                    hint="run `fumehood doctor`; what an uncaged worker says is on stderr",
                ) from error
            raise
        return worker

    @property
    def load_now(self) -> int:
        """Scripts in it, or about to be."""
        return sum(1 for lane in self.lanes if lane.reserved)

    def free(self, lanes: int) -> bool:
        """Whether it can take one more script."""
        return self.lost is None and (bool(self.idle) or len(self.lanes) < lanes)

    async def load(self, engine: str, fuel: bool, fd: int, meta: Mapping[str, Any]) -> None:
        """Give it a compiled engine, once. Raises: SandboxUnavailable, WorkerLost."""
        key = (engine, fuel)
        task = self._loaded.get(key)
        if task is None:
            task = self._loaded[key] = asyncio.ensure_future(self._load(engine, fuel, fd, meta))
            # Whoever waits gets the error; with nobody left to wait, asyncio need not report it.
            task.add_done_callback(lambda done: None if done.cancelled() else done.exception() and None)
        if not task.done() or task.cancelled() or task.exception() is not None:
            await asyncio.shield(task)

    async def _load(self, engine: str, fuel: bool, fd: int, meta: Mapping[str, Any]) -> None:
        async with self._lock:
            try:
                self._send_fd({"op": "load", "engine": engine, "fuel": fuel, "meta": dict(meta)}, fd)
                async with asyncio.timeout(LOAD_S):
                    header = await self._read()
            except (TimeoutError, EOFError, OSError, FrameError) as error:
                self.condemn(f"loading an engine: {type(error).__name__} {error}")
                raise WorkerLost("the worker was lost while it loaded an engine") from error
        if header.get("op") != "loaded":
            self.condemn("loading an engine failed")
            raise SandboxUnavailable(
                f"the script worker could not load the engine: {header.get('message', '')}"[:500]
            )

    async def open_lane(self) -> Lane:
        """One more thread. Raises: WorkerLost."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        lane = Lane(self, len(self.lanes))
        try:
            self._send_fd({"op": "lane", "lane": lane.number}, theirs.fileno())
        except OSError as error:
            ours.close()
            raise self.lost or WorkerLost(f"the worker is gone: {error}") from error
        finally:
            theirs.close()
        self.lanes.append(lane)
        ours.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: lane, sock=ours)
        if self.lost is not None:
            lane.fail(self.lost)
            raise self.lost
        return lane

    def send(self, header: dict[str, Any]) -> None:
        """A message without an answer; a lost worker doesn't need it."""
        with contextlib.suppress(OSError):
            self._control.send(pack(header))

    def condemn(self, why: str, protocol: bool = False, culprit: Lane | None = None) -> None:
        """Kill it; its scripts hear of it when it is dead."""
        if self.lost is None:
            logger.warning("script worker %d: %s; it is killed", self.process.pid, why)
            self.lost = WorkerLost(why)
            self.protocol_broken = protocol
            self.culprit = culprit
        self.process.kill()

    def lane_gone(self) -> None:
        """A lane's socket closed by itself: the process is dying, or something in there closed it. Either
        way it is over.
        """
        if self.lost is None and not self._watch.done():
            asyncio.get_running_loop().call_later(0.2, self._still_there)

    def _still_there(self) -> None:
        if self.lost is None:
            self.condemn("it closed a lane", protocol=True)

    async def _watch_exit(self) -> None:
        status: int | None = None
        try:
            status = await self.process.wait()
        finally:  # whatever becomes of the wait: nobody is to wait for this worker any more
            signal = -status if status is not None and status < 0 else None
            if self.lost is None:
                self.lost = WorkerLost(f"the worker ended with status {status}", signal)
            for lane in self.lanes:
                lane.fail(self.lost)
            self.gone.set()

    async def close(self) -> None:
        """Kill it and wait until it is gone."""
        if self.lost is None:
            self.lost = WorkerLost("the sandbox was closed")
        self.process.kill()
        await self.gone.wait()
        self._control.close()

    def _send_fd(self, header: dict[str, Any], fd: int) -> None:
        # A few hundred bytes into an empty socket: this never blocks in part.
        raw = pack(header)
        if send_with_descriptors(self._control, raw, [fd]) != len(raw):
            raise OSError("the control socket is full")

    async def _read(self) -> dict[str, Any]:
        head = await self._exactly(HEAD.size)
        header, body = parse_head(head, max_body=0)
        return parse_header(await self._exactly(header + body))

    async def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = await asyncio.get_running_loop().sock_recv(self._control, size - len(data))
            if not piece:
                raise EOFError("the worker closed the control socket")
            data += piece
        return data


def run_frame(script: Script, memory: int, serial: int) -> bytes:
    """The frame that starts a script."""
    limits = script.limits
    code = script.code.encode("utf-8", "surrogatepass")
    given = b"" if script.input_json is None else script.input_json.encode("utf-8", "surrogatepass")
    restore = script.restore or b""
    job = {
        "lang": script.lang,
        "tools": script.tools,
        "fetch": script.fetch,
        "clock": script.clock,
        "seed": script.seed.hex(),
        "session": script.session,
        "snapshot": script.snapshot,
        "limits": {
            "wall_s": limits.wall_s,
            "fuel": limits.fuel,
            "memory": memory,
            "stack": limits.stack,
            "output": limits.output,
            "tool_calls": limits.tool_calls,
            "bridge_bytes": limits.bridge_bytes,
            "pending": limits.pending,
        },
    }
    header = {
        "op": "run",
        "run": serial,
        "job": job,
        "parts": [len(code), len(given), len(restore)],
        "has_input": script.input_json is not None,
        "has_restore": script.restore is not None,
    }
    return pack(header, code + given + restore)


def ending_from(header: Mapping[str, Any], body: bytes) -> Ending:
    """An ending as a worker claims it, every field checked. Raises: FrameError, KeyError, TypeError,
    ValueError.
    """
    if header["outcome"] not in OUTCOMES or not isinstance(header["reason"], str | None):
        raise FrameError("no such outcome")
    sizes, has = [int(n) for n in header["parts"]], [bool(x) for x in header["has"]]
    if len(sizes) != 2 or len(has) != 2 or min(sizes) < 0 or sum(sizes) != len(body):
        raise FrameError("the parts of a result don't fit its body")
    failure = header["failure"]
    error = None
    if failure is not None:
        kind, message, line, column, trace = failure
        error = ScriptError(str(kind), str(message), _place(line), _place(column), str(trace))
    usage = {key: float(header["usage"][key]) for key in USAGE if key in header["usage"]}
    if not all(0 <= figure < 1 << 63 for figure in usage.values()):  # refuses NaN too
        raise FrameError("a figure of usage is no figure")
    return Ending(
        header["outcome"],
        header["reason"],
        body[: sizes[0]].decode("utf-8", "replace") if has[0] else None,
        error,
        str(header["detail"])[:2000],
        usage,
        body[sizes[0] :] if has[1] else None,
        bool(header["lost"]),
    )


def _place(value: object) -> int | None:
    return value if isinstance(value, int) and 0 < value < 1 << 31 else None


def sealed_memfd(name: str, data: bytes) -> int:
    """A descriptor of `data` that nobody can change any more; the caller closes it."""
    import fcntl

    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd
