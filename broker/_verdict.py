"""`policy test`: the broker's verdict on one request without a connection, and on a file of them.

Guarantees: the same grammar, gate and decision as the doors, over answers that the caller gives; no socket,
no DNS. A request is a URL (`[METHOD ]URL`), `CONNECT host:port`, `socks5://host:port`, or the bytes of a
proxy request. What a client would send
besides can be added: ` | Host: name`, ` | SNI name`, ` | no SNI` after CONNECT, ` with Header: value` and `
-> 302 Location: url` after a URL, ` then, after the TTL, ` between two URLs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fumehood.broker._addresses import Address, parse_address
from fumehood.broker._decide import decide, match, refusal
from fumehood.broker._exchange import Headers
from fumehood.broker._fetch_request import FetchRequest, check_request
from fumehood.broker._head import (
    NOT_IN_TRAILERS,
    PRIOR_KNOWLEDGE,
    BadHead,
    RequestHead,
    find_end,
    parse_request_head,
    read_field,
)
from fumehood.broker._meant import alike, wrongly_meant
from fumehood.broker._proxy_target import agrees, proxy_target
from fumehood.broker._resolver import MAX_CHAIN
from fumehood.broker._target import BadTarget, Target, parse_authority, parse_url, resolve_location, target_of
from fumehood.broker._tunnel_rules import check_server_name
from fumehood.broker._types import Answers, EgressDecision, EgressPolicy, EgressRequest
from fumehood.policies.errors import ConfigError
from fumehood.policies.names import BadHost, Host, canonical_host
from fumehood.policies.rules import EgressRule, parse_rule

Said = Mapping[str, Any]
_LATER = " then, after the TTL, "
_LINE_HINT = 'a line is like {"id": 1, "allow": ["api.example.com"], "request": "https://api.example.com/"}'
_MAX_SHOWN = 200  # characters of a line that cannot be read
_FAILURES = frozenset({"NXDOMAIN", "NODATA", "SERVFAIL", "REFUSED", "TIMEOUT"})  # in place of an address


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the broker would say.

    reason: None for allow. resolved: false when no answers were given, so only the rules spoke.
    """

    outcome: str
    reason: str | None
    rule: str | None
    pinned: str | None
    hint: str = ""
    detail: str = ""
    owner: str = ""
    resolved: bool = True

    def as_dict(self) -> dict[str, object]:
        """The five keys of a batch line."""
        return {"outcome": self.outcome, "reason": self.reason, "rule": self.rule, "pinned": self.pinned}


def verdict(policy: EgressPolicy, request: str, *, method: str = "GET", dns: Said | None = None) -> Verdict:
    """The verdict on one request.

    dns: answers by name, "*" for every other name; None means that only the rules are asked.
    """
    try:
        return _verdict(policy, request, method, dns)
    except BadTarget as bad:
        return Verdict("deny", bad.reason, None, None, detail=bad.what, owner=policy.owner)
    except BadHead as bad:
        return Verdict("deny", "malformed", None, None, detail=bad.what, owner=policy.owner)


