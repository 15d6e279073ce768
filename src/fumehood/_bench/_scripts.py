"""The sandbox's own benchmark with the host's launcher: its workers stand in cages, as a host's do."""

from __future__ import annotations

from typing import Any

from fumehood._workers import CagedLauncher
from fumehood.isolate import Isolator, doctor
from fumehood.policies.errors import SandboxUnavailable


async def run(*, quick: bool = False) -> dict[str, dict[str, Any]]:
    """A mapping a task: for each contestant its figures. Raises SandboxUnavailable where there is no cage."""
    from fumehood.sandbox._bench import rows

    found = await doctor.examine()
    if found.tier == "none":
        raise SandboxUnavailable(
            f"no sandbox can be built here: {found.trouble}", hint="`fumehood doctor` names the remedy"
        )
    made: dict[str, dict[str, Any]] = {}
    async with Isolator(found.tier, spares=0) as isolator:
        for row in await rows(CagedLauncher(isolator), quick=quick):
            figures = {"ms": row.p50_ms, "ms, p99": row.p99_ms}
            if row.ratio is not None:
                figures["against ours"] = row.ratio
            made.setdefault(row.task, {})[f"{row.who}, {row.note}" if row.note else row.who] = figures
    return made
