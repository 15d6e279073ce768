"""Section B of the catalogue: the call's own socket turned on the host, by descriptors and by requests."""

from __future__ import annotations

import errno
import os
import time
from typing import Any

from tests.isolate.attacks._kernel import answer, answers, apart
from tests.isolate.attacks._model import BOTH_TIERS, MIB, PEOPLE, Ends, Table, World, limits, one_of

TABLE = Table()
attack = TABLE.add


# 38, 39 -----------------------------------------------------------------------------------------------------


@attack(
    38,
    "descriptors-to-the-host",
    caged={"sent": True, "descriptors": 0, "outcome": "ok", "next": "ok"},
    no_control="`test_controls` sends the same to a host that takes them",
    first="host code",
    host="descriptors_to_the_host",
    heavy=True,
)
def descriptors_to_the_host(world: World) -> bool:
    """Send a thousand open files over the call's socket: a host that receives them runs out of numbers."""
    import array
    import socket

    sock = socket.socket(fileno=os.dup(3))
    files = [os.open("/dev/null", os.O_RDONLY) for _ in range(100)]
    frame = b'\0\0\0\x1dJ{"t":"log","text":"with fds"}'
    sent = 0
    while sent < 10:
        try:
            sock.sendmsg([frame], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])
            sent += 1
        except OSError as error:
            if error.errno != errno.ETOOMANYREFS:  # what others of this user send counts as well
                raise
            time.sleep(0.01)
    sock.detach()
    return True


@attack(
    38,
    "descriptors-under-way",
    caged={"filled": "ETOOMANYREFS", "same tool": "ok", "other tool": "ok", "outcome": "ok"},
    control={"filled": "ETOOMANYREFS", "neighbour": "ETOOMANYREFS"},
    control_as="user",
    first="host code",
    only=BOTH_TIERS,
    host="descriptors_under_way",
    heavy=True,
)
def descriptors_under_way(world: World) -> Any:
    """Send descriptors that nobody takes, until the kernel takes no more from any process of this user: the
    host and its zygotes send each other some for every call.
    """
    import array
    import resource
    import socket

    if world.get("second"):
        return "ok"
    if world["ctx"] is None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    many = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0] * 250))]
    pairs = [socket.socketpair() for _ in range(16)]

    def send() -> None:
        for pair in pairs:
            pair[0].sendmsg([b"x"], many, socket.MSG_DONTWAIT)

    filled = answer(send)
    if world["ctx"] is not None:
        world["ctx"].put(b"", filled)  # answered when the neighbours have been called
        return filled
    fresh = socket.socketpair()
    return {"filled": filled, "neighbour": apart(lambda: fresh[0].sendmsg([b"x"], many))}


@attack(
    38,
    "descriptor-to-init",
    caged={"sockets of others": [], "pidfd of init": "ok", "signal to init": "EPERM"},
    control={"sockets of others": one_of("never"), "pidfd of init": "ok", "signal to init": "ok"},
    first="pid",
    walls={
        # A signal to process 1 of one's own namespace goes nowhere; Landlock's scope answers first.
        "without-landlock": {"sockets of others": [], "pidfd of init": "ok", "signal to init": "ok"},
        "without-namespaces": {
            "sockets of others": [],
            "pidfd of init": one_of("ok", "EPERM"),
            "signal to init": "EPERM",
        },
    },
)
def descriptor_to_init(world: World) -> dict[str, Any]:
    """Any way to reach process 1 of the namespace: a socket it holds, a signal. (A pidfd alone
    gives no right: row 4.)
    """
    others: Any = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                others += [
                    name
                    for fd in os.listdir(f"/proc/{name}/fd")
                    if "socket" in os.readlink(f"/proc/{name}/fd/{fd}")
                ]
            except OSError:
                continue
    if world["ctx"] is None:
        others = "never"
    return {
        "sockets of others": others,
        **answers(
            {"pidfd of init": lambda: os.close(os.pidfd_open(1)), "signal to init": lambda: os.kill(1, 0)}
        ),
    }


@attack(
    39,
    "content-without-end",
    caged={
        "many": "ctx.put: a call may store 1000 times, and has",
        "large": "ctx.put: a call may store 268435456 bytes in all, and has stored 251658240",
        "stored": [1000, 240 * MIB],
        "outcomes": ["ok", "ok"],
    },
    no_control="the host's own disk; `puts` are counted by nothing else",
    first="host code",
    only=PEOPLE,
    cage=limits(memory=256 * MIB),
    host="content_without_end",
    heavy=True,
)
def content_without_end(world: World) -> str:
    """Have the host store one thing after the other."""
    ctx, data = world["ctx"], bytes(world["size"])
    try:
        for _ in range(2000):
            ctx.put(data, "application/octet-stream")
    except ValueError as error:
        return str(error)
    return "ok"


def _long(kind: str, later: str) -> bytes:
    payload = f'{{"t":"{kind}","id":1,"x":[{"[]," * 700_000}0]{later}}}'.encode()
    return len(payload).to_bytes(4, "big") + b"J" + payload


@attack(
    39,
    "long-request",
    caged=Ends("sandbox_error", "protocol"),
    no_control="`objects-out-of-bytes` shows what one such message costs a host",
    first="host code",
    only=PEOPLE,
)
def long_request(world: World) -> None:
    """Two megabytes of lists as a request, which counts for nothing and can be sent again and again."""
    os.write(3, _long("fetch", ""))
    world["ctx"].fetch("http://a.test/")


