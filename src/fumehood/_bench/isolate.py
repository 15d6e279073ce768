"""`fumehood bench isolate`: every section in one run, and what is aimed at, each with what was measured.

Before editing: a target is a row of `TARGETS`; its figure is a pure function of the sections, None where a
peer or a section is missing.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fumehood import __version__
from fumehood._bench import _host, _measure
from fumehood._bench import _isolate_sections as parts
from fumehood._bench._model import Options, Report, Section, Target
from fumehood._bench._work import Work

Sections = Mapping[str, Section]
SECTION_NAMES = (*parts.SECTIONS, "host")


async def run(options: Options) -> Report:
    """Measure. Raises SandboxUnavailable where no sandbox can be built, HostError for a wrong answer."""
    from fumehood.isolate import doctor
    from fumehood.policies.errors import SandboxUnavailable

    found = await doctor.examine()
    if found.tier == "none":
        raise SandboxUnavailable(
            f"no sandbox can be built here: {found.trouble}", hint="`fumehood doctor` names the remedy"
        )
    wanted = options.only or SECTION_NAMES
    before = _measure.load()
    sections: dict[str, Section] = {}
    with Work() as work:
        bench = parts.Bench(options, work, found.tier)
        for name in (name for name in SECTION_NAMES if name in wanted):
            options.say(name)
            sections[name] = (
                await _host.host_call(work, bench.rounds)
                if name == "host"
                else await parts.SECTIONS[name](bench)
            )
    return Report(
        "isolate", machine(tier=found.tier), bench.rounds, before, _measure.load(),
        tuple(sections.values()), tuple(_judge(aim, sections) for aim in TARGETS),
    )  # fmt: skip


def machine(**more: Any) -> dict[str, Any]:
    """What figures belong to."""
    return {
        "fumehood": __version__, "python": platform.python_version(), "kernel": platform.release(),
        "architecture": platform.machine(), "cpus": len(os.sched_getaffinity(0)), "root": os.geteuid() == 0,
        **more,
    }  # fmt: skip


# -- targets -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Aim:
    """figure: from the sections to what was measured, None where it was not. at_least: `bound` is a floor."""

    name: str
    figure: Callable[[Sections], float | None]
    bound: float
    at_least: bool = False


def _ratio(section: str, over: str, under: str) -> Callable[[Sections], float | None]:
    def figure(sections: Sections) -> float | None:
        part = sections.get(section)
        top, bottom = (part.p50(over), part.p50(under)) if part else (None, None)
        return top / bottom if top and bottom else None

    return figure


def _kill(sections: Sections) -> float | None:
    part = sections.get("kill")
    taken = part.p50(parts.KILLED) if part else None
    return taken / 1000 if taken else None


def _throughput(sections: Sections) -> float | None:
    part = sections.get("throughput")
    best: dict[str, float] = {}
    for load in part.loads if part else ():
        best[load.contestant] = max(best.get(load.contestant, 0.0), load.per_s)
    ours = max(best.get(parts.SPARE, 0.0), best.get(parts.ON_DEMAND, 0.0))
    return ours / best[parts.BWRAP] if best.get(parts.BWRAP) else None


def _fairness(sections: Sections) -> float | None:
    part = sections.get("throughput")
    return max(
        (
            load.p99_us / load.p50_us
            for load in (part.loads if part else ())
            if load.callers == max(parts.CALLERS) and load.contestant in (parts.SPARE, parts.ON_DEMAND)
        ),
        default=None,
    )


def _figure(section: str, name: str) -> Callable[[Sections], float | None]:
    def figure(sections: Sections) -> float | None:
        part = sections.get(section)
        return part.figure(name) if part else None

    return figure


def _host_call(sections: Sections) -> float | None:
    """Without its rows, so that the figure says the same on a slow disk."""
    part = sections.get("host")
    call, row = (part.p50(_host.CALL), part.p50(_host.ROW)) if part else (None, None)
    return (call - 2 * row) / 1000 if call and row else None


_FORK, _BWRAP = "against a plain fork", "bubblewrap"
TARGETS = (
    Aim("spare, against a kept caged worker", _ratio("python", parts.SPARE, parts.KEPT), 1.3),
    Aim(f"{_BWRAP} no-op, against a spare", _ratio("python", parts.BWRAP, parts.SPARE), 80, True),
    Aim(
        f"{_BWRAP} importing httpx and pydantic, against a spare",
        _ratio("libraries", parts.BWRAP, parts.SPARE), 200, True,
    ),
    Aim(f"on demand, {_FORK}", _ratio("python", parts.ON_DEMAND, parts.PLAIN_FORK), 1.25),
    Aim(
        f"on demand with a network of its own, {_FORK}",
        _ratio("python", parts.ON_DEMAND_NET, parts.PLAIN_FORK), 1.7,
    ),
    Aim(f"on demand at 30 MB, {_FORK}", _ratio("zygote-30", parts.ON_DEMAND, parts.PLAIN_FORK), 1.25),
    Aim(f"on demand at 200 MB, {_FORK}", _ratio("zygote-200", parts.ON_DEMAND, parts.PLAIN_FORK), 1.25),
    Aim(f"best throughput, against {_BWRAP}'s", _throughput, 10, True),
    Aim("32 callers, p99 against p50", _fairness, 3),
    Aim("command tool, against a plain subprocess", _ratio("command", parts.SPARE, parts.SUBPROCESS), 1.2),
    Aim("SIGKILL to reaped, ms", _kill, 2),
    Aim("parked spare of a no-op tool, private MB", _figure("memory", parts.NOOP_TOOL), 5),
    Aim("Host.call less its two rows, ms (0.9 with rows of 0.2)", _host_call, 0.5),
    Aim(
        "create and tear down, last tenth against first",
        _figure("endurance", parts.LAST_OVER_FIRST), 0.9, True,
    ),
)  # fmt: skip
"""What the design aims at. A figure that is missed is printed as missed; docs/benchmarks.md says why."""


def _judge(aim: Aim, sections: Sections) -> Target:
    measured, target = aim.figure(sections), f"{'>=' if aim.at_least else '<='} {aim.bound:g}"
    if measured is None:
        return Target(aim.name, target, None, None)
    return Target(
        aim.name,
        target,
        round(measured, 3),
        measured >= aim.bound if aim.at_least else measured <= aim.bound,
    )
