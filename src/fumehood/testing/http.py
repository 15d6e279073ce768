"""A small HTTP(S) server on loopback whose answers are written by a function, raw bytes included. Standard
library only.

The function gets a `Seen` request and returns a `Reply`, or raw bytes, or an iterator of byte pieces that are
flushed one by one (raw as well), so that a test can send any answer a real or a hostile server could. `seen`
records the requests. Connections are kept alive after a `Reply` and closed after raw answers.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import BinaryIO


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as it arrived.

    headers: lower-case names, in order. sni: the TLS server name, None without TLS.
    """

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    sni: str | None = None

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    def header(self, name: str) -> str | None:
        """The first header of that lower-case name."""
        return next((value for key, value in self.headers if key == name), None)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer with a right Content-Length."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = field(default=())
    phrase: str = "OK"

    @staticmethod
    def json(value: object, status: int = 200) -> Reply:
        """JSON with its media type."""
        return Reply(status, json.dumps(value).encode(), (("Content-Type", "application/json"),))

    @staticmethod
    def redirect(location: str, status: int = 302) -> Reply:
        return Reply(status, b"", (("Location", location),), "Redirect")


Answer = Callable[[Seen], "Reply | bytes | Iterable[bytes]"]


def echo(seen: Seen) -> Reply:
    """Answers with the request as JSON."""
    return Reply.json(
        {
            "method": seen.method,
            "target": seen.target,
            "headers": dict(seen.headers),
            "body": seen.body.decode("latin-1"),
        }
    )


class HttpServer:
    """The server; a context manager. address: (host, port). tls: a server-side context for HTTPS.

    port: 0 for any free one. Raises: OSError when the port is taken.
    """

    def __init__(
        self,
        answer: Answer = echo,
        *,
        tls: ssl.SSLContext | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.answer = answer
        self.seen: list[Seen] = []
        self.connections = 0
        self._tls = tls
        self._names: dict[int, str | None] = {}
        if tls is not None:
            self._choose = tls.sni_callback
            tls.sni_callback = self._note_name
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=256)
        self.address: tuple[str, int] = (host, self._listener.getsockname()[1])
        self._open: set[socket.socket] = set()
        self._stop = False

    @property
    def port(self) -> int:
        return self.address[1]

    @property
    def url(self) -> str:
        """The server's root by its loopback address."""
        return f"{'https' if self._tls else 'http'}://{self.address[0]}:{self.address[1]}"

    def __enter__(self) -> HttpServer:
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop = True
        for sock in (self._listener, *list(self._open)):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            sock.close()
        self._thread.join(5)

    def _note_name(
        self, sock: ssl.SSLObject | ssl.SSLSocket, name: str | None, context: ssl.SSLContext
    ) -> None:
        self._names[id(sock)] = name
        if self._choose is not None:  # the context's own choice of certificate
            self._choose(sock, name, context)  # type: ignore[arg-type]

    def _accept(self) -> None:
        while not self._stop:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        self._open.add(connection)
        name: str | None = None
        try:
            connection.settimeout(30)
            if self._tls is not None:
                plain = connection
                connection = self._tls.wrap_socket(plain, server_side=True)
                self._open.discard(plain)
                self._open.add(connection)
                name = self._names.pop(id(connection), None)
            with connection.makefile("rb") as reader:
                while (seen := _read(reader, name)) is not None:
                    self.seen.append(seen)
                    answer = self.answer(seen)
                    if not isinstance(answer, Reply):
                        for piece in (answer,) if isinstance(answer, bytes) else answer:
                            connection.sendall(piece)
                        return
                    connection.sendall(_bytes(answer, seen.method))
        except (OSError, ValueError):
            pass
        finally:
            self._open.discard(connection)
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            connection.close()


def _read(reader: BinaryIO, name: str | None) -> Seen | None:
    line = reader.readline(65536).decode("latin-1").split()
    if len(line) != 3:
        return None
    headers = []
    while (raw := reader.readline(65536)) not in (b"\r\n", b"\n", b""):
        key, _, value = raw.decode("latin-1").partition(":")
        headers.append((key.strip().lower(), value.strip()))
    known = dict(headers)
    if "chunked" in known.get("transfer-encoding", ""):
        body = b"".join(_chunks(reader))
    else:
        body = reader.read(int(known.get("content-length", "0")))
    return Seen(line[0], line[1], tuple(headers), body, name)


def _chunks(reader: BinaryIO) -> Iterator[bytes]:
    while size := int(reader.readline(100).split(b";")[0], 16):
        yield reader.read(size)
        reader.readline(10)
    while reader.readline(65536) not in (b"\r\n", b""):
        pass


def _bytes(reply: Reply, method: str) -> bytes:
    head = [f"HTTP/1.1 {reply.status} {reply.phrase}", *(f"{key}: {value}" for key, value in reply.headers)]
    head.append(f"Content-Length: {len(reply.body)}")
    body = b"" if method == "HEAD" or reply.status in (204, 304) else reply.body
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body


__all__ = ["Answer", "HttpServer", "Reply", "Seen", "echo"]
