"""`Host.call` whole, with the two rows it leaves in the log, and the cost of one flushed row beside it."""

from __future__ import annotations

from pathlib import Path

from fumehood import Host
from fumehood._bench._measure import Base, interleaved
from fumehood._bench._model import Figure, Section
from fumehood._bench._work import PAYLOAD, Work
from fumehood.policies import parse_config
from fumehood.policies.errors import HostError

CALL, ROW = "Host.call, spare", "one row, flushed"
_TOOL, _SPARES = "echo", 2
_EVENT = {"outcome": "allow", "host": "api.example.com", "port": 443, "pinned": "192.0.2.7"}


class _HostCall(Base):
    def __init__(self, host: Host) -> None:
        super().__init__(CALL, "schema, log, cage, verdict", fresh=True, isolated=True)
        self._host = host

    async def ready(self) -> None:
        """The spares are parked and nothing else lives."""
        import asyncio

        isolator = self._host.isolator
        while len(isolator.parked(_TOOL)) < _SPARES or isolator.living > len(isolator.parked(_TOOL)):
            await asyncio.sleep(0.0005)

    settled = ready

    async def once(self) -> None:
        """One call."""
        result = await self._host.call(_TOOL, PAYLOAD)
        if result.outcome != "ok" or result.value != PAYLOAD:
            raise HostError(f"{self.name}: the call ended with {result.outcome}, {result.reason}")


class _LogRow(Base):
    def __init__(self, host: Host) -> None:
        super().__init__(ROW, "EventLog.record", fresh=False, isolated=False)
        self._host = host

    async def once(self) -> None:
        """One row."""
        await self._host.log.record("EGRESS_ALLOWED", _EVENT, execution_id="bench", call_id="bench")


async def host_call(work: Work, rounds: int) -> Section:
    """Both, interleaved, in one log; and how many rows a call leaves."""
    text = f'version = 1\n[host]\nstate = "state"\n[tools.{_TOOL}]\nmodule = "tools/{work.noop.name}"\n'
    config = parse_config(text, base=work.folder, source="bench")
    async with Host(config, spares=_SPARES) as host:
        call = _HostCall(host)
        await call.once()
        rows = await interleaved([call, _LogRow(host)], rounds)
        counted = host.log.head().seq
        await call.once()
        per_call = host.log.head().seq - counted
    figures = (Figure("rows of a call", per_call, ""),)
    title = f"Host.call whole, log on {_file_system(work.folder)}"
    return Section("host", title, ROW, rows=rows, figures=figures)


def _file_system(folder: Path) -> str:
    """The type of the file system that holds `folder`; a tmpfs flushes nothing."""
    found, longest = "an unknown file system", -1
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines():
        _, place, kind, *_ = line.split()
        if len(place) > longest and folder.is_relative_to(place):
            found, longest = kind, len(place)
    return found
