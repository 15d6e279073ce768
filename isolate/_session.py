"""One call, from the frame that starts it to the last process reaped.

Three things run beside each other: the child's messages are served in order, its two output streams are
captured, and the clock runs. Whatever ends first, the tree is killed, and the verdict is made from what the
host saw (`_outcome`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from fumehood.isolate import _watch
from fumehood.isolate._capture import Capture
from fumehood.isolate._child import GONE_S, Child
from fumehood.isolate._collect import Collection
from fumehood.isolate._line import Message, OutputTooLong, ProtocolError
from fumehood.isolate._outcome import Seen, Verdict, judge
from fumehood.isolate._puts import Puts
from fumehood.isolate._room import Room
from fumehood.isolate._spec import CallFrame, ToolSpec
from fumehood.isolate.child.frames import MAX_KIND

logger = logging.getLogger(__name__)

_EVER = 1e8  # seconds; the event loop takes no longer wait
_REQUESTS_AT_ONCE = 64
_HELD_AT_ONCE = 16 << 20  # bytes of unanswered requests; with more of them the child is not read on
_OBJECTS_PER_BYTE = 32  # the most that a byte of JSON becomes as Python objects
_FRAME_SLACK = 4096
_RESULT = len('{"t":"result","value":}')  # the frame around a value, which is not the tool's output
_LINE = 64  # what a log line counts beside its text: a tool cannot fill the log with empty ones
_LONG_S = 0.003  # a longer call has its output read as it comes; until then the pipes hold it
_LEFT_BEHIND = 0.5  # of the memory limit; a `reuse` process that holds more from earlier calls makes room
_CLOSED_S = 1.0  # a process that ends takes its socket with it; one that outlives it so long has closed it


@dataclass(frozen=True, slots=True)
class Doors:
    """The sockets of one call's network namespace: a DNS server's two, a proxy's, one a port, and those that
    see attempts which none of the others takes.

    None listens yet. Whoever takes them closes them.
    """

    dns_udp: socket.socket
    dns_tcp: socket.socket
    proxy: socket.socket
    listeners: Mapping[int, socket.socket]
    watches: tuple[socket.socket, ...] = ()


class Services(Protocol):
    """What the host does for a running tool.

    Each method may take its time; the child waits, its clock goes on.
    """

    async def doors(self, doors: Doors) -> None:
        """Serve the call's own network from now on; called once, before the call's frame is sent, when the
        tool has doors.
        """

    async def fetch(self, request: Mapping[str, Any], body: bytes) -> tuple[Mapping[str, Any], bytes]:
        """Answer one `ctx.fetch`: a message with `t` "reply", "refused" or "failed", and the body."""

    async def event(self, kind: str, data: Any) -> None:
        """Take one `ctx.emit`; returns when it is on disk."""

    async def put(self, data: bytes, media_type: str) -> Mapping[str, Any]:
        """Store content; a message with `t` "stored" or "failed"."""

    async def log(self, text: str) -> None:
        """Take one `ctx.log` line."""

    async def collect(self, name: str, data: bytes) -> str | None:
        """Keep one file that the call left; why it is not kept, or None."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A call that is over, with every figure taken by the host. Times in seconds, sizes in bytes.

    violations: refused system calls by name, how often each. uncollected: (name, why) of files that were
    asked for and not handed back.
    """

    verdict: Verdict
    stdout: bytes
    stderr: bytes
    stdout_cut: bool
    stderr_cut: bool
    events: tuple[tuple[str, Any], ...]
    wall_s: float
    cpu_s: float | None
    max_rss: int | None
    exit_code: int | None
    layers: Mapping[str, tuple[str, str]]
    violations: Mapping[str, int]
    uncollected: tuple[tuple[str, str], ...] = ()


class DidNotLoad(Exception):
    """The child's cage stands, and the tool did not come up in it: (reason, text).

    doors: of the call's network, where the tool may have tried something. Whoever drops this closes them.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason, self.text = reason, text
        self.doors: list[socket.socket] = []


