"""The one decision about egress, pure over policy, request and DNS answers. Every door asks here and nowhere
else.

Guarantees, in the order they are checked (docs/egress.md repeats this list):
  1. A literal metadata address is refused, whatever the rules say.
  2. A deny entry of the host refuses, then one of the tool. No allow entry outranks them.
  3. The most specific allow entry that covers host, port, scheme, method and path allows. Otherwise the
  reason names the part that failed last.
  4. In audit mode, what step 3 refused goes on and carries `would_deny`.
  `match` does steps 1 to 4 and needs no DNS, so a refused name is never resolved.
  5. No answer is `no-answer`.
  6. One metadata answer refuses all of them, then one unusable answer, then one that a literal deny entry
  names.
  7. Non-public answers need an entry with `private`; a set with public and non-public ones is
  `mixed-answers`.
  8. What is left is vetted, and only vetted addresses are dialled.
Before editing: no I/O, no clock, no environment here; the tests call these functions with values only.
"""

from __future__ import annotations

import difflib
import heapq
import re
from collections.abc import Iterable
from functools import lru_cache
from os.path import commonprefix
from urllib.parse import unquote

from fumehood.broker._addresses import (
    Address,
    AddressClass,
    dial_order,
    embedded_addresses,
    judge_address,
    parse_address,
)
from fumehood.broker._target import readable
from fumehood.broker._types import Answers, EgressDecision, EgressPolicy, EgressRequest, Match
from fumehood.policies.names import Host
from fumehood.policies.rules import EVERY_PORT, EgressRule

_PATHS = 16  # paths of requests whose readings are remembered: each rule looks at the same one
_PREFIXES = 4096  # prefixes of rules
_LIKELY = 8  # entries that are compared letter by letter with a name that none of them covers
# How far a request got against an entry; the furthest one names the reason.
_STAGES = ("not-listed", "port", "scheme", "method", "path")
_UNRESERVED = re.compile(r"%(2[dDeE]|3[0-9]|4[1-9a-fA-F]|5[0-9aAfF]|6[1-9a-fA-F]|7[0-9aAeE])")
# What one server reads as a separator or a step up and another as part of a name: escaped separators, dots
# escaped twice, dots beside a path parameter or blanks (`..;` is a step up to servlet containers), and the
# overlong and full-width spellings of dot and slash, which some servers fold.
_DOT, _BLANK = r"(?:\.|%(?:25)*2e)", r"(?:%(?:25)*(?:[01][0-9a-f]|20|7f))"
_TWO_READINGS = re.compile(
    r"%c[01]%|%e0%80%|%f0%80%80%|%ef%bc%(?:8e|8f|bc)|"
    rf"%(?:25)*(?:2f|5c|00)|%25(?:25)*2e|/{_BLANK}*(?:{_DOT}{_BLANK}*){{1,2}}(?:;|%(?:25)*3b|/|$)",
    re.IGNORECASE,
)


def match(policy: EgressPolicy, request: EgressRequest) -> Match:
    """What the rules say about `request`; nothing is resolved (steps 1 to 4)."""
    target = request.target
    if target.host.is_literal:
        judged = judge_address(parse_address(target.host.text))
        if judged.kind is AddressClass.METADATA:
            return Match(
                None, "metadata", "address-table", policy.owner, f"{target.host} is {judged.because}"
            )
    for rules, source, owner in (
        (policy.host_deny, "host-deny", "host"),
        (policy.deny, "tool-deny", policy.owner),
    ):
        for rule in rules:
            if _is_denied(rule, request):
                return Match(rule, "denied-by-rule", source, owner)  # type: ignore[arg-type]  # the two literals above
    found = best_rule(policy.allow, request)
    if found is not None:
        return Match(found, None, "allow-list", policy.owner)
    reason, near, hint = _near_miss(policy.allow, request)
    if policy.mode == "audit":
        return Match(None, None, "audit", policy.owner, hint, near, would_deny=reason)
    return Match(None, reason, "allow-list", policy.owner, hint, near)


