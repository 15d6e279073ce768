"""The content store: addresses, ownership sets, streams, damage, and kills at every step."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fumehood.agent import ContentMissing, ContentStore, ContentTooLarge, StorageError, StoredContent
from fumehood.agent._blobs import address_of, blob_path
from fumehood.testing import check_content_store

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("named", [False, True])
async def test_our_store_passes_the_conformance_check(tmp_path: Path, named: bool) -> None:
    await check_content_store(lambda: ContentStore(tmp_path / "content", named_temporaries=named))


@pytest.mark.promise("agent:owners-are-a-set")
@pytest.mark.requirement("R144")
@pytest.mark.requirement("R145")
def test_everyone_who_put_the_same_bytes_owns_them(store: ContentStore) -> None:
    first = store.put(b"same", "text/plain", owner="alice")
    second = store.put(b"same", "text/markdown", owner="bob")
    assert first == second == StoredContent(address_of(b"same"), 4, "text/plain")
    assert store.owners(first.address) == frozenset({"alice", "bob"})
    assert (store.ls(owner="alice"), store.ls(owner="bob"), store.ls(owner="carol")) == ([first], [first], [])


@pytest.mark.promise("agent:owners-are-a-set")
@pytest.mark.requirement("R146")
def test_a_tenants_delete_erases_only_what_nobody_else_holds(store: ContentStore) -> None:
    shared = store.put(b"shared", "text/plain", owner="alice")
    store.put(b"shared", "text/plain", owner="bob")
    own = store.put(b"own", "text/plain", owner="alice")
    assert store.drop_owner("alice") == [own.address]
    assert store.get(shared.address) == b"shared"
    assert not blob_path(store.path, own.address).exists()
    with pytest.raises(ContentMissing, match="no such content here"):
        store.get(own.address)
    assert store.drop_owner("bob") == [shared.address]
    assert store.ls() == []


def test_dropping_someone_who_owns_nothing_erases_nothing(store: ContentStore) -> None:
    item = store.put(b"x", "text/plain", owner="alice")
    assert not store.drop(item.address, owner="mallory")
    assert store.get(item.address) == b"x"


@pytest.mark.promise("agent:digest-on-read")
def test_bytes_that_the_disk_changed_are_never_returned_and_a_new_put_repairs_them(
    store: ContentStore,
) -> None:
    item = store.put(b"precious", "text/plain", owner="alice")
    path = blob_path(store.path, item.address)
    path.chmod(0o600)
    path.write_bytes(b"precioux")
    with pytest.raises(StorageError, match="the bytes are not the ones that were stored"):
        store.get(item.address)
    assert store.put(b"precious", "text/plain", owner="alice") == item
    assert store.get(item.address) == b"precious"


def test_lost_bytes_are_an_error_with_a_remedy(store: ContentStore) -> None:
    item = store.put(b"precious", "text/plain", owner="alice")
    blob_path(store.path, item.address).unlink()
    with pytest.raises(ContentMissing, match="its bytes are gone"):
        store.get(item.address)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "sha256:",
        "sha256:" + "A" * 64,
        "sha256:../../../../etc/passwd",
        "md5:" + "0" * 64,
        "sha256:" + "0" * 64 + "\n",
    ],
)
def test_what_is_no_address_never_becomes_a_path(store: ContentStore, address: str) -> None:
    for act in (store.get, store.stat, store.owners):
        with pytest.raises(StorageError, match="is not a content address"):
            act(address)


@pytest.mark.parametrize("media_type", ["", "png", "image/PNG", "image/png; q=1", "image/", "a/b/c", "x/y\n"])
def test_what_is_no_media_type_is_refused(store: ContentStore, media_type: str) -> None:
    with pytest.raises(StorageError, match="is not a media type"):
        store.put(b"x", media_type, owner="alice")


def test_content_without_an_owner_is_refused(store: ContentStore) -> None:
    with pytest.raises(StorageError, match="content needs an owner"):
        store.put(b"x", "text/plain", owner="")


def test_content_past_the_cap_leaves_nothing(store: ContentStore) -> None:
    with pytest.raises(ContentTooLarge):
        store.put(b"12345", "text/plain", owner="alice", max_bytes=4)
    with pytest.raises(ContentTooLarge):
        store.put_chunks(iter([b"123", b"45"]), "text/plain", owner="alice", max_bytes=4)
    assert store.ls() == []
    assert [file for file in (store.path / "objects").rglob("*") if file.is_file()] == []


async def test_a_source_that_fails_leaves_nothing(store: ContentStore) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"first"
        raise RuntimeError("the tool died")

    with pytest.raises(RuntimeError, match="the tool died"):
        await store.put_stream(chunks(), "text/plain", owner="alice")
    assert store.ls() == []


def test_empty_content_is_content(store: ContentStore) -> None:
    item = store.put(b"", "application/octet-stream", owner="alice")
    assert (item.size, store.get(item.address)) == (0, b"")


@pytest.mark.promise("agent:private-files")
def test_folders_and_files_are_private_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with ContentStore(tmp_path / "content") as store:
            store.put(b"x", "text/plain", owner="alice")
            found = {path: stat.S_IMODE(path.stat().st_mode) for path in store.path.rglob("*")}
            found[store.path] = stat.S_IMODE(store.path.stat().st_mode)
    finally:
        os.umask(before)
    assert {path.name for path, mode in found.items() if mode != (0o700 if path.is_dir() else 0o600)} == set()


def test_bytes_without_an_owner_are_reclaimed_after_the_grace_and_not_before(tmp_path: Path) -> None:
    now = [1_000_000_000.0]
    with ContentStore(tmp_path / "content", clock=lambda: now[0]) as store:
        kept = store.put(b"kept", "text/plain", owner="alice")
        orphan = blob_path(store.path, address_of(b"orphan"))
        orphan.parent.mkdir(exist_ok=True)
        orphan.write_bytes(b"orphan")
        os.utime(orphan, (now[0], now[0]))
        left_over = store.path / "tmp" / "left-over"
        left_over.write_bytes(b"half")
        os.utime(left_over, (now[0], now[0]))
        assert store.reclaim() == [] and orphan.exists()
        now[0] += 10 * 86_400
        assert store.reclaim() == [address_of(b"orphan")]
        assert (orphan.exists(), left_over.exists(), store.get(kept.address)) == (False, False, b"kept")


def test_many_threads_may_put_drop_and_reclaim_at_once(store: ContentStore) -> None:
    errors: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for turn in range(15):
                item = store.put(b"contended", "text/plain", owner=name)
                assert store.get(item.address) == b"contended"
                if turn % 5 == 4:
                    store.reclaim(grace_s=0)
                store.drop(item.address, owner=name)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert store.ls() == []
    assert [file for file in (store.path / "objects").rglob("*") if file.is_file()] == []


@pytest.mark.promise("agent:store-is-crash-safe")
@pytest.mark.parametrize("what", ["put", "put-named", "drop"])
def test_a_kill_at_any_line_leaves_a_sound_store(tmp_path: Path, what: str) -> None:
    program = Path(__file__).with_name("kill_store_steps.py")
    # A kill is not a power cut: memory shows the same states as a disk, hundreds of syncs sooner.
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        command = [sys.executable, str(program), folder, what]
        run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert report["lines"] > 20
    assert report["problems"] == {}
