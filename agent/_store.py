"""The content store: bytes under the SHA-256 of themselves, with the set of owners of each address.

Guarantees: `put` returns when bytes and ownership are on disk; identical bytes are one blob with a set of
owners (R144, R145); a blob is erased when its last owner leaves (R146), and only then; `get` checks the
digest on every read. A kill at any instant leaves at worst bytes without an owner, which `reclaim` removes.
Does not decide who may read: an address is not a permission, so callers authorize through `owners` or a
ticket (`_tickets.py`). Before editing: bytes are named before the index knows them and forgotten by the index
before they are removed, and removal happens behind the gate's exclusive side, so that a put of the same bytes
cannot run between the two.
"""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import threading
import time
from collections.abc import AsyncIterable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from fumehood.agent._blobs import BlobWriter, all_blobs, blob_path, clear_tmp, read_blob, remove_blob
from fumehood.agent._canonical import clean_text
from fumehood.agent._gate import Gate
from fumehood.agent._sqlite import StorageError, connect, make_private_folder, mapped

APPLICATION_ID: Final = 0x46484353  # "FHCS"
SCHEMA_VERSION: Final = 1
SCHEMA: Final = """
CREATE TABLE objects (
    address TEXT PRIMARY KEY,
    size INTEGER NOT NULL,
    media_type TEXT NOT NULL,
    stored_at REAL NOT NULL
) WITHOUT ROWID;
CREATE TABLE owners (
    address TEXT NOT NULL REFERENCES objects (address),
    owner TEXT NOT NULL,
    put_at REAL NOT NULL,
    PRIMARY KEY (address, owner)
) WITHOUT ROWID;
CREATE INDEX owners_by_owner ON owners (owner, address)
"""

MAX_BLOB_BYTES: Final = 256 * 1024 * 1024
"""Default cap of one blob. A cap, because a stream from a tool has no end that the host could trust."""

GRACE_S: Final = 24 * 3600.0
"""Age below which `reclaim` leaves bytes without an owner alone: their put may still be on its way to the
index.
"""

_MEDIA_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}")


class ContentTooLarge(StorageError):
    """The content is longer than the cap; nothing of it was kept."""


class ContentMissing(StorageError):
    """No bytes under this address: never stored, or erased."""


@dataclass(frozen=True, slots=True)
class StoredContent:
    """What a put gives back: address "sha256:<hex>", size in bytes, media_type of the first put."""

    address: str
    size: int
    media_type: str


