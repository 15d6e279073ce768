"""The transparent door in a real network namespace:

names, literals, server names, protocols, and what a refused client sees.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest

from fumehood.broker import BrokerCall, NetSockets
from fumehood.broker._dns_message import AAAA, NXDOMAIN, A
from fumehood.broker._transparent import MAX_REFUSED_NAMES, TransparentDoor
from tests.broker import netns
from tests.broker.clients import RawServer
from tests.broker.netns import Namespace
from tests.broker.world import PUBLIC, Journal, World, policy

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


LOOK_UP = """
import json, socket, struct, sys
def ask(name, kind, tcp=False):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    head = b"\\x12\\x34\\x01\\x00\\0\\1\\0\\0\\0\\0\\0\\1"
    q = head + labels + b"\\0" + struct.pack("!HH", kind, 1) + b"\\0\\0\\x29\\x10" + bytes(7)
    if tcp:
        s = socket.create_connection(("127.0.0.1", 53)); s.sendall(struct.pack("!H", len(q)) + q)
        a = s.recv(4096)[2:]
    else:
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5)
        s.sendto(q, ("127.0.0.1", 53)); a = s.recv(4096)
    assert a[:2] == b"\\x12\\x34" and a[12:12 + len(name) + 2] == q[12:12 + len(name) + 2]
    return a[3] & 15, struct.unpack("!H", a[6:8])[0], a
"""


@pytest.mark.promise("broker:refused-name-never-resolved")
@pytest.mark.requirement("R470")
async def test_a_refused_name_is_nxdomain_with_one_row_and_no_real_query(world: World) -> None:
    dns = world.name({"*": [PUBLIC]})
    code = (
        LOOK_UP
        + """
kinds = [(kind, tcp) for kind in (1, 28, 16, 65, 33, 255) for tcp in (False, True)]
print(json.dumps([ask("secret.evil.test", kind, tcp)[:2] for kind, tcp in kinds]))
"""
    )
    async with caged(world, "https://api.example.com") as (call, namespace):
        done = await namespace.python(code)
        assert json.loads(done.out) == [[3, 0]] * 12, done
        assert [(row["host"], row["port"], row["reason"]) for row in call.rows] == [
            ("secret.evil.test", None, "not-listed")
        ]
        hint = await namespace.run("curl", "-sS", "https://example.com/")
        assert hint.code == 6 and "Could not resolve host" in hint.err
    assert dns.queries == []
    assert world.journal.kinds() == ["EGRESS_DENIED", "EGRESS_DENIED"]


async def test_an_allowed_name_has_one_address_of_each_family_and_nothing_else(world: World) -> None:
    dns = world.name({"*": [PUBLIC]})
    code = (
        LOOK_UP
        + """
a, aaaa = ask("API.example.com", 1)[2], ask("api.example.com", 28)[2]
v4 = socket.inet_ntop(socket.AF_INET, a[-15:-11]); v6 = socket.inet_ntop(socket.AF_INET6, aaaa[-27:-11])
others = [ask("api.example.com", kind)[:2] for kind in (65, 33, 16, 15, 2, 6, 64)]
others += [ask("_443._https.api.example.com", 65)[:2]]
names = [socket.gethostbyaddr(v4)[0], socket.getfqdn(v6)]
print(json.dumps([v4, v6, others, *names, ask("34.216.184.93.in-addr.arpa", 12)[:2]]))
"""
    )
    async with caged(world, "https://api.example.com") as (call, namespace):
        done = await namespace.python(code)
        v4, v6, others, name4, name6, foreign = json.loads(done.out)
    assert v4 == "198.18.0.1" and v6 == "fd66:756d:6568:6f64::1"
    assert others == [[0, 0]] * 8
    assert (name4, name6, foreign) == ("api.example.com", "api.example.com", [3, 0])
    assert dns.queries == [] and call.rows == []


async def test_a_question_that_reads_two_ways_has_no_address_and_a_name_of_home_arpa_is_a_name(
    world: World,
) -> None:
    dns = world.name({"*": [PUBLIC]})
    code = (
        LOOK_UP
        + """
def raw(*labels):
    wire = b"".join(bytes([len(label)]) + label for label in labels) + b"\\0\\0\\1\\0\\1"
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5)
    s.sendto(b"\\x12\\x34\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0" + wire, ("127.0.0.1", 53)); a = s.recv(4096)
    return a[3] & 15, struct.unpack("!H", a[6:8])[0]