def decide(
    policy: EgressPolicy,
    request: EgressRequest,
    answers: Answers,
    own: frozenset[Address] = frozenset(),
    *,
    matched: Match | None = None,
) -> EgressDecision:
    """The decision about `request` when its name resolved to `answers` (steps 1 to 8).

    own: this host's interface addresses. matched: what `match` said of this policy and request, when it was
    asked already.
    """
    matched = matched or match(policy, request)
    if matched.reason is not None:
        return refusal(request, matched)
    if answers.error is not None or not answers.addresses:
        return _judged(
            request, matched, answers, "no-answer", "resolver", answers.error or "the name has no address"
        )
    judged = [judge_address(address, own) for address in answers.addresses]
    for kind, reason in ((AddressClass.METADATA, "metadata"), (AddressClass.UNUSABLE, "not-public")):
        for one in judged:
            if one.kind is kind:
                return _judged(
                    request, matched, answers, reason, "address-table", f"{one.address}: {one.because}"
                )
    for rules, owner in ((policy.host_deny, "host"), (policy.deny, policy.owner)):
        for rule in rules:
            if any(_denies_address(rule, address, request.target.port) for address in answers.addresses):
                denied = Match(rule, "denied-by-rule", "host-deny" if owner == "host" else "tool-deny", owner)
                return _judged(
                    request,
                    denied,
                    answers,
                    "denied-by-rule",
                    denied.source,
                    f"the name leads to {rule.host}",
                )
    closed = [one for one in judged if one.kind is AddressClass.PRIVATE]
    if closed and not (matched.rule is not None and matched.rule.private):
        reason = "not-public" if len(closed) == len(judged) else "mixed-answers"
        detail = f"{closed[0].address}: {closed[0].because}"
        hint = f"if {request.target.host} is meant to be internal, add +private to the entry"
        return _judged(request, matched, answers, reason, "address-table", detail, hint)
    return EgressDecision(
        outcome="allow",
        reason=None,
        target=request.target,
        rule=matched.rule,
        owner=matched.owner,
        source=matched.source,
        answers=answers.addresses,
        chain=answers.chain,
        vetted=dial_order(answers.addresses),
        would_deny=matched.would_deny,
        hint=matched.hint,
    )


def refusal(request: EgressRequest, matched: Match) -> EgressDecision:
    """The decision for a match that refuses, with nothing resolved."""
    return _judged(
        request, matched, Answers(), matched.reason or "not-listed", matched.source, "", matched.hint
    )


def best_rule(rules: Iterable[EgressRule], request: EgressRequest) -> EgressRule | None:
    """The most specific entry that allows `request`:

    exact host before `*.x`, longer before shorter, `*` last; then path, then methods.
    """
    best: EgressRule | None = None
    best_rank: tuple[int, int, int, bool] = (-1, -1, -1, False)
    for rule in rules:
        if _stage(rule, request) == len(_STAGES):
            rank = (*_specificity(rule), len(_matching_prefix(rule, request)), rule.methods is not None)
            if rank > best_rank:
                best, best_rank = rule, rank
    return best


def tunnel_rules(rules: Iterable[EgressRule], request: EgressRequest) -> tuple[EgressRule, ...]:
    """Every entry that lets this tunnel through, most specific first, inspecting ones before opaque ones.

    What the stream holds picks among them. An entry that limits what it cannot read is not among them, so a
    second entry for the same port cannot lend it the way through.
    """
    found = [rule for rule in rules if _stage(rule, request) == len(_STAGES)]
    return tuple(sorted(found, key=lambda rule: (_specificity(rule), rule.inspect), reverse=True))


def name_is_reachable(policy: EgressPolicy, host: Host) -> bool:
    """Whether some request to this name could be allowed, so that a stub resolver may answer it: deny entries
    for every port, then allow entries for any.
    """
    if any(rule.port == EVERY_PORT and rule.covers(host) for rule in (*policy.host_deny, *policy.deny)):
        return False
    return policy.mode == "audit" or any(rule.covers(host) for rule in policy.allow)


