"""The rows that egress leaves in the event log, with fixed field names.

Guarantees: EGRESS_ALLOWED and EGRESS_DENIED are on disk when `record` returns, which is before the first byte
or the refusal; a failure that is no refusal of policy (`no-answer`, `upstream`) is EGRESS_CLOSED, so that
counting denials counts policy only. Never recorded: the query of a URL, header values, bodies, secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from fumehood.broker._types import CallScope, EgressDecision, EgressRequest, Recorder

ALLOWED, DENIED, CLOSED = "EGRESS_ALLOWED", "EGRESS_DENIED", "EGRESS_CLOSED"
NOT_A_REFUSAL = frozenset({"no-answer", "upstream"})
_MAX_TEXT = 512  # characters of anything the child chose that stand in a row


def loggable(text: str) -> str:
    """Text that a tool or a peer wrote, without what could be a credential:

    user names and queries are left out.
    """
    text = re.sub(r"(?<=//)[^/?#\s]*@", "…@", text[: 4 * _MAX_TEXT])
    return re.sub(r"\?[^\s'\"]*", "?…", text)


async def record_decision(
    recorder: Recorder,
    scope: CallScope,
    decision: EgressDecision,
    *,
    request: EgressRequest | None,
    door: str,
    extra: Mapping[str, object] | None = None,
) -> str:
    """Write the row of a decision; returns its id once it is on disk."""
    target = decision.target
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
        "path": target.path[:_MAX_TEXT] if target and target.scheme != "tunnel" else None,
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
    if target is None:
        data["text"] = decision.text[:_MAX_TEXT].encode("utf-8", "backslashreplace").decode("utf-8")
    data.update(extra or {})
    if decision.outcome == "allow":
        kind = ALLOWED
    else:
        kind = CLOSED if decision.reason in NOT_A_REFUSAL else DENIED
    return await recorder.record(kind, data, execution_id=scope.execution_id, call_id=scope.call_id)


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
