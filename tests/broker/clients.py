"""Clients and servers that speak exact bytes, for tests of the doors."""

from __future__ import annotations

import shutil
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType


class RawServer:
    """A TCP server on loopback that runs `serve(connection)` for each connection;

    `received` holds what arrived by default.
    """

    def __init__(self, serve: Callable[[socket.socket], None] | None = None) -> None:
        self._serve = serve or self._echo
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port: int = self._listener.getsockname()[1]
        self.received = b""
        self.connections = 0
        self._open: list[socket.socket] = []

    def _echo(self, connection: socket.socket) -> None:
        while data := connection.recv(65536):
            self.received += data
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)

    def __enter__(self) -> RawServer:
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sock in (self._listener, *self._open):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            sock.close()
        self._thread.join(5)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            threading.Thread(target=self._one, args=(connection,), daemon=True).start()

    def _one(self, connection: socket.socket) -> None:
        with connection:
            try:
                connection.settimeout(20)
                self._serve(connection)
            except OSError:
                pass


def until(sock: socket.socket, mark: bytes) -> bytes:
    """Bytes up to and including `mark`, or all there are."""
    data = b""
    while mark not in data:
        more = sock.recv(1)
        if not more:
            return data
        data += more
    return data


def read_all(sock: socket.socket) -> bytes:
    """Bytes until the peer ends or resets."""
    data = b""
    try:
        while more := sock.recv(65536):
            data += more
    except ConnectionResetError:
        pass
    return data


@contextmanager
def connected(port: int, host: str = "127.0.0.1") -> Iterator[socket.socket]:
    with socket.create_connection((host, port), timeout=15) as sock:
        yield sock


def hello(name: str | None, *, ech: bool = False, pad: int = 0, record: int = 16384) -> bytes:
    """A TLS 1.3 ClientHello.

    ech: with an ECH extension (GREASE looks the same). pad: bytes of padding. record: bytes a record holds.
    """
    extensions = b""
    if name is not None:
        raw = name.encode()
        entry = b"\0" + struct.pack("!H", len(raw)) + raw
        extensions += struct.pack("!HHH", 0, len(entry) + 2, len(entry)) + entry
    extensions += struct.pack("!HHB", 43, 3, 2) + b"\x03\x04"
    if ech:
        extensions += struct.pack("!HH", 0xFE0D, 8) + b"\0\0\1\0\1\7\0\0"
    if pad:
        extensions += struct.pack("!HH", 21, pad) + bytes(pad)
    body = (
        b"\x03\x03"
        + bytes(32)
        + b"\0"
        + b"\0\2\x13\1"
        + b"\1\0"
        + struct.pack("!H", len(extensions))
        + extensions
    )
    message = b"\1" + len(body).to_bytes(3, "big") + body
    pieces = [message[at : at + record] for at in range(0, len(message), record)]
    return b"".join(b"\x16\x03\x01" + struct.pack("!H", len(piece)) + piece for piece in pieces)


def tls_get(sock: socket.socket, trust: Path, name: str, path: str = "/") -> bytes:
    """One GET inside TLS on a connected socket, verified for `name`."""
    context = ssl.create_default_context(cafile=str(trust))
    with context.wrap_socket(sock, server_hostname=name) as tls:
        tls.sendall(f"GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n".encode())
        return until(tls, b"\r\n\r\n")


def needed(program: str) -> None:
    assert shutil.which(program), f"{program} is not installed; see the head of test_clients.py"
