"""The one decision, as a table from rules, request and answers to outcome, reason and hint. No I/O here."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood.broker import Answers, EgressPolicy, EgressRequest, decide, match, parse_authority, parse_url
from fumehood.broker._addresses import AddressClass, judge_address, parse_address
from fumehood.broker._decide import tunnel_rules
from tests.broker.world import PUBLIC, policy


def ask(text: str, method: str = "GET") -> EgressRequest:
    if text.startswith("CONNECT "):
        return EgressRequest(parse_authority(text.removeprefix("CONNECT ")), None, "proxy")
    return EgressRequest(parse_url(text), method)


def answers(*texts: str) -> Answers:
    return Answers(tuple(parse_address(text) for text in texts), ttl=60)


# (allow, request, method) -> (reason, hint)
NEAR_MISSES = [
    ((), "https://a.example/", "GET", "not-listed", ""),
    (
        ("https://*.a.example",),
        "https://a.example/",
        "GET",
        "not-listed",
        "*.a.example does not cover a.example itself; add 'a.example'",
    ),
    (
        ("https://a.example",),
        "https://b.a.example/",
        "GET",
        "not-listed",
        "a.example does not cover names below it; add 'b.a.example' or '*.a.example'",
    ),
    (
        ("https://api.a.example",),
        "https://apl.a.example/",
        "GET",
        "not-listed",
        "the nearest entry is 'api.a.example'",
    ),
    (
        ("http://*",),
        "http://localhost/",
        "GET",
        "not-listed",
        "* never covers localhost, a name of this machine or site; give it an entry of its own",
    ),
    (
        ("http://*",),
        "http://192.0.2.1/",
        "GET",
        "not-listed",
        "an address needs an entry of its own; entries with names never cover it",
    ),
    (
        ("https://a.example",),
        "https://a.example:8443/",
        "GET",
        "port",
        "'https://a.example' is for port 443; the request is for 8443",
    ),
    (
        ("https://a.example",),
        "http://a.example/",
        "GET",
        "scheme",
        "'https://a.example' is for https; the request is http",
    ),
    (
        ("tcp://a.example:443",),
        "https://a.example/",
        "GET",
        "scheme",
        "'tcp://a.example:443' is for tcp; the request is https",
    ),
    (
        ("GET https://a.example",),
        "https://a.example/",
        "POST",
        "method",
        "'GET https://a.example' does not list POST",
    ),
    (
        ("https://a.example/v1/",),
        "https://a.example/v2/",
        "GET",
        "path",
        "'https://a.example/v1/' does not cover the path '/v2/'",
    ),
    (
        ("https://a.example/v1/",),
        "https://a.example/v1/a%2fb",
        "GET",
        "path",
        (
            "'https://a.example/v1/' limits the path, and '/v1/a%2fb' has an escape or dots that "
            "servers read in two ways"
        ),
    ),
    (
        ("GET https://a.example",),
        "CONNECT a.example:443",
        "GET",
        "method",
        (
            "'GET https://a.example' limits the method, which TLS hides; use ctx.fetch, or add +inspect to "
            "the entry"
        ),
    ),
    (
        ("https://a.example/v1/",),
        "CONNECT a.example:443",
        "GET",
        "path",
        (
            "'https://a.example/v1/' limits the path, which TLS hides; use ctx.fetch, or add +inspect to "
            "the entry"
        ),
    ),
]


@pytest.mark.promise("broker:every-refusal-has-a-reason")
@pytest.mark.parametrize(("allow", "request_", "method", "reason", "hint"), NEAR_MISSES)
def test_a_near_miss_says_what_differs(
    allow: tuple[str, ...], request_: str, method: str, reason: str, hint: str
) -> None:
    found = match(policy(*allow), ask(request_, method))
    assert (found.reason, found.hint) == (reason, hint)


ALLOWED = [
    (("https://a.example",), "https://a.example/x", "DELETE"),
    (("a.example:9090",), "http://a.example:9090/", "GET"),
    (("a.example:9090",), "https://a.example:9090/", "GET"),
    (("a.example:9090",), "CONNECT a.example:9090", ""),
    (("tcp://a.example:22",), "CONNECT a.example:22", ""),
    (("https://a.example",), "CONNECT a.example:443", ""),
    (("GET https://a.example +inspect",), "CONNECT a.example:443", ""),
    (("http://a.example/v1",), "http://a.example/v1", "GET"),
    (("http://a.example/v1",), "http://a.example/v1/x", "GET"),
    (("http://a.example/v1/",), "http://a.example/%76%31/x", "GET"),
    (("http://192.0.2.1",), "http://192.0.2.1/", "GET"),
    (("http://*",), "http://a.example/", "GET"),
]


@pytest.mark.parametrize(("allow", "request_", "method"), ALLOWED)
def test_what_an_entry_says_is_allowed(allow: tuple[str, ...], request_: str, method: str) -> None:
    assert match(policy(*allow), ask(request_, method)).reason is None


def test_a_prefix_ends_at_a_segment_border() -> None:
    for path in ("/v1x", "/v", "/V1/x", "/"):
        assert match(policy("http://a.example/v1"), ask(f"http://a.example{path}")).reason == "path"


DENIES = [
    ("a.example", "https://a.example/", True),
    ("a.example", "http://a.example:8080/", True),
    ("a.example", "CONNECT a.example:22", True),
    ("https://a.example", "http://a.example/", False),
    ("https://a.example", "CONNECT a.example:443", True),
    ("*.example", "https://a.example/", True),
    ("*", "https://a.example/", True),
    ("POST https://a.example", "https://a.example/", False),
    ("POST https://a.example", "CONNECT a.example:443", True),
    ("https://a.example/admin", "https://a.example/", False),
    ("https://a.example/admin", "https://a.example/Admin/x", True),
    ("https://a.example/admin", "https://a.example/%61dmin", True),
    ("https://a.example/admin", "https://a.example/x%2f..%2fadmin", True),
    ("b.example", "https://a.example/", False),
]


@pytest.mark.promise("broker:deny-wins")
@pytest.mark.parametrize(("entry", "request_", "denied"), DENIES)
def test_a_deny_entry_covers_all_that_it_could_mean(entry: str, request_: str, denied: bool) -> None:
    everything = ("a.example:22", "https://a.example", "http://a.example", "a.example:8080")
    for side in ({"deny": [entry]}, {"host_deny": [entry]}):
        found = match(policy(*everything, **side), ask(request_))
        assert (found.reason == "denied-by-rule") is denied
        assert found.owner == ("host" if denied and "host_deny" in side else "tool")


@pytest.mark.promise("broker:deny-wins")
def test_audit_mode_never_overturns_a_deny_entry_nor_an_address_that_is_not_public() -> None:
    audit = policy(deny=["a.example"], mode="audit")
    assert match(audit, ask("https://a.example/")).reason == "denied-by-rule"
    assert match(audit, ask("http://169.254.169.254/")).reason == "metadata"
    seen = match(audit, ask("https://b.example/"))
    assert (seen.reason, seen.would_deny, seen.source) == (None, "not-listed", "audit")
    assert decide(audit, ask("https://b.example/"), answers("10.0.0.1")).reason == "not-public"


ANSWERS = [
    (False, (PUBLIC,), None),
    (False, (PUBLIC, "2606:2800:220:1::1946"), None),
    (False, ("64:ff9b::5db8:d822",), None),
    (False, ("10.0.0.1",), "not-public"),
    (False, (PUBLIC, "10.0.0.1"), "mixed-answers"),
    (False, (PUBLIC, "::1"), "mixed-answers"),
    (False, (PUBLIC, "169.254.169.254"), "metadata"),
    (False, ("0.0.0.0",), "not-public"),
    (False, (PUBLIC, "224.0.0.1"), "not-public"),
    (False, ("::ffff:10.0.0.1",), "not-public"),
    (False, ("64:ff9b::a00:1",), "not-public"),
    (True, ("10.0.0.1",), None),
    (True, ("127.0.0.1", "::1"), None),
    (True, (PUBLIC, "10.0.0.1"), None),
    (True, ("10.0.0.1", "169.254.169.254"), "metadata"),
    (True, ("fd00:ec2::254",), "metadata"),
    (True, ("fe80::1",), "metadata"),
    (True, ("0.0.0.0",), "not-public"),
    (True, ("255.255.255.255",), "not-public"),
    (True, (), "no-answer"),
]


@pytest.mark.promise("broker:no-unjudged-address")
@pytest.mark.promise("broker:metadata-never")
@pytest.mark.requirement("R472")
@pytest.mark.parametrize(("private", "texts", "reason"), ANSWERS)
def test_every_answer_is_judged_and_one_bad_answer_refuses_the_set(
    private: bool, texts: tuple[str, ...], reason: str | None
) -> None:
    found = decide(
        policy("https://a.example" + " +private" * private), ask("https://a.example/"), answers(*texts)
    )
    assert found.reason == reason
    assert (found.outcome == "allow") == (reason is None)
    assert [address.text for address in found.answers] == [parse_address(text).text for text in texts]
    assert (found.pinned is not None) == (reason is None)


def test_the_hosts_own_public_address_needs_private() -> None:
    own = frozenset({parse_address(PUBLIC)})
    asked = ask("https://a.example/")
    assert decide(policy("https://a.example"), asked, answers(PUBLIC), own).reason == "not-public"
    assert decide(policy("https://a.example +private"), asked, answers(PUBLIC), own).reason is None


def test_a_denied_literal_is_denied_behind_a_name_too() -> None:
    found = decide(
        policy("https://a.example", deny=[PUBLIC]),
        ask("https://a.example/"),
        answers("93.184.216.35", PUBLIC),
    )
    assert (found.reason, found.rule_text) == ("denied-by-rule", PUBLIC)


def test_the_most_specific_entry_decides() -> None:
    listed = policy(
        "https://*",
        "https://*.b.example",
        "https://*.a.b.example",
        "https://x.a.b.example +private",
        "https://x.a.b.example/v1/",
    )
    for url, text in (
        ("https://q.example/", "https://*"),
        ("https://q.b.example/", "https://*.b.example"),
        ("https://q.a.b.example/", "https://*.a.b.example"),
        ("https://x.a.b.example/", "https://x.a.b.example +private"),
        ("https://x.a.b.example/v1/q", "https://x.a.b.example/v1/"),
    ):
        found = match(listed, ask(url)).rule
        assert found is not None and found.text == text


HOSTS = st.sampled_from(
    [
        "a.example",
        "b.a.example",
        "localhost",
        "metadata.google.internal",
        "192.0.2.1",
        "[::1]",
        "169.254.169.254",
    ]
)
ENTRIES = st.lists(
    st.sampled_from(
        [
            "https://a.example",
            "*.a.example",
            "http://*",
            "GET https://a.example/v1",
            "a.example:22",
            "https://192.0.2.1 +private",
            "http://169.254.169.254 +private",
            "tcp://localhost:443 +private",
        ]
    ),
    max_size=4,
)
ADDRESSES = st.lists(
    st.sampled_from(
        [
            PUBLIC,
            "10.0.0.1",
            "127.0.0.1",
            "169.254.169.254",
            "::1",
            "fd00::1",
            "2606::1",
            "224.0.0.1",
            "64:ff9b::7f00:1",
        ]
    ),
    max_size=4,
)


@pytest.mark.promise("broker:deny-wins")
@pytest.mark.promise("broker:metadata-never")
@given(
    ENTRIES,
    ENTRIES,
    HOSTS,
    st.sampled_from(["https", "http"]),
    ADDRESSES,
    st.sampled_from(["enforce", "audit"]),
)
def test_whatever_the_rules_an_allowed_decision_pins_judged_addresses_only(
    allow: list[str], deny: list[str], host: str, scheme: str, given_: list[str], mode: str
) -> None:
    denied = [entry for entry in deny if "+" not in entry]
    rules = policy(*allow, deny=denied, mode=mode)
    asked = ask(f"{scheme}://{host}/")
    found = decide(rules, asked, answers(*given_))
    assert found == decide(rules, asked, answers(*given_)), "pure"
    assert (found.outcome == "allow") == (found.reason is None)
    if found.outcome == "allow":
        assert set(found.vetted) == set(found.answers)
        for address in found.vetted:
            kind = judge_address(address).kind
            assert kind is AddressClass.PUBLIC or (
                kind is AddressClass.PRIVATE and found.rule is not None and found.rule.private
            )
        assert match(replace(rules, allow=(), mode="enforce"), asked).reason != "denied-by-rule"
    else:
        assert found.vetted == () and found.pinned is None


def test_an_empty_policy_allows_nothing() -> None:
    assert match(EgressPolicy(), ask("https://a.example/")).reason == "not-listed"


@pytest.mark.promise("broker:inspection-enforces-inside-tls")
def test_an_entry_that_limits_what_it_cannot_read_gains_nothing_from_another_on_its_port() -> None:
    asked = ask("CONNECT a.example:443")
    limited = policy("https://a.example/v1/", "http://a.example:443")
    assert [rule.text for rule in tunnel_rules(limited.allow, asked)] == ["http://a.example:443"]
    both = policy("https://a.example", "GET https://a.example +inspect", "https://*.example")
    assert [rule.text for rule in tunnel_rules(both.allow, asked)] == [
        "GET https://a.example +inspect",
        "https://a.example",
        "https://*.example",
    ]
