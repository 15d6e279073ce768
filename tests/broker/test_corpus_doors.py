"""The corpus rows of the proxy door, played byte by byte against the real door on loopback, and the rows
about what a tool may not do.
"""

from __future__ import annotations

import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import pytest

from fumehood.broker import BrokerCall, EgressRefused, FetchRequest, NetSockets
from tests.broker import netns
from tests.broker.clients import RawServer, connected, hello, read_all, tls_get, until
from tests.broker.test_verdict import EXACT_PURE, OTHER_FITTING
from tests.broker.world import PUBLIC, Row, World, corpus, rules

pytestmark = pytest.mark.anyio
SEQUENCES = {row.id: row for row in corpus("sequence", "env")}


@asynccontextmanager
async def proxy(world: World, *policy: str) -> AsyncIterator[tuple[BrokerCall, int]]:
    """A call with its proxy door on loopback."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    async with world.call(*policy) as call:
        await call.attach(NetSockets(proxy=listener))
        yield call, listener.getsockname()[1]


def play_connect(port: int, row: Row, world: World) -> tuple[int, bytes, bytes]:
    """Status of the CONNECT, its whole answer, and what the tunnel gave back."""
    first, *parts = (part.strip() for part in row.request.split("|"))
    version = "HTTP/1.0" if "HTTP/1.0" in first else "HTTP/1.1"
    target = first.removeprefix("CONNECT ").removesuffix(" HTTP/1.0").removesuffix(" HTTP/1.1")
    host = next((part.removeprefix("Host: ") for part in parts if part.startswith("Host: ")), None)
    lines = [f"CONNECT {target} {version}"]
    if host is not None or (version == "HTTP/1.1" and "no Host" not in row.request):
        lines.append(f"Host: {host or target}")
    with connected(port) as sock:
        sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
        head = until(sock, b"\r\n\r\n")
        status = int(head.split()[1])
        if status != 200:
            return status, head + read_all(sock), b""
        if "SSH-2.0" in row.request:
            sock.sendall(b"SSH-2.0-test\r\n")
            return status, head, until(sock, b"\n")
        named = re.search(r"SNI ([^ ,]+)", row.request)
        name = (
            named[1] if named and "without SNI" not in row.request and "no SNI" not in row.request else None
        )
        if row.expected == "allow" and "ECH" not in row.request and "segments" not in row.request:
            return status, head, tls_get(sock, world.trust, name or target.rpartition(":")[0].strip("[]"))
        data = hello(
            name, ech="ECH" in row.request, pad=1800, record=400 if "segments" in row.request else 16384
        )
        for at in range(0, len(data), 440 if "segments" in row.request else len(data)):
            sock.sendall(data[at : at + 440] if "segments" in row.request else data)
        sock.settimeout(5)
        return status, head, sock.recv(65536)


@pytest.mark.promise("broker:server-name-equals-decision")
@pytest.mark.parametrize("row", corpus("connect"), ids=lambda row: row.id)
async def test_each_connect_row_is_tunnelled_or_refused_with_its_reason(row: Row, world: World) -> None:
    raw = world.stack.enter_context(RawServer())
    bytewise = "ECH" in row.request or "segments" in row.request
    if bytewise or "SSH" in row.request:
        world.ports[443] = world.ports[22] = raw  # type: ignore[assignment]  # only its port is used
    else:
        world.serve(443, tls=True)
    dns = world.name(row.dns)
    with anyio.fail_after(20):
        async with proxy(world, *row.policy) as (call, port):
            status, head, inside = await anyio.to_thread.run_sync(play_connect, port, row, world)
            rows = list(call.rows)
    if row.expected == "allow":
        assert status == 200 and inside, head
        assert call.rows[0]["outcome"] == "allow" and call.hosts
        assert not bytewise or raw.received == inside, "the hello went on unchanged"
        return
    reason = rows[-1]["reason"]
    assert reason in OTHER_FITTING["connect"]
    assert EXACT_PURE.get(row.id) in (None, reason)
    if status == 200:
        assert reason == "server-name"
        assert inside == b"\x15\x03\x03\x00\x02\x02\x31", "the alert access_denied"
    else:
        assert f" EGRESS_DENIED {reason}\r\n".encode() in head and b"X-Proxy-Error: " in head
        assert status == (400 if reason == "malformed" else 403)
        assert dns.queries == []
    assert call.hosts == () and world.journal.dialled == []


@pytest.mark.parametrize("row", corpus("socks5"), ids=lambda row: row.id)
async def test_each_socks_row_is_tunnelled_or_refused(row: Row, world: World) -> None:
    world.serve(443, tls=True)
    dns = world.name(row.dns)

    def play(port: int) -> tuple[bytes, bytes]:
        with connected(port) as sock:
            sock.sendall(b"\x05\x01\x00")
            assert sock.recv(2) == b"\x05\x00"
            if "UDP" in row.request:
                sock.sendall(b"\x05\x03\x00\x01" + bytes(6))
                return sock.recv(10), b""
            found = re.search(r"atyp=(\w+) '?(.*?)'?:(\d+)", row.request)
            assert found is not None
            address = found[2].encode().decode("unicode_escape").encode("latin-1")
            head = (
                b"\x01" + socket.inet_aton(found[2])
                if found[1] == "ipv4"
                else b"\x03" + bytes([len(address)]) + address
            )
            sock.sendall(b"\x05\x01\x00" + head + int(found[3]).to_bytes(2, "big"))
            reply = sock.recv(10)
            if reply[1] != 0:
                return reply, b""
            return reply, tls_get(sock, world.trust, "api.example.com")

    async with proxy(world, *row.policy) as (call, port):
        reply, inside = await anyio.to_thread.run_sync(play, port)
    if row.expected == "allow":
        assert reply[1] == 0 and inside.startswith(b"HTTP/1.1 200")
    else:
        assert reply[1] == (7 if "UDP" in row.request else 2)
        assert call.rows[0]["reason"] in OTHER_FITTING["socks"]
        assert dns.queries == [] and world.journal.dialled == []


def play_bytes(port: int, text: str) -> list[int]:
    """The statuses that a proxy connection answers to these bytes."""
    filled = re.sub(r"<(\d+) KiB>", lambda found: "x" * int(found[1]) * 1024, text)
    before, waits, after = filled.partition("[100 Continue]")
    statuses = []
    with connected(port) as sock:
        sock.sendall(before.encode("latin-1"))
        if waits:
            assert until(sock, b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
            sock.sendall(after.encode("latin-1"))
        sock.shutdown(socket.SHUT_WR)
        answer = read_all(sock)
    statuses = [int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]
    return statuses


@pytest.mark.promise("broker:no-request-smuggling")
@pytest.mark.parametrize("row", corpus("proxy"), ids=lambda row: row.id)
async def test_each_proxy_row_is_answered_as_a_strict_proxy_does(row: Row, world: World) -> None:
    server = world.serve(80)
    world.name(row.dns)
    async with proxy(world, *row.policy) as (call, port):
        statuses = await anyio.to_thread.run_sync(play_bytes, port, row.request)
    if row.expected == "allow":
        assert statuses == [200] * row.request.count("HTTP/1.1\r\n")
        for seen in server.seen:
            names = [name for name, _ in seen.headers]
            assert names.count("host") == 1 and seen.header("host") == "api.example.com"
            assert not {"proxy-connection", "x-hop", "expect", "te"} & set(names)
        if row.id == "proxy-004":
            assert server.seen[0].body == b"abc"
        if row.id == "proxy-003":
            assert server.seen[0].body == b"abc"
        return
    last = call.rows[-1]
    assert last["reason"] in OTHER_FITTING["proxy"] and EXACT_PURE.get(row.id) in (None, last["reason"])
    expected = {"proxy-006": [200, 403], "proxy-032": [431], "proxy-029": [505]}
    assert statuses == expected.get(row.id, [403 if last["reason"] in ("scheme", "not-listed") else 400])
    assert [seen.target for seen in server.seen] == (["/a"] if row.id == "proxy-006" else [])


@pytest.mark.promise("broker:reload-ends-what-it-refuses")
async def test_a_policy_that_drops_an_entry_refuses_the_next_request_and_ends_open_tunnels(
    world: World,
) -> None:
    row = SEQUENCES["tenant-002"]
    world.serve(443, tls=True)
    world.name(row.dns, ttl=60)
    async with proxy(world, *row.policy, "tcp://api.example.com:22") as (call, port):
        raw = world.stack.enter_context(RawServer())
        world.ports[22] = raw  # type: ignore[assignment]
        assert (await call.fetch(FetchRequest("GET", "https://api.example.com/"))).status == 200

        def tunnel() -> bytes:
            with connected(port) as sock:
                sock.sendall(b"CONNECT api.example.com:22 HTTP/1.0\r\n\r\n")
                until(sock, b"\r\n\r\n")
                sock.sendall(b"x")
                assert sock.recv(1) == b"x"
                anyio.from_thread.run_sync(reload)
                return read_all(sock)

        def reload() -> None:
            assert (
                call.update_policy(replace(call.policy, allow=rules("https://other.example"), generation=1))
                == 1
            )

        assert await anyio.to_thread.run_sync(tunnel) == b""
        with pytest.raises(EgressRefused) as caught:
            await call.fetch(FetchRequest("GET", "https://api.example.com/"))
        assert caught.value.reason == "not-listed"
        assert [r["reason"] for r in call.rows] == [None, "policy-changed", "not-listed"]


@pytest.mark.promise("broker:no-way-around")
@pytest.mark.requirement("R025")
async def test_a_tool_that_ignores_proxy_and_dns_has_no_route(world: World) -> None:
    assert SEQUENCES["tenant-004"].expected == "deny"
    code = """
