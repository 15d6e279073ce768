"""The transparent door for names: what is answered, what is not, and how much of it."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Mapping

import anyio
import pytest

from fumehood.broker import NetSockets
from fumehood.broker._dns_message import AAAA, NXDOMAIN, A
from fumehood.broker._transparent import MAX_REFUSED_NAMES, TransparentDoor
from tests.broker.test_transparent import caged
from tests.broker.world import PUBLIC, Journal, World

pytestmark = pytest.mark.anyio


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
