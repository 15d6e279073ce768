"""The content store over an object store, in memory and in a folder; no network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import LocalStore, MemoryStore

from fumehood.agent import ContentMissing, StorageError
from fumehood.agent._blobs import address_of
from fumehood.agent.object_store import MARK_LIFE_S, ObjectContentStore
from fumehood.testing import check_content_store

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("kind", ["memory", "folder"])
async def test_the_object_store_passes_the_conformance_check(tmp_path: Path, kind: str) -> None:
    place: Any = MemoryStore() if kind == "memory" else LocalStore(tmp_path, automatic_cleanup=True)
    await check_content_store(lambda: ObjectContentStore(place, prefix="deep/er"))


def test_an_erasure_under_way_makes_a_putter_write_again() -> None:
    place: Any = MemoryStore()
    pauses: list[float] = []
    now = [1000.0]
    address = address_of(b"x")
    mark = f"erasing/{address[7:9]}/{address[9:]}"

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if (
            len(pauses) == 1
        ):  # the eraser had looked at the owners before our key was there, and removes the bytes now
            obstore.delete(place, f"objects/{address[7:9]}/{address[9:]}")
            obstore.delete(place, f"about/{address[7:9]}/{address[9:]}")
        if len(pauses) == 3:
            obstore.delete(place, mark)

    store = ObjectContentStore(place, clock=lambda: now[0], sleep=sleep)
    obstore.put(place, mark, b"1000.0")
    store.put(b"x", "text/plain", owner="alice")
    assert (store.get(address), store.owners(address), len(pauses)) == (b"x", frozenset({"alice"}), 3)


def test_the_mark_of_a_dead_eraser_is_taken_over() -> None:
    place: Any = MemoryStore()
    address = address_of(b"x")
    obstore.put(place, f"erasing/{address[7:9]}/{address[9:]}", b"0.0")
    pauses: list[float] = []
    store = ObjectContentStore(place, clock=lambda: MARK_LIFE_S + 1, sleep=pauses.append)
    store.put(b"x", "text/plain", owner="alice")
    assert store.get(address) == b"x" and len(pauses) == 1


def test_bytes_that_somebody_changed_are_never_returned() -> None:
    place: Any = MemoryStore()
    store = ObjectContentStore(place)
    address = store.put(b"right", "text/plain", owner="alice").address
    obstore.put(place, f"objects/{address[7:9]}/{address[9:]}", b"wrong")
    with pytest.raises(StorageError, match="are others"):
        store.get(address)
    with pytest.raises(ContentMissing):
        store.get("sha256:" + "0" * 64)
    for wrong in ("", "../../x", "sha256:" + "0" * 63):
        with pytest.raises(StorageError, match="is not a content address"):
            store.get(wrong)
    with pytest.raises(StorageError, match="is not a media type"):
        store.put(b"x", "nonsense", owner="a")
    with pytest.raises(StorageError, match="needs an owner"):
        store.put(b"x", "text/plain", owner="")
