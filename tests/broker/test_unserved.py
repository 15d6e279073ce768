"""Attempts that no door takes: each is a row, none a packet to anywhere, and a flood of them is bounded."""

from __future__ import annotations

import json
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood.broker import BrokerCall, suggest, suggestions_toml
from fumehood.broker._addresses import parse_address
from fumehood.broker._unserved import MAX_ATTEMPTS, Attempt, attempt_of
from tests.broker.test_transparent import caged
from tests.broker.test_transparent_names import LOOK_UP
from tests.broker.world import PUBLIC, World

pytestmark = pytest.mark.anyio

EVERYWHERE = (("0.0.0.0", 0), ("::", 0))
ATTEMPTS = """
import errno, json, socket
STREAM, DATAGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM
def attempt(kind, host, port):
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, kind) as s:
        s.settimeout(5)
        try:
            s.connect((host, port))
            if kind == DATAGRAM:
                s.send(b"x")
                s.recv(1)
        except OSError as error:
            return errno.errorcode.get(error.errno, str(error))
        return "ok"
"""


def rows(call: BrokerCall) -> list[tuple[object, object, object]]:
    return [(row["reason"], row["host"], row["port"]) for row in call.rows]


@pytest.mark.promise("broker:every-attempt-is-a-row")
@pytest.mark.parametrize("watched", [True, False], ids=["watched", "control"])
async def test_what_no_door_takes_fails_at_once_and_is_a_row(world: World, watched: bool) -> None:
    world.serve(80)
    dns = world.name({"*": [PUBLIC]})
    code = (
        ATTEMPTS
        + """
places = [(STREAM, "api.example.com", 81), (STREAM, "10.0.0.1", 25), (STREAM, "169.254.169.254", 8080),
          (STREAM, "2606:4700::1", 25), (STREAM, "::ffff:10.0.0.2", 23), (STREAM, "127.0.0.1", 5432),
          (STREAM, "198.18.77.77", 81), (DATAGRAM, "8.8.8.8", 53), (DATAGRAM, "2606:4700::1", 443),
          (DATAGRAM, "api.example.com", 80)]
print(json.dumps([attempt(*place) for place in places] + [attempt(STREAM, "10.0.0.1", 25)]))
"""
    )
    async with caged(world, "http://api.example.com", routes=EVERYWHERE, watched=watched) as (
        call,
        namespace,
    ):
        done = await namespace.python(code)
        assert json.loads(done.out) == ["ECONNREFUSED"] * 11, done
        await call.settle()
        assert sorted(rows(call), key=str) == sorted(
            [
                ("port", "api.example.com", 81),
                ("not-listed", "10.0.0.1", 25),
                ("metadata", "169.254.169.254", 8080),
                ("not-listed", "2606:4700::1", 25),
                ("not-listed", "10.0.0.2", 23),
                ("not-listed", "localhost", 5432),
                ("malformed", None, None),
                ("not-listed", "8.8.8.8", 53),
                ("not-listed", "2606:4700::1", 443),
                ("scheme", "api.example.com", 80),
            ]
            if watched
            else [],
            key=str,
        )
    assert dns.queries == [] and world.journal.dialled == []
    assert world.journal.kinds() == ["EGRESS_DENIED"] * len(call.rows)
    if watched:
        data = {
            event["data"]["port"]: event["data"] for event in world.journal.events if event["data"]["port"]
        }
        assert (data[81]["detail"], data[81]["hint"]) == (
            "no door of the call is on this port",
            "'http://api.example.com' is for port 80; the request is for 81",
        )
        assert data[80]["detail"] == "a UDP datagram; only TCP leads out"


async def test_a_port_that_came_with_a_reload_or_that_audit_mode_has_not_is_a_row_too(world: World) -> None:
    world.name({"*": [PUBLIC]})
    async with caged(world, mode="audit", routes=EVERYWHERE) as (call, namespace):
        done = await namespace.python(
            ATTEMPTS + "print(attempt(STREAM, 'api.example.com', 8443), attempt(STREAM, 'localhost', 9),"
            "      attempt(DATAGRAM, 'api.example.com', 443))"
        )
        assert done.out == "ECONNREFUSED ECONNREFUSED ECONNREFUSED\n"
        await call.settle()
        assert rows(call) == [
            ("port", "api.example.com", 8443),
            ("port", "localhost", 9),
            ("scheme", "api.example.com", 443),
        ]
    found = suggest((event["kind"], event["data"]) for event in world.journal.events)
    assert [(one.rule, one.count) for one in found] == [("api.example.com:8443", 1)]
    assert '# "api.example.com:8443",  # 1 request refused, as audit mode' in suggestions_toml(found)
    assert world.journal.events[0]["data"]["hint"] == "ports of the policy are opened when a call begins"


