"""Layer `net`: a network namespace with nothing in it, or with the broker's sockets and nothing else.

Without egress `lo` stays down and every connection fails at once. With egress the call has a namespace of its
own: every address is local to it, and the sockets that the broker serves are opened here and handed out, so a
connection can only ever belong to this call. Attempts that none of them takes are seen by raw sockets, which
are handed out as well: the host records them.
"""

from __future__ import annotations

import socket

from .. import _uapi_net
from ..channel import Channel


def can_watch() -> bool:
    """Whether attempts that no door takes can be seen, so that Landlock need not refuse them unseen.

    Ask where this process has its capabilities still.
    """
    try:
        for sock in _uapi_net.open_watches():
            sock.close()
    except OSError:
        return False
    return True


def open_doors(channel: Channel, ports: list[int], proxy_port: int, watched: bool) -> None:
    """Bring the namespace up and send its sockets to the host: DNS by UDP, DNS by TCP, then the proxy's on
    loopback, then one a port, in order, then the watches when `watched`.

    Every address is local here, not only the synthetic ones: so a connection to a literal address arrives
    too, and is decided and answered for, instead of vanishing. No socket listens yet. The host lets it, once
    somebody serves it: what tries earlier, while the tool is imported, fails at once and is seen.
    """
    watches = _uapi_net.open_watches() if watched else []
    _uapi_net.loopback_up()
    _uapi_net.make_local("0.0.0.0", 0)
    opened = [
        _bound(socket.AF_INET, socket.SOCK_DGRAM, "127.0.0.1", 53),
        _bound(socket.AF_INET, socket.SOCK_STREAM, "127.0.0.1", 53),
        _bound(socket.AF_INET, socket.SOCK_STREAM, "127.0.0.1", proxy_port),
    ]
    dual = _ipv6_ready()
    family, everywhere = (socket.AF_INET6, "::") if dual else (socket.AF_INET, "0.0.0.0")
    opened += [_bound(family, socket.SOCK_STREAM, everywhere, port) for port in ports]
    opened += watches
    for start in range(0, len(opened), 64):
        part = opened[start : start + 64]
        channel.send_with({"t": "doors"}, [sock.detach() for sock in part])


def _ipv6_ready() -> bool:
    try:
        _uapi_net.make_local("::", 0)
    except OSError:
        return False  # a kernel without IPv6: names have IPv4 addresses only
    return True


def _bound(family: int, kind: int, address: str, port: int) -> socket.socket:
    # No SO_REUSEADDR: while nobody listens yet, it would let the tool bind the same port and keep us out.
    sock = socket.socket(family, kind)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    sock.bind((address, port))
    return sock
