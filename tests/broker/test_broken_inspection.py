"""What a hostile review tried on inspecting mode, HTTP/1.1 and HTTP/2 side by side: requests that mean more
than they say, answers that say more than they may.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import httpcore
import pytest

from fumehood.broker import (
    BrokerCall,
    EgressRefused,
    EgressRequest,
    FetchRequest,
    PinnedBackend,
    _websocket,
    parse_url,
)
from fumehood.broker._child import ChildSocket
from fumehood.broker._http_door import Place, serve_http
from fumehood.testing.http import Reply, Seen
from tests.broker.clients import RawServer, until
from tests.broker.h2_peers import DATA, GET, frame, h2_child
from tests.broker.world import PUBLIC, World, policy

pytestmark = pytest.mark.anyio
SECRET = "s3cret-value"
HOST = "Host: api.example.com\r\n"
RULE = {
    "host": "api.example.com",
    "paths": ["/v1/"],
    "inspect": True,
    "secret": {"header": "X-Api-Key", "value": "{KEY}"},
}


@asynccontextmanager
async def guarded(world: World, *rules: object) -> AsyncIterator[BrokerCall]:
    """A call whose entry has a path and a secret."""
    world.name({"*": [PUBLIC]}, ttl=60)
    async with world.call("https://api.example.com", secrets={"KEY": SECRET}.__getitem__) as call:
        call.update_policy(policy(*(rules or (RULE,))))  # type: ignore[arg-type]
        yield call


async def _some(sock: socket.socket) -> bytes:
    try:
        return await asyncio.get_running_loop().sock_recv(sock, 65536)
    except ConnectionResetError:
        return b""


async def say(call: BrokerCall, text: str, *, more: str = "") -> str:
    """What a connection that serves HTTP/1.1 answers to `text`, up to its end or to quiet."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    place = Place("transparent", parse_url("https://api.example.com/"))
    task = asyncio.ensure_future(serve_http(call, ChildSocket(ours), place))
    task.add_done_callback(lambda _: ours.close())
    loop, heard = asyncio.get_running_loop(), b""
    try:
        with anyio.fail_after(20):
            await loop.sock_sendall(theirs, text.encode("latin-1"))
            if not more:
                theirs.shutdown(socket.SHUT_WR)
            while data := await _some(theirs):
                heard += data
                if more:
                    with suppress(OSError):
                        await loop.sock_sendall(theirs, more.encode("latin-1"))
            await task
    finally:
        theirs.close()
    return heard.decode("latin-1")


MEANT = (
    ("POST", "X-HTTP-Method-Override: DELETE", "method"),
    ("POST", "X-Method-Override: delete", "method"),
    ("POST", "X_HTTP_Method: DELETE", "method"),
    ("POST", "X-HTTP-Method-Override: GET", None),
    ("GET", "X-Original-URL: /v2/admin", "path"),
    ("GET", "X-Rewrite-URL: https://api.example.com/v2", "path"),
    ("GET", "X-Rewrite-URL: /v1/%2e%2e/v2", "path"),
    ("GET", "X-Override-URL: https://other.example.com/v1/", "malformed"),
    ("GET", "X-Original-URL: /v1/deeper?q=1", None),
    ("GET", "X-Original: /v2", None),
    ("TRACE", "X-A: b", "method"),
)


