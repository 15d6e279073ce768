"""Layer `net`: a network namespace with nothing in it, or with the broker's sockets and nothing else.

Without egress `lo` stays down and every connection fails at once. With egress the call has a namespace of its
own: the benchmark network 198.18.0.0/15 and an IPv6 twin are local to it, and the sockets that the broker
serves are opened here and handed out, so a connection can only ever belong to this call.
"""

from __future__ import annotations

import socket

from .. import _uapi_net


def open_doors(channel: socket.socket, ports: list[int], proxy_port: int, backlog: int) -> None:
    """Bring the namespace up and send its sockets to the host: DNS by UDP, DNS by TCP, then the proxy's
    listener on loopback, then one listener a port, in order.

    Every address is local here, not only the synthetic ones: so a connection to a literal address arrives
    too, and is decided and answered for, instead of vanishing.
    """
    _uapi_net.loopback_up()
    _uapi_net.make_local("0.0.0.0", 0)
    opened = [
        _bound(socket.AF_INET, socket.SOCK_DGRAM, "127.0.0.1", 53),
        _bound(socket.AF_INET, socket.SOCK_STREAM, "127.0.0.1", 53),
        _bound(socket.AF_INET, socket.SOCK_STREAM, "127.0.0.1", proxy_port),
    ]
    for door in opened[1:]:
        door.listen(backlog)
    dual = _ipv6_ready()
    for port in ports:
        door = _bound(
            socket.AF_INET6 if dual else socket.AF_INET, socket.SOCK_STREAM, "::" if dual else "0.0.0.0", port
        )
        door.listen(backlog)
        opened.append(door)
    for start in range(0, len(opened), 64):
        part = opened[start : start + 64]
        socket.send_fds(channel, [b"N"], [sock.fileno() for sock in part])
    for sock in opened:
        sock.close()


def _ipv6_ready() -> bool:
    try:
        _uapi_net.make_local("::", 0)
    except OSError:
        return False  # a kernel without IPv6: names have IPv4 addresses only
    return True


def _bound(family: int, kind: int, address: str, port: int) -> socket.socket:
    sock = socket.socket(family, kind)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    sock.bind((address, port))
    return sock
