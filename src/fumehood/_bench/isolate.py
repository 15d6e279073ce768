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
    """figure: (measured, bound) or None. at_least: the bound is a floor. form: how both are printed."""

    name: str
    figure: Callable[[Sections], tuple[float, float] | None]
    at_least: bool = False
    form: str = "{:.2f}"


def _ratio(section: str, over: str, under: str, bound: float) -> Callable[[Sections], Any]:
    def figure(sections: Sections) -> tuple[float, float] | None:
        part = sections.get(section)
        top, bottom = (part.p50(over), part.p50(under)) if part else (None, None)
        return (top / bottom, bound) if top and bottom else None

    return figure


def _kill(sections: Sections) -> tuple[float, float] | None:
    part = sections.get("kill")
    taken = part.p50(parts.KILLED) if part else None
    return (taken / 1000, 2.0) if taken else None


def _throughput(sections: Sections) -> tuple[float, float] | None:
    part = sections.get("throughput")
    best: dict[str, float] = {}
    for load in part.loads if part else ():
        best[load.contestant] = max(best.get(load.contestant, 0.0), load.per_s)
    ours = max(best.get(parts.SPARE, 0.0), best.get(parts.ON_DEMAND, 0.0))
    return (ours / best[parts.BWRAP], 10.0) if best.get(parts.BWRAP) else None


def _fairness(sections: Sections) -> tuple[float, float] | None:
    part = sections.get("throughput")
    most = [
        load.p99_us / load.p50_us
        for load in (part.loads if part else ())
        if load.callers == max(parts.CALLERS) and load.contestant in (parts.SPARE, parts.ON_DEMAND)
    ]
    return (max(most), 3.0) if most else None


def _memory(sections: Sections) -> tuple[float, float] | None:
    part = sections.get("memory")
    size = part.figure("no-op tool") if part else None
    return (size, 5.0) if size else None


def _endurance(sections: Sections) -> tuple[float, float] | None:
    part = sections.get("endurance")
    kept = part.figure("last over first") if part else None
    return (kept, 0.9) if kept else None


def _host_call(sections: Sections) -> tuple[float, float] | None:
    """0.9 ms where a row costs 0.2: half a millisecond, and the two rows at what they cost here."""
    part = sections.get("host")
    call, row = (part.p50(_host.CALL), part.p50(_host.ROW)) if part else (None, None)
    return (call / 1000, 0.5 + 2 * row / 1000) if call and row else None


TARGETS = (
    Aim("spare, against a kept caged worker", _ratio("python", parts.SPARE, parts.KEPT, 1.3)),
    Aim("bubblewrap no-op, against a spare", _ratio("python", parts.BWRAP, parts.SPARE, 80.0), True),
    Aim(
        "bubblewrap importing httpx and pydantic, against a spare",
        _ratio("libraries", parts.BWRAP, parts.SPARE, 200.0),
        True,
    ),
    Aim("on demand, against a plain fork", _ratio("python", parts.ON_DEMAND, parts.PLAIN_FORK, 1.25)),
    Aim(
        "on demand with a network of its own, against a plain fork",
        _ratio("python", parts.ON_DEMAND_NET, parts.PLAIN_FORK, 1.7),
    ),
    Aim(
        "on demand at 30 MB, against a plain fork",
        _ratio("zygote-30", parts.ON_DEMAND, parts.PLAIN_FORK, 1.25),
    ),
    Aim(
        "on demand at 200 MB, against a plain fork",
        _ratio("zygote-200", parts.ON_DEMAND, parts.PLAIN_FORK, 1.25),
    ),
    Aim("best throughput, against bubblewrap's", _throughput, True),
    Aim("32 callers, p99 against p50", _fairness),
    Aim("command tool, against a plain subprocess", _ratio("command", parts.SPARE, parts.SUBPROCESS, 1.2)),
    Aim("SIGKILL to reaped, ms", _kill),
    Aim("parked spare, private MB", _memory),
    Aim("Host.call with its rows, ms", _host_call, form="{:.3f}"),
    Aim("create and tear down, last tenth against first", _endurance, True),
)


def _judge(aim: Aim, sections: Sections) -> Target:
    found = aim.figure(sections)
    if found is None:
        return Target(aim.name, "", "", None, "not measured: its section or its peer was not run")
    measured, bound = found
    sign = ">=" if aim.at_least else "<="
    met = measured >= bound if aim.at_least else measured <= bound
    return Target(aim.name, f"{sign} {aim.form.format(bound)}", aim.form.format(measured), met)