@pytest.mark.promise("broker:no-rule-past-an-override")
@pytest.mark.parametrize(("method", "line", "reason"), MEANT)
async def test_what_a_server_may_take_a_request_for_has_to_be_allowed_too(
    world: World, method: str, line: str, reason: str | None
) -> None:
    server = world.serve(443, tls=True)
    rule = {**RULE, "methods": ["GET", "POST"] if method != "TRACE" else ["GET", "TRACE"]}
    name, _, value = line.partition(": ")
    async with guarded(world, rule) as call:
        head = f"{method} /v1/ HTTP/1.1\r\n{HOST}{line}\r\nConnection: close\r\n\r\n"
        one = await say(call, head)
        async with h2_child(call) as child:
            fields = [(":method", method), *GET[1:3], (":path", "/v1/"), (name.lower(), value)]
            await child.send(child.head(1, fields))
            two = await child.answer(1)
        three = None
        if method != "TRACE":  # ctx.fetch never sends it
            try:
                await call.fetch(FetchRequest(method, "https://api.example.com/v1/", ((name, value),)))
            except EgressRefused as refused:
                three = refused.reason
    if reason is None:
        assert one.startswith("HTTP/1.1 200") and two[":status"] == "200" and three is None
        assert len(server.seen) == 3
    else:
        told = f"EGRESS_DENIED {reason}"
        assert told in one.split("\r\n")[0] and two["x-proxy-error"] == told
        assert three == (reason if method != "TRACE" else None)
        assert server.seen == []


@pytest.mark.parametrize(
    "line", ["Content_Length: 3", "transfer_encoding: chunked", "HOST_: x", "Proxy_Authorization: x"]
)
async def test_a_field_that_some_servers_read_as_framing_goes_nowhere(world: World, line: str) -> None:
    server = world.serve(443, tls=True)
    name, _, value = line.partition(": ")
    fine = name == "HOST_"  # control: reads like nothing else
    async with guarded(world) as call:
        one = await say(call, f"POST /v1/ HTTP/1.1\r\n{HOST}{line}\r\nConnection: close\r\n\r\n")
        async with h2_child(call) as child:
            await child.send(child.head(1, [*GET[:3], (":path", "/v1/"), (name.lower(), value)]))
            two = await child.answer(1)
        if not fine:
            with pytest.raises(EgressRefused):
                await call.fetch(FetchRequest("GET", "https://api.example.com/v1/", ((name, value),)))
    assert one.startswith("HTTP/1.1 200" if fine else "HTTP/1.1 400")
    assert two[":status"] == ("200" if fine else "400")
    assert len(server.seen) == (2 if fine else 0)


@pytest.mark.promise("broker:secret-bound-to-origin")
async def test_the_header_of_a_secret_is_the_brokers_in_every_spelling_and_place(world: World) -> None:
    server = world.serve(443, tls=True)
    async with guarded(world) as call:
        chunked = f"POST /v1/ HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\nConnection: close\r\n"
        for extra, last in (
            ("X_Api_Key: mine\r\n", ""),
            ("", "X-Api-Key: mine\r\n"),
            ("", "X_API_KEY: mine\r\n"),
        ):
            text = f"{chunked}{extra}\r\n3\r\nabc\r\n0\r\n{last}\r\n"
            assert (await say(call, text)).startswith("HTTP/1.1 200"), text
        for both in ("X-Api-Key: a\r\nX_Api_Key: b\r\n", "X_API_KEY: a\r\nx-api-key: b\r\n"):
            told = await say(call, f"GET /v1/ HTTP/1.1\r\n{HOST}{both}\r\n")
            assert "malformed" in told.split("\r\n")[0]
        async with h2_child(call) as child:
            post = [(":method", "POST"), *GET[1:3], (":path", "/v1/"), ("x_api_key", "mine")]
            body = frame(DATA, 0, 1, b"abc")
            await child.send(child.head(1, post, end=False), body, child.head(1, [("x-api-key", "mine")]))
            assert (await child.answer(1))[":status"] == "200"
    assert "mine" not in repr(server.seen)
    assert [seen.header("x-api-key") for seen in server.seen] == [SECRET] * 4


RAW = {
    "a length that Connection names": b"Connection: content-length\r\nContent-Length: 2\r\n\r\nhi",
    "chunks": b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    "frames among the trailers": (
        b"Transfer-Encoding: chunked\r\n\r\n2;s3cret-value\r\nhi\r\n0\r\nContent-Length: 9\r\nX-Sum: 1\r\n"
        b"Transfer-Encoding: chunked\r\nSet-Cookie: a=b\r\nConnection: x\r\nX-T: s3cret-value\r\n\r\n"
    ),
    "an end that is the close": b"\r\nhi",
    "fields of the connection": (
        b"Connection: x-a\r\nX-A: b\r\nUpgrade: h2\r\nKeep-Alive: 5\r\nContent-Length: 2\r\n\r\nhi"
    ),
    "early hints before": b"Content-Length: 2\r\n\r\nhi",
}
OK, TWO = b"HTTP/1.1 200 OK\r\n", b"Content-Length: 2\r\n"
HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: s3cret-value\r\n\r\n"


