"""Peers that speak HTTP/2 on loopback: a server whose answers a function writes, a client of exact frames.

The server is for hosts that choose HTTP/2; its answers may be any frames. The client sends what no library
would, to a door over a socket pair.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import anyio
import h2.connection
import h2.events
import h2.exceptions
import hpack
from h2.config import H2Configuration

from fumehood.broker import BrokerCall, parse_url
from fumehood.broker._child import ChildSocket
from fumehood.broker._h2_door import serve_h2
from fumehood.broker._h2_gate import PREFACE
from fumehood.testing.http import Reply, Seen
from tests.broker.clients import RawServer
from tests.broker.world import World

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS = range(5)
PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(5, 10)
END_STREAM, ACK, END_HEADERS, PADDED = 1, 1, 4, 8
GET = [(":method", "GET"), (":scheme", "https"), (":authority", "api.example.com"), (":path", "/")]


class H2Side:
    """The server's side of one connection, for answers written frame by frame."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self.sock = sock
        config = H2Configuration(
            client_side=False,
            header_encoding="latin-1",
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
        self.h2 = h2.connection.H2Connection(config)
        self.waiting: list[tuple[int, Seen]] = []
        self._heads: dict[int, list[tuple[str, str]]] = {}
        self._bodies: dict[int, bytearray] = {}
        self.resets: list[int] = []
        self.h2.initiate_connection()
        self.flush()

    def flush(self) -> None:
        if data := self.h2.data_to_send():
            self.sock.sendall(data)

    def pump(self) -> bool:
        """Take what the peer sends next; False at its end."""
        data = self.sock.recv(65536)
        if not data:
            return False
        for event in self.h2.receive_data(data):
            match event:
                case h2.events.RequestReceived():
                    self._heads[event.stream_id] = [(str(k), str(v)) for k, v in event.headers]
                    self._bodies[event.stream_id] = bytearray()
                case h2.events.DataReceived():
                    self._bodies[event.stream_id] += event.data
                    with suppress(h2.exceptions.ProtocolError):
                        self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                case h2.events.StreamEnded():
                    self.waiting.append((event.stream_id, self._seen(event.stream_id)))
                case h2.events.StreamReset():
                    self.resets.append(event.stream_id)
        self.flush()
        return True

    def _seen(self, stream: int) -> Seen:
        fields = self._heads[stream]
        known = dict(fields)
        return Seen(known[":method"], known[":path"], tuple(fields), bytes(self._bodies[stream]), None)

    def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Data, as fast as the peer takes it."""
        at = 0
        while at < len(data):
            room = min(self.h2.local_flow_control_window(stream), 16384)
            if room > 0:
                self.h2.send_data(stream, data[at : at + room])
                at += room
                self.flush()
            elif not self.pump():
                return
        if end:
            self.h2.end_stream(stream)
            self.flush()

    def reply(self, stream: int, reply: Reply, *, bodiless: bool = False) -> None:
        fields = [(":status", str(reply.status)), *((key.lower(), value) for key, value in reply.headers)]
        self.h2.send_headers(stream, [*fields, ("content-length", str(len(reply.body)))])
        self.send(stream, b"" if bodiless else reply.body, end=True)


class H2Server(RawServer):
    """An HTTPS server that speaks HTTP/2 alone. answer: a reply, or None when it wrote frames itself."""

    def __init__(
        self, world: World, answer: Callable[[Seen, H2Side, int], Reply | None], *, alpn: str = "h2"
    ) -> None:
        super().__init__(self._talk)
        self.seen: list[Seen] = []
        self.sides: list[H2Side] = []
        self._answer = answer
        self._tls = world.authority.context("api.example.com", "other.example.com")
        self._tls.set_alpn_protocols([alpn])

    def _talk(self, connection: socket.socket) -> None:
        with suppress(OSError, h2.exceptions.ProtocolError):
            with self._tls.wrap_socket(connection, server_side=True) as tls:
                side = H2Side(tls)
                self.sides.append(side)
                while side.waiting or side.pump():
                    while side.waiting:
                        stream, seen = side.waiting.pop(0)
                        self.seen.append(seen)
                        reply = self._answer(seen, side, stream)
                        if reply is not None:
                            side.reply(stream, reply, bodiless=seen.method == "HEAD")


@dataclass(frozen=True)
class Frame:
    """One frame as it came."""

    kind: int
    flags: int
    stream: int
    payload: bytes


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream) + payload


OPENING = PREFACE + frame(SETTINGS)


@dataclass
class RawChild:
    """A client of exact frames. frames: all that came so far. task: the door that serves it."""

    sock: socket.socket
    task: asyncio.Task[None]
    frames: list[Frame] = field(default_factory=list)
    encoder: hpack.Encoder = field(default_factory=hpack.Encoder)
    decoder: hpack.Decoder = field(default_factory=hpack.Decoder)
    heads: dict[int, list[list[tuple[str, str]]]] = field(default_factory=dict)
    bodies: dict[int, bytes] = field(default_factory=dict)
    ended: bool = False
    _buffer: bytes = b""

    async def send(self, *pieces: bytes) -> None:
        with suppress(OSError):
            await asyncio.get_running_loop().sock_sendall(self.sock, b"".join(pieces))

    def head(self, stream: int, fields: list[tuple[str, str]] | None = None, *, end: bool = True) -> bytes:
        """A HEADERS frame."""
        block = self.encoder.encode(fields or GET)
        return frame(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, block)

    async def until(self, wanted: Callable[[Frame], bool]) -> Frame | None:
        """Read until a frame came that is wanted; None when the connection ends first."""
        looked = 0
        while True:
            for found in self.frames[looked:]:
                if wanted(found):
                    return found
            looked = len(self.frames)
            if self._next() is not None:
                continue
            try:
                data = await asyncio.get_running_loop().sock_recv(self.sock, 65536)
            except OSError:
                data = b""
            if not data:
                self.ended = True
                return None
            self._buffer += data

    def _next(self) -> Frame | None:
        if len(self._buffer) < 9:
            return None
        length = int.from_bytes(self._buffer[:3], "big")
        if len(self._buffer) < 9 + length:
            return None
        kind, flags, stream = struct.unpack("!BBI", self._buffer[3:9])
        found = Frame(kind, flags, stream, self._buffer[9 : 9 + length])
        self._buffer = self._buffer[9 + length :]
        self.frames.append(found)
        if kind == HEADERS:
            read = self.decoder.decode(found.payload, raw=True)
            fields = [(bytes(k).decode("latin-1"), bytes(v).decode("latin-1")) for k, v in read]
            self.heads.setdefault(stream, []).append(fields)
        elif kind == DATA:
            self.bodies[stream] = self.bodies.get(stream, b"") + found.payload
        return found

    async def answer(self, stream: int) -> dict[str, str]:
        """The fields of the stream's answer once it has ended or was reset ("reset": its code)."""
        last = await self.until(
            lambda found: (
                found.stream == stream
                and (
                    found.kind == RST_STREAM
                    or bool(found.flags & END_STREAM and found.kind in (DATA, HEADERS))
                )
            )
        )
        fields = dict(pair for head in self.heads.get(stream, []) for pair in head)
        if last is None:
            return {**fields, "reset": "the connection ended"}
        if last.kind == RST_STREAM:
            fields["reset"] = str(int.from_bytes(last.payload, "big"))
        return fields

    async def goaway(self) -> int | None:
        """The code of the GOAWAY that ends the connection; None when it ends without one."""
        found = await self.until(lambda found: found.kind == GOAWAY)
        return None if found is None else int.from_bytes(found.payload[4:8], "big")


@asynccontextmanager
async def h2_child(call: BrokerCall, *, opening: bytes = OPENING) -> AsyncIterator[RawChild]:
    """A client whose connection the HTTP/2 door serves, as if TLS had been taken off it."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    target = parse_url("https://api.example.com/")
    task = asyncio.ensure_future(serve_h2(call, ChildSocket(ours), "transparent", target))
    task.add_done_callback(lambda _: ours.close())
    child = RawChild(theirs, task)
    try:
        with anyio.fail_after(20):
            await child.send(opening)
            yield child
    finally:
        theirs.close()
        await task
