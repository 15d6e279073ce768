"""How each door says no, so that the client fails at once and shows the reason where it can.

Guarantees: the code stands in the reason phrase (most clients print it; HTTP/2 has none), in the header
`X-Proxy-Error` and in a JSON body; a TLS client gets the alert access_denied; nothing hangs. Never 407: there
is no password to ask for.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import re
import socket
import struct
from dataclasses import dataclass

from fumehood.broker._head import MAX_HEAD
from fumehood.broker._hello import ACCESS_DENIED, alert, looks_like_tls
from fumehood.broker._target import readable
from fumehood.broker._types import EgressRefused
from fumehood.policies.reasons import reason as reason_of

HTTP_1_1_REQUIRED = 0xD  # RFC 9113 section 7
_SETTINGS, _GOAWAY = 4, 7  # frame types, RFC 9113 section 6
LINGER = 1.0  # seconds a refused client has to read its answer before the connection is reset
_STATUS = {
    "malformed": 400,
    "ambiguous-url": 400,
    "budget-bytes": 413,
    "budget-rate": 429,
    "no-answer": 502,
    "upstream": 502,
    "budget-time": 504,
}
_METHODS = (b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"PATCH ", b"OPTIONS ", b"PRI * HTTP/2")


def looks_like_http(data: bytes) -> bool | None:
    """Whether the first bytes start an HTTP request line; None while there are too few to tell."""
    if data.startswith(_METHODS):
        return True
    line, ended, _ = data[:MAX_HEAD].lstrip(b"\r\n").partition(b"\n")
    if not re.match(rb"(?:[A-Za-z][A-Za-z-]{0,19})?(?: |$)", line):
        return False
    if not ended and len(data) < MAX_HEAD:
        return None
    return line.rstrip(b"\r").endswith((b" HTTP/1.1", b" HTTP/1.0"))


@dataclass(frozen=True, slots=True)
class RefusalAnswer:
    """What a refused HTTP request is told, whichever version frames it."""

    status: int
    code: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


def refusal_answer(refused: EgressRefused, *, status: int | None = None) -> RefusalAnswer:
    """The answer for a refused HTTP request or CONNECT."""
    decision = refused.decision
    code = decision.reason or "malformed"
    number = status or _STATUS.get(code, 403)
    verb = "EGRESS_FAILED" if number in (502, 504) else "EGRESS_DENIED"
    body = json.dumps(
        {
            "error": f"{verb} {code}",
            "reason": code,
            "message": reason_of(code).model,
            "host": decision.host,
            "port": decision.port,
            "hint": decision.hint or None,
            "detail": readable(decision.detail) or None,
            "event_id": refused.event_id,
        }
    ).encode()
    headers = [
        ("X-Proxy-Error", f"{verb} {code}"),
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(body))),
    ]
    if refused.retry_after is not None:
        headers.append(("Retry-After", str(max(1, math.ceil(refused.retry_after)))))
    return RefusalAnswer(number, f"{verb} {code}", tuple(headers), body)


def http_refusal(refused: EgressRefused, *, status: int | None = None) -> bytes:
    """The whole answer in HTTP/1.1."""
    answer = refusal_answer(refused, status=status)
    lines = [f"HTTP/1.1 {answer.status} {answer.code}"]
    lines += [f"{key}: {value}" for key, value in (*answer.headers, ("Connection", "close"))]
    return "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + answer.body


def h2_refusal(words: str) -> bytes:
    """For a client that speaks HTTP/2 where it must not: SETTINGS, then GOAWAY with HTTP_1_1_REQUIRED.

    RFC 9113 sections 6.5, 6.8 and 7; a client library that knows the code falls back.
    """
    payload = struct.pack("!II", 0, HTTP_1_1_REQUIRED) + words.encode("ascii", "replace")
    return _frame(_SETTINGS, b"") + _frame(_GOAWAY, payload)


def _frame(kind: int, payload: bytes) -> bytes:
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, 0, 0) + payload


def raw_refusal(first: bytes, refused: EgressRefused) -> bytes:
    """What to send to a client that opened with `first`: an alert, an answer, or nothing."""
    if looks_like_tls(first):
        return alert(ACCESS_DENIED)
    return http_refusal(refused) if looks_like_http(first) else b""


async def send_and_close(sock: socket.socket, data: bytes) -> None:
    """Send a refusal and close so that the client can read it:

    a close with unread bytes would reset and lose it.
    """
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(LINGER):
            if data:
                await loop.sock_sendall(sock, data)
            sock.shutdown(socket.SHUT_WR)
            while await loop.sock_recv(sock, 65536):
                await asyncio.sleep(0)  # a client that sends on and on must not keep the deadline from coming
    sock.close()
