"""The rows that egress leaves in the event log, with fixed field names.

Guarantees: EGRESS_ALLOWED and EGRESS_DENIED are on disk when `record` returns, which is before the first byte
or the refusal; a row that nobody waits for (the end of a connection) goes with the next one that somebody
does, after NOTE_DELAY at the latest, and is on disk when `flush` returns, so before a call's end; a failure
that is no refusal of policy (`no-answer`, `upstream`) is EGRESS_CLOSED, so that counting denials counts
policy only. Never recorded: the query of a URL, header values, bodies, secrets.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from fumehood.broker._types import CallScope, EgressDecision, EgressRequest, Recorder

log = logging.getLogger("fumehood.broker")

ALLOWED, DENIED, CLOSED = "EGRESS_ALLOWED", "EGRESS_DENIED", "EGRESS_CLOSED"
NOT_A_REFUSAL = frozenset({"no-answer", "upstream"})
_MAX_TEXT = 512  # characters of anything the child chose that stand in a row
_SCHEME = re.compile(r"\s*(?:(?:https?|wss?|ftp|tcp|socks[45]h?a?):)?[/\\]*", re.IGNORECASE)
NOTE_DELAY = 0.02  # seconds that a row nobody waits for may stay in memory


class Row(NamedTuple):
    """One row as `record_many` of a log takes it."""

    kind: str
    data: Mapping[str, object]
    execution_id: str | None
    call_id: str | None
    step_id: str | None = None


class Rows:
    """The recorder as the broker uses it.

    A recorder with `record_many` commits the rows of one message together: one wait for the disk in place of
    two. One without gets each row by itself.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._many: Callable[[Sequence[Row]], Awaitable[list[str]]] = getattr(
            recorder, "record_many", self._one_by_one
        )
        self._noted: list[Row] = []
        self._is_timed = False
        self._under_way: set[asyncio.Future[None]] = set()

    async def record(self, kind: str, data: Mapping[str, object], scope: CallScope) -> str:
        """Write one row, and what was noted before it; returns its id once all are on disk."""
        row = Row(kind, data, scope.execution_id, scope.call_id)
        return (await self._write([*self._taken(), row]))[-1]

    def note(self, kind: str, data: Mapping[str, object], scope: CallScope) -> None:
        """Write one row soon, with the next one that is waited for."""
        self._noted.append(Row(kind, data, scope.execution_id, scope.call_id))
        if not self._is_timed:
            self._is_timed = True  # not taken back when the row goes earlier: most timers would be
            asyncio.get_running_loop().call_later(NOTE_DELAY, self._time_is_up)

    async def flush(self) -> None:
        """Return once every row so far is on disk, or failed and was logged."""
        self._due()
        if waiting := set(self._under_way):
            await asyncio.wait(waiting)

    def _time_is_up(self) -> None:
        self._is_timed = False
        self._due()

    def _due(self) -> None:
        if rows := self._taken():
            done = asyncio.ensure_future(self._alone(rows))
            self._under_way.add(done)
            done.add_done_callback(self._under_way.discard)

    async def _alone(self, rows: list[Row]) -> None:
        try:
            await self._many(rows)
        except Exception:  # nobody waits for these rows, so nobody else would hear of it
            log.exception("%d rows about ended connections were not written", len(rows))

    async def _write(self, rows: list[Row]) -> list[str]:
        if len(rows) == 1:
            return await self._many(rows)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way.add(done)
        try:
            return await self._many(rows)
        finally:
            self._under_way.discard(done)
            done.set_result(None)

    def _taken(self) -> list[Row]:
        rows, self._noted = self._noted, []
        return rows

    async def _one_by_one(self, rows: Sequence[Row]) -> list[str]:
        return [
            await self._recorder.record(
                row.kind, row.data, execution_id=row.execution_id, call_id=row.call_id
            )
            for row in rows
        ]


def loggable(text: str) -> str:
    """A URL or address that a tool or a peer wrote, without what could be a credential: user and query."""
    return re.sub(r"\?.*", "?…", _without_user(text), flags=re.DOTALL)


def loggable_fault(what: str, text: str) -> str:
    """What is wrong with `text`: without what the sentence quotes, where that may hold a user or a query."""
    if "@" in what or "?" in what or loggable(text) != text:
        return re.sub(r"['\"].*(?:['\"]|$)", "…", what, flags=re.DOTALL)
    return what


def _without_user(text: str) -> str:
    """The text without a user name and password, in whatever spelling some parser would find them.

    An @ behind the host is part of a path; behind a "port" that is none it ends a password with a slash.
    """
    start = _SCHEME.match(text)
    assert start is not None
    rest = text[start.end() :]
    host = re.split(r"[/\\?#]", rest, maxsplit=1)[0]
    at = host.rfind("@")
    if at < 0 and re.search(r":(?![0-9]{1,5}$)", host):
        at = rest.rfind("@")
    return text if at < 0 else f"{start[0]}…{rest[at:]}"


def cut_off(text: str) -> dict[str, object]:
    """What a row says of a text that it does not hold whole: its length and its hash. {} for a short one."""
    if len(text) <= _MAX_TEXT:
        return {}
    return {"length": len(text), "sha256": hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()}


async def record_decision(
    rows: Rows,
    scope: CallScope,
    decision: EgressDecision,
    *,
    request: EgressRequest | None,
    door: str,
    extra: Mapping[str, object] | None = None,
) -> str:
    """Write the row of a decision; returns its id once it is on disk."""
    target, text = decision.target, decision.text
    data: dict[str, object] = {
        "door": door,
        "tool": scope.tool,
        "principal": scope.principal,
        "outcome": decision.outcome,
        "reason": decision.reason,
        "scheme": target.scheme if target else None,
        "host": decision.host,
        "port": decision.port,
        "method": request.method if request else None,
        "path": target.path[:_MAX_TEXT] if target and not text and target.scheme != "tunnel" else None,
        **(cut_off(target.path) if target and not text else {}),
        "rule": decision.rule_text,
        "where": decision.rule.where if decision.rule else None,
        "owner": decision.owner,
        "source": decision.source,
        "answers": [address.text for address in decision.answers],
        "chain": list(decision.chain),
        "pinned": decision.pinned,
        "hint": decision.hint or None,
        "detail": decision.detail[:_MAX_TEXT] or None,
    }
    if decision.would_deny is not None:
        data["would_deny"] = decision.would_deny
    if target is None or text:
        data["text"] = text[:_MAX_TEXT].encode("utf-8", "backslashreplace").decode("utf-8")
        data |= cut_off(text)
    data.update(extra or {})
    if decision.outcome == "allow":
        kind = ALLOWED
    else:
        kind = CLOSED if decision.reason in NOT_A_REFUSAL else DENIED
    return await rows.record(kind, data, scope)


def row_of(decision: EgressDecision, event_id: str) -> dict[str, object]:
    """The entry for the "egress" list of a result (contract section 3)."""
    row: dict[str, object] = {
        "outcome": decision.outcome,
        "reason": decision.reason,
        "host": decision.host,
        "port": decision.port,
        "rule": decision.rule_text,
        "pinned": decision.pinned,
        "event_id": event_id,
    }
    if decision.would_deny is not None:
        row["would_deny"] = decision.would_deny
    return row