class ContentStore:
    """A content-addressed store in one folder (mode 0700, files 0600), shared by any number of trusted
    processes and threads.

    path: the folder. clock: seconds since the epoch, for tests. named_temporaries: do as on file systems
    without O_TMPFILE. Raises: StorageError.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Callable[[], float] = time.time,
        named_temporaries: bool = False,
    ) -> None:
        self.path = Path(path)
        self._clock = clock
        self._named = named_temporaries
        self._lock = threading.Lock()
        with mapped(self.path / "index.sqlite3"):
            make_private_folder(self.path / "objects")
            make_private_folder(self.path / "tmp")
            self._gate = Gate(self.path / "gate")
        self._index = connect(
            self.path / "index.sqlite3", application_id=APPLICATION_ID, schema=SCHEMA, version=SCHEMA_VERSION
        )

    def __repr__(self) -> str:
        return f"<ContentStore {str(self.path)!r}>"

    # -- putting ---------------------------------------------------------------------------------------------

    def put(
        self, data: bytes, media_type: str, *, owner: str, max_bytes: int = MAX_BLOB_BYTES
    ) -> StoredContent:
        """Store bytes for an owner and return their address once both are on disk.

        owner: a tenant or execution; any text. max_bytes: refuse longer content.
        Raises: ContentTooLarge, StorageFull, StorageError.
        """
        if len(data) > max_bytes:
            raise ContentTooLarge(
                f"{len(data)} bytes; at most {max_bytes} are stored", hint="raise the cap or store less"
            )
        with self._writer(media_type, owner) as writer:
            writer.write(data)
            return self._keep(writer, media_type, owner)

    def put_chunks(
        self, chunks: Iterable[bytes], media_type: str, *, owner: str, max_bytes: int = MAX_BLOB_BYTES
    ) -> StoredContent:
        """`put` for content that comes in pieces; memory holds one piece at a time. Raises: as `put`, and
        what `chunks` raises.
        """
        with self._writer(media_type, owner) as writer:
            for chunk in chunks:
                _within(writer.size + len(chunk), max_bytes)
                writer.write(chunk)
            return self._keep(writer, media_type, owner)

    async def put_stream(
        self, chunks: AsyncIterable[bytes], media_type: str, *, owner: str, max_bytes: int = MAX_BLOB_BYTES
    ) -> StoredContent:
        """`put_chunks` for an async source; disk work runs in threads, so the event loop goes on."""
        with self._writer(media_type, owner) as writer:
            async for chunk in chunks:
                _within(writer.size + len(chunk), max_bytes)
                await asyncio.to_thread(writer.write, chunk)
            return await asyncio.to_thread(self._keep, writer, media_type, owner)

    def _writer(self, media_type: str, owner: str) -> BlobWriter:
        if not _MEDIA_TYPE.fullmatch(media_type):
            raise StorageError(
                f"{media_type!r} is not a media type",
                hint='write it in lower case without parameters, as "image/png"',
            )
        if not owner:
            raise StorageError("content needs an owner", hint="pass the tenant or execution that puts it")
        with mapped(self.path):
            return BlobWriter(self.path, force_named=self._named)

    def _keep(self, writer: BlobWriter, media_type: str, owner: str) -> StoredContent:
        with mapped(self.path):
            writer.sync()
            with self._gate.shared():
                writer.link()
                return self._own(writer.address, writer.size, media_type, clean_text(owner))

    def _own(self, address: str, size: int, media_type: str, owner: str) -> StoredContent:
        now = self._clock()
        with self._transaction() as index:
            index.execute(
                "INSERT OR IGNORE INTO objects VALUES (?, ?, ?, ?)", (address, size, media_type, now)
            )
            index.execute(
                "INSERT INTO owners VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET put_at = excluded.put_at",
                (address, owner, now),
            )
            row = index.execute(
                "SELECT address, size, media_type FROM objects WHERE address = ?", (address,)
            ).fetchone()
        return StoredContent(*row)

    # -- reading ---------------------------------------------------------------------------------------------

    def get(self, address: str) -> bytes:
        """The bytes, checked against the address. Raises: ContentMissing; StorageError when the disk changed
        them.
        """
        if self.stat(address) is None:
            raise ContentMissing(f"{address}: no such content here")
        with mapped(self.path):
            data = read_blob(self.path, address)
        if data is None:
            raise ContentMissing(
                f"{address}: the index knows it, but its bytes are gone",
                hint="put the content again to repair it",
            )
        return data

    def stat(self, address: str) -> StoredContent | None:
        """Size and media type of an address, or None when it holds nothing. Raises: StorageError when it is
        no address.
        """
        blob_path(self.path, address)
        with mapped(self.path), self._lock:
            row = self._index.execute(
                "SELECT address, size, media_type FROM objects WHERE address = ?", (address,)
            ).fetchone()
        return StoredContent(*row) if row else None

    def owners(self, address: str) -> frozenset[str]:
        """Everyone who put these bytes and has not dropped them (R144). Empty when nobody has."""
        blob_path(self.path, address)
        with mapped(self.path), self._lock:
            rows = self._index.execute("SELECT owner FROM owners WHERE address = ?", (address,)).fetchall()
        return frozenset(row[0] for row in rows)

    def ls(self, *, owner: str | None = None) -> list[StoredContent]:
        """What is stored, by address; with `owner`, only what that owner put."""
        query = "SELECT address, size, media_type FROM objects"
        with mapped(self.path), self._lock:
            if owner is None:
                rows = self._index.execute(f"{query} ORDER BY address").fetchall()
            else:
                where = "WHERE address IN (SELECT address FROM owners WHERE owner = ?)"
                rows = self._index.execute(
                    f"{query} {where} ORDER BY address", (clean_text(owner),)
                ).fetchall()
        return [StoredContent(*row) for row in rows]

    def ages(self) -> list[tuple[StoredContent, float]]:
        """Everything stored with the time of its latest put, in seconds since the epoch."""
        query = (
            "SELECT o.address, o.size, o.media_type, max(w.put_at) FROM objects o JOIN owners w "
            "USING (address) "
            "GROUP BY o.address ORDER BY o.address"
        )
        with mapped(self.path), self._lock:
            rows = self._index.execute(query).fetchall()
        return [(StoredContent(*row[:3]), row[3]) for row in rows]

    # -- erasing ---------------------------------------------------------------------------------------------

    def drop(self, address: str, *, owner: str) -> bool:
        """Take one owner out of the set; True when that emptied it and the bytes were erased (R146)."""
        return bool(self._drop([address], owner=owner))

    def drop_owner(self, owner: str) -> list[str]:
        """Take an owner out of every set (a tenant's delete); the addresses whose bytes were erased by it."""
        return self._drop([item.address for item in self.ls(owner=owner)], owner=owner)

    def erase(self, address: str, *, put_before: float | None = None) -> bool:
        """Remove an address whoever owns it; False when it held nothing. For legal erasure and for
        the sweep.

        put_before: leave it when someone put it at this time (seconds since the epoch) or later.
        """
        with mapped(self.path), self._gate.exclusive():
            with self._transaction() as index:
                query = "SELECT 1 FROM owners WHERE address = ? AND put_at >= ?"
                if (
                    put_before is not None
                    and index.execute(query, (address, put_before)).fetchone() is not None
                ):
                    return False
                index.execute("DELETE FROM owners WHERE address = ?", (address,))
                known = index.execute("DELETE FROM objects WHERE address = ?", (address,)).rowcount > 0
            return remove_blob(self.path, address) or known

    def _drop(self, addresses: list[str], *, owner: str) -> list[str]:
        erased = []
        with mapped(self.path), self._gate.exclusive():
            with self._transaction() as index:
                for address in addresses:
                    index.execute(
                        "DELETE FROM owners WHERE address = ? AND owner = ?", (address, clean_text(owner))
                    )
                    query = (
                        "DELETE FROM objects WHERE address = ? AND NOT EXISTS "
                        "(SELECT 1 FROM owners WHERE owners.address = objects.address)"
                    )
                    if index.execute(query, (address,)).rowcount:
                        erased.append(address)
            for address in erased:
                remove_blob(self.path, address)
        return erased

    def reclaim(self, *, grace_s: float = GRACE_S) -> list[str]:
        """Remove bytes that no owner holds and that are older than `grace_s`: what a kill in mid-put left.
        Their addresses.
        """
        cutoff = self._clock() - grace_s
        with mapped(self.path), self._gate.exclusive():
            clear_tmp(self.path, older_than=cutoff)
            with self._lock:
                known = {row[0] for row in self._index.execute("SELECT address FROM objects").fetchall()}
            orphans = [
                address
                for address, changed in all_blobs(self.path)
                if address not in known and changed < cutoff
            ]
            return [address for address in orphans if remove_blob(self.path, address)]

    # -- life ------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the index. Idempotent."""
        with self._lock:
            self._index.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _transaction(self) -> _Transaction:
        return _Transaction(self._lock, self._index)


class _Transaction:
    """BEGIN IMMEDIATE … COMMIT on the index, one thread at a time."""

    def __init__(self, lock: threading.Lock, index: sqlite3.Connection) -> None:
        self._lock = lock
        self._index = index

    def __enter__(self) -> sqlite3.Connection:
        self._lock.acquire()
        try:
            self._index.execute("BEGIN IMMEDIATE")
        except BaseException:  # raised on: whatever ended it, __exit__ will not be called
            self._lock.release()
            raise
        return self._index

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._index.execute("COMMIT")
        finally:
            if self._index.in_transaction:
                self._index.execute("ROLLBACK")
            self._lock.release()


def _within(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise ContentTooLarge(
            f"more than {max_bytes} bytes came; nothing was kept", hint="raise the cap or store less"
        )
