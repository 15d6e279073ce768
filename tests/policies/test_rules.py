"""Egress rules: both forms, every default, and errors that give the corrected rule."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood.policies.errors import RuleError
from fumehood.policies.names import canonical_host
from fumehood.policies.rules import EVERY_PORT, EgressRule, SecretHeader, parse_rule


def rule(text: str, scheme: Any, host: str, port: int, **more: Any) -> EgressRule:
    return EgressRule(text, scheme, host, port, **more)


GOOD: dict[str, EgressRule] = {
    "api.example.com": rule("", "https", "api.example.com", 443),
    "prometheus.internal:9090": rule("", "any", "prometheus.internal", 9090),
    "https://api.example.com:443/": rule("", "https", "api.example.com", 443),
    "HTTP://API.example.com.": rule("", "http", "api.example.com", 80),
    "tcp://db.internal:5432 +private": rule("", "tcp", "db.internal", 5432, private=True),
    "GET,HEAD https://*.example.com/v1/ +private": rule(
        "", "https", "*.example.com", 443, methods=frozenset({"GET", "HEAD"}), paths=("/v1/",), private=True
    ),
    "*": rule("", "https", "*", 443),
    "http://*": rule("", "http", "*", 80),
    "10.0.0.5:8080 +private": rule("", "any", "10.0.0.5", 8080, private=True),
    "https://[2606:2800:220:1:0:0:0:1946]": rule("", "https", "2606:2800:220:1::1946", 443),
    "https://bücher.example": rule("", "https", "xn--bcher-kva.example", 443),
    "wss://live.example.com": rule("", "https", "live.example.com", 443, websocket=True),
    "https://a.example +inspect": rule("", "https", "a.example", 443, inspect=True),
    "GET https://a.example +max_response=1048576 +timeout=30": rule(
        "", "https", "a.example", 443, methods=frozenset({"GET"}), max_response=1048576, timeout=30.0
    ),
    "https://a.example +rate=30/m +max_connections=4 +max_request=65536": rule(
        "", "https", "a.example", 443, rate=0.5, max_connections=4, max_request=65536
    ),
    "https://a.example +inject=Authorization": rule(
        "", "https", "a.example", 443, secret=SecretHeader("Authorization")
    ),
    "GET a.example:8080/x": rule("", "any", "a.example", 8080, methods=frozenset({"GET"}), paths=("/x",)),
}

# What is wrong -> a part of the message, which holds the corrected rule where one is known.
BAD: dict[str, str] = {
    "": "names no host",
    "+private": "names no host",
    "https://": "empty",
    ".example.com": "write '*.example.com'",
    "*example.com": "write '*.example.com'",
    "https://*-x.example.com/a": "write 'https://*.x.example.com/a'",
    "api.*.com": "only in front",
    "*.*.com": "only in front",
    "*.10.0.0.1": "never covers addresses",
    "ftp://files.example.com": "write 'tcp://files.example.com:21'",
    "redis://cache.internal": "write 'tcp://cache.internal:6379'",
    "gopher://x.example": "none of https, http, tcp",
    "tcp://db.internal": "write 'tcp://db.internal:5432'",
    "https://user:pw@api.example.com": "write 'https://api.example.com'",
    "api.example.com?x=1": "write 'api.example.com'",
    "api.example.com#x": "write 'api.example.com'",
    "api.example.com:0": "1 to 65535",
    "api.example.com:65536": "1 to 65535",
    "api.example.com:080": "write 'api.example.com:80'",
    "api.example.com:+80": "write 'api.example.com:80'",
    "api.example.com:*": "one rule for each port",
    "::1:443": "write '[::1]:443'",
    "2606::1": "write '[2606::1]'",
    "[::1": "brackets",
    "[::1]443": "brackets",
    "127.1:80": "number",
    "10.0.0.0/8": "address ranges are not rules",
    "https://a.example/v1/*": "write 'https://a.example/v1/'",
    "https://a.example/v1/../x": "dot or escaped",
    "https://a.example/a%2fb": "dot or escaped",
    "https://a.example//x/y": "empty",
    "https://a.example/a<b": "percent-encoded",
    "https://a.example\\x": "backslash",
    "get https://a.example": "write 'GET https://a.example'",
    "GET, HEAD https://a.example": "write 'GET,HEAD https://a.example'",
    "GET tcp://a.example:22": "raw tcp",
    "tcp://a.example:22/x": "raw tcp",
    "http://a.example +inspect": "inspection is for TLS",
    "a.example +prvate": "write '+private'",
    "a.example +private=yes": "write '+private'",
    "a.example +private +private": "twice",
    "a.example +rate=fast": "write '10/s'",
    "a.example +rate=0/s": "write '10/s'",
    "a.example +max_response=many": "not a size",
    "a.example +max_connections=0": "above 0",
    "a.example +timeout=-1": "time",
    "a.example +inject=Host": "write 'Authorization'",
    "* +inject=Authorization": "every host",
    "a.example\x07": "control",
}

BAD_TABLES: list[tuple[dict[str, object], str]] = [
    ({}, "'host' is missing"),
    ({"host": 5}, "'host' is missing"),
    ({"hots": "a.example"}, "meant is 'host'"),
    ({"host": "a.example:80"}, "a host alone"),
    ({"host": "https://a.example"}, "a host alone"),
    ({"host": "a.example", "port": True}, "True is not a number"),
    ({"host": "a.example", "port": 0}, "0 is not a number"),
    ({"host": "a.example", "scheme": "tcp"}, "needs a port"),
    ({"host": "a.example", "scheme": 1}, "'scheme' is a string"),
    ({"host": "a.example", "methods": []}, "is a list such as"),
    ({"host": "a.example", "methods": ["get"]}, "write 'GET'"),
    ({"host": "a.example", "paths": ["v1"]}, "list of prefixes"),
    ({"host": "a.example", "private": "yes"}, "true or false"),
    ({"host": "a.example", "secret": "TOKEN"}, "'secret' is {"),
    ({"host": "a.example", "secret": {"header": "X", "value": "plain"}}, "names no secret"),
    ({"host": "a.example", "secret": {"header": "X", "value": "{A"}}, "names no secret"),
    ({"host": "a.example", "secret": {"header": "X", "value": "{A}}"}}, "brace"),
    ({"host": "a.example", "secret": {"header": "X Y", "value": "{A}"}}, "not one that can be filled in"),
    ({"host": "a.example", "secret": {"header": "X", "value": "{A}\r\nY: 1"}}, "names no secret"),
]


@pytest.mark.requirement("R019")
@pytest.mark.requirement("R473")
@pytest.mark.parametrize("text", GOOD)
def test_the_string_form_means_what_the_contract_says(text: str) -> None:
    assert parse_rule(text) == GOOD[text]
    assert parse_rule(text).text == text


@pytest.mark.parametrize("text", GOOD)
def test_the_canonical_form_reads_back_as_the_same_rule(text: str) -> None:
    assert parse_rule(parse_rule(text).canonical) == GOOD[text]


@pytest.mark.promise("broker:rule-errors-give-the-corrected-rule")
@pytest.mark.parametrize("text", BAD, ids=lambda text: ascii(text))
def test_a_bad_rule_is_an_error_with_place_value_and_correction(text: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse_rule(text, where="fumehood.toml: tools.t.egress[0]")
    assert str(caught.value).startswith("fumehood.toml: tools.t.egress[0]: egress rule ")
    assert repr(text) in str(caught.value) and BAD[text] in str(caught.value)


@pytest.mark.parametrize(("table", "what"), BAD_TABLES)
def test_a_bad_table_is_an_error_with_its_correction(table: dict[str, object], what: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse_rule(table)
    assert what in str(caught.value)


def test_the_table_form_has_every_key_of_the_contract() -> None:
    table = {
        "host": "api.example.com",
        "port": 8443,
        "scheme": "https",
        "methods": ["GET", "POST"],
        "paths": ["/v1/", "/v2"],
        "private": True,
        "secret": {"header": "Authorization", "value": "Bearer {PROM_TOKEN}"},
        "max_request": "64 KiB",
        "max_response": 1000,
        "rate": "10/s",
        "max_connections": 2,
    }
    found = parse_rule(table, where="here")
    assert found == EgressRule(
        "",
        "https",
        "api.example.com",
        8443,
        methods=frozenset({"GET", "POST"}),
        paths=("/v1/", "/v2"),
        private=True,
        secret=SecretHeader("Authorization", "Bearer {PROM_TOKEN}"),
        max_request=65536,
        max_response=1000,
        rate=10.0,
        max_connections=2,
    )
    assert found.secret is not None and found.secret.names == ("PROM_TOKEN",)
    assert (found.where, found.path) == ("here", None)


def test_a_deny_entry_without_scheme_and_port_means_every_port() -> None:
    assert parse_rule("a.example", deny=True).port == EVERY_PORT
    assert parse_rule({"host": "a.example"}, deny=True).port == EVERY_PORT
    assert parse_rule("https://a.example", deny=True).port == 443
    assert parse_rule("a.example:22", deny=True).target == ("any", "a.example", 22)
    with pytest.raises(RuleError, match="no meaning in a deny entry"):
        parse_rule("a.example +private", deny=True)


@pytest.mark.requirement("R473")
@pytest.mark.parametrize(
    ("text", "host", "covered"),
    [
        ("api.example.com", "api.example.com", True),
        ("api.example.com", "sub.api.example.com", False),
        ("*.example.com", "example.com", False),
        ("*.example.com", "a.example.com", True),
        ("*.example.com", "a.b.example.com", True),
        ("*.example.com", "evil-example.com", False),
        ("*.example.com", "evilexample.com", False),
        ("*", "a.example", True),
        ("*", "metadata", False),
        ("*", "metadata.google.internal", False),
        ("*", "192.0.2.1", False),
        ("*", "[::1]", False),
        ("*.0.0.1.example", "127.0.0.1", False),
        ("192.0.2.1", "192.0.2.1", True),
    ],
)
def test_a_rule_covers_exactly_the_hosts_it_says(text: str, host: str, covered: bool) -> None:
    assert parse_rule(text).covers(canonical_host(host)) is covered


def test_a_star_in_a_deny_entry_covers_everything() -> None:
    star = parse_rule("*", deny=True)
    assert all(star.covers(canonical_host(host)) for host in ("a.example", "localhost", "192.0.2.1", "[::1]"))


@given(
    st.text(max_size=60)
    | st.from_regex(
        r"(GET )?(https?://|tcp://)?[a-z*.\[\]:0-9-]{1,30}(/[a-z.%/]*)?( \+[a-z=0-9/]+)?", fullmatch=True
    )
)
def test_any_text_is_a_rule_that_reads_back_or_a_rule_error(text: str) -> None:
    for deny in (False, True):
        try:
            found = parse_rule(text, deny=deny)
        except RuleError:
            continue
        assert parse_rule(found.canonical, deny=deny) == found
