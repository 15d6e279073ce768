"""The guard is linear: twice the input executes at most about twice the lines, whatever shape it has.
Counted, not timed.

Work inside C (searching and replacing in texts) is not counted here; `python -m fumehood.agent._bench_guard`
shows its ratios.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from fumehood.agent._bench_guard import (
    calls_and_results,
    deep_input,
    nested_taint,
    one_input,
    small_messages,
    tainted_text,
)
from fumehood.agent._guard import guard_request
from tests.agent.samples import bad, image, request, result, text, user

COUNTED = ("_guard.py", "_guard_checks.py", "_taint.py", "_fence.py", "_media.py")


def lines_of(body: dict[str, Any]) -> int:
    """How many lines of the guard's modules one request executes."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.endswith(COUNTED):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        guard_request(body)
    finally:
        sys.settrace(before)
    return count


def tainted_parts(count: int) -> dict[str, Any]:
    return request(user([text(bad({"row": [n, "x"]})) for n in range(count)]))


def media_and_texts(count: int) -> dict[str, Any]:
    parts = [part for _ in range(count) for part in (image(), text(bad("x" * 100)))]
    return request(
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "t", "input": {}}]},
        user([result("c", parts)]),
    )


@pytest.mark.promise("agent:guard-is-linear")
@pytest.mark.parametrize(
    ("shape", "size"),
    [
        (small_messages, 1_200),
        (one_input, 3_000),
        (deep_input, 2_000),
        (calls_and_results, 150),
        (nested_taint, 800),
        (tainted_parts, 150),
        (media_and_texts, 100),
        (lambda n: tainted_text("<u", n), 4_000),
        (lambda n: tainted_text("\uff1c", n), 4_000),
    ],
)
def test_twice_the_input_executes_at_most_twice_the_lines(
    shape: Callable[[int], dict[str, Any]], size: int
) -> None:
    once, twice = lines_of(shape(size)), lines_of(shape(2 * size))
    assert twice <= 2.05 * once + 50, (once, twice)
