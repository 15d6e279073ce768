"""The transparent door in a real network namespace:

names, literals, server names, protocols, and what a refused client sees.
"""

from __future__ import annotations

import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest

from fumehood.broker import BrokerCall, NetSockets
from tests.broker import netns
from tests.broker.clients import RawServer
from tests.broker.netns import Namespace
from tests.broker.world import PUBLIC, World, policy

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def caged(
    world: World,
    *rules: str,
    ports: Sequence[int] = (443, 80, 22),
    routes: Sequence[tuple[str, int]] = (),
    early: str = "",
    mode: str = "enforce",
    watched: bool = True,
    deny: Sequence[str] = (),
) -> AsyncIterator[tuple[BrokerCall, Namespace]]:
    """A call whose child sits in its own network namespace."""
    namespace = await anyio.to_thread.run_sync(
        lambda: netns.enter(ports, trust=world.trust, routes=routes, early=early)
    )
    try:
        async with world.call(*rules, mode=mode, deny=tuple(deny)) as call:
            watches = namespace.watches if watched else ()
            await call.attach(
                NetSockets(namespace.dns_udp, namespace.dns_tcp, namespace.tcp, namespace.proxy, watches)
            )
            yield call, namespace
    finally:
        await anyio.to_thread.run_sync(namespace.close)


@pytest.mark.promise("broker:server-name-equals-decision")
async def test_tls_for_another_name_than_was_decided_ends_in_an_alert(world: World) -> None:
    server = world.serve(443, tls=True)
    world.name({"*": [PUBLIC]})
    async with caged(world, "https://api.example.com", "https://other.example.com") as (call, namespace):
        done = await namespace.run(
            "curl",
            "-sS",
            "--connect-to",
            "api.example.com:443:other.example.com:443",
            "https://api.example.com/",
        )
        assert done.code == 35 and "access denied" in done.err
        assert call.rows[0]["reason"] == "server-name"
        plain = await namespace.python(
            "import socket; s=socket.create_connection(('api.example.com',443)); s.sendall(b'GET / "
            "HTTP/1.1\\r\\n\\r\\n'); print(s.recv(999))"
        )
        assert "403 EGRESS_DENIED scheme" in plain.out
    assert server.connections == 0


async def test_a_refused_request_over_plain_http_is_a_403_with_the_reason(world: World) -> None:
    world.serve(80)
    world.name({"*": [PUBLIC], "inside.example.com": ["10.0.0.1"]})
    async with caged(world, "GET http://api.example.com/v1/", "http://inside.example.com") as (
        call,
        namespace,
    ):
        cases = [
            (("http://api.example.com/v2",), 403, "path"),
            (("-X", "DELETE", "http://api.example.com/v1/x"), 403, "method"),
            (("-H", "Host: evil.test", "http://api.example.com/v1/x"), 400, "malformed"),
            (("--path-as-is", "http://api.example.com/v1/../x"), 403, "path"),
            (("http://inside.example.com/",), 403, "not-public"),
        ]
        for argv, status, reason in cases:
            done = await namespace.run("curl", "-sS", "-i", *argv)
            assert done.out.startswith(f"HTTP/1.1 {status} EGRESS_DENIED {reason}"), done
            assert json.loads(done.out.split("\r\n\r\n")[1])["reason"] == reason
        fine = await namespace.run("curl", "-sS", "http://api.example.com/v1/x")
        assert json.loads(fine.out)["target"] == "/v1/x"
        assert [row["reason"] for row in call.rows] == [
            "path",
            "method",
            "malformed",
            "path",
            "not-public",
            None,
        ]
        assert (call.rows[2]["host"], call.rows[2]["port"]) == ("api.example.com", 80)
        data = world.journal.events[2]["data"]  # where it came on, and what it said
        assert (data["host"], data["path"], data["text"]) == ("api.example.com", None, "/v1/x")


