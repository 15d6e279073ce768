"""What is measured of `isolate`, section by section: each a list of contestants that do the same work.

Sections are coroutines that take a `Bench` and return a `Section`; the table at the end names them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fumehood._bench import _peers
from fumehood._bench._measure import Contestant, interleaved, opened, under_load
from fumehood._bench._model import Figure, Load, Options, Section, load_ratios, with_ratios
from fumehood._bench._ours import Caged, Killed
from fumehood._bench._work import LIBRARIES, Work
from fumehood.isolate import Limits, Tier, ToolSpec

SPARE, ON_DEMAND, ON_DEMAND_NET = "fumehood, spare", "fumehood, on demand", "fumehood, on demand, own network"
KEPT, PLAIN_FORK = "fumehood, kept", "plain fork"
BWRAP, SUBPROCESS = "bubblewrap", "subprocess"
KILLED, VICTIM = "fumehood, killed", "subprocess, killed"
NOOP_TOOL, LAST_OVER_FIRST = "no-op tool", "last over first"

CALLERS = (1, 2, 8, 32)
_SPARES = 2
_LIMITS = Limits(timeout_s=60.0)
_DOORS = (80, 443)


@dataclass(frozen=True, slots=True)
class Bench:
    """What every section needs."""

    options: Options
    work: Work
    tier: Tier

    @property
    def rounds(self) -> int:
        """Calls of each contestant."""
        return self.options.each

    def module(self, path: Path, name: str, **more: Any) -> ToolSpec:
        """A tool of this bench."""
        return ToolSpec(name, "module", path=path, limits=_LIMITS, **more)

    def caged(self, name: str, what: str, spec: ToolSpec, *, spares: int = 0) -> Caged:
        """A contestant of ours."""
        return Caged(name, what, spec, self.work.machine, tier=self.tier, spares=spares)

    def three(self, path: Path, preload: tuple[str, ...] = ()) -> list[Contestant]:
        """A fresh process in the three ways there are, and the same fork without walls."""
        held = f"zygote holds {' and '.join(preload)}" if preload else "small zygote"
        spec = self.module(path, "fresh", preload=preload)
        found: list[Contestant] = [
            self.caged(SPARE, held, spec, spares=_SPARES),
            self.caged(ON_DEMAND, held, spec),
            _peers.PlainFork(PLAIN_FORK, f"no walls, same {held}", spec, self.work.machine),
        ]
        if self.tier == "namespaces":
            with_doors = self.module(path, "doors", preload=preload, doors=_DOORS)
            found.insert(2, self.caged(ON_DEMAND_NET, held, with_doors))
        return found

    def bubblewrap(self, module: Path, what: str) -> list[_peers.Command]:
        """A program started in bubblewrap, where it is installed."""
        if any(absent.contestant == BWRAP for absent in _peers.missing()):
            return []
        visible = [str(self.work.folder), *self.work.machine.site_dirs, *self.work.machine.interpreter_dirs]
        argv = _peers.bubblewrap(self.work.python(module), visible)
        return [_peers.Command(BWRAP, what, argv, isolated=True)]

    async def section(
        self, name: str, title: str, contestants: Sequence[Contestant], baseline: str | None = None
    ) -> Section:
        """Measure contestants interleaved."""
        usable, failed = await _peers.working(contestants)
        async with opened(usable):
            rows = await interleaved(usable, self.rounds)
        return Section(name, title, baseline, rows=with_ratios(rows, baseline), not_run=tuple(failed))


async def python(bench: Bench) -> Section:
    """A tool that needs nothing, in every way that is here."""
    work = bench.work
    absent = _peers.missing()
    here = {peer for peer in _peers.WHERE_FROM if peer not in {gone.contestant for gone in absent}}
    program = work.python(work.noop)
    contestants: list[Contestant] = [
        *bench.three(work.noop),
        bench.caged(KEPT, "reuse = true", bench.module(work.noop, "kept", reuse=True)),
        _peers.Command(SUBPROCESS, "no walls, python -I -S", program, isolated=False),
        *bench.bubblewrap(work.noop, "--unshare-all, read-only binds"),
        *_peers.pools(),
    ]
    if "firejail" in here:
        contestants.append(
            _peers.Command("firejail", "no profile, seccomp", _peers.firejail(program), isolated=True)
        )
    if "sandbox-runtime" in here:
        contestants.append(_peers.sandbox_runtime(program))
    title = "Python tool that needs nothing, 1 KB of JSON in and out"
    section = await bench.section("python", title, contestants, BWRAP)
    return replace(section, not_run=(*absent, *section.not_run))


async def libraries(bench: Bench) -> Section:
    """A tool that needs httpx and pydantic."""
    work = bench.work
    contestants: list[Contestant] = [
        *bench.three(work.library, LIBRARIES),
        _peers.Command(SUBPROCESS, "no walls, imports per call", work.python(work.library), isolated=False),
        *bench.bubblewrap(work.library, "imports per call"),
    ]
    return await bench.section("libraries", "Python tool that needs httpx and pydantic", contestants, BWRAP)


async def zygote_30(bench: Bench) -> Section:
    """A zygote of about 30 MB."""
    return await _padded(bench, 30)


async def zygote_200(bench: Bench) -> Section:
    """A zygote of about 200 MB."""
    return await _padded(bench, 200)


async def _padded(bench: Bench, megabytes: int) -> Section:
    preload = (bench.work.ballast(megabytes),)
    contestants = bench.three(bench.work.noop, preload)
    title = f"Python tool whose zygote holds {megabytes} MB of tables"
    return await bench.section(f"zygote-{megabytes}", title, contestants, PLAIN_FORK)


async def command(bench: Bench) -> Section:
    """A program instead of a module."""
    spec = ToolSpec("cat", "command", argv=("/bin/cat",), limits=_LIMITS)
    contestants: list[Contestant] = [
        bench.caged(SPARE, "cat", spec, spares=_SPARES),
        bench.caged(ON_DEMAND, "cat", spec),
        _peers.Command(SUBPROCESS, "cat, no walls", ["/bin/cat"], isolated=False),
    ]
    if bench.bubblewrap(bench.work.noop, ""):
        argv = _peers.bubblewrap(["/bin/cat"], [])
        contestants.append(_peers.Command(BWRAP, "cat", argv, isolated=True))
    return await bench.section("command", "Command tool, 1 KB through cat", contestants, SUBPROCESS)


async def kill(bench: Bench) -> Section:
    """How long a kill takes."""
    contestants: list[Contestant] = [
        Killed(KILLED, "sleep", bench.work.machine, tier=bench.tier),
        _peers.Victim(VICTIM, "sleep, no walls", fresh=True, isolated=False),
    ]
    return await bench.section("kill", "SIGKILL to reaped", contestants, VICTIM)


async def throughput(bench: Bench) -> Section:
    """Callers in a closed loop."""
    work = bench.work
    seconds, slices = (0.1, 1) if bench.options.quick else (6.0, 3)
    loads: list[Load] = []
    for callers in CALLERS:
        bench.options.say(f"  {callers} callers")
        contestants, _ = await _peers.working([
            bench.caged(SPARE, "", bench.module(work.noop, "fresh"), spares=_SPARES),
            bench.caged(ON_DEMAND, "", bench.module(work.noop, "fresh")),
            _peers.Threaded(
                _peers.Command(SUBPROCESS, "no walls", work.python(work.noop), isolated=False), callers
            ),
            *[_peers.Threaded(peer, callers) for peer in bench.bubblewrap(work.noop, "")],
        ])  # fmt: skip
        async with opened(contestants):
            loads += await under_load(contestants, callers, seconds, slices)
    title = "Calls per second, closed loop, Python tool that needs nothing"
    return Section("throughput", title, BWRAP, loads=load_ratios(loads, BWRAP))


async def memory(bench: Bench) -> Section:
    """What a parked spare costs."""
    found = []
    kinds: Mapping[str, ToolSpec] = {
        NOOP_TOOL: bench.module(bench.work.noop, "fresh"),
        "httpx and pydantic preloaded": bench.module(bench.work.library, "fresh", preload=LIBRARIES),
    }
    for name, spec in kinds.items():
        contestant = bench.caged(SPARE, "", spec, spares=_SPARES)
        async with opened([contestant]):
            await contestant.ready()
            sizes = [_private_dirty(pid) for pid in contestant.isolator.parked(spec.name)]
        known = [size for size in sizes if size is not None]
        if known:
            found.append(Figure(name, round(max(known) / 1e6, 2), "MB"))
    return Section("memory", "Private dirty memory of a parked spare", figures=tuple(found))


def _private_dirty(pid: int) -> int | None:
    """Bytes that are this process's alone; None where the kernel does not let us look (needs root)."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if "Private_Dirty:" in line), None)


