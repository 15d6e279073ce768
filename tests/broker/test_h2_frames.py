"""Properties of the frame path: whatever bytes come, in whatever pieces, one reading or a refusal."""

from __future__ import annotations

import asyncio
import struct

import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fumehood.broker._exchange import UpstreamFailed
from fumehood.broker._forward import _outgoing
from fumehood.broker._h2_gate import MAX_FRAME, PREFACE, BadFrames, BadStream, FrameGate, GoAway
from fumehood.broker._h2_head import Fields, read_answer, read_request, read_trailers
from fumehood.broker._h2_link import MAX_STREAMS, Link
from fumehood.broker._h2_stream import LinkStream
from fumehood.broker._head import BadHead, parse_request_head
from fumehood.broker._target import parse_url
from tests.broker.h2_peers import GET, OPENING, frame

EXAMPLES = settings(max_examples=120, deadline=None)
kinds = st.integers(0, 12)
flags = st.sampled_from([0, 1, 4, 5, 8, 0x20, 0x2D, 255])
streams = st.sampled_from([0, 1, 2, 3, 5, 7, 0x7FFFFFFF, 0xFFFFFFFF])
heads = st.sampled_from([GET, [*GET, ("content-length", "3")], [("x-sum", "1")], [(":status", "200")], []])
payloads = st.one_of(
    st.binary(max_size=40),
    heads.map(lambda fields: bytes(hpack.Encoder().encode(fields))),
    st.builds(struct.pack, st.just("!I"), st.sampled_from([0, 1, 8, 0x7FFFFFFF, 0xFFFFFFFF])),
    st.builds(struct.pack, st.just("!HI"), st.integers(0, 9), st.sampled_from([0, 1, 100, 16384, 2**31])),
    st.just(bytes(8)),
)
frames = st.builds(frame, kinds, flags, streams, payloads)
talks = st.lists(frames, max_size=25).map(b"".join)


def through(gate: FrameGate, pieces: list[bytes]) -> tuple[bytes, list[GoAway | BadStream], str | None]:
    passed = b""
    gone: list[GoAway | BadStream] = []
    try:
        for piece in pieces:
            for item in gate.feed(piece):
                if isinstance(item, (GoAway, BadStream)):
                    gone.append(item)
                else:
                    passed += item
            assert len(gate._buffer) < 9 + MAX_FRAME
    except BadFrames as bad:
        return passed, gone, bad.what
    return passed, gone, None


@given(st.one_of(talks, st.binary(max_size=200)), st.lists(st.integers(1, 40), max_size=20))
@EXAMPLES
def test_frames_are_the_same_in_any_pieces(talk: bytes, cuts: list[int]) -> None:
    data = OPENING + talk
    pieces, at = [], 0
    for cut in cuts:
        pieces.append(data[at : at + cut])
        at += cut
    pieces.append(data[at:])
    clock = lambda: 0.0  # noqa: E731  # nothing is earned by time
    whole, gone, wrong = through(FrameGate(server=True, clock=clock), [data])
    parts, gone_too, wrong_too = through(FrameGate(server=True, clock=clock), pieces)
    assert wrong == wrong_too
    if wrong is None:
        assert (whole, gone) == (parts, gone_too) and whole.startswith(PREFACE)


class Script:
    """Bytes that come in pieces, then the end."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces
        self.written = 0

    async def read(self) -> bytes:
        await asyncio.sleep(0)
        return self.pieces.pop(0) if self.pieces else b""

    async def write(self, data: bytes) -> None:
        self.written += len(data)


@given(talks, st.booleans())
@EXAMPLES
def test_whatever_a_peer_sends_the_connection_ends_in_an_orderly_way(talk: bytes, server: bool) -> None:
    async def run() -> None:
        seen: list[LinkStream] = []

        def on_request(stream: LinkStream, fields: Fields, ended: bool) -> None:
            seen.append(stream)
            try:
                read_request(fields, ended=ended)
            except BadHead:
                stream.close()

        opening = OPENING if server else frame(4)
        script = Script([opening, talk])
        link = Link(script, on_request=on_request if server else None)
        if not server:
            fields = [(name.encode(), value.encode()) for name, value in GET]
            seen.append(link.open(fields, end=True, sensitive=frozenset()))
        try:
            await asyncio.wait_for(link.run(), 10)
        except BadFrames:
            pass
        assert len(link.streams) <= MAX_STREAMS and link._dead is not None
        for stream in seen:
            while stream.heads:
                try:
                    read_answer(stream.heads.popleft())
                    read_trailers(stream.trailers, of_request=False)
                except (UpstreamFailed, BadHead):
                    pass
            assert stream.error is not None
        assert script.written < 100_000

    asyncio.run(run())


names = st.one_of(
    st.sampled_from([b"x-a", b"host", b"cookie", b"te", b"content-length", b"X-B", b"", b"a b", b"expect"]),
    st.binary(max_size=6),
)
values = st.one_of(
    st.sampled_from([b"", b"1", b"trailers", b"api.example.com", b"a\r\nb: c", b" x", b"100-continue"]),
    st.binary(max_size=8),
)
paths = st.sampled_from(
    [b"/", b"/v1?q=1", b"/ HTTP/1.1\r\nx: y", b"*", b"http://x/", b"/\xff", b"/%0d%0a", b""]
)
methods = st.sampled_from([b"GET", b"POST", b"get", b"GET /", b"PURGE", b"G\nX"])


@given(methods, paths, st.lists(st.tuples(names, values), max_size=4), st.booleans())
@settings(max_examples=400, deadline=None)
def test_a_head_that_is_read_is_read_alike_in_http11(
    method: bytes, path: bytes, fields: Fields, ended: bool
) -> None:
    """What passes becomes one HTTP/1.1 head that the strict parser reads back to the same parts."""
    first = [(b":method", method), (b":scheme", b"https"), (b":authority", b"api.example.com")]
    try:
        asked = read_request([*first, (b":path", path), *fields], ended=ended)
    except BadHead:
        return
    target = parse_url("https://api.example.com/")
    sent = _outgoing(target, asked.head, asked.head.end_to_end())
    lines = [f"{asked.head.method} {asked.head.target} HTTP/1.1", *(f"{key}: {value}" for key, value in sent)]
    again = parse_request_head("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")
    assert (again.method, again.target) == (method.decode(), path.decode("latin-1"))
    assert again.headers == tuple((key, value.strip(" \t")) for key, value in sent)
    assert again.chunked == asked.head.chunked and (again.length or 0) == (asked.head.length or 0)


@pytest.mark.parametrize("count", [1, 5])
def test_a_budget_fills_with_time_and_with_honest_work(count: int) -> None:
    now = [0.0]
    gate = FrameGate(server=False, clock=lambda: now[0])
    gate.feed(frame(4))
    ping = frame(6, 0, 0, bytes(8))
    gate.feed(ping * 900)
    for _ in range(200 * count):  # once a second for hours: an idle connection that is kept alive
        now[0] += 1
        gate.feed(ping * 10)
    for _ in range(2000 * count):  # beside every frame of data one ping and two windows
        gate.feed(frame(0, 0, 1, b"x") + ping)
        gate.sent(1)
        gate.feed(frame(8, 0, 0, b"\0\0\0\1") * 2)
    with pytest.raises(BadFrames, match="carry nothing"):
        gate.feed(ping * 1100)
