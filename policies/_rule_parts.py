"""The parts of an egress rule: scheme, host, port, path, methods, sizes, rates, secrets, each checked where
it is read.

Guarantees: a part that comes back is canonical; anything else raises `Wrong` with the corrected text where
one is known.
Not here: how parts combine (rules.py), and what a rule allows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fumehood.policies.names import BadHost, canonical_host
from fumehood.policies.sizes import parse_size

Scheme: TypeAlias = Literal["https", "http", "tcp", "any"]
DEFAULT_PORTS: Mapping[str, int] = {"https": 443, "http": 80}
_ALIASES: Mapping[str, Scheme] = {"wss": "https", "ws": "http"}
_HINT_PORTS: Mapping[str, int] = {
    "ftp": 21,
    "ssh": 22,
    "postgres": 5432,
    "postgresql": 5432,
    "redis": 6379,
    "mysql": 3306,
}
_PORT = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
METHOD = re.compile(r"[A-Z][A-Z-]{0,19}", re.ASCII)
_RATE = re.compile(r"([0-9]{1,6})/(s|m|h)", re.ASCII)
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}", re.ASCII)
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]{0,63})\}", re.ASCII)
_PATH = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@/%-]*", re.ASCII)
_NEVER_INJECTED = frozenset(
    [
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "upgrade",
        "proxy-authorization",
        "proxy-connection",
        "expect",
    ]
)


class Wrong(Exception):
    """What is wrong with a rule and, where known, the rule that was meant."""

    def __init__(self, what: str, fixed: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.fixed = fixed


@dataclass(frozen=True, slots=True)
class SecretHeader:
    """A header that the broker fills in for one rule's origin, and that the tool neither sees nor sets.

    header: its name. value: template such as "Bearer {PROM_TOKEN}"; empty means reserved (the tool's own
    value is dropped, none put in).
    """

    header: str
    value: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The secrets that the template needs, in order."""
        return tuple(_PLACEHOLDER.findall(self.value))


def read_scheme(text: str, rest: str) -> tuple[Scheme, bool]:
    lower = text.lower()
    if lower in _ALIASES:
        return _ALIASES[lower], True
    if lower in ("https", "http", "tcp"):
        return lower, False  # type: ignore[return-value]  # one of the three just named
    port = f":{_HINT_PORTS[lower]}" if lower in _HINT_PORTS and ":" not in rest else ""
    raise Wrong(
        f"the scheme {text!r} is none of https, http, tcp, wss, ws",
        f"tcp://{rest.partition('/')[0]}{port}" if port else None,
    )


def split_port(authority: str, target: str) -> tuple[str, str | None]:
    if authority.startswith("["):
        host, bracket, rest = authority.partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise Wrong("the brackets of the IPv6 address do not close before the port", None)
        return host + bracket, rest[1:] if rest else None
    if authority.count(":") > 1:
        address, _, port = authority.rpartition(":")
        raise Wrong(
            "an IPv6 address needs brackets",
            target.replace(
                authority,
                f"[{address.rstrip(':') or authority}]:{port}"
                if port.isdigit() and len(port) > 2
                else f"[{authority}]",
            ),
        )
    host, colon, port = authority.partition(":")
    return host, port if colon else None


def read_port(text: str, target: str) -> int:
    if text == "*":
        raise Wrong("a port is one number; write one rule for each port")
    if not _PORT.fullmatch(text) or int(text) > 65535:
        plain = text.lstrip("0+")
        good = plain if _PORT.fullmatch(plain) and int(plain) <= 65535 else None
        raise Wrong(
            f"the port {text!r} is not a number from 1 to 65535",
            target.replace(f":{text}", f":{good}") if good else None,
        )
    return int(text)


def read_host(text: str, target: str) -> str:
    prefix, name = "", text
    if text == "*":
        return "*"
    if text.startswith("*."):
        prefix, name = "*.", text[2:]
    elif text.startswith("."):
        raise Wrong("a leading dot is not a wildcard", target.replace(text, f"*{text}", 1))
    elif text.startswith("*"):
        raise Wrong("a wildcard is a whole label", target.replace(text, f"*.{text.lstrip('*.-')}", 1))
    if "*" in name:
        raise Wrong("a wildcard stands only in front, as *.x (any depth below x) or * (any ordinary name)")
    try:
        host = canonical_host(name)
    except BadHost as error:
        raise Wrong(str(error)) from error
    if prefix and host.is_literal:
        raise Wrong("a wildcard never covers addresses; list each literal")
    return prefix + host.text