@attack(
    39,
    "bytes-one-by-one",
    caged=Ends("sandbox_error", "protocol"),
    no_control="each is a frame like any other; it is their number that costs a host",
    first="host code",
    only=PEOPLE,
)
def bytes_one_by_one(world: World) -> None:
    """What is to be stored, in as many frames as it has bytes."""
    payload = b'{"t":"put","id":1,"media_type":"text/plain","bytes":1000000}'
    os.write(3, len(payload).to_bytes(4, "big") + b"J" + payload + b"\0\0\0\1Dx" * 1_000_000)
    world["ctx"].fetch("http://a.test/")


@attack(
    39,
    "long-words-in-a-request",
    caged="ValueError: ctx.fetch: what it says beside the body has more than 262144 bytes",
    no_control="the tool's own context refuses it, before the host would",
    first="host code",
    only=PEOPLE,
)
def long_words_in_a_request(world: World) -> str:
    """An honest request with a line of headers that is too long: an error in the tool, not its end."""
    try:
        world["ctx"].fetch("http://a.test/", headers={"x": "y" * 300_000})
    except ValueError as error:
        return f"ValueError: {error}"
    return "ok"


@attack(
    39,
    "long-request-in-disguise",
    caged=Ends("sandbox_error", "protocol"),
    no_control="`objects-out-of-bytes` shows what one such message costs a host",
    first="host code",
    only=PEOPLE,
)
def long_request_in_disguise(world: World) -> None:
    """The same, which begins as a log line does."""
    os.write(3, _long("log", ',"t":"fetch"'))
    world["ctx"].fetch("http://a.test/")


@attack(
    39,
    "requests-without-end",
    caged={"answered": 2000, "most at once": True, "outcome": "ok", "next": "ok", "memory": "bounded"},
    no_control="`test_controls` floods a host that starts one task a request",
    first="host code",
    host="requests_without_end",
    heavy=True,
)
def requests_without_end(world: World) -> int:
    """Two thousand fetches in one breath, the answers read only afterwards."""
    import json
    import socket
    import struct

    sock = socket.socket(fileno=os.dup(3))
    sent = 0
    for number in range(2000):
        payload = json.dumps(
            {
                "t": "fetch",
                "id": 10_000 + number,
                "url": "http://169.254.169.254/",
                "method": "GET",
                "headers": [],
            }
        ).encode()
        sock.sendall(struct.pack(">IB", len(payload), ord("J")) + payload)
        sent += 1
        if sent % 50 == 0:
            _take(sock, 50)
    sock.detach()
    return sent


def _take(sock: Any, count: int) -> None:
    import struct

    for _ in range(count):
        head = b""
        while len(head) < 5:
            head += sock.recv(5 - len(head))
        left = struct.unpack(">IB", head)[0]
        while left:
            left -= len(sock.recv(left))


@attack(
    39,
    "large-bodies-at-once",
    caged={"outcome": "limit", "next": "ok", "memory": "bounded"},
    no_control="`test_controls` floods a host that starts one task a request",
    first="host code",
    host="large_bodies_at_once",
    heavy=True,
)
def large_bodies_at_once(world: World) -> int:
    """Bodies of 32 MiB for as many requests as the host takes, while none is answered."""
    import json
    import socket
    import struct

    sock = socket.socket(fileno=os.dup(3))
    chunk = bytes(256 << 10)
    for number in range(40):
        payload = json.dumps(
            {"t": "put", "id": 10_000 + number, "media_type": "image/png", "bytes": 32 << 20}
        ).encode()
        sock.sendall(struct.pack(">IB", len(payload), ord("J")) + payload)
        for _ in range(128):
            sock.sendall(struct.pack(">IB", len(chunk), ord("D")) + chunk)
    return 1


@attack(
    39,
    "requests-that-are-none",
    caged={"outcomes": {
        "id is text": "sandbox_error protocol", "id is missing": "sandbox_error protocol",
        "url is a list": "ok", "method is null": "ok",
        "headers are a number": "ok", "headers are nested": "ok", "too many bytes": "sandbox_error protocol",
        "bytes negative": "sandbox_error protocol",
        "bytes is true": "sandbox_error protocol", "unknown type": "sandbox_error protocol",
        "no type": "sandbox_error protocol",
        "a list": "sandbox_error protocol", "data first": "sandbox_error protocol",
        "media type is a number": "ok", "log is a number": "sandbox_error protocol",
        "event kind is null": "sandbox_error protocol", "event kind is long": "sandbox_error protocol",
    }, "next": "ok"},
    no_control="the host's own reading; honest requests are served in every other test",
    first="host code",
    host="requests_that_are_none",
)  # fmt: skip
def requests_that_are_none(world: World) -> bool:
    """One malformed frame, then an honest result: the host reads in order, and must never come to
    the second.
    """
    import json
    import struct

    if "raw" in world:
        os.write(3, bytes.fromhex(world["raw"]))
    else:
        payload = json.dumps(world["message"]).encode()
        os.write(3, struct.pack(">IB", len(payload), ord("J")) + payload)
    return True
