"""What a hostile or clumsy host answers in HTTP/2, and what of it may reach the child."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable

import pytest

from fumehood.broker import _forward, _h2_stream
from fumehood.broker._budget import Places
from fumehood.testing.http import Reply, Seen
from tests.broker.h2_peers import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GET,
    GOAWAY,
    HEADERS,
    PING,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    H2Server,
    H2Side,
    RawChild,
    frame,
    h2_child,
)
from tests.broker.world import PUBLIC, World, policy

pytestmark = pytest.mark.anyio
SECRET = "s3cret-value"
OK = [(":status", "200")]
Fields = list[tuple[str, str]]


def block(side: H2Side, fields: Fields) -> bytes:
    return bytes(side.h2.encoder.encode(fields))


def head(side: H2Side, stream: int, fields: Fields, flags: int = END_HEADERS) -> bytes:
    return frame(HEADERS, flags, stream, block(side, fields))


def whole(side: H2Side, stream: int, fields: Fields) -> bytes:
    return head(side, stream, fields, END_HEADERS | END_STREAM)


def data(stream: int, piece: bytes, *, end: bool = True) -> bytes:
    return frame(DATA, END_STREAM if end else 0, stream, piece)


Hostile = Callable[[H2Side, int], bytes]
ANSWERS: dict[str, Hostile] = {
    "CRLF in a value": lambda side, n: whole(side, n, [*OK, ("x-a", "b\r\nset-cookie: c")]),
    "upper case": lambda side, n: whole(side, n, [*OK, ("X-Upper", "b")]),
    "connection": lambda side, n: whole(side, n, [*OK, ("connection", "close")]),
    "transfer-encoding": lambda side, n: whole(side, n, [*OK, ("transfer-encoding", "chunked")]),
    "no :status": lambda side, n: whole(side, n, [("x-a", "b")]),
    "two :status": lambda side, n: whole(side, n, [*OK, (":status", "204")]),
    "a late :status": lambda side, n: whole(side, n, [("x-a", "b"), *OK]),
    ":status 101": lambda side, n: whole(side, n, [(":status", "101")]),
    ":status 20": lambda side, n: whole(side, n, [(":status", "20")]),
    ":status with more": lambda side, n: whole(side, n, [(":status", "200 OK\r\nx: y")]),
    ":path": lambda side, n: whole(side, n, [*OK, (":path", "/")]),
    "two lengths": lambda side, n: whole(side, n, [*OK, ("content-length", "0"), ("content-length", "0")]),
    "a bad length": lambda side, n: whole(side, n, [*OK, ("content-length", "-1")]),
    "too many fields": lambda side, n: whole(side, n, [*OK, *((f"x-{i}", "") for i in range(300))]),
    "a head without end": lambda side, n: (
        frame(HEADERS, 0, n, block(side, OK)) + frame(CONTINUATION, 0, n, bytes(16384)) * 10
    ),
    "interim answers without end": lambda side, n: head(side, n, [(":status", "103")]) * 40,
    "data without a head": lambda side, n: data(n, b"x"),
    "a push": lambda side, n: frame(PUSH_PROMISE, 4, n, b"\0\0\0\2" + block(side, GET)),
    "a reset": lambda side, n: frame(RST_STREAM, 0, n, struct.pack("!I", 2)),
    "a rude goodbye": lambda side, n: frame(GOAWAY, 0, 0, struct.pack("!II", 0, 2)),
    "pings without end": lambda side, n: frame(PING, 0, 0, bytes(8)) * 3000,
    "settings without end": lambda side, n: frame(SETTINGS) * 3000,
    "a frame too large": lambda side, n: frame(DATA, 0, n, bytes(20000)),
    "an end in the middle": lambda side, n: b"",
}
CUT: dict[str, Hostile] = {
    "shorter than it says": lambda side, n: head(side, n, [*OK, ("content-length", "5")]) + data(n, b"abc"),
    "longer than it says": lambda side, n: (
        head(side, n, [*OK, ("content-length", "2")]) + data(n, b"abc", end=False) + data(n, b"d")
    ),
    "shorter, hidden by trailers": lambda side, n: (
        head(side, n, [*OK, ("content-length", "5")])
        + data(n, b"abc", end=False)
        + whole(side, n, [("x-sum", "1")])
    ),
    "bad trailers": lambda side, n: (
        head(side, n, OK) + data(n, b"abc", end=False) + whole(side, n, [("x-a", "b\r\nc: d")])
    ),
    "a pseudo-header in trailers": lambda side, n: (
        head(side, n, OK) + data(n, b"abc", end=False) + whole(side, n, [(":status", "204")])
    ),
    "a reset in the body": lambda side, n: (
        head(side, n, OK) + data(n, b"abc", end=False) + frame(RST_STREAM, 0, n, struct.pack("!I", 2))
    ),
}
BODILESS: dict[str, tuple[str, Hostile]] = {
    "HEAD with a body": ("HEAD", lambda side, n: head(side, n, OK) + data(n, b"abc")),
    "304 with a body": ("GET", lambda side, n: head(side, n, [(":status", "304")]) + data(n, b"abc")),
    "204 with a body": ("GET", lambda side, n: head(side, n, [(":status", "204")]) + data(n, b"abc")),
}


def served(world: World, hostile: Hostile) -> H2Server:
    def answer(seen: Seen, side: H2Side, stream: int) -> Reply | None:
        if seen.target == "/fine":
            return Reply(200, b"fine")
        side.sock.sendall(hostile(side, stream))
        if seen.target == "/end":
            raise ConnectionError("the host leaves")
        return None

    server = H2Server(world, answer)
    world.stack.enter_context(server)
    world.ports[443] = server  # type: ignore[assignment]  # a port is all that the dial map reads
    world.name({"*": [PUBLIC]}, ttl=60)
    return server


async def ask(child: RawChild, stream: int, path: str, method: str = "GET") -> dict[str, str]:
    await child.send(child.head(stream, [(":method", method), *GET[1:3], (":path", path)]))
    return await child.answer(stream)


@pytest.mark.promise("broker:http2-nothing-smuggled")
@pytest.mark.parametrize("what", ANSWERS)
async def test_an_answer_that_is_no_answer_is_502_and_nothing_of_it_passes(world: World, what: str) -> None:
    served(world, ANSWERS[what])
    async with world.call("https://api.example.com +inspect") as call:
        async with h2_child(call) as child:
            answer = await ask(child, 1, "/end" if what == "an end in the middle" else "/")
            assert answer[":status"] in ("502", "413"), answer
            assert set(answer) == {":status", "x-proxy-error", "content-type", "content-length"}
            assert (await ask(child, 3, "/fine"))[":status"] == "200"  # control: and the child goes on
        assert [row["reason"] for row in call.rows] in (["upstream", None], ["budget-bytes", None])


@pytest.mark.parametrize("what", CUT)
async def test_an_answer_that_ends_otherwise_than_it_says_is_cut_and_not_passed_off_as_whole(
    world: World, what: str
) -> None:
    served(world, CUT[what])
    async with world.call("https://api.example.com +inspect") as call:
        async with h2_child(call) as child:
            answer = await ask(child, 1, "/")
            assert "reset" in answer or answer[":status"] == "502", answer
            assert (await ask(child, 3, "/fine"))[":status"] == "200"  # control
        assert [row["reason"] for row in call.rows] == ["upstream", None]


@pytest.mark.parametrize("what", BODILESS)
async def test_a_body_where_none_can_be_is_not_passed(world: World, what: str) -> None:
    method, hostile = BODILESS[what]
    served(world, hostile)
    async with world.call("https://api.example.com +inspect") as call:
        async with h2_child(call) as child:
            answer = await ask(child, 1, "/", method)
            assert b"abc" not in child.bodies.get(1, b"")
            assert "reset" in answer or answer[":status"] == "502", answer
            assert (await ask(child, 3, "/fine"))[":status"] == "200"  # control


ECHOES: dict[str, Hostile] = {
    "a value": lambda side, n: whole(side, n, [*OK, ("x-a", f"<{SECRET}>")]),
    "a name": lambda side, n: whole(side, n, [*OK, (f"x-{SECRET}", "a")]),
    "Location": lambda side, n: whole(side, n, [(":status", "302"), ("location", f"/?{SECRET}")]),
    "the body in two frames": lambda side, n: (
        head(side, n, OK) + data(n, SECRET[:5].encode(), end=False) + data(n, SECRET[5:].encode())
    ),
    "trailers": lambda side, n: (
        head(side, n, OK) + data(n, b"x", end=False) + whole(side, n, [("x-t", SECRET), (f"x-{SECRET}", "a")])
    ),
    "early hints": lambda side, n: head(side, n, [(":status", "103"), ("link", SECRET)]) + whole(side, n, OK),
    "a broken head": lambda side, n: whole(side, n, [*OK, (f"X {SECRET}", SECRET)]),
    "a broken :status": lambda side, n: whole(side, n, [(":status", SECRET)]),
    "a broken length": lambda side, n: whole(side, n, [*OK, ("content-length", SECRET)]),
    "the words of a goodbye": lambda side, n: frame(GOAWAY, 0, 0, bytes(7) + b"\2" + SECRET.encode()),
}


@pytest.mark.promise("host:secret-filled-in-outside")
@pytest.mark.parametrize("what", ECHOES)
async def test_no_part_of_an_http2_answer_brings_a_secret_back(world: World, what: str) -> None:
    server = served(world, ECHOES[what])
    secret = {"header": "X-Api-Key", "value": "{KEY}"}
    async with world.call("https://api.example.com", secrets={"KEY": SECRET}.__getitem__) as call:
        call.update_policy(policy({"host": "api.example.com", "inspect": True, "secret": secret}))
        async with h2_child(call) as child:
            await ask(child, 1, "/")
            await child.until(lambda found: found.stream == 1 and bool(found.flags & END_STREAM))
        assert child.frames and SECRET not in repr((child.heads, child.bodies, call.rows))
    assert {seen.header("x-api-key") for seen in server.seen} == {SECRET}
    assert SECRET not in repr(world.journal.events)


async def test_a_secret_is_never_put_into_the_table_that_compresses_heads(world: World) -> None:
    """Never indexed, so that a guess beside it cannot be told from its size (RFC 7541 section 7.1)."""
    never: list[bool] = []

    def answer(seen: Seen, side: H2Side, stream: int) -> Reply:
        table = [name for name, _ in side.h2.decoder.header_table.dynamic_entries]
        never.append(not {b"x-api-key", b"cookie"} & set(table) and b"x-plain" in table)
        return Reply(200)

    server = world.stack.enter_context(H2Server(world, answer))
    world.ports[443] = server  # type: ignore[assignment]
    world.name({"*": [PUBLIC]}, ttl=60)
    secret = {"header": "X-Api-Key", "value": "{KEY}"}
    async with world.call("https://api.example.com", secrets={"KEY": SECRET}.__getitem__) as call:
        call.update_policy(policy({"host": "api.example.com", "inspect": True, "secret": secret}))
        async with h2_child(call) as child:
            await child.send(child.head(1, [*GET, ("cookie", "a=1"), ("x-plain", "b")]))
            await child.answer(1)
    assert never == [True]


async def test_a_host_with_few_streams_or_a_shut_window_is_served_by_more_or_cut(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_h2_stream, "STALL", 0.5)
    monkeypatch.setattr(_forward, "_EARLY", 0.1)

    def answer(seen: Seen, side: H2Side, stream: int) -> Reply | None:
        if seen.target == "/hold":
            return None
        if seen.target == "/few":
            side.sock.sendall(frame(SETTINGS, 0, 0, struct.pack("!HIHI", 3, 1, 4, 0)))
        return Reply(200)

    server = world.stack.enter_context(H2Server(world, answer))
    world.ports[443] = server  # type: ignore[assignment]
    world.name({"*": [PUBLIC]}, ttl=60)
    async with world.call("https://api.example.com +inspect") as call:
        async with h2_child(call) as child:
            assert (await ask(child, 1, "/few"))[":status"] == "200"
            await child.send(child.head(3, [*GET[:3], (":path", "/hold")]))
            assert (await ask(child, 5, "/more"))[":status"] == "200"
            assert server.connections == 2  # one stream at once is what the first one takes
        async with h2_child(call) as child:
            assert (await ask(child, 1, "/few"))[":status"] == "200"
            post = [(":method", "POST"), *GET[1:3], (":path", "/up")]
            await child.send(child.head(3, post, end=False), data(3, bytes(100)))
            assert (await child.answer(3))[":status"] == "502"


@pytest.mark.promise("broker:http2-streams-apart")
@pytest.mark.parametrize(
    "wrong",
    [
        lambda side, n: head(side, n, OK) + data(n, b"x", end=False) + head(side, n, [("x-a", "b")]),
        lambda side, n: whole(side, n, [(":status", "103")]),
        lambda side, n: whole(side, n, [*OK, ("content-length", "1"), ("content-length", "2")]),
        lambda side, n: head(side, n, [*OK, ("content-length", "1")]) + data(n, b"more"),
    ],
    ids=["trailers that do not end it", "an interim end", "two lengths", "over its length"],
)
async def test_an_answer_that_breaks_the_protocol_leaves_the_other_streams_of_its_host(
    world: World, wrong: Hostile
) -> None:
    held: list[int] = []

    def answer(seen: Seen, side: H2Side, stream: int) -> Reply | None:
        if seen.target == "/hold":
            held.append(stream)
            return None
        if seen.target == "/fine":
            return Reply(200)
        side.sock.sendall(wrong(side, stream) + whole(side, held[0], OK))
        return None

    server = world.stack.enter_context(H2Server(world, answer))
    world.ports[443] = server  # type: ignore[assignment]
    world.name({"*": [PUBLIC]}, ttl=60)
    async with world.call("https://api.example.com +inspect") as call:
        async with h2_child(call) as child:
            await child.send(child.head(1, [*GET[:3], (":path", "/hold")]))
            told = await ask(child, 3, "/wrong")
            assert told.get(":status") == "502" or "reset" in told
            assert (await child.answer(1))[":status"] == "200"
            assert (await ask(child, 5, "/fine"))[":status"] == "200"
    assert server.connections == 1


async def test_a_stream_that_waits_for_a_place_takes_the_room_that_another_leaves(world: World) -> None:
    held: list[tuple[H2Side, int]] = []

    def answer(seen: Seen, side: H2Side, stream: int) -> Reply | None:
        if seen.target == "/few":
            side.sock.sendall(frame(SETTINGS, 0, 0, struct.pack("!HI", 3, 1)))
        if seen.target == "/hold":
            held.append((side, stream))
            side.sock.sendall(head(side, stream, OK))
            return None
        return Reply(200, b"fine")

    server = world.stack.enter_context(H2Server(world, answer))
    world.ports[443] = server  # type: ignore[assignment]
    world.name({"*": [PUBLIC]}, ttl=60)
    async with world.call("https://api.example.com +inspect") as call:
        call.broker.places = Places(1)
        async with h2_child(call) as child:
            assert (await ask(child, 1, "/few"))[":status"] == "200"
            await child.send(child.head(3, [*GET[:3], (":path", "/hold")]))
            await child.until(lambda found: found.stream == 3)
            await child.send(child.head(5))  # no room, and no place for a second connection
            side, stream = held[0]
            side.sock.sendall(data(stream, b"over"))
            assert (await child.answer(5))[":status"] == "200"
    assert server.connections == 1


@pytest.mark.parametrize("most", [4, 1000])
async def test_streams_take_no_more_connections_than_there_are_places(world: World, most: int) -> None:
    """Each stream towards a host of HTTP/1.1 needs a connection of its own, and a child may have many."""
    together = threading.Barrier(6)
    peak = active = 0
    lock = threading.Lock()

    def answer(seen: Seen) -> Reply:
        nonlocal peak, active
        with lock:
            active += 1
            peak = max(peak, active)
        if most == 1000:
            together.wait(15)  # control: passes only when six are here at once
        with lock:
            active -= 1
        return Reply(200)

    world.serve(443, answer, tls=True)
    world.name({"*": [PUBLIC]}, ttl=60)
    async with world.call("https://api.example.com +inspect") as call:
        call.broker.places = Places(most)
        async with h2_child(call) as child:
            await child.send(*(child.head(stream) for stream in range(1, 25, 2)))
            for stream in range(1, 25, 2):
                assert (await child.answer(stream))[":status"] == "200"
        assert call.broker.places.taken == 0
    assert peak >= 6 if most == 1000 else peak <= 3
