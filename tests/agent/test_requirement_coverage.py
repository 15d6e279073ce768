"""Every requirement of this part's themes is a test or an entry with a reason, and no entry
outlives its reason.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.agent.requirement_gaps import ELSEWHERE, GAPS

TESTS = Path(__file__).parents[1]

THEMES = {
    4: range(26, 65),
    5: range(65, 98),
    6: range(98, 116),
    7: range(116, 147),
    8: range(147, 165),
    9: range(165, 186),
    13: range(240, 247),
    17: range(271, 277),
    18: range(277, 286),
    19: range(286, 292),
    20: range(292, 295),
    21: range(295, 305),
    22: range(305, 320),
    23: range(320, 328),
    24: range(328, 352),
    25: range(352, 363),
    26: range(363, 381),
    28: range(399, 406),
    30: range(427, 436),
    32: range(445, 452),
    33: range(452, 461),
    35: range(469, 493),
}


def _marked(folder: Path) -> set[str]:
    found: set[str] = set()
    for path in folder.rglob("*.py"):
        found |= set(re.findall(r'mark\.requirement\("(R\d{3})"\)', path.read_text(encoding="utf-8")))
    return found


@pytest.mark.parametrize("theme", THEMES)
def test_every_requirement_of_a_theme_is_held_or_explained(theme: int) -> None:
    wanted = {f"R{number:03}" for number in THEMES[theme]}
    assert sorted(wanted - _marked(TESTS) - GAPS.keys() - ELSEWHERE.keys()) == []


def test_a_requirement_is_not_both_held_here_and_a_gap() -> None:
    assert sorted(_marked(TESTS / "agent") & (GAPS.keys() | ELSEWHERE.keys())) == []


def test_the_manifest_names_requirements_of_these_themes_only_and_says_why() -> None:
    known = {f"R{number:03}" for numbers in THEMES.values() for number in numbers}
    assert sorted((GAPS.keys() | ELSEWHERE.keys()) - known) == []
    assert [number for number, reason in {**GAPS, **ELSEWHERE}.items() if not reason.strip()] == []
