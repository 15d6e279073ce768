"""A DNS server on loopback that answers what it is told to, lies included. Standard library only; for tests
and demonstrations.

A zone maps a name to what the server says about it: a list of addresses and "CNAME x" entries, or
`{"sequence": [answers, answers, ...]}` for answers that change from one query to the next (the last one
stays), or one of the `Misbehave` values. "*" stands for every other name. UDP and TCP share the port.
`queries` records what was asked, so that a test can show that a name was never asked.
"""

from __future__ import annotations

import enum
import errno
import socket
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TypeAlias

A, NS, CNAME, AAAA, ANY = 1, 2, 5, 28, 255
_RCODES = {"NOERROR": 0, "SERVFAIL": 2, "NXDOMAIN": 3, "REFUSED": 5}
MAX_CHAIN = 20  # CNAMEs put into one answer, so that a loop ends


class Misbehave(enum.Enum):
    """Ways to be a bad name server."""

    SERVFAIL = "SERVFAIL"
    NXDOMAIN = "NXDOMAIN"
    REFUSED = "REFUSED"
    DROP = "drop"  # no answer at all
    GARBAGE = "garbage"  # bytes that are no DNS message
    HALF = "half"  # the first half of a right answer
    WRONG_ID = "wrong id"  # a right answer to a question nobody asked
    WRONG_NAME = "wrong name"  # an answer about another name
    LATE = "late"  # a right answer after a second and a half
    TRUNCATE = "truncate"  # UDP says "ask over TCP"; TCP answers


Said: TypeAlias = "Sequence[str] | Mapping[str, Sequence[Sequence[str]]] | Misbehave"


