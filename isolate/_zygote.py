"""The host's handle on one tool's zygote: start it, ask it for children, hear of their ends.

One reader owns the control socket. Answers are matched by request number; a zygote that says anything
else, or goes away, fails every child that waits for it with the reason it gave.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import json
import os
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fumehood.isolate import _spawn
from fumehood.policies.descriptors import send_with_descriptors
from fumehood.policies.errors import SandboxUnavailable

START_S = 30.0  # a launcher that has not built its cage by then never will
STOP_S = 5.0  # after the control socket closes, the tree ends by itself; then it is killed
_ERRORS_KEPT = 8192
_PLAN_PACKET = 65536


@dataclass(frozen=True, slots=True)
class Exit:
    """How a child ended, from wait4(2) in the zygote: exit code (negative: signal), CPU seconds, peak memory
    in bytes.
    """

    code: int
    cpu_s: float
    max_rss: int


class PreloadFailed(Exception):
    """A library of `preload` cannot be imported; the text names it. The machine is in order."""


class ZygoteGone(Exception):
    """The zygote ended or failed; the text is what is known of why."""


class ZygoteHandle:
    """One launcher, init and zygote, seen from the host."""

    def __init__(self, plan: Mapping[str, Any], executable: str) -> None:
        self.plan = plan
        self._executable = executable
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        self._forked: dict[int, asyncio.Future[list[int]]] = {}
        self._exits: dict[int, asyncio.Future[Exit]] = {}
        self._reading = False
        self._errors = bytearray()
        self._errors_fd = -1
        self._gone: str | None = None
        self.fresh_proc = False

    def __repr__(self) -> str:
        state = "gone" if self._gone is not None else "up" if self._reading else "new"
        return f"<ZygoteHandle {state}, children: {len(self._exits)}>"

    @property
    def alive(self) -> bool:
        """Whether children can still be asked for."""
        return self._gone is None and self._control is not None

    async def start(self) -> None:
        """Exec the launcher, send the plan, wait until the zygote serves.

        Raises SandboxUnavailable with the step that failed, PreloadFailed.
        """
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            errors_read, errors_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            ours.close()
            theirs.close()
            raise
        try:
            self._process = await asyncio.wrap_future(_spawn.spawn(self._executable, theirs, errors_write))
        except BaseException as error:
            ours.close()
            os.close(errors_read)
            if not isinstance(error, OSError):
                raise
            raise SandboxUnavailable(
                f"the sandbox's interpreter cannot be started: {error}", hint=_spawn.remedy(error)
            ) from error
        finally:
            theirs.close()
            os.close(errors_write)
        ours.setblocking(False)
        self._control, self._errors_fd = ours, errors_read
        loop.add_reader(errors_read, self._read_errors)
        try:
            async with asyncio.timeout(START_S):
                await _send_plan(ours, json.dumps(self.plan).encode())
                message, _ = await self._receive()
        except TimeoutError:
            await self.close()
            raise SandboxUnavailable(
                f"the sandbox did not start within {START_S:.0f} s", hint=self._error_text()
            ) from None
        except OSError as error:
            await self.close()
            raise SandboxUnavailable(
                f"the sandbox ended while starting: {error}", hint=self._error_text()
            ) from error
        if message.get("t") != "up":
            await self.close()
            raise _start_failure(message, self._error_text())
        self.fresh_proc = message["fresh_proc"]
        self._reading = True
        loop.add_reader(ours, self._read)

    async def fork(self, fds: list[int], tmp: str) -> tuple[int, list[int], asyncio.Future[Exit]]:
        """Ask for a child that gets these four descriptors.

        Returns (number, pidfds [child, init], its exit). Raises ZygoteGone.
        """
        if not self.alive:
            raise ZygoteGone(self._gone or "the zygote is not running")
        assert self._control is not None
        loop = asyncio.get_running_loop()
        number = next(self._numbers)
        forked: asyncio.Future[list[int]] = loop.create_future()
        exit_: asyncio.Future[Exit] = loop.create_future()
        self._forked[number], self._exits[number] = forked, exit_
        try:
            # A few dozen bytes: the socket holds hundreds of them, and a full one means the zygote hangs.
            request = json.dumps({"t": "fork", "n": number, "tmp": tmp}).encode()
            send_with_descriptors(self._control, request, fds)
        except OSError as error:
            if error.errno == errno.ETOOMANYREFS:  # the user's, not this zygote's
                del self._forked[number], self._exits[number]
                raise
            self._fail(f"the zygote does not take requests: {error}")
        return number, await forked, exit_

    def _read(self) -> None:
        """One message of a zygote that serves."""
        try:
            self._take(*self._next())
        except BlockingIOError:
            return
        except (OSError, ValueError, KeyError) as error:
            self._fail(str(error))

    def _take(self, message: dict[str, Any], fds: list[int]) -> None:
        kind = message.get("t")
        if kind == "forked":
            future = self._forked.pop(message["n"])
            whole = len(fds) == (2 if self.plan["namespaces"] else 1)
            if whole and not future.done():
                future.set_result(fds)
                return
            # Nobody waits any more, or the kernel had no number for one: the child is never used, and its
            # init must not stay.
            for fd in fds:
                os.close(fd)
            if not future.done():
                future.set_exception(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
        elif kind == "not-forked":
            del self._exits[message["n"]]
            future = self._forked.pop(message["n"])
            if not future.done():
                future.set_exception(OSError(message["errno"], os.strerror(message["errno"])))
        elif kind == "exit":
            ended = self._exits.pop(message["n"])
            if not ended.done():
                ended.set_result(Exit(message["code"], message["cpu"], message["rss"]))
        else:
            self._fail(message.get("error", f"an unexpected message from the zygote: {kind}"))

    async def _receive(self) -> tuple[dict[str, Any], list[int]]:
        assert self._control is not None
        await readable(self._control.fileno())
        return self._next()

    def _next(self) -> tuple[dict[str, Any], list[int]]:
        assert self._control is not None
        data, fds, _, _ = socket.recv_fds(self._control, 65536, 4)
        if not data:
            raise ConnectionResetError(self._error_text() or "the zygote closed its socket")
        return json.loads(data), fds

    def _fail(self, why: str) -> None:
        self._gone = why
        self._read_no_more()
        waiting: list[asyncio.Future[Any]] = [*self._forked.values(), *self._exits.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(ZygoteGone(why))
                future.exception()  # a waiter that is gone must not make the loop complain
        self._forked.clear()
        self._exits.clear()

    def _read_no_more(self) -> None:
        if self._reading and self._control is not None:
            self._reading = False
            asyncio.get_running_loop().remove_reader(self._control)

    def _read_errors(self) -> None:
        try:
            data = os.read(self._errors_fd, 65536)
        except BlockingIOError:
            return
        if not data:
            asyncio.get_running_loop().remove_reader(self._errors_fd)
        self._errors = (self._errors + data)[-_ERRORS_KEPT:]

    def _error_text(self) -> str | None:
        return self._errors.decode("utf-8", "replace").strip() or None

    async def close(self) -> None:
        """Close the control socket, see the whole tree end, kill what does not.

        Children that still run die with it.
        """
        self._read_no_more()
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            await _ended(self._process)
            self._process = None
        if self._errors_fd >= 0:
            asyncio.get_running_loop().remove_reader(self._errors_fd)
            os.close(self._errors_fd)
            self._errors_fd = -1
        self._fail("the host closed the zygote")

    @property
    def pid(self) -> int | None:
        """The launcher's process number."""
        return self._process.pid if self._process is not None else None