async def test_each_message_on_a_kept_connection_is_judged(world: World) -> None:
    server = world.serve(80)
    world.name({"*": [PUBLIC]})
    code = """
import http.client
c = http.client.HTTPConnection("api.example.com"); out = []
for method, path in (("GET", "/a"), ("POST", "/b"), ("GET", "/c")):
    c.request(method, path, b"body" if method == "POST" else None)
    r = c.getresponse(); r.read(); out.append(r.status)
print(out)
"""
    async with caged(world, "GET http://api.example.com") as (call, namespace):
        done = await namespace.python(code)
    assert done.out.strip() == "[200, 403, 200]", done  # the client opens a new connection after the refusal
    assert [seen.target for seen in server.seen] == ["/a", "/c"]


@pytest.mark.promise("broker:literals-need-their-own-entry")
async def test_a_literal_address_is_decided_as_a_literal(world: World) -> None:
    world.serve(443, tls=True)
    world.serve(80)
    world.name({"*": [PUBLIC]})
    everywhere = (("93.184.216.0", 24), ("169.254.0.0", 16))
    async with caged(world, "http://*", "https://*", "http://93.184.216.35", routes=everywhere) as (
        call,
        namespace,
    ):
        tls = await namespace.run("curl", "-sS", f"https://{PUBLIC}/")
        assert tls.code == 35 and "access denied" in tls.err
        metadata = await namespace.run("curl", "-sS", "-i", "http://169.254.169.254/latest/")
        assert "403 EGRESS_DENIED metadata" in metadata.out
        listed = await namespace.run("curl", "-sS", "http://93.184.216.35/")
        assert json.loads(listed.out)["headers"]["host"] == "93.184.216.35"
        stale = await namespace.run("curl", "-sS", "-i", "http://198.18.77.77/")
        assert "400 EGRESS_DENIED malformed" in stale.out
        assert [row["reason"] for row in call.rows] == ["not-listed", "metadata", None, "malformed"]


async def test_any_protocol_passes_on_a_port_that_says_so_with_half_close_both_ways(world: World) -> None:
    def backwards(connection: socket.socket) -> None:
        """Reads to the end, then answers: only half-close makes that work."""
        data = b""
        while more := connection.recv(65536):
            data += more
        connection.sendall(data[::-1])
        connection.shutdown(socket.SHUT_WR)

    def banner(connection: socket.socket) -> None:
        connection.sendall(b"220 ready\r\n")
        connection.sendall(connection.recv(100))

    world.ports[22] = world.stack.enter_context(RawServer(backwards))  # type: ignore[assignment]
    world.ports[80] = world.stack.enter_context(RawServer(banner))  # type: ignore[assignment]
    world.name({"*": [PUBLIC]})
    code = """
import socket
s = socket.create_connection(("git.example.com", 22)); s.sendall(b"abc" * 100000); s.shutdown(socket.SHUT_WR)
d = b""
while m := s.recv(65536): d += m
print(d == b"cba" * 100000)
s = socket.create_connection(("mail.example.com", 80))
print(s.recv(99)); s.sendall(b"QUIT"); print(s.recv(99))
"""
    async with caged(world, "tcp://git.example.com:22", "mail.example.com:80") as (call, namespace):
        done = await namespace.python(code)
        assert done.out.split("\n")[:3] == ["True", r"b'220 ready\r\n'", "b'QUIT'"], done
    closed = [event["data"] for event in world.journal.events if event["kind"] == "EGRESS_CLOSED"]
    assert (closed[0]["sent"], closed[0]["received"], closed[0]["reason"]) == (300000, 300000, None)


async def test_byte_and_time_budgets_end_a_tunnel(world: World) -> None:
    world.ports[22] = world.stack.enter_context(RawServer())  # type: ignore[assignment]
    world.name({"*": [PUBLIC]})
    code = """
import socket
s = socket.create_connection(("{}.example.com", 22)); n = 0
try:
    s.sendall(b"x" * {})
    while m := s.recv(65536): n += len(m)
except OSError: pass
print("ended")
"""
    policy = (
        "tcp://up.example.com:22 +max_request=1000",
        "tcp://down.example.com:22 +max_response=1000",
        "tcp://slow.example.com:22 +timeout=0.3",
    )
    async with caged(world, *policy) as (call, namespace):
        for name, size in (("up", 5000), ("down", 5000), ("slow", 5)):
            done = await namespace.python(code.format(name, size))
            assert done.out.strip() == "ended"
    assert [row["reason"] for row in call.rows] == ["budget-bytes", "budget-bytes", "budget-time"]


