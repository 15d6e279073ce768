"""docs/tools.md names every field of a result and everything that `ctx` has, and nothing else."""

from __future__ import annotations

import re

from fumehood import CallResult
from fumehood.isolate.child.context import AsyncContext, Reply, SyncContext
from tests.tree import ROOT

PAGE = (ROOT / "docs" / "tools.md").read_text(encoding="utf-8")


def _first_cells(heading: str) -> list[str]:
    """The first cell of each row of the table that follows."""
    rows = re.search(rf"{re.escape(heading)}.*?\n((?:\|[^\n]*\n)+)", PAGE, re.DOTALL)
    assert rows
    return [line.split("|")[1] for line in rows[1].splitlines()[2:]]


def test_the_fields_of_a_result_are_those_of_the_page() -> None:
    named = [name for cell in _first_cells("## The result") for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(named) == sorted(CallResult("c", "t", "ok").to_json())


def test_what_ctx_has_is_what_the_page_says() -> None:
    cells = _first_cells("A file that changes is taken up by the next call.")
    named = {name for cell in cells for name in re.findall(r"`(\w+)[(`]", cell)}
    has = {name for name in vars(SyncContext) | vars(SyncContext.__base__) if not name.startswith("_")}
    assert has == {name for name in named if name not in ("call_id", "tool", "tmp")}
    assert {"call_id", "tool", "tmp"} <= named
    assert {n for n in vars(AsyncContext) if not n.startswith("_")} <= has
    reply = Reply(200, [], b"", "u")
    told = re.search(r"a reply has (.*?) \|", PAGE)
    assert told
    members = {n for n in dir(reply) if not n.startswith("_")}
    assert set(re.findall(r"`(\w+)[(`]", told[1])) == members