class LyingDns:
    """The server; a context manager. address: (host, port). ttl: seconds put on every record.

    truthful: what `Misbehave.LATE`, `HALF`, `TRUNCATE` and `WRONG_ID` answer with. at: where to listen, port
    0 for any free one. Raises: OSError when the port is taken.
    """

    def __init__(
        self,
        zone: Mapping[str, Said],
        *,
        ttl: int = 0,
        truthful: Sequence[str] = ("93.184.216.34",),
        at: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:
        self.zone: dict[str, Said] = dict(zone)
        self.ttl = ttl
        self.truthful = truthful
        self.queries: list[tuple[str, int, str]] = []
        self._asked: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()
        self._udp, self._tcp = _bind_pair(at)
        self.address: tuple[str, int] = (at[0], self._udp.getsockname()[1])
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    @property
    def names(self) -> list[str]:
        """The names that were asked for, in order, without repeats."""
        return list(dict.fromkeys(name for name, _, _ in self.queries))

    def __enter__(self) -> LyingDns:
        for loop in (self._serve_udp, self._serve_tcp):
            thread = threading.Thread(target=loop, daemon=True)
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for sock in (self._udp, self._tcp):
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            sock.close()
        for thread in self._threads:
            thread.join(5)

    def _serve_udp(self) -> None:
        while not self._stop.is_set():
            try:
                query, peer = self._udp.recvfrom(4096)
            except OSError:
                return
            answer = self.answer(query, "udp") if len(query) > 16 else None
            if answer is not None:
                threading.Thread(target=self._send, args=(answer, peer), daemon=True).start()

    def _send(self, answer: tuple[float, bytes], peer: tuple[str, int]) -> None:
        time.sleep(answer[0])
        try:
            self._udp.sendto(answer[1], peer)
        except OSError:
            pass

    def _serve_tcp(self) -> None:
        while not self._stop.is_set():
            try:
                connection, _ = self._tcp.accept()
            except OSError:
                return
            threading.Thread(target=self._serve_one, args=(connection,), daemon=True).start()

    def _serve_one(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(5)
            try:
                while (head := connection.recv(2, socket.MSG_WAITALL)) and len(head) == 2:
                    query = connection.recv(struct.unpack("!H", head)[0], socket.MSG_WAITALL)
                    answer = self.answer(query, "tcp")
                    if answer is None:
                        return
                    time.sleep(answer[0])
                    connection.sendall(struct.pack("!H", len(answer[1])) + answer[1])
            except OSError:
                return

    def answer(self, query: bytes, transport: str) -> tuple[float, bytes] | None:
        """Delay in seconds and the message; None for silence."""
        name, kind, question = read_question(query)
        with self._lock:
            self.queries.append((name, kind, transport))
            step = self._asked.get((name, kind), 0)
            self._asked[(name, kind)] = step + 1
        said = self.zone.get(name, self.zone.get("*", Misbehave.NXDOMAIN))
        if isinstance(said, Misbehave):
            return self._misbehave(said, query, name, kind, question, transport)
        return 0.0, self._message(query[:2], question, name, kind, _at(said, step), step)

    def _misbehave(
        self, how: Misbehave, query: bytes, name: str, kind: int, question: bytes, transport: str
    ) -> tuple[float, bytes] | None:
        right = self._message(query[:2], question, name, kind, self.truthful, 0)
        match how:
            case Misbehave.DROP:
                return None
            case Misbehave.GARBAGE:
                return 0.0, b"\xff" * 40
            case Misbehave.HALF:
                return 0.0, right[: len(right) // 2]
            case Misbehave.WRONG_ID:
                return 0.0, bytes([query[0] ^ 255, query[1]]) + right[2:]
            case Misbehave.WRONG_NAME:
                other = encode_name("other.test") + question[-4:]
                return 0.0, self._message(query[:2], other, "other.test", kind, self.truthful, 0)
            case Misbehave.LATE:
                return 1.5, right
            case Misbehave.TRUNCATE if transport == "udp":
                return 0.0, query[:2] + b"\x83\x80\0\1\0\0\0\0\0\0" + question
            case Misbehave.TRUNCATE:
                return 0.0, right
        return 0.0, query[:2] + struct.pack("!HHHHH", 0x8180 | _RCODES[how.value], 1, 0, 0, 0) + question

    def _message(
        self, ident: bytes, question: bytes, name: str, kind: int, said: Sequence[str], step: int
    ) -> bytes:
        """A response that follows CNAMEs through the zone as a recursor would."""
        records: list[bytes] = []
        rcode = 0
        owner = name
        for _ in range(MAX_CHAIN):
            target = next((text.split()[1].rstrip(".") for text in said if text.startswith("CNAME ")), None)
            for text in said:
                words = text.split()
                if len(words) == 2 and words[1] in _RCODES and words[0] in ("A", "AAAA"):
                    rcode = _RCODES[words[1]] if kind == (A if words[0] == "A" else AAAA) else rcode
                elif len(words) == 1 and kind in (A, AAAA, ANY):
                    family, number = (socket.AF_INET6, AAAA) if ":" in text else (socket.AF_INET, A)
                    if kind in (number, ANY):
                        records.append(self._record(owner, number, socket.inet_pton(family, text)))
            if target is None:
                break
            records.append(self._record(owner, CNAME, encode_name(target)))
            following = self.zone.get(target, ())
            if isinstance(following, Misbehave):
                break
            owner, said = target, _at(following, step)
        return (
            ident
            + struct.pack("!HHHHH", 0x8180 | rcode, 1, len(records), 0, 0)
            + question
            + b"".join(records)
        )

    def _record(self, owner: str, kind: int, data: bytes) -> bytes:
        return encode_name(owner) + struct.pack("!HHIH", kind, 1, self.ttl, len(data)) + data


def _at(said: Sequence[str] | Mapping[str, Sequence[Sequence[str]]], step: int) -> Sequence[str]:
    if isinstance(said, Mapping):
        steps = said["sequence"]
        return steps[min(step, len(steps) - 1)]
    return said


def encode_name(name: str) -> bytes:
    """A name in wire form, uncompressed (RFC 1035 section 3.1)."""
    labels = [label.encode("ascii") for label in name.rstrip(".").split(".") if label]
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def read_question(query: bytes) -> tuple[str, int, bytes]:
    """Name (lower case), type, and the question section as it stood."""
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode("ascii", "replace").lower())
        at += query[at] + 1
    return ".".join(labels), struct.unpack("!H", query[at + 1 : at + 3])[0], query[12 : at + 5]


def _bind_pair(at: tuple[str, int]) -> tuple[socket.socket, socket.socket]:
    """A UDP and a listening TCP socket on one port."""
    for _ in range(50 if at[1] == 0 else 1):
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            udp.bind(at)
            tcp.bind((at[0], udp.getsockname()[1]))
            tcp.listen(16)
        except OSError:
            udp.close()
            tcp.close()
            continue
        return udp, tcp
    raise OSError(
        errno.EADDRINUSE, f"no port of {at[0]} is free for UDP and TCP at once, or {at[1]} is taken"
    )


__all__ = ["LyingDns", "Misbehave", "Said", "encode_name", "read_question"]
