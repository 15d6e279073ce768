"""The values that cross the broker's borders: scope, policy, request, answers, match, decision.

Guarantees: all frozen; a decision always carries outcome, reason, rule, owner and source, never a bare bool.
Not here: any behaviour beyond turning a decision into the row that a result and the log show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from fumehood.broker._addresses import Address
from fumehood.broker._target import Target, readable
from fumehood.policies.errors import PolicyDenied
from fumehood.policies.reasons import reason as reason_of
from fumehood.policies.rules import EgressRule

Door = Literal["fetch", "transparent", "proxy", "test"]
Source = Literal[
    "grammar",
    "host-deny",
    "tool-deny",
    "allow-list",
    "audit",
    "resolver",
    "address-table",
    "budget",
    "upstream",
    "call",
]


class Recorder(Protocol):
    """The event log, as far as the broker needs it."""

    async def record(
        self,
        kind: str,
        data: Mapping[str, object],
        *,
        execution_id: str | None = None,
        call_id: str | None = None,
        step_id: str | None = None,
    ) -> str:
        """Write one event; returns its id once it is on disk."""


@dataclass(frozen=True, slots=True)
class CallScope:
    """Whose network this is: one tool call."""

    call_id: str
    execution_id: str | None
    tool: str
    principal: str | None = None


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    """What one tool may reach.

    allow, deny: its own entries. host_deny: entries no tool overrides. mode: "audit" allows what is merely
    unlisted and says so.
    owner: the tool's name, for messages. generation: counts reloads; connections of an older one are judged
    again.
    """

    allow: tuple[EgressRule, ...] = ()
    deny: tuple[EgressRule, ...] = ()
    mode: Literal["enforce", "audit"] = "enforce"
    owner: str = ""
    host_deny: tuple[EgressRule, ...] = ()
    generation: int = 0


@dataclass(frozen=True, slots=True)
class EgressRequest:
    """One thing that asks to go out. method: None for a tunnel, whose inside is not known yet."""

    target: Target
    method: str | None = None
    door: Door = "fetch"


@dataclass(frozen=True, slots=True)
class Answers:
    """What DNS said about one name.

    chain: the CNAMEs followed. error: why there are no addresses. ttl: seconds, over the whole chain.
    """

    addresses: tuple[Address, ...] = ()
    chain: tuple[str, ...] = ()
    error: str | None = None
    ttl: int = 0


@dataclass(frozen=True, slots=True)
class Match:
    """What the rules say before any DNS query.

    reason: None when the request may go on to resolution. would_deny: the reason it would have in enforce
    mode, in audit mode.
    hint: the near miss in plain words, empty when there is none. near: the entry that nearly matched.
    """

    rule: EgressRule | None
    reason: str | None
    source: Source
    owner: str
    hint: str = ""
    near: EgressRule | None = None
    would_deny: str | None = None


@dataclass(frozen=True, slots=True)
class EgressDecision:
    """The one decision, whichever door the request came by.

    outcome, reason: reason is None exactly when the outcome is "allow". rule: the entry that decided. owner:
    whose entry it is.
    vetted: the addresses that may be dialled, in order; pinned: the first of them. answers: everything DNS
    gave. source: which step decided.
    """

    outcome: Literal["allow", "deny"]
    reason: str | None
    target: Target | None
    rule: EgressRule | None
    owner: str
    source: Source
    answers: tuple[Address, ...] = ()
    chain: tuple[str, ...] = ()
    vetted: tuple[Address, ...] = ()
    hint: str = ""
    would_deny: str | None = None
    detail: str = ""
    text: str = field(default="", compare=False)

    @property
    def pinned(self) -> str | None:
        """The address that will be dialled first."""
        return self.vetted[0].text if self.vetted else None

    @property
    def host(self) -> str | None:
        """The canonical host; None when the request named none that could be read."""
        return self.target.host.text if self.target else None

    @property
    def port(self) -> int | None:
        return self.target.port if self.target else None

    @property
    def rule_text(self) -> str | None:
        return self.rule.text if self.rule else None


class EgressRefused(PolicyDenied):
    """A request did not go out, or was cut off; the row that says so is on disk already.

    decision: the refusal with its reason. event_id: the row. retry_after: seconds, for `budget-rate`.
    """

    def __init__(self, decision: EgressDecision, event_id: str, *, retry_after: float | None = None) -> None:
        assert decision.reason is not None
        words = reason_of(decision.reason)
        at = f"{decision.host}:{decision.port}" if decision.target else repr(decision.text[:200])
        detail = f" ({readable(decision.detail)})" if decision.detail else ""
        super().__init__(
            f"egress to {at} refused: {decision.reason}. {words.model}{detail}",
            reason=decision.reason,
            hint=decision.hint or None,
        )
        self.decision = decision
        self.event_id = event_id
        self.retry_after = retry_after
