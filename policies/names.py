"""Host names and address literals, read one way only.

Guarantees: a `Host` holds the single spelling that the rest of fumehood compares, resolves, dials and sends.
Text that two programs
could read as two hosts is refused, never repaired: short, octal and hexadecimal IPv4, trailing dots on
literals, zone ids, letters that map to plain ASCII, percent escapes, empty labels.
Not here: which host is allowed (rules.py) and which address is public (fumehood.broker).
Before editing: ASCII labels never pass through the idna package, because it refuses names that exist
(`r3---sn-x`, `_dmarc`), and Python's built-in "idna" codec is never used, because it turns circled and
fullwidth digits into 127.0.0.1.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import idna

__all__ = ["BadHost", "Host", "canonical_host", "format_ipv6", "is_ordinary_name"]

MAX_NAME = 253  # RFC 1035 section 2.3.4: 255 octets on the wire, 253 characters as text
MAX_TEXT = 1024  # before any work on it: idna's mapping is slow on long text
_LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(?:\.{_LABEL})*", re.ASCII)
_IPV4 = re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?:\.(?!$)|$)){4}", re.ASCII)
_NUMERIC_LABEL = re.compile(r"(?:[0-9]+|0[xX][0-9a-fA-F]*)", re.ASCII)
_IPV6_CHARS = re.compile(r"[0-9a-fA-F:.]{2,45}", re.ASCII)

# Names that mean "this machine" or "this site". A bare "*" never covers them; an entry of their own does.
# RFC 6761 (localhost, invalid), RFC 6762 (local), RFC 7686 (onion), RFC 8375 (home.arpa), ICANN's reserved
# "internal", cluster suffixes, and the private suffixes that ICANN will not delegate because so many sites
# use them.
SITE_SUFFIXES = frozenset(
    [
        "localhost",
        "localdomain",
        "localdomain4",
        "localdomain6",
        "local",
        "internal",
        "intranet",
        "private",
        "corp",
        "home",
        "lan",
        "svc",
        "cluster",
        "invalid",
        "onion",
        "arpa",
        "alt",
    ]
)


class BadHost(ValueError):
    """A text is no host in the one spelling we accept; str() says what is wrong and how to write it."""


@dataclass(frozen=True, slots=True)
class Host:
    """A checked host.

    text: canonical ASCII (lower case, A-labels, no trailing dot, IPv6 without brackets). kind: what it is.
    """

    text: str
    kind: Literal["name", "ipv4", "ipv6"]

    @property
    def is_literal(self) -> bool:
        """Whether this is an address rather than a name."""
        return self.kind != "name"

    @property
    def in_url(self) -> str:
        """The host as it stands in a URL or a Host header: IPv6 in brackets."""
        return f"[{self.text}]" if self.kind == "ipv6" else self.text

    def __str__(self) -> str:
        return self.in_url


def canonical_host(text: str) -> Host:
    """The host that `text` names.

    `text` is what stands in an authority: a name, a dotted quad, or an IPv6 address in brackets.
    Raises: BadHost when the text is none of these in its one accepted spelling (egress rules,
    docs/egress.md).
    """
    if not text:
        raise BadHost("the host is empty")
    if len(text) > MAX_TEXT:
        raise BadHost(f"the host has {len(text)} characters; no name has more than {MAX_NAME}")
    return _canonical(text)


@lru_cache(maxsize=4096)  # only good hosts are kept (an exception is not cached), so an entry is small
def _canonical(text: str) -> Host:
    if text[0] == "[":
        return _ipv6(text)
    if ":" in text:
        raise BadHost(f"an IPv6 address needs brackets: write [{text}] (and :port after the bracket)")
    if _IPV4.fullmatch(text):
        return Host(text, "ipv4")
    name = text if text.isascii() else _to_ascii(text)
    name = name.lower()
    if name.endswith("."):
        name = name[:-1]  # the root dot; a second one leaves an empty label, which the grammar refuses
    if len(name) > MAX_NAME:
        raise BadHost(f"the name has {len(name)} characters, over the {MAX_NAME} of RFC 1035")
    if _NUMERIC_LABEL.fullmatch(name.rpartition(".")[2]):
        raise BadHost(
            f"{text!r} is a number, not a name; an IPv4 address is four decimal parts, such as 192.0.2.1"
        )
    if not _NAME.fullmatch(name):
        raise BadHost(f"{text!r} is not a host name: {_what_is_wrong(name)}")
    if "xn--" in name:
        _check_a_labels(name)
    return Host(name, "name")


def is_ordinary_name(host: Host) -> bool:
    """Whether a bare `*` covers this host:

    a name of two labels or more that does not mean this machine or this site.
    """
    _, dot, last = host.text.rpartition(".")
    return host.kind == "name" and bool(dot) and last not in SITE_SUFFIXES


def format_ipv6(value: int) -> str:
    """RFC 5952 text of a 128-bit value, with no dotted-quad tail in any Python version (`ipaddress` changed
    that in 3.13).
    """
    groups = [(value >> shift) & 0xFFFF for shift in range(112, -16, -16)]
    best_at, best_len, at = 0, 0, 0
    while at < 8:
        end = at
        while end < 8 and groups[end] == 0:
            end += 1
        if end - at > best_len:
            best_at, best_len = at, end - at
        at = max(end, at + 1)
    if best_len < 2:
        return ":".join(f"{group:x}" for group in groups)
    head = ":".join(f"{group:x}" for group in groups[:best_at])
    tail = ":".join(f"{group:x}" for group in groups[best_at + best_len :])
    return f"{head}::{tail}"


def _ipv6(text: str) -> Host:
    inner = text[1:-1]
    if text[-1] != "]":
        raise BadHost(f"{text!r} opens a bracket that it does not close")
    if "%" in inner:
        raise BadHost("an address with a zone id (%eth0) is only meaningful on one machine and is refused")
    if not _IPV6_CHARS.fullmatch(inner):
        raise BadHost(f"{text!r} is not an IPv6 address; brackets are for IPv6 addresses only")
    try:
        return Host(format_ipv6(int(ipaddress.IPv6Address(inner))), "ipv6")
    except ipaddress.AddressValueError as error:
        raise BadHost(f"{text!r} is not an IPv6 address: {error}") from error


def _to_ascii(text: str) -> str:
    """Non-ASCII labels to A-labels by UTS-46 (non-transitional);

    refused where the mapping changes more than case.
    """
    out = []
    for label in text.split("."):
        if label.isascii():
            out.append(label)
            continue
        try:
            encoded = idna.encode(label, uts46=True, std3_rules=True, transitional=False).decode("ascii")
            same = encoded.startswith("xn--") and "." not in encoded and idna.decode(encoded) == label.lower()
        except (idna.IDNAError, UnicodeError) as error:
            raise BadHost(f"the label {label!r} is not valid in an international name: {error}") from error
        if not same:
            raise BadHost(
                f"the label {label!r} would be rewritten to {encoded!r}; write the name that is meant"
            )
        out.append(encoded)
    return ".".join(out)


def _check_a_labels(name: str) -> None:
    for label in name.split("."):
        if not label.startswith("xn--"):
            continue
        try:
            good = idna.encode(idna.decode(label)).decode("ascii") == label
        except (idna.IDNAError, UnicodeError) as error:
            raise BadHost(f"the label {label!r} is not a valid A-label: {error}") from error
        if not good:
            raise BadHost(f"the label {label!r} is not the A-label of the name it decodes to")


def _what_is_wrong(name: str) -> str:
    if "%" in name:
        return "a host has no percent escapes"
    if "*" in name:
        return "a wildcard stands in rules only"
    if ".." in name or name.startswith(".") or name.endswith(".") or not name:
        return "it has an empty label"
    for label in name.split("."):
        if len(label) > 63:
            return f"the label {label[:20] + '…'!r} has {len(label)} characters, over the 63 of RFC 1035"
    odd = sorted({char for char in name if not re.fullmatch(r"[a-z0-9_.-]", char, re.ASCII)})
    if odd:
        return f"it has {', '.join(map(repr, odd[:3]))}"
    return "a label must not begin or end with a hyphen"
