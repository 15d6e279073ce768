"""The manifest of security promises: every one has an id, a sentence, a source and the tests that hold it.

Each area keeps its own table in `tests/promise_tables/`; this file is the one place that merges them.
`tests/test_promises.py` checks both directions: a promise that no test names fails, and so does a test that
names no promise. A gap is an entry with a reason, never a skipped test.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass

import tests.promise_tables


@dataclass(frozen=True, slots=True)
class Promise:
    """One thing fumehood promises.

    id: "area:short-name". sentence: what a user may rely on. source: R-number, design invariant, RFC or man
    page. gap: why no test can hold it here, or None when tests do.
    """

    id: str
    sentence: str
    source: str
    gap: str | None = None


def load() -> Mapping[str, Promise]:
    """Every promise by id.

    Raises: ValueError when two tables use one id or an id is outside its table's area.
    """
    merged: dict[str, Promise] = {}
    for found in pkgutil.iter_modules(tests.promise_tables.__path__):
        table = importlib.import_module(f"tests.promise_tables.{found.name}")
        for id_, sentence, source, *gap in table.PROMISES:
            if id_ in merged or not id_.startswith(f"{found.name}:"):
                raise ValueError(f"promise id {id_!r} is not unique or not in area {found.name!r}")
            merged[id_] = Promise(id_, sentence, source, gap[0] if gap else None)
    return merged
