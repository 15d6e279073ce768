"""What one row of the event log is, and how its hash is taken.

An event is a fact that the host observed: never a tool's own claim about itself, except inside `data` of a
TOOL_EVENT. The hash covers every other column including `prev`, so each row vouches for all rows before it.
`row_text` is the exact text that is hashed; docs/log.md repeats it for people who verify without this code,
and a test keeps the two equal. Change it only with a new schema version.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as _quote
from typing import Final

from fumehood.agent._canonical import canonical

EVENT_KINDS: Final = frozenset(
    {
        "HOST_STARTED",
        "POLICY_LOADED",
        "CALL_STARTED",
        "CALL_ENDED",
        "TOOL_EVENT",
        "EGRESS_ALLOWED",
        "EGRESS_DENIED",
        "EGRESS_CLOSED",
        "STEP_STARTED",
        "STEP_COMPLETED",
        "STEP_FAILED",
        "APPROVAL_REQUESTED",
        "APPROVAL_DECIDED",
        "LLM_REASONING_CAPTURED",
        "CONTENT_STORED",
        "CONTENT_ERASED",
        "SANDBOX_VIOLATION",
    }
)
"""The kinds of contract.md section 7. The log takes any kind of that form, so an application can add its own.
"""

GENESIS: Final = "0" * 64
"""`prev` of the first row."""


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event that is not in the log yet. kind: upper case words; data: a JSON object or other
    JSON value.
    """

    kind: str
    data: Mapping[str, object]
    execution_id: str | None = None
    call_id: str | None = None
    step_id: str | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """One row. seq counts from 1 without holes; id is unique and sorts by time; at is UTC,
    microseconds, "Z".
    """

    seq: int
    id: str
    execution_id: str | None
    call_id: str | None
    step_id: str | None
    at: str
    kind: str
    data: object
    prev: str
    hash: str

    def as_dict(self) -> dict[str, object]:
        """The row as the JSON object of contract.md section 7, keys in that order."""
        return {
            "seq": self.seq,
            "id": self.id,
            "execution_id": self.execution_id,
            "call_id": self.call_id,
            "step_id": self.step_id,
            "at": self.at,
            "kind": self.kind,
            "data": self.data,
            "prev": self.prev,
            "hash": self.hash,
        }


def row_text(
    *,
    seq: int,
    id_: str,
    execution_id: str | None,
    call_id: str | None,
    step_id: str | None,
    at: str,
    kind: str,
    data_text: str,
    prev: str,
) -> str:
    """The canonical JSON text of a row without its hash; `data_text` is the canonical text of its data.

    Built by hand with the keys already in order, so that a stored `data` text is hashed as it stands and
    never parsed first.
    """
    execution = "null" if execution_id is None else _quote(execution_id)
    call = "null" if call_id is None else _quote(call_id)
    step = "null" if step_id is None else _quote(step_id)
    return (
        f'{{"at":{_quote(at)},"call_id":{call},"data":{data_text},"execution_id":{execution},"id":{_quote(id_)},'
        f'"kind":{_quote(kind)},"prev":{_quote(prev)},"seq":{seq},"step_id":{step}}}'
    )


def row_hash(text: str) -> str:
    """SHA-256 of a row's text, in lower-case hex."""
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def event_hash(event: Event) -> str:
    """The hash an event must have, from its parsed fields: what someone holding only an export can
    recompute.
    """
    return row_hash(
        row_text(
            seq=event.seq,
            id_=event.id,
            execution_id=event.execution_id,
            call_id=event.call_id,
            step_id=event.step_id,
            at=event.at,
            kind=event.kind,
            data_text=canonical(event.data),
            prev=event.prev,
        )
    )
