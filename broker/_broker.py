"""The broker of one host: what its calls share (resolver, dialler, TLS, counters), and the calls themselves.

Guarantees: the parent's proxy and certificate variables are not read; a call's connections are its own.
Not here: any decision (_decide.py) or door.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fumehood.broker._addresses import Address, own_addresses
from fumehood.broker._budget import Budgets, Places
from fumehood.broker._call import BrokerCall
from fumehood.broker._dial import Dialer, DialMap, client_context
from fumehood.broker._records import Rows
from fumehood.broker._resolver import Resolver
from fumehood.broker._types import CallScope, EgressPolicy, Recorder

if TYPE_CHECKING:
    from fumehood.broker._inspect import InspectionAuthority

OWN_ADDRESSES_FOR = (
    10.0  # seconds before the host's interfaces are read again; they change with VPNs and containers
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a call may use where no rule says otherwise.

    parallel: fetches of one call at once. max_request, max_response: bytes, raw and decoded each. timeout:
    seconds for one fetch with all its redirects. redirects: hops followed. resolve: seconds for one name.
    """

    parallel: int = 16
    max_request: int = 8 * 1024 * 1024
    max_response: int = 8 * 1024 * 1024
    timeout: float = 300.0
    redirects: int = 10
    resolve: float = 5.0


def _no_secrets(name: str) -> str:
    raise KeyError(name)


class Broker:
    """The only way out for every tool of a host. Use as an async context manager.

    recorder: the event log. nameservers: (address, port) pairs; None reads resolv.conf. trust: file of extra
    CA certificates. secrets: looks a secret's value up by name. limits: defaults for calls. dial: test seam,
    see `Dialer`. warm: load on entering what the first request would wait for, a fifth of a second.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        nameservers: Sequence[tuple[str, int]] | None = None,
        trust: Path | None = None,
        secrets: Callable[[str], str] = _no_secrets,
        limits: Limits | None = None,
        dial: DialMap | None = None,
        warm: bool = True,
    ) -> None:
        self.rows = Rows(recorder)
        self.dialer = Dialer(dial=dial)
        self.secrets = secrets
        self.limits = limits or Limits()
        self.resolver = Resolver(nameservers, lifetime=self.limits.resolve)
        self.budgets = Budgets()
        self.places = Places()
        self._trust = trust
        self._warm = warm
        self._tls: ssl.SSLContext | None = None
        self._tls_h2: ssl.SSLContext | None = None
        self._own: tuple[float, frozenset[Address]] = (0.0, frozenset())
        self._authority: InspectionAuthority | None = None
        self._calls: set[BrokerCall] = set()

    def __repr__(self) -> str:
        return f"<Broker calls={len(self._calls)} {self.resolver!r}>"

    async def __aenter__(self) -> Broker:
        """Raises: OSError, ssl.SSLError when `trust` cannot be read."""
        if self._warm or self._trust is not None:
            self._tls = await asyncio.to_thread(client_context, str(self._trust) if self._trust else None)
        if self._warm:
            await asyncio.to_thread(self.resolver.warm)
        return self

    async def __aexit__(self, *exc: object) -> None:
        for call in list(self._calls):
            await call.close()
        await self.rows.flush()
        await self.resolver.close()

    @property
    def tls(self) -> ssl.SSLContext:
        """The context of the broker's own TLS connections."""
        if self._tls is None:
            self._tls = client_context(str(self._trust) if self._trust else None)
        return self._tls

    @property
    def tls_h2(self) -> ssl.SSLContext:
        """As `tls`, for connections that may speak HTTP/2."""
        if self._tls_h2 is None:
            self._tls_h2 = client_context(str(self._trust) if self._trust else None)
            self._tls_h2.set_alpn_protocols(["h2", "http/1.1"])
        return self._tls_h2

    @property
    def authority(self) -> InspectionAuthority:
        """The authority of inspecting mode, made when first asked for. Show a child `authority.bundle()`.

        Raises: ImportError without the `cryptography` package.
        """
        if self._authority is None:
            from fumehood.broker._inspect import InspectionAuthority

            self._authority = InspectionAuthority()
        return self._authority

    def open_call(self, scope: CallScope, policy: EgressPolicy) -> BrokerCall:
        """The network of one call, which ends with `BrokerCall.close`."""
        call = BrokerCall(self, scope, policy)
        self._calls.add(call)
        return call

    @property
    def calls(self) -> tuple[BrokerCall, ...]:
        """The calls that have a network now."""
        return tuple(self._calls)

    def forget(self, call: BrokerCall) -> None:
        """Called by a call that closed."""
        self._calls.discard(call)

    def own_addresses(self) -> frozenset[Address]:
        """This host's interface addresses, at most OWN_ADDRESSES_FOR seconds old."""
        at, known = self._own
        now = time.monotonic()
        if not known or now - at > OWN_ADDRESSES_FOR:
            known = own_addresses()
            self._own = (now, known)
        return known