names = ["93.184.216.34", "[2606:2800:220:1::1946]", "nas.home.arpa", "other.home.arpa", "a.in-addr.arpa"]
found = [ask(name, 1)[:2] for name in names]
print(json.dumps([*found, raw(b"api.example", b"com"), raw(b"api", b"example", b"com")]))
"""
    )
    rules = ("http://93.184.216.34", "https://[2606:2800:220:1::1946]", "https://nas.home.arpa +private")
    async with caged(world, *rules, "https://api.example.com") as (call, namespace):
        done = await namespace.python(code)
    assert json.loads(done.out) == [[3, 0], [3, 0], [0, 1], [3, 0], [3, 0], [1, 0], [0, 1]], done
    assert [(row["host"], row["reason"]) for row in call.rows] == [
        (None, "malformed"),
        (None, "malformed"),
        ("other.home.arpa", "not-listed"),
    ]
    assert dns.queries == []


async def test_thousands_of_names_keep_their_addresses_apart(world: World) -> None:
    world.serve(443, tls=True)
    world.name({"*": [PUBLIC]})
    code = """
import socket
seen = {socket.gethostbyname(f"n{at}.example.com") for at in range(2000)}
print(len(seen))
"""
    async with caged(world, "https://*.example.com") as (call, namespace):
        done = await namespace.python(code, timeout=60)
        assert done.out.strip() == "2000", done
        last = await namespace.run("curl", "-sS", "https://n1999.example.com/")
        assert json.loads(last.out)["headers"]["host"] == "n1999.example.com"
        assert repr(call._doors[0]).startswith("<TransparentDoor ports=443,80,22 names=2000 open=")


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


async def test_garbage_sent_to_the_resolver_leaves_it_answering(world: World) -> None:
    world.name({"*": [PUBLIC]})
    code = (
        LOOK_UP
        + """
import os
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for n in range(100): s.sendto(os.urandom(n % 80), ("127.0.0.1", 53))
for n in (0, 1, 5, 40):
    t = socket.create_connection(("127.0.0.1", 53))
    t.sendall(struct.pack("!H", n) + os.urandom(n)); t.close()
print(ask("api.example.com", 1)[:2])
"""
    )
    async with caged(world, "https://api.example.com") as (call, namespace):
        done = await namespace.python(code)
        assert done.out.strip() == "(0, 1)", done


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


@pytest.mark.promise("broker:refused-name-never-resolved")
async def test_nobody_hears_that_a_name_is_refused_before_its_row_is_on_disk(world: World) -> None:
    written, seen = anyio.Event(), []

    class Slow(Journal):
        async def record(self, kind: str, data: Mapping[str, object], **ids: str | None) -> str:
            await written.wait()
            seen.append(data["host"])
            return await super().record(kind, data, **ids)

    def question(kind: int) -> bytes:
        return b"\0\1\1\0\0\1\0\0\0\0\0\0\4evil\4test\0" + struct.pack("!HH", kind, 1)

    async with world.call("https://api.example.com", recorder=Slow()) as call:
        door = TransparentDoor(call, NetSockets())
        both = [asyncio.ensure_future(door.answer(question(kind))) for kind in (A, AAAA)]
        for _ in range(50):
            await asyncio.sleep(0)
        assert [task.done() for task in both] == [False, False]
        written.set()
        answers = await asyncio.gather(*both)
    assert [answer[3] & 15 for answer in answers if answer] == [NXDOMAIN, NXDOMAIN] and seen == ["evil.test"]


async def test_names_without_end_are_counted_in_one_row(world: World) -> None:
    async with world.call("https://api.example.com") as call:
        door = TransparentDoor(call, NetSockets())
        for number in range(MAX_REFUSED_NAMES + 50):
            name = f"n{number}".encode()
            labels = bytes([len(name)]) + name + b"\4evil\4test\0\0\1\0\1"
            await door.answer(b"\0\1\1\0\0\1\0\0\0\0\0\0" + labels)
    assert len(world.journal.events) == MAX_REFUSED_NAMES + 1
    assert world.journal.events[-1]["data"]["reasons"] == {"not-listed": 50}


async def test_a_flood_of_questions_leaves_the_loop_to_others_and_a_burst_is_answered(world: World) -> None:
    code = (
        LOOK_UP
        + """
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5)
q = b"\\0\\1\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\3api\\7example\\3com\\0\\0\\1\\0\\1"
for n in range(100): s.sendto(q, ("127.0.0.1", 53))
print(sum(len(s.recv(999)) > 12 for n in range(100)))
for n in range(20000): s.sendto(q, ("127.0.0.1", 53))
for n in range(9):
    try:
        print(ask("api.example.com", 28)[:2]); break
    except TimeoutError: pass
"""
    )
    async with caged(world, "https://api.example.com") as (call, namespace):
        done = await namespace.python(code, timeout=60)
        assert done.out == "100\n(0, 1)\n", done
        assert call.rows == []
