"""Children are taken apart whatever else happens meanwhile."""

from __future__ import annotations

import pytest

from fumehood.isolate._endings import Endings

pytestmark = pytest.mark.anyio


class Dying:
    """A child whose tree is gone the second time one asks."""

    def __init__(self) -> None:
        self.asked = 0
        self.closed = 0

    @property
    def gone(self) -> bool:
        self.asked += 1
        return self.asked > 1

    def bury(self) -> None:
        return None

    async def close(self) -> None:
        self.closed += 1


async def test_a_child_that_goes_while_the_dead_are_sorted_is_taken_apart_once() -> None:
    endings, child = Endings(), Dying()
    endings.living.add(child)  # type: ignore[arg-type]
    endings.bury(child)  # type: ignore[arg-type]
    await endings.settle()
    assert (child.closed, endings.living) == (1, set())


async def test_one_that_cannot_be_taken_apart_keeps_none_of_the_others() -> None:
    class Stuck(Dying):
        gone = True

        async def close(self) -> None:
            raise OSError("a folder that cannot be removed")

    endings, stuck, other = Endings(), Stuck(), Dying()
    other.asked = 1  # gone at the first look
    for child in (stuck, other):
        endings.living.add(child)  # type: ignore[arg-type]
        endings.bury(child)  # type: ignore[arg-type]
    await endings.settle()
    assert other.closed == 1
    assert list(endings.living) == [stuck]  # type: ignore[comparison-overlap]
