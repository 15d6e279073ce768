"""What a hostile review broke in the doors, each with the client or tool that showed it."""

from __future__ import annotations

import gzip
import json
import socket
from pathlib import Path

import anyio
import pytest

from fumehood.broker import EgressRefused, FetchRequest
from fumehood.testing.http import Reply, Seen
from tests.broker.clients import RawServer, until
from tests.broker.test_inspect import trusting
from tests.broker.test_transparent import caged
from tests.broker.world import PUBLIC, World, policy

pytestmark = pytest.mark.anyio


async def test_an_inspected_connection_counts_once_against_the_budgets_of_its_entry(
    world: World, tmp_path: Path
) -> None:
    world.serve(443, lambda seen: Reply(200, b"counted once"), tls=True)
    world.name({"*": [PUBLIC]})
    rule = "https://api.example.com +inspect +rate=1/m +max_connections=1"
    async with caged(world, rule) as (call, namespace):
        trusting(namespace, call.broker.authority, tmp_path)
        first = await namespace.run("curl", "-sS", "-i", "--http1.1", "https://api.example.com/")
        second = await namespace.run("curl", "-sS", "-i", "--http1.1", "https://api.example.com/")
    assert first.out.startswith("HTTP/1.1 200 OK"), first
    assert second.out.startswith("HTTP/1.1 429 EGRESS_DENIED budget-rate"), second


def reflecting(seen: Seen) -> Reply:
    body = (seen.header("authorization") or "").encode()
    if "gzip" in (seen.header("accept-encoding") or ""):
        return Reply(200, gzip.compress(body), (("Content-Encoding", "gzip"),))
    return Reply(200, body)


async def test_a_secret_that_comes_back_compressed_is_masked_too(world: World, tmp_path: Path) -> None:
    world.serve(443, reflecting, tls=True)
    world.serve(80, reflecting)
    world.name({"*": [PUBLIC]})
    rules = [
        {
            "host": "api.example.com",
            "scheme": scheme,
            **more,
            "secret": {"header": "Authorization", "value": "Bearer {T}"},
        }
        for scheme, more in (("https", {"inspect": True}), ("http", {}))
    ]
    async with caged(world, "https://api.example.com") as (call, namespace):
        call.update_policy(policy(*rules))
        call.broker.secrets = {"T": "s3cret-value"}.__getitem__
        trusting(namespace, call.broker.authority, tmp_path)
        for url in ("https://api.example.com/", "http://api.example.com/"):
            done = await namespace.run("curl", "-sS", "--compressed", url)
            assert done.out == "Bearer ************", done


async def test_the_fetch_door_asks_for_no_coding_that_would_hide_a_secret(world: World) -> None:
    def answer(seen: Seen) -> Reply:
        asked = seen.header("accept-encoding") or ""
        body = (seen.header("authorization") or "").encode()
        return (
            Reply(200, body[::-1], (("Content-Encoding", "x-own"),)) if "x-own" in asked else Reply(200, body)
        )

    world.serve(80, answer)
    world.name({"*": [PUBLIC]})
    rule = {
        "host": "api.example.com",
        "scheme": "http",
        "secret": {"header": "Authorization", "value": "Bearer {T}"},
    }
    async with world.call(rule, secrets={"T": "s3cret-value"}.__getitem__) as call:
        reply = await call.fetch(
            FetchRequest("GET", "http://api.example.com/", (("Accept-Encoding", "x-own"),))
        )
    assert reply.body == b"Bearer [secret]"


async def test_methods_of_webdav_and_slow_request_lines_are_plain_http(world: World) -> None:
    server = world.serve(80, lambda seen: Reply(200, seen.method.encode()))
    world.name({"*": [PUBLIC]})
    slow = """
import socket, time
s = socket.create_connection(("api.example.com", 80))
for byte in b"GET / HTTP/1.1\\r\\nHost: api.example.com\\r\\nConnection: close\\r\\n\\r\\n":
    s.send(bytes([byte])); time.sleep(0.002)
print(s.makefile("rb").read().decode())
"""
    async with caged(world, "http://api.example.com", "api.example.com:8080") as (call, namespace):
        for method in ("PROPFIND", "MKCOL", "REPORT"):
            done = await namespace.run("curl", "-sS", "-X", method, "http://api.example.com/")
            assert done.out == method, done
        done = await namespace.python(slow)
        assert done.out.endswith("GET\n"), done
    assert [seen.method for seen in server.seen] == ["PROPFIND", "MKCOL", "REPORT", "GET"]


