"""The areas of `fumehood bench`, and one adapter for those that other parts measure themselves.

A part's benchmark is its module `_bench` with a function `run()` that returns figures as nested mappings of
numbers and texts, plain or as a coroutine; it may take `rounds`, `quick` and `log`, which makes an event log
in a folder. What stands under `not_run` (peer -> what would bring it) and `targets` (name -> target, what was
measured, met) is shown as such. An area whose module is not there is not offered.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from fumehood._bench import _measure, _scripts, isolate
from fumehood._bench._model import Figure, NotRun, Options, Report, Section, Target

AREAS = ("isolate", "broker", "sandbox", "agent")


def present() -> list[str]:
    """The areas of this version."""
    return [area for area in AREAS if area == "isolate" or _module(area) is not None]


def _module(area: str) -> Any:
    return importlib.util.find_spec(f"fumehood.{area}._bench")


async def run_area(area: str, options: Options) -> Report:
    """Measure one area. Raises what it raises."""
    whole = WHOLE.get(area)
    return await (whole(options) if whole else run_figures(area, measuring(area), options))


# Calls and scripts are measured in cages, and those are the host's to build.
WHOLE: Mapping[str, Callable[[Options], Awaitable[Report]]] = {
    "isolate": isolate.run,
    "sandbox": _scripts.run,
}
"""The areas that make their whole report themselves."""


def measuring(area: str) -> Callable[..., Any]:
    """The function that measures one of the other areas."""
    return cast("Callable[..., Any]", importlib.import_module(f"fumehood.{area}._bench").run)


async def run_figures(area: str, run: Callable[..., Any], options: Options) -> Report:
    """What a part's own function finds, as a report."""
    taken = inspect.signature(run).parameters
    given = {"rounds": options.each, "quick": options.quick, "log": _log}
    before = _measure.load()
    options.say(area)
    arguments = {name: value for name, value in given.items() if name in taken}
    if inspect.iscoroutinefunction(run):
        found = await run(**arguments)
    else:  # it may want an event loop of its own
        found = await asyncio.to_thread(run, **arguments)
    rounds = options.each if "rounds" in arguments else None
    return Report(
        area, isolate.machine(), rounds, before, _measure.load(), tuple(_sections(found)), _targets(found)
    )


def _log(folder: Path) -> Any:
    """The host's own event log, for parts that may not import it."""
    from fumehood.agent import EventLog

    return EventLog(folder / "log.sqlite3")


def _targets(found: Mapping[str, Any]) -> tuple[Target, ...]:
    """What stands under `targets`: name -> {target, measured, met}."""
    return tuple(Target(name, **figures) for name, figures in found.get("targets", {}).items())


def _sections(found: Mapping[str, Any]) -> Iterator[Section]:
    """A section for each mapping at the top; numbers that stand there alone come last."""
    alone = {}
    for name, value in found.items():
        if name == "targets":
            continue
        if name == "not_run":
            if value:
                yield Section("peers", "peers", not_run=tuple(NotRun(*peer) for peer in value.items()))
        elif isinstance(value, Mapping):
            yield Section(name, name, figures=tuple(_figures(value, "")))
        else:
            alone[name] = value
    if figures := tuple(_figures(alone, "")):
        yield Section("figures", "figures", figures=figures)


def _figures(values: Mapping[str, Any], prefix: str) -> Iterator[Figure]:
    for name, value in values.items():
        words = f"{prefix} {name}".strip()
        if isinstance(value, Mapping):
            yield from _figures(value, words)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            yield Figure(words, value, "")
