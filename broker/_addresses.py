"""Which addresses a broker may dial: our own table, integers and masks, no flags of `ipaddress`.

Guarantees: every address is judged by its bits, whatever spelling it came in; an IPv6 address that carries an
IPv4 address (mapped, compatible, translated, NAT64, 6to4, Teredo, ISATAP) is never better than the IPv4
address inside. Link-local and cloud metadata addresses are METADATA, which nothing allows.
Not here: resolving, and whether an entry allows non-public answers (_decide.py).
Before editing: `is_global` differs between Python versions and calls multicast, fec0::/10, ::127.0.0.1 and
Azure's 168.63.129.16 global, so it is not used. The table follows the IANA special-purpose registries of
2026-11; tests/data/addresses.tsv holds the expected class of each range.
"""

from __future__ import annotations

import enum
import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from fumehood.policies.names import format_ipv6


class AddressClass(enum.Enum):
    """What an address is to the broker, from always fine to never."""

    PUBLIC = "public"  # any entry that covers the name may lead here
    PRIVATE = "private"  # only an entry with `private`
    UNUSABLE = "unusable"  # no single host stands behind it: unspecified, multicast, reserved, broadcast
    METADATA = "metadata"  # link-local or a cloud's own service; nothing allows it


@dataclass(frozen=True, slots=True)
class Address:
    """One IP address.

    version: 4 or 6; value: its bits. A mapped address (::ffff:a.b.c.d) is held as the IPv4 address it means.
    """

    version: int
    value: int
    text: str = field(compare=False)

    @property
    def family(self) -> socket.AddressFamily:
        return socket.AF_INET if self.version == 4 else socket.AF_INET6

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Judgement:
    """The class of one address and the range that made it so ("10.0.0.0/8, private use")."""

    address: Address
    kind: AddressClass
    because: str


@lru_cache(maxsize=4096)  # one request parses the same few addresses several times
def parse_address(text: str) -> Address:
    """The address that a resolver or a literal gave.

    Raises: ValueError when the text is no IP address, or has a zone id.
    """
    if ":" not in text:
        return _v4(int(ipaddress.IPv4Address(text)))
    if "%" in text:
        raise ValueError(f"{text!r} has a zone id")
    value = int(ipaddress.IPv6Address(text))
    if value >> 32 == 0xFFFF:
        return _v4(value & 0xFFFFFFFF)
    return Address(6, value, format_ipv6(value))


def judge_address(address: Address, own: frozenset[Address] = frozenset()) -> Judgement:
    """The class of `address`; `own` are this host's interface addresses, which are never public."""
    kind, because = _judge_v4(address.value) if address.version == 4 else _judge_v6(address.value)
    if kind is AddressClass.PUBLIC and not own.isdisjoint((address, *embedded_addresses(address))):
        kind, because = AddressClass.PRIVATE, "an address of this host's own"
    return Judgement(address, kind, because)


def embedded_addresses(address: Address) -> tuple[Address, ...]:
    """The IPv4 addresses that an IPv6 address carries; what is said about one of them holds for it too."""
    return tuple(map(_v4, _embedded(address.value))) if address.version == 6 else ()


def own_addresses() -> frozenset[Address]:
    """The addresses of this host's interfaces, as they are now."""
    import psutil  # 20 ms; needed once for each broker

    found = set()
    for entries in psutil.net_if_addrs().values():
        for entry in entries:
            if entry.family in (socket.AF_INET, socket.AF_INET6):
                found.add(parse_address(entry.address.partition("%")[0]))
    return frozenset(found)


def dial_order(addresses: Iterable[Address]) -> tuple[Address, ...]:
    """Each address once, families interleaved, IPv4 first (RFC 8305 section 4 interleaves;

    most sandboxed hosts have no IPv6).
    """
    unique = list(dict.fromkeys(addresses))
    four = [address for address in unique if address.version == 4]
    six = [address for address in unique if address.version == 6]
    mixed = [address for pair in zip(four, six, strict=False) for address in pair]
    return tuple(mixed + four[len(six) :] + six[len(four) :])


def _v4(value: int) -> Address:
    return Address(4, value, socket.inet_ntoa(value.to_bytes(4, "big")))


def _ranges(
    rows: tuple[tuple[str, AddressClass, str], ...], bits: int
) -> tuple[tuple[int, int, AddressClass, str], ...]:
    out = []
    for text, kind, name in rows:
        network = ipaddress.ip_network(text)
        assert network.max_prefixlen == bits
        out.append((int(network.network_address), int(network.netmask), kind, f"{text}, {name}"))
    return tuple(out)


_PRIVATE, _UNUSABLE, _METADATA = AddressClass.PRIVATE, AddressClass.UNUSABLE, AddressClass.METADATA

