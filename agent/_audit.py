"""Reading captured reasoning back, for an audit.

Guarantees: events of the log are joined to their blobs, each digest is checked, and each part says what
became of it: "ok", "redacted" (withheld by the vendor, never text), "erased" or "digest-mismatch", which is
also what a blob of another execution reads as (R352 to R354, R358). Readable text comes back marked as
untrusted, because reasoning can repeat an injected instruction word for word (R355). Bounded reading selects
before it reads, and the sizes in the events decide what is fetched, so nothing past a cap is read (R360 to
R362). Flows get no accessor: this is for audits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Protocol

from fumehood.agent._events import Event
from fumehood.agent._reasoning import SealedStore
from fumehood.agent._redact import RedactionPolicy
from fumehood.agent._seal import text_digest, unseal
from fumehood.agent._sqlite import StorageError
from fumehood.agent._store import ContentMissing
from fumehood.agent._taint import TaintedJson, origin_of, tainted, unwrap_tainted

REASONING_RESPONSE_MAX_PARTS: Final = 256
"""Parts that one bounded answer holds."""

REASONING_RESPONSE_MAX_BYTES: Final = 1_048_576
"""Bytes of readable text that one bounded answer holds."""

Status = Literal["ok", "redacted", "erased", "digest-mismatch"]


class ReadableLog(Protocol):
    """What the reader needs of an event log."""

    def events(
        self,
        execution_id: str | None = None,
        call_id: str | None = None,
        after: int = 0,
        limit: int | None = None,
    ) -> Iterator[Event]: ...


@dataclass(frozen=True, slots=True)
class ReadPart:
    """One captured part. text: marked as untrusted, only when status is "ok". recorded: whether
    this attempt's value became the step's. scrubbed: places that a redaction policy took out.
    """

    step_id: str | None
    attempt: int
    kind: str
    status: Status
    text: TaintedJson | None = None
    ref: str | None = None
    digest: str | None = None
    size: int | None = None
    provider: str | None = None
    model: str | None = None
    recorded: bool = True
    scrubbed: int = 0


@dataclass(frozen=True, slots=True)
class ReadReasoning:
    """The parts in log order, and whether a cap cut them off."""

    parts: tuple[ReadPart, ...]
    truncated: bool = False


def read_reasoning(
    log: ReadableLog,
    store: SealedStore,
    *,
    execution_id: str,
    step_id: str | None = None,
    redact: RedactionPolicy | None = None,
) -> ReadReasoning:
    """Everything captured for an execution, or one step of it. redact: taken out of each text before it is
    handed on (R298). Raises: StorageError when log or store cannot be read.
    """
    found = _read(log, store, execution_id, step_id=step_id, step_prefix=None, max_parts=None, max_bytes=None)
    return _scrubbed(found, redact)


def read_reasoning_bounded(
    log: ReadableLog,
    store: SealedStore,
    *,
    execution_id: str,
    step_id: str | None = None,
    step_prefix: str | None = None,
    max_parts: int = REASONING_RESPONSE_MAX_PARTS,
    max_bytes: int = REASONING_RESPONSE_MAX_BYTES,
    redact: RedactionPolicy | None = None,
) -> ReadReasoning:
    """The first parts in log order within the caps; for endpoints. Selection by step comes before
    any read of the store.
    """
    found = _read(
        log,
        store,
        execution_id,
        step_id=step_id,
        step_prefix=step_prefix,
        max_parts=max_parts,
        max_bytes=max_bytes,
    )
    return _scrubbed(found, redact)


def _scrubbed(found: ReadReasoning, redact: RedactionPolicy | None) -> ReadReasoning:
    if redact is None:
        return found
    parts = []
    for part in found.parts:
        if part.text is not None:
            text, places = redact.scrub(str(unwrap_tainted(part.text)))
            part = replace(part, text=tainted(text, origin_of(part.text)), scrubbed=part.scrubbed + places)
        parts.append(part)
    return replace(found, parts=tuple(parts))


def _read(
    log: ReadableLog,
    store: SealedStore,
    execution_id: str,
    *,
    step_id: str | None,
    step_prefix: str | None,
    max_parts: int | None,
    max_bytes: int | None,
) -> ReadReasoning:
    events = [
        event
        for event in log.events(execution_id=execution_id)
        if event.kind == "LLM_REASONING_CAPTURED"
        and isinstance(event.data, dict)
        and _wanted(event.data, step_id, step_prefix)
    ]
    last = {event.data["step_id"]: event.seq for event in events if isinstance(event.data, dict)}
    parts: list[ReadPart] = []
    left = max_bytes
    for event in events:
        data: Any = event.data
        for told in data.get("parts") or ():
            if max_parts is not None and len(parts) >= max_parts:
                return ReadReasoning(tuple(parts), True)
            size = told.get("size") or 0
            if left is not None and size > left:
                return ReadReasoning(tuple(parts), True)
            part = _part(told, data, store, execution_id, recorded=last[data["step_id"]] == event.seq)
            if part.status == "ok" and left is not None:
                left -= size
            parts.append(part)
    return ReadReasoning(tuple(parts))


def _wanted(data: dict[str, Any], step_id: str | None, step_prefix: str | None) -> bool:
    step = data.get("step_id")
    return (step_id is None or step == step_id) and (step_prefix is None or str(step).startswith(step_prefix))


def _part(
    told: dict[str, Any], data: dict[str, Any], store: SealedStore, execution_id: str, *, recorded: bool
) -> ReadPart:
    ref, digest = told.get("ref"), told.get("digest")
    status, text = _status(ref, digest, store, execution_id, str(data.get("step_id")))
    return ReadPart(
        step_id=data.get("step_id"),
        attempt=data.get("attempt") or 1,
        kind=str(told.get("kind")),
        status=status,
        text=text,
        ref=ref,
        digest=digest,
        size=told.get("size"),
        provider=data.get("provider"),
        model=data.get("model"),
        recorded=recorded,
        scrubbed=told.get("scrubbed") or 0,
    )


def _status(
    ref: str | None, digest: str | None, store: SealedStore, execution_id: str, step_id: str
) -> tuple[Status, TaintedJson | None]:
    if ref is None:
        return "redacted", None
    try:
        text = unseal(store.get(ref), execution_id)
    except ContentMissing:
        return "erased", None
    except StorageError:
        return "digest-mismatch", None
    if text is None or text_digest(text) != digest:
        return "digest-mismatch", None
    return "ok", tainted(text, f"llm-reasoning:{step_id}")
