"""The server name in a TLS ClientHello, read from the bytes that a client sends first.

Guarantees: records and segments are reassembled (post-quantum hellos span several); one hello has one
reading, or is refused: lengths must add up, extensions and names must not repeat. Never decrypts, never
changes a byte.
Not here: whether the name is right for the tunnel. ECH: the outer name is what is read; a hidden inner name
is the outer's business. Sources: RFC 8446 sections 4.1.2 and 5.1, RFC 6066 section 3, RFC 9849 for ECH.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

MAX_HELLO = 64 * 1024  # bytes of records peeked at; a hybrid post-quantum hello has about 2 KiB
_SERVER_NAME, _ALPN, _ECH = 0, 16, 0xFE0D


class BadHello(ValueError):
    """The bytes begin like TLS and are no ClientHello that reads one way."""


@dataclass(frozen=True, slots=True)
class Hello:
    """What a ClientHello says.

    server_name: lower case, None when there is none. alpn: protocols offered. ech: ECH extension present.
    """

    server_name: str | None
    alpn: tuple[str, ...] = ()
    ech: bool = False


def looks_like_tls(data: bytes) -> bool | None:
    """Whether the first bytes are a TLS handshake record; None while there are too few to tell."""
    if not data:
        return None
    if data[0] != 22:
        return False
    return None if len(data) < 3 else data[1] == 3 and data[2] <= 4


class HelloReader:
    """Reads one ClientHello from bytes that grow.

    What was read is not read again: a hello that comes byte by byte, in records of a byte, costs little more.
    """

    def __init__(self) -> None:
        self._message = bytearray()
        self._at = 0

    def read(self, data: bytes) -> Hello | None:
        """The ClientHello at the start of `data`, which begins with what was given before.

        None while more bytes are needed. Raises: BadHello.
        """
        message = self._message
        while True:
            if len(message) >= 4:
                if message[0] != 1:
                    raise BadHello("the first handshake message is no ClientHello")
                size = int.from_bytes(message[1:4], "big")
                if size > MAX_HELLO:
                    raise BadHello(f"the ClientHello is longer than {MAX_HELLO} bytes")
                if len(message) >= 4 + size:
                    if len(message) > 4 + size:
                        raise BadHello("bytes follow the ClientHello in its record")
                    return _parse(bytes(message[4 : 4 + size]))
            at = self._at
            if len(data) - at < 5:
                if at > MAX_HELLO:
                    raise BadHello(f"the ClientHello is longer than {MAX_HELLO} bytes")
                return None
            kind, major, _, length = struct.unpack_from("!BBBH", data, at)
            if kind != 22 or major != 3 or not 0 < length <= 16384:
                raise BadHello("a record is no TLS handshake record")
            if len(data) - at - 5 < length:
                return None
            message += data[at + 5 : at + 5 + length]
            self._at = at + 5 + length


def read_hello(data: bytes) -> Hello | None:
    """The ClientHello at the start of `data`; None while more bytes are needed.

    Raises: BadHello.
    """
    return HelloReader().read(data)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        if self._at + count > len(self._data):
            raise BadHello("a length in the ClientHello runs past its end")
        piece = self._data[self._at : self._at + count]
        self._at += count
        return piece

    def vector(self, size: int) -> bytes:
        """A field with its length in front, in `size` bytes."""
        return self.take(int.from_bytes(self.take(size), "big"))

    def is_empty(self) -> bool:
        return self._at == len(self._data)


def _parse(body: bytes) -> Hello:
    reader = _Reader(body)
    reader.take(2 + 32)  # legacy version, random
    reader.vector(1)  # session id
    reader.vector(2)  # cipher suites
    reader.vector(1)  # compression methods
    if reader.is_empty():
        return Hello(None)
    extensions = _Reader(reader.vector(2))
    if not reader.is_empty():
        raise BadHello("bytes follow the extensions")
    found: dict[int, bytes] = {}
    while not extensions.is_empty():
        kind = int.from_bytes(extensions.take(2), "big")
        value = extensions.vector(2)
        if kind in found:
            raise BadHello(f"the extension {kind} stands twice")
        found[kind] = value
    name = _server_name(found[_SERVER_NAME]) if _SERVER_NAME in found else None
    alpn = _alpn(found[_ALPN]) if _ALPN in found else ()
    return Hello(name, alpn, _ECH in found)


def _server_name(value: bytes) -> str:
    outer = _Reader(value)
    names = _Reader(outer.vector(2))
    kind, name = names.take(1), names.vector(2)
    if not outer.is_empty() or not names.is_empty() or kind != b"\0":
        raise BadHello("the server name list does not hold exactly one host name")
    try:
        return name.decode("ascii").lower()
    except UnicodeDecodeError as error:
        raise BadHello("the server name is not ASCII") from error


def _alpn(value: bytes) -> tuple[str, ...]:
    protocols = _Reader(_Reader(value).vector(2))
    found = []
    while not protocols.is_empty():
        found.append(protocols.vector(1).decode("latin-1"))
    return tuple(found)


def alert(description: int) -> bytes:
    """A fatal TLS alert record, as a server sends it before any key exists."""
    return bytes((21, 3, 3, 0, 2, 2, description))


ACCESS_DENIED = 49  # RFC 8446 section 6.2: the sender will not go on, by policy
