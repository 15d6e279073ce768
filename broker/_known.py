"""What was decided in one call, remembered, so that the next message of a kept connection is not judged from
nothing.

Guarantees: what comes out is what `_decide.py` would say now. Its functions are pure, and a remembered result
is used only for the very policy object, an equal request, equal answers and the very set of own addresses
that it was computed from. Bounded in number and size; never shared between calls.
"""

from __future__ import annotations

from dataclasses import dataclass

from fumehood.broker._addresses import Address
from fumehood.broker._decide import decide, match, tunnel_rules
from fumehood.broker._types import Answers, EgressDecision, EgressPolicy, EgressRequest, Match
from fumehood.policies.rules import EgressRule

MAX_KNOWN = 256  # requests of one call that are remembered
MAX_TEXT = 512  # characters of path and query of one that is


@dataclass(slots=True)
class Known:
    """Results for one request under one policy."""

    policy: EgressPolicy
    request: EgressRequest
    matched: Match
    answers: Answers | None = None
    own: frozenset[Address] = frozenset()
    decision: EgressDecision | None = None
    tunnel: tuple[EgressRule, ...] | None = None

    def decide(self, answers: Answers, own: frozenset[Address]) -> EgressDecision:
        """What `decide` says of these answers."""
        if self.decision is None or self.answers != answers or self.own is not own:
            self.decision = decide(self.policy, self.request, answers, own, matched=self.matched)
            self.answers, self.own = answers, own
        return self.decision

    @property
    def tunnel_rules(self) -> tuple[EgressRule, ...]:
        """What `tunnel_rules` says."""
        if self.tunnel is None:
            self.tunnel = tunnel_rules(self.policy.allow, self.request)
        return self.tunnel


class Decisions:
    """The memory of one call."""

    def __init__(self) -> None:
        self._known: dict[EgressRequest, Known] = {}

    def __len__(self) -> int:
        return len(self._known)

    def of(self, policy: EgressPolicy, request: EgressRequest) -> Known:
        """What is known of `request` under `policy`; asked of `match` when it is not."""
        known = self._known.get(request)
        if known is not None and known.policy is policy:
            return known
        known = Known(policy, request, match(policy, request))
        if len(request.target.path) + len(request.target.query or "") <= MAX_TEXT:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[request] = known
        return known
