"""What an approval is for, and that it is used once.

Guarantees: an approval is for one call of one step of one run, with its place in the turn, tool, exact
arguments and the taint of what led to it (R492); a change of any of them is another approval. A rule that
approves by itself is not asked about tainted calls unless it was made for them (A22), nor about a call whose
arguments could not be read (E15). Each decision is used once: the row that starts the call cites it, and of
several such rows the first holds it, on any number of hosts. Does not ask anybody: what is open is read from
the log, and so is what was decided.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fumehood.agent._arguments import failure_of
from fumehood.agent._canonical import ValueNotJson, canonical
from fumehood.agent._deep_json import unwritable
from fumehood.agent._events import Event
from fumehood.agent._parts import ToolUsePart
from fumehood.agent._taint import taint_origins


@dataclass(frozen=True, slots=True)
class Approval:
    """One call that somebody is asked about. digest: SHA-256 of the arguments' canonical text, hex. taint:
    the origins of everything tainted that the call rests on, its arguments and the transcript before it.
    """

    run: str
    step: str
    call_id: str
    position: int
    tool: str
    digest: str
    taint: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, run: str, step: str, call: ToolUsePart, *, position: int = 0, context: object = ()
    ) -> Approval:
        """The approval that a call needs.

        step: the model step that asked for it, and position: its place among the calls of that turn; ids may
        repeat. context: what the model had read, of which the marks count; messages as JSON. Raises:
        ValueNotJson when the arguments have no text of their own: such a call is refused (R191).
        """
        if (fault := unwritable(call.input, "input")) is not None:
            raise ValueNotJson(*fault)
        # Not cleaned first: two inputs that the log would write alike are still two approvals.
        words = canonical(call.input)
        taint = sorted({*taint_origins(call.input), *taint_origins(context)})
        return cls(run, step, call.id, position, call.name, _digest(words), tuple(taint))

    @property
    def key(self) -> str:
        """The name of this very approval, hex."""
        return _digest(canonical(self.to_json()))

    def to_json(self) -> dict[str, Any]:
        """For the row APPROVAL_REQUESTED, under `approval`, with the key beside it."""
        return {
            "run": self.run,
            "step": self.step,
            "call_id": self.call_id,
            "position": self.position,
            "tool": self.tool,
            "digest": self.digest,
            "taint": list(self.taint),
        }


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("ascii")).hexdigest()


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided. by: who, for people; used_by: the event that started the call with it, or None."""

    approved: bool
    by: str | None = None
    used_by: str | None = None


@dataclass(slots=True)
class ApprovalBook:
    """The approvals of a log, folded from its rows: APPROVAL_REQUESTED `{key, approval}`, APPROVAL_DECIDED
    `{key, approved, by?}`, CALL_STARTED with `approval` (a key).
    """

    requested: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _decided: dict[str, tuple[bool, str | None]] = field(default_factory=dict)
    _used: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, events: Iterable[Event]) -> ApprovalBook:
        """The book of these rows, in their order. The first decision counts, and the first use."""
        book = cls()
        for event in events:
            data = event.data if isinstance(event.data, dict) else {}
            key = data.get("approval" if event.kind == "CALL_STARTED" else "key")
            if not isinstance(key, str):
                continue
            if event.kind == "APPROVAL_REQUESTED":
                book.requested.setdefault(key, data)
            elif event.kind == "APPROVAL_DECIDED" and key in book.requested:
                by = data.get("by")
                book._decided.setdefault(
                    key, (data.get("approved") is True, by if isinstance(by, str) else None)
                )
            elif event.kind == "CALL_STARTED":
                book._used.setdefault(key, event.id)
        return book

    @property
    def open(self) -> tuple[str, ...]:
        """The keys that wait for a decision, in the order they were asked."""
        return tuple(key for key in self.requested if key not in self._decided)

    def decision(self, approval: Approval) -> Decision | None:
        """What was decided about exactly this approval; None when nothing was."""
        found = self._decided.get(approval.key)
        return None if found is None else Decision(*found, self._used.get(approval.key))

    def may_run(self, approval: Approval, *, started: str | None = None) -> bool:
        """Whether the call may run now.

        started: the id of the row that starts it, once that is on the log; the call runs only when this says
        yes again then, because another host may have started it with the same approval.
        """
        found = self.decision(approval)
        return found is not None and found.approved and found.used_by == started


def approved_by_rule(
    rule: Callable[[Approval, Any], bool], approval: Approval, call: ToolUsePart, *, tainted_too: bool = False
) -> bool:
    """Whether a rule approves a call by itself. tainted_too: the rule was made for calls that rest on tainted
    content; any other is not asked about them, and no rule about arguments that could not be read.
    """
    if failure_of(call.input) is not None or (approval.taint and not tainted_too):
        return False
    return rule(approval, call.input) is True