def _specificity(rule: EgressRule) -> tuple[int, int]:
    if rule.host == "*":
        return 0, 0
    return (1, len(rule.host)) if rule.host.startswith("*.") else (2, 0)


def _stage(rule: EgressRule, request: EgressRequest) -> int:
    """How many checks an allow entry passes: 0 host, 1 port, 2 scheme, 3 method, 4 path; 5 is all of them."""
    target = request.target
    if not rule.covers(target.host):
        return 0
    if rule.port != target.port:
        return 2 if target.scheme != "tunnel" and _is_other_scheme(rule, request) else 1
    if not _scheme_fits(rule, request):
        return 2
    if target.scheme == "tunnel" and rule.scheme == "https" and not rule.inspect:
        # What is inside cannot be read, so an entry that limits it is not satisfied (design D5).
        return 3 if rule.methods is not None else 4 if rule.paths else 5
    if target.scheme == "tunnel":
        return 5
    if rule.methods is not None and request.method not in rule.methods:
        return 3
    return 5 if not rule.paths or _matching_prefix(rule, request) else 4


def _is_other_scheme(rule: EgressRule, request: EgressRequest) -> bool:
    """http://x asked where https://x is listed: the scheme is what differs, the ports only follow."""
    default = {"https": 443, "http": 80}
    return (
        rule.scheme in default
        and rule.scheme != request.target.scheme
        and ((rule.port, request.target.port) == (default[rule.scheme], default[request.target.scheme]))
    )


def _scheme_fits(rule: EgressRule, request: EgressRequest) -> bool:
    scheme = request.target.scheme
    return scheme == "tunnel" or rule.scheme in (scheme, "any")


def _matching_prefix(rule: EgressRule, request: EgressRequest) -> str:
    """The longest prefix of the entry that holds the path;

    empty when none does. Prefixes end at a segment border.
    """
    if not rule.paths:
        return ""
    path = request.target.path
    if _reads_twice(path):
        return ""  # one server's segment is another server's separator; a limited entry takes no chances
    path = _plain(path)
    held = [prefix for prefix in rule.paths if _is_under(path, _plain_prefix(prefix))]
    return max(held, key=len, default="")


def _is_under(path: str, prefix: str) -> bool:
    return (
        path.startswith(prefix) if prefix.endswith("/") else path == prefix or path.startswith(prefix + "/")
    )


@lru_cache(maxsize=_PATHS)
def _reads_twice(path: str) -> bool:
    return _TWO_READINGS.search(path) is not None


@lru_cache(maxsize=_PATHS)
def _plain(path: str) -> str:
    """Escapes of unreserved characters decoded, as every server does before it routes (RFC 3986 section
    6.2.2.2).
    """
    return _UNRESERVED.sub(lambda found: chr(int(found[1], 16)), path)


_plain_prefix = lru_cache(maxsize=_PREFIXES)(_plain.__wrapped__)


def _is_denied(rule: EgressRule, request: EgressRequest) -> bool:
    """Whether a deny entry covers the request.

    Where the inside of a tunnel is unknown, it is taken to be what is denied.
    """
    target = request.target
    if not rule.covers(target.host) or rule.port not in (EVERY_PORT, target.port):
        return False
    if rule.port != EVERY_PORT and not (
        target.scheme == "tunnel" or rule.scheme in (target.scheme, "any", "tcp")  # all of it is TCP
    ):
        return False
    if target.scheme == "tunnel":
        return True
    if rule.methods is not None and request.method not in rule.methods:
        return False
    if not rule.paths or _reads_twice(target.path):
        return True
    path = _served(target.path)
    return any(_is_under(path, _served_prefix(prefix)) for prefix in rule.paths)