# First match wins, so a cloud's single address stands before the range around it.
_V4 = _ranges(
    (
        ("169.254.0.0/16", _METADATA, "link-local and cloud metadata"),
        ("168.63.129.16/32", _METADATA, "Azure wire server"),
        ("100.100.100.200/32", _METADATA, "Alibaba metadata"),
        ("100.96.0.96/32", _METADATA, "Volcano Engine and BytePlus metadata"),
        ("100.80.80.80/32", _METADATA, "UCloud metadata"),
        ("192.0.0.192/32", _METADATA, "Oracle metadata"),
        ("127.0.0.0/8", _PRIVATE, "loopback"),
        ("10.0.0.0/8", _PRIVATE, "private use"),
        ("172.16.0.0/12", _PRIVATE, "private use"),
        ("192.168.0.0/16", _PRIVATE, "private use"),
        ("100.64.0.0/10", _PRIVATE, "carrier-grade NAT"),
        ("192.0.0.0/24", _PRIVATE, "protocol assignments"),
        ("192.0.2.0/24", _PRIVATE, "documentation"),
        ("198.51.100.0/24", _PRIVATE, "documentation"),
        ("203.0.113.0/24", _PRIVATE, "documentation"),
        ("198.18.0.0/15", _PRIVATE, "benchmarking"),
        ("192.88.99.0/24", _UNUSABLE, "the old 6to4 relay"),
        ("0.0.0.0/8", _UNUSABLE, "this network"),
        ("224.0.0.0/4", _UNUSABLE, "multicast"),
        ("240.0.0.0/4", _UNUSABLE, "reserved and broadcast"),
    ),
    32,
)

_V6 = _ranges(
    (
        ("fe80::/10", _METADATA, "link-local"),
        ("fd00:ec2::/32", _METADATA, "AWS metadata"),
        ("fd20:ce::254/128", _METADATA, "Google metadata"),
        ("fd00:c1::/32", _METADATA, "Oracle metadata"),
        ("fd00:42::42/128", _METADATA, "Scaleway metadata"),
        ("fd00:a9fe:a9fe::1/128", _METADATA, "Linode metadata"),
        ("::/128", _UNUSABLE, "unspecified"),
        ("::1/128", _PRIVATE, "loopback"),
        ("fc00::/7", _PRIVATE, "unique local"),
        ("fec0::/10", _PRIVATE, "site-local"),
        ("64:ff9b:1::/48", _PRIVATE, "local-use NAT64"),
        ("2001:db8::/32", _PRIVATE, "documentation"),
        ("3fff::/20", _PRIVATE, "documentation"),
        ("2001::/23", _UNUSABLE, "protocol assignments and Teredo"),
        ("2002::/16", _UNUSABLE, "6to4"),
        ("ff00::/8", _UNUSABLE, "multicast"),
        ("2000::/3", AddressClass.PUBLIC, "global unicast"),
        ("::/0", _UNUSABLE, "outside global unicast"),
    ),
    128,
)

_NAT64 = 0x0064FF9B << 96  # 64:ff9b::/96, RFC 6052: the whole address is the IPv4 address in the last 32 bits
_ISATAP = (0x00005EFE, 0x02005EFE)  # RFC 5214: interface identifiers 0:5efe:a.b.c.d and 200:5efe:a.b.c.d


def _judge_v4(value: int) -> tuple[AddressClass, str]:
    for network, mask, kind, because in _V4:
        if value & mask == network:
            return kind, because
    return AddressClass.PUBLIC, "public"


def _judge_v6(value: int) -> tuple[AddressClass, str]:
    last = value & 0xFFFFFFFF
    if value >> 32 == _NAT64 >> 32:
        kind, because = _judge_v4(last)
        return kind, f"{because}, behind NAT64"
    for inner in _embedded(value):
        if _judge_v4(inner)[0] is AddressClass.METADATA:
            return AddressClass.METADATA, f"{_judge_v4(inner)[1]}, inside an IPv6 address"
    for network, mask, kind, because in _V6:
        if value & mask == network:
            if kind is AddressClass.PUBLIC and (value >> 32 & 0xFFFFFFFF) in _ISATAP:
                inner_kind, inner_because = _judge_v4(last)
                return inner_kind, f"{inner_because}, inside an ISATAP address"
            return kind, because
    raise AssertionError("::/0 covers every IPv6 address")


def _embedded(value: int) -> Iterable[int]:
    """IPv4 addresses that this address may carry, in forms that are never public as a whole or that only
    tunnels use.
    """
    last = value & 0xFFFFFFFF
    high = value >> 96
    if value >> 32 in (0, 0xFFFF, 0xFFFF0000, _NAT64 >> 32) or value >> 80 == 0x0064FF9B0001:
        yield last  # compatible, mapped, translated, NAT64 (RFC 6052, RFC 8215)
    if value >> 80 == 0x0064FF9B0001:
        yield from _behind_prefix(value)
    if high >> 16 == 0x2002:
        yield value >> 80 & 0xFFFFFFFF  # 6to4, RFC 3056
    if high == 0x20010000:
        yield value >> 64 & 0xFFFFFFFF  # Teredo server, RFC 4380
        yield last ^ 0xFFFFFFFF  # Teredo client, stored inverted
    if (value >> 32 & 0xFFFFFFFF) in _ISATAP:
        yield last


def _behind_prefix(value: int) -> Iterable[int]:
    """The IPv4 address behind a NAT64 prefix of 48, 56 or 64 bits, which goes around bits 64 to 71 (RFC 6052
    section 2.2).
    """
    whole = value >> 64 << 56 | value & (1 << 56) - 1  # without those eight bits
    for prefix in (48, 56, 64):
        yield whole >> (120 - prefix - 32) & 0xFFFFFFFF
