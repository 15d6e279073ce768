"""Attempts that none of a call's doors took: TCP to a port where nobody listens, datagrams to anywhere but
the DNS door. The child's own kernel refuses them at once, those to a group or to everybody without a word;
here they become rows.

Guarantees: each (protocol, address, port) of a call is one row, and a call has MAX_ATTEMPTS of them; a flood
is read at a bounded rate and the rest is dropped by the kernel. What is seen cannot be forged: the sockets
show what the kernel of the namespace answered by itself (isolate/child/_uapi_net.py), and no tool can write
such packets.
Not here: a connection to a door, which the door refuses once its row is on disk. These rows follow the
refusal, which the kernel does not put off.
"""

from __future__ import annotations

import asyncio
import logging
import select
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from fumehood.broker._addresses import Address, parse_address

log = logging.getLogger("fumehood.broker")
MAX_ATTEMPTS = 200  # rows of one call; more are counted
PAUSE = 0.05  # seconds between two looks at a socket that has much to say
_AT_ONCE = 32  # packets a look
_LAST_LOOK = 512  # packets of one socket that the end of a call still looks at; its buffer holds fewer
_UDP, _UDP_LITE = 17, 136
_ROOM = 64  # bytes of what stands beside a packet
_WHERE_TO = (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO)
_EXTENSIONS = frozenset({0, 43, 60})  # IPv6 headers before the datagram's own: options, routing


@dataclass(frozen=True, slots=True)
class Attempt:
    """One thing that was refused. address: where it wanted to go."""

    udp: bool
    address: Address
    port: int


class Unserved:
    """Watches one child's namespace. told: called with each new attempt; it writes the row. beyond: called
    for one after the first MAX_ATTEMPTS.

    The watches are gathered in one epoll(7) object, which is all that a call without attempts pays for.
    """

    def __init__(
        self,
        watches: Sequence[socket.socket],
        told: Callable[[Attempt], Awaitable[None]],
        beyond: Callable[[], None],
    ) -> None:
        self._watches = {sock.fileno(): sock for sock in watches}
        self._told, self._beyond = told, beyond
        self._loop = asyncio.get_running_loop()
        self._known: set[Attempt] = set()
        self._writing: set[asyncio.Future[None]] = set()
        self._paused: asyncio.TimerHandle | None = None
        self._ready = select.epoll() if watches else None
        if self._ready is not None:
            for fd in self._watches:
                self._ready.register(fd, select.EPOLLIN)

    def start(self) -> None:
        """Look whenever there is something to see."""
        self._paused = None
        if self._ready is not None:
            self._loop.add_reader(self._ready.fileno(), self._look)

    async def settle(self) -> None:
        """Take in what is there by now; returns when its rows are written."""
        self._take(_LAST_LOOK)
        while self._writing:
            await asyncio.gather(*self._writing, return_exceptions=True)

    async def close(self) -> None:
        """The last look. The sockets stay the caller's to close."""
        if self._ready is not None:
            self._loop.remove_reader(self._ready.fileno())
        if self._paused is not None:
            self._paused.cancel()
        await self.settle()
        if self._ready is not None:
            self._ready.close()
            self._ready = None

    def _look(self) -> None:
        if self._take(_AT_ONCE) and self._ready is not None:
            self._loop.remove_reader(self._ready.fileno())
            self._paused = self._loop.call_later(PAUSE, self.start)

    def _take(self, most: int) -> bool:
        """Take up to `most` packets of each socket; whether there may be more."""
        more = False
        for fd, _ in self._ready.poll(0) if self._ready is not None else ():
            for _ in range(most):
                if not self._one(self._watches[fd]):
                    break
            else:
                more = True
        return more

    def _one(self, sock: socket.socket) -> bool:
        """Take one packet; False when there is none."""
        try:
            data, ancillary, _, source = sock.recvmsg(512, _ROOM, socket.MSG_DONTWAIT)
        except OSError:
            return False
        if sock.proto == _UDP:
            attempt = datagram_to_many(sock.family, data, ancillary)
        else:
            attempt = attempt_of(sock.family, sock.proto, data, source[0])
        if attempt is None or attempt in self._known:
            return True
        if len(self._known) >= MAX_ATTEMPTS:
            self._beyond()
            return True
        self._known.add(attempt)
        writing = asyncio.ensure_future(self._told(attempt))
        self._writing.add(writing)
        writing.add_done_callback(self._written)
        return True

    def _written(self, writing: asyncio.Future[None]) -> None:
        self._writing.discard(writing)
        if not writing.cancelled() and (error := writing.exception()) is not None:
            log.error("a refused attempt was not recorded", exc_info=error)


def attempt_of(family: int, protocol: int, data: bytes, source: str) -> Attempt | None:
    """What was attempted, from the packet that refused it.

    None for what is no attempt: an answer of the DNS door to a socket that has gone meanwhile, or too few
    bytes. source: the packet's sender, as recvfrom(2) says. RFC 791, 792, 4443, 8200, 9293.
    """
    try:
        header = (data[0] & 15) * 4 if family == socket.AF_INET else 0
        if protocol == socket.IPPROTO_TCP:
            port = int.from_bytes(data[header : header + 2], "big")
            return Attempt(False, parse_address(source.partition("%")[0]), port)
        datagram = data[header + 8 :]
        if family == socket.AF_INET:
            kind, sender, target = datagram[9], datagram[12:16], datagram[16:20]
            ports = datagram[(datagram[0] & 15) * 4 :][:4]
        else:
            sender, target = datagram[8:24], datagram[24:40]
            kind, ports = _behind_extensions(datagram)
        address = parse_address(socket.inet_ntop(family, target))
        if kind not in (_UDP, _UDP_LITE) or len(ports) < 4:
            return Attempt(True, address, 0)
        if ports[:2] == b"\0\x35" and sender == b"\x7f\0\0\1":
            return None
        return Attempt(True, address, int.from_bytes(ports[2:4], "big"))
    except (IndexError, ValueError, OSError):
        return None


def datagram_to_many(family: int, data: bytes, ancillary: Sequence[tuple[int, int, bytes]]) -> Attempt | None:
    """The attempt that a datagram to a group or to everybody is. Nothing answers one, so the watch shows the
    datagram itself; over IPv6 without its header, and where it went stands beside it (RFC 3542 section 6.2).
    """
    if family == socket.AF_INET:
        header = (data[0] & 15) * 4 if data else 0
        target, ports = data[16:20], data[header : header + 4]
    else:
        told = (value[:16] for level, kind, value in ancillary if (level, kind) == _WHERE_TO)
        target, ports = next(told, b""), data[:4]
    if len(ports) < 4 or len(target) != (4 if family == socket.AF_INET else 16):
        return None
    address = parse_address(socket.inet_ntop(family, target))
    return Attempt(True, address, int.from_bytes(ports[2:4], "big"))


def _behind_extensions(datagram: bytes) -> tuple[int, bytes]:
    """The last header's kind and first bytes, of an IPv6 packet that may be cut off."""
    kind, at = datagram[6], 40
    while kind in _EXTENSIONS:
        kind, at = datagram[at], at + (datagram[at + 1] + 1) * 8
    return kind, datagram[at : at + 4]
