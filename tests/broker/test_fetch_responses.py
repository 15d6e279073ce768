"""What a hostile or broken upstream may do to the fetch door:

the corpus rows about responses, and bombs in every coding.
"""

from __future__ import annotations

import asyncio
import gzip
import socket
import zlib
from collections.abc import Callable, Iterator

import anyio
import brotli  # type: ignore[import-untyped]
import pytest
import zstandard

from fumehood.broker import EgressRefused, FetchRequest, NetSockets
from fumehood.testing.http import Answer, Reply, Seen
from tests.broker.world import PUBLIC, Row, World, corpus

pytestmark = pytest.mark.anyio
CAP = 1048576
OK = b"HTTP/1.1 200 OK\r\n"


def endless() -> Iterator[bytes]:
    yield OK + b"Transfer-Encoding: chunked\r\n\r\n"
    while True:
        yield b"10000\r\n" + b"x" * 65536 + b"\r\n"


def events() -> Iterator[bytes]:
    yield OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    for at in range(20):
        piece = f"data: {at}\n\n".encode()
        yield f"{len(piece):x}\r\n".encode() + piece + b"\r\n"
    yield b"0\r\n\r\n"


def stacked(seen: Seen) -> Reply:
    body = gzip.compress(gzip.compress(gzip.compress(b"x")))
    return Reply(200, body, (("Content-Encoding", "gzip, gzip, gzip"),))


def raw(*pieces: bytes) -> Callable[[Seen], bytes]:
    return lambda seen: b"".join(pieces)


RESPONSES: dict[str, tuple[Answer, str | None]] = {
    "200, 1048576 bytes": (lambda seen: Reply(200, b"x" * CAP), None),
    "200, 1048577 bytes, Content-Length announced": (
        lambda seen: Reply(200, b"x" * (CAP + 1)),
        "budget-bytes",
    ),
    "200, chunked without end": (lambda seen: endless(), "budget-bytes"),
    "200, gzip of gzip of gzip": (stacked, "upstream"),
    "200, 20 000 header lines": (raw(OK, b"X-A: b\r\n" * 20000, b"\r\n"), "budget-bytes"),
    "200, one header of 1 MiB": (raw(OK, b"X-A: ", b"b" * CAP, b"\r\n\r\n"), "budget-bytes"),
    "100 x 1000 then 200": (raw(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000, OK, b"\r\n"), "budget-bytes"),
    "200 text/event-stream, an event a second for 20 s": (lambda seen: events(), None),
    "200 with Content-Length 10 and 5 bytes then close": (
        raw(OK, b"Content-Length: 10\r\n\r\n12345"),
        "upstream",
    ),
    "204 with body bytes, kept connection": (raw(b"HTTP/1.1 204 No\r\n\r\n", OK, b"\r\nlate"), "upstream"),
    "101 to a request without Upgrade": (raw(b"HTTP/1.1 101 Switch\r\nUpgrade: x\r\n\r\nfree"), "upstream"),
}


@pytest.mark.promise("broker:response-bounded")
@pytest.mark.requirement("R474")
@pytest.mark.parametrize("row", corpus("response"), ids=lambda row: row.id)
async def test_each_response_row_is_delivered_whole_or_refused_with_its_reason(
    row: Row, world: World
) -> None:
    answer, reason = RESPONSES[row.request]
    world.serve(443, answer, tls=True)
    world.name(row.dns)
    assert (reason is None) == (row.expected == "allow")
    with anyio.fail_after(30):
        async with world.call(*row.policy) as call:
            if reason is None:
                reply = await call.fetch(FetchRequest("GET", "https://api.example.com/"))
                assert reply.status == 200 and len(reply.body) > 100
            else:
                with pytest.raises(EgressRefused) as caught:
                    await call.fetch(FetchRequest("GET", "https://api.example.com/"))
                assert caught.value.reason == reason
                assert call.rows[0]["outcome"] == "deny" and call.rows[0]["reason"] == reason
    assert world.journal.kinds()[-1] == "EGRESS_CLOSED"


