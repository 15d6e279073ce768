"""How an ending is judged: a table from what the host saw to outcome and reason."""

from __future__ import annotations

from typing import Any

import pytest

from fumehood.isolate._cgroups import Counters
from fumehood.isolate._outcome import Seen, Verdict, judge
from fumehood.isolate._zygote import Exit

RESULT = {"t": "result", "value": {"a": 1}}
ERROR = {"t": "error", "type": "ValueError", "message": "no", "trace": "T", "kind": "run"}


def error(**fields: Any) -> dict[str, Any]:
    return {**ERROR, **fields}


CASES: list[tuple[str, Seen, str, tuple[str, str | None]]] = [
    ("a result", Seen(said=RESULT), "module", ("ok", None)),
    ("an error", Seen(said=ERROR), "module", ("tool_error", None)),
    ("the clock, though a result came late", Seen(stopped="timeout", said=RESULT),
     "module", ("limit", "timeout")),
    ("the kernel's memory kill before any word of the tool",
     Seen(counters=Counters(1), exit=Exit(-9, 0.1, 1)),
     "module", ("limit", "memory")),
    ("a memory kill beside a result", Seen(counters=Counters(1), said=RESULT), "module", ("limit", "memory")),
    ("SIGXCPU after its time", Seen(exit=Exit(-24, 1.0, 1)), "module", ("limit", "cpu")),
    ("SIGXCPU that the tool sent itself", Seen(exit=Exit(-24, 0.01, 1)),
     "module", ("sandbox_error", "crashed")),
    ("SIGKILL at the hard limit", Seen(exit=Exit(-9, 1.0, 1)), "module", ("limit", "cpu")),
    ("SIGKILL without a reason of ours", Seen(exit=Exit(-9, 0.1, 1)), "module", ("sandbox_error", "crashed")),
    ("nonsense on the wire", Seen(protocol_fault="x", exit=Exit(-9, 0, 0)),
     "module", ("sandbox_error", "protocol")),
    ("refused forks and an error", Seen(said=ERROR, counters=Counters(0, 3)),
     "module", ("limit", "processes")),
    ("refused forks and a result: the tool coped", Seen(said=RESULT, counters=Counters(0, 3)),
     "module", ("ok", None)),
    ("as many tasks as allowed", Seen(said=ERROR, tasks=20), "module", ("limit", "processes")),
    ("a full /tmp", Seen(said=ERROR, tmp_full=True), "module", ("limit", "tmp")),
    ("a full /tmp and a result", Seen(said=RESULT, tmp_full=True), "module", ("ok", None)),
    ("memory that RLIMIT_DATA refused", Seen(said=error(type="MemoryError")), "module", ("limit", "memory")),
    ("exit 0 without a result", Seen(exit=Exit(0, 0, 0)), "module", ("sandbox_error", "crashed")),
    ("exit 137 pretending to be a kill", Seen(exit=Exit(137, 0, 0)), "module", ("sandbox_error", "crashed")),
    ("the zygote went", Seen(), "module", ("sandbox_error", "crashed")),
    ("a command's success", Seen(exit=Exit(0, 0, 0)), "command", ("ok", None)),
    ("a command's failure", Seen(exit=Exit(3, 0, 0)), "command", ("tool_error", None)),
    ("a command's signal", Seen(exit=Exit(-11, 0, 0)), "command", ("sandbox_error", "crashed")),
    ("a program that is not there", Seen(said={"t": "exec-failed", "program": "x", "error": "none"}),
     "command", ("sandbox_error", "start")),
]  # fmt: skip


@pytest.mark.promise("isolate:verdict-from-the-host")
@pytest.mark.parametrize(
    ("seen", "kind", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)
def test_the_verdict_follows_what_the_host_saw(
    seen: Seen, kind: str, expected: tuple[str, str | None]
) -> None:
    verdict = judge(seen, kind=kind, cpu_s=1.0, processes=20)
    assert (verdict.outcome, verdict.reason) == expected


def test_a_result_is_carried_whole_and_nothing_else_is_claimed() -> None:
    assert judge(Seen(said=RESULT), kind="module", cpu_s=1, processes=2) == Verdict(
        "ok", None, None, value={"a": 1}
    )


def test_an_error_is_carried_as_text_of_bounded_length_whatever_its_type() -> None:
    said = error(type=["not", "text"], message="x" * 100_000, trace=None, kind="import")
    verdict = judge(Seen(said=said), kind="module", cpu_s=1, processes=2)
    assert verdict.error == {"type": "Error", "message": "x" * 65536, "trace": "", "during": "import"}


def test_a_crash_names_its_signal() -> None:
    verdict = judge(Seen(exit=Exit(-11, 0.0, 0)), kind="module", cpu_s=1, processes=2)
    assert (verdict.signal, verdict.message) == ("SIGSEGV", "the tool's process was ended by SIGSEGV")
