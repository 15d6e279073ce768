"""Egress rules: what an operator writes, parsed once into a frozen value.

Guarantees: a rule that parses has a canonical host, a port, and no part that its scheme cannot enforce
(methods on `tcp://` are an error, not a silent pass). Every error gives the corrected rule where one is
known. `parse_rule(rule.canonical) == rule` up to spelling and place.
Not here: whether a request is allowed (fumehood.broker) or an address is public; a rule only says which host
it covers.
Before editing: allow and deny entries share the syntax; where they differ (`deny=True`) the deny side always
covers more.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fumehood.policies._rule_parts import (
    DEFAULT_PORTS,
    METHOD,
    VALUE_READERS,
    Scheme,
    SecretHeader,
    Wrong,
    rate_text,
    read_host,
    read_methods,
    read_path,
    read_port,
    read_scheme,
    read_secret,
    reserved_header,
    split_port,
)
from fumehood.policies.errors import RuleError
from fumehood.policies.names import Host, is_ordinary_name

__all__ = [
    "DEFAULT_PORTS",
    "EVERY_PORT",
    "NEEDS_INSPECTION",
    "EgressRule",
    "Scheme",
    "SecretHeader",
    "for_programs",
    "parse_rule",
]

NEEDS_INSPECTION = "methods, paths and secrets hold inside the TLS of a program only with inspection"
EVERY_PORT = 0  # only in a deny entry that names neither scheme nor port
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class EgressRule:
    """One entry of `egress` or `deny`.

    text: as the operator wrote it. host: canonical ASCII; "*.x", "*" or a literal. port: 1 to 65535, or
    EVERY_PORT in a deny entry.
    methods: None means all. paths: prefixes; empty means all. max_request, max_response: bytes. rate:
    requests a second.
    timeout: seconds for one exchange or tunnel. inspect: TLS is opened and read by the broker. websocket:
    Upgrade is allowed.
    where: file and key path, for messages; not part of equality.
    """

    text: str = field(compare=False)
    scheme: Scheme
    host: str
    port: int
    methods: frozenset[str] | None = None
    paths: tuple[str, ...] = ()
    private: bool = False
    secret: SecretHeader | None = None
    max_request: int | None = None
    max_response: int | None = None
    rate: float | None = None
    max_connections: int | None = None
    timeout: float | None = None
    inspect: bool = False
    websocket: bool = False
    deny: bool = False
    where: str = field(default="", compare=False)

    @property
    def path(self) -> str | None:
        """The only path prefix, None when every path is meant (or when there are several: see `paths`)."""
        return self.paths[0] if len(self.paths) == 1 else None

    @property
    def is_limited(self) -> bool:
        """Whether the rule looks inside HTTP:

        methods, paths or a secret. An opaque tunnel cannot satisfy it.
        """
        return self.methods is not None or bool(self.paths) or self.secret is not None

    @property
    def needs_inspection(self) -> bool:
        """Whether only `ctx.fetch` can use the rule as it stands:

        a program's own TLS would have to be opened for it, and the rule does not ask for that.
        """
        return self.scheme == "https" and self.is_limited and not self.inspect

    @property
    def target(self) -> tuple[Scheme, str, int]:
        """Scheme, host and port: what `private` entries are matched to their `egress` entry by."""
        return self.scheme, self.host, self.port

    @property
    def canonical(self) -> str:
        """The rule in string form, defaults left out;

        what has no string form (paths beyond the first, a secret's value) is left out.
        """
        words = [",".join(sorted(self.methods))] if self.methods is not None else []
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port in (EVERY_PORT, DEFAULT_PORTS.get(self.scheme)) else f":{self.port}"
        scheme = "" if self.scheme == "any" else f"{self.scheme}://"
        words.append(f"{scheme}{host}{port}{self.paths[0] if self.paths else ''}")
        words += ["+private"] * self.private + ["+inspect"] * self.inspect + ["+ws"] * self.websocket
        words += [f"+inject={self.secret.header}"] if self.secret else []
        words += [
            f"+{key}={getattr(self, key)}"
            for key in ("max_request", "max_response")
            if getattr(self, key) is not None
        ]
        words += [f"+rate={rate_text(self.rate)}"] if self.rate is not None else []
        words += [f"+max_connections={self.max_connections}"] if self.max_connections is not None else []
        words += [f"+timeout={self.timeout:g}"] if self.timeout is not None else []
        return " ".join(words)

    def covers(self, host: Host) -> bool:
        """Whether this entry's host part covers `host`. `*.x` is any depth below x and never x; `*` never
        covers a literal or a site name.

        In a deny entry `*` covers everything there is.
        """
        if self.host == "*":
            return self.deny or is_ordinary_name(host)
        if self.host.startswith("*."):
            return host.kind == "name" and host.text.endswith(self.host[1:])
        return host.text == self.host

    def __str__(self) -> str:
        return self.text


def parse_rule(value: str | Mapping[str, object], *, where: str = "", deny: bool = False) -> EgressRule:
    """The rule that a configuration entry means.

    value: the string form `[METHODS ][scheme://]host[:port][/path-prefix][ +flag...]` or the table form
    (contract section 2).
    where: file and key path for messages. deny: read it as an entry of `deny`, where no scheme and no port
    means every port.
    Raises: RuleError with place, value and corrected value.
    """
    try:
        rule = _from_text(value, deny) if isinstance(value, str) else _from_table(value, deny)
        _check(rule)
    except Wrong as wrong:
        place = f"{where}: " if where else ""
        shown = value if isinstance(value, str) else dict(value)
        fix = f"; write {wrong.fixed!r}" if wrong.fixed else ""
        raise RuleError(f"{place}egress rule {shown!r}: {wrong.what}{fix}") from wrong
    return replace(rule, where=where)


def for_programs(rules: tuple[EgressRule, ...]) -> tuple[EgressRule, ...]:
    """The rules, for something that has no `ctx.fetch`.

    Raises: RuleError for one that could not let anything through.
    """
    for rule in rules:
        if rule.needs_inspection:
            place = f"{rule.where}: " if rule.where else ""
            raise RuleError(
                f"{place}egress rule {rule.text!r}: {NEEDS_INSPECTION}",
                hint="add +inspect to the rule, or inspect = true where it is a table",
            )
    return rules


def _from_text(text: str, deny: bool) -> EgressRule:
    if any(ord(char) < 32 or ord(char) == 127 for char in text):
        raise Wrong("control characters have no place in a rule")
    words = text.split()
    flags: dict[str, object] = {}
    while words and words[-1].startswith("+"):
        key, value = _flag(words.pop()[1:])
        if key in flags:
            raise Wrong(f"the flag +{key} stands twice")
        flags[key] = value
    methods = None
    if len(words) > 1:
        methods = read_methods(words[:-1], words[-1])
    if not words:
        raise Wrong("it names no host", "api.example.com")
    scheme, websocket, host, port, path = _target(words[-1], deny)
    if websocket:
        flags["websocket"] = True
    return EgressRule(
        text=" ".join(text.split()),
        scheme=scheme,
        host=host,
        port=port,
        methods=methods,
        paths=(path,) if path else (),
        deny=deny,
        **flags,  # type: ignore[arg-type]  # each value was made for its field by _flag
    )


def _target(target: str, deny: bool) -> tuple[Scheme, bool, str, int, str | None]:
    scheme_text, rest = "", target
    if half := re.fullmatch(r"([A-Za-z]{2,10}):/([^/].*)", target):
        raise Wrong("a scheme ends in two slashes", f"{half[1]}://{half[2]}")
    if match := _SCHEME.fullmatch(target):
        scheme_text, rest = match[1], match[2]
    scheme, websocket = read_scheme(scheme_text, rest) if scheme_text else (None, False)
    for char, what in (
        ("@", "user names and passwords never stand in a rule"),
        ("?", "a query cannot be matched"),
        ("#", "a fragment is never sent"),
    ):
        if char in rest:
            fixed = (
                target.replace(rest, rest.rpartition("@")[2]) if char == "@" else target.partition(char)[0]
            )
            raise Wrong(what, fixed)
    if "\\" in rest:
        raise Wrong("a backslash means different things to different programs")
    authority, slash, tail = rest.partition("/")
    path = read_path(f"/{tail}", target) if slash else None
    host_text, port_text = split_port(authority, target)
    if path and re.fullmatch(r"/[0-9]{1,3}", path) and re.fullmatch(r"[0-9.]+|\[.*\]", host_text):
        raise Wrong("address ranges are not rules; list each literal, or name the hosts")
    host = read_host(host_text, target)
    if port_text is not None:
        return scheme or "any", websocket, host, read_port(port_text, target), path
    if scheme is None:
        return ("any", False, host, EVERY_PORT, path) if deny else ("https", False, host, 443, path)
    if scheme not in DEFAULT_PORTS:
        raise Wrong(f"{scheme}:// needs a port", f"{scheme}://{host_text}:5432")
    return scheme, websocket, host, DEFAULT_PORTS[scheme], path


def _flag(text: str) -> tuple[str, object]:
    key, has_value, value = text.partition("=")
    makers = (*VALUE_READERS, "inject")
    if key in ("private", "inspect", "ws"):
        if has_value:
            raise Wrong(f"the flag +{key} takes no value", f"+{key}")
        return ("websocket" if key == "ws" else key), True
    if key not in makers:
        near = difflib.get_close_matches(key, ["private", "inspect", "ws", *makers], n=1)
        known = ", ".join(["+private", "+inspect", "+ws", *(f"+{maker}=" for maker in makers)])
        raise Wrong(f"the flag +{key} is unknown; known are {known}", f"+{near[0]}" if near else None)
    if key == "inject":
        return "secret", reserved_header(value)
    return key, VALUE_READERS[key](value)


_TABLE_KEYS = (
    "host",
    "port",
    "scheme",
    "methods",
    "paths",
    "private",
    "secret",
    *VALUE_READERS,
    "inspect",
    "websocket",
)


def _from_table(table: Mapping[str, object], deny: bool) -> EgressRule:
    for key in table:
        if key not in _TABLE_KEYS:
            near = difflib.get_close_matches(str(key), _TABLE_KEYS, n=1)
            raise Wrong(f"the key {key!r} is unknown{f', meant is {near[0]!r}' if near else ''}")
    host_text, scheme_value, port_value = table.get("host"), table.get("scheme"), table.get("port")
    if not isinstance(host_text, str) or not host_text:
        raise Wrong("the key 'host' is missing or not a string")
    if "/" in host_text or (":" in host_text and not host_text.startswith("[")) or "]:" in host_text:
        raise Wrong("'host' is a host alone; scheme, port and paths have keys of their own")
    websocket = _bool(table, "websocket")
    scheme: Scheme | None = None
    if scheme_value is not None:
        if not isinstance(scheme_value, str):
            raise Wrong("'scheme' is a string")
        scheme, by_scheme = ("any", False) if scheme_value == "any" else read_scheme(scheme_value, host_text)
        websocket = websocket or by_scheme
    if port_value is not None and (
        not isinstance(port_value, int) or isinstance(port_value, bool) or not 0 < port_value < 65536
    ):
        raise Wrong(f"the port {port_value!r} is not a number from 1 to 65535")
    host = read_host(host_text, host_text)
    if port_value is None:
        if scheme is None:
            scheme, port_value = ("any", EVERY_PORT) if deny else ("https", 443)
        elif scheme in DEFAULT_PORTS:
            port_value = DEFAULT_PORTS[scheme]
        else:
            raise Wrong(f"the scheme {scheme!r} needs a port")
    assert isinstance(port_value, int)
    rule = EgressRule(
        text="",
        scheme=scheme or "any",
        host=host,
        port=port_value,
        methods=_table_methods(table.get("methods")),
        paths=_table_paths(table.get("paths")),
        private=_bool(table, "private"),
        secret=read_secret(table["secret"]) if table.get("secret") is not None else None,
        inspect=_bool(table, "inspect"),
        websocket=websocket,
        deny=deny,
        **{key: make(table[key]) for key, make in VALUE_READERS.items() if table.get(key) is not None},  # type: ignore[arg-type]
    )
    return replace(rule, text=rule.canonical)


def _bool(table: Mapping[str, object], key: str) -> bool:
    value = table.get(key, False)
    if not isinstance(value, bool):
        raise Wrong(f"the key {key!r} is true or false, not {value!r}")
    return value


def _table_methods(value: object) -> frozenset[str] | None:
    if value is None:
        return None
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)) or not names or not all(isinstance(name, str) for name in names):
        raise Wrong('\'methods\' is a list such as ["GET", "HEAD"]')
    bad = [name for name in names if not METHOD.fullmatch(name)]
    if bad:
        raise Wrong(
            f"the method {bad[0]!r} is not in capital letters",
            bad[0].upper() if METHOD.fullmatch(bad[0].upper()) else None,
        )
    return frozenset(names)


def _table_paths(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    paths = [value] if isinstance(value, str) else value
    if (
        not isinstance(paths, (list, tuple))
        or not paths
        or not all(isinstance(path, str) and path.startswith("/") for path in paths)
    ):
        raise Wrong("'paths' is a list of prefixes such as [\"/v1/\"]")
    checked = [read_path(path, path) for path in paths]
    return () if None in checked else tuple(path for path in checked if path)


def _check(rule: EgressRule) -> None:
    """Refuse what the scheme cannot enforce, so that no part of a rule passes silently."""
    inside = [
        name
        for name, present in (
            ("methods", rule.methods is not None),
            ("a path", bool(rule.paths)),
            ("a secret", rule.secret is not None),
            ("inspection", rule.inspect),
            ("WebSocket", rule.websocket),
        )
        if present
    ]
    if inside and rule.scheme == "tcp":
        host = f"[{rule.host}]" if ":" in rule.host else rule.host
        raise Wrong(f"{inside[0]} cannot be enforced on raw tcp", f"https://{host}:{rule.port}")
    if rule.inspect and rule.scheme == "http":
        raise Wrong("inspection is for TLS; plain http is always read")
    if rule.secret is not None and rule.host == "*":
        raise Wrong("a secret for every host would be sent to every host; name the host")
    if rule.deny:
        extras = [
            key for key in ("private", "inspect", "websocket", "secret", *VALUE_READERS) if getattr(rule, key)
        ]
        if extras:
            raise Wrong(f"{extras[0]!r} has no meaning in a deny entry")