def not_started(error: DidNotLoad, wall: float) -> Ended:
    """The record of a call whose tool did not come up."""
    verdict = Verdict("sandbox_error", error.reason, error.text)
    return Ended(verdict, b"", b"", False, False, (), wall, None, None, None, {}, {})


def doors_of(spec: ToolSpec, sockets: list[socket.socket]) -> Doors:
    """A child's sockets by what they are, in the order of `child/layers/net.py`."""
    udp, tcp, proxy, *more = sockets
    ports = spec.doors or ()
    return Doors(udp, tcp, proxy, dict(zip(ports, more, strict=False)), tuple(more[len(ports) :]))


class Session:
    """Serves one child for one call. kept: whether the child was left alive, to serve another."""

    def __init__(self, child: Child, spec: ToolSpec, call: CallFrame, services: Services) -> None:
        self._child, self._spec, self._call, self._services = child, spec, call, services
        self._seen = Seen()
        self._room = Room(child, spec)
        self._puts = Puts()
        self._events: list[tuple[str, Any]] = []
        self._capture = Capture(child.stdout, child.stderr, self._room_for)
        self._figures: tuple[float, int] | None = None
        self._watched = 0.0
        self._used = 0 if child.printed is None else self._capture.go_on(child.printed)
        child.printed = None
        self._clock = asyncio.timeout(min(spec.limits.timeout_s, _EVER))
        self._serving = False
        self._requests: set[asyncio.Task[None]] = set()
        self._held = 0
        self._answered_all = True
        self.kept = False

    async def run(self) -> Ended:
        """Run the call to its end, and collect what it left. Cancelling it kills the child."""
        with contextlib.closing(self._room):
            try:
                if not self._spec.collect:
                    return await self._run()
                return await self._run_and_collect()
            finally:
                self._capture.stop()  # before the child's descriptors are closed, whose numbers come again

    async def _run_and_collect(self) -> Ended:
        with contextlib.closing(Collection(self._child, self._spec)) as files:
            ended = await self._run()
            if ended.verdict.outcome != "ok":
                return ended
            return replace(ended, uncollected=await files.give(self._services.collect))

    async def _run(self) -> Ended:
        child, limits = self._child, self._spec.limits
        loop, started = asyncio.get_running_loop(), time.perf_counter()
        before = child.begin_one_of_many() if self._spec.reuse else 0.0
        child.line.accept_frames_up_to(limits.output + _FRAME_SLACK)
        reading = loop.call_later(0 if self._spec.kind == "command" else _LONG_S, self._capture.start)
        watch = _watch.Watch(child, limits, self._limit_hit, before)
        figures = None
        try:
            await self._served()
            wall = time.perf_counter() - started
            said = self._seen.said
            if self._seen.stopped is None and said is not None and said["t"] == "result":
                figures = child.figures()
                self.kept = figures is not None and self._is_worth_keeping(figures.own)
            else:
                self._look_before_the_end()
        finally:
            reading.cancel()
            if not self.kept:
                child.kill()
            watch.stop()
            self._watched = watch.cpu
            await self._drop_requests()
        if figures is not None:
            # SIGKILL is sent: nothing of the tool runs any more. The caller need not wait until the kernel
            # has taken it apart.
            self._capture.take_what_is_there()
            self._figures = (figures.cpu_s - before, figures.peak)
        else:
            self._capture.start()  # whoever dies may still have much to say
            await self._see_the_end()
            if self._seen.exit is not None:
                self._figures = (self._seen.exit.cpu_s - before, self._seen.exit.max_rss)
        if child.group is not None:  # with a result too: a part of the tree may have been killed before it
            self._seen.counters = child.group.counters()
        return self._ended(wall)

    def _is_worth_keeping(self, own: int) -> bool:
        """Whether the process may serve a later call: no answer is on its way to it, and what earlier calls
        left in its memory is not what stops the next one.
        """
        grown = own - self._child.fresh_bytes
        return self._spec.reuse and self._answered_all and grown <= self._spec.limits.memory * _LEFT_BEHIND

    async def _see_the_end(self) -> None:
        """Wait for the last process and the last byte of a tree that is killed or at its end.

        That takes milliseconds. Whatever holds it up (a process that sleeps in the kernel), the caller gets
        his answer.
        """
        try:
            async with asyncio.timeout(GONE_S):
                self._seen.exit = await self._child.ended()
                await self._capture.to_the_end()
        except TimeoutError:
            logger.warning("%r was not seen gone %g s after it was killed", self._child, GONE_S)
            self._seen.lingers = self._seen.exit is None

    async def _served(self) -> None:
        """Serve the child until it has answered, is at its end, or a limit stops it."""
        try:
            async with self._clock:
                self._serving = True
                await self._serve()
        except TimeoutError:
            if not self._clock.expired():
                raise
            if self._seen.protocol_fault is None:
                self._limit_hit("timeout")
        finally:
            self._serving = False

    def _finish(self) -> None:
        """Stop serving."""
        if self._serving and not self._clock.expired():
            self._serving = False
            self._clock.reschedule(0)

    def _limit_hit(self, reason: str) -> None:
        if self._seen.stopped is None and self._seen.said is None:
            self._seen.stopped = reason
        self._finish()

    def _look_before_the_end(self) -> None:
        said = self._seen.said
        if said is None or said["t"] == "error":
            if not self._child.gone:
                self._seen.tasks = _watch.count_tasks(self._child.pid, self._child.init)
            self._seen.tmp_full = self._room.is_used_up(said)
            self._seen.full_grant = self._room.full_grant(said)

    # -- messages --------------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        child, call = self._child, self._call
        if child.doors:
            await self._services.doors(self._take_doors())
        if child.line.spoke:
            self._seen.protocol_fault = "it spoke before it was called"
            return
        feeding = asyncio.create_task(self._feed_stdin()) if self._spec.kind == "command" else None
        await child.begin(self._spec, call)
        try:
            while self._seen.said is None and self._seen.stopped is None:
                await self._one_message()
        except OutputTooLong:
            self._limit_hit("output")
        except ProtocolError as error:
            self._seen.protocol_fault = str(error)
        except EOFError:
            await self._after_the_socket()
        finally:
            if feeding is not None:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)

    async def _after_the_socket(self) -> None:
        """The call's socket is closed: by the end of the process, by a command's exec, or by a tool
        on purpose.
        """
        if self._spec.kind == "command":
            await self._child.ended()
            return
        try:
            async with asyncio.timeout(_CLOSED_S):
                await self._child.ended()
        except TimeoutError:
            self._seen.protocol_fault = "it closed its call socket and went on"

    def _take_doors(self) -> Doors:
        sockets = self._child.doors
        if self._spec.reuse:  # the process may serve a later call, which needs them as well
            return doors_of(self._spec, [sock.dup() for sock in sockets])
        self._child.doors = []
        return doors_of(self._spec, sockets)

    async def _one_message(self) -> None:
        while len(self._requests) >= _REQUESTS_AT_ONCE or self._held > _HELD_AT_ONCE:
            await asyncio.wait(self._requests, return_when=asyncio.FIRST_COMPLETED)
        message, body = await self._child.line.receive()
        kind = message["t"]
        if kind in ("result", "error", "exec-failed"):
            if kind == "result" and "value" not in message:
                raise ProtocolError("a result without a value")
            if (kind == "exec-failed") != (self._spec.kind == "command"):
                raise ProtocolError(f"a message of the type {kind!r} from a {self._spec.kind} tool")
            # A result ends the call; requests that the tool did not wait for are dropped, not left running.
            # Half an answer may be in the socket then: no later call can be told from it.
            self._answered_all = not self._requests
            await self._drop_requests()
            if kind == "result":
                self._capture.take_what_is_there()  # printed before the result, counted before it
                if not self._count(max(0, self._child.line.message_bytes - _RESULT)):
                    return
            self._seen.said = message
        elif kind == "emit":
            await self._event(message)
        elif kind == "log":
            text = message.get("text")
            if not isinstance(text, str):
                raise ProtocolError("a log line that is no text")
            if self._count(len(text) + _LINE):
                await self._services.log(text)
        elif kind in ("fetch", "put"):
            if not isinstance(message.get("id"), int):
                raise ProtocolError(f"a {kind} request without a number")
            held = len(body) + _OBJECTS_PER_BYTE * self._child.line.message_bytes
            self._held += held
            task = asyncio.create_task(self._answer(message, body))
            self._requests.add(task)
            task.add_done_callback(functools.partial(self._answered, held))
        else:
            raise ProtocolError(f"a message of the unknown type {kind[:40]!r}")

    async def _event(self, message: Message) -> None:
        kind = message.get("kind")
        if not isinstance(kind, str) or not 0 < len(kind) <= MAX_KIND:
            raise ProtocolError("an event whose kind is no short text")
        if len(self._events) >= self._spec.limits.events:
            self._limit_hit("events")
            return
        import json

        if self._count(len(json.dumps(message.get("data")))):
            self._events.append((kind, message.get("data")))
            await self._services.event(kind, message.get("data"))

    async def _answer(self, message: Message, body: bytes) -> None:
        if message["t"] == "fetch":
            answer, data = await self._services.fetch(message, body)
        elif (refusal := self._puts.refusal(len(body))) is not None:
            answer, data = {"t": "failed", "reason": "store", "message": refusal}, b""
        else:
            answer, data = await self._services.put(body, str(message.get("media_type", ""))[:200]), b""
        await self._child.line.send({**answer, "id": message["id"]}, data)

    def _answered(self, held: int, task: asyncio.Task[None]) -> None:
        self._requests.discard(task)
        self._held -= held
        if not task.cancelled() and (error := task.exception()) is not None:
            self._seen.protocol_fault = f"a request could not be served: {error}"
            self._finish()

    async def _drop_requests(self) -> None:
        """Nothing of this call runs on in the host."""
        for task in tuple(self._requests):
            task.cancel()
        if self._requests:
            await asyncio.gather(*self._requests, return_exceptions=True)

    # -- streams ---------------------------------------------------------------------------------------------

    def _count(self, size: int) -> bool:
        """Add to the output used; False, and the end of the call, when that is over the limit."""
        self._used += size
        if self._used > self._spec.limits.output:
            self._limit_hit("output")
            return False
        return True

    def _room_for(self, size: int) -> int:
        """How many of `size` bytes of a stream may be kept."""
        room = max(0, self._spec.limits.output - self._used)
        return size if self._count(size) else room

    async def _feed_stdin(self) -> None:
        """The input as JSON on the command's standard input."""
        import json

        fd = self._child.stdin
        if fd is None:
            return
        data = memoryview(json.dumps(self._call.input).encode() + b"\n")
        loop = asyncio.get_running_loop()
        try:
            while data:
                try:
                    data = data[os.write(fd, data) :]
                except BlockingIOError:
                    room: asyncio.Future[None] = loop.create_future()
                    loop.add_writer(fd, _settle, room)
                    try:
                        await room
                    finally:
                        loop.remove_writer(fd)
        except BrokenPipeError:
            return  # the program does not read its input; that is its right
        with contextlib.suppress(OSError):
            os.close(fd)
        self._child.stdin = None

    # -- end -------------------------------------------------------------------------------------------------

    def _ended(self, wall: float) -> Ended:
        seen, limits = self._seen, self._spec.limits
        used = self._figures
        return Ended(
            verdict=judge(seen, kind=self._spec.kind, cpu_s=limits.cpu_s, processes=limits.processes),
            stdout=bytes(self._capture.kept["stdout"]),
            stderr=bytes(self._capture.kept["stderr"]),
            stdout_cut=self._capture.cut["stdout"],
            stderr_cut=self._capture.cut["stderr"],
            events=tuple(self._events),
            wall_s=wall,
            cpu_s=None if used is None else max(used[0], self._watched),
            max_rss=None if used is None else used[1],
            exit_code=seen.exit.code if seen.exit else None,
            layers=dict(self._child.layers),
            violations=dict(self._child.violations),
        )


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