@pytest.mark.promise("broker:event-streams-flow")
async def test_an_event_is_handed_on_before_the_next_one_is_sent(world: World) -> None:
    seen_by_tool = anyio.Event()
    main = anyio.lowlevel.current_token()

    def dialogue() -> Iterator[bytes]:
        yield OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        yield b"9\r\ndata: 1\n\n\r\n"
        anyio.from_thread.run(
            seen_by_tool.wait, token=main
        )  # the second event exists only after the first was seen
        yield b"9\r\ndata: 2\n\n\r\n0\r\n\r\n"

    world.serve(443, lambda seen: dialogue(), tls=True)
    world.name({"api.example.com": [PUBLIC]})
    got = []
    with anyio.fail_after(10):
        async with world.call("https://api.example.com") as call:
            async with call.stream(FetchRequest("GET", "https://api.example.com/")) as reply:
                async for piece in reply:
                    got.append(piece)
                    seen_by_tool.set()
    assert got == [b"data: 1\n\n", b"data: 2\n\n"]


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "deflate-raw": deflated,
    "br": brotli.compress,
    "zstd": zstandard.compress,
}


@pytest.mark.promise("broker:bombs-bounded")
@pytest.mark.parametrize("coding", PACK)
async def test_a_coded_body_is_decoded_up_to_the_cap_and_a_bomb_is_cut(coding: str, world: World) -> None:
    header = (("Content-Encoding", coding.removesuffix("-raw")),)

    def answer(seen: Seen) -> Reply:
        size = {"/fits": CAP, "/bomb": 64 * CAP, "/cut": CAP}[seen.path]
        body = PACK[coding](b"0123456789abcdef" * (size // 16))
        return Reply(200, body[:-4] if seen.path == "/cut" else body, header)

    world.serve(443, answer, tls=True)
    world.name({"api.example.com": [PUBLIC]})
    with anyio.fail_after(30):
        async with world.call("https://api.example.com +max_response=1048576") as call:
            reply = await call.fetch(FetchRequest("GET", "https://api.example.com/fits"))
            assert reply.body == b"0123456789abcdef" * (CAP // 16)
            assert not {name.lower() for name, _ in reply.headers} & {"content-encoding", "content-length"}
            with pytest.raises(EgressRefused) as caught:
                await call.fetch(FetchRequest("GET", "https://api.example.com/bomb"))
            assert caught.value.reason == "budget-bytes"
            with pytest.raises(EgressRefused) as caught:
                await call.fetch(FetchRequest("GET", "https://api.example.com/cut"))
            assert caught.value.reason == "upstream"


async def test_a_body_that_is_not_what_its_coding_says_is_refused(world: World) -> None:
    world.serve(
        443, lambda seen: Reply(200, b"plain words", (("Content-Encoding", seen.path[1:]),)), tls=True
    )
    world.name({"api.example.com": [PUBLIC]})
    async with world.call("https://api.example.com") as call:
        for coding in ("gzip", "deflate", "br", "zstd"):
            with pytest.raises(EgressRefused) as caught:
                await call.fetch(FetchRequest("GET", f"https://api.example.com/{coding}"))
            assert caught.value.reason == "upstream"
        reply = await call.fetch(FetchRequest("GET", "https://api.example.com/compress"))
        assert (reply.body, dict(reply.headers)["Content-Encoding"]) == (b"plain words", "compress")


@pytest.mark.promise("broker:time-bounded")
async def test_a_host_that_never_answers_and_one_that_never_ends_are_cut_at_the_deadline(
    world: World,
) -> None:
    forever = anyio.Event()
    main = anyio.lowlevel.current_token()

    def silent(seen: Seen) -> Iterator[bytes]:
        if seen.path == "/slow":
            yield OK + b"Content-Length: 10\r\n\r\n1"
        anyio.from_thread.run(forever.wait, token=main)
        yield b""

    world.serve(443, silent, tls=True)
    world.name({"api.example.com": [PUBLIC]})
    with anyio.fail_after(10):
        async with world.call("https://api.example.com +timeout=0.2") as call:
            for path in ("/never", "/slow"):
                with pytest.raises(EgressRefused) as caught:
                    await call.fetch(FetchRequest("GET", f"https://api.example.com{path}"))
                assert caught.value.reason == "budget-time"
        forever.set()


@pytest.mark.promise("broker:connection-clean-or-closed")
async def test_a_kept_connection_serves_the_next_request_and_a_dirty_one_does_not(world: World) -> None:
    late = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    server = world.serve(443, tls=True)
    dirty = world.serve(8443, lambda seen: iter([late, late]), tls=True)
    world.name({"api.example.com": [PUBLIC]}, ttl=60)
    async with world.call("https://api.example.com", "https://api.example.com:8443") as call:
        for _ in range(3):
            await call.fetch(FetchRequest("GET", "https://api.example.com/"))
        assert (server.connections, len(server.seen)) == (1, 3)
        for _ in range(2):  # the second answer comes unasked: it must answer nobody
            with pytest.raises(EgressRefused):
                while True:
                    await call.fetch(FetchRequest("GET", "https://api.example.com:8443/"))
        assert dirty.connections == len(dirty.seen)


@pytest.mark.promise("broker:connection-clean-or-closed")
@pytest.mark.parametrize(
    "empty",
    [
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_bytes_behind_an_empty_answer_spoil_the_connection_in_every_door(
    empty: bytes, world: World
) -> None:
    late = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
    connections, seen = 0, 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections, seen
        connections += 1
        while head := await reader.read(4096):
            seen += 1
            writer.write(empty + (late if head.startswith(b"GET / ") else b""))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    world.ports[80] = type("At", (), {"port": server.sockets[0].getsockname()[1]})()
    world.name({"api.example.com": [PUBLIC]}, ttl=60)
    listener = socket.create_server(("127.0.0.1", 0))
    request = b"GET http://api.example.com%s HTTP/1.1\r\nHost: api.example.com\r\n\r\n"
    async with world.call("http://api.example.com") as call:
        await call.attach(NetSockets(proxy=listener))
        with anyio.fail_after(20):
            for path in (b"/clean", b"/", b"/clean", b"/"):
                reader, writer = await asyncio.open_connection(*listener.getsockname())
                writer.write(request % path)
                answer = await reader.readuntil(b"\r\n\r\n")
                assert answer.split()[1] == (b"502" if path == b"/" else empty.split()[1])
                writer.close()
            assert (seen, connections) == (4, 2)  # a clean one serves again, a spoilt one does not
            with pytest.raises(EgressRefused):
                await call.fetch(FetchRequest("GET", "http://api.example.com/"))
            reply = await call.fetch(FetchRequest("GET", "http://api.example.com/clean"))
            assert (reply.status, reply.body) == (int(empty.split()[1]), b"")
    server.close()


@pytest.mark.parametrize(
    ("location", "host", "path"),
    [
        ("/caf\u00e9?q=\u00fc".encode(), "api.example.com", "/caf%C3%A9?q=%C3%BC"),
        ("/caf\u00e9".encode("latin-1"), "api.example.com", "/caf%E9"),
        (b"/caf%C3%A9", "api.example.com", "/caf%C3%A9"),
        ("https://b\u00fccher.example/\u00e9".encode(), "xn--bcher-kva.example", "/%C3%A9"),
    ],
)
async def test_a_location_that_is_not_ascii_leads_where_a_browser_would_go(
    world: World, location: bytes, host: str, path: str
) -> None:
    def answer(seen: Seen) -> Reply | bytes:
        if seen.path != "/start":
            return Reply(200, b"there")
        return b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: " + location + b"\r\n\r\n"

    server = world.serve(443, answer, tls=True)
    world.name({"*": [PUBLIC]})
    async with world.call("https://api.example.com", "https://b\u00fccher.example") as call:
        reply = await call.fetch(FetchRequest("GET", "https://api.example.com/start"))
    assert (reply.body, server.seen[-1].header("host"), server.seen[-1].target) == (b"there", host, path)
