"""What a call remembers of its decisions: never other than what would be decided now, and never much."""

from __future__ import annotations

import itertools
from dataclasses import replace

from fumehood.broker import Answers, EgressRequest, decide
from fumehood.broker._addresses import parse_address
from fumehood.broker._decide import tunnel_rules
from fumehood.broker._known import MAX_KNOWN, MAX_TEXT, Decisions
from fumehood.broker._target import parse_authority, parse_url
from tests.broker.world import PUBLIC, policy

FIRST = policy("http://api.example.com", "https://api.example.com", "10.0.0.1:443 +private")
POLICIES = (FIRST, replace(FIRST, deny=policy("http://api.example.com/admin").allow), policy("*.example.com"))
ONE, OTHER = parse_address(PUBLIC), parse_address("10.0.0.1")
ANSWERS = (Answers((ONE,), ttl=5), Answers((OTHER,)), Answers((ONE, OTHER)), Answers(error="none"))
OWN = (frozenset([parse_address("192.0.2.1")]), frozenset([ONE]))
ASKED = (
    *(
        EgressRequest(parse_url(f"http://{host}.example.com/{path}"), method, "fetch")
        for host, path, method in itertools.product(("api", "b"), ("", "admin"), ("GET", "POST"))
    ),
    EgressRequest(parse_authority("api.example.com:443"), None, "proxy"),
    EgressRequest(parse_authority("10.0.0.1:443"), None, "proxy"),
)


def test_a_remembered_decision_is_the_one_that_would_be_taken_now() -> None:
    """Policy, answers and own addresses change one after the other, back and forth."""
    decisions, verdicts = Decisions(), set()
    for rules, said, own, request in itertools.product((*POLICIES, *POLICIES[:2]), ANSWERS, OWN, ASKED):
        known = decisions.of(rules, request)
        fresh = decide(rules, request, said, own)
        assert known.decide(said, own) == fresh == known.decide(said, own)
        assert known.tunnel_rules == tunnel_rules(rules.allow, request)
        verdicts.add((fresh.outcome, fresh.reason))
    assert len(decisions) == len(ASKED)
    assert verdicts == {
        ("allow", None), ("deny", "denied-by-rule"), ("deny", "not-listed"), ("deny", "not-public"),
        ("deny", "mixed-answers"), ("deny", "no-answer"), ("deny", "scheme"),
    }  # fmt: skip


def test_a_flood_of_requests_is_forgotten_and_long_ones_are_never_kept() -> None:
    decisions = Decisions()
    for number in range(3 * MAX_KNOWN):
        decisions.of(FIRST, EgressRequest(parse_url(f"http://api.example.com/{number}"), "GET", "fetch"))
        assert len(decisions) <= MAX_KNOWN
    decisions = Decisions()
    for long in (f"{'x' * MAX_TEXT}", f"?{'x' * MAX_TEXT}"):
        decisions.of(FIRST, EgressRequest(parse_url(f"http://api.example.com/{long}"), "GET", "fetch"))
    assert len(decisions) == 0
