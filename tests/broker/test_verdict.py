"""`policy test`:

the corpus as pure verdicts, the batch format, and requests written in every accepted way.
"""

from __future__ import annotations

import json

import pytest

from fumehood.broker import policy_batch, policy_verdict
from fumehood.broker._verdict import parse_resolve
from fumehood.policies.errors import ConfigError
from tests.broker.test_corpus_fetch import EXACT, FITTING
from tests.broker.world import PUBLIC, Row, corpus, policy

PURE = [*corpus("url", "connect", "socks5", "proxy", "redirect")]
OTHER_FITTING = {
    "connect": {"malformed", "server-name", "not-listed", "metadata"},
    "socks": {"malformed", "not-listed"},
    "proxy": {"malformed", "not-listed", "scheme"},
}
EXACT_PURE = {
    "connect-009": "malformed",
    "connect-010": "malformed",
    "connect-011": "server-name",
    "connect-012": "server-name",
    "connect-013": "server-name",
    "connect-026": "not-listed",
    "connect-027": "metadata",
    "proxy-006": "not-listed",
    "proxy-011": "scheme",
    "proxy-012": "scheme",
    "proxy-013": "scheme",
    "socks-002": "not-listed",
}


@pytest.mark.parametrize("row", PURE, ids=lambda row: row.id)
def test_each_row_has_its_verdict_without_a_connection(row: Row) -> None:
    found = policy_verdict(policy(*row.policy), row.request, dns=row.dns)
    assert found.outcome == row.expected, found
    area = row.id.split("-")[0]
    if row.expected == "deny":
        assert found.reason in FITTING.get(area, OTHER_FITTING.get(area, set()))
        wanted = EXACT.get(row.id) or EXACT_PURE.get(row.id)
        assert wanted in (None, found.reason)
        assert found.pinned is None
    else:
        assert found.reason is None and found.pinned is not None and found.rule in row.policy


def test_a_batch_line_becomes_one_line_with_five_keys() -> None:
    lines = [
        {
            "id": "a",
            "allow": ["api.example.com"],
            "request": "https://api.example.com/x",
            "method": "GET",
            "dns": {"api.example.com": [PUBLIC]},
        },
        {
            "id": "b",
            "allow": ["api.example.com"],
            "deny": ["api.example.com"],
            "request": "https://api.example.com/",
            "dns": {},
        },
        {
            "id": 3,
            "allow": [{"host": "a.example", "methods": ["GET"]}],
            "request": "https://a.example/",
            "method": "POST",
        },
        {
            "id": "d",
            "allow": ["tcp://a.example:22"],
            "request": "socks5://a.example:22",
            "dns": {"*": ["CNAME b.example"], "b.example": [PUBLIC]},
        },
        {
            "id": "e",
            "allow": ["a.example"],
            "request": "CONNECT a.example:443",
            "dns": {"a.example": {"sequence": [[PUBLIC], ["127.0.0.1"]]}},
        },
        {
            "id": "f",
            "allow": ["a.example"],
            "request": "https://a.example/",
            "dns": {"a.example": ["AAAA SERVFAIL", PUBLIC]},
        },
        {"id": "g", "allow": ["a.example"], "request": "https://a.example/", "dns": {}},
        {"id": "h", "allow": [], "request": "https://a.example/"},
        {"id": "i", "allow": ["a.example"], "request": "https://a.example/"},
    ]
    found = list(policy_batch(json.dumps(line) for line in lines))
    assert found == [
        {"id": "a", "outcome": "allow", "reason": None, "rule": "api.example.com", "pinned": PUBLIC},
        {"id": "b", "outcome": "deny", "reason": "denied-by-rule", "rule": "api.example.com", "pinned": None},
        {"id": 3, "outcome": "deny", "reason": "method", "rule": None, "pinned": None},
        {"id": "d", "outcome": "allow", "reason": None, "rule": "tcp://a.example:22", "pinned": PUBLIC},
        {"id": "e", "outcome": "allow", "reason": None, "rule": "a.example", "pinned": PUBLIC},
        {"id": "f", "outcome": "allow", "reason": None, "rule": "a.example", "pinned": PUBLIC},
        {"id": "g", "outcome": "deny", "reason": "no-answer", "rule": "a.example", "pinned": None},
        {"id": "h", "outcome": "deny", "reason": "not-listed", "rule": None, "pinned": None},
        {"id": "i", "outcome": "allow", "reason": None, "rule": "a.example", "pinned": None},
    ]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{", "batch:2: the line is not JSON"),
        ("[]", "batch:2: a line is an object"),
        ('{"id": 1}', "batch:2: a line is an object"),
        ('{"request": "https://a/", "dns": []}', "batch:2: 'dns' is an object"),
        ('{"request": "https://a/", "allow": "a"}', "batch:2: allow: a list"),
        ('{"request": "https://a/", "allow": [1]}', "batch:2: allow: a list"),
        ('{"request": "https://a/", "deny": ["a.example", null]}', "batch:2: deny: a list"),
        (
            '{"request": "https://a.example/", "allow": ["a.example"], "dns": {"*": {"sequence": []}}}',
            "are a list",
        ),
        (
            '{"request": "https://a.example/", "allow": ["a.example"], "dns": {"a.example": ["127.1"]}}',
            "no address",
        ),
        ('{"request": "https://a.example/", "allow": ["a.example"], "dns": {"*": [{"a": 1}]}}', "no address"),
        ('{"request": "https://a.example/", "allow": ["a.example"], "dns": {"*": 7}}', "are a list"),
        ('{"id": NaN, "request": "https://a.example/"}', "batch:2: the id is no JSON value"),
        ('{"id": [1e999], "request": "https://a.example/"}', "batch:2: the id is no JSON value"),
    ],
)
def test_a_bad_batch_line_is_an_error_with_its_number_and_loses_no_other(line: str, what: str) -> None:
    good = '{"id": "good", "request": "https://a.example/", "allow": ["a.example"]}'
    found = list(policy_batch(["", line, good, b"\xff\xfe"]))
    assert [(one["id"], one["outcome"]) for one in found] == [
        (found[0]["id"], "error"),
        ("good", "allow"),
        (None, "error"),
    ]
    assert (found[0]["line"], found[0]["value"], found[2]["line"]) == (2, line, 4)
    assert str(found[0]["error"]).startswith("batch:2: ") and what in str(found[0]["error"])
    assert found[0]["hint"]
    assert str(found[2]["error"]).startswith("batch:4: the line is not UTF-8")


