"""The areas of `fumehood bench`, and one adapter for those that other parts measure themselves.

A part's benchmark is its module `_bench` with a function `run()` that returns figures as nested mappings of
numbers and texts, plain or as a coroutine. An area whose module is not there is not offered.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from fumehood._bench import _measure, isolate
from fumehood._bench._model import Figure, Options, Report, Section

AREAS = ("isolate", "broker", "sandbox", "agent")


def present() -> list[str]:
    """The areas of this version."""
    return [area for area in AREAS if area == "isolate" or _module(area) is not None]


def _module(area: str) -> Any:
    return importlib.util.find_spec(f"fumehood.{area}._bench")


async def run_area(area: str, options: Options) -> Report:
    """Measure one area. Raises what it raises."""
    if area == "isolate":
        return await isolate.run(options)
    run = importlib.import_module(f"fumehood.{area}._bench").run
    taken = inspect.signature(run).parameters
    given = {"rounds": options.rounds, "quick": options.quick}
    before = _measure.load()
    options.say(area)
    arguments = {name: value for name, value in given.items() if name in taken}
    if inspect.iscoroutinefunction(run):
        found = await run(**arguments)
    else:  # it may want an event loop of its own
        found = await asyncio.to_thread(run, **arguments)
    return Report(area, isolate.machine(), options.rounds, before, _measure.load(), tuple(_sections(found)))


def _sections(found: Mapping[str, Any]) -> Iterator[Section]:
    """A section for each mapping at the top; numbers that stand there alone come last."""
    alone = {}
    for name, value in found.items():
        if isinstance(value, Mapping):
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