async def _send_plan(control: socket.socket, plan: bytes) -> None:
    """The plan in packets: its length first, then pieces that a sequenced-packet socket takes."""
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(control, str(len(plan)).encode())
    for start in range(0, len(plan), _PLAN_PACKET):
        await loop.sock_sendall(control, plan[start : start + _PLAN_PACKET])


def _start_failure(message: Mapping[str, Any], errors: str | None) -> Exception:
    step, text = message.get("step", "start"), message.get("error", "no reason given")
    if step == "preload":
        return PreloadFailed(f"a library of `preload` cannot be imported: {text}")
    return SandboxUnavailable(
        f"the sandbox cannot be built: layer `{step}`: {text}",
        hint=errors or "`fumehood doctor` tries every layer and names the remedy",
    )


async def readable(fd: int) -> None:
    """Wait until `fd` can be read, or is at its end (a pidfd: until the process has ended)."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def ready() -> None:
        if not future.done():
            future.set_result(None)

    loop.add_reader(fd, ready)
    try:
        await future
    finally:
        loop.remove_reader(fd)


async def _ended(process: subprocess.Popen[bytes]) -> None:
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        process.wait()
        return
    try:
        async with asyncio.timeout(STOP_S):
            await readable(handle)
    except TimeoutError:
        process.kill()
        await readable(handle)
    finally:
        os.close(handle)
        process.wait()