async def endurance(bench: Bench) -> Section:
    """Create and tear down, over and over: the first tenth against the last."""
    cycles = 30 if bench.options.quick else max(2000, 20 * bench.rounds)
    contestant = bench.caged(ON_DEMAND, "", bench.module(bench.work.noop, "fresh"))
    tenth = max(1, cycles // 10)
    rates = []
    async with opened([contestant]):
        for part in range(10):
            if part in (3, 6, 9):
                bench.options.say(f"  {part * tenth} of {cycles}")
            rates.append(await _rate(contestant, tenth))
    figures = (
        Figure("calls", 10 * tenth, ""),
        Figure("first tenth", round(rates[0], 1), "calls/s"),
        Figure("last tenth", round(rates[-1], 1), "calls/s"),
        Figure(LAST_OVER_FIRST, round(rates[-1] / rates[0], 3), ""),
    )
    return Section("endurance", "Create and tear down, one after another", figures=figures)


async def _rate(contestant: Caged, count: int) -> float:
    import time

    started = time.perf_counter()
    for _ in range(count):
        await contestant.once()
    await contestant.ready()  # all of them are taken apart, too
    return count / (time.perf_counter() - started)


SECTIONS: Mapping[str, Callable[[Bench], Awaitable[Section]]] = {
    "python": python,
    "libraries": libraries,
    "zygote-30": zygote_30,
    "zygote-200": zygote_200,
    "command": command,
    "kill": kill,
    "throughput": throughput,
    "memory": memory,
    "endurance": endurance,
}
