"""Netlink, as little of it as a private network namespace needs: bring `lo` up, make a range local
(rtnetlink(7)); and sockets that see what the kernel itself refused there (raw(7), linux/filter.h).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import socket
import struct

_RTM_NEWLINK, _RTM_NEWROUTE = 16, 24
_NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_CREATE, _NLM_F_EXCL = 1, 4, 0x400, 0x200
_IFF_UP, _LOOPBACK_INDEX = 1, 1
_TABLE_LOCAL, _PROT_STATIC, _SCOPE_HOST, _TYPE_LOCAL = 255, 4, 254, 2
_RTA_DST, _RTA_OIF = 1, 4
_ICMP6 = 58
_SO_ATTACH_FILTER = 26
_LOAD_BYTE, _LOAD_WORD, _LOAD_HALF = 0x30, 0x20, 0x28  # at a fixed place
_LOAD_BYTE_X, _LOAD_WORD_X, _LOAD_HALF_X = 0x50, 0x40, 0x48  # behind the IP header, whose length is X
_X_IS_IP_HEADER, _AND, _EQUAL, _AT_LEAST, _RETURN = 0xB1, 0x54, 0x15, 0x35, 0x06
_RESET_AND_ACK = 0x14
_SEEN = 256  # bytes of a packet that are kept
_GROUPS = ("224.0.0.251", "224.0.0.252", "239.255.255.250")
"""mDNS, LLMNR, SSDP: of IPv4 groups the kernel shows those only in which somebody is."""

Instruction = tuple[int, int, int, int]

# What answers a SYN to a port where nobody listens: RST and ACK, with the sequence number 0. A reset inside a
# connection has another number.
_RESETS: list[Instruction] = [
    (_X_IS_IP_HEADER, 0, 0, 0), (_LOAD_BYTE_X, 0, 0, 13), (_AND, 0, 0, 0x3F), (_EQUAL, 0, 3, _RESET_AND_ACK),
    (_LOAD_WORD_X, 0, 0, 4), (_EQUAL, 0, 1, 0), (_RETURN, 0, 0, _SEEN), (_RETURN, 0, 0, 0),
]  # fmt: skip
_RESETS6: list[Instruction] = [  # an IPv6 raw socket is shown no IP header
    (_LOAD_BYTE, 0, 0, 13), (_AND, 0, 0, 0x3F), (_EQUAL, 0, 3, _RESET_AND_ACK),
    (_LOAD_WORD, 0, 0, 4), (_EQUAL, 0, 1, 0), (_RETURN, 0, 0, _SEEN), (_RETURN, 0, 0, 0),
]  # fmt: skip
# What answers a datagram: ICMP "port unreachable", with the datagram's head inside.
_UNREACHABLE: list[Instruction] = [
    (_X_IS_IP_HEADER, 0, 0, 0), (_LOAD_HALF_X, 0, 0, 0), (_EQUAL, 0, 1, 0x0303),
    (_RETURN, 0, 0, _SEEN), (_RETURN, 0, 0, 0),
]  # fmt: skip
# Datagrams to a group or to everybody, which nothing answers, so the watch shows them themselves: by the
# first byte of the destination, in the IP header. An IPv6 raw socket is shown none; SKF_NET_OFF finds it.
_TO_MANY: list[Instruction] = [
    (_LOAD_BYTE, 0, 0, 16), (_AT_LEAST, 0, 1, 224), (_RETURN, 0, 0, _SEEN), (_RETURN, 0, 0, 0),
]  # fmt: skip
_TO_MANY6: list[Instruction] = [
    (_LOAD_BYTE, 0, 0, 0xFFF00018), (_EQUAL, 0, 1, 0xFF), (_RETURN, 0, 0, _SEEN), (_RETURN, 0, 0, 0),
]  # fmt: skip
_UNREACHABLE6: list[Instruction] = [
    (_LOAD_HALF, 0, 0, 0), (_EQUAL, 0, 1, 0x0104), (_RETURN, 0, 0, _SEEN), (_RETURN, 0, 0, 0),
]  # fmt: skip


def _ask(link: socket.socket, kind: int, flags: int, body: bytes) -> None:
    header = struct.pack("=IHHII", 16 + len(body), kind, flags | _NLM_F_REQUEST | _NLM_F_ACK, 1, 0)
    link.send(header + body)
    code = -struct.unpack("=i", link.recv(4096)[16:20])[0]
    if code and code != errno.EEXIST:
        raise OSError(code, f"netlink {kind}: {os.strerror(code)}")


def _attribute(kind: int, data: bytes) -> bytes:
    padded = data + bytes(-len(data) % 4)
    return struct.pack("=HH", 4 + len(data), kind) + padded


def loopback_up() -> None:
    """Bring `lo` up in the current network namespace."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        body = struct.pack("=BxHiII", socket.AF_UNSPEC, 0, _LOOPBACK_INDEX, _IFF_UP, _IFF_UP)
        _ask(link, _RTM_NEWLINK, 0, body)


def make_local(network: str, prefix: int) -> None:
    """Deliver every address of `network`/`prefix` to this namespace itself, as if each were on `lo`."""
    family = socket.AF_INET6 if ":" in network else socket.AF_INET
    body = struct.pack(
        "=BBBBBBBBI", family, prefix, 0, 0, _TABLE_LOCAL, _PROT_STATIC, _SCOPE_HOST, _TYPE_LOCAL, 0
    )
    body += _attribute(_RTA_DST, socket.inet_pton(family, network)) + _attribute(
        _RTA_OIF, struct.pack("=I", _LOOPBACK_INDEX)
    )
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        _ask(link, _RTM_NEWROUTE, _NLM_F_CREATE | _NLM_F_EXCL, body)


def open_watches() -> list[socket.socket]:
    """Sockets that see what this namespace's kernel refuses because nobody listens: resets for TCP and "port
    unreachable" for UDP; and datagrams to groups and to everybody. Over IPv4 and, where there is one, IPv6.

    Nothing else passes their filters. They need CAP_NET_RAW here, which no tool has, so what they show cannot
    be forged. Raises OSError where raw sockets are refused.
    """
    watches = [
        _raw(socket.AF_INET, socket.IPPROTO_TCP, _RESETS),
        _raw(socket.AF_INET, socket.IPPROTO_ICMP, _UNREACHABLE),
        _raw(socket.AF_INET, socket.IPPROTO_UDP, _TO_MANY),
    ]
    for group in _GROUPS:  # ip(7), struct ip_mreqn: by index, since `lo` has no address yet
        member = socket.inet_aton(group) + bytes(4) + struct.pack("@i", _LOOPBACK_INDEX)
        with contextlib.suppress(OSError):  # a kernel without groups has none to send to
            watches[2].setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
    try:
        watches.append(_raw(socket.AF_INET6, socket.IPPROTO_TCP, _RESETS6))
        watches.append(_raw(socket.AF_INET6, _ICMP6, _UNREACHABLE6))
        watches.append(_raw(socket.AF_INET6, socket.IPPROTO_UDP, _TO_MANY6))
        watches[-1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)  # says where to
    except OSError as error:
        if error.errno != errno.EAFNOSUPPORT:
            raise
    return watches


def _raw(family: int, protocol: int, program: list[Instruction]) -> socket.socket:
    """A raw socket behind a filter. What comes before the filter stands is dropped: the namespace is new."""
    sock = socket.socket(family, socket.SOCK_RAW, protocol)
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    buffer = ctypes.create_string_buffer(code)
    sock.setsockopt(
        socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", len(program), ctypes.addressof(buffer))
    )
    return sock