import socket
places = [("udp", ("93.184.216.34", 443)), ("udp", ("93.184.216.34", 53)), ("udp", ("8.8.8.8", 53))]
for kind, place in (*places, ("tcp", ("93.184.216.34", 443)), ("tcp", ("169.254.169.254", 80))):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
    try:
        s.connect(place); s.send(b"x"); print("out", kind, place)
    except OSError as e:
        print(e.errno)
"""
    namespace = netns.enter([443])
    try:
        done = await namespace.python(code)
    finally:
        namespace.close()
    assert done.out.split() == ["101"] * 5, "network is unreachable"


@pytest.mark.promise("broker:no-network-outside-a-call")
async def test_a_door_is_dead_once_its_call_has_ended_and_what_came_before_it_began_is_refused(
    world: World,
) -> None:
    assert SEQUENCES["tenant-005"].expected == "deny"
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    world.name({"api.example.com": [PUBLIC]})
    world.serve(80)
    with connected(port) as early:
        early.sendall(b"GET http://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n")
        async with world.call("http://api.example.com") as call:
            await call.attach(NetSockets(proxy=listener))
            assert await anyio.to_thread.run_sync(read_all, early) == b""
            assert [row["reason"] for row in call.rows] == ["no-call"]
            assert await anyio.to_thread.run_sync(
                play_bytes, port, "GET http://api.example.com/ HTTP/1.1\r\nHost: api.example.com\r\n\r\n"
            ) == [200]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
