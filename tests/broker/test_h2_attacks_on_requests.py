"""What a hostile child asks for in HTTP/2: other origins, tunnels, bodies of another length."""

from __future__ import annotations

import struct

import pytest

from fumehood.testing.http import HttpServer, Reply, Seen
from tests.broker.h2_peers import (
    DATA,
    END_STREAM,
    GET,
    RST_STREAM,
    RawChild,
    frame,
    h2_child,
)
from tests.broker.world import PUBLIC, World

pytestmark = pytest.mark.anyio
RULE = "https://api.example.com +inspect +ws"
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


ORIGINS = {
    "another authority": [*GET[:2], (":authority", "other.example.com"), GET[3]],
    "another port": [*GET[:2], (":authority", "api.example.com:8443"), GET[3]],
    "with a user": [*GET[:2], (":authority", "x@api.example.com"), GET[3]],
    "a Host in its place": [*GET[:2], GET[3], ("host", "other.example.com")],
    "another scheme": [GET[0], (":scheme", "http"), *GET[2:]],
}


@pytest.mark.promise("broker:http2-no-coalescing")
@pytest.mark.parametrize("what", ORIGINS)
async def test_a_request_for_another_origin_is_421_with_a_row_and_nobody_is_asked(
    world: World, what: str
) -> None:
    server = host(world)
    async with world.call(RULE, "https://other.example.com +inspect") as call:
        async with h2_child(call) as child:
            await child.send(child.head(1, ORIGINS[what]))
            answer = await child.answer(1)
            assert (answer[":status"], answer["x-proxy-error"]) == ("421", "EGRESS_DENIED server-name")
            for stream, authority in ((3, "api.example.com"), (5, "api.example.com:443")):  # control
                await child.send(child.head(stream, [*GET[:2], (":authority", authority), GET[3]]))
                assert (await child.answer(stream))[":status"] == "200"
        assert [row["reason"] for row in call.rows] == ["server-name", None, None]
        assert (call.rows[0]["host"], call.rows[0]["port"]) == ("api.example.com", 443)
    assert {seen.header("host") for seen in server.seen} == {"api.example.com"}


async def test_connect_in_both_forms_is_refused_with_a_reason(world: World) -> None:
    host(world)
    plain = [(":method", "CONNECT"), (":authority", "other.example.com:443")]
    extended = [(":method", "CONNECT"), (":protocol", "websocket"), *GET[1:]]
    async with world.call(RULE) as call:
        async with h2_child(call) as child:
            for stream, fields in ((1, plain), (3, extended)):
                await child.send(child.head(stream, fields, end=False))
                answer = await child.answer(stream)
                assert (answer[":status"], answer["x-proxy-error"]) == ("403", "EGRESS_DENIED scheme")
            assert await fine(child, 5)  # control
        assert [row["reason"] for row in call.rows] == ["scheme", "scheme", None]


@pytest.mark.promise("broker:http2-nothing-smuggled")
async def test_a_body_keeps_to_its_length_and_trailers_to_what_may_trail(world: World) -> None:
    bodies: list[bytes] = []

    def answer(seen: Seen) -> Reply:
        if len(seen.body) == int(seen.header("content-length") or len(seen.body)):  # no server takes a part
            bodies.append(seen.body)
        return Reply(200)

    world.name({"*": [PUBLIC]}, ttl=60)
    world.serve(443, answer, tls=True)
    five = [*POST, ("content-length", "5")]

    async def send(call: object, fields: list[tuple[str, str]], *pieces: bytes, last: object = None) -> str:
        async with h2_child(call) as child:  # type: ignore[arg-type]
            head = child.head(1, fields, end=False)
            sent = [frame(DATA, 0, 1, piece) for piece in pieces]
            end = child.head(1, last) if last else frame(DATA, END_STREAM, 1)  # type: ignore[arg-type]
            await child.send(head, *sent, end)
            return (await child.answer(1)).get(":status", "reset")

    async with world.call(RULE) as call:
        assert await send(call, five, b"abc", b"de") == "200"  # control
        assert await send(call, POST, b"abc", last=[("x-sum", "1")]) == "200"  # control
        for pieces, last in (
            ((b"abc", b"def"), None),
            ((b"abc",), None),
            ((b"abc",), [("x-sum", "1")]),
            ((b"abc", b"def"), [("x-sum", "1")]),
        ):
            assert await send(call, five, *pieces, last=last) in ("400", "reset")
        for trailer in (
            ("content-length", "3"),
            ("transfer-encoding", "chunked"),
            ("host", "evil.example"),
            ("authorization", "Bearer x"),
            (":path", "/v2"),
            ("x-a", "b\r\nc: d"),
        ):
            assert await send(call, POST, b"abc", last=[trailer]) in ("400", "reset"), trailer
    assert bodies == [b"abcde", b"abc"]
