"""The ordinary answer of an HTTP/1.1 server, read in one go: most answers are one, and h11 takes a tenth of a
millisecond for each.

Guarantees: what is read here is read as h11 reads it (a property test compares them), and anything unusual is
None, which means "ask h11": another version, an interim answer, a folded line, a control character, a
transfer coding, a length that is repeated, missing or not plain, a head that is not complete.
"""

from __future__ import annotations

import re
from typing import NamedTuple

Pairs = tuple[tuple[str, str], ...]
_HEAD = re.compile(
    r"HTTP/1\.1 ([2-5][0-9][0-9]) ([\t\x20-\x7e\x80-\xff]*)\r\n"
    r"((?:[A-Za-z0-9!#$%&'*+.^_`|~-]+:[\t\x20-\x7e\x80-\xff]*\r\n)*)\r\n"
)
_LINE = re.compile(r"([^:\r\n]+):([^\r\n]*)\r\n")
_LENGTH = re.compile(r"[0-9]{1,15}", re.ASCII)
_SEND_LINE = re.compile(
    r"[A-Za-z0-9!#$%&'*+.^_`|~-]+: (?:[\x21-\x7e\x80-\xff]+(?:[ \t]+[\x21-\x7e\x80-\xff]+)*)?"
)
_REQUEST_LINE = re.compile(r"[A-Z]+ [\x21-\x7e]+ HTTP/1\.1", re.ASCII)
# What h11 gives a meaning to in a request: with one of these it frames, and this module does not.
_FRAMING = frozenset({"connection", "transfer-encoding", "expect", "upgrade"})


class PlainAnswer(NamedTuple):
    """One head. at: where the body begins. length: bytes of the body. keep: the peer keeps the connection."""

    status: int
    phrase: str
    headers: Pairs
    at: int
    length: int
    keep: bool


def read_plain(data: bytes, method: str, *, most_bytes: int, most_lines: int) -> PlainAnswer | None:
    """The answer whose whole head is at the start of `data`, when it is an ordinary one."""
    end = data.find(b"\r\n\r\n")
    if not 0 < end <= most_bytes // 2:
        return None
    found = _HEAD.fullmatch(data[: end + 4].decode("latin-1"))
    if found is None:
        return None
    headers = tuple((name, value.strip(" \t")) for name, value in _LINE.findall(found[3]))
    if len(headers) > most_lines:
        return None
    status, length, keep = int(found[1]), "", True
    for name, value in headers:
        lower = name.lower()
        if lower == "content-length":
            if length or not _LENGTH.fullmatch(value):
                return None
            length = value
        elif lower == "connection":
            keep = keep and "close" not in [option.strip() for option in value.lower().split(",")]
        elif lower in ("transfer-encoding", "upgrade"):
            return None
    if method == "HEAD" or status in (204, 304):
        length = "0"
    elif not length:
        return None
    return PlainAnswer(status, found[2], headers, end + 4, int(length), keep)


def write_plain(method: str, target: str, headers: Pairs, body: bytes) -> bytes | None:
    """Head and body of an ordinary request; None for what h11 should look at, or refuse."""
    first = f"{method} {target} HTTP/1.1"
    if not _REQUEST_LINE.fullmatch(first) or method == "CONNECT":
        return None
    lines, hosts, length = [first], 0, ""
    for name, value in headers:
        line = f"{name}: {value}"
        lower = name.lower()
        if lower in _FRAMING or not _SEND_LINE.fullmatch(line):
            return None
        if lower == "host":
            hosts += 1
        elif lower == "content-length":
            if length:
                return None
            length = value
        lines.append(line)
    if hosts != 1 or (length or "0") != str(len(body)):
        return None
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body
