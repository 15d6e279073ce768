"""The others, each doing the same work: plain processes, bubblewrap, firejail, sandbox-runtime, Python's
pools, and a fork without walls.

A peer that is not installed is named with what would bring it. Commands are run with the blocking
`subprocess.run`, which costs them less than an event loop would.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from fumehood._bench import _plain_fork, _pools
from fumehood._bench._measure import Base, Contestant, opened
from fumehood._bench._model import NotRun
from fumehood._bench._work import PAYLOAD, PAYLOAD_TEXT
from fumehood.isolate import DEFAULT_PATH, Machine, ToolSpec
from fumehood.isolate import child as cage_code
from fumehood.isolate._plan import Filters, build_plan
from fumehood.isolate.child.channel import encode
from fumehood.isolate.child.frames import FrameParser
from fumehood.policies.errors import HostError

_ENV = {"PATH": DEFAULT_PATH, "SHELL": "/bin/sh"}
_RECEIVE = 1 << 18

WHERE_FROM = {
    "bubblewrap": ("bwrap", "apt install bubblewrap"),
    "firejail": ("firejail", "apt install firejail"),
    "sandbox-runtime": (
        "srt",
        "npm install -g @anthropic-ai/sandbox-runtime, apt install bubblewrap socat ripgrep",
    ),
}
"""Peer -> (the command that shows it is there, what brings it)."""


def missing() -> tuple[NotRun, ...]:
    """The peers that this machine lacks."""
    return tuple(
        NotRun(peer, remedy)
        for peer, (command, remedy) in WHERE_FROM.items()
        if shutil.which(command) is None
    )


async def working(contestants: Sequence[Contestant]) -> tuple[list[Contestant], list[NotRun]]:
    """Those that do the work here, and the peers that are installed and do not.

    Only those of `WHERE_FROM` may fail: an ordinary user without user namespaces has no bubblewrap.
    """
    usable, failed = [], []
    for contestant in contestants:
        if contestant.name in WHERE_FROM:
            try:
                async with opened([contestant]):
                    await contestant.once()
            except (HostError, OSError) as error:
                failed.append(NotRun(contestant.name, f"installed, but {error}"))
                continue
        usable.append(contestant)
    return usable, failed


class Command(Base):
    """A program started for every call, its input on standard input."""

    def __init__(
        self, name: str, what: str, argv: Sequence[str], *, isolated: bool, env: dict[str, str] | None = None
    ) -> None:
        super().__init__(name, what, fresh=True, isolated=isolated)
        self._argv, self._env = list(argv), env or _ENV

    def run(self) -> None:
        """One call, blocking."""
        done = subprocess.run(
            self._argv,
            input=PAYLOAD_TEXT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self._env,
            check=False,
        )
        if done.returncode or json.loads(done.stdout or b"null") != PAYLOAD:
            raise HostError(f"{self.name}: ended with {done.returncode} and printed {done.stdout[:200]!r}")

    async def once(self) -> None:
        """One call; nothing else runs meanwhile."""
        self.run()


class Threaded(Base):
    """A command for many callers at once, each in a thread."""

    def __init__(self, command: Command, callers: int) -> None:
        super().__init__(command.name, command.what, fresh=command.fresh, isolated=command.isolated)
        self._command, self._callers = command, callers

    async def open(self) -> None:
        """The threads."""
        self._pool = concurrent.futures.ThreadPoolExecutor(self._callers)

    async def once(self) -> None:
        """One call."""
        await asyncio.get_running_loop().run_in_executor(self._pool, self._command.run)

    async def close(self) -> None:
        """The threads end."""
        self._pool.shutdown()


class Victim(Base):
    """A plain program, from SIGKILL until it is reaped."""

    async def ready(self) -> None:
        """It runs."""
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", "echo up; exec sleep 1000"], stdout=subprocess.PIPE, env=_ENV
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()

    async def once(self) -> None:
        """Kill it, and wait."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class SelfTimed(Base):
    """A process that holds something between calls and times each itself: a byte in, its seconds out."""

    def __init__(
        self, name: str, what: str, argv: Sequence[str], *, fresh: bool, isolated: bool = False
    ) -> None:
        super().__init__(name, what, fresh=fresh, isolated=isolated)
        self._argv = list(argv)

    async def open(self) -> None:
        """The process, and a first call."""
        self._process = subprocess.Popen(
            self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=_ENV, cwd="/"
        )
        try:
            await self.once()
        except HostError:
            await self.close()
            raise

    async def once(self) -> float:
        """One call, and what the process says it took."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(b".")
        self._process.stdin.flush()
        answer = self._process.stdout.read(8)
        if len(answer) != 8:
            raise HostError(f"{self.name}: the process that holds it ended")
        seconds: float = struct.unpack("<d", answer)[0]
        return seconds

    async def close(self) -> None:
        """Its standard input ends, and so does it."""
        self._process.communicate()


def pools() -> list[SelfTimed]:
    """Python's own ways to another process, all by fork."""
    kinds = (
        ("multiprocessing.Pool", "kept process, no walls", "pool", False),
        ("ProcessPoolExecutor", "kept process, no walls", "executor", False),
        ("multiprocessing.Process", "fork per call from a small process, no walls", "process", True),
    )
    script = str(Path(_pools.__file__))
    return [
        SelfTimed(name, what, [sys.executable, "-I", script, kind], fresh=fresh)
        for name, what, kind, fresh in kinds
    ]