@pytest.mark.parametrize(
    ("request_", "method", "reason"),
    [
        ("https://a.example/", "get", "malformed"),
        ("https://a.example/", "", "malformed"),
        ("https://a.example/", "GET\r\nX", "malformed"),
        ("https://a.example/", "TRACE", "malformed"),
        ("https://a.example/", "PROPFIND", None),
        ("https://a.example/ with Host: evil.test", "GET", "malformed"),
        ("https://a.example/ with Accept: text/html", "GET", None),
        ("https://a.example/ with two Accept headers", "GET", None),
        ("https://a.example/ with two X-Key headers", "GET", "malformed"),
        ("https://a.example/ with X-HTTP-Method-Override: DELETE", "POST", "method"),
    ],
)
def test_a_verdict_holds_for_what_is_sent_besides_the_url(
    request_: str, method: str, reason: str | None
) -> None:
    rule = {
        "host": "a.example",
        "methods": ["GET", "POST", "PROPFIND"],
        "secret": {"header": "X-Key", "value": "{K}"},
    }
    found = policy_verdict(policy(rule), request_, method=method, dns={"*": [PUBLIC]})
    assert (found.outcome, found.reason) == ("deny" if reason else "allow", reason), found


_POST = "POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\n"
_CHUNKED = f"{_POST}Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{_CHUNKED}X-Sum: 1\r\n\r\n", None),
        (f"{_CHUNKED}Content-Length: 1\r\n\r\n", "malformed"),
        (f"{_POST}Expect: 100-continue\r\nContent-Length: 1\r\n\r\nx", None),
        (f"{_POST}Expect: 200-ok\r\nContent-Length: 1\r\n\r\nx", "malformed"),
        (f"{_POST}Content-Length: 9\r\n\r\n123456789", "budget-bytes"),
        (f"{_POST}X-HTTP-Method-Override: DELETE\r\nContent-Length: 0\r\n\r\n", "method"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "scheme"),
    ],
)
def test_a_verdict_on_bytes_for_the_proxy_is_that_of_the_door(text: str, reason: str | None) -> None:
    found = policy_verdict(policy("POST http://a.example +max_request=8"), text, dns={"*": [PUBLIC]})
    assert (found.outcome, found.reason) == ("deny" if reason else "allow", reason), found


@pytest.mark.parametrize("form", ["CONNECT {}:443", "socks5://{}:443"])
def test_a_name_that_no_tunnel_request_can_carry_is_malformed_there(form: str) -> None:
    rules = policy("https://b\u00fccher.example")
    assert policy_verdict(rules, form.format("b\u00fccher.example")).reason == "malformed"
    assert policy_verdict(rules, form.format("xn--bcher-kva.example")).reason is None  # control
    assert policy_verdict(rules, "https://b\u00fccher.example/").reason is None


def test_a_bad_rule_in_a_batch_line_names_line_place_and_remedy() -> None:
    line = '{"id": 7, "request": "https://a.example/", "allow": ["*a.example"]}'
    (found,) = policy_batch([line])
    assert str(found["error"]).startswith("batch:1: allow[0]") and "*.a.example" in str(found)
    assert (found["id"], found["outcome"], found["reason"]) == (7, "error", None)


def test_resolve_flags_become_answers() -> None:
    assert parse_resolve(["A.example.=1.2.3.4,::1", "a.example=CNAME b"]) == {
        "a.example": ["1.2.3.4", "::1", "CNAME b"]
    }
    with pytest.raises(ConfigError, match="NAME=ANSWER"):
        parse_resolve(["a.example"])