async def test_a_client_that_only_looks_whether_somebody_listens_is_refused_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fumehood.broker import _tunnel

    monkeypatch.setattr(_tunnel, "HELLO_TIMEOUT", 0.3)
    server = world.serve(443, tls=True)
    world.name({"*": [PUBLIC]})
    code = """
import socket
for how in ("close", "end", "reset"):
    s = socket.create_connection(("api.example.com", 443))
    if how == "reset": s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\\1\\0\\0\\0" + bytes(4))
    if how == "end": s.shutdown(socket.SHUT_WR); s.recv(1)
    s.close()
s = socket.create_connection(("127.0.0.1", 3128))
s.sendall(b"CONNECT api.example.com:443 HTTP/1.0\\r\\n\\r\\n"); s.recv(99); s.close()
s = socket.create_connection(("api.example.com", 443)); s.recv(1)  # the control: says nothing and stays
"""
    async with caged(world, "https://api.example.com") as (call, namespace):
        assert (await namespace.python(code)).code == 0
    assert [row["reason"] for row in call.rows] == [None] * 4 + ["budget-time"]
    closed = [event["data"] for event in world.journal.events if event["kind"] == "EGRESS_CLOSED"]
    assert sorted(str(data["reason"]) for data in closed) == ["None"] * 4 + ["budget-time"]
    assert server.connections == 0


@pytest.mark.promise("broker:no-network-outside-a-call")
async def test_a_connection_made_while_the_tool_was_imported_is_refused(world: World) -> None:
    server = world.serve(80)
    world.name({"*": [PUBLIC]})
    async with caged(world, "http://api.example.com", early="198.18.0.1:80") as (call, namespace):
        assert [row["reason"] for row in call.rows] == ["no-call"]
        assert (await namespace.run("curl", "-sS", "http://api.example.com/")).code == 0  # control
    assert len(server.seen) == 1


async def test_audit_mode_serves_what_is_unlisted_and_records_what_it_would_have_said(world: World) -> None:
    world.serve(443, tls=True)
    world.name({"*": [PUBLIC]})
    async with caged(world, mode="audit") as (call, namespace):
        done = await namespace.run("curl", "-sS", "https://anything.example.com/")
        assert done.code == 0
        assert (call.rows[0]["outcome"], call.rows[0]["would_deny"]) == ("allow", "not-listed")


async def test_a_refused_client_is_told_within_the_moment_it_speaks(world: World) -> None:
    world.name({"*": ["10.0.0.1"]})
    code = """
import socket
s = socket.create_connection(("api.example.com", 22)); s.settimeout(10)
try: print(s.recv(10))
except OSError as e: print("reset")
"""
    async with caged(world, "tcp://api.example.com:22") as (call, namespace):
        with anyio.fail_after(10):
            done = await namespace.python(code)
        assert done.out.strip() in ("b''", "reset")
        assert call.rows[0]["reason"] == "not-public"


async def test_a_deny_entry_for_a_method_leaves_the_others_where_the_inside_can_be_read(world: World) -> None:
    world.serve(80)
    world.name({"*": [PUBLIC]})
    async with caged(world, "http://api.example.com") as (call, namespace):
        call.update_policy(policy("http://api.example.com", deny=["POST http://api.example.com"]))
        assert (await namespace.run("curl", "-sS", "--fail", "http://api.example.com/")).code == 0
        refused = await namespace.run("curl", "-sS", "-i", "-d", "x", "http://api.example.com/")
        assert "403 EGRESS_DENIED denied-by-rule" in refused.out
