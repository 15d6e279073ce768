"""How long imports take: `import fumehood` is meant to stay below 150 ms."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

ROUNDS = 5
NAMES = ("fumehood", "fumehood.policies", "fumehood.agent", "fumehood.broker", "fumehood.isolate")


def seconds(statement: str) -> float:
    """The best of several fresh interpreters that run `statement`."""
    taken = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", statement], check=True)
        taken.append(time.perf_counter() - started)
    return min(taken)


def main() -> None:
    """Print one line a module."""
    empty = statistics.median(seconds("pass") for _ in range(3))
    for name in NAMES:
        print(f"{name:<20} {(seconds(f'import {name}') - empty) * 1000:6.0f} ms")


if __name__ == "__main__":
    main()
