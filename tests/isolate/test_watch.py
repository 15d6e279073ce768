"""When the watcher looks again."""

from __future__ import annotations

import pytest

from fumehood.isolate._watch import EVERY_S, FILL, SOONEST_S, next_look

MIB = 1 << 20


@pytest.mark.promise("isolate:limits-hold")
def test_the_less_memory_is_left_the_sooner_it_is_looked_at_and_never_without_a_pause() -> None:
    looks = {left: next_look(left, EVERY_S) for left in (10 * 1024 * MIB, 128 * MIB, 64 * MIB, MIB, 0)}
    assert looks == {
        10 * 1024 * MIB: EVERY_S,
        128 * MIB: 128 * MIB / FILL,
        64 * MIB: 64 * MIB / FILL,
        MIB: SOONEST_S,
        0: SOONEST_S,
    }
    assert SOONEST_S < 64 * MIB / FILL < 128 * MIB / FILL < EVERY_S


@pytest.mark.promise("isolate:limits-hold")
def test_where_the_kernel_counts_and_where_a_process_waits_the_pause_is_the_usual_one() -> None:
    assert next_look(None, EVERY_S) == EVERY_S
    assert next_look(None, 1.0) == 1.0
