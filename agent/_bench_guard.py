"""How long the guard takes, and that it is linear: figures for docs, and the ratios that prove it.

`python -m fumehood.agent._bench_guard` prints one JSON object. `ratios` holds, for each hostile shape, the
time for twice the input over the time for once; a quadratic walk would show 4. Nothing here is asserted by a
clock; the tests count steps instead.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from fumehood.agent._fence import _ANGLES
from fumehood.agent._guard import guard_request
from fumehood.agent._taint import tainted

Request = dict[str, Any]

_SCATTERED = "".join(angle + "x" * 100 for angle in _ANGLES)
_BYTES = len(_ANGLES.encode())


def small_messages(values: int) -> Request:
    """A request of about this many JSON values in small messages: six for each."""
    return {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]} for _ in range(values // 6)]
    }


def one_input(values: int) -> Request:
    """A request with one call whose input has this many values."""
    call = {"type": "tool_use", "id": "c", "name": "t", "input": [0] * (values - 1)}
    return {"messages": [{"role": "assistant", "content": [call]}]}


def deep_input(levels: int) -> Request:
    """A request with one call whose input is nested this deep."""
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return {
        "messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "t", "input": value}]}
        ]
    }


def tainted_text(piece: str, size: int) -> Request:
    """A tainted user message made of one piece again and again."""
    return {"messages": [{"role": "user", "content": tainted(piece * (size // len(piece)), "mcp:a/b")}]}


def calls_and_results(count: int) -> Request:
    """Many calls with one id, and their results."""
    calls = [{"type": "tool_use", "id": "x", "name": "t", "input": {}} for _ in range(count)]
    results = [{"type": "tool_result", "tool_use_id": "x", "content": "r"} for _ in range(count)]
    return {"messages": [{"role": "assistant", "content": calls}, {"role": "user", "content": results}]}


def nested_taint(levels: int) -> Request:
    """A tainted value inside a tainted value, this many times."""
    value: Any = "x"
    for _ in range(levels):
        value = {"__tainted__": {"origin": "o", "value": value}}
    return {"messages": [{"role": "user", "content": value}]}


SHAPES: dict[str, Callable[[int], Request]] = {
    "small messages": lambda n: small_messages(50_000 * n),
    "one input": lambda n: one_input(45_000 * n),
    "deep input": lambda n: deep_input(20_000 * n),
    "calls with one id": lambda n: calls_and_results(3_000 * n),
    "nested taint": lambda n: nested_taint(20_000 * n),
    "text": lambda n: tainted_text("a", 2_000_000 * n),
    "text of <": lambda n: tainted_text("<", 2_000_000 * n),
    "text of < and blanks": lambda n: tainted_text("<" + " " * 50, 2_000_000 * n),
    "text of one < and blanks": lambda n: tainted_text("<" + " " * (2_000_000 * n - 1), 2_000_000 * n),
    "text of <u": lambda n: tainted_text("<u", 2_000_000 * n),
    "text of fullwidth brackets": lambda n: tainted_text("\uff1cu", 2_000_000 * n),
    "text of every lookalike": lambda n: tainted_text(f"{_ANGLES}u", 2_000_000 * n),
    "every lookalike here and there": lambda n: tainted_text(_SCATTERED, 2_000_000 * n),
}


def seconds(request: Request, runs: int = 5) -> float:
    """Processor time of the best of some runs: the guard does nothing but compute, and other
    processes come and go.
    """
    best = float("inf")
    for _ in range(runs):
        start = time.thread_time()
        guard_request(request)
        best = min(best, time.thread_time() - start)
    return best


def run(quick: bool = False) -> dict[str, Any]:
    """Milliseconds for the shapes of the documentation, and the ratio of each shape's double.

    quick: each measured once; the figures mean nothing.
    """
    runs = 1 if quick else 5
    # One after the other, so that both see the same machine.
    pairs = {name: (seconds(shape(1), runs), seconds(shape(2), runs)) for name, shape in SHAPES.items()}
    figures = {
        "100,000 values in small messages": seconds(small_messages(100_000), runs),
        "one input of 99,000 values": seconds(one_input(99_000), runs),
        "1 MB of tainted text": seconds(tainted_text("a", 1_000_000), runs),
        "1 MB of <u": seconds(tainted_text("<u", 1_000_000), runs),
        "1 MB of every lookalike": seconds(tainted_text(_ANGLES, 1_000_000 * len(_ANGLES) // _BYTES), runs),
        "1 MB with every lookalike here and there": seconds(tainted_text(_SCATTERED, 1_000_000), runs),
    }
    return {
        "ms": {name: round(value * 1e3, 1) for name, value in figures.items()},
        "ratios": {name: round(twice / once, 2) for name, (once, twice) in pairs.items()},
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
