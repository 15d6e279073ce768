"""What a tool asks of `ctx.fetch`, checked, and the head that is sent for it; pure.

Guarantees: what could change framing, routing or credentials behind the decision is refused; Host, hop-by-hop
and proxy headers come from the broker alone; what the tool set for one origin does not follow a redirect to
another.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from fumehood.broker._decode import codings
from fumehood.broker._exchange import Headers
from fumehood.broker._meant import alike
from fumehood.broker._target import BadTarget, Target

MAX_HEADERS = 100  # header lines a tool may send
MAX_HEADER_BYTES = 32 * 1024  # and their bytes in all
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}", re.ASCII)
_METHOD = re.compile(r"[A-Z][A-Z-]{0,19}", re.ASCII)
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
# RFC 9110 section 7.6.1 and what belongs to proxies and framing: the broker writes these itself.
BROKER_HEADERS = frozenset(
    {
        "host",
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
        "http2-settings",
    }
)
# What may follow a redirect to another origin: nothing that could be a credential.
_FOLLOWS = frozenset(
    {
        "accept",
        "accept-charset",
        "accept-encoding",
        "accept-language",
        "range",
        "user-agent",
        "content-type",
        "content-language",
        "content-encoding",
    }
)


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """What a tool asks for.

    timeout_s: seconds for the whole fetch, at most what rule and host allow. follow: follow redirects.
    """

    method: str
    url: str
    headers: Headers = ()
    body: bytes = b""
    timeout_s: float | None = None
    follow: bool = True


def check_request(request: FetchRequest, most: int) -> None:
    """Refuse what could change framing, routing or credentials behind the decision.

    Raises: BadTarget `malformed`.
    """
    if not _METHOD.fullmatch(request.method) or request.method in ("CONNECT", "TRACE"):
        raise BadTarget("malformed", f"the method {request.method[:40]!r} is none that ctx.fetch sends")
    if len(request.headers) > MAX_HEADERS:
        raise BadTarget("malformed", f"{len(request.headers)} headers, over {MAX_HEADERS}")
    if sum(len(name) + len(value) for name, value in request.headers) > MAX_HEADER_BYTES:
        raise BadTarget("malformed", f"over {MAX_HEADER_BYTES} bytes of headers")
    seen: set[str] = set()
    for name, value in request.headers:
        lower = alike(name)
        if not _TOKEN.fullmatch(name):
            raise BadTarget("malformed", f"{name[:40]!r} is not a header name")
        if not _VALUE.fullmatch(value):
            raise BadTarget("malformed", f"the header {name!r} has a control character in its value")
        if lower in BROKER_HEADERS or lower.startswith("proxy-"):
            raise BadTarget("malformed", f"the header {name!r} is set by the broker, not by the tool")
        if lower == "content-length" and value != str(len(request.body)):
            raise BadTarget("malformed", "Content-Length differs from the body")
        if lower in ("authorization", "content-length", "content-type") and lower in seen:
            raise BadTarget("malformed", f"the header {name!r} stands twice")
        seen.add(lower)


def outgoing(target: Target, method: str, headers: Headers, body: bytes) -> Headers:
    """The head that is sent: Host first and from the decision, then the tool's, then what is missing."""
    names = {name.lower() for name, _ in headers}
    out = [
        ("Host", target.authority),
        *((name, value) for name, value in headers if name.lower() != "content-length"),
    ]
    if "accept-encoding" not in names:
        out.append(("Accept-Encoding", _accepted()))
    if "user-agent" not in names:
        out.append(("User-Agent", "fumehood"))
    if "accept" not in names:
        out.append(("Accept", "*/*"))
    if body or method in ("POST", "PUT", "PATCH"):
        out.append(("Content-Length", str(len(body))))
    return tuple(out)


@functools.cache
def _accepted() -> str:
    return ", ".join(codings())


def location_text(value: str) -> str:
    """A Location header as text: UTF-8 where its bytes are that, as most servers mean them; the bytes of
    another coding in percent, as browsers send them on (WHATWG URL).
    """
    if value.isascii():
        return value
    raw = value.encode("latin-1")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return "".join(chr(byte) if byte < 128 else f"%{byte:02X}" for byte in raw)


def next_request(
    status: int, method: str, headers: Headers, body: bytes, target: Target, following: Target
) -> tuple[str, Headers, bytes]:
    """Method, headers and body of the next hop:

    RFC 9110 section 15.4 for the method, ours for what may cross origins.
    """
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, body = "GET", b""
        headers = tuple((name, value) for name, value in headers if not name.lower().startswith("content-"))
    if target.origin != following.origin:
        headers = tuple((name, value) for name, value in headers if name.lower() in _FOLLOWS)
    return method, headers, body
