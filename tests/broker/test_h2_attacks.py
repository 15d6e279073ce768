"""What a hostile child sends in HTTP/2, frame by frame; controls show that honest ones pass."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from fumehood.broker import _h2_link, _h2_stream
from fumehood.testing.http import HttpServer, Reply, Seen
from tests.broker.h2_peers import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GET,
    HEADERS,
    OPENING,
    PING,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    H2Server,
    H2Side,
    RawChild,
    frame,
    h2_child,
)
from tests.broker.world import PUBLIC, World

pytestmark = pytest.mark.anyio
RULE = "https://api.example.com +inspect +ws"
CALM, PROTOCOL, SIZE = 11, 1, 6  # GOAWAY codes
POST = [(":method", "POST"), *GET[1:]]


def host(world: World) -> HttpServer:
    world.name({"*": [PUBLIC]}, ttl=60)
    return world.serve(443, lambda seen: Reply(200, b"fine"), tls=True)


async def fine(child: RawChild, stream: int) -> bool:
    """The control: an honest request on the same connection."""
    await child.send(child.head(stream))
    return (await child.answer(stream)).get(":status") == "200"


def cancel(stream: int) -> bytes:
    return frame(RST_STREAM, 0, stream, struct.pack("!I", 8))


@pytest.mark.promise("broker:http2-floods-end")
async def test_streams_opened_and_reset_at_once_end_the_connection(world: World) -> None:
    server = host(world)
    async with world.call(RULE) as call:
        async with h2_child(call) as child:  # control
            for stream in range(1, 101, 2):
                await child.send(child.head(stream), cancel(stream))
            assert await fine(child, 101)
        asked = len(server.seen)
        async with h2_child(call) as child:
            await child.send(*(child.head(stream) + cancel(stream) for stream in range(1, 2001, 2)))
            assert await child.goaway() == CALM
        assert len(server.seen) - asked <= 200
        assert call.rows[-1]["reason"] == "malformed"
        assert not call._live, "nothing of a reset stream goes on"


@pytest.mark.promise("broker:http2-floods-end")
async def test_a_child_that_makes_the_broker_reset_streams_is_counted_too(world: World) -> None:
    host(world)
    overflow = struct.pack("!I", 0x7FFFFFFF)
    async with world.call(RULE) as call:
        async with h2_child(call) as child:
            for stream in range(1, 1001, 2):
                update = frame(WINDOW_UPDATE, 0, stream, overflow)
                await child.send(child.head(stream, POST, end=False), update)
            assert await child.goaway() == CALM
        async with h2_child(call) as child:  # control
            await child.send(child.head(1, POST, end=False), frame(WINDOW_UPDATE, 0, 1, overflow))
            assert (await child.answer(1))["reset"] == "3"
            assert await fine(child, 3)


NOTHING = {
    "ping": frame(PING, 0, 0, bytes(8)),
    "ping answers": frame(PING, 1, 0, bytes(8)),
    "settings": frame(SETTINGS),
    "settings answers": frame(SETTINGS, 1),
    "windows": frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1"),
    "priority": frame(PRIORITY, 0, 5, b"\0\0\0\3\x10"),
    "unknown": frame(0xBB, 0, 0, b"grease"),
    "going away": frame(7, 0, 0, bytes(8)),
    "empty data": frame(DATA, 0, 1),
}


@pytest.mark.promise("broker:http2-floods-end")
@pytest.mark.parametrize("kind", NOTHING)
async def test_frames_that_carry_nothing_are_taken_by_the_hundred_and_not_by_the_thousand(
    world: World, kind: str
) -> None:
    host(world)
    async with world.call(RULE) as call:
        async with h2_child(call) as child:
            await child.send(child.head(1, POST, end=False))
            await child.send(NOTHING[kind] * 300)
            await child.send(frame(DATA, END_STREAM, 1, b"x"))
            assert (await child.answer(1))[":status"] == "200"  # control
        async with h2_child(call) as child:
            await child.send(child.head(1, POST, end=False))
            for _ in range(20):
                await child.send(NOTHING[kind] * 200)
            assert await child.goaway() == CALM
        assert call.rows[-1]["reason"] == "malformed"


@pytest.mark.promise("broker:http2-floods-end")
async def test_a_header_block_has_a_cap_in_bytes_in_frames_and_in_what_it_unfolds_to(world: World) -> None:
    server = host(world)
    async with world.call(RULE) as call:
        async with h2_child(call) as child:  # control: a head in four frames
            block = child.encoder.encode([*GET, ("x-long", "y" * 30_000)])
            parts = [block[at : at + 8000] for at in range(0, len(block), 8000)]
            more = [frame(CONTINUATION, 0, 1, part) for part in parts[1:-1]]
            last = frame(CONTINUATION, END_HEADERS, 1, parts[-1])
            await child.send(frame(HEADERS, END_STREAM, 1, parts[0]), *more, last)
            assert (await child.answer(1))[":status"] == "200"
        asked = len(server.seen)
        floods = {
            "bytes": [frame(CONTINUATION, 0, 1, bytes(16384))] * 200,
            "frames": [frame(CONTINUATION, 0, 1, b"")] * 2000,
        }
        for pieces in floods.values():
            async with h2_child(call) as child:
                await child.send(frame(HEADERS, END_STREAM, 1, child.encoder.encode(GET)), *pieces)
                assert await child.goaway() == CALM
        async with h2_child(call) as child:  # control: what is in the table is named twice
            head = child.head(1, [*GET, ("x-bomb", "z" * 3000)])
            named = child.encoder.encode([("x-bomb", "z" * 3000)])
            assert len(named) == 1
            await child.send(head, frame(HEADERS, 5, 3, child.encoder.encode(GET) + named * 2))
            assert (await child.answer(3))[":status"] == "200"
            await child.send(frame(HEADERS, 5, 5, child.encoder.encode(GET) + named * 9000))
            assert await child.goaway() == CALM
        for pieces in (
            [frame(HEADERS, 5, 1, b"\x20" * 16000)],
            [frame(HEADERS, 0x2D, 1, bytes(6) + b"\x3f\xe1\x1f" * 5000)],  # with a priority and padding
            [frame(HEADERS, 1, 1), frame(CONTINUATION, END_HEADERS, 1, b"\x20" * 16000)],
        ):
            async with h2_child(call) as child:
                control = b"\x20\x3f\xe1\x1f" + child.encoder.encode(GET)
                await child.send(frame(HEADERS, 5, 1, control))
                assert (await child.answer(1))[":status"] == "200"
                await child.send(*(piece[:5] + b"\0\0\0\3" + piece[9:] for piece in pieces))
                assert await child.goaway() == 9  # COMPRESSION_ERROR
        assert len(server.seen) == asked + 2 + 3


async def test_streams_beyond_those_announced_are_refused_so_that_the_client_may_ask_again(
    world: World,
) -> None:
    """RFC 9113 section 5.1.2; a client may send hundreds before it has read what is announced."""
    host(world)
    async with world.call(RULE) as call:
        async with h2_child(call) as child:
            await child.send(*(child.head(stream) for stream in range(1, 301, 2)))
            told = [await child.answer(stream) for stream in range(1, 301, 2)]
            assert [answer.get(":status") for answer in told[:100]] == ["200"] * 100
            assert all(answer.get(":status") == "200" or answer["reset"] == "7" for answer in told)
            assert await fine(child, 301)
        async with h2_child(call) as child:
            for stream in range(1, 200, 2):
                await child.send(child.head(stream, POST, end=False))
            await child.send(frame(DATA, END_STREAM, 199, b"x"))
            assert (await child.answer(199))[":status"] == "200"  # control: a hundred are fine
            for stream in (201, 203):
                await child.send(child.head(stream, POST, end=False))
            assert (await child.answer(203))["reset"] == "7"
            for stream in range(205, 1001, 2):
                await child.send(child.head(stream, POST, end=False))
            assert await child.goaway() == CALM


async def test_streams_whose_work_goes_on_after_their_reset_still_count(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fumehood.broker import _h2_door

    monkeypatch.setattr(_h2_door, "MAX_STREAMS", 3)
    host(world)
    async with world.call(RULE) as call:
        async with h2_child(call) as child:
            await child.send(*(child.head(stream, POST, end=False) for stream in (1, 3, 5, 7)))
            assert (await child.answer(7))["reset"] == "7"  # REFUSED_STREAM
            await child.send(frame(DATA, END_STREAM, 1, b"x"))
            assert (await child.answer(1))[":status"] == "200"
            assert await fine(child, 9)  # control


MALFORMED: dict[str, list[tuple[str, str]]] = {
    "connection": [*GET, ("connection", "x-a")],
    "keep-alive": [*GET, ("keep-alive", "1")],
    "proxy-connection": [*GET, ("proxy-connection", "close")],
    "transfer-encoding": [*POST, ("transfer-encoding", "chunked")],
    "upgrade": [*GET, ("upgrade", "websocket")],
    "te": [*GET, ("te", "gzip")],
    "upper case": [*GET, ("X-Upper", "a")],
    "LF in a value": [*GET, ("x-a", "b\nhost: evil.example")],
    "CRLF in a value": [*GET, ("x-a", "b\r\ntransfer-encoding: chunked")],
    "NUL in a value": [*GET, ("x-a", "b\0c")],
    "blank before a value": [*GET, ("x-a", " b")],
    "blank after a value": [*GET, ("x-a", "b\t")],
    "CRLF in a name": [*GET, ("x-a: b\r\nx-c", "d")],
    "colon in a name": [*GET, ("x-a:b", "c")],
    "blank in a name": [*GET, ("x a", "c")],
    "empty name": [*GET, ("", "c")],
    "CRLF in :path": [*GET[:3], (":path", "/ HTTP/1.1\r\nhost: evil.example\r\n\r\n")],
    "blank in :path": [*GET[:3], (":path", "/ HTTP/1.1")],
    "no slash in :path": [*GET[:3], (":path", "v1")],
    "a whole URL in :path": [*GET[:3], (":path", "https://evil.example/")],
    "empty :path": [*GET[:3], (":path", "")],
    "* of GET": [*GET[:3], (":path", "*")],
    "no :path": GET[:3],
    "no :scheme": [GET[0], *GET[2:]],
    "no :method": GET[1:],
    ":method with a blank": [(":method", "GET /x"), *GET[1:]],
    ":method in lower case": [(":method", "get"), *GET[1:]],
    "two :path": [*GET, (":path", "/v2")],
    "two :authority": [*GET, (":authority", "evil.example")],
    "a late pseudo-header": [*GET[:3], ("x-a", "b"), GET[3]],
    "an unknown pseudo-header": [*GET, (":protocol-x", "b")],
    ":status": [*GET, (":status", "200")],
    ":protocol without CONNECT": [*GET, (":protocol", "websocket")],
    "Host elsewhere": [*GET, ("host", "evil.example")],
    "two Hosts": [*GET, ("host", "api.example.com"), ("host", "api.example.com")],
    "no authority at all": [*GET[:2], GET[3]],
    "two lengths": [*POST, ("content-length", "1"), ("content-length", "1")],
    "a list of lengths": [*POST, ("content-length", "1, 1")],
    "a signed length": [*POST, ("content-length", "+1")],
    "a length and no body": [*POST, ("content-length", "5")],
    "too many fields": [*GET, *((f"x-{number}", "y") for number in range(101))],
}


@pytest.mark.promise("broker:http2-nothing-smuggled")
@pytest.mark.parametrize("what", MALFORMED)
async def test_a_head_that_could_be_read_twice_goes_nowhere(world: World, what: str) -> None:
    server = host(world)
    async with world.call(RULE) as call:
        async with h2_child(call) as child:
            ends = what not in ("two lengths", "a list of lengths", "a signed length", "transfer-encoding")
            assert await fine(child, 1)  # control
            await child.send(child.head(3, MALFORMED[what], end=ends))
            answer = await child.answer(3)
        status = "431" if what == "too many fields" else "400"
        assert answer.get(":status") == status or answer["reset"] == "the connection ended", answer
        assert [row["reason"] for row in call.rows] == [None, "malformed"]
    assert len(server.seen) == 1


async def test_a_window_that_stays_shut_ends_the_stream_and_what_serves_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_h2_stream, "STALL", 0.2)
    host(world)
    shut = OPENING + frame(SETTINGS, 0, 0, struct.pack("!HI", 4, 0))
    async with world.call(RULE) as call:
        async with h2_child(call, opening=shut) as child:
            await child.send(child.head(1))
            assert (await child.answer(1))["reset"] == "2"
            await child.send(child.head(3), frame(WINDOW_UPDATE, 0, 3, struct.pack("!I", 10)))
            assert (await child.answer(3))[":status"] == "200" and child.bodies[3] == b"fine"  # control
        assert [row["reason"] for row in call.rows] == ["budget-time", None]
        assert not call._live


async def test_a_frame_that_never_ends_and_a_child_that_never_reads_hold_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_h2_link, "FRAME_TIMEOUT", 0.2)
    server = host(world)
    async with world.call(RULE) as call:
        for piece in (
            frame(HEADERS, END_STREAM, 1, b"\x82"),  # a block without its end
            frame(HEADERS, 5, 1, bytes(100))[:50],
            OPENING[:10],
        ):
            async with h2_child(call, opening=OPENING if piece != OPENING[:10] else b"") as child:
                await child.send(piece)
                assert await child.goaway() == CALM
    assert server.seen == []


X_A = [("x-a", "b")]
CANCELLED = cancel(3)
OF_ONE_STREAM: dict[str, tuple[Callable[[RawChild], bytes], dict[str, str]]] = {
    "data after its end": (lambda c: c.head(3, POST) + frame(DATA, 0, 3, b"x"), {"reset": "5"}),
    "a head after its end": (lambda c: c.head(3, POST) + c.head(3, X_A), {"reset": "5"}),
    "data after its reset": (lambda c: c.head(3, POST, end=False) + CANCELLED + frame(DATA, 0, 3, b"x"), {}),
    "a window of nothing": (
        lambda c: c.head(3, POST, end=False) + frame(WINDOW_UPDATE, 0, 3, bytes(4)),
        {"reset": "1"},
    ),
    "trailers that do not end it": (
        lambda c: c.head(3, POST, end=False) + c.head(3, X_A, end=False),
        {"reset": "1"},
    ),
    "two lengths": (
        lambda c: c.head(3, [*POST, ("content-length", "1"), ("content-length", "2")], end=False),
        {":status": "400"},
    ),
    "a length that is none": (
        lambda c: c.head(3, [*POST, ("content-length", "x")], end=False),
        {":status": "400"},
    ),
    "a body over its length": (
        lambda c: c.head(3, [*POST, ("content-length", "1")], end=False) + frame(DATA, 1, 3, b"xy"),
        {":status": "400"},
    ),
    "a body under its length": (
        lambda c: c.head(3, [*POST, ("content-length", "5")], end=False) + frame(DATA, 1, 3, b"xy"),
        {":status": "400"},
    ),
}


@pytest.mark.promise("broker:http2-streams-apart")
@pytest.mark.parametrize("what", OF_ONE_STREAM)
async def test_what_is_wrong_with_one_stream_ends_that_one_and_no_other(world: World, what: str) -> None:
    """RFC 9113 sections 5.1, 5.4.2, 6.9, 8.1.1."""
    host(world)
    wrong, told = OF_ONE_STREAM[what]
    async with world.call(RULE) as call:
        async with h2_child(call) as child:
            await child.send(child.head(1, POST, end=False), wrong(child))
            answer = await child.answer(3)
            assert told.items() <= answer.items(), answer
            await child.send(frame(DATA, END_STREAM, 1, b"x"))
            assert (await child.answer(1))[":status"] == "200"
            assert await fine(child, 5)
        reasons = [row["reason"] for row in call.rows]
        assert reasons.count("malformed") == (0 if what == "data after its reset" else 1), reasons


async def test_a_client_that_has_not_sent_all_hears_the_answer_and_no_reset_for_a_moment(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fumehood.broker import _h2_door

    host(world)
    async with world.call("GET https://api.example.com +inspect") as call:
        async with h2_child(call) as child:
            await child.send(child.head(1, POST, end=False))
            assert (await child.answer(1))[":status"] == "403"
            await child.send(frame(DATA, 0, 1, bytes(16000)) * 40, frame(DATA, END_STREAM, 1, b"x"))
            assert await fine(child, 3)
            assert not [found for found in child.frames if found.kind == RST_STREAM]
            monkeypatch.setattr(_h2_door, "LINGER", 0.1)
            await child.send(child.head(5, POST, end=False))  # control: one that never ends
            assert (await child.answer(5))[":status"] == "403"
            reset = await child.until(lambda found: (found.kind, found.stream) == (RST_STREAM, 5))
            assert reset is not None and reset.payload == bytes(4)


async def test_a_priority_in_a_head_is_not_heeded(world: World) -> None:
    host(world)
    async with world.call(RULE) as call:
        async with h2_child(call) as child:
            on_itself = struct.pack("!IB", 1, 16)
            await child.send(frame(HEADERS, 0x25, 1, on_itself + child.encoder.encode(GET)))
            assert (await child.answer(1))[":status"] == "200"
            padded = b"\x02" + on_itself + child.encoder.encode(GET) + bytes(2)
            await child.send(frame(HEADERS, 0x2D, 3, padded))
            assert (await child.answer(3))[":status"] == "200"
            await child.send(frame(HEADERS, 0x25, 5, b"\0\0"))
            assert await child.goaway() == SIZE
        assert [row["reason"] for row in call.rows] == [None, None, "malformed"]


BROKEN = {
    "no preface": (b"GET / HTTP/1.1\r\n\r\n", PROTOCOL),
    "no SETTINGS": (OPENING[:24] + frame(PING, 0, 0, bytes(8)), PROTOCOL),
    "an answer to SETTINGS first": (OPENING[:24] + frame(SETTINGS, 1), PROTOCOL),
    "a frame too large": (OPENING + frame(DATA, 0, 1, bytes(16385)), SIZE),
    "a CONTINUATION of nothing": (OPENING + frame(CONTINUATION, 4, 1), PROTOCOL),
    "a push": (OPENING + frame(5, 4, 1, bytes(8)), PROTOCOL),
    "an even stream": (OPENING + frame(HEADERS, 5, 2, b"\x82\x84\x87\x41\1a"), PROTOCOL),
    "data on no stream": (OPENING + frame(DATA, 0, 0, b"x"), PROTOCOL),
    "data on an idle stream": (OPENING + frame(DATA, 0, 9, b"x"), PROTOCOL),
    "a reset of an idle stream": (OPENING + cancel(9), PROTOCOL),
    "a window of an idle stream": (OPENING + frame(WINDOW_UPDATE, 0, 9, bytes(4)), PROTOCOL),
    "bad HPACK": (OPENING + frame(HEADERS, 5, 1, b"\xff\xff\xff\xff\xff\xff"), PROTOCOL),
    "settings out of range": (OPENING + frame(SETTINGS, 0, 0, struct.pack("!HI", 5, 1)), PROTOCOL),
    "a window out of range": (OPENING + frame(WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"), 3),
    "a window of nothing": (OPENING + frame(WINDOW_UPDATE, 0, 0, bytes(4)), PROTOCOL),
    "too many settings": (OPENING + frame(SETTINGS, 0, 0, bytes(6) * 100), CALM),
}


@pytest.mark.parametrize("what", BROKEN)
async def test_broken_framing_is_told_its_code_and_has_one_row(world: World, what: str) -> None:
    server = host(world)
    opening, code = BROKEN[what]
    async with world.call(RULE) as call:
        async with h2_child(call, opening=opening) as child:
            told = await child.goaway()
        assert told == code
        assert [row["reason"] for row in call.rows] == ["malformed"]
    assert server.seen == []


async def test_malformed_requests_have_rows_by_the_hundred_and_no_more(world: World) -> None:
    host(world)
    async with world.call(RULE) as call:
        async with h2_child(call) as child:
            for stream in range(1, 1001, 2):
                await child.send(child.head(stream, MALFORMED["connection"]))
                if "reset" in await child.answer(stream):
                    break
            assert child.ended
        assert len(call.rows) == 100


async def test_a_small_frame_costs_what_it_weighs(world: World) -> None:
    """A body in frames of one byte, unread by the host: what is held stays near what was sent."""

    def answer(seen: Seen, side: H2Side, stream: int) -> Reply:
        return Reply(200, str(len(seen.body)).encode())

    server = world.stack.enter_context(H2Server(world, answer))
    world.ports[443] = server  # type: ignore[assignment]
    world.name({"*": [PUBLIC]}, ttl=60)
    async with world.call(RULE) as call:
        async with h2_child(call) as child:
            await child.send(child.head(1, POST, end=False))
            for _ in range(40):
                await child.send(frame(DATA, 0, 1, b"x") * 500)
            await child.send(frame(DATA, END_STREAM, 1))
            assert (await child.answer(1))[":status"] == "200"
            assert child.bodies[1] == b"20000"
