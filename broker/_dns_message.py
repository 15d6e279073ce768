"""DNS messages of a child, as far as a stub answer needs them: one question in, one answer out (RFC 1035, RFC
6891).

Guarantees: the question is parsed strictly (one question, no compression, lengths within the message); the
answer repeats it byte for byte, so that clients which vary letter case recognise it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from fumehood.broker._addresses import Address

A, PTR, AAAA, OPT, ANY = 1, 12, 28, 41, 255
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED = 0, 1, 2, 3, 4, 5
TTL = 5  # seconds: a name's address may change its meaning after it was not asked for in a while
MAX_MESSAGE = 4096


class BadMessage(ValueError):
    """Bytes that are no question one can answer. answer: what to send back, None for silence."""

    def __init__(self, what: str, answer: bytes | None = None) -> None:
        super().__init__(what)
        self.answer = answer


@dataclass(frozen=True, slots=True)
class Question:
    """One question.

    name: lower case, without the root dot. raw: its bytes as they came. edns: the query has an OPT record.
    """

    ident: bytes
    flags: int
    name: str
    kind: int
    raw: bytes
    edns: bool


def read_question(message: bytes) -> Question:
    """The question of a query.

    Raises: BadMessage.
    """
    if len(message) < 12 or len(message) > MAX_MESSAGE:
        raise BadMessage("not the size of a query")
    ident, flags, count, answers, authority, extra = struct.unpack("!2sHHHHH", message[:12])
    if flags & 0x8000:
        raise BadMessage("an answer, not a query")
    if flags & 0x7800:
        raise BadMessage("not a standard query", _head(ident, flags, NOTIMP, 0, 0, 0))
    broken = _head(ident, flags, FORMERR, 0, 0, 0)
    if count != 1 or answers or authority:
        raise BadMessage("not exactly one question", broken)
    labels, at = [], 12
    while True:
        if at >= len(message):
            raise BadMessage("the name runs past the message", broken)
        length = message[at]
        if length == 0:
            break
        if length > 63 or at + 1 + length > len(message) or at - 12 > 255:
            raise BadMessage("a label is too long or compressed", broken)
        labels.append(message[at + 1 : at + 1 + length])
        if b"." in labels[-1]:
            raise BadMessage("a label holds a dot, so that its name reads as another", broken)
        at += 1 + length
    if at + 5 > len(message):
        raise BadMessage("the question is cut off", broken)
    kind, class_ = struct.unpack_from("!HH", message, at + 1)
    if class_ not in (1, 255):
        raise BadMessage("not of class IN", _head(ident, flags, NOTIMP, 0, 0, 0))
    name = b".".join(labels).decode("latin-1").lower()
    rest = message[at + 5 :]
    edns = extra > 0 and rest[:3] == b"\0\0\x29"
    return Question(ident, flags, name, kind, message[12 : at + 5], edns)


def answer(question: Question, rcode: int = NOERROR, records: tuple[bytes, ...] = ()) -> bytes:
    """The message that answers `question`."""
    extra = b"\0" + struct.pack("!HHIH", OPT, 1232, 0, 0) if question.edns else b""
    head = _head(question.ident, question.flags, rcode, 1, len(records), 1 if extra else 0)
    return head + question.raw + b"".join(records) + extra


def address_record(address: Address) -> bytes:
    """An A or AAAA record that belongs to the question's name."""
    data = address.value.to_bytes(4 if address.version == 4 else 16, "big")
    return b"\xc0\x0c" + struct.pack("!HHIH", A if address.version == 4 else AAAA, 1, TTL, len(data)) + data


def pointer_record(name: str) -> bytes:
    """A PTR record that belongs to the question's name."""
    data = b"".join(bytes([len(label)]) + label.encode("ascii") for label in name.split(".")) + b"\0"
    return b"\xc0\x0c" + struct.pack("!HHIH", PTR, 1, TTL, len(data)) + data


def is_reverse(name: str) -> bool:
    """Whether a name is of the trees that map addresses to names; `home.arpa` is none of them (RFC 8375)."""
    return name.endswith((".in-addr.arpa", ".ip6.arpa"))


def reversed_address(name: str) -> str | None:
    """The address that a reverse name asks about, as text;

    None for other names (RFC 1035 section 3.5, RFC 3596 section 2.5).
    """
    if name.endswith(".in-addr.arpa"):
        parts = name.removesuffix(".in-addr.arpa").split(".")
        return ".".join(reversed(parts)) if len(parts) == 4 else None
    if name.endswith(".ip6.arpa"):
        digits = name.removesuffix(".ip6.arpa").split(".")
        if len(digits) == 32 and all(len(digit) == 1 for digit in digits):
            text = "".join(reversed(digits))
            return ":".join(text[at : at + 4] for at in range(0, 32, 4))
    return None


def _head(ident: bytes, flags: int, rcode: int, questions: int, answers: int, extra: int) -> bytes:
    # QR and RA set, opcode and RD as asked.
    return ident + struct.pack("!HHHHH", 0x8080 | flags & 0x7900 | rcode, questions, answers, 0, extra)