@pytest.mark.promise("host:secret-filled-in-outside")
@pytest.mark.parametrize("what", RAW)
async def test_an_answer_is_framed_anew_and_another_one_may_follow(world: World, what: str) -> None:
    raw = (HINTS if what == "early hints before" else b"") + OK + RAW[what]

    def answer(seen: Seen) -> Reply | bytes:
        return Reply(200, b"next") if seen.path == "/v1/next" else raw

    world.serve(443, answer, tls=True)
    async with guarded(world) as call:
        one = f"GET /v1/ HTTP/1.1\r\n{HOST}\r\n"
        following = f"GET /v1/next HTTP/1.1\r\n{HOST}Connection: close\r\n\r\n"
        heard = await say(call, one + following)
        async with h2_child(call) as child:
            for stream, path in ((1, "/v1/"), (3, "/v1/next")):
                await child.send(child.head(stream, [*GET[:3], (":path", path)]))
                assert (await child.answer(stream))[":status"] == "200"
    first, _, rest = heard.partition("HTTP/1.1 200 OK\r\nContent-Length: 4")
    assert rest.endswith("\r\n\r\nnext") and "hi" in first, heard
    assert child.bodies == {1: b"hi", 3: b"next"}
    shown = (first + repr(child.heads)).lower()
    for word in (SECRET, "set-cookie", "keep-alive", "upgrade", "x-a", "content-length: 9", "103"):
        assert word not in shown, word
    assert ("x-sum" in shown) == (what == "frames among the trailers")


BROKEN = {
    "a bare CR": OK + TWO + b"X: a\rSet-Cookie: b\r\n\r\nhi",
    "a NUL": OK + TWO + b"X: a\0b\r\n\r\nhi",
    "both lengths": OK + TWO + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    "two codings": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    "two lengths": OK + TWO + b"Content-Length: 3\r\n\r\nhi",
    "a body of 304": b"HTTP/1.1 304 No\r\n" + TWO + b"\r\nhi",
    "a body of 204": b"HTTP/1.1 204 No\r\n" + TWO + b"\r\nhi",
    "two answers": (OK + TWO + b"\r\nhi") * 2,
    "a switch nobody asked for": b"HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhi",
    "a pseudo-header": OK + TWO + b":status: 404\r\n\r\nhi",
    "a blank in a name": OK + TWO + b"X A: b\r\n\r\nhi",
}


@pytest.mark.parametrize("what", BROKEN)
async def test_an_answer_with_two_readings_is_none(world: World, what: str) -> None:
    world.serve(443, lambda seen: BROKEN[what], tls=True)
    async with guarded(world) as call:
        one = await say(call, f"GET /v1/ HTTP/1.1\r\n{HOST}\r\n")
        async with h2_child(call) as child:
            await child.send(child.head(1, [*GET[:3], (":path", "/v1/")]))
            two = await child.answer(1)
    assert one.startswith("HTTP/1.1 502 EGRESS_FAILED upstream") and "Set-Cookie" not in one
    assert two[":status"] == "502" and "set-cookie" not in two


