"""docs/requirements.md and the citations of R-numbers agree: in code, in tests, in documents.

A number that is cited and not listed, listed twice, or listed with a place that does not hold it, fails here
with the line to add or to change.
"""

from __future__ import annotations

import functools
import re
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from tests.marks import marks
from tests.tree import ROOT, files

PAGE = Path("docs/requirements.md")
_ROW = re.compile(r"^\| (R\d{3}) \| (.*?) \| (.*?) \|$", re.MULTILINE)
_NUMBER = re.compile(r"\bR\d{3}\b")
_READ = {".py", ".md", ".toml", ".js", ".html"}
_ALWAYS = {f"R{number:03}" for number in (*range(1, 26), *range(469, 493))}


@functools.cache
def _rows() -> dict[str, tuple[str, str]]:
    """Number -> (rule, where it is held)."""
    return {
        number: (rule, place)
        for number, rule, place in _ROW.findall((ROOT / PAGE).read_text(encoding="utf-8"))
    }


@functools.cache
def _citations() -> dict[str, list[str]]:
    """Number -> the files that cite it, the page itself left out."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in files():
        if path.suffix in _READ and path != PAGE and not (ROOT / path).is_symlink():
            for number in _NUMBER.findall((ROOT / path).read_text(encoding="utf-8", errors="replace")):
                found[number].add(str(path))
    return {number: sorted(found[number]) for number in sorted(found)}


def _marked() -> dict[str, list[str]]:
    """Number -> the test files with a mark for it."""
    found: dict[str, set[str]] = defaultdict(set)
    for mark in marks("requirement"):
        found[str(mark.value)].add(str(mark.path))
    return {number: sorted(places) for number, places in found.items()}


def _cell(places: list[str]) -> str:
    return ", ".join(f"`{place}`" for place in places) or "not yet: (the reason)"


def test_every_number_that_is_cited_has_its_line() -> None:
    marked = _marked()
    lines = [
        f"| {number} | (the rule in our words) | {_cell(marked.get(number, []))} |   <- cited in {places}"
        for number, places in _citations().items()
        if number not in _rows()
    ]
    assert not lines, f"add to {PAGE}:\n" + "\n".join(lines)


def test_the_page_lists_each_number_once_and_in_order() -> None:
    numbers = [number for number, _, _ in _ROW.findall((ROOT / PAGE).read_text(encoding="utf-8"))]
    assert [number for number, count in Counter(numbers).items() if count > 1] == []
    assert numbers == sorted(numbers)
    assert sorted(_ALWAYS - set(numbers)) == []


def test_every_line_of_the_page_can_be_read() -> None:
    """A row with a bar or a cell too many would silently be none."""
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    unread = [line for line in text.splitlines() if line.startswith("| R") and not _ROW.fullmatch(line)]
    assert unread == []


def test_every_place_on_the_page_exists_and_cites_the_number() -> None:
    wrong = []
    for number, (_, place) in _rows().items():
        if place.startswith("not yet: "):
            continue
        named = re.findall(r"`([^`]+)`", place)
        if not named:
            wrong.append(f"{number}: {place!r} names no file and gives no reason (`not yet: …`)")
        for path in named:
            if not path.startswith(("tests/", "docs/", "SECURITY.md")):
                wrong.append(f"{number}: {path} is neither a test nor a document")
            elif path not in _citations().get(number, []):
                wrong.append(f"{number}: {path} does not cite it")
    assert not wrong, "\n".join(wrong)


def test_a_number_that_a_test_holds_is_not_called_open() -> None:
    marked = _marked()
    open_ = {number: place for number, (_, place) in _rows().items() if place.startswith("not yet: ")}
    held = [
        f"{number}: held by {', '.join(marked[number])}, listed as {open_[number]!r}"
        for number in open_
        if number in marked
    ]
    assert not held, "run scripts/requirements.py, or write:\n" + "\n".join(held)


@pytest.mark.parametrize("kind", ["rule", "place"])
def test_no_cell_is_empty(kind: str) -> None:
    cell = 0 if kind == "rule" else 1
    assert [number for number, row in _rows().items() if not row[cell].strip()] == []