@pytest.mark.promise("broker:every-attempt-is-a-row")
async def test_a_datagram_to_a_group_or_to_everybody_is_a_row(world: World) -> None:
    world.name({"*": [PUBLIC]})
    code = """
import socket
for host, port in (("239.255.255.250", 1900), ("224.0.0.251", 5353), ("224.0.0.1", 9),
                   ("255.255.255.255", 67), ("ff02::fb", 5353), ("ff0e::1234", 9), ("ff02::fb", 5353)):
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        s.sendto(b"x", (host, port))
print(socket.gethostbyname("api.example.com"))  # the control: a datagram to the DNS door is no attempt
"""
    async with caged(world, "http://api.example.com", routes=EVERYWHERE) as (call, namespace):
        assert (await namespace.python(code)).out.strip() == "198.18.0.1"
        await call.settle()
        assert sorted(rows(call), key=str) == [
            ("not-listed", "224.0.0.1", 9),
            ("not-listed", "224.0.0.251", 5353),
            ("not-listed", "239.255.255.250", 1900),
            ("not-listed", "255.255.255.255", 67),
            ("not-listed", "ff02::fb", 5353),
            ("not-listed", "ff0e::1234", 9),
        ]


async def test_a_name_that_is_tried_at_both_of_its_addresses_is_one_row(world: World) -> None:
    world.name({"*": [PUBLIC]})
    code = """
import socket
found = {(family, place[:2]) for family, _, _, _, place in socket.getaddrinfo("api.example.com", 81)}
for family, place in found:
    with socket.socket(family) as s: print(s.connect_ex(place))
"""
    async with caged(world, "http://api.example.com", routes=EVERYWHERE) as (call, namespace):
        assert (await namespace.python(code)).out.split() == ["111", "111"]
        await call.settle()
        assert rows(call) == [("port", "api.example.com", 81)]


@pytest.mark.promise("broker:every-attempt-is-a-row")
async def test_what_is_served_or_stays_inside_makes_no_such_row(world: World) -> None:
    """Nothing that a program does inside its own namespace looks like a refusal: a server of its own, a
    connection that is reset, an answer for a socket that is gone.
    """
    world.serve(80)
    world.name({"*": [PUBLIC]})
    code = (
        LOOK_UP
        + ATTEMPTS
        + """
import struct
own = socket.create_server(("127.0.0.1", 0)); inside = socket.create_connection(own.getsockname())
taken, _ = own.accept(); taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
taken.close()
try: inside.recv(1)
except OSError as error: print(errno.errorcode[error.errno])
reset = socket.create_connection(("api.example.com", 80))
reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)); reset.close()
for number in range(20):
    gone = socket.socket(socket.AF_INET, DATAGRAM)
    question = b"\\0\\1\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0" + b"\\3api\\7example\\3com\\0\\0\\1\\0\\1"
    gone.sendto(question, ("127.0.0.1", 53)); gone.close()
print(ask("api.example.com", 1)[:2], attempt(STREAM, "api.example.com", 80))
"""
    )
    async with caged(world, "http://api.example.com", routes=EVERYWHERE) as (call, namespace):
        done = await namespace.python(code)
        assert done.out == "ECONNRESET\n(0, 1) ok\n", done
        await call.settle()
        assert rows(call) == []


@pytest.mark.promise("broker:every-attempt-is-a-row")
async def test_a_flood_of_attempts_is_a_bounded_number_of_rows(world: World) -> None:
    world.name({"*": [PUBLIC]})
    code = ATTEMPTS + "print({attempt(STREAM, '10.0.0.1', 1000 + at % 1000) for at in range(3000)})"
    async with caged(world, "http://api.example.com", routes=EVERYWHERE) as (call, namespace):
        done = await namespace.python(code)
        assert done.out == "{'ECONNREFUSED'}\n", done
        await call.settle()
        assert len(call.rows) == MAX_ATTEMPTS
        again = await namespace.python(ATTEMPTS + "print(attempt(STREAM, '10.0.0.1', 1000))")
        assert again.out == "ECONNREFUSED\n"
        await call.settle()
        assert len(call.rows) == MAX_ATTEMPTS
    last = world.journal.events[-1]["data"]
    assert (last["reasons"].keys(), last["count"] > 0) == ({"port"}, True)


