"""The network of one tool call: every door of the call asks `authorize`, and every row of the call is kept
here.

Guarantees: nothing is resolved before the rules matched, nothing is dialled before the decision is on disk,
and nothing is decided once the call is closed (`no-call`). Connections belong to the call: none outlives it,
none is shared with another.
Not here: what a door does with a permit (_fetch.py and the other doors).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fumehood.broker._addresses import Address
from fumehood.broker._decide import match, refusal
from fumehood.broker._denials import Denials
from fumehood.broker._known import Decisions
from fumehood.broker._records import (
    CLOSED,
    DENIED,
    NOT_A_REFUSAL,
    loggable,
    loggable_fault,
    record_decision,
    row_of,
)
from fumehood.broker._target import BadTarget, Target
from fumehood.broker._types import (
    Answers,
    CallScope,
    Door,
    EgressDecision,
    EgressPolicy,
    EgressRefused,
    EgressRequest,
    Source,
)
from fumehood.policies.names import Host
from fumehood.policies.rules import EgressRule

if TYPE_CHECKING:
    from fumehood.broker._broker import Broker
    from fumehood.broker._exchange import Exchange
    from fumehood.broker._fetch import FetchReply, FetchStream
    from fumehood.broker._fetch_request import FetchRequest
    from fumehood.broker._transparent import NetSockets, TransparentDoor

MAX_ROWS = 1000  # rows kept for the result; the log has them all
MAX_IDLE = 32  # idle upstream connections kept by one call; an HTTP/2 child runs as many requests at once
KEEP_ALIVE = 30.0  # seconds an idle connection may be used again, less when the answer's TTL is shorter


@dataclass(slots=True)
class Permit:
    """An allowed decision that is on disk, and the counters of what happens under it."""

    decision: EgressDecision
    request: EgressRequest
    event_id: str
    row: dict[str, object]
    started: float
    ttl: int
    peer: Address | None = None
    sent: int = 0
    received: int = 0
    closed: bool = False
    counted: EgressRule | None = None  # whose budgets it holds a place of


class BrokerCall:
    """Handed out by `Broker.open_call`.

    rows: the "egress" list of the result. hosts: names and literals really reached, for the taint's origin.
    """

    def __init__(self, broker: Broker, scope: CallScope, policy: EgressPolicy) -> None:
        self._broker = broker
        self.scope = scope
        self.policy = policy
        self.rows: list[dict[str, object]] = []
        self.dropped_rows = 0
        self._hosts: dict[str, None] = {}
        self._open = True
        self._idle: list[tuple[float, tuple[str, str, int], int, Exchange]] = []
        self._closing: set[asyncio.Task[object]] = set()
        self._doors: list[TransparentDoor] = []
        self._denials = Denials(broker.rows, scope)
        self._decisions = Decisions()
        self._live: dict[object, tuple[Permit, Callable[[str, str], None]]] = {}
        self.slots = asyncio.Semaphore(broker.limits.parallel)

    def __repr__(self) -> str:
        state = "open" if self._open else "closed"
        counts = f"rows={len(self.rows)} idle={len(self._idle)}"
        return f"<BrokerCall {self.scope.tool} {self.scope.call_id} {state} {counts}>"

    @property
    def broker(self) -> Broker:
        return self._broker

    @property
    def hosts(self) -> tuple[str, ...]:
        """Hosts that a connection was really made to, in order of first use."""
        return tuple(self._hosts)

    async def fetch(self, request: FetchRequest) -> FetchReply:
        """Perform `ctx.fetch`: decide, pin, send, follow redirects, return the whole decoded body.

        Raises: EgressRefused; its row is on disk already.
        """
        from fumehood.broker._fetch import fetch

        return await fetch(self, request)

    @asynccontextmanager
    async def stream(self, request: FetchRequest) -> AsyncIterator[FetchStream]:
        """As `fetch`, with the decoded body in pieces as they arrive;

        server-sent events are not held back.
        """
        from fumehood.broker._fetch import open_stream

        async with open_stream(self, request) as reply:
            yield reply

    async def authorize(
        self, request: EgressRequest, *, extra: Mapping[str, object] | None = None, connection: bool = True
    ) -> Permit:
        """The way out for every door: rules, budget, DNS, judgement, row on disk; in this order.

        Raises: EgressRefused when any step says no.
        """
        if not self._open:
            raise await self.refuse(self._plain(request, "no-call", "call"), request, request.door, extra)
        policy = self.policy
        known = self._decisions.of(policy, request)
        matched = known.matched
        if matched.reason is not None:
            raise await self.refuse(refusal(request, matched), request, request.door, extra)
        # An inspected tunnel is only the way to its messages, and each of those is counted.
        counted = (
            matched.rule if not (request.method is None and matched.rule and matched.rule.inspect) else None
        )
        over = self._broker.budgets.enter(self.scope.tool, counted, connection=connection)
        if over is not None:
            decision = replace(
                refusal(request, replace(matched, reason="budget-rate")), source="budget", detail=over.what
            )
            raise await self.refuse(decision, request, request.door, extra, retry_after=over.retry_after)
        try:
            answers = await self._broker.resolver.resolve(request.target.host)
            decision = known.decide(answers, self._broker.own_addresses())
            if decision.outcome == "deny":
                raise await self.refuse(decision, request, request.door, extra)
            permit = await self._allow(decision, request, answers, extra, policy)
        except BaseException:  # raised on: the place is given back for whatever ended it, cancelling included
            if connection:
                self._broker.budgets.leave(self.scope.tool, counted)
            raise
        permit.counted = counted
        return permit

    def tunnel_rules(self, request: EgressRequest) -> tuple[EgressRule, ...]:
        """Every entry that lets this tunnel through, see `_decide.tunnel_rules`."""
        return self._decisions.of(self.policy, request).tunnel_rules

    async def _allow(
        self,
        decision: EgressDecision,
        request: EgressRequest,
        answers: Answers,
        extra: Mapping[str, object] | None,
        policy: EgressPolicy,
    ) -> Permit:
        event_id = await record_decision(
            self._broker.rows, self.scope, decision, request=request, door=request.door, extra=extra
        )
        row = row_of(decision, event_id)
        self._add_row(row)
        if not self._open:  # closed while the row was written: nothing goes out any more
            raise await self.refuse(self._plain(request, "no-call", "call"), request, request.door, extra)
        if self.policy is not policy and match(self.policy, request).reason is not None:
            raise await self.refuse(
                self._plain(request, "policy-changed", "call"), request, request.door, extra
            )
        return Permit(decision, request, event_id, row, time.monotonic(), answers.ttl)

    async def refuse(
        self,
        decision: EgressDecision,
        request: EgressRequest | None,
        door: Door,
        extra: Mapping[str, object] | None = None,
        *,
        retry_after: float | None = None,
    ) -> EgressRefused:
        """Put a refusal on disk and into the rows; returns the exception to raise."""
        return await self._refused(decision, request, door, extra, retry_after)

    async def _refused(
        self,
        decision: EgressDecision,
        request: EgressRequest | None,
        door: Door,
        extra: Mapping[str, object] | None,
        retry_after: float | None = None,
    ) -> EgressRefused:
        event_id = await self._denials.record(decision, request, door, extra)
        if event_id is not None:
            row = row_of(decision, event_id)
            self._add_row({**row, "port": (extra or {}).get("port", row["port"])})
        return EgressRefused(decision, event_id or self._denials.last, retry_after=retry_after)

    async def refuse_text(
        self,
        text: str,
        bad: BadTarget,
        door: Door,
        extra: Mapping[str, object] | None = None,
        *,
        at: Target | None = None,
    ) -> EgressRefused:
        """A refusal for text that names no target. at: where its connection leads, if known."""
        decision = EgressDecision(
            "deny",
            bad.reason,
            at,
            None,
            self.policy.owner,
            "grammar",
            detail=loggable_fault(bad.what, text),
            text=loggable(text),
        )
        return await self.refuse(decision, None, door, extra)

    async def refuse_name(self, host: Host, reason: str | None = None) -> EgressRefused:
        """A refusal for a name that was only looked up, on no particular port.

        reason: what the rules say when it is None.
        """
        asked = EgressRequest(Target("tunnel", host, 1), None, "transparent")
        matched = match(self.policy, asked)
        hint = matched.hint if matched.reason in ("not-listed", "denied-by-rule") else ""
        if reason is None:
            reason = matched.reason if matched.reason in ("denied-by-rule", "metadata") else "not-listed"
        elif reason == "no-call":
            matched, hint = replace(matched, rule=None, source="call"), ""
        decision = replace(refusal(asked, matched), reason=reason, hint=hint, detail="looked up")
        return await self._refused(decision, asked, "transparent", {"port": None})

    async def attach(self, sockets: NetSockets) -> None:
        """Serve the doors of this call's child: DNS, listeners by port, proxy. Attach before the call's frame
        is sent.

        The sockets are the call's from here on and are closed with it.
        """
        from fumehood.broker._transparent import TransparentDoor

        door = TransparentDoor(self, sockets)
        self._doors.append(door)
        await door.start()

    async def settle(self) -> None:
        """Have a row for everything that the child attempted by now."""
        for door in self._doors:
            await door.settle()

    def begin_watch(self, permit: Permit, end: Callable[[str, str], None]) -> object:
        """Until `end_watch` of what is returned, a policy change that refuses this permit, or the call's end,
        calls `end(reason, detail)`.
        """
        key = object()
        self._live[key] = (permit, end)
        return key

    def end_watch(self, key: object) -> None:
        """The permit is not in use any more."""
        del self._live[key]

    @contextmanager
    def watch(self, permit: Permit, end: Callable[[str, str], None]) -> Iterator[None]:
        """`begin_watch` and `end_watch` around a block."""
        key = self.begin_watch(permit, end)
        try:
            yield
        finally:
            self.end_watch(key)

    def update_policy(self, policy: EgressPolicy) -> int:
        """Judge by `policy` from now on, and end what it refuses with `policy-changed`;

        returns how many were ended.
        """
        self.policy = policy
        ended = 0
        for permit, end in list(self._live.values()):
            if match(policy, permit.request).reason is not None:
                end("policy-changed", "the new policy does not allow it")
                ended += 1
        return ended

    async def cut(self, permit: Permit, reason: str, detail: str, source: Source = "budget") -> EgressRefused:
        """End what a permit allowed, for a reason found later: rows first, then the exception to raise."""
        decision = replace(
            permit.decision,
            outcome="deny",
            reason=reason,
            source=source,
            detail=detail,
            hint="",
            would_deny=None,
        )
        event_id = permit.event_id
        if reason not in NOT_A_REFUSAL:
            event_id = await self._broker.rows.record(
                DENIED,
                {
                    "door": permit.request.door,
                    "tool": self.scope.tool,
                    "outcome": "deny",
                    "reason": reason,
                    "host": decision.host,
                    "port": decision.port,
                    "rule": decision.rule_text,
                    "pinned": decision.pinned,
                    "detail": detail,
                    "allowed_by": permit.event_id,
                },
                self.scope,
            )
        permit.row.update(outcome="deny", reason=reason)
        self._note_closed(permit, reason, detail)
        await self._broker.rows.flush()
        return EgressRefused(decision, event_id)

    def finished(self, permit: Permit, *, status: int | None = None) -> None:
        """Note the end of what a permit allowed;

        the row goes with the next one that somebody waits for, and before the call is closed.
        """
        self._note_closed(permit, None, None, status)

    def count_refusal(self, reason: str) -> None:
        """A refusal of a flood, which is counted in one row at the end of the call."""
        self._denials.count(reason)

    def later(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        """Run `work` beside the caller; `close` waits for it."""
        task: asyncio.Task[object] = asyncio.ensure_future(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        return task

    def reached(self, permit: Permit, peer: Address) -> None:
        """Note that a connection was made."""
        permit.peer = peer
        permit.row["pinned"] = peer.text
        if permit.decision.host is not None:
            self._hosts[permit.decision.host] = None

    def take_idle(self, target: Target, permit: Permit) -> Exchange | None:
        """An idle connection to this origin whose peer was vetted for this very request."""
        now = time.monotonic()
        for entry in list(self._idle):
            expires, origin, generation, exchange = entry
            usable = expires > now and generation == self.policy.generation and exchange.is_reusable
            if not usable:
                self._idle.remove(entry)
                self.later(exchange.aclose())
            elif origin == target.origin and exchange.stream.peer in permit.decision.vetted:
                self._idle.remove(entry)
                exchange.renew()
                return exchange
        return None

    def keep_idle(self, target: Target, permit: Permit, exchange: Exchange) -> None:
        """Keep a clean connection for the next request of this call, no longer than its answer lives."""
        lifetime = min(float(permit.ttl), KEEP_ALIVE) if not target.host.is_literal else KEEP_ALIVE
        if self._open and exchange.is_reusable and lifetime > 0 and len(self._idle) < MAX_IDLE:
            self._idle.append((time.monotonic() + lifetime, target.origin, self.policy.generation, exchange))
        else:
            self.later(exchange.aclose())

    async def close(self) -> None:
        """End the call's network:

        refuse what comes later, drop idle connections, write the rows that are due.
        """
        self._open = False
        for _, end in list(self._live.values()):
            end("no-call", "the call ended")
        for door in self._doors:
            await door.close()
        idle, self._idle = self._idle, []
        for _, _, _, exchange in idle:
            await exchange.aclose()
        while self._closing:
            await asyncio.gather(*self._closing, return_exceptions=True)
        await self._denials.close()
        await self._broker.rows.flush()
        self._broker.forget(self)

    def _note_closed(
        self, permit: Permit, reason: str | None, detail: str | None, status: int | None = None
    ) -> None:
        if permit.closed:
            return
        permit.closed = True
        self._broker.budgets.leave(self.scope.tool, permit.counted)
        self._broker.rows.note(
            CLOSED,
            {
                "door": permit.request.door,
                "tool": self.scope.tool,
                "host": permit.decision.host,
                "port": permit.decision.port,
                "allowed_by": permit.event_id,
                "peer": permit.peer.text if permit.peer else None,
                "sent": permit.sent,
                "received": permit.received,
                "ms": round((time.monotonic() - permit.started) * 1000, 3),
                "status": status,
                "reason": reason,
                "detail": detail,
            },
            self.scope,
        )

    def _add_row(self, row: dict[str, object]) -> None:
        if len(self.rows) < MAX_ROWS:
            self.rows.append(row)
        else:
            self.dropped_rows += 1

    def _plain(self, request: EgressRequest, reason: str, source: Source) -> EgressDecision:
        return EgressDecision("deny", reason, request.target, None, self.policy.owner, source)
