"""Heads of HTTP/2 messages, read as strictly as those of HTTP/1.1 and written from parsed parts.

Guarantees: pseudo-header fields stand first, once, and are those of the message's kind; names are lower-case
tokens; no value holds CR, LF, NUL or blanks at its ends, so nothing can become a second field in HTTP/1.1; no
field of one connection; one plain Content-Length that the body has to keep to; counts have caps. Cookie
crumbs are joined (RFC 9113 section 8.2.3).
Not here: framing and HPACK (_h2_link.py; a list over 64 KiB never gets here), where a request may point.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fumehood.broker._exchange import MAX_HEADERS as MAX_ANSWER_HEADERS
from fumehood.broker._exchange import Headers, ResponseHead, UpstreamFailed
from fumehood.broker._head import (
    HOP_BY_HOP,
    LENGTH,
    MAX_HEADERS,
    MAX_TRAILERS,
    METHOD,
    NOT_IN_TRAILERS,
    TARGET,
    VALUE,
    BadHead,
    RequestHead,
    check_spelling,
)

Fields = list[tuple[bytes, bytes]]
_NAME = re.compile(rb"[a-z0-9!#$%&'*+.^_`|~-]+")
_STATUS = re.compile(r"[1-9][0-9]{2}", re.ASCII)
_OF_ONE_CONNECTION = HOP_BY_HOP - {"te", "expect", "trailer", "proxy-authorization", "proxy-authenticate"}
_REQUEST = (":method", ":scheme", ":authority", ":path", ":protocol")
SENSITIVE = frozenset((b"authorization", b"proxy-authorization", b"cookie", b"set-cookie"))


@dataclass(frozen=True, slots=True)
class Asked:
    """A request. authority: of :authority, else of Host; None when there is neither. protocol: of an extended
    CONNECT.
    """

    head: RequestHead
    scheme: str | None
    authority: str | None
    protocol: str | None


def read_request(fields: Fields, *, ended: bool) -> Asked:
    """The request of one header block. ended: no body follows.

    Raises: BadHead.
    """
    pseudo, headers = _split(fields, _REQUEST, MAX_HEADERS)
    method, path = pseudo.get(":method"), pseudo.get(":path")
    if method is None or not METHOD.fullmatch(method.encode("latin-1")):
        raise BadHead("the :method is not one in capital letters")
    if method != "CONNECT" and (path is None or pseudo.get(":scheme") is None):
        raise BadHead("a request without :path or :scheme")
    if path is not None and not (TARGET.fullmatch(path.encode("latin-1")) and path[:1] in ("/", "*")):
        raise BadHead("the :path is not a path")
    if path is not None and path[0] == "*" and (path, method) != ("*", "OPTIONS"):
        raise BadHead("the :path is not a path")
    hosts = [value for key, value in headers if key == "host"]
    if len(hosts) > 1 or (hosts and pseudo.get(":authority", hosts[0]) != hosts[0]):
        raise BadHead("Host and :authority name two places")
    for key, _ in headers:
        check_spelling(key)
    if any(key == "te" and value.lower() != "trailers" for key, value in headers):
        raise BadHead("TE knows only trailers in HTTP/2")
    length = _length(headers)
    if ended and length:
        raise BadHead("a Content-Length, and no body")
    chunked = not ended and length is None
    head = RequestHead(method, path or "", "2", headers, 0 if ended else length, chunked)
    authority = pseudo.get(":authority", hosts[0] if hosts else None)
    return Asked(head, pseudo.get(":scheme"), authority, pseudo.get(":protocol"))


def read_answer(fields: Fields) -> ResponseHead:
    """The answer of one header block, interim ones included.

    Raises: UpstreamFailed without the peer's bytes in its words.
    """
    try:
        pseudo, headers = _split(fields, (":status",), MAX_ANSWER_HEADERS)
        status = pseudo.get(":status", "")
        if not _STATUS.fullmatch(status) or status == "101":
            raise BadHead("the :status is not one")
        _length(headers)
    except BadHead as bad:
        raise UpstreamFailed(f"the answer is no HTTP: {bad.what}") from bad
    return ResponseHead(int(status), "", headers, "2")


def read_trailers(fields: Fields, *, of_request: bool) -> Headers:
    """The fields after a body.

    Raises: BadHead.
    """
    _, headers = _split(fields, (), MAX_HEADERS)
    if sum(len(key) + len(value) for key, value in headers) > MAX_TRAILERS and of_request:
        raise BadHead("the trailers are too long", 431)
    wrong = [key for key, _ in headers if key in NOT_IN_TRAILERS]
    if wrong and of_request:  # those of an answer are left out later
        raise BadHead(f"the trailer {wrong[0]!r} may not come after the body")
    return headers


def write_request(method: str, target: str, scheme: str, headers: Headers) -> Fields:
    """The header block of a request whose Host is among `headers`."""
    host = next(value for key, value in headers if key.lower() == "host")
    first = ((":method", method), (":scheme", scheme), (":authority", host), (":path", target))
    fields = [(key.encode("ascii"), value.encode("latin-1")) for key, value in first]
    return fields + write_fields(headers, {"host"})


def write_fields(headers: Headers, without: set[str] | frozenset[str] = frozenset()) -> Fields:
    """Fields of a head or of trailers, without those of one connection and those in `without`."""
    dropped = _OF_ONE_CONNECTION | without
    return [
        (key.lower().encode("latin-1"), value.encode("latin-1").strip(b" \t"))
        for key, value in headers
        if key.lower() not in dropped
    ]


def _split(fields: Fields, known: tuple[str, ...], most: int) -> tuple[dict[str, str], Headers]:
    pseudo: dict[str, str] = {}
    headers: list[tuple[str, str]] = []
    cookies: list[str] = []
    for raw_name, raw_value in fields:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        if not VALUE.fullmatch(raw_value) or raw_value.strip(b" \t") != raw_value:
            raise BadHead("a field's value has line ends, control characters or blanks at its ends")
        if name.startswith(":"):
            if name not in known or name in pseudo or headers or cookies:
                raise BadHead("a pseudo-header field is unknown, repeated or out of place")
            pseudo[name] = value
            continue
        if not _NAME.fullmatch(raw_name):
            raise BadHead("a field's name is not a token in lower case")
        if name in _OF_ONE_CONNECTION:
            raise BadHead(f"the field {name!r} has no place in HTTP/2")
        if name == "cookie":
            cookies.append(value)
        else:
            headers.append((name, value))
        if len(headers) > most:
            raise BadHead(f"over {most} header fields", 431)
    return pseudo, (*headers, *([("cookie", "; ".join(cookies))] if cookies else []))


def _length(headers: Headers) -> int | None:
    lengths = [value for key, value in headers if key == "content-length"]
    if len(lengths) > 1 or (lengths and not LENGTH.fullmatch(lengths[0])):
        raise BadHead("Content-Length is repeated or not a plain number")
    return int(lengths[0]) if lengths else None
