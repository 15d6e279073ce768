"""Names a child asked for, and the synthetic addresses that stand for them inside its namespace.

Guarantees: an address stands for one name for as long as a connection to it is open and at least until 16384
other names were asked for; only names that the policy can reach get one. Addresses are of 198.18.0.0/15 and
its IPv6 twin, which lead nowhere but to the broker.
"""

from __future__ import annotations

from collections import OrderedDict, deque

from fumehood.broker._addresses import Address, parse_address
from fumehood.policies.names import format_ipv6

CAPACITY = (
    16384  # names of one call that have an address at once; a fraction of the pool, so none comes back soon
)
_POOL = 131072 - 2  # addresses in 198.18.0.0/15 that are neither its first nor its last
_V4 = parse_address("198.18.0.0").value
_V6 = parse_address("fd66:756d:6568:6f64::").value


class SyntheticNames:
    """The two-way map of one call."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._by_name: OrderedDict[str, int] = OrderedDict()
        self._by_index: dict[int, str] = {}
        self._busy: dict[int, int] = {}
        self._free: deque[int] = deque()
        self._next = 1
        self._capacity = capacity

    def __len__(self) -> int:
        return len(self._by_name)

    def addresses(self, name: str) -> tuple[Address, Address] | None:
        """The IPv4 and IPv6 address that stand for `name`;

        None when every address is in use by an open connection.
        """
        index = self._by_name.get(name)
        if index is None:
            index = self._take()
            if index is None:
                return None
            self._by_name[name] = index
            self._by_index[index] = name
        self._by_name.move_to_end(name)
        return parse_address(_text4(index)), Address(6, _V6 + index, format_ipv6(_V6 + index))

    def name_of(self, address: Address) -> str | None:
        """The name that an address stands for;

        None when it stands for none (an address that nobody was given).
        """
        index = _index(address)
        return self._by_index.get(index) if index is not None else None

    def is_synthetic(self, address: Address) -> bool:
        """Whether the address belongs to the pool at all."""
        return _index(address) is not None

    def hold(self, address: Address) -> None:
        """A connection to this address is open: it keeps its meaning until `release`."""
        index = _index(address)
        if index is not None:
            self._busy[index] = self._busy.get(index, 0) + 1

    def release(self, address: Address) -> None:
        index = _index(address)
        if index is not None and self._busy.get(index, 0) > 1:
            self._busy[index] -= 1
        elif index is not None:
            self._busy.pop(index, None)

    def _take(self) -> int | None:
        if len(self._by_name) < self._capacity and self._next <= _POOL:
            self._next += 1
            return self._next - 1
        for name, index in self._by_name.items():  # least recently asked first
            if index not in self._busy:
                del self._by_name[name], self._by_index[index]
                self._free.append(index)
                break
        else:
            return None
        if (
            self._next <= _POOL
        ):  # fresh addresses first, so that a client's cached answer goes stale, not wrong
            self._next += 1
            return self._next - 1
        return self._free.popleft()


def _text4(index: int) -> str:
    value = _V4 + index
    return ".".join(str(value >> shift & 255) for shift in (24, 16, 8, 0))


def _index(address: Address) -> int | None:
    base = _V4 if address.version == 4 else _V6
    offset = address.value - base
    return offset if 0 < offset <= _POOL else None