PORTS = b"\x80\0\1\xbb"
V4 = bytes.fromhex("4500002800004000400600000a0000017f000001")
V6 = bytes.fromhex("60000000000c1140") + bytes(15) + b"\1" + bytes.fromhex("26064700") + bytes(11) + b"\1"


@pytest.mark.parametrize(
    ("family", "protocol", "data", "source", "expected"),
    [
        (2, 6, V4 + b"\0\x16\x80\0", "10.0.0.1", (False, "10.0.0.1", 22)),
        (10, 6, b"\0\x16\x80\0", "fe80::1%lo", (False, "fe80::1", 22)),
        (2, 1, V4 + bytes(8) + bytes.fromhex("450000201111400040110000c612000108080808") + b"\x80\0\1\xbb",
         "8.8.8.8", (True, "8.8.8.8", 443)),
        # Options in the datagram's own header, another protocol, and an answer of the DNS door.
        (2, 1, V4 + bytes(8) + bytes.fromhex("460000201111400040110000c612000108080808" + "01" * 4) + PORTS,
         "8.8.8.8", (True, "8.8.8.8", 443)),
        (2, 1, V4 + bytes(8) + bytes.fromhex("450000201111400040840000c612000108080808") + PORTS,
         "8.8.8.8", (True, "8.8.8.8", 0)),
        (2, 1, V4 + bytes(8) + bytes.fromhex("4500002011114000401100007f0000017f000001") + b"\0\x35\x90\0",
         "127.0.0.1", None),
        (10, 58, bytes(8) + V6 + b"\x80\0\1\xbb", "::1", (True, "2606:4700::1", 443)),
        (10, 58, bytes(8) + V6[:6] + b"\x3c" + V6[7:] + b"\x11\0" + bytes(6) + b"\x80\0\1\xbb", "::1",
         (True, "2606:4700::1", 443)),
        (2, 1, V4 + bytes(8), "8.8.8.8", None),
        (10, 58, bytes(8) + V6[:6] + b"\x3c" + V6[7:], "::1", None),
    ],
)  # fmt: skip
def test_a_refusing_packet_says_what_was_attempted(
    family: int, protocol: int, data: bytes, source: str, expected: tuple[bool, str, int] | None
) -> None:
    wanted = None if expected is None else Attempt(expected[0], parse_address(expected[1]), expected[2])
    assert attempt_of(family, protocol, data, source) == wanted


@given(
    st.sampled_from([(socket.AF_INET, 6), (socket.AF_INET, 1), (socket.AF_INET6, 6), (socket.AF_INET6, 58)]),
    st.binary(max_size=512),
)
def test_no_packet_is_too_odd(kind: tuple[int, int], data: bytes) -> None:
    found = attempt_of(kind[0], kind[1], data, "10.0.0.1" if kind[0] == socket.AF_INET else "::1")
    assert found is None or 0 <= found.port < 65536


@pytest.mark.promise("broker:literals-need-their-own-entry")
async def test_a_loopback_address_with_an_entry_of_its_own_is_reached_and_a_denied_name_stays_denied(
    world: World,
) -> None:
    world.serve(80)
    code = """
import socket
for host in ("127.0.0.1", "127.0.0.2"):
    s = socket.create_connection((host, 80))
    s.sendall(b"GET / HTTP/1.1\\r\\nHost: %s\\r\\nConnection: close\\r\\n\\r\\n" % host.encode())
    print(s.makefile("rb").readline().decode().strip())
"""
    fine, refused = "HTTP/1.1 200 OK", "HTTP/1.1 403 EGRESS_DENIED "
    for rules, deny, said in (
        (("127.0.0.1:80 +private",), (), (fine, refused + "not-listed")),
        (("127.0.0.1:81 +private",), (), (refused + "port", refused + "not-listed")),
        (("127.0.0.1:80",), (), (refused + "not-public", refused + "not-listed")),
        (("127.0.0.1:80 +private",), ("localhost",), [refused + "denied-by-rule"] * 2),
        (("localhost:80 +private",), ("127.0.0.2",), (fine, refused + "denied-by-rule")),
        (("localhost:80 +private",), (), [fine] * 2),
    ):
        async with caged(world, *rules, deny=deny, ports=(80,)) as (_, namespace):
            done = await namespace.python(code)
        assert done.out.splitlines() == list(said), (rules, deny, done)
