"""Folding an execution's rows to its state.

Guarantees: a pure function of the rows; the same rows give the same state on any machine, and rows of unknown
kinds change nothing but the count, so that a newer log still folds. Egress refusals are kept under
variables["_egress"] in log order (R023). Captured reasoning is evidence beside the state and never part of it
(R338). Does not run, resolve or fetch anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from fumehood.agent._events import Event


@dataclass(frozen=True, slots=True)
class CallState:
    """One tool call: outcome and reason are None until CALL_ENDED."""

    call_id: str
    tool: str | None
    started_at: str | None
    ended_at: str | None = None
    outcome: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class StepState:
    """One journalled step. status: "started" | "completed" | "failed"; attempts: how often it was started;
    value: the last data.
    """

    step_id: str
    status: str
    attempts: int
    value: object = None


@dataclass(frozen=True, slots=True)
class ExecutionState:
    """What an execution's rows add up to. variables["_egress"]: one object per refusal, with event_id,
    call_id and at.
    """

    execution_id: str
    rows: int = 0
    last_seq: int = 0
    calls: Mapping[str, CallState] = field(default_factory=dict)
    steps: Mapping[str, StepState] = field(default_factory=dict)
    approvals: Mapping[str, object] = field(default_factory=dict)
    variables: Mapping[str, object] = field(default_factory=dict)


def fold(execution_id: str, events: Iterable[Event]) -> ExecutionState:
    """The state after `events`, which are one execution's rows in order."""
    calls: dict[str, CallState] = {}
    steps: dict[str, StepState] = {}
    approvals: dict[str, object] = {}
    refusals: list[object] = []
    rows = last_seq = 0
    for event in events:
        rows += 1
        last_seq = event.seq
        data: Mapping[str, object] = event.data if isinstance(event.data, Mapping) else {}
        match event.kind:
            case "CALL_STARTED" if event.call_id is not None:
                calls[event.call_id] = CallState(event.call_id, _text(data.get("tool")), event.at)
            case "CALL_ENDED" if event.call_id is not None:
                call = calls.get(event.call_id, CallState(event.call_id, _text(data.get("tool")), None))
                calls[event.call_id] = replace(
                    call,
                    ended_at=event.at,
                    outcome=_text(data.get("outcome")),
                    reason=_text(data.get("reason")),
                )
            case "EGRESS_DENIED":
                refusals.append({**data, "event_id": event.id, "call_id": event.call_id, "at": event.at})
            case "STEP_STARTED" if event.step_id is not None:
                before = steps.get(event.step_id)
                steps[event.step_id] = StepState(
                    event.step_id, "started", 1 if before is None else before.attempts + 1
                )
            case "STEP_COMPLETED" | "STEP_FAILED" if event.step_id is not None:
                status = "completed" if event.kind == "STEP_COMPLETED" else "failed"
                before = steps.get(event.step_id)
                steps[event.step_id] = StepState(
                    event.step_id, status, before.attempts if before else 1, event.data
                )
            case "APPROVAL_REQUESTED" | "APPROVAL_DECIDED" if event.call_id is not None:
                approvals[event.call_id] = event.data
            case _:
                pass
    return ExecutionState(execution_id, rows, last_seq, calls, steps, approvals, {"_egress": refusals})


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
