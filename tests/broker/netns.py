"""A child in an empty network namespace, for tests of the doors: opens the sockets inside, hands them out,
then runs programs.

Run as a program it is the child. `Namespace` is the test's side.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fumehood.isolate.child._uapi_net import open_watches

NEWUSER, NEWNET, NEWNS = 0x10000000, 0x40000000, 0x20000
SYNTHETIC = (("198.18.0.0", 15), ("fd66:756d:6568:6f64::", 64))


def _check(code: int, what: str) -> None:
    if code:
        raise OSError(ctypes.get_errno(), what)


def _ask(link: socket.socket, kind: int, flags: int, body: bytes) -> None:
    link.send(struct.pack("=IHHII", 16 + len(body), kind, flags | 5, 1, 0) + body)
    code = struct.unpack("=i", link.recv(4096)[16:20])[0]
    if code:
        raise OSError(-code, os.strerror(-code))


def _local(link: socket.socket, network: str, prefix: int) -> None:
    family = socket.AF_INET6 if ":" in network else socket.AF_INET
    body = struct.pack("=BBBBBBBBI", family, prefix, 0, 0, 255, 4, 254, 2, 0)
    data = socket.inet_pton(family, network)
    body += struct.pack("=HH", 4 + len(data), 1) + data + struct.pack("=HHI", 8, 4, 1)
    _ask(link, 24, 0x600, body)


def _bound(family: int, kind: int, address: str, port: int) -> socket.socket:
    sock = socket.socket(family, kind)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    sock.bind((address, port))
    if kind == socket.SOCK_STREAM:
        sock.listen(512)
    return sock


def child(
    channel: socket.socket, ports: list[int], proxy: int, routes: list[tuple[str, int]], early: str
) -> None:
    """Enter, open, hand out, then run what is asked for until the channel closes."""
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    _check(libc.unshare(NEWUSER | NEWNET | NEWNS), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
        _ask(link, 16, 0, struct.pack("=BxHiII", 0, 0, 1, 1, 1))
        for network, prefix in (*SYNTHETIC, *routes):
            _local(link, network, prefix)
    opened = [
        _bound(socket.AF_INET, socket.SOCK_DGRAM, "127.0.0.1", 53),
        _bound(socket.AF_INET, socket.SOCK_STREAM, "127.0.0.1", 53),
        _bound(socket.AF_INET, socket.SOCK_STREAM, "127.0.0.1", proxy),
        *(_bound(socket.AF_INET6, socket.SOCK_STREAM, "::", port) for port in ports),
        *open_watches(),
    ]
    if early:
        address, port_text = early.rsplit(":", 1)
        opened.append(socket.create_connection((address, int(port_text))))  # waits in the listener's queue
    socket.send_fds(channel, [b"N"], [sock.fileno() for sock in opened])
    channel.recv(1)
    for sock in opened:
        sock.close()
    _check(libc.mount(None, b"/", None, 16384 | 1 << 18, None), "private mounts")
    folder = Path(tempfile.mkdtemp())
    for name, text in (
        ("resolv.conf", "nameserver 127.0.0.1\noptions timeout:2 attempts:2\n"),
        ("nsswitch.conf", "hosts: files dns\n"),
    ):
        (folder / name).write_text(text)
        place = os.path.realpath(f"/etc/{name}")
        if os.path.exists(place):
            _check(libc.mount(str(folder / name).encode(), place.encode(), None, 4096, None), f"bind {name}")
    shutil.rmtree(folder)  # the mounts hold what they need
    reader = channel.makefile("r", encoding="utf-8")
    for line in reader:
        asked = json.loads(line)
        try:
            done = subprocess.run(
                asked["argv"],
                env=asked["env"],
                input=asked["stdin"].encode("latin-1"),
                capture_output=True,
                timeout=asked["timeout"],
                cwd=asked["cwd"],
            )
            out = {
                "code": done.returncode,
                "out": done.stdout.decode("latin-1"),
                "err": done.stderr.decode("latin-1"),
            }
        except subprocess.TimeoutExpired as error:
            out = {
                "code": -1,
                "out": (error.stdout or b"").decode("latin-1"),
                "err": f"timeout: {(error.stderr or b'').decode('latin-1')}",
            }
        channel.sendall(json.dumps(out).encode() + b"\n")


@dataclass(frozen=True)
class Done:
    """How a program in the namespace ended."""

    code: int
    out: str
    err: str


class Namespace:
    """The test's side. sockets: as handed out: DNS by UDP, DNS by TCP, proxy, then one listener a port."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        channel: socket.socket,
        fds: list[int],
        ports: Sequence[int],
        trust: Path | None,
    ) -> None:
        self._process = process
        self._channel = channel
        socks = [socket.socket(fileno=fd) for fd in fds]
        self.dns_udp, self.dns_tcp, self.proxy = socks[:3]
        self.tcp = dict(zip(ports, socks[3:], strict=False))
        self.watches = socks[3 + len(ports) :][:6]
        self.extra = socks[9 + len(ports) :]
        self._buffer = b""
        self.env = {"PATH": os.environ["PATH"], "HOME": "/tmp", "LANG": "C.UTF-8"}
        if trust is not None:
            for name in (
                "SSL_CERT_FILE",
                "CURL_CA_BUNDLE",
                "REQUESTS_CA_BUNDLE",
                "NODE_EXTRA_CA_CERTS",
                "GIT_SSL_CAINFO",
                "PIP_CERT",
            ):
                self.env[name] = str(trust)

    async def run(
        self,
        *argv: str,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        timeout: float = 30,
        cwd: str = "/tmp",
    ) -> Done:
        """Run a program inside and wait for its end."""
        asked = {
            "argv": argv,
            "env": {**self.env, **(env or {})},
            "stdin": stdin,
            "timeout": timeout,
            "cwd": cwd,
        }
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._channel, json.dumps(asked).encode() + b"\n")
        while b"\n" not in self._buffer:
            data = await loop.sock_recv(self._channel, 1 << 20)
            if not data:
                raise RuntimeError("the namespace's process ended")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return Done(**json.loads(line))

    async def python(self, code: str, **options: object) -> Done:
        """Run Python code inside, with this environment's packages."""
        return await self.run(sys.executable, "-c", code, **options)  # type: ignore[arg-type]

    def close(self) -> None:
        self._channel.close()
        self._process.kill()
        self._process.wait()
        opened = (self.dns_udp, self.dns_tcp, self.proxy, *self.tcp.values(), *self.watches, *self.extra)
        for sock in opened:
            sock.close()


def enter(
    ports: Sequence[int],
    *,
    trust: Path | None = None,
    proxy: int = 3128,
    routes: Sequence[tuple[str, int]] = (),
    early: str = "",
) -> Namespace:
    """Start a child in its own network namespace with listeners on `ports`.

    routes: more networks that are local to it.
    """
    ours, theirs = socket.socketpair()
    plan = json.dumps([theirs.fileno(), list(ports), proxy, [list(route) for route in routes], early])
    process = subprocess.Popen([sys.executable, __file__, plan], pass_fds=[theirs.fileno()])
    theirs.close()
    _, fds, _, _ = socket.recv_fds(ours, 1, 64)
    if not fds:
        raise RuntimeError("the child could not enter a network namespace")
    ours.send(b"x")
    ours.setblocking(False)
    return Namespace(process, ours, list(fds), ports, trust)


if __name__ == "__main__":
    number, ports_, proxy_, routes_, early_ = json.loads(sys.argv[1])
    child(
        socket.socket(fileno=number),
        ports_,
        proxy_,
        [(network, prefix) for network, prefix in routes_],
        early_,
    )