@lru_cache(maxsize=_PATHS)
def _served(path: str) -> str:
    """The path as the most lenient server would route it, so that a deny entry covers what any kind would
    serve: letter case, repeated slashes, path parameters and further escapes do not count.
    """
    for _ in range(3):
        path = unquote(path)
    return re.sub(r"//+", "/", re.sub(r";[^/]*", "", path)).lower()


_served_prefix = lru_cache(maxsize=_PREFIXES)(_served.__wrapped__)


def _denies_address(rule: EgressRule, address: Address, port: int) -> bool:
    """Whether a deny entry names a literal that a name leads to."""
    if (
        rule.host.startswith("*")
        or rule.paths
        or rule.methods is not None
        or rule.port not in (EVERY_PORT, port)
    ):
        return False
    if not re.fullmatch(r"[0-9.]+|.*:.*", rule.host):
        return False
    return parse_address(rule.host) in (address, *embedded_addresses(address))


def _judged(
    request: EgressRequest,
    matched: Match,
    answers: Answers,
    reason: str,
    source: object,
    detail: str,
    hint: str = "",
) -> EgressDecision:
    return EgressDecision(
        outcome="deny",
        reason=reason,
        target=request.target,
        rule=matched.rule,
        owner=matched.owner,
        source=source,  # type: ignore[arg-type]  # every caller passes one of the literals
        answers=answers.addresses,
        chain=answers.chain,
        detail=detail,
        hint=hint,
        would_deny=matched.would_deny,
    )


def _near_miss(rules: Iterable[EgressRule], request: EgressRequest) -> tuple[str, EgressRule | None, str]:
    """The reason, the entry that came nearest, and the difference in plain words."""
    near: EgressRule | None = None
    furthest = 0
    for rule in rules:
        if (stage := _stage(rule, request)) > furthest:
            near, furthest = rule, stage
    target = request.target
    if near is None:
        return "not-listed", *_near_host(rules, target.host)
    reason = _STAGES[furthest]
    if reason == "port":
        return reason, near, f"{near.text!r} is for port {near.port}; the request is for {target.port}"
    if reason == "scheme":
        return reason, near, f"{near.text!r} is for {near.scheme}; the request is {target.scheme}"
    path = readable(target.path, 100)
    if target.scheme == "tunnel":
        why = f"limits the {reason}, which TLS hides; use ctx.fetch, or add +inspect to the entry"
    elif reason == "method":
        why = f"does not list {request.method}"
    elif _reads_twice(target.path):
        why = f"limits the path, and {path!r} has an escape or dots that servers read in two ways"
    else:
        why = f"does not cover the path {path!r}"
    return reason, near, f"{near.text!r} {why}"


def _near_host(rules: Iterable[EgressRule], host: Host) -> tuple[EgressRule | None, str]:
    by_host = {rule.host: rule for rule in rules}
    if host.is_literal:
        if by_host:
            return None, "an address needs an entry of its own; entries with names never cover it"
        return None, ""
    for text, rule in by_host.items():
        if text == f"*.{host.text}":
            return rule, f"{text} does not cover {host.text} itself; add {host.text!r}"
    for text, rule in by_host.items():
        if not text.startswith("*") and host.text.endswith(f".{text}"):
            return rule, f"{text} does not cover names below it; add {host.text!r} or '*.{text}'"
    if "*" in by_host:
        return by_host[
            "*"
        ], f"* never covers {host.text}, a name of this machine or site; give it an entry of its own"
    likely = heapq.nlargest(_LIKELY, by_host, key=lambda text: _shared(text, host.text))
    close = difflib.get_close_matches(host.text, likely, n=1, cutoff=0.8)
    return (by_host[close[0]], f"the nearest entry is {close[0]!r}") if close else (None, "")


def _shared(one: str, other: str) -> int:
    """Characters that two names have in common at their ends; quick, for a tool may ask about many names."""
    ahead = len(commonprefix((one, other)))
    return ahead + len(commonprefix((one[ahead:][::-1], other[ahead:][::-1])))
