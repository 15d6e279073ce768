"""A small internet on loopback for the broker's tests:

a lying DNS server, web servers, a CA, and a journal of what happened in which order.
"""

from __future__ import annotations

import contextlib
import csv
import json
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme

from fumehood.broker import Broker, BrokerCall, CallScope, EgressPolicy, Limits
from fumehood.policies.rules import EgressRule, parse_rule
from fumehood.testing.dns import LyingDns, Said
from fumehood.testing.http import Answer, HttpServer, echo

PUBLIC = "93.184.216.34"
CORPUS = Path(__file__).parent.parent / "data" / "ssrf_corpus.tsv"


@dataclass(frozen=True)
class Row:
    """One row of the corpus."""

    id: str
    kind: str
    policy: list[str]
    request: str
    dns: dict[str, Any]
    expected: str
    why: str


def corpus(*kinds: str) -> list[Row]:
    """The rows of these kinds."""
    with CORPUS.open(encoding="utf-8", newline="\n") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [
            Row(
                row["id"],
                row["kind"],
                json.loads(row["policy"]),
                json.loads(row["request"]),
                json.loads(row["dns"]) if row["dns"] else {},
                row["expected"],
                row["why"],
            )
            for row in rows
            if row["kind"] in kinds
        ]


@dataclass
class Journal:
    """Everything that happened, in order: ("record", kind), ("dial", address, port)."""

    entries: list[tuple[Any, ...]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)

    async def record(
        self,
        kind: str,
        data: Mapping[str, object],
        *,
        execution_id: str | None = None,
        call_id: str | None = None,
        step_id: str | None = None,
    ) -> str:
        """A recorder that keeps rows in memory; JSON is checked as the log would."""
        json.dumps(data)
        event_id = f"e{len(self.events) + 1}"
        self.events.append({"id": event_id, "kind": kind, "call_id": call_id, "data": dict(data)})
        self.entries.append(("record", kind))
        return event_id

    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.events]

    @property
    def dialled(self) -> list[tuple[str, int]]:
        return [entry[1:] for entry in self.entries if entry[0] == "dial"]


class Authority:
    """A CA whose leaf follows the server name in the hello."""

    def __init__(self) -> None:
        self.ca = trustme.CA()
        self._leaves: dict[str, ssl.SSLContext] = {}

    def write(self, path: Path) -> Path:
        self.ca.cert_pem.write_to_path(str(path))
        return path

    def context(self, *names: str) -> ssl.SSLContext:
        """A server context for exactly these names."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert(*names).configure_cert(context)
        return context

    def any_name(self, *default: str) -> ssl.SSLContext:
        """A server context that has a certificate for whatever name is asked for."""
        context = self.context(*default)

        def choose(sock: Any, name: str | None, _: ssl.SSLContext) -> None:
            if name is not None:
                if name not in self._leaves:
                    # trustme puts names through idna, which refuses some that exist; a wildcard is as good.
                    odd = name[2:4] == "--" and not name.startswith("xn--")
                    self._leaves[name] = self.context(f"*.{name.partition('.')[2]}" if odd else name)
                sock.context = self._leaves[name]

        context.sni_callback = choose
        return context


class World:
    """DNS, servers by port, a broker between.

    `ports` maps the port that a request names to the server that plays it.
    """

    def __init__(self, authority: Authority, trust: Path) -> None:
        self.authority = authority
        self.trust = trust
        self.journal = Journal()
        self.ports: dict[int, HttpServer] = {}
        self.stack = contextlib.ExitStack()
        self.dns: LyingDns | None = None

    def serve(self, port: int, answer: Answer = echo, *, tls: bool = False) -> HttpServer:
        """Put a server behind `port` of every public address."""
        context = self.authority.any_name("2606:2800:220:1::1946", PUBLIC) if tls else None
        server = self.stack.enter_context(HttpServer(answer, tls=context))
        self.ports[port] = server
        return server

    def name(self, zone: Mapping[str, Said], *, ttl: int = 0) -> LyingDns:
        """Start the DNS server."""
        self.dns = self.stack.enter_context(LyingDns(zone, ttl=ttl))
        return self.dns

    def dial(self, address: str, port: int) -> tuple[str, int]:
        """The dial map: notes the vetted address, leads to the loopback server that plays it."""
        self.journal.entries.append(("dial", address, port))
        server = self.ports.get(port)
        return ("127.0.0.1", server.port) if server else ("127.0.0.1", 1)

    @contextlib.asynccontextmanager
    async def broker(self, **options: Any) -> AsyncIterator[Broker]:
        dns = self.dns or self.name({})
        recorder = options.pop("recorder", self.journal)
        async with Broker(
            recorder,
            nameservers=[dns.address],
            trust=self.trust,
            dial=options.pop("dial", self.dial),
            **options,
        ) as broker:
            yield broker

    @contextlib.asynccontextmanager
    async def call(
        self, *allow: str | Mapping[str, object], deny: Sequence[str] = (), **options: Any
    ) -> AsyncIterator[BrokerCall]:
        """One call under these rules."""
        mode = options.pop("mode", "enforce")
        async with self.broker(**options) as broker:
            call = broker.open_call(
                CallScope("call-1", "exec-1", "tool"), policy(*allow, deny=deny, mode=mode)
            )
            yield call
            await call.close()


def policy(
    *allow: str | Mapping[str, object],
    deny: Sequence[str] = (),
    host_deny: Sequence[str] = (),
    mode: Any = "enforce",
) -> EgressPolicy:
    """A policy from rule texts."""
    return EgressPolicy(
        allow=rules(*allow),
        deny=tuple(parse_rule(text, where="tools.tool.deny", deny=True) for text in deny),
        host_deny=tuple(parse_rule(text, where="host.deny", deny=True) for text in host_deny),
        mode=mode,
        owner="tool",
    )


def rules(*allow: str | Mapping[str, object]) -> tuple[EgressRule, ...]:
    return tuple(parse_rule(text, where=f"tools.tool.egress[{at}]") for at, text in enumerate(allow))


@contextlib.contextmanager
def open_world(authority: Authority, trust: Path) -> Iterator[World]:
    world = World(authority, trust)
    with world.stack:
        yield world


__all__ = [
    "CORPUS",
    "PUBLIC",
    "Authority",
    "Journal",
    "Limits",
    "Row",
    "World",
    "corpus",
    "open_world",
    "policy",
    "rules",
]
