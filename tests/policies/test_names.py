"""Host names and literals: one spelling in, one spelling out, or a refusal that says how to write it."""

from __future__ import annotations

import ipaddress
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood.policies.names import BadHost, Host, canonical_host, format_ipv6, is_ordinary_name

GOOD = {
    "api.example.com": Host("api.example.com", "name"),
    "API.Example.COM": Host("api.example.com", "name"),
    "api.example.com.": Host("api.example.com", "name"),
    "r3---sn-x.example.com": Host("r3---sn-x.example.com", "name"),
    "_dmarc.example.com": Host("_dmarc.example.com", "name"),
    "localhost": Host("localhost", "name"),
    "bücher.example": Host("xn--bcher-kva.example", "name"),
    "BÜCHER.example": Host("xn--bcher-kva.example", "name"),
    "faß.example": Host("xn--fa-hia.example", "name"),
    "xn--fa-hia.example": Host("xn--fa-hia.example", "name"),
    "192.0.2.1": Host("192.0.2.1", "ipv4"),
    "[::1]": Host("::1", "ipv6"),
    "[2606:2800:220:1:0:0:0:1946]": Host("2606:2800:220:1::1946", "ipv6"),
    "[::FFFF:1.2.3.4]": Host("::ffff:102:304", "ipv6"),
    "a" * 63 + ".example": Host("a" * 63 + ".example", "name"),
}
BAD = {
    "": "empty",
    ".": "empty label",
    ".example.com": "empty label",
    "a..b": "empty label",
    "a.b..": "empty label",
    "a" * 64 + ".example": "over the 63",
    ".".join(["a" * 60] * 5): "over the 253",
    "a" * 5000: "5000 characters",
    "-a.example": "hyphen",
    "a-.example": "hyphen",
    "a b.example": "' '",
    "a\x00.example": "'\\x00'",
    "a%2eb.example": "percent",
    "*.example.com": "wildcard",
    "127.1": "number",
    "2130706433": "number",
    "0x7f.1": "number",
    "0x7f000001": "number",
    "0177.0.0.1": "number",
    "127.0.0.1.": "number",
    "127.0.0.01": "number",
    "256.1.1.1": "number",
    "1.2.3.4.5": "number",
    "a.0x": "number",
    "::1": "brackets",
    "[::1": "bracket",
    "[fe80::1%eth0]": "zone",
    "[api.example.com]": "brackets are for IPv6",
    "[1.2.3.4]": "not an IPv6",
    "[::1]x": "does not close",
    "ａpi.example.com": "rewritten",
    "ⓐpi.example.com": "rewritten",
    "exa\u200bmple.com": "rewritten",
    "exa\u00admple.com": "rewritten",
    "１２７.0.0.1": "rewritten",
    "①②⑦.0.0.1": "rewritten",
    "127。0。0。1": "rewritten",
    "good。example": "rewritten",
    "xn--a.example": "A-label",
    "xn--bcher-KVA\u200b.example": "rewritten",
    "\ud800.example": "not valid",
}


@pytest.mark.promise("broker:one-spelling-of-a-host")
@pytest.mark.requirement("R473")
@pytest.mark.parametrize("text", GOOD)
def test_a_host_is_held_in_its_one_canonical_spelling(text: str) -> None:
    assert canonical_host(text) == GOOD[text]


@pytest.mark.promise("broker:one-spelling-of-a-host")
@pytest.mark.parametrize("text", BAD, ids=lambda text: ascii(text)[:40])
def test_text_with_two_readings_is_refused_with_what_is_wrong(text: str) -> None:
    with pytest.raises(BadHost) as caught:
        canonical_host(text)
    assert BAD[text] in str(caught.value)


@given(st.text(max_size=80) | st.from_regex(r"[a-z0-9.\-\[\]:x%_]{0,60}", fullmatch=True))
def test_any_text_is_refused_or_has_a_spelling_that_reads_as_itself(text: str) -> None:
    try:
        host = canonical_host(text)
    except BadHost:
        return
    assert canonical_host(host.in_url) == host
    assert host.text == host.text.lower() and host.text.isascii() and len(host.text) <= 253
    assert set(host.text) <= set(string.ascii_lowercase + string.digits + "-._:")


@given(st.integers(0, 2**128 - 1))
def test_ipv6_text_reads_back_and_is_as_short_as_the_standard_says(value: int) -> None:
    text = format_ipv6(value)
    assert int(ipaddress.IPv6Address(text)) == value
    if value >> 32 not in (0, 0xFFFF):
        assert text == ipaddress.IPv6Address(value).compressed


@given(st.integers(0, 2**32 - 1))
def test_every_dotted_quad_is_an_address(value: int) -> None:
    text = str(ipaddress.IPv4Address(value))
    assert canonical_host(text) == Host(text, "ipv4")


@pytest.mark.parametrize(
    ("text", "ordinary"),
    [
        ("example.com", True),
        ("a.b.example", True),
        ("localhost", False),
        ("metadata", False),
        ("x.localhost", False),
        ("printer.local", False),
        ("metadata.google.internal", False),
        ("kubernetes.default.svc", False),
        ("router.home.arpa", False),
        ("192.0.2.1", False),
        ("[2606::1]", False),
    ],
)
def test_a_bare_star_means_names_that_are_nobodys_own(text: str, ordinary: bool) -> None:
    assert is_ordinary_name(canonical_host(text)) is ordinary
