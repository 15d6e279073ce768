"""How a call ended, decided from what the host saw: one pure function over one record.

Precedence: what the host stopped (time, output, events, memory watcher), what the kernel counted (memory,
processes, CPU time, full /tmp), what the process did (signal, exit code), and only then what the tool said.
The child's words are never a fact about any of the others.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fumehood.isolate._cgroups import Counters
from fumehood.isolate._zygote import Exit

Outcome = Literal["ok", "tool_error", "limit", "sandbox_error"]


@dataclass(slots=True)
class Seen:
    """What the host saw of one call.

    `stopped`: the limit for which the host itself killed the tree, if it did. `full_grant`: what to do about
    a granted folder that has no room left. `lingers`: it is killed and was not seen gone in time.
    """

    stopped: str | None = None
    protocol_fault: str | None = None
    said: Mapping[str, Any] | None = None
    exit: Exit | None = None
    counters: Counters = field(default_factory=Counters)
    tasks: int = 0
    tmp_full: bool = False
    full_grant: str | None = None
    lingers: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome and reason (contract section 3), a sentence for people, and the tool's own value or error."""

    outcome: Outcome
    reason: str | None
    message: str | None
    value: Any = None
    error: Mapping[str, Any] | None = None
    signal: str | None = None


def judge(seen: Seen, *, kind: str, cpu_s: float, processes: int) -> Verdict:
    """The verdict on one call.

    kind: "module" or "command"; cpu_s, processes: the limits that were in force.
    """
    if seen.stopped is not None:
        return Verdict("limit", seen.stopped, _LIMIT_TEXT[seen.stopped])
    if seen.counters.memory_kills:
        return Verdict("limit", "memory", _LIMIT_TEXT["memory"])
    said = seen.said
    if said is not None and said["t"] == "result":
        return Verdict("ok", None, None, value=said.get("value"))
    if said is None and seen.exit is not None and _killed_for_cpu(seen.exit, cpu_s):
        return Verdict("limit", "cpu", _LIMIT_TEXT["cpu"])
    if seen.protocol_fault is not None:
        return Verdict(
            "sandbox_error", "protocol", f"the tool's process broke the protocol: {seen.protocol_fault}"
        )
    failed = said is not None or seen.exit is None or seen.exit.code != 0
    if failed and (limit := _counted_limit(seen, processes)) is not None:
        return Verdict("limit", limit, _LIMIT_TEXT[limit], error=_error(said))
    if said is not None and said["t"] == "exec-failed":
        program, why = _text(said.get("program"), "", 4096), _text(said.get("error"), "", 4096)
        text = f"the program {program!r} cannot be run inside the sandbox: {why}"
        return Verdict("sandbox_error", "start", text)
    hint = {"hint": seen.full_grant} if seen.full_grant is not None else {}
    if said is not None:
        return Verdict("tool_error", None, None, error={**(_error(said) or {}), **hint})
    if kind == "command" and seen.exit is not None and seen.exit.code == 0:
        return Verdict("ok", None, None)
    if kind == "command" and seen.exit is not None and seen.exit.code > 0:
        text = f"the program ended with code {seen.exit.code}"
        error = {"type": "ExitCode", "message": text, "code": seen.exit.code, **hint}
        return Verdict("tool_error", None, text, error=error)
    return _crashed(seen.exit, seen.lingers)


def _crashed(exit_: Exit | None, lingers: bool) -> Verdict:
    if lingers:
        told = "the tool's process was killed and was not seen gone in time; it hangs in the kernel"
        return Verdict("sandbox_error", "crashed", told)
    if exit_ is None:
        return Verdict("sandbox_error", "crashed", "the tool's zygote ended during the call")
    told = f"the tool's process {how_ended(exit_)}"
    if exit_.code < 0:
        return Verdict("sandbox_error", "crashed", told, signal=_signal_name(-exit_.code))
    return Verdict("sandbox_error", "crashed", f"{told} before it returned a result")


def how_ended(exit_: Exit) -> str:
    """How a process ended, in words that follow its name."""
    if exit_.code < 0:
        return f"was ended by {_signal_name(-exit_.code)}"
    return f"ended with code {exit_.code}"


def _killed_for_cpu(exit_: Exit, cpu_s: float) -> bool:
    # The kernel's limit counts ticks and the report counts microseconds: on a busy machine they differ.
    least = {-signal.SIGXCPU: 0.5, -signal.SIGKILL: 0.95}.get(exit_.code)
    return least is not None and exit_.cpu_s >= least * cpu_s


def _counted_limit(seen: Seen, processes: int) -> str | None:
    """The limit behind a failure, when a counter of the kernel's says there was one."""
    said = seen.said or {}
    if seen.counters.refused_forks or seen.tasks >= processes:
        return "processes"
    if seen.tmp_full:
        return "tmp"
    if said.get("type") == "MemoryError":
        # RLIMIT_DATA refused the memory. The word is the child's, and harmless: it could have used the memory
        # up as well.
        return "memory"
    return None


def _error(said: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if said is None:
        return None
    return {
        "type": _text(said.get("type"), "Error", 200),
        "message": _text(said.get("message"), "", 65536),
        "trace": _text(said.get("trace"), "", 65536),
        "during": "import" if said.get("kind") == "import" else "run",
    }


def _text(value: Any, default: str, cap: int) -> str:
    return value[:cap] if isinstance(value, str) else default


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


_LIMIT_TEXT = {
    "timeout": "the call did not end within its wall time and was killed with everything it had started",
    "cpu": "the call used up its CPU time",
    "memory": "the call used more memory than it may",
    "processes": "the call wanted more processes or threads than it may have",
    "output": "the call sent more output than it may (result, stdout, stderr, events and log lines together)",
    "tmp": "the call filled its private /tmp or /dev/shm",
    "events": "the call emitted more events than it may",
}
