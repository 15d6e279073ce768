"""One HTTP/2 connection, either side of it, over the state machine of the `h2` package: streams to read and
write with back-pressure.

Guarantees: what a stream's reader has not taken is bounded by its window; a writer waits for the peer's
window, for room in the one buffer towards the peer, and no longer than STALL for either; acknowledgements
wait in the same buffer, and when it is full nothing more is read; a peer that breaks framing or budget gets
GOAWAY with a code, and every stream an error. Streams below a GOAWAY's last id go on.
Not here: frames (_h2_gate.py), heads (_h2_head.py). Needs the `h2` package: import this module where it is
used. Before editing: only the reader feeds the state machine, and nothing awaits between a check of it and
the act that relies on the check.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import h2.events
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes
from hpack import HeaderTuple, NeverIndexedHeaderTuple

from fumehood.broker._h2_gate import (
    ENHANCE_YOUR_CALM,
    MAX_FRAME,
    NO_ERROR,
    REFUSED_STREAM,
    BadFrames,
    BadStream,
    FrameGate,
    GoAway,
)
from fumehood.broker._h2_head import Fields
from fumehood.broker._h2_machine import Machine
from fumehood.broker._h2_stream import Bell, LinkBroken, LinkStream, in_time

MAX_STREAMS = 100  # at once on a child's connection; what every server of note takes
CHILD_WINDOW, CHILD_TOTAL = 256 * 1024, 1024 * 1024  # bytes unread of one stream, of all of them
HOST_WINDOW, HOST_TOTAL = 1024 * 1024, 4 * 1024 * 1024  # larger: there is a real network in between
NARROW_WINDOW, NARROW_TOTAL = 64 * 1024, 256 * 1024  # of either, where there are many: all of it is memory
FRAME_TIMEOUT = 30.0  # seconds for a frame or header block that has begun
_ROOM = 128 * 1024  # bytes on their way to the peer before a writer waits
_FULL = 512 * 1024  # bytes on their way before nothing more is read
_LAST_WORDS = 1.0  # seconds for a GOAWAY to be taken
_MAX_TABLE = 4096  # bytes of our header table, whatever the peer would let us have


class Io(Protocol):
    """The bytes below. Raises: OSError."""

    async def read(self) -> bytes: ...
    async def write(self, data: bytes) -> None: ...


OnRequest = Callable[[LinkStream, Fields, bool], None]


class Link:
    """The connection. on_request: told of each request of the peer's, and whether it has no body. narrow:
    little room for what was not read yet.
    """

    def __init__(self, io: Io, *, on_request: OnRequest | None = None, narrow: bool = False) -> None:
        self._io, self._on_request = io, on_request
        self.is_client = not (server := on_request is not None)
        self._gate = FrameGate(server=server)
        window, total = (CHILD_WINDOW, CHILD_TOTAL) if server else (HOST_WINDOW, HOST_TOTAL)
        window, total = (NARROW_WINDOW, NARROW_TOTAL) if narrow else (window, total)
        values = {
            SettingCodes.INITIAL_WINDOW_SIZE: window,
            SettingCodes.MAX_FRAME_SIZE: MAX_FRAME,
            SettingCodes.MAX_HEADER_LIST_SIZE: Machine.DEFAULT_MAX_HEADER_LIST_SIZE,
            SettingCodes.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
            SettingCodes.ENABLE_PUSH: 0,
        }
        self._h2 = Machine(server=server, settings=values, window=total)
        self.streams: dict[int, LinkStream] = {}
        self.leaving = False  # no more streams: GOAWAY in either direction, or the end
        self._dead: LinkBroken | None = None
        self._out = bytearray()
        self._on_the_way = 0
        self._written, self._to_write = Bell(), asyncio.Event()
        self._stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Serve until the peer ends or `close` is called.

        Raises: BadFrames when the peer broke framing, budget or protocol; it was told so.
        """
        self._push()
        writer = asyncio.ensure_future(self._write_out())
        reader = asyncio.ensure_future(self._read_in())
        error: BaseException | None = None
        try:
            await asyncio.wait({reader, writer, self._stop}, return_when=asyncio.FIRST_COMPLETED)
            error = reader.exception() if reader.done() else None
        finally:
            reader.cancel()
            self._end(LinkBroken(error.what if isinstance(error, BadFrames) else "the connection ended"))
            await self._farewell(writer)
            await asyncio.gather(reader, writer, return_exceptions=True)
        if error is not None and not isinstance(error, OSError):
            raise error

    def close(self) -> None:
        """End the connection with GOAWAY; `run` returns."""
        if not self._stop.done():
            self._goodbye(NO_ERROR)
            self._stop.set_result(None)

    # --- the peer's frames ----------------------------------------------------------------------------------

    async def _read_in(self) -> None:
        begun: float | None = None
        while True:
            begun = (begun or time.monotonic()) if self._gate.is_waiting else None
            try:
                if begun is None:
                    data = await self._io.read()
                else:
                    async with asyncio.timeout(begun + FRAME_TIMEOUT - time.monotonic()):
                        data = await self._io.read()
            except TimeoutError:
                self._goodbye(ENHANCE_YOUR_CALM)
                raise BadFrames(f"a frame did not end in {FRAME_TIMEOUT:g} s", ENHANCE_YOUR_CALM) from None
            if not data:
                return
            try:
                for at, item in enumerate(self._gate.feed(data)):
                    if at:
                        self._push()
                        await asyncio.sleep(0)  # others have a turn
                    if isinstance(item, GoAway):
                        self._went_away(item)
                    elif isinstance(item, BadStream):
                        self._reset(item)
                    else:
                        for event in self._h2.receive_data(item):
                            self._handle(event)
            except BadFrames as bad:
                self._goodbye(bad.code)
                raise
            except ProtocolError as error:  # GOAWAY waits in the state machine's buffer already
                raise BadFrames(
                    f"the frames break HTTP/2: {type(error).__name__}", error.error_code
                ) from error
            finally:
                self._push()
            while self._pending > _FULL:
                await self._written.wait()

    def _handle(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.RequestReceived():
                stream = LinkStream(self, event.stream_id)
                stream.received = _size(event.headers)
                stream.ended = event.stream_ended is not None
                self.streams[event.stream_id] = stream
                assert self._on_request is not None
                self._on_request(stream, list(event.headers), stream.ended)
            case h2.events.ResponseReceived() | h2.events.InformationalResponseReceived():
                if (stream_ := self.streams.get(event.stream_id)) is not None:
                    stream_.received += _size(event.headers)
                    stream_.heads.append(list(event.headers))
                    stream_.changed.ring()
            case h2.events.TrailersReceived():
                if (stream_ := self.streams.get(event.stream_id)) is not None:
                    stream_.trailers = list(event.headers)
            case h2.events.DataReceived():
                if (stream_ := self.streams.get(event.stream_id)) is not None:
                    stream_.received_data(event.data, event.flow_controlled_length)
                else:
                    self.acknowledge(event.stream_id, event.flow_controlled_length)
            case h2.events.StreamEnded():
                if (stream_ := self.streams.get(event.stream_id)) is not None:
                    stream_.ended = True
                    stream_.changed.ring()
            case h2.events.StreamReset():
                code = int(event.error_code)
                if not event.remote_reset:
                    self._broke(event.stream_id, code)
                elif (stream_ := self.streams.get(event.stream_id)) is not None:
                    what = f"the peer reset the stream (code {code})"
                    stream_.fail(LinkBroken(what, unprocessed=code == REFUSED_STREAM, code=code))
            case h2.events.WindowUpdated():
                if event.stream_id == 0:
                    self._ring_all()
                elif (stream_ := self.streams.get(event.stream_id)) is not None:
                    stream_.changed.ring()
            case h2.events.RemoteSettingsChanged():
                if self._h2.encoder.header_table_size > _MAX_TABLE:
                    self._h2.encoder.header_table_size = _MAX_TABLE
                self._ring_all()

    def _broke(self, number: int, code: int) -> None:
        """The peer broke the protocol on one stream, which was reset for it."""
        self.spend_reset()
        if (stream := self.streams.get(number)) is not None:
            what = f"the stream breaks HTTP/2 (code {code})"
            stream.fail(LinkBroken(what, code=code, broke=True))

    def _reset(self, item: BadStream) -> None:
        if item.number not in self._h2.streams:
            return  # long over, or it never was; nothing would come of the frame either
        with contextlib.suppress(ProtocolError):
            self._h2.reset_stream(item.number, item.code)
        self._broke(item.number, item.code)

    def spend_reset(self) -> None:
        """Count a stream that came to nothing. Raises: BadFrames when there are too many."""
        self._gate.spend_reset()

    def _ring_all(self) -> None:
        for stream in self.streams.values():
            stream.changed.ring()

    def _went_away(self, item: GoAway) -> None:
        self.leaving = True
        if self.is_client:
            for stream in list(self.streams.values()):
                if stream.number > item.last:
                    stream.fail(LinkBroken("the peer takes no more requests", unprocessed=True))

    # --- our frames -----------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether the connection has ended, for whatever reason."""
        return self._dead is not None

    @property
    def most_streams(self) -> int:
        """How many streams the peer takes at once, as far as it has said."""
        return self._h2.remote_settings.max_concurrent_streams

    @property
    def can_open(self) -> bool:
        """Whether a stream may be opened now."""
        return not self.leaving and self._dead is None and self._h2.open_outbound_streams < self.most_streams

    def open(self, fields: Fields, *, end: bool, sensitive: frozenset[bytes]) -> LinkStream:
        """A new stream with this head. Raises: LinkBroken."""
        if not self.can_open:
            raise self._dead or LinkBroken("the peer takes no more requests", unprocessed=True)
        stream = LinkStream(self, self._h2.get_next_available_stream_id())
        self.streams[stream.number] = stream
        stream.send_head(fields, end=end, sensitive=sensitive)
        return stream

    def send_head(self, number: int, fields: Fields, *, end: bool, sensitive: frozenset[bytes]) -> None:
        headers = [
            (NeverIndexedHeaderTuple if name in sensitive else HeaderTuple)(name, value)
            for name, value in fields
        ]
        self._act(lambda: self._h2.send_headers(number, headers, end_stream=end))

    def send_data(self, number: int, data: bytes, *, end: bool) -> None:
        self._act(lambda: self._h2.send_data(number, data, end_stream=end))
        self._gate.sent(1)

    def window(self, number: int) -> int:
        """Bytes that the peer takes on this stream now."""
        try:
            return self._h2.local_flow_control_window(number)
        except ProtocolError as error:
            raise LinkBroken(f"the stream is over: {type(error).__name__}") from error

    async def room(self) -> None:
        """Wait until the peer has taken enough of what was written. Raises: LinkBroken."""
        while self._pending > _ROOM:
            if self._dead is not None:
                raise self._dead
            await in_time(self._written)

    def acknowledge(self, number: int, size: int) -> None:
        """Give back window that the reader has made room for."""
        if size and self._dead is None:
            with contextlib.suppress(LinkBroken):
                self._act(lambda: self._h2.acknowledge_received_data(size, number))

    def forget(self, stream: LinkStream, owed: int, code: int | None) -> None:
        """Drop a stream. code: reset it with that."""
        if self.streams.pop(stream.number, None) is None:
            return
        if stream.is_served:
            self._gate.completed()
        if self._dead is None:
            self.acknowledge(stream.number, owed)
            if code is not None and stream.error is None:
                with contextlib.suppress(LinkBroken):
                    self._act(lambda: self._h2.reset_stream(stream.number, code))

    def _act(self, action: Callable[[], None]) -> None:
        if self._dead is not None:
            raise self._dead
        try:
            action()
        except ProtocolError as error:
            raise LinkBroken(f"the stream is over: {type(error).__name__}") from error
        self._push()

    def _push(self) -> None:
        self._out += self._h2.data_to_send()
        if self._out:
            self._to_write.set()

    @property
    def _pending(self) -> int:
        return len(self._out) + self._on_the_way

    async def _write_out(self) -> None:
        try:
            while True:
                await self._to_write.wait()
                self._to_write.clear()
                while self._out:
                    data, self._out = bytes(self._out), bytearray()
                    self._on_the_way = len(data)
                    await self._io.write(data)
                    self._on_the_way = 0
                    self._written.ring()
        finally:
            self._written.ring()

    def _goodbye(self, code: int) -> None:
        with contextlib.suppress(ProtocolError):
            self._h2.close_connection(code)
        self._push()

    def _end(self, error: LinkBroken) -> None:
        self.leaving = True
        self._dead = self._dead or error
        for stream in list(self.streams.values()):
            stream.fail(error)
        self._written.ring()

    async def _farewell(self, writer: asyncio.Future[None]) -> None:
        """Let the peer read what is left for it, GOAWAY among that."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                while self._pending and not writer.done():
                    await self._written.wait()
        writer.cancel()


def _size(fields: Iterable[Any]) -> int:
    return sum(len(name) + len(value) + 4 for name, value in fields)
