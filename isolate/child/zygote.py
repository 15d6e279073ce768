"""The zygote: forks one single-use child per request, and never runs tool code.

It speaks with the host over a sequenced-packet socket, JSON plus descriptors:
  host -> zygote  {"t": "fork", "n": N} + [call socket, stdin, stdout, stderr, group files...]
  zygote -> host  {"t": "up", ...} once
                  {"t": "forked", "n": N} + [pidfd of the child, pidfd of its init]
                  {"t": "not-forked", "n": N, "errno": ...} where there was no process to be had
                  {"t": "exit", "n": N, ...}
The host is the only one who can reach it: children close this socket before anything else.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from typing import Any

from . import _uapi_proc, cage, library, program, runtime, sockets
from .channel import Channel
from .layers import landlock, limits

_READY_INITS = 2  # inits made ahead: one for the fork under way, one for the next


class Zygote:
    """State of the fork loop: live children by pid, inits made ahead."""

    def __init__(self, host: socket.socket, inits: socket.socket | None, plan: dict[str, Any]) -> None:
        self._host, self._inits, self._plan = host, inits, plan
        self._children: dict[int, tuple[int, int | None]] = {}  # pid -> (request number, pidfd of its init)
        self._asked = 0
        self._ruleset: int | None = None
        _occupy_low_numbers()
        self._make_ruleset()
        self._own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC) if inits is not None else -1

    def serve(self) -> None:
        """Fork on request, report every end, until the host closes the socket; then nothing of any call is
        left.
        """
        try:
            self._serve()
        finally:
            for pid, (_, init) in self._children.items():
                if init is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(pid, signal.SIGKILL)

    def _serve(self) -> None:
        wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self._host, select.POLLIN)
        poll.register(wake_read, select.POLLIN)
        if self._inits is None:
            _uapi_proc.prctl(_uapi_proc.PR_SET_CHILD_SUBREAPER, 1)
        self._order_inits()
        while True:
            for fd, _ in poll.poll():
                if fd == wake_read:
                    try:
                        os.read(wake_read, 512)
                    except BlockingIOError:
                        pass
                    self._report_ends()
                elif not self._request():
                    return

    def _request(self) -> bool:
        try:
            message, fds, _, _ = socket.recv_fds(self._host, 4096, 8)
        except ConnectionResetError:
            return False
        if not message:
            return False
        request = json.loads(message)
        self._fork(request["n"], fds, request["tmp"])
        return True

    def _order_inits(self) -> None:
        if self._inits is not None:
            while self._asked < _READY_INITS:
                self._inits.send(b"I")
                self._asked += 1

    def _take_init(self) -> tuple[int, int]:
        """A namespace and its init. Raises OSError where none could be made; one that was made ahead may have
        failed for a reason that is over.
        """
        assert self._inits is not None
        for left in range(_READY_INITS, -1, -1):
            told, fds, _, _ = socket.recv_fds(self._inits, 16, 2)
            self._asked -= 1
            self._order_inits()
            if len(fds) == 2:
                break
            if left == 0:
                code = int(told) if told.isdigit() else errno.EMFILE
                raise OSError(code, os.strerror(code))
        return fds[0], fds[1]

    def _fork(self, number: int, fds: list[int], tmp: str) -> None:
        """Fork one child. Where the kernel has no process for it the host is told so: those that run are not
        to pay for it.
        """
        init = None
        try:
            if self._inits is not None:
                namespace, init = self._take_init()
            me = os.getpid()
            if init is not None:
                _uapi_proc.setns(namespace, _uapi_proc.CLONE_NEWPID)
                os.close(namespace)
            pid = os.fork()
        except OSError as error:
            self._could_not(number, error, fds, init)
            return
        if pid == 0:
            # getppid() of the child is 0 when it is in a namespace of its own: its parent is outside.
            _child({**self._plan, "tmp": tmp}, fds, 0 if init is not None else me, self._ruleset)
        if init is not None:
            _uapi_proc.setns(self._own, _uapi_proc.CLONE_NEWPID)
        handle = os.pidfd_open(pid)
        self._children[pid] = (number, init)
        body = json.dumps({"t": "forked", "n": number}).encode()
        socket.send_fds(self._host, [body], [handle] if init is None else [handle, init])
        for fd in (*fds, handle):
            os.close(fd)
        self._order_inits()
        self._make_ruleset()

    def _could_not(self, number: int, error: OSError, fds: list[int], init: int | None) -> None:
        if init is not None:
            _uapi_proc.setns(self._own, _uapi_proc.CLONE_NEWPID)
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(init, signal.SIGKILL)
            os.close(init)
        for fd in fds:
            os.close(fd)
        self._host.send(json.dumps({"t": "not-forked", "n": number, "errno": error.errno}).encode())

    def _make_ruleset(self) -> None:
        """The next child's Landlock rules, made ahead while nobody waits; none is shared by two children."""
        if self._ruleset is not None:
            os.close(self._ruleset)
        self._ruleset = landlock.prepare(self._plan["landlock"])

    def _report_ends(self) -> None:
        while True:
            try:
                # Looked at, not yet reaped: as long as the child is a zombie its number, and its group's,
                # belong to nobody else.
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            pid = ended.si_pid
            number, init = self._children.pop(pid, (None, None))
            if init is not None:
                # The namespace ends with the child, whatever else still runs in it.
                with contextlib.suppress(ProcessLookupError):  # the host was quicker
                    signal.pidfd_send_signal(init, signal.SIGKILL)
                os.close(init)
            elif number is not None:
                # No namespace: seccomp kept every descendant in the child's process group.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
            _, status, usage = os.wait4(pid, 0)
            if number is None:
                continue  # an orphan of a call that we are the reaper of
            if init is None:
                _reap_group(pid)
            body = {
                "t": "exit",
                "n": number,
                "code": os.waitstatus_to_exitcode(status),
                "cpu": usage.ru_utime + usage.ru_stime,
                "rss": usage.ru_maxrss * 1024,
            }
            self._host.send(json.dumps(body).encode())


