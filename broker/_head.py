"""Request heads that a child sends, read strictly: one reading, or a refusal with a status.

Guarantees: lines end in CRLF only; one Host (none is fine in HTTP/1.0); Transfer-Encoding is exactly
`chunked` and never beside a length; no folded lines, no repeated or decorated Content-Length, no version but
1.0 and 1.1; heads have caps. What is forwarded is rebuilt from the parsed parts, never the received bytes.
Not here: where the request may go, and its body (_body.py). Before editing: each rule closes a smuggling
trick that a general parser accepts (h11 takes bare LF, folding and repeated lengths; httptools takes two
Hosts and stacked codings), and tests/data/ssrf_corpus.tsv has a row for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from fumehood.broker._exchange import Headers

MAX_HEAD = 64 * 1024  # bytes of a request head
MAX_HEADERS = 100  # header lines
MAX_TRAILERS = 8 * 1024  # bytes of trailers
PRIOR_KNOWLEDGE = b"PRI * HTTP/2.0\r\n\r\n"  # what HTTP/2 begins with, RFC 9113 section 3.4
_BARE_LF = re.compile(rb"(?<!\r)\n")
_HTTP = re.compile(rb" HTTP/[0-9.]+$")
_TOKEN = re.compile(rb"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
METHOD = re.compile(rb"[A-Z][A-Z-]{0,19}")
TARGET = re.compile(rb"[\x21-\x7e]+")
VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
LENGTH = re.compile(r"(?:0|[1-9][0-9]{0,17})", re.ASCII)
# RFC 9110 section 7.6.1: of one connection only, so never forwarded; and what a proxy keeps to itself.
HOP_BY_HOP = frozenset(
    [
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "proxy-authenticate",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "expect",
    ]
)
FRAMING = HOP_BY_HOP | {"host", "content-length"}
# RFC 9110 section 6.5.1: what frames, routes, authenticates or says how to read a message stands before it.
NOT_IN_TRAILERS = FRAMING | {
    "authorization",
    "cookie",
    "set-cookie",
    "content-encoding",
    "content-range",
    "content-type",
    "range",
}


_NO_OPTIONS: frozenset[str] = frozenset()


class BadHead(ValueError):
    """A head or body that breaks the grammar. status: what to answer (400, 413, 431, 505)."""

    def __init__(self, what: str, status: int = 400) -> None:
        super().__init__(what)
        self.what = what
        self.status = status


@dataclass(frozen=True, slots=True)
class RequestHead:
    """One request head. headers: as sent, names in their own case. length: of the body, None when chunked."""

    method: str
    target: str
    version: Literal["1.0", "1.1", "2"]
    headers: Headers
    length: int | None
    chunked: bool
    _first: dict[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        first: dict[str, str] = {}
        for key, value in self.headers:
            first.setdefault(key.lower(), value)
        object.__setattr__(self, "_first", first)

    def get(self, name: str) -> str | None:
        """The value of the first header of that lower-case name."""
        return self._first.get(name)

    @property
    def connection(self) -> frozenset[str]:
        """The options of the Connection header, lower case."""
        if "connection" not in self._first and "proxy-connection" not in self._first:
            return _NO_OPTIONS
        listed = ",".join(
            value for key, value in self.headers if key.lower() in ("connection", "proxy-connection")
        )
        return frozenset(option.strip().lower() for option in listed.split(",") if option.strip())

    @property
    def keeps_alive(self) -> bool:
        """Whether the client wants the connection to serve another request."""
        return "close" not in self.connection and (self.version == "1.1" or "keep-alive" in self.connection)

    @property
    def upgrade(self) -> str | None:
        """The protocol asked for by Upgrade, lower case.

        `h2c` is not seen: a server may pass over an upgrade, and RFC 9113 ended it.
        """
        value = self._first.get("upgrade", "").lower()
        return value if value not in ("", "h2c") and "upgrade" in self.connection else None

    @property
    def has_body(self) -> bool:
        return self.chunked or bool(self.length)

    def end_to_end(self) -> Headers:
        """The headers that may be forwarded:

        without Host, framing, hop-by-hop ones and those that Connection names.
        """
        dropped = HOP_BY_HOP | self.connection | {"host", "content-length"}
        return tuple((key, value) for key, value in self.headers if key.lower() not in dropped)


def find_end(data: bytes | bytearray, seen: int = 0) -> int:
    """Where the head ends (after its blank line), or -1 while it is not complete.

    seen: bytes that an earlier look found nothing wrong with, so that a head which comes byte by byte costs
    little more than one that comes at once. Raises: BadHead when it is too long, or when a bare LF stands
    where a line should end.
    """
    fresh = max(0, seen - 3)
    end = data.find(b"\r\n\r\n", fresh)
    if (end if end >= 0 else len(data)) > MAX_HEAD:
        raise BadHead(f"the head is longer than {MAX_HEAD} bytes", 431)
    if (bare := _BARE_LF.search(data, fresh)) is not None and (end < 0 or bare.start() < end):
        raise BadHead("a line ends in a bare LF")
    first = data.find(b"\r\n")
    if first >= max(0, seen - 1) and not _HTTP.search(data[:first]):
        # Another protocol; waiting for more of it would be in vain.
        raise BadHead("the request line is not METHOD target HTTP/1.1")
    return end + 4 if end >= 0 else -1


def parse_request_head(head: bytes) -> RequestHead:
    """The request whose head, blank line included, is `head`.

    Raises: BadHead.
    """
    lines = head[:-4].split(b"\r\n") if head.endswith(b"\r\n\r\n") else []
    if not lines or any(b"\r" in line or b"\n" in line for line in lines):
        raise BadHead("the head has bare line ends")
    words = lines[0].split(b" ")
    if len(words) != 3 or not METHOD.fullmatch(words[0]) or not words[1]:
        raise BadHead("the request line is not METHOD target HTTP/1.1")
    if not TARGET.fullmatch(words[1]):  # RFC 9112 section 3.2
        raise BadHead("the request target has controls or letters beyond ASCII; percent-encode them")
    if words[2] not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise BadHead("the version is not HTTP/1.1 or HTTP/1.0", 505)
    version: Literal["1.0", "1.1"] = "1.1" if words[2] == b"HTTP/1.1" else "1.0"
    if len(lines) - 1 > MAX_HEADERS:
        raise BadHead(f"over {MAX_HEADERS} header lines", 431)
    headers = tuple(read_field(line) for line in lines[1:])
    length, chunked = _framing(headers, version)
    hosts = [value for key, value in headers if key.lower() == "host"]
    if len(hosts) > 1 or (not hosts and version == "1.1"):
        raise BadHead(f"{len(hosts)} Host headers in place of one")
    return RequestHead(words[0].decode(), words[1].decode(), version, headers, length, chunked)


def read_field(line: bytes) -> tuple[str, str]:
    """Name and value of one field line. Raises: BadHead."""
    if line[:1] in (b" ", b"\t"):
        raise BadHead("a header line is folded")
    name, colon, value = line.partition(b":")
    value = value.strip(b" \t")
    if not colon or not _TOKEN.fullmatch(name) or not VALUE.fullmatch(value):
        raise BadHead("a header line is not Name: value")
    key = name.decode("ascii")
    check_spelling(key)
    return key, value.decode("latin-1")


def check_spelling(name: str) -> None:
    """Refuse a name that some servers (CGI, WSGI) read as one that frames or routes.

    Raises: BadHead.
    """
    if "_" in name and name.lower().replace("_", "-") in FRAMING:
        raise BadHead(f"the field {name!r} could be read as {name.replace('_', '-')!r}")


def _framing(headers: Headers, version: str) -> tuple[int | None, bool]:
    codings = [value for key, value in headers if key.lower() == "transfer-encoding"]
    lengths = [value for key, value in headers if key.lower() == "content-length"]
    if codings:
        if codings != ["chunked"] or lengths or version == "1.0":
            raise BadHead(
                "Transfer-Encoding is not exactly 'chunked', or stands beside a length or in HTTP/1.0"
            )
        return None, True
    if len(lengths) > 1 or (lengths and not LENGTH.fullmatch(lengths[0])):
        raise BadHead("Content-Length is repeated or not a plain number")
    return (int(lengths[0]) if lengths else 0), False
