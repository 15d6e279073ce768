"""Netlink, as little of it as a private network namespace needs: bring `lo` up, make a range local
(rtnetlink(7)).
"""

from __future__ import annotations

import errno
import os
import socket
import struct

_RTM_NEWLINK, _RTM_NEWROUTE = 16, 24
_NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_CREATE, _NLM_F_EXCL = 1, 4, 0x400, 0x200
_IFF_UP, _LOOPBACK_INDEX = 1, 1
_TABLE_LOCAL, _PROT_STATIC, _SCOPE_HOST, _TYPE_LOCAL = 255, 4, 254, 2
_RTA_DST, _RTA_OIF = 1, 4


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
