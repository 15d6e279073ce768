"""The content store over an object store (S3, GCS, Azure, a folder, memory) by obstore: `pip install
fumehood[s3]`.

Guarantees: the same addresses, ownership sets and digest check as `ContentStore`, on a strongly consistent
store with conditional puts. Writing: the owner's key first, then what the bytes are, then the bytes, then a
look for an erasure under way. Erasing: a mark first, then a look at the owners, then the bytes. So either the
eraser sees the new owner or the putter sees the mark and writes again; bytes with an owner are never lost. A
mark whose eraser died is taken over after MARK_LIFE_S. Several hosts may share one bucket.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import AsyncIterable, Callable
from typing import Any, Final, Self

from fumehood.agent._blobs import ADDRESS, address_of
from fumehood.agent._canonical import clean_text
from fumehood.agent._media import MEDIA_TYPE
from fumehood.agent._sqlite import StorageError
from fumehood.agent._store import MAX_BLOB_BYTES, ContentMissing, ContentTooLarge, StoredContent

MARK_LIFE_S: Final = 300.0
"""Age from which an erasure's mark is that of a dead eraser. An erasure is a handful of requests."""

WAIT_S: Final = 0.2
"""Pause before a putter looks again whether an erasure is over."""


class ObjectContentStore:
    """A content store in an obstore store. prefix: where in the bucket it lies. clock, sleep: for tests."""

    def __init__(
        self,
        store: Any,
        *,
        prefix: str = "",
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store = store
        self._prefix = prefix.strip("/") + "/" if prefix.strip("/") else ""
        self._clock = clock
        self._sleep = sleep

    @classmethod
    def from_url(cls, url: str, **config: Any) -> Self:
        """The store at a URL such as s3://bucket/prefix. config: obstore's own settings
        (credentials, region, endpoint).
        """
        import obstore.store

        return cls(obstore.store.from_url(url, **config))

    def __repr__(self) -> str:
        return f"<ObjectContentStore {self._store!r} {self._prefix!r}>"

    def put(
        self, data: bytes, media_type: str, *, owner: str, max_bytes: int = MAX_BLOB_BYTES
    ) -> StoredContent:
        """Store bytes for an owner. Raises: ContentTooLarge, StorageError."""
        if not MEDIA_TYPE.fullmatch(media_type):
            raise StorageError(f"{media_type!r} is not a media type")
        if not owner:
            raise StorageError("content needs an owner", hint="pass the tenant or execution that puts it")
        if len(data) > max_bytes:
            raise ContentTooLarge(f"{len(data)} bytes; at most {max_bytes} are stored")
        address = address_of(data)
        about = json.dumps({"media_type": media_type, "size": len(data)}).encode()
        while True:
            self._create(self._owner_key(address, owner), b"1")
            self._create(self._key("about", address), about)
            self._create(self._key("objects", address), data)
            if not self._erasure_under_way(address):
                break
            self._sleep(WAIT_S)
        return self.stat(address) or StoredContent(address, len(data), media_type)

    async def put_stream(
        self, chunks: AsyncIterable[bytes], media_type: str, *, owner: str, max_bytes: int = MAX_BLOB_BYTES
    ) -> StoredContent:
        """`put` for content in pieces. They are gathered in memory: the address is known only at the end."""
        import asyncio

        pieces: list[bytes] = []
        size = 0
        async for chunk in chunks:
            size += len(chunk)
            if size > max_bytes:
                raise ContentTooLarge(f"more than {max_bytes} bytes came; nothing was kept")
            pieces.append(chunk)
        return await asyncio.to_thread(
            self.put, b"".join(pieces), media_type, owner=owner, max_bytes=max_bytes
        )

    def get(self, address: str) -> bytes:
        """The bytes, checked against the address. Raises: ContentMissing; StorageError when they
        are others.
        """
        data = self._read(self._key("objects", address)) if self.stat(address) is not None else None
        if data is None:
            raise ContentMissing(f"{address}: no such content here")
        if f"sha256:{hashlib.sha256(data).hexdigest()}" != address:
            raise StorageError(
                f"{address}: the bytes in the object store are others",
                hint="put the content again under another name and look who changed it",
            )
        return data

    def stat(self, address: str) -> StoredContent | None:
        """Size and media type, or None."""
        about = self._read(self._key("about", address))
        if about is None:
            return None
        told = json.loads(about)
        return StoredContent(address, told["size"], told["media_type"])

    def owners(self, address: str) -> frozenset[str]:
        """Everyone who put these bytes and has not dropped them."""
        prefix = self._key("owners", address) + "/"
        return frozenset(_owner(path.removeprefix(prefix)) for path in self._list(prefix))

    def ls(self, *, owner: str | None = None) -> list[StoredContent]:
        """What is stored, by address; with `owner`, only what that owner put."""
        prefix = f"{self._prefix}about/"
        found = [
            self.stat(f"sha256:{path.removeprefix(prefix).replace('/', '')}") for path in self._list(prefix)
        ]
        items = [
            item
            for item in found
            if item is not None and (owner is None or owner in self.owners(item.address))
        ]
        return sorted(items, key=lambda item: item.address)

    def drop(self, address: str, *, owner: str) -> bool:
        """Take one owner out of the set; True when that emptied it and the bytes were erased."""
        self._delete(self._owner_key(address, owner))
        mark = self._key("erasing", address)
        self._put(mark, str(self._clock()).encode())
        try:
            if self.owners(address):
                return False
            known = self.stat(address) is not None
            self._delete(self._key("about", address))
            self._delete(self._key("objects", address))
            return known
        finally:
            self._delete(mark)

    def close(self) -> None:
        """Nothing is held open."""

    # -- keys and requests -----------------------------------------------------------------------------------

    def _key(self, kind: str, address: str) -> str:
        if not ADDRESS.fullmatch(address):
            raise StorageError(
                f"{address!r} is not a content address",
                hint='addresses look like "sha256:" and 64 hex digits',
            )
        digest = address.removeprefix("sha256:")
        return f"{self._prefix}{kind}/{digest[:2]}/{digest[2:]}"

    def _owner_key(self, address: str, owner: str) -> str:
        name = base64.urlsafe_b64encode(clean_text(owner).encode()).decode().rstrip("=")
        return f"{self._key('owners', address)}/{name}"

    def _erasure_under_way(self, address: str) -> bool:
        mark = self._key("erasing", address)
        since = self._read(mark)
        if since is None:
            return False
        if self._clock() - float(since) > MARK_LIFE_S:
            self._delete(mark)  # its eraser died; what it may have removed is written again by the next round
        return True

    def _create(self, key: str, data: bytes) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError

        try:
            obstore.put(self._store, key, data, mode="create")
        except AlreadyExistsError:
            return
        except BaseError as error:
            raise StorageError(f"{key}: could not be written ({error})") from error

    def _put(self, key: str, data: bytes) -> None:
        import obstore
        from obstore.exceptions import BaseError

        try:
            obstore.put(self._store, key, data)
        except BaseError as error:
            raise StorageError(f"{key}: could not be written ({error})") from error

    def _read(self, key: str) -> bytes | None:
        import obstore
        from obstore.exceptions import BaseError

        try:
            return bytes(obstore.get(self._store, key).bytes())
        except FileNotFoundError:
            return None
        except BaseError as error:
            raise StorageError(f"{key}: could not be read ({error})") from error

    def _delete(self, key: str) -> None:
        import obstore
        from obstore.exceptions import BaseError

        try:
            obstore.delete(self._store, key)
        except FileNotFoundError:
            return
        except BaseError as error:
            raise StorageError(f"{key}: could not be removed ({error})") from error

    def _list(self, prefix: str) -> list[str]:
        import obstore
        from obstore.exceptions import BaseError

        try:
            return [item["path"] for page in obstore.list(self._store, prefix) for item in page]
        except FileNotFoundError:
            return []
        except BaseError as error:
            raise StorageError(f"{prefix}: could not be listed ({error})") from error


def _owner(name: str) -> str:
    return base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
