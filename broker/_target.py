"""What a request points at: our own strict grammar, which a second parser must agree with.

Guarantees: a `Target` has one reading. Our grammar decides; then ada (the WHATWG parser of browsers) reads
the same text, and any difference in scheme, host, port or path is `ambiguous-url`. Only the re-serialised
form is ever sent, never the text that came in. A text that our grammar refuses while ada reads a host in it
is `ambiguous-url` as well (somebody would follow it); one that neither reads is `malformed`; a scheme that
the broker does not speak is `scheme`.
Before editing: no single parser is safe to accept with (urllib, httpx, yarl and ada read
`http://good\\@evil/` as two hosts).
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Literal

from fumehood.policies.names import BadHost, Host, canonical_host
from fumehood.policies.rules import DEFAULT_PORTS

MAX_URL = 16 * 1024  # longer than any server takes; bounds the work before anything is decided
_REMEMBERED = 512  # characters of a URL whose target is remembered
MAX_SHOWN = 300  # characters of a message that a request has a part in
_SHAPE = re.compile(
    r"(https?)://([^/?#]*)(/[^?#]*)?(?:\?([^#]*))?(?:#.*)?", re.IGNORECASE | re.ASCII | re.DOTALL
)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.ASCII | re.DOTALL)
_PORT = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
_FORBIDDEN = re.compile(
    r"[\x00-\x20\x7f\\]"
)  # controls, blank, backslash: dropped, kept or turned to / by different parsers
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})", re.ASCII)
_ENCODE_IN_PATH = re.compile(r"[^!$%&'()*+,\-./0-9:;=@A-Z\[\]_a-z|~]+")
_ENCODE_IN_QUERY = re.compile(r"[^!$%&()*+,\-./0-9:;=?@A-Z_a-z~]+")

Kind = Literal["https", "http", "tunnel"]


def readable(text: str, most: int = MAX_SHOWN) -> str:
    """`text` for a model or a person: a long one without its middle, so that what is wrong and the remedy,
    which stand at the ends, are still read.
    """
    if len(text) <= most:
        return text
    return f"{text[: most * 2 // 3]}… ({len(text)} characters) …{text[-most // 4 :]}"


class BadTarget(ValueError):
    """A text that names no target, or more than one.

    reason: `malformed`, `ambiguous-url` or `scheme`; str() says what is wrong.
    """

    def __init__(self, reason: str, what: str) -> None:
        self.reason = reason
        self.what = readable(what)
        super().__init__(self.what)


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes. scheme: "tunnel" when only host and port are known (CONNECT, SOCKS, a transparent
    connection).

    path: dot segments resolved, percent-encoded. query: without its question mark, None when there is none.
    """

    scheme: Kind
    host: Host
    port: int
    path: str = "/"
    query: str | None = None

    @property
    def request_target(self) -> str:
        """What stands in the request line in origin form."""
        return self.path if self.query is None else f"{self.path}?{self.query}"

    @property
    def authority(self) -> str:
        """The value of a Host header: host, and the port unless it is the scheme's own."""
        at = "" if self.port == DEFAULT_PORTS.get(self.scheme) else f":{self.port}"
        return f"{self.host.in_url}{at}"

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port: what credentials are bound to."""
        return self.scheme, self.host.text, self.port

    @property
    def url(self) -> str:
        """The re-serialised URL, or host:port for a tunnel."""
        if self.scheme == "tunnel":
            return f"{self.host.in_url}:{self.port}"
        return f"{self.scheme}://{self.authority}{self.request_target}"


def parse_url(text: str) -> Target:
    """The one target that `text` names.

    Raises: BadTarget with reason `malformed`, `ambiguous-url` or `scheme`.
    """
    return _parsed(text) if len(text) <= _REMEMBERED else _parse_url(text)


@functools.lru_cache(maxsize=512)  # a function of the text alone, asked for each message of a connection
def _parsed(text: str) -> Target:
    return _parse_url(text)


def _parse_url(text: str) -> Target:
    if len(text) > MAX_URL:
        raise BadTarget("malformed", f"the URL has {len(text)} characters, over {MAX_URL}")
    try:
        target = _strict(text)
    except BadTarget as bad:
        seen = _second_reading(text) if bad.reason == "malformed" else None
        if seen is not None and not _reads_as_written(seen, text):
            raise BadTarget(
                "ambiguous-url", f"{bad.what}; another parser would read the host {seen[1]!r}"
            ) from None
        raise
    seen = _second_reading(text)
    ours = (target.scheme, target.host.in_url, target.port, target.path)
    if seen is None:
        raise BadTarget("ambiguous-url", f"another parser reads no host where one reads {ours[1]!r}")
    for part, mine, theirs in zip(("scheme", "host", "port", "path"), ours, seen, strict=True):
        if mine != theirs:
            mine, theirs = (readable(str(one), 100) for one in (mine, theirs))
            raise BadTarget("ambiguous-url", f"one parser reads the {part} {mine!r} and another {theirs!r}")
    return target


def parse_authority(text: str) -> Target:
    """The tunnel target of `host:port`, the form of CONNECT and of SOCKS requests.

    Raises: BadTarget `malformed`.
    """
    if len(text) > 512 or _FORBIDDEN.search(text):
        raise BadTarget("malformed", f"{text[:80]!r} is not host:port")
    for char, what in (
        ("@", "user names have no place here"),
        ("/", "this is not a URL but host:port"),
        ("%", "no escapes"),
    ):
        if char in text:
            raise BadTarget("malformed", f"{text!r} is not host:port: {what}")
    host, port = host_and_port(text)
    if port is None:
        raise BadTarget("malformed", f"{text!r} names no port; write {host.in_url}:443")
    return Target("tunnel", host, port)


def target_of(host_text: str, port: int) -> Target:
    """The tunnel target of a host and a port that came apart (SOCKS, DNS). IPv6 literals stand in brackets.

    Raises: BadTarget `malformed`.
    """
    if not 0 < port < 65536:
        raise BadTarget("malformed", f"the port {port} is not from 1 to 65535")
    return Target("tunnel", _host(host_text), port)


def resolve_location(base: Target, location: str) -> Target:
    """Where a Location header leads, read by the same grammar.

    Raises: BadTarget; `ambiguous-url` for backslashes and for what parsers join in different ways.
    """
    text = location.strip(" \t")
    if "\\" in text:
        raise BadTarget("ambiguous-url", f"the redirect to {text[:200]!r} has a backslash")
    if _FORBIDDEN.search(text) or not text:
        raise BadTarget("malformed", f"the redirect to {text[:200]!r} has controls or blanks, or is empty")
    text = text.partition("#")[0]
    root = f"{base.scheme}://{base.authority}"
    if _SCHEME.match(text) and not re.match(r"[^:]*[/?]", text):
        return parse_url(text)
    if text.startswith("//"):
        return parse_url(f"{base.scheme}:{text}")
    if text.startswith("/"):
        return parse_url(root + text)
    if not text or text.startswith("?"):
        return parse_url(f"{root}{base.path}{text}" if text else base.url)
    return parse_url(f"{root}{base.path.rpartition('/')[0]}/{text}")


def _strict(text: str) -> Target:
    scheme_match = _SCHEME.fullmatch(text)
    shape = _SHAPE.fullmatch(text)
    if shape is None:
        if (
            scheme_match
            and scheme_match[1].lower() not in ("http", "https")
            and not re.match(r"[0-9]", scheme_match[2])
        ):
            raise BadTarget("scheme", f"the broker speaks http and https, not {scheme_match[1].lower()!r}")
        raise BadTarget("malformed", f"{text[:200]!r} is not scheme://host/path")
    scheme: Literal["https", "http"] = "https" if shape[1].lower() == "https" else "http"
    authority, path, query = shape[2], shape[3] or "/", shape[4]
    if found := _FORBIDDEN.search(text):
        raise BadTarget("malformed", f"the URL has {found[0]!r} at {found.start()}; percent-encode it")
    if "@" in authority:
        raise BadTarget(
            "malformed", "a URL with a user name is refused; credentials come from the configuration"
        )
    host, port = host_and_port(authority)
    if _BAD_ESCAPE.search(path) or (query and _BAD_ESCAPE.search(query)):
        raise BadTarget("malformed", "the URL has a % that starts no escape; write %25")
    try:
        path = _ENCODE_IN_PATH.sub(_percent, path)
        query = None if query is None else _ENCODE_IN_QUERY.sub(_percent, query)
    except UnicodeEncodeError:
        raise BadTarget("malformed", "the URL has half of a surrogate pair") from None
    return Target(scheme, host, port or DEFAULT_PORTS[scheme], _without_dots(path), query)


def host_and_port(authority: str) -> tuple[Host, int | None]:
    """The parts of `host[:port]`. Raises: BadTarget `malformed`."""
    if authority.startswith("["):
        end = authority.find("]")
        host_text, rest = authority[: end + 1], authority[end + 1 :]
        if end < 0 or (rest and not rest.startswith(":")):
            raise BadTarget("malformed", f"{authority!r} has brackets that do not hold an IPv6 address")
        port_text = rest[1:] if rest else None
    else:
        if authority.count(":") > 1:
            raise BadTarget(
                "malformed", f"{authority!r}: an IPv6 address needs brackets, as in [2001:db8::1]:443"
            )
        host_text, colon, tail = authority.partition(":")
        port_text = tail if colon else None
    host = _host(host_text)
    if port_text is None:
        return host, None
    if not _PORT.fullmatch(port_text) or int(port_text) > 65535:
        raise BadTarget("malformed", f"the port {port_text!r} is not a plain number from 1 to 65535")
    return host, int(port_text)


def _host(text: str) -> Host:
    try:
        return canonical_host(text)
    except BadHost as error:
        raise BadTarget("malformed", str(error)) from None


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8"))


def _without_dots(path: str) -> str:
    """RFC 3986 section 5.2.4, with %2e counted as a dot as WHATWG does."""
    out: list[str] = []
    segments = path.split("/")[1:]
    for index, segment in enumerate(segments):
        plain = segment.lower().replace("%2e", ".") if len(segment) <= 6 else segment
        if plain == "..":
            del out[-1:]
        if plain not in (".", ".."):
            out.append(segment)
        elif index == len(segments) - 1:
            out.append("")
    return "/" + "/".join(out)


def _reads_as_written(seen: tuple[str, str, int, str], text: str) -> bool:
    """Whether the other parser took host and path letter by letter, so that the text is merely bad and not
    two-faced.
    """
    scheme, host, port, path = seen
    plain = re.split(r"[?#]", text.lower(), maxsplit=1)[0]
    return plain in (f"{scheme}://{host}{path}".lower(), f"{scheme}://{host}:{port}{path}".lower())


def _second_reading(text: str) -> tuple[str, str, int, str] | None:
    """Scheme, host, port and path as ada reads them; None when it reads no http(s) host."""
    from ada_url import URL  # 15 ms

    try:
        url = URL(text)
        scheme = url.protocol.rstrip(":")
        port = int(url.port) if url.port else DEFAULT_PORTS.get(scheme, 0)
        if scheme not in DEFAULT_PORTS or not url.hostname:
            return None
        return scheme, url.hostname.removesuffix("."), port, url.pathname
    except (ValueError, UnicodeError):
        return None