async def test_a_client_that_speaks_something_else_to_the_proxy_fails_at_once(world: World) -> None:
    world.name({"*": [PUBLIC]})
    async with caged(world, "https://api.example.com") as (call, namespace):
        with anyio.fail_after(5):
            socks4 = await namespace.run(
                "curl", "-sS", "--proxy", "socks4a://127.0.0.1:3128", "https://api.example.com/"
            )
            tls = await namespace.run(
                "curl",
                "-sS",
                "--proxy-insecure",
                "--proxy",
                "https://127.0.0.1:3128",
                "https://api.example.com/",
            )
        assert socks4.code and tls.code
        assert [row["reason"] for row in call.rows] == ["malformed", "malformed"]


async def test_a_socks_client_that_insists_on_a_password_is_served_and_its_words_are_kept_nowhere(
    world: World,
) -> None:
    """RFC 1929: who calls is known already, so any name and password will do."""
    world.serve(443, tls=True)
    world.name({"*": [PUBLIC]})
    code = """
import socket
def ask(greeting, *answers):
    s = socket.create_connection(("127.0.0.1", 3128)); s.sendall(greeting); got = [s.recv(9)]
    for sent in answers:
        s.sendall(sent); got.append(s.recv(10))
    return [answer.hex() for answer in got]
connect = b"\\5\\1\\0\\3\\x09evil.test\\1\\xbb"
print(ask(b"\\5\\1\\2", b"\\1\\7pass-me\\6sesame", connect))
print(ask(b"\\5\\1\\2", b"\\1\\0\\0", connect))
print(ask(b"\\5\\2\\1\\3"))
for odd in (b"\\4\\1\\0\\3", b"\\5\\1\\xff\\3"):  # RFC 1928 section 4: version 5, reserved 0
    print(ask(b"\\5\\1\\0", odd + b"\\x0fapi.example.com\\1\\xbb"))
"""
    async with caged(world, "https://api.example.com") as (call, namespace):
        for scheme in ("socks5h", "socks5"):
            done = await namespace.run(
                "curl",
                "-sS",
                "--proxy",
                f"{scheme}://pass-me:sesame@127.0.0.1:3128",
                "https://api.example.com/",
            )
            assert done.code == 0, done  # with the second one curl looks the name up by itself
        odd = await namespace.python(code)
        refused = "05020001000000000000"
        assert odd.out.splitlines() == [
            f"['0502', '0100', '{refused}']",
            f"['0502', '0100', '{refused}']",
            "['05ff']",
            f"['0500', '{refused}']",
            f"['0500', '{refused}']",
        ], odd
        assert [row["reason"] for row in call.rows] == [
            None,
            None,
            "not-listed",
            "not-listed",
            "malformed",
            "malformed",
            "malformed",
        ]
        assert call.hosts == ("api.example.com",)
    assert "sesame" not in json.dumps(world.journal.events) and "pass-me" not in json.dumps(
        world.journal.events
    )


async def test_the_first_bytes_of_a_tunnel_count_against_its_budget(world: World) -> None:
    with RawServer() as server:
        world.ports[22] = server  # type: ignore[assignment]  # a port is all that the dial map reads
        world.name({"*": [PUBLIC]})
        code = """
import socket
s = socket.create_connection(("api.example.com", 22))
s.sendall(b"x" * 5000)
s.settimeout(5)
try:
    print(s.recv(1))
except OSError as error:
    print(type(error).__name__)
"""
        async with caged(world, "api.example.com:22 +max_request=1000") as (call, namespace):
            done = await namespace.python(code)
            assert [row["reason"] for row in call.rows] == ["budget-bytes"], (done, call.rows)
        assert len(server.received) <= 1000


