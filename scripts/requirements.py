"""Bring the last column of docs/requirements.md up to date with the marks of the tests.

A number that tests hold gets their files. One that no test holds keeps what a person wrote, unless that was a
test which is gone.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.marks import marks  # noqa: E402 - the tests are no installed package
from tests.test_requirements import PAGE  # noqa: E402

UNNAMED = "not yet: no test names it"
_ROW = re.compile(r"^\| (R\d{3}) \| (.*?) \| (.*?) \|$", re.MULTILINE)


def main() -> None:
    """Rewrite the page and say how many numbers are held."""
    held: dict[str, set[str]] = defaultdict(set)
    for mark in marks("requirement"):
        held[str(mark.value)].add(str(mark.path))

    def updated(row: re.Match[str]) -> str:
        number, rule, place = row.groups()
        if number in held:
            place = ", ".join(f"`{path}`" for path in sorted(held[number]))
        elif place.startswith("`tests/"):
            place = UNNAMED
        return f"| {number} | {rule} | {place} |"

    page = ROOT / PAGE
    page.write_text(_ROW.sub(updated, page.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{len(held)} requirements are held by tests")


if __name__ == "__main__":
    main()
