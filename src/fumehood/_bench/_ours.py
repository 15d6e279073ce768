"""fumehood's own contestants: a call of a caged tool, with and without a spare, and a caged program
killed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from fumehood._bench._measure import Base
from fumehood._bench._work import PAYLOAD
from fumehood.isolate import DEFAULT_PATH, CallFrame, Doors, Ended, Isolator, Machine, ToolSpec
from fumehood.policies.errors import HostError

_POLL_S = 0.0005
_ENV = {"PATH": DEFAULT_PATH}


class NoServices:
    """Serves tools that ask for nothing; implements `fumehood.isolate.Services`."""

    async def doors(self, doors: Doors) -> None:
        """Nobody connects: closed at once."""
        for sock in (doors.dns_udp, doors.dns_tcp, doors.proxy, *doors.listeners.values(), *doors.watches):
            sock.close()

    async def fetch(self, request: Mapping[str, Any], body: bytes) -> tuple[Mapping[str, Any], bytes]:
        """Not asked for."""
        return {"t": "failed", "reason": "upstream", "message": "a benchmark serves nothing"}, b""

    async def event(self, kind: str, data: Any) -> None:
        """Not asked for."""

    async def put(self, data: bytes, media_type: str) -> Mapping[str, Any]:
        """Not asked for."""
        return {"t": "failed", "reason": "store", "message": "a benchmark stores nothing"}

    async def log(self, text: str) -> None:
        """Not asked for."""

    async def collect(self, name: str, data: bytes) -> str | None:
        """Not asked for."""
        return "a benchmark stores nothing"


class Caged(Base):
    """Calls of one tool through an isolator of its own. spares: children parked; 0 forks on demand."""

    def __init__(
        self, name: str, what: str, spec: ToolSpec, machine: Machine, *, tier: Any, spares: int
    ) -> None:
        super().__init__(name, what, fresh=not spec.reuse, isolated=True)
        self._spec, self._machine, self._tier, self._spares = spec, machine, tier, spares
        self._services = NoServices()
        self.isolator: Isolator

    async def open(self) -> None:
        """The zygote comes up with the first call."""
        self.isolator = Isolator(self._tier, machine=self._machine, spares=self._spares)
        await self.once()

    async def ready(self) -> None:
        """The spares are parked and nothing else of this tool lives."""
        kept = 1 if self._spec.reuse else 0
        while True:
            parked = len(self.isolator.parked(self._spec.name))
            if parked >= self._spares * (1 - kept) and self.isolator.living == parked + kept:
                return
            await asyncio.sleep(_POLL_S)

    settled = ready

    async def once(self) -> None:
        """One call."""
        frame = CallFrame("call-bench", PAYLOAD, _ENV)
        self._check(await self.isolator.call(self._spec, frame, self._services))

    def _check(self, ended: Ended) -> None:
        value = ended.stdout.strip() if self._spec.kind == "command" else ended.verdict.value
        if ended.verdict.outcome != "ok" or not value:
            raise HostError(f"{self.name}: the call ended with {ended.verdict}")
        if self._spec.kind == "module" and value != PAYLOAD:
            raise HostError(f"{self.name}: the tool returned something else than its input")

    async def close(self) -> None:
        """All of it ends."""
        await self.isolator.close()


class Killed(Base):
    """A caged program, from SIGKILL until every process of it is reaped."""

    def __init__(self, name: str, what: str, machine: Machine, *, tier: Any) -> None:
        super().__init__(name, what, fresh=True, isolated=True)
        self._machine, self._tier = machine, tier
        self._spec = ToolSpec("victim", "command", argv=("/bin/sh", "-c", "echo up; exec sleep 1000"))

    async def open(self) -> None:
        """The isolator."""
        self._isolator = Isolator(self._tier, machine=self._machine, spares=0)

    async def ready(self) -> None:
        """A program runs."""
        read, write = os.pipe()
        nothing = os.open(os.devnull, os.O_RDWR)
        try:
            frame = CallFrame("call-bench", None, _ENV)
            self._running = await self._isolator.start(self._spec, frame, (nothing, write, nothing))
            os.close(write)
            write = -1
            if await asyncio.to_thread(os.read, read, 8) != b"up\n":
                raise HostError(f"{self.name}: the program did not start")
        finally:
            for fd in (read, write, nothing):
                if fd >= 0:
                    os.close(fd)

    async def once(self) -> None:
        """Kill it, and wait."""
        self._running.kill()
        await self._running.wait()

    async def close(self) -> None:
        """Nothing is left to kill."""
        await self._isolator.close()