class PlainFork(Base):
    """The fork of a process that holds what fumehood's zygote holds, without any wall; a blocking client."""

    def __init__(self, name: str, what: str, spec: ToolSpec, machine: Machine) -> None:
        super().__init__(name, what, fresh=True, isolated=False)
        self._plan = build_plan(
            spec, machine, slot=None, host_pid=os.getpid(), seccomp=Filters(b"", b""), tier="none"
        )
        self._executable = machine.executable
        self._call = encode({
            "t": "call", "call_id": "call-bench", "tool": spec.name, "input": PAYLOAD,
            "env": {"PATH": DEFAULT_PATH}, "env_late": False, "arguments": [],
        })  # fmt: skip

    async def open(self) -> None:
        """The fork server."""
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [
                    self._executable, "-I", "-S", "-X", "utf8", str(Path(_plain_fork.__file__)),
                    str(Path(cage_code.__file__).parent), str(theirs.fileno()),
                ],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=_ENV,
            )  # fmt: skip
        self._control.send(json.dumps(self._plan).encode())
        if self._control.recv(16) != b"up":
            raise HostError(f"{self.name}: the fork server did not start")

    async def once(self) -> None:
        """One child, one call."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                socket.send_fds(self._control, [b"F"], [theirs.fileno()])
            ours.sendall(self._call)
            parser, frames = FrameParser(), list[tuple[int, bytes]]()
            while len(frames) < 2:  # "ready", and the result
                received = ours.recv(_RECEIVE)
                if not received:
                    raise HostError(f"{self.name}: the child ended before it answered")
                frames += parser.feed(received)
        if json.loads(frames[1][1]).get("value") != PAYLOAD:
            raise HostError(f"{self.name}: answered {frames[1][1][:200]!r}")

    async def close(self) -> None:
        """The fork server ends with its socket."""
        self._control.close()
        self._process.wait()


def bubblewrap(argv: Sequence[str], visible: Sequence[str]) -> list[str]:
    """`argv` in bubblewrap with every namespace it has: the system and `visible` read-only, its own
    /tmp.
    """
    words = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"]
    words += ["--setenv", "PATH", _ENV["PATH"], "--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc"]
    for name in ("/bin", "/sbin", "/lib", "/lib64"):
        link = Path(name)
        if link.is_symlink():
            words += ["--symlink", str(link.readlink()), name]
        elif link.is_dir():
            words += ["--ro-bind", name, name]
    words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    for path in visible:
        words += ["--ro-bind", path, path]
    return [*words, "--chdir", "/tmp", "--", *argv]


def firejail(argv: Sequence[str]) -> list[str]:
    """`argv` in firejail with what comes nearest to a cage of ours."""
    return [
        "firejail", "--quiet", "--noprofile", "--net=none", "--private-dev", "--caps.drop=all", "--seccomp",
        "--nonewprivs", "--nogroups", "--ipc-namespace", "--read-only=/usr", "--", *argv,
    ]  # fmt: skip


def sandbox_runtime(argv: Sequence[str]) -> SelfTimed:
    """`argv` through sandbox-runtime's library, which stays loaded; it builds on bubblewrap."""
    command = Path(shutil.which("srt") or "srt").resolve()  # dist/cli.js
    return SelfTimed(
        "sandbox-runtime", "library kept in Node, no-op program",
        ["node", str(Path(__file__).with_name("_srt.mjs")), str(command.with_name("index.js")), *argv],
        fresh=True, isolated=True,
    )  # fmt: skip
