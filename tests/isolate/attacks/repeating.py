"""Section E of the catalogue: what many calls of one tool pile up, or have in common."""

from __future__ import annotations

import ctypes
import json
import os
import random
import sys
import tempfile
import time
import uuid
from typing import Any

from tests.isolate.attacks._kernel import scratch, syscall
from tests.isolate.attacks._model import MIB, PEOPLE, Cage, Table, World, first_call, limits, one_of

TABLE = Table()
attack = TABLE.add


# 76, 77 -----------------------------------------------------------------------------------------------------


@attack(76, "interned-objects", caged={"seven": "7", "text": "interned"}, control={"seven": "8",
"text": "Interned"}, control_as="user",
        first="fresh process", only=PEOPLE, host="two_calls")  # fmt: skip
def interned_objects(world: World) -> Any:
    """Write into an integer and a string that every module shares."""
    text = sys.intern("interned")
    seven = int("7")
    if first_call(world):
        ctypes.memset(id(seven) + 24, 8, 1)
        ctypes.memset(id(text) + sys.getsizeof("") - 1, ord("I"), 1)
        if world["ctx"] is not None:
            os._exit(0)
    told = {"seven": format(int("7"), "d"), "text": str(text)}
    ctypes.memset(id(seven) + 24, 7, 1)
    return told


@attack(76, "corrupted-heap", caged={"first": "sandbox_error crashed", "second": "ok"},
        no_control="it ends the process that does it",
        first="fresh process", only=PEOPLE, host="two_calls_outcomes")  # fmt: skip
def corrupted_heap(world: World) -> Any:
    """Destroy the heap: whoever comes next in this process crashes."""
    if first_call(world):
        ctypes.memset(id(object) - 64, 0xFF, 4096)
        ctypes.string_at(1)
    return "intact"


@attack(77, "memory-of-the-call-before", caged={"first": "ok", "second": "ok", "third": "limit memory",
                                                "fourth": "ok"},
        no_control="a process that is used again keeps its memory: that is row 45 twice",
        first="fresh process", only=PEOPLE,
        cage=limits(memory=128 * MIB, tmp=24 * MIB), heavy=True, host="calls_that_fill")  # fmt: skip
def memory_of_the_call_before(world: World) -> Any:
    """Fill the call's memory and /tmp, so that the next call has none; then go over it, so that the
    next call is counted as over.
    """
    kept = os.urandom((200 if world["turn"] == 3 else 80) * MIB)
    try:
        with open(f"{scratch(world)}/full", "wb") as file:
            file.write(bytes(16 * MIB))
    except OSError:
        pass
    return len(kept) > 0


@attack(77, "time-of-the-call-before", caged={"first": "ok", "second": "ok", "third": "limit cpu",
                                              "fourth": "ok"},
        no_control="RLIMIT_CPU counts over the life of a process (getrlimit(2))", first="fresh process",
        only=PEOPLE,
        cage=limits(cpu_s=1.0, timeout_s=20.0), heavy=True, host="calls_that_fill")  # fmt: skip
def time_of_the_call_before(world: World) -> Any:
    """Use up most of the processor time; then all of it."""
    end = time.process_time() + (3.0 if world["turn"] == 3 else 0.4)
    while time.process_time() < end:
        pass
    return "done"


@attack(77, "layers-of-many-calls", caged={"outcomes": ["ok"] * 20},
        no_control="a 17th Landlock layer fails in one process (landlock(7))",
        first="fresh process", only=PEOPLE, host="twenty_calls")  # fmt: skip
def layers_of_many_calls(world: World) -> Any:
    """Twenty calls: layers must not pile up."""
    return "done"


# 78 ---------------------------------------------------------------------------------------------------------


def draw() -> dict[str, str]:
    """One value of each generator."""
    import ssl

    values = {
        "random": str(random.random()),
        "uuid": str(uuid.uuid4()),
        "tempfile": next(tempfile._get_candidate_names()),  # type: ignore[attr-defined]
        "ssl": ssl.RAND_bytes(16).hex(),
        "urandom": os.urandom(16).hex(),
    }
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        values["numpy"] = str(numpy.random.random())
    return values


@attack(
    78,
    "generators",
    caged=dict.fromkeys(("random", "uuid", "tempfile", "ssl", "urandom"), "differ"),
    control={
        "random": "same",
        "uuid": "differ",
        "tempfile": "differ",
        "ssl": one_of("same", "differ"),
        "urandom": "differ",
    },
    control_as="user",
    first="reseed",
    only=PEOPLE,
    cage=Cage(),
    host="two_draws",
)
def generators(world: World) -> Any:
    """Draw; two children of one zygote must not draw the same. (The control forks behind Python's back.)"""
    if world["ctx"] is not None:
        return draw()
    draw()
    drawn = []
    for _ in range(2):
        read, write = os.pipe()
        if syscall(57) == 0:
            os.write(write, json.dumps(draw()).encode())
            os._exit(0)
        drawn.append(json.loads(os.read(read, 4096)))
    return {name: "same" if drawn[0][name] == drawn[1][name] else "differ" for name in drawn[0]}