async def test_frames_after_an_upgrade_count_against_the_budgets(world: World) -> None:
    def serve(connection: socket.socket) -> None:
        until(connection, b"\r\n\r\n")
        connection.sendall(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
        )
        while data := connection.recv(65536):
            connection.sendall(data * 3)

    world.ports[80] = world.stack.enter_context(RawServer(serve))  # type: ignore[assignment]
    world.name({"*": [PUBLIC]})
    code = r"""
import socket
s = socket.create_connection(("api.example.com", 80))
s.sendall(b"GET / HTTP/1.1\r\nHost: api.example.com\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
f = s.makefile("rb")
while f.readline() != b"\r\n": pass
n = 0
try:
    for _ in range(100):
        s.sendall(b"x" * 100); got = f.read(300); n += len(got)
        if not got: break
except OSError: pass
print(n)
"""
    async with caged(world, "http://api.example.com +ws +max_response=2000") as (call, namespace):
        done = await namespace.python(code)
        assert done.out.strip() == "1800", done
        assert [row["reason"] for row in call.rows] == ["budget-bytes"]


async def test_another_protocol_on_an_http_port_is_answered_and_not_waited_out(world: World) -> None:
    server = world.serve(80)
    world.name({"*": [PUBLIC]})
    code = r"""
import socket
for port, host in ((80, "api.example.com"), (3128, "127.0.0.1")):
    rest = b" / HTTP/1.1\r\nHost: api.example.com\r\n\r\n"
    for first in (b"EHLO me\r\n", b"SSH-2.0-x\r\n", b"GET /\r\n", b"\r\nGET" + rest, b"get" + rest):
        s = socket.create_connection((host, port), timeout=5); s.sendall(first)
        print(s.makefile("rb").read()[:12])
"""
    async with caged(world, "http://api.example.com") as (call, namespace):
        done = await namespace.python(code)
        answers = done.out.split("\n")
        assert answers[2:5] == ["b'HTTP/1.1 400'"] * 3 and answers[5:10] == ["b'HTTP/1.1 400'"] * 5, done
        assert {row["reason"] for row in call.rows} == {"malformed", "scheme"}
    assert server.seen == []


SECRET = "s3cret-value"


def leaking(seen: Seen) -> Reply | bytes:
    """An upstream that repeats the secret wherever an answer has room for it."""
    value = seen.header("authorization") or ""
    match seen.path:
        case "/line":
            return f"HTTP/1.1 200 OK\r\nX {value}\r\n\r\n".encode()
        case "/status":
            return f"HTTP {value}\r\n\r\n".encode()
        case "/chunk":
            return f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz{value}\r\n".encode()
        case "/phrase":
            return f"HTTP/1.1 200 {value}\r\nContent-Length: 1\r\n\r\nx".encode()
        case "/name":
            return Reply(200, b"x", ((f"X-{SECRET}", "1"),))
        case "/query" | "/path":
            return Reply.redirect(f"https://api.example.com/{'?' if seen.path == '/query' else ''}{SECRET}")
        case "/blank":
            return Reply.redirect(f"https://api.example.com/{value}")
        case "/trailer":
            head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            return f"{head}1\r\nx\r\n0\r\n{SECRET}: {value}\r\n\r\n".encode()
    return Reply(200, b"control")


LEAKS = ("line", "status", "chunk", "phrase", "name", "query", "path", "blank", "trailer")


@pytest.mark.promise("host:secret-filled-in-outside")
async def test_no_part_of_an_answer_brings_a_secret_back_or_into_a_row(world: World, tmp_path: Path) -> None:
    server = world.serve(443, leaking, tls=True)
    world.name({"*": [PUBLIC]})
    rule = {
        "host": "api.example.com",
        "inspect": True,
        "secret": {"header": "Authorization", "value": "Bearer {T}"},
    }
    async with caged(world, "https://api.example.com") as (call, namespace):
        call.update_policy(policy(rule))
        call.broker.secrets = {"T": SECRET}.__getitem__
        trusting(namespace, call.broker.authority, tmp_path)
        for leak in LEAKS:
            done = await namespace.run("curl", "-sSi", f"https://api.example.com/{leak}")
            assert SECRET not in done.out + done.err, leak
            try:
                reply = await call.fetch(FetchRequest("GET", f"https://api.example.com/{leak}"))
                said = repr(reply)
            except EgressRefused as refused:
                said = f"{refused} {refused.decision}"
            assert SECRET not in said, leak
        control = await call.fetch(FetchRequest("GET", "https://api.example.com/"))
        assert control.body == b"control" and SECRET not in repr(call.rows)
    assert {seen.header("authorization") for seen in server.seen} == {f"Bearer {SECRET}"}
    assert SECRET not in repr(world.journal.events)
