"""One child from fork to reaped: the host's side of its sockets, its posture, its end.

A child passes through: forked -> caged (it says so, and the host has looked) -> loaded (the tool is imported)
-> used once -> ended. The methods below are those steps, in that order; each can be called once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import socket
from pathlib import Path

from fumehood.isolate import _bpf, _posture, tiers
from fumehood.isolate._capture import Capture
from fumehood.isolate._cgroups import Group, Groups
from fumehood.isolate._figures import Figures, Reading
from fumehood.isolate._line import Line, Message, ProtocolError
from fumehood.isolate._notify import Listener
from fumehood.isolate._scratch import Scratch
from fumehood.isolate._spec import CallFrame, Limits, ToolSpec
from fumehood.isolate._zygote import Exit, ZygoteGone, ZygoteHandle, readable
from fumehood.isolate.tiers import Tier
from fumehood.policies.errors import SandboxUnavailable

Streams = tuple[int | None, int | None, int | None]
"""Descriptors for standard input, output and error; None for a pipe of ours (for input: a pipe or
/dev/null).
"""

CAGE_S = 10.0  # putting on the layers takes a millisecond; a child that needs this long hangs
GONE_S = 5.0  # after SIGKILL to the init of its namespace a tree is gone in milliseconds
_LOUD_S = 0.1


class Child:
    """One single-use process."""

    def __init__(self, zygote: ZygoteHandle, scratch: Scratch | None = None) -> None:
        self._zygote = zygote
        self._scratch = scratch
        self._folder: Path | None = None
        self.layers: dict[str, tuple[str, str]] = {}
        self.doors: list[socket.socket] = []
        self.violations: dict[str, int] = {}
        self._listener: Listener | None = None
        self.group: Group | None = None
        self._groups: Groups | None = None
        self._no_group = ""
        self._in_group = False
        self.pid = -1
        self.stdin: int | None = None
        self.stdout: int | None = None
        self.stderr: int | None = None
        self.start_error: Message | None = None
        self.printed: Capture | None = None
        self.used = False
        self.fresh_bytes = 0
        self._pidfds: list[int] = []
        self._exit: asyncio.Future[Exit] | None = None
        self._tree_over: asyncio.Task[None] | None = None
        self._figures: Figures | None = None
        self._line: Line | None = None

    def __repr__(self) -> str:
        return f"<Child pid {self.pid} {'used' if self.used else 'fresh'}>"

    @property
    def line(self) -> Line:
        """Its call socket."""
        assert self._line is not None
        return self._line

    @property
    def tier(self) -> Tier:
        """The tier its zygote was planned for."""
        return (
            "namespaces"
            if self._zygote.plan["namespaces"]
            else "none"
            if self._zygote.plan["unsandboxed"]
            else "landlock"
        )

    @property
    def namespaced(self) -> bool:
        """Whether it has a view and a process namespace of its own: nothing in that outlives its init."""
        return self._scratch is None

    @property
    def init(self) -> int:
        """Process 1 of its own namespace, as the host numbers it; 0 when it has none or that is gone."""
        return max(0, _posture.host_pid(self._pidfds[-1])) if len(self._pidfds) > 1 else 0

    @property
    def tmp(self) -> str:
        """The call's own folder, seen from outside."""
        return str(self._folder or f"/proc/{self.pid}/root/tmp")

    # -- fork ------------------------------------------------------------------------------------------------

    async def fork(
        self, streams: Streams | None, groups: Groups, limits: Limits, *, stdin_pipe: bool
    ) -> None:
        """Ask the zygote for the process.

        streams: descriptors to use instead of pipes (they stay the caller's).
        """
        self._line = line = Line()
        opened: list[int] = []
        try:
            ends = self._open_pipes(opened, streams or (None, None, None), stdin_pipe)
            self._no_group = groups.available
            if groups.available == "":
                self._groups, self.group = groups, groups.take(limits.memory, limits.processes)
                joining = self.group.open_for_joining()
                opened += joining
                ends += joining
            if self._scratch is not None:
                self._folder = self._scratch.make(self._zygote.plan["slot"])
            _, self._pidfds, self._exit = await self._zygote.fork(
                [line.theirs.fileno(), *ends], str(self._folder or "/tmp")
            )
        finally:
            line.theirs.close()
            for fd in opened:
                os.close(fd)
        self.pid = _posture.host_pid(self._pidfds[0])
        # Now, while the child is at work: it has put itself into its group before anything else.
        with contextlib.suppress(OSError):  # gone, or not ours to look at: then its end is waited for
            self._figures = Figures(self.pid)
            self._in_group = self.group is not None and self.group.holds(self.pid)

    def _open_pipes(self, opened: list[int], given: Streams, stdin_pipe: bool) -> list[int]:
        """The child's three ends: what was given, pipes for the rest.

        `opened` takes what is ours to close after the fork.
        """
        ends = []
        if given[0] is not None:
            ends.append(given[0])
        else:
            if stdin_pipe:
                read, self.stdin = os.pipe2(os.O_CLOEXEC)
                os.set_blocking(self.stdin, False)
            else:
                read = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
            opened.append(read)
            ends.append(read)
        for name, fd in (("stdout", given[1]), ("stderr", given[2])):
            if fd is None:
                reading, fd = os.pipe2(os.O_CLOEXEC)
                os.set_blocking(reading, False)
                setattr(self, name, reading)
                opened.append(fd)
            ends.append(fd)
        return ends

    # -- cage ------------------------------------------------------------------------------------------------

    async def enter_cage(self) -> None:
        """Wait for the layers, look at the child from outside, put it into its group.

        Raises SandboxUnavailable.
        """
        plan = self._zygote.plan
        try:
            async with asyncio.timeout(CAGE_S):
                message, _ = await self.line.receive()
                while message["t"] == "doors":
                    self.doors += [socket.socket(fileno=fd) for fd in self.line.take_fds(message)]
                    message, _ = await self.line.receive()
        except TimeoutError:
            raise SandboxUnavailable(f"a child did not enter its cage within {CAGE_S:.0f} s") from None
        if message["t"] == "cage-failed":
            raise SandboxUnavailable(
                f"layer `{message['layer']}` cannot be put on: {message['error']}",
                hint="`fumehood doctor` tries every layer and names the remedy",
            )
        if message["t"] != "caged":
            raise SandboxUnavailable(f"a child answered {message['t']!r} instead of entering its cage")
        self.line.no_fds()
        for fd in self.line.take_fds(message):
            self._listener = Listener(fd, _bpf.names(), self._refused)
        self.layers = {name: (level, detail) for name, (level, detail) in message["layers"].items()}
        await self._see_group()
        tier = tiers.reached(self.layers)
        if tiers.STRENGTH[tier] < tiers.STRENGTH[self.tier]:
            missing = {
                name: detail for name, (level, detail) in self.layers.items() if level == "MISSING" and detail
            }
            raise SandboxUnavailable(f"this machine reaches the tier {tier!r}, not {self.tier!r}: {missing}")
        seen = _posture.look(self.pid)
        wrong = _posture.faults(seen, plan)
        if wrong:
            raise SandboxUnavailable(f"a child is not caged as planned: {wrong}")
        self.layers.update(_posture.seen_levels(seen))

    async def _see_group(self) -> None:
        """The child put itself into its group before anything else; here is only looked."""
        if self.group is None:
            self.layers["cgroup-limits"] = ("MISSING", self._no_group)
            return
        try:
            held = self._in_group or self.group.holds(self.pid)
            if not held:
                await asyncio.to_thread(self.group.attach, self.pid)
                held = self.group.holds(self.pid)
        except OSError as error:
            raise SandboxUnavailable(f"a child could not be put into its control group: {error}") from error
        if not held:
            raise SandboxUnavailable("a child is not in its control group")
        self.layers["cgroup-limits"] = ("FULL", "")

    def _refused(self, name: str) -> None:
        self.violations[name] = self.violations.get(name, 0) + 1

    async def load(self, within_s: float, keep: int) -> None:
        """Let the child import the tool. `start_error` holds what went wrong with that, if anything did.

        keep: bytes that an import may print and have kept, in `printed`.
        """
        await self.line.send({"t": "go"})
        # A pipe holds most of what imports print, and nobody reads it before the call; one that takes long
        # may wait for room in it.
        reading = asyncio.get_running_loop().call_later(_LOUD_S, self._read_prints, keep)
        try:
            async with asyncio.timeout(within_s):
                message, _ = await self.line.receive()
        finally:
            reading.cancel()
            if self.printed is not None:
                self.printed.stop()
        if message["t"] != "ready":
            raise ProtocolError(f"the child sent {message['t']!r} before it was ready")
        self.start_error = message.get("error")

    def _read_prints(self, keep: int) -> None:
        room = keep

        def count(size: int) -> int:
            nonlocal room
            kept = min(size, room)
            room -= kept
            return kept

        self.printed = Capture(self.stdout, self.stderr, count)
        self.printed.start()

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return bool(self._pidfds) and not _over(self._pidfds[0])

    @property
    def quiet(self) -> bool:
        """Whether the process has said nothing that was not read: one that talks between calls is not used
        again.
        """
        return not self.line.spoke and self.alive

    async def begin(self, spec: ToolSpec, frame: CallFrame) -> None:
        """Send the call: the module runs, the command is exec'd."""
        self.used = True
        await self.line.send(
            {
                "t": "call",
                "call_id": frame.call_id,
                "tool": spec.name,
                "input": frame.input if spec.kind == "module" else None,
                "env": dict(frame.env),
                "env_late": bool(frame.late_names),
                "arguments": list(frame.arguments),
            }
        )

    def complaint(self) -> str:
        """What the child wrote to its error stream before it died: the only word of a failure in our own
        runtime.
        """
        if self.stderr is None:
            return ""
        with contextlib.suppress(BlockingIOError):
            return os.read(self.stderr, 4096).decode("utf-8", "replace").strip()
        return ""

    # -- end -------------------------------------------------------------------------------------------------

    def kill(self) -> None:
        """SIGKILL the whole tree: the namespace's init, or the process itself where there is none (the zygote
        then kills its group).
        """
        if self._pidfds:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfds[-1], signal.SIGKILL)
                if len(self._pidfds) == 1 and not self._zygote.alive:
                    os.killpg(self.pid, signal.SIGKILL)

    def figures(self) -> Reading | None:
        """What the kernel counts of the living child; None when it is gone."""
        return self._figures.read() if self._figures is not None else None

    def begin_one_of_many(self) -> float:
        """For a process that serves several calls: what earlier ones did is not counted as the next one's.

        Returns the CPU seconds used so far.
        """
        now = self.figures()
        if self.used:
            self.violations = {}
            if self.group is not None:
                self.group.count_from_here()
            with contextlib.suppress(OSError), open(f"/proc/{self.pid}/clear_refs", "w") as file:
                file.write("5")  # the peak of memory begins anew (proc(5))
        elif now is not None:
            self.fresh_bytes = now.own
        return now.cpu_s if now is not None else 0.0

    async def ended(self) -> Exit | None:
        """Wait until every process of the tree is gone; how the child itself ended, None when the zygote died
        with it.
        """
        result: Exit | None = None
        assert self._exit is not None
        with contextlib.suppress(ZygoteGone):
            # Shielded: whoever waits here may be cancelled, and the news itself must survive for the next one
            # who asks.
            result = self._exit.result() if self._exit.done() else await asyncio.shield(self._exit)
        if len(self._pidfds) > 1 and not _over(self._pidfds[-1]):
            if self._tree_over is None:  # one reader a descriptor, however many wait
                self._tree_over = asyncio.create_task(readable(self._pidfds[-1]))
            await asyncio.shield(self._tree_over)
        return result

    def bury(self) -> None:
        """Kill it, and hear nothing more of it; `close` is still due."""
        self.kill()
        if self._listener is not None:
            self._listener.close()
        if self._line is not None:
            self._line.read_no_more()

    @property
    def gone(self) -> bool:
        """Whether every process of the tree has ended and the zygote has told how: `close` will not wait."""
        return self._exit is None or (self._exit.done() and (not self._pidfds or _over(self._pidfds[-1])))

    async def close(self) -> None:
        """Kill, see the end, give everything back. Safe to call at any time, more than once."""
        self.bury()
        if self._exit is not None and self._pidfds:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GONE_S):
                    await self.ended()
        if self._tree_over is not None:
            self._tree_over.cancel()
            await asyncio.gather(self._tree_over, return_exceptions=True)
            self._tree_over = None
        if self._figures is not None:
            self._figures.close()
        for fd in (*self._pidfds, self.stdin, self.stdout, self.stderr):
            if fd is not None:
                os.close(fd)
        self._pidfds, self.stdin, self.stdout, self.stderr = [], None, None, None
        for door in self.doors:
            door.close()
        self.doors = []
        if self._line is not None:
            self._line.close()
            self._line = None
        if self._folder is not None and self._scratch is not None:
            folder, self._folder = self._folder, None
            await asyncio.to_thread(self._scratch.remove, folder)
        if self.group is not None:
            group, self.group = self.group, None
            assert self._groups is not None
            self._groups.give_back(group)


def _over(pidfd: int) -> bool:
    """Whether the process has ended (pidfd_open(2))."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))
