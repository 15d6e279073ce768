"""The sweep: erasing stored content that nothing cites any more.

Guarantees: a blob cited anywhere in a scanned log, as a media reference or as an address in a result, is
pinned while cited (R445, R446); only content older than the time to live and uncited is reclaimed, and only
when asked to. Captured reasoning has its own schedule and does not pin through its event or its `text_ref`
(R451); replay does not notice when it goes (R449). Content that only an encrypted payload cites is seen
through `read` alone, which decrypts (R448). Rows that say that content was stored or erased cite nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from fumehood.agent._blobs import ADDRESS
from fumehood.agent._events import Event
from fumehood.agent._seal import SEALED_TYPE
from fumehood.agent._store import ContentStore

ORPHAN_TTL_S: Final = 7 * 86_400.0
"""Age below which uncited content stays: a call may still be about to cite it."""

_CITES_NOTHING: Final = frozenset({"CONTENT_STORED", "CONTENT_ERASED", "LLM_REASONING_CAPTURED"})


@dataclass(frozen=True, slots=True)
class SweepReport:
    """pinned: cited addresses that the store holds. orphans: uncited and old. erased: the orphans
    that were removed.
    """

    pinned: tuple[str, ...]
    orphans: tuple[str, ...]
    erased: tuple[str, ...]


def sweep_unpinned_content(
    store: ContentStore,
    events: Iterable[Event],
    *,
    reclaim_orphans: bool = False,
    ttl_s: float = ORPHAN_TTL_S,
    reasoning_ttl_s: float | None = None,
    now: Callable[[], float] = time.time,
    read: Callable[[Event], object] = lambda event: event.data,
) -> SweepReport:
    """Find, and with `reclaim_orphans` erase, content that no event cites.

    events: every row of every log that may cite this store. reasoning_ttl_s: age at which captured reasoning
    goes, None for never. read: the row's data in the clear. Raises: StorageError.
    """
    cited: set[str] = set()
    for event in events:
        if event.kind not in _CITES_NOTHING:
            cited.update(_addresses(read(event)))
    moment = now()
    pinned: list[str] = []
    orphans: dict[str, float] = {}  # with the time before which the last put must lie
    for item, put_at in store.ages():
        if item.media_type == SEALED_TYPE:
            if reasoning_ttl_s is not None and put_at < moment - reasoning_ttl_s:
                orphans[item.address] = moment - reasoning_ttl_s
        elif item.address in cited:
            pinned.append(item.address)
        elif put_at < moment - ttl_s:
            orphans[item.address] = moment - ttl_s
    # Somebody may put the same bytes again between the listing and the erasure, and is about to cite them.
    erased = tuple(
        address
        for address, cutoff in orphans.items()
        if reclaim_orphans and store.erase(address, put_before=cutoff)
    )
    return SweepReport(tuple(pinned), tuple(orphans), erased)


def _addresses(value: object) -> Iterator[str]:
    """Every address that a value cites, at any depth: alone in a string or inside a longer text
    such as a result's JSON, whatever field holds it. Too many pins beat one too few.
    """
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            if "sha256:" in item:
                yield from ADDRESS.findall(item)
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, (list, tuple)):
            stack.extend(item)