async def test_a_head_has_no_body_even_when_the_host_sends_one(world: World) -> None:
    world.serve(443, lambda seen: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", tls=True)
    async with guarded(world) as call:
        one = await say(call, f"HEAD /v1/ HTTP/1.1\r\n{HOST}\r\n")
        world.ports[443].answer = lambda seen: b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
        two = await say(call, f"HEAD /v1/ HTTP/1.1\r\n{HOST}\r\n")
    assert one.startswith("HTTP/1.1 200 OK")
    assert two.startswith("HTTP/1.1 502") and "hi" not in two.partition("\r\n\r\n")[2][:2]


SMUGGLED = {
    "CL and TE": "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v2 HTTP/1.1\r\n\r\n",
    "TE in capitals": "Transfer-Encoding: CHUNKED\r\n\r\n0\r\n\r\n",
    "TE after a vertical tab": "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "TE twice": "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "CL twice": "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "CL with a zero": "Content-Length: 03\r\n\r\nabc",
    "a second Host": f"{HOST}\r\n",
    "a folded line": "X-A: b\r\n Transfer-Encoding: chunked\r\n\r\n",
    "a bare LF": "X-A: b\nTransfer-Encoding: chunked\r\n\r\n",
    "a bare CR": "X-A: b\rTransfer-Encoding: chunked\r\n\r\n",
    "a blank before the colon": "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("what", SMUGGLED)
async def test_no_request_inside_a_request_reaches_the_host(world: World, what: str) -> None:
    server = world.serve(443, tls=True)
    async with guarded(world) as call:
        told = await say(call, f"POST /v1/ HTTP/1.1\r\n{HOST}{SMUGGLED[what]}")
        control = await say(call, f"POST /v1/ HTTP/1.1\r\n{HOST}Content-Length: 3\r\n\r\nabc")
    assert told.startswith("HTTP/1.1 400 EGRESS_DENIED malformed")
    assert control.startswith("HTTP/1.1 200") and [seen.target for seen in server.seen] == ["/v1/"]


@pytest.mark.parametrize(
    "target",
    [
        "http://api.example.com/v1/",
        "https://other.example.com/v1/",
        "https://x@api.example.com/v1/",
        "//x/v1/",
    ],
)
async def test_a_whole_url_inside_tls_names_the_connections_own_origin(world: World, target: str) -> None:
    server = world.serve(443, tls=True)
    async with guarded(world) as call:
        told = await say(call, f"GET {target} HTTP/1.1\r\n{HOST}\r\n")
        control = await say(call, f"GET https://api.example.com/v1/ HTTP/1.1\r\n{HOST}\r\n")
    assert told.split(" ")[1] in ("400", "403") and control.startswith("HTTP/1.1 200")
    assert [seen.target for seen in server.seen] == ["/v1/"]


async def test_a_kept_connection_that_the_host_closed_is_no_error_of_a_request_that_may_be_repeated(
    world: World,
) -> None:
    """Hosts close idle connections; a request that meets the close is sent anew, unless it changes things."""

    def answer(seen: Seen) -> Reply | bytes:
        return OK + TWO + b"\r\nhi"  # and the connection ends without a word

    server = world.serve(443, answer, tls=True)
    async with guarded(world) as call:
        heard = await say(call, f"GET /v1/ HTTP/1.1\r\n{HOST}\r\n" * 5)
        assert heard.count("HTTP/1.1 200 OK") == 5
        heard = await say(call, f"POST /v1/ HTTP/1.1\r\n{HOST}\r\n" * 3)
        assert heard.count("HTTP/1.1 200 OK") == 3
    assert [seen.method for seen in server.seen] == ["GET"] * 5 + ["POST"] * 3
    assert world.journal.kinds().count("EGRESS_ALLOWED") == 8


@pytest.mark.parametrize("early", [False, True])
async def test_a_body_over_its_cap_ends_the_exchange_whether_or_not_the_host_answers_first(
    world: World, early: bool
) -> None:
    """The host waits for the whole body, or answers at its start and goes on."""

    def talk(connection: socket.socket) -> None:
        with world.authority.context("api.example.com").wrap_socket(connection, server_side=True) as tls:
            if early:
                tls.recv(10)
                tls.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegun")
            while tls.recv(65536):
                pass

    world.ports[443] = world.stack.enter_context(RawServer(talk))  # type: ignore[assignment]
    rule = {**RULE, "max_request": 1000}
    head = f"POST /v1/ HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n10\r\n{'x' * 16}\r\n"
    more = f"400\r\n{'y' * 1024}\r\n"
    async with guarded(world, rule) as call:
        told = await say(call, head if early else head + more * 2, more=more * 2 if early else "")
        assert [row["reason"] for row in call.rows] == ["budget-bytes"]
    assert told.startswith("HTTP/1.1 200" if early else "HTTP/1.1 413 EGRESS_DENIED budget-bytes"), told


async def test_writing_to_a_host_gives_others_a_turn_and_hears_that_it_left(world: World) -> None:
    """A closed transport takes bytes without a word, and a host that takes all kept the loop."""
    left = threading.Event()

    def talk(connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 21)
        left.wait(15)

    world.ports[443] = world.stack.enter_context(RawServer(talk))  # type: ignore[assignment]
    world.name({"*": [PUBLIC]}, ttl=60)
    async with world.call("https://api.example.com") as call:
        request = EgressRequest(parse_url("https://api.example.com/"), "GET")
        permit = await call.authorize(request)
        stream = await PinnedBackend(call.broker.dialer, permit.decision).connect_tcp("api.example.com", 443)
        turns = 0

        def turn() -> None:
            nonlocal turns
            turns += 1
            asyncio.get_running_loop().call_soon(turn) if turns < 1000 else None

        asyncio.get_running_loop().call_soon(turn)
        for _ in range(18):
            await stream.write(bytes(16 * 1024))
        assert turns >= 1
        left.set()
        with pytest.raises(httpcore.ReadError):
            while await stream.read(1000):
                pass
            raise httpcore.ReadError("an orderly end")
        with anyio.fail_after(15), pytest.raises(httpcore.WriteError):
            while True:
                await stream.write(b"more")
                await asyncio.sleep(0)
        await stream.aclose()


@pytest.mark.promise("host:secret-filled-in-outside")
async def test_frames_of_a_websocket_bring_no_secret_back_whole_split_or_compressed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host echoes the secret in one frame, in two writes, and deflated when the client offered that."""
    monkeypatch.setattr(_websocket, "_PAUSE", 60)
    heads: list[bytes] = []

    def talk(connection: socket.socket) -> None:
        with world.authority.context("api.example.com").wrap_socket(connection, server_side=True) as tls:
            heads.append(until(tls, b"\r\n\r\n"))
            tls.sendall(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
            )
            tls.sendall(b"<" + SECRET.encode() + b">")
            for half in (b"<" + SECRET[:5].encode(), SECRET[5:].encode() + b">", b"ends in s3"):
                tls.sendall(half)
                until(tls, b"!")  # what came so far has reached the child, but for what is held back

    world.ports[443] = world.stack.enter_context(RawServer(talk))  # type: ignore[assignment]
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
    offer = "Sec-WebSocket-Extensions: permessage-deflate\r\nX-Kept: 1\r\n"
    async with guarded(world, {**RULE, "websocket": True}) as call:
        heard = await say(call, f"GET /v1/ HTTP/1.1\r\n{HOST}{upgrade}{offer}\r\n", more="!")
    assert SECRET not in heard and heard.endswith(f"<{'*' * 12}><{'*' * 12}>ends in s3"), heard
    assert b"x-kept" in heads[0].lower() and b"extensions" not in heads[0].lower()


async def test_what_only_looks_like_the_start_of_a_secret_is_not_waited_for(world: World) -> None:
    def talk(connection: socket.socket) -> None:
        with world.authority.context("api.example.com").wrap_socket(connection, server_side=True) as tls:
            until(tls, b"\r\n\r\n")
            tls.sendall(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
            )
            until(tls, b"!")
            tls.sendall(b"ends in s3")
            until(tls, b"!!")  # one for "ends in", one for the rest

    world.ports[443] = world.stack.enter_context(RawServer(talk))  # type: ignore[assignment]
    upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n"
    async with guarded(world, {**RULE, "websocket": True}) as call:
        heard = await say(call, f"GET /v1/ HTTP/1.1\r\n{HOST}{upgrade}\r\n", more="!")
    assert heard.endswith("ends in s3"), heard
