"""The URL grammar: our reading, a second parser's agreement, and nothing repaired."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood.broker import BadTarget, Target, parse_authority, parse_url
from fumehood.broker._target import resolve_location, target_of
from fumehood.policies.names import canonical_host

GOOD = {
    "https://a.example": "https://a.example/",
    "https://a.example?x": "https://a.example/?x",
    "https://a.example#x": "https://a.example/",
    "https://a.example./": "https://a.example/",
    "HTTPS://A.Example:443/x": "https://a.example/x",
    "http://a.example:443/": "http://a.example:443/",
    "https://a.example/a/./b/../c/%2E%2e/d/..": "https://a.example/a/",
    "https://a.example/../../x": "https://a.example/x",
    "https://a.example/a%2Fb/%40scope": "https://a.example/a%2Fb/%40scope",
    "https://a.example/é?ü": "https://a.example/%C3%A9?%C3%BC",
    'https://a.example/q?query=up{job="x"}': "https://a.example/q?query=up%7Bjob%3D%22x%22%7D".replace(
        "%3D", "="
    ),
    "https://a.example//x": "https://a.example//x",
    "http://[2606:2800:220:1:0:0:0:1946]:80/": "http://[2606:2800:220:1::1946]/",
    "http://192.0.2.1:8080/": "http://192.0.2.1:8080/",
}
BAD = {
    "": "malformed",
    "a.example": "malformed",
    "//a.example/": "malformed",
    "a.example:443/x": "malformed",
    "https://": "malformed",
    "https:///x": "ambiguous-url",
    "https:/a.example/": "ambiguous-url",
    "https:a.example/": "ambiguous-url",
    "https:\\\\a.example/": "ambiguous-url",
    "https://a.example\\@evil.test/": "ambiguous-url",
    "https://a.example/a\\..\\b": "ambiguous-url",
    " https://a.example/": "ambiguous-url",
    "https://a.example/ ": "ambiguous-url",
    "https://a.example/a b": "ambiguous-url",
    "https://u@a.example/": "ambiguous-url",
    "https://@a.example/": "ambiguous-url",
    "https://a.example:/": "ambiguous-url",
    "https://a.example:0/": "malformed",
    "https://a.example:99999/": "malformed",
    "https://a.example:-1/": "malformed",
    "https://a.example/%zz": "malformed",
    "https://a.example/\ud800": "malformed",
    "https://a.example/\x00": "ambiguous-url",
    "https://a\u2024example/": "malformed",
    "https://[::1]evil/": "malformed",
    "https://[fe80::1%25eth0]/": "malformed",
    "https://[v1.x]/": "malformed",
    "ftp://a.example/": "scheme",
    "ws://a.example/": "scheme",
    "mailto:x@a.example": "scheme",
    "https://a.example/" + "x" * 20000: "malformed",
}


@pytest.mark.promise("broker:one-reading-of-a-url")
@pytest.mark.parametrize("text", GOOD)
def test_a_url_is_sent_in_its_one_serialised_form(text: str) -> None:
    assert parse_url(text).url == GOOD[text]
    assert parse_url(GOOD[text]).url == GOOD[text]


@pytest.mark.promise("broker:one-reading-of-a-url")
@pytest.mark.parametrize("text", BAD, ids=lambda text: ascii(text)[:50])
def test_a_url_with_another_reading_is_refused_with_its_reason(text: str) -> None:
    with pytest.raises(BadTarget) as caught:
        parse_url(text)
    assert caught.value.reason == BAD[text]


PIECES = st.sampled_from(
    [
        "http",
        "https",
        "://",
        ":",
        "/",
        "//",
        "@",
        "\\",
        "%2e",
        "%2f",
        "..",
        ".",
        "#",
        "?",
        "[",
        "]",
        "::1",
        "127.1",
        "0x7f",
        "a.example",
        "evil.test",
        "443",
        " ",
        "\t",
        "\u3002",
        "\uff0e",
        "xn--",
        "\u200b",
        "*",
    ]
)


@pytest.mark.promise("broker:one-reading-of-a-url")
@given(st.lists(PIECES, max_size=9).map("".join) | st.text(max_size=60).map("https://".__add__))
def test_any_text_that_parses_reads_the_same_to_other_parsers(text: str) -> None:
    try:
        target = parse_url(text)
    except BadTarget as bad:
        assert bad.reason in ("malformed", "ambiguous-url", "scheme")
        return
    assert parse_url(target.url) == target
    split = urlsplit(target.url)
    assert (split.scheme, split.hostname, split.path) == (target.scheme, target.host.text, target.path)
    assert target.url.isascii() and not set(target.url) & set(" \t\r\n\\")
    assert "/../" not in target.path + "/" and "/./" not in target.path + "/"


@given(st.from_regex(r"[a-z0-9.\[\]:%@/ -]{0,40}", fullmatch=True) | st.text(max_size=40))
def test_any_authority_is_one_host_and_port_or_malformed(text: str) -> None:
    try:
        target = parse_authority(text)
    except BadTarget as bad:
        assert bad.reason == "malformed"
        return
    assert parse_authority(target.url) == target and 0 < target.port < 65536


@pytest.mark.parametrize(
    "text",
    [
        "a.example",
        "a.example:",
        "a.example:0443",
        "u@a.example:443",
        "https://a.example:443",
        "::1:443",
        "2606:2800:220:1::1946:443",
        "a.example:443/",
        "[::1]",
        ":443",
        "a%2e:443",
        "a:1:2",
    ],
)
def test_connect_targets_are_host_and_port_and_nothing_else(text: str) -> None:
    with pytest.raises(BadTarget):
        parse_authority(text)


def test_a_socks_target_is_checked_like_any_other() -> None:
    assert target_of("a.example", 443) == Target("tunnel", canonical_host("a.example"), 443)
    for host, port in (
        ("api.example.com\x00.evil.test", 443),
        ("a.example", 0),
        ("a.example", 65536),
        ("127.1", 80),
    ):
        with pytest.raises(BadTarget):
            target_of(host, port)


LOCATIONS = {
    "/next": "https://a.example:8443/next",
    "next": "https://a.example:8443/d/next",
    "../up": "https://a.example:8443/up",
    "?q=2": "https://a.example:8443/d/page?q=2",
    "#frag": "https://a.example:8443/d/page?q=1",
    "//b.example/x": "https://b.example/x",
    "https://b.example": "https://b.example/",
    " /padded ": "https://a.example:8443/padded",
    "a:b": "malformed-or-scheme",
    "file:///etc/passwd": "scheme",
    "https:\\\\evil.test\\x": "ambiguous-url",
    "/\\evil.test": "ambiguous-url",
    "https:evil.test": "ambiguous-url",
    "": "malformed",
    "/a\r\nb": "malformed",
}


@pytest.mark.parametrize("location", LOCATIONS, ids=ascii)
def test_a_location_is_joined_one_way_only(location: str) -> None:
    base = parse_url("https://a.example:8443/d/page?q=1")
    expected = LOCATIONS[location]
    if expected.startswith("https://"):
        assert resolve_location(base, location).url == expected
    else:
        with pytest.raises(BadTarget) as caught:
            resolve_location(base, location)
        assert caught.value.reason in (expected.split("-or-") if "-or-" in expected else [expected])