def read_path(path: str, target: str) -> str | None:
    if path == "/":
        return None
    if path.endswith("/*"):
        raise Wrong("a path is a prefix already and takes no star", target[:-1])
    segments = path.split("/")
    lowered = path.lower()
    if not _PATH.fullmatch(path) or re.search(r"%(?![0-9a-f]{2})", lowered):
        raise Wrong(f"the path {path!r} has characters that must be percent-encoded")
    if "." in segments or ".." in segments or "" in segments[1:-1] or re.search("%2e|%2f|%5c|%00", lowered):
        raise Wrong(
            f"the path {path!r} has empty, dot or escaped segments, which servers read in different ways"
        )
    return path


def read_methods(words: list[str], target: str) -> frozenset[str]:
    names = [name for name in re.split(r"[,\s]+", ",".join(words)) if name]
    good = ",".join(names).upper()
    if len(words) != 1 or not names or any(not METHOD.fullmatch(name) for name in words[0].split(",")):
        usable = all(METHOD.fullmatch(name.upper()) for name in names) and names
        raise Wrong(f"{' '.join(words)!r} is not a list of methods", f"{good} {target}" if usable else None)
    return frozenset(names)


def _size(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    try:
        size = parse_size(value) if isinstance(value, str) else 0
    except ValueError as error:
        raise Wrong(str(error)) from error
    if size <= 0:
        raise Wrong(f'{value!r} is not a size such as "8 MiB"')
    return size


def _rate(value: object) -> float:
    match = _RATE.fullmatch(value) if isinstance(value, str) else None
    if not match or int(match[1]) == 0:
        raise Wrong(f"the rate {value!r} is not a number of requests a second, minute or hour", "10/s")
    return int(match[1]) / {"s": 1, "m": 60, "h": 3600}[match[2]]


def rate_text(rate: float) -> str:
    for unit, seconds in (("s", 1), ("m", 60), ("h", 3600)):
        if abs(rate * seconds - round(rate * seconds)) < 1e-9:
            return f"{round(rate * seconds)}/{unit}"
    raise AssertionError(f"no rate was written as {rate}")


def _count(value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:9])
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise Wrong(f"{value!r} is not a whole number above 0")
    return value


def _seconds(value: object) -> float:
    try:
        seconds = (
            float(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else 0.0
        )
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 86400:
        raise Wrong(f"{value!r} is not a time of up to 86400 seconds")
    return seconds


VALUE_READERS: Mapping[str, Callable[[object], object]] = {
    "max_request": _size,
    "max_response": _size,
    "rate": _rate,
    "max_connections": _count,
    "timeout": _seconds,
}


def reserved_header(header: str) -> SecretHeader:
    return read_secret({"header": header, "value": ""}, reserve=True)


def read_secret(value: object, *, reserve: bool = False) -> SecretHeader:
    if not isinstance(value, Mapping) or set(value) != {"header", "value"}:
        raise Wrong('\'secret\' is { header = "Authorization", value = "Bearer {NAME}" }')
    header, template = value["header"], value["value"]
    if not isinstance(header, str) or not _TOKEN.fullmatch(header) or header.lower() in _NEVER_INJECTED:
        raise Wrong(f"the secret's header {header!r} is not one that can be filled in", "Authorization")
    if reserve:
        return SecretHeader(header)
    if (
        not isinstance(template, str)
        or not template.isascii()
        or not template.isprintable()
        or not _PLACEHOLDER.search(template)
    ):
        raise Wrong(f"the secret's value {template!r} names no secret", "Bearer {NAME}")
    if re.search(r"[{}]", _PLACEHOLDER.sub("", template)):
        raise Wrong(f"the secret's value {template!r} has a brace that opens or closes nothing")
    return SecretHeader(header, template)
