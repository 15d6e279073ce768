"""The transparent door: clients that know no proxy. A DNS server and listeners inside the child's network
namespace.

Guarantees: a name that policy refuses is NXDOMAIN, has a row, and is asked of nobody; an allowed name is
answered with a synthetic address and no real query; a connection to a synthetic address is decided for the
name it stands for; one to any other address is decided as a literal; what no door takes is refused by the
child's own kernel and has a row too (_unserved.py). What arrived before `start` (a tool that tried while it
was imported) is refused as `no-call`.
Not here: the sockets, which are opened inside the namespace and handed over; their descriptors belong to one
child, so its identity cannot be forged. Steps of serving a connection: _tunnel.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fumehood.broker._accept import Acceptor
from fumehood.broker._addresses import Address, judge_address, parse_address
from fumehood.broker._child import ChildSocket
from fumehood.broker._decide import match, name_is_reachable, refusal
from fumehood.broker._dns_message import (
    AAAA,
    ANY,
    NOERROR,
    NXDOMAIN,
    REFUSED,
    SERVFAIL,
    A,
    BadMessage,
    Question,
    address_record,
    answer,
    is_reverse,
    pointer_record,
    read_question,
    reversed_address,
)
from fumehood.broker._names import SyntheticNames
from fumehood.broker._proxy_door import serve_proxy
from fumehood.broker._refusal import raw_refusal, send_and_close
from fumehood.broker._target import BadTarget, Target
from fumehood.broker._tunnel import accepted, serve_tunnel
from fumehood.broker._types import EgressDecision, EgressRequest
from fumehood.broker._unserved import Attempt, Unserved
from fumehood.policies.names import BadHost, Host, canonical_host

if TYPE_CHECKING:
    from fumehood.broker._call import BrokerCall

log = logging.getLogger("fumehood.broker")
_DEFER = 5  # seconds a connection to the proxy may be silent before it is taken nevertheless
MAX_CONNECTIONS = 1024  # of one call at once; the next ones are closed unserved
MAX_REFUSED_NAMES = 1000  # rows about refused names in one call; a flood of names is counted, not written
MAX_EARLY_NAMES = 64  # questions from before the call that are looked at; the buffer holds some more
BACKLOG = 128
DNS_AT_ONCE, DNS_PAUSE = 32, 0.01  # questions that are read at once, and the seconds before the next ones
MAX_DNS_TASKS = 256  # questions of one call in work; more are dropped, as a busy server would


@dataclass(frozen=True, slots=True)
class NetSockets:
    """Sockets made inside one child's network namespace.

    dns_udp, dns_tcp: on 127.0.0.1:53. tcp: by port, on every address. proxy: of the proxy door, on loopback.
    watches: raw sockets that see what the namespace's kernel refuses because none of the others takes it.
    """

    dns_udp: socket.socket | None = None
    dns_tcp: socket.socket | None = None
    tcp: Mapping[int, socket.socket] = field(default_factory=dict)
    proxy: socket.socket | None = None
    watches: Sequence[socket.socket] = ()

    def all(self) -> list[socket.socket]:
        return [*self.listeners(), *([] if self.dns_udp is None else [self.dns_udp]), *self.watches]

    def listeners(self) -> list[socket.socket]:
        found = [self.dns_tcp, *self.tcp.values(), self.proxy]
        return [sock for sock in found if sock is not None]


class TransparentDoor:
    """The doors of one call.

    `start` serves, `close` ends every connection; the sockets are closed by it as well.
    """

    def __init__(self, call: BrokerCall, sockets: NetSockets) -> None:
        self._call, self._sockets = call, sockets
        self._names = SyntheticNames()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = 0
        self._dns_tasks = 0
        self._refused_names: dict[str, asyncio.Task[object]] = {}
        self._early_names: set[str] = set()
        self._refused_places: set[tuple[bool, Target]] = set()  # as many as _unserved.py hands on
        self._began = self._closed = False
        self._unserved = Unserved(
            sockets.watches, self._refuse_attempt, lambda: self._call.count_refusal("port")
        )
        self._has_ipv6 = any(sock.family == socket.AF_INET6 for sock in sockets.tcp.values())
        self._loop = asyncio.get_running_loop()
        self._acceptor = Acceptor(self._take)
        self.dropped = 0

    def __repr__(self) -> str:
        ports = ",".join(str(port) for port in self._sockets.tcp)
        counts = f"names={len(self._names)} open={self._open} dropped={self.dropped}"
        return f"<TransparentDoor ports={ports} {counts}>"

    async def start(self) -> None:
        """Refuse what is waiting already, then serve."""
        for sock in self._sockets.all():
            sock.setblocking(False)
        for sock in self._sockets.listeners():
            # Connections of an earlier call may still be there. Only now: see isolate/child/layers/net.py.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.listen(BACKLOG)
        await self._refuse_early()
        self._began = True
        self._unserved.start()
        if self._sockets.dns_udp is not None:
            self._read_datagrams()
        if self._sockets.dns_tcp is not None:
            self._acceptor.add(self._sockets.dns_tcp, self._serve_dns)
        for port, listener in self._sockets.tcp.items():
            self._acceptor.add(listener, lambda sock, port=port: self._serve(sock, port))
        if (proxy := self._sockets.proxy) is not None:
            with contextlib.suppress(OSError):  # its clients speak first, so a silent one need not be served
                proxy.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, _DEFER)
            self._acceptor.add(proxy, lambda sock: serve_proxy(self._call, ChildSocket(sock), self._names))

    async def settle(self) -> None:
        """Have a row for everything that was attempted by now and that no door took."""
        await self._unserved.settle()

    async def close(self) -> None:
        """End every connection and close the sockets."""
        self._closed = True
        await self._unserved.close()
        if self._sockets.dns_udp is not None and self._sockets.dns_udp.fileno() >= 0:
            self._loop.remove_reader(self._sockets.dns_udp)
        self._acceptor.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listener in self._sockets.listeners():
            # Nobody listens until the next call of a process that is used again, which has these sockets too.
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RD)
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        for sock in self._sockets.all():
            sock.close()

    # --- connections ---------------------------------------------------------------------------------------

    def _take(self, sock: socket.socket, serve: Any) -> None:
        if self._open >= MAX_CONNECTIONS or not self._call.broker.places.take(self._open):
            self._drop(sock)
            return
        self._open += 1
        self._spawn(self._guarded(sock, serve(accepted(sock))))

    async def _guarded(self, sock: socket.socket, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (OSError, TimeoutError) as error:
            log.debug("a child's connection ended: %s", error)
        except Exception:  # one connection's failure must not end the others
            log.exception("serving a child's connection failed")
        finally:
            self._open -= 1
            self._call.broker.places.give_back()
            sock.close()

    def _drop(self, sock: socket.socket) -> None:
        """Close a connection that is one too many; the first of a call has a row."""
        self.dropped += 1
        if self.dropped == 1:
            address, port = sock.getsockname()[:2]
            target = self._target(parse_address(address), port) or _literal(parse_address(address), port)
            decision = EgressDecision(
                "deny", "budget-rate", target, None, self._call.policy.owner, "budget",
                detail=f"{self._open} connections of the call are open already",
            )  # fmt: skip
            asked = EgressRequest(target, None, "transparent")
            self._call.later(self._call.refuse(decision, asked, "transparent"))
        sock.close()

    async def _serve(self, sock: socket.socket, port: int) -> None:
        child = ChildSocket(sock)
        address = parse_address(sock.getsockname()[0])
        self._names.hold(address)
        try:
            target = self._target(address, port)
            if target is None:
                refused = await self._call.refuse_text(*_nameless(address, port), "transparent")
                await send_and_close(sock, raw_refusal(await child.peek(1.0), refused))
                return
            await serve_tunnel(self._call, child, target, "transparent")
        finally:
            self._names.release(address)

    def _target(self, address: Address, port: int) -> Target | None:
        name = self._names.name_of(address)
        if name is not None:
            return Target("tunnel", Host(name, "name"), port)
        if self._names.is_synthetic(address):
            return None
        if judge_address(address).because.endswith("loopback"):
            return self._own_loopback(address, port)
        return _literal(address, port)

    def _own_loopback(self, address: Address, port: int) -> Target:
        """What a connection to the tool's own loopback is for. Its client may have said localhost or the
        address, and nothing tells which: it is the address where an entry names it and none denies the name.
        """
        named, literal = Target("tunnel", Host("localhost", "name"), port), _literal(address, port)
        by_name, by_address = (
            match(self._call.policy, EgressRequest(target, None, "transparent"))
            for target in (named, literal)
        )
        if by_name.reason == "denied-by-rule" or by_address.rule is None:
            return named if by_name.rule or not by_address.near else literal
        return literal

    async def _refuse_early(self) -> None:
        """Connections and questions that came before the call began."""
        await self._unserved.settle()
        for listener in self._sockets.listeners():
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    break
                address, port = sock.getsockname()[:2]
                sock.close()
                await self._refuse_attempt(Attempt(False, parse_address(address), port))
        udp = self._sockets.dns_udp
        for _ in range(MAX_EARLY_NAMES if udp is not None else 0):
            assert udp is not None
            try:
                message, peer = udp.recvfrom(4096)
            except OSError:
                return
            try:
                question = read_question(message)
            except BadMessage:
                continue
            await self._refuse_early_name(question)
            with contextlib.suppress(OSError):
                udp.sendto(answer(question, REFUSED), peer)

    async def _refuse_early_name(self, question: Question) -> None:
        if is_reverse(question.name):
            return  # a reverse look-up carries nothing out
        try:
            host = canonical_host(question.name)
        except BadHost as bad:
            await self._call.refuse_text(question.name, BadTarget("no-call", str(bad)), "transparent")
            return
        if host.text != "localhost" and host.text not in self._early_names:
            self._early_names.add(host.text)
            await self._call.refuse_name(host, "no-call")

    async def _refuse_attempt(self, attempt: Attempt) -> None:
        """The row of what the child's kernel refused.

        Its reason is what the rules say about the place, or that no door leads there.
        """
        target = self._target(attempt.address, attempt.port)
        if target is not None and not target.host.is_literal:
            place = (attempt.udp, target)
            if place in self._refused_places:
                return  # its other stand-in address has a row
            self._refused_places.add(place)
        if target is None and self._began:
            await self._call.refuse_text(*_nameless(attempt.address, attempt.port), "transparent")
            return
        target = target or _literal(attempt.address, attempt.port)
        asked = EgressRequest(target, None, "transparent")
        if not self._began:
            decision = EgressDecision("deny", "no-call", target, None, self._call.policy.owner, "call")
        else:
            matched = match(self._call.policy, asked)
            if matched.reason is None:
                reason = "scheme" if attempt.udp else "port"
                hint = "" if attempt.udp else "ports of the policy are opened when a call begins"
                matched = replace(matched, reason=reason, hint=hint, would_deny=None)
            decision = refusal(asked, matched)
        way = "a UDP datagram; only TCP leads out" if attempt.udp else "no door of the call is on this port"
        await self._call.refuse(replace(decision, detail=way), asked, "transparent")

    # --- names ---------------------------------------------------------------------------------------------

    def _on_datagram(self) -> None:
        udp = self._sockets.dns_udp
        assert udp is not None
        for _ in range(DNS_AT_ONCE):
            try:
                message, peer = udp.recvfrom(4096)
            except OSError:
                return
            if self._dns_tasks >= MAX_DNS_TASKS:
                self.dropped += 1
                continue
            self._dns_tasks += 1
            self._spawn(self._answer_datagram(udp, message, peer))
        # A flood must not keep the loop from other calls: the next ones wait in the socket, or are lost.
        self._loop.remove_reader(udp)
        self._loop.call_later(DNS_PAUSE, self._read_datagrams)

    def _read_datagrams(self) -> None:
        udp = self._sockets.dns_udp
        if udp is not None and not self._closed:
            self._loop.add_reader(udp, self._on_datagram)

    async def _answer_datagram(self, udp: socket.socket, message: bytes, peer: Any) -> None:
        try:
            reply = await self.answer(message)
            if reply is not None:
                udp.sendto(reply, peer)
        except OSError as error:
            log.debug("a DNS answer was not taken: %s", error)
        finally:
            self._dns_tasks -= 1

    async def _serve_dns(self, sock: socket.socket) -> None:
        """DNS over TCP: messages with their length in front (RFC 7766)."""
        child, data = ChildSocket(sock), b""
        async with asyncio.timeout(60):
            while True:
                while len(data) < 2 or len(data) < 2 + struct.unpack("!H", data[:2])[0]:
                    more = await child.read()
                    if not more:
                        return
                    data += more
                size = struct.unpack("!H", data[:2])[0]
                message, data = data[2 : 2 + size], data[2 + size :]
                reply = await self.answer(message)
                if reply is None:
                    return
                await child.write(struct.pack("!H", len(reply)) + reply)

    async def answer(self, message: bytes) -> bytes | None:
        """The answer to one DNS message;

        None for silence. A refused name's row is on disk before its NXDOMAIN goes out.
        """
        try:
            question = read_question(message)
        except BadMessage as bad:
            return bad.answer
        if is_reverse(question.name):
            return self._answer_reverse(question, reversed_address(question.name))
        try:
            host = canonical_host(question.name)
        except BadHost as bad_host:
            await self._refuse_name(question.name, None, str(bad_host))
            return answer(question, NXDOMAIN)
        if host.is_literal:  # no resolver asks for one, and a stand-in would make an address a name
            await self._refuse_name(question.name, None, "an address, which is no name to look up")
            return answer(question, NXDOMAIN)
        if host.text == "localhost" or host.text.endswith(".localhost"):
            return self._answer_localhost(question)
        known = name_is_reachable(self._call.policy, host)
        if not known and question.name.startswith("_"):
            # _443._https.api.example.com and the like: a service record of a name that may be allowed has no
            # answer here.
            base = question.name
            while base.startswith("_"):
                base = base.partition(".")[2]
            if base and name_is_reachable(self._call.policy, canonical_host(base)):
                return answer(question, NOERROR)
        if not known:
            await self._refuse_name(host.text, host, "")
            return answer(question, NXDOMAIN)
        if question.kind not in (A, AAAA, ANY):
            return answer(
                question, NOERROR
            )  # no HTTPS, SRV or TXT records: nothing there may steer around the decision
        pair = self._names.addresses(host.text)
        if pair is None:
            return answer(question, SERVFAIL)
        four, six = pair
        if question.kind == AAAA:
            return answer(question, NOERROR, (address_record(six),) if self._has_ipv6 else ())
        return answer(question, NOERROR, (address_record(four),))

    def _answer_localhost(self, question: Question) -> bytes:
        if question.kind == A:
            return answer(question, NOERROR, (address_record(parse_address("127.0.0.1")),))
        return answer(question, NOERROR)

    def _answer_reverse(self, question: Question, literal: str | None) -> bytes:
        """PTR for an address of ours;

        NXDOMAIN, without a row, for every other: reverse look-ups carry nothing out.
        """
        try:
            name = self._names.name_of(parse_address(literal)) if literal else None
        except ValueError:
            name = None
        if name is None:
            return answer(question, NXDOMAIN)
        return answer(question, NOERROR, (pointer_record(name),))

    async def _refuse_name(self, text: str, host: Host | None, detail: str) -> None:
        """One row for each refused name of the call."""
        writing = self._refused_names.get(text)
        if writing is None and len(self._refused_names) >= MAX_REFUSED_NAMES:
            self._call.count_refusal("not-listed")
            return
        if writing is None:
            bad = BadTarget("malformed", detail)
            writing = self._refused_names[text] = self._call.later(
                self._call.refuse_text(text, bad, "transparent")
                if host is None
                else self._call.refuse_name(host)
            )
        await asyncio.shield(writing)  # whoever asks for it meanwhile waits for the row as well

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a door's task failed", exc_info=task.exception())


def _literal(address: Address, port: int) -> Target:
    return Target("tunnel", Host(address.text, "ipv4" if address.version == 4 else "ipv6"), port)


def _nameless(address: Address, port: int) -> tuple[str, BadTarget]:
    """The text and the fault of a synthetic address that nobody was given."""
    what = f"the address {address} stands for no name in this call any more"
    return f"{address}:{port}", BadTarget("malformed", what)