def batch(
    lines: Iterable[str | bytes], *, allow: Sequence[EgressRule] = (), source: str = "batch"
) -> Iterator[dict[str, object]]:
    """One result for each JSON line `{id, allow, deny, request, method, dns}`. allow: rules for lines that
    give none.

    A line that cannot be read gives a result with the outcome "error" and what is wrong; the next ones are
    judged all the same.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        case: dict[str, Any] | None = None
        try:
            case = _read_line(line, f"{source}:{number}")
            found = _judge_line(case, allow, f"{source}:{number}")
            yield {"id": case.get("id"), **found.as_dict()}
        except (ConfigError, UnicodeError) as error:
            yield {
                "id": case.get("id") if case is not None else None,
                **Verdict("error", None, None, None).as_dict(),
                "line": number,
                "value": _shown(line),
                "error": _placed(f"{source}:{number}", error),
                "hint": (error.hint if isinstance(error, ConfigError) else None) or _LINE_HINT,
            }


def _read_line(line: str | bytes, place: str) -> dict[str, Any]:
    try:
        text = line.decode("utf-8-sig") if isinstance(line, bytes) else line
    except UnicodeDecodeError as error:
        raise ConfigError(f"{place}: the line is not UTF-8: {error}") from error
    try:
        case = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: the line is not JSON: {error}") from error
    if not isinstance(case, dict) or not isinstance(case.get("request"), str):
        raise ConfigError(f"{place}: a line is an object with at least 'request'")
    try:
        json.dumps(case.get("id"), allow_nan=False)
    except ValueError as error:
        raise ConfigError(f"{place}: the id is no JSON value: {error}") from error
    return case


def _judge_line(case: Mapping[str, Any], allow: Sequence[EgressRule], place: str) -> Verdict:
    policy = EgressPolicy(
        allow=_rules(case["allow"], f"{place}: allow") if case.get("allow") is not None else tuple(allow),
        deny=_rules(case.get("deny") or [], f"{place}: deny", deny=True),
        mode="audit" if case.get("mode") == "audit" else "enforce",
    )
    dns = case.get("dns")
    if dns is not None and not isinstance(dns, dict):
        raise ConfigError(f"{place}: 'dns' is an object of answers by name")
    method = "GET" if case.get("method") is None else case["method"]
    if not isinstance(method, str):
        raise ConfigError(f"{place}: 'method' is a string, not {method!r}")
    return verdict(policy, case["request"], method=method, dns=dns)


def _placed(place: str, error: Exception) -> str:
    text = error.message if isinstance(error, ConfigError) else str(error)
    return text if text.startswith(place) else f"{place}: {text}"


def _shown(line: str | bytes) -> str:
    text = line.decode("utf-8", "backslashreplace") if isinstance(line, bytes) else line
    return text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + "…"


def parse_resolve(texts: Iterable[str]) -> dict[str, list[str]]:
    """The `--resolve NAME=ANSWER[,ANSWER]` flags as answers by name.

    Raises: ConfigError.
    """
    found: dict[str, list[str]] = {}
    for text in texts:
        name, equals, answers = text.partition("=")
        if not equals or not name:
            raise ConfigError(
                f"--resolve {text!r} is not NAME=ANSWER[,ANSWER]; write api.example.com=93.184.216.34"
            )
        found.setdefault(_name_key(name), []).extend(
            part.strip() for part in answers.split(",") if part.strip()
        )
    return found


def _rules(value: object, place: str, *, deny: bool = False) -> tuple[EgressRule, ...]:
    if not isinstance(value, list) or not all(isinstance(entry, (str, dict)) for entry in value):
        raise ConfigError(f"{place}: a list of egress rules, not {value!r:.80}")
    return tuple(parse_rule(entry, where=f"{place}[{at}]", deny=deny) for at, entry in enumerate(value))


def _verdict(policy: EgressPolicy, text: str, method: str, dns: Said | None) -> Verdict:
    if "\r\n" in text:
        return _proxied(policy, text, dns)
    if text.upper().startswith("UDP ASSOCIATE") or text.upper().startswith("BIND "):
        raise BadTarget("malformed", "SOCKS5 knows CONNECT only here")
    if text.startswith("CONNECT "):
        return _connected(policy, text.removeprefix("CONNECT "), dns)
    if text.startswith(("socks5://", "socks5h://")):
        return _connected(policy, text.partition("://")[2].rstrip("/"), dns)
    return _fetched(policy, text, method, dns)


def _connected(policy: EgressPolicy, text: str, dns: Said | None) -> Verdict:
    first, *parts = text.split(" | ")
    if not first.isascii():  # neither a request line nor SOCKS5 carries such a name
        raise BadTarget("malformed", f"{first[:80]!r} is not ASCII; CONNECT and SOCKS5 take A-labels (xn--…)")
    target = _tunnel_target(first)
    asked = EgressRequest(target, None, "test")
    for part in parts:
        value = part.removeprefix("Host:").strip()
        if part.startswith("Host:") and not agrees(value, target):
            raise BadTarget("malformed", f"Host {value!r} differs from the target {target.url!r}")
    found = _decided(policy, asked, dns)
    rule = match(policy, asked).rule
    if found.outcome == "allow" and rule is not None and rule.scheme == "https" and _not_tls(parts):
        return replace(found, outcome="deny", reason="scheme", pinned=None, detail="the entry is for TLS")
    named = re.search(r"\bSNI ([^\s,|]+)", text)
    if found.outcome == "allow" and (named or re.search(r"\b(?:no|without) SNI\b", text)):
        wrong = check_server_name(rule, target, named[1].lower() if named else None)
        if wrong is not None:
            return replace(found, outcome="deny", reason="server-name", pinned=None, detail=wrong)
    return found


def _not_tls(parts: Sequence[str]) -> bool:
    """Whether what the client would say inside a tunnel is named, and is no TLS."""
    said = " | ".join(part for part in parts if not part.startswith("Host:"))
    return re.search(r"SSH-|\bplain|\b(?:not|no) TLS\b|\b[A-Z]{3,7} / HTTP/", said) is not None


def _tunnel_target(text: str) -> Target:
    by_type = re.fullmatch(r"atyp=(?:domain|ipv4|ipv6) '?(.*?)'?:([0-9]+)", text, re.DOTALL)
    if by_type:
        host = by_type[1].encode("ascii", "backslashreplace").decode("unicode_escape")
        return target_of(f"[{host}]" if ":" in host else host, int(by_type[2]))
    return parse_authority(re.sub(r" HTTP/1\.[01]$", "", text))


def _proxied(policy: EgressPolicy, text: str, dns: Said | None) -> Verdict:
    """Every head in the bytes of a proxy connection; the first refusal is the verdict."""
    rest = re.sub(r"<([0-9]+) KiB>", lambda found: "x" * int(found[1]) * 1024, text).replace(
        "[100 Continue]", ""
    )
    data = rest.encode("utf-8", "surrogateescape")
    found: Verdict | None = None
    if data.startswith(PRIOR_KNOWLEDGE):
        raise BadTarget("scheme", "HTTP/2 was not agreed on")
    while data:
        end = find_end(data)
        if end < 0:
            raise BadHead("the head does not end")
        head = parse_request_head(data[:end])
        data = data[end:]
        target = proxy_target(head)
        asked = EgressRequest(target, None if target.scheme == "tunnel" else head.method, "test")
        found = _decided(policy, asked, dns)
        if found.outcome == "deny":
            return found
        if target.scheme != "tunnel":
            wrong = _wrong_message(policy, asked, head)
            if wrong is not None:
                return replace(found, outcome="deny", reason=wrong[0], pinned=None, detail=wrong[1])
        if head.upgrade is not None:
            rule = match(policy, asked).rule
            if rule is None or not rule.websocket or head.upgrade != "websocket":
                return replace(
                    found, outcome="deny", reason="scheme", pinned=None, detail="the entry has no +ws"
                )
        data = _after_body(head.length, head.chunked, data)
    assert found is not None
    return found


def _after_body(length: int | None, chunked: bool, data: bytes) -> bytes:
    if not chunked:
        if length and len(data) < length:
            raise BadHead("the body is cut off")
        return data[length or 0 :]
    while True:
        line, ended, data = data.partition(b"\r\n")
        if (
            not ended
            or b"\n" in line
            or not re.fullmatch(rb"[0-9A-Fa-f]{1,12}(?:[ \t]*;[\t\x20-\x7e]*)?", line)
        ):
            raise BadHead("a chunk has no size")
        size = int(line.split(b";")[0], 16)
        if size == 0:
            break
        if data[size : size + 2] != b"\r\n":
            raise BadHead("a chunk does not end in CRLF")
        data = data[size + 2 :]
    while True:
        line, ended, data = data.partition(b"\r\n")
        if not ended or b"\n" in line:
            raise BadHead("the trailers do not end")
        if not line:
            return data
        name, _ = read_field(line)
        if name.lower() in NOT_IN_TRAILERS:
            raise BadHead(f"the trailer {name!r} may not come after the body")


def _wrong_message(policy: EgressPolicy, asked: EgressRequest, head: RequestHead) -> tuple[str, str] | None:
    """Why a message that is allowed by its target goes nowhere as it is (_forward.py asks the same)."""
    rule = match(policy, asked).rule
    if (head.get("expect") or "100-continue").lower() != "100-continue":
        raise BadHead("Expect knows 100-continue only", 417)
    if rule is not None and rule.max_request is not None and (head.length or 0) > rule.max_request:
        return "budget-bytes", f"the body has {head.length} bytes, over {rule.max_request}"
    if head.method == "TRACE" and rule is not None and rule.secret is not None:
        return "method", "TRACE on an entry with a secret"
    return _wrong_headers(policy, asked, head.headers)


def _fetched(policy: EgressPolicy, text: str, method: str, dns: Said | None) -> Verdict:
    first, again, second = text.partition(_LATER)
    if again:
        found = _fetched(policy, first, method, dns)
        return found if found.outcome == "deny" else _fetched(policy, second, method, _after(dns))
    url, _, sent = text.partition(" with ")
    url, _, redirect = url.partition(" -> ")
    if verb := re.match(r"([A-Z]{3,20}) (?=[a-z]+:)", url):
        method, url = verb[1], url[verb.end() :]
    headers = _headers(sent)
    check_request(FetchRequest(method, url, headers), 0)
    target = parse_url(url)
    asked = EgressRequest(target, method, "test")
    found = _decided(policy, asked, dns)
    wrong = _wrong_headers(policy, asked, headers) if found.outcome == "allow" else None
    if wrong is not None:
        return replace(found, outcome="deny", reason=wrong[0], pinned=None, detail=wrong[1])
    if found.outcome == "deny" or not redirect:
        return found
    if hops := re.match(r"([0-9]+) same-origin hops", redirect):
        return Verdict("deny", "too-many-redirects", found.rule, None) if int(hops[1]) > 10 else found
    status, _, location = redirect.partition(" Location: ")
    following = resolve_location(target, location)
    if status.strip() in ("301", "302", "303") and method == "POST":
        method = "GET"
    found = _decided(policy, EgressRequest(following, method, "test"), dns)
    if found.outcome == "allow" and (target.scheme, following.scheme) == ("https", "http"):
        return replace(found, outcome="deny", reason="redirect", pinned=None, detail="from https to http")
    return found


def _headers(sent: str) -> Headers:
    """What ` with Header: value`, or ` with two Header headers`, says is sent."""
    if doubled := re.match(r"two ([A-Za-z-]+) headers", sent):
        return (doubled[1], "a"), (doubled[1], "b")
    name, colon, value = sent.partition(":")
    return ((name.strip(), value.strip()),) if colon else ()


def _wrong_headers(policy: EgressPolicy, asked: EgressRequest, headers: Headers) -> tuple[str, str] | None:
    """Why a request that is allowed by its URL goes nowhere with these headers."""
    rule = match(policy, asked).rule
    secret = rule.secret.header if rule is not None and rule.secret is not None else None
    if secret is not None and sum(alike(name) == alike(secret) for name, _ in headers) > 1:
        return "malformed", f"several {secret} headers"
    return wrongly_meant(policy, asked, headers)


def _after(dns: Said | None) -> Said | None:
    """The answers once the first ones have expired."""
    out = dict(dns or {})
    for name, said in out.items():
        steps = said.get("sequence") if isinstance(said, Mapping) else None
        if isinstance(steps, list) and len(steps) > 1:
            out[name] = {"sequence": steps[1:]}
    return None if dns is None else out


def _decided(policy: EgressPolicy, asked: EgressRequest, dns: Said | None) -> Verdict:
    matched = match(policy, asked)
    if matched.reason is not None:
        return _verdict_of(refusal(asked, matched))
    host = asked.target.host
    if dns is None and not host.is_literal and not _is_localhost(host.text):
        return Verdict(
            "allow", None, matched.rule.text if matched.rule else None, None, matched.hint, resolved=False
        )
    return _verdict_of(decide(policy, asked, answers_from(dns or {}, host)))


def _verdict_of(decision: EgressDecision) -> Verdict:
    return Verdict(
        decision.outcome,
        decision.reason,
        decision.rule_text,
        decision.pinned,
        decision.hint,
        decision.detail,
        decision.owner,
    )


def answers_from(dns: Said, host: Host) -> Answers:
    """What a map of answers says about a name: addresses, "CNAME other", "AAAA SERVFAIL", or {"sequence":
    [first, ...]}.

    Raises: ConfigError for anything else.
    """
    if host.is_literal:
        return Answers((parse_address(host.text),))
    known = {_name_key(name): said for name, said in dns.items()}
    chain: list[str] = []
    name = host.text
    while True:
        if _is_localhost(name):
            return Answers((parse_address("127.0.0.1"), parse_address("::1")), tuple(chain))
        said = known.get(name, known.get("*", []))
        if isinstance(said, Mapping):
            steps = said.get("sequence")
            if not isinstance(steps, list) or not steps:
                raise ConfigError(f'the answers for {name!r} are a list, or {{"sequence": [[...], ...]}}')
            said = steps[0]
        if isinstance(said, str):
            said = [said]
        addresses, following = _read_said(said, name)
        if addresses:
            return Answers(tuple(addresses), tuple(chain))
        if following is None:
            return Answers(chain=tuple(chain), error="the name has no address")
        if following in (*chain, host.text) or len(chain) >= MAX_CHAIN:
            return Answers(chain=tuple(chain), error="the chain of CNAMEs loops or is too long")
        chain.append(following)
        name = following


def _name_key(text: str) -> str:
    """The canonical spelling of a name in a map of answers; "*" and what is no name stay as they are."""
    try:
        return canonical_host(text).text
    except BadHost:
        return text


def _read_said(said: object, name: str) -> tuple[list[Address], str | None]:
    addresses: list[Address] = []
    following: str | None = None
    if not isinstance(said, (list, tuple)):
        raise ConfigError(f"the answers for {name!r} are a list, not {said!r:.80}")
    for text in said:
        words = text.split() if isinstance(text, str) else []
        if len(words) == 2 and words[0] == "CNAME":
            following = words[1].lower().rstrip(".")
        elif not words or words[-1].upper() not in _FAILURES:
            try:
                addresses.append(parse_address(" ".join(words)))
            except ValueError as error:
                raise ConfigError(
                    f"the answer {text!r:.80} for {name!r} is no address and no 'CNAME name'"
                ) from error
    return addresses, following


def _is_localhost(name: str) -> bool:
    return name == "localhost" or name.endswith(".localhost")