def _reap_group(group: int) -> None:
    """Wait for what is left of a killed process group; its orphans became our children."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-group, 0)


def prepare(plan: dict[str, Any]) -> None:
    """What every child would else do for itself: imports, warm paths, a frozen heap."""
    sys.path[:] = plan["sys_path"]
    os.environ.clear()
    os.environ.update(plan["early_env"])  # no secret is in it: those come with the call
    time.tzset()
    for name in plan["preload"]:
        importlib.import_module(name)
    _use_once()
    if plan["tool"]["kind"] == "module":
        library.offer()
        if not plan["namespaces"]:
            sockets.say(sockets.USE_FETCH)
        elif plan["doors"] is None:
            sockets.say(sockets.NO_EGRESS)
        runtime.warm(plan["tool"]["asyncio"])
        plan["tool"]["name"] = runtime.name_of(plan["tool"]["path"])
    tasks = os.listdir("/proc/self/task") if os.path.exists("/proc/self/task") else []
    if len(tasks) > 1:
        raise RuntimeError(
            f"a preloaded library started {len(tasks) - 1} thread(s); a fork would lose them. "
            f"Preloaded were: {plan['preload']}"
        )
    # As every Python starts, whatever a library did and however the host was started (nohup, a job in the
    # background): an exception instead of a silent end, and nothing else ignored.
    for number in signal.valid_signals():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _uapi_proc.restore_hidden_signals()
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    gc.collect()
    gc.freeze()
    _uapi_proc.collapse_memory()


def _use_once() -> None:
    """Use libraries that import most of themselves at their first use: a child would pay for it each time."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None:
        # Sixty modules, 100 ms and 8 MB a child. What a strange version raises, a tool's own model shows.
        with contextlib.suppress(Exception):
            pydantic.create_model("Used", number=(int, ...), texts=(list[str], ...))


def _child(plan: dict[str, Any], fds: list[int], parent: int, ruleset: int | None) -> None:
    """Arrange the descriptors, enter the cage, serve one call, end. Never returns."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        call, *streams = fds[:4]
        for group in fds[4:]:
            os.write(
                group, b"0"
            )  # one thread that moves itself: no wait, and every page from here on is counted
        for target, fd in enumerate(streams):
            os.dup2(fd, target)
        os.dup2(call, 3, inheritable=False)
        if ruleset is not None:
            os.dup2(ruleset, 4, inheritable=False)
        _uapi_proc.close_from(4 if ruleset is None else 5)
        channel = Channel(socket.socket(fileno=3))
        try:
            layers, listener = cage.enter(plan, channel, parent, None if ruleset is None else 4)
        except cage.CageError as error:
            channel.send(
                {
                    "t": "cage-failed",
                    "layer": error.layer,
                    "error": str(error.error),
                    "errno": error.error.errno,
                }
            )
            os._exit(72)
        channel.send_with(
            {"t": "caged", "layers": layers},
            [] if listener is None else [listener],
            last=lambda: limits.lower_descriptors(plan["limits"]),
        )
        if plan["tool"]["kind"] == "module":
            runtime.prepare()
        channel.receive()  # the host has looked at us from outside and says go on
        if plan["tool"]["kind"] == "module":
            runtime.serve_module(channel, plan["tool"]["path"], plan["tool"]["name"], plan["tmp"])
        else:
            _exec_command(channel, plan["tool"]["argv"])
        code = 0
    except BaseException as error:  # noqa: BLE001 - top of a process: say what ended it, on the host's error pipe
        os.write(2, f"fumehood child: {type(error).__name__}: {error}\n".encode("utf-8", "replace"))
    finally:
        os._exit(code)


def _occupy_low_numbers() -> None:
    """No descriptor that is sent or made from now on is below 5: a child arranges 0 to 4 and overwrites
    nothing it still needs.
    """
    while os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC) < 4:
        pass


def _exec_command(channel: Channel, argv: list[str]) -> None:
    """Become the program of a command tool; its credentials come with the call."""
    channel.send({"t": "ready", "error": None})
    call, _ = channel.receive()
    path = call["env"].get("PATH", "")
    found = program.find(argv[0], path)
    try:
        os.execve(found, [*argv, *call.get("arguments", [])], call["env"])
    except (OSError, ValueError) as error:  # ValueError: what no argument and no environment can hold
        code = getattr(error, "errno", None)
        why = program.why_not(found, path, error) if isinstance(error, OSError) else str(error)
        told = {"program": runtime.valid(argv[0]), "error": runtime.valid(why)}
        channel.send({"t": "exec-failed", "errno": code, **told})
        os._exit(127)
