"""Names to addresses, with every answer handed on for judgement and nothing dialled here.

Guarantees: A and AAAA are asked apart (a failure of one does not hide the other), with no search list, no
hosts file and no environment; CNAME chains are followed to their end, loops and over-long chains are an
error; `localhost` and literals never reach DNS; answers are cached for min(TTL, 60 s) by name and judged
again at each use. A lookup ends within `lifetime`.
Not here: judging addresses (_addresses.py) and deciding whether a name may be asked at all (_decide.py,
before this).
Before editing: never `getaddrinfo` on a tool's text; it reads 127.1, 0x7f.1 and circled digits as loopback.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fumehood.broker._addresses import Address, parse_address
from fumehood.broker._types import Answers
from fumehood.policies.names import BadHost, Host, canonical_host

if TYPE_CHECKING:
    import dns.asyncresolver

MAX_CHAIN = 8  # CNAME hops in all; browsers and recursors stop between 8 and 16
MAX_ANSWERS = 64  # addresses of one name; more is an attack on whoever judges or dials them
MAX_TTL = 60.0  # seconds an answer is believed at most, so that a policy of names follows DNS
NEGATIVE_TTL = 5.0  # seconds a failure is believed: enough for a retry loop, short enough for a typo fixed
CACHE_SIZE = 1024  # names; the oldest go first
_LOOPBACK = (parse_address("127.0.0.1"), parse_address("::1"))


class Resolver:
    """Asks the given name servers.

    nameservers: (address, port) pairs, asked in order. lifetime: seconds for one name in all. timeout:
    seconds for one try.
    """

    def __init__(
        self,
        nameservers: Sequence[tuple[str, int]] | None = None,
        *,
        lifetime: float = 5.0,
        timeout: float = 1.5,
    ) -> None:
        self._nameservers = tuple(nameservers) if nameservers is not None else system_nameservers()
        self._lifetime = lifetime
        self._timeout = timeout
        self._cache: dict[str, tuple[float, Answers]] = {}
        self._flights: dict[str, asyncio.Task[Answers]] = {}
        self._stub: dns.asyncresolver.Resolver | None = None
        self.queries = 0  # names really asked; tests and metrics read it

    def __repr__(self) -> str:
        servers = ", ".join(f"{address}:{port}" for address, port in self._nameservers)
        return f"<Resolver [{servers}], {self.queries} queries, {len(self._cache)} cached>"

    def warm(self) -> None:
        """Import dnspython (over 100 ms) before the first request needs it."""
        self._resolver()

    async def resolve(self, host: Host) -> Answers:
        """What DNS says about `host` now. Failures are in `Answers.error`, never raised."""
        if host.is_literal:
            return Answers((parse_address(host.text),))
        if host.text == "localhost" or host.text.endswith(".localhost"):
            return Answers(_LOOPBACK)  # RFC 6761 section 6.3: never asked
        known = self._cache.get(host.text)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        flight = self._flights.get(host.text)
        if flight is None:
            flight = asyncio.ensure_future(self._ask(host))
            self._flights[host.text] = flight
            flight.add_done_callback(lambda _: self._flights.pop(host.text, None))
        return await asyncio.shield(flight)  # one caller's cancellation is not the others'

    async def close(self) -> None:
        """Ends lookups under way."""
        flights = list(self._flights.values())
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)

    async def _ask(self, host: Host) -> Answers:
        answers = await self._follow(host)
        ttl = min(
            NEGATIVE_TTL if answers.error else MAX_TTL, answers.ttl if not answers.error else NEGATIVE_TTL
        )
        if ttl > 0:
            if len(self._cache) >= CACHE_SIZE:
                del self._cache[next(iter(self._cache))]
            self._cache[host.text] = (time.monotonic() + ttl, answers)
        else:
            self._cache.pop(host.text, None)
        return answers

    async def _follow(self, host: Host) -> Answers:
        """Ask for `host`, and for the end of its CNAME chain when the server left that to us."""
        chain: list[str] = []
        ttl = 2**31
        name = host
        deadline = time.monotonic() + self._lifetime
        while True:
            if name.text == "localhost" or name.text.endswith(".localhost"):
                return Answers(_LOOPBACK, tuple(chain), ttl=ttl)
            left = deadline - time.monotonic()
            if left <= 0:
                return Answers(chain=tuple(chain), error="the name servers did not answer in time")
            found = await asyncio.gather(
                self._query(name.text, "A", left), self._query(name.text, "AAAA", left)
            )
            addresses = [address for answer in found for address in answer.addresses]
            hops = max((answer.chain for answer in found), key=len)
            chain += hops
            ttl = min([ttl, *(answer.ttl for answer in found if not answer.error)])
            if len(chain) > MAX_CHAIN or len(set(chain)) < len(chain) or host.text in chain:
                return Answers(chain=tuple(chain), error="the chain of CNAMEs loops or is too long")
            if len(addresses) > MAX_ANSWERS:
                return Answers(chain=tuple(chain), error=f"the name has more than {MAX_ANSWERS} addresses")
            if addresses:
                return Answers(tuple(addresses), tuple(chain), ttl=ttl)
            if not hops:
                error = next((answer.error for answer in found if answer.error), "the name has no address")
                return Answers(chain=tuple(chain), error=error)
            try:
                name = canonical_host(hops[-1])
            except BadHost as error:
                return Answers(chain=tuple(chain), error=f"the CNAME leads to no host name: {error}")

    async def _query(self, name: str, kind: str, lifetime: float) -> Answers:
        if self._stub is None:
            await asyncio.to_thread(self.warm)
        import dns.exception
        import dns.resolver

        self.queries += 1
        try:
            answer = await self._resolver().resolve(
                name + ".", kind, raise_on_no_answer=False, search=False, lifetime=lifetime
            )
        except dns.resolver.NXDOMAIN:
            return Answers(error="there is no such name")
        except dns.resolver.LifetimeTimeout:
            return Answers(error="the name servers did not answer in time")
        except (dns.exception.DNSException, OSError, ValueError) as error:
            return Answers(error=f"the name servers gave no usable answer ({type(error).__name__})")
        chaining = answer.chaining_result
        hops = tuple(_text(record.target) for rrset in chaining.cnames for record in list(rrset)[:1])
        addresses: list[Address] = []
        for record in answer.rrset or ():
            addresses.append(parse_address(record.address))
        return Answers(tuple(addresses), hops, ttl=int(chaining.minimum_ttl))

    def _resolver(self) -> dns.asyncresolver.Resolver:
        if self._stub is None:
            import dns.asyncresolver
            import dns.nameserver

            stub = dns.asyncresolver.Resolver(configure=False)
            stub.nameservers = [
                dns.nameserver.Do53Nameserver(address, port) for address, port in self._nameservers
            ]
            stub.timeout = self._timeout
            stub.lifetime = self._lifetime
            stub.search = []
            stub.cache = None
            stub.rotate = False
            self._stub = stub
        return self._stub


def system_nameservers(path: str = "/etc/resolv.conf") -> tuple[tuple[str, int], ...]:
    """The `nameserver` lines of resolv.conf;

    127.0.0.1 when there is none (resolv.conf(5)). Search lists and options are not read.
    """
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 2 and words[0] == "nameserver":
            found.append((words[1], 53))
    return tuple(found) or (("127.0.0.1", 53),)


def _text(name: object) -> str:
    return str(name).rstrip(".").lower()
