"""Files named by the SHA-256 of their bytes: the part of the content store that touches the file system.

Guarantees: a name exists only with all of its bytes behind it, and both are on disk when `link` returns; a
kill at any instant leaves either nothing, an unnamed file that the kernel frees, or (only where O_TMPFILE is
missing) a file in `tmp/` that `clear_tmp` removes. Steps of a write, in this order: (1) open unnamed, (2)
write and hash, (3) fsync the file, (4) link it under its name, (5) fsync the folder of the name. Linking
never replaces: whoever comes second finds the same bytes, or replaces damaged ones by rename.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from fumehood.agent._sqlite import StorageError, StorageFull, fsync_folder, make_private_folder

ADDRESS: Final = re.compile(r"sha256:[0-9a-f]{64}")
"""What an address looks like. Checked before any path is built from one."""

_NO_TMPFILE: Final = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL, errno.ENOSYS})


def address_of(data: bytes) -> str:
    """The address of these bytes: "sha256:" and lower-case hex."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class BlobWriter:
    """One blob being written. Use as a context manager; without `link` nothing remains."""

    def __init__(self, root: Path, *, force_named: bool = False) -> None:
        self._root = root
        self._hash = hashlib.sha256()
        self._temporary: Path | None = None
        self.size = 0
        objects = root / "objects"
        try:
            if force_named or not Path("/proc/self/fd").exists():
                raise OSError(errno.EOPNOTSUPP, "an unnamed file could not be linked here")
            self._descriptor = os.open(objects, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in _NO_TMPFILE:
                raise
            self._temporary = root / "tmp" / secrets.token_hex(16)
            self._descriptor = os.open(
                self._temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600
            )

    @property
    def address(self) -> str:
        """The address of what was written so far."""
        return f"sha256:{self._hash.hexdigest()}"

    def write(self, data: bytes) -> None:
        """Append bytes. Raises: StorageFull."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            raise _full_or_same(error, self._root) from error
        self._hash.update(data)
        self.size += len(data)

    def sync(self) -> None:
        """Step 3: the bytes are on disk, still without a name."""
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise _full_or_same(error, self._root) from error

    def link(self) -> bool:
        """Steps 4 and 5: give the bytes their name. False when the name stood already with the same bytes.
        Call `sync` first.
        """
        target = blob_path(self._root, self.address)
        make_private_folder(target.parent)
        try:
            self._link_to(target)
        except FileExistsError:
            if _sound(target, self.address):
                fsync_folder(target.parent)  # the first writer may not have reached step 5 yet
                return False
            self._replace(target)
        fsync_folder(target.parent)
        return True

    def _replace(self, target: Path) -> None:
        # The disk damaged the old copy. link(2) cannot replace, so a second name is made first and renamed
        # over it.
        spare = self._root / "tmp" / secrets.token_hex(16)
        self._link_to(spare)
        spare.replace(target)

    def _link_to(self, name: Path) -> None:
        if self._temporary is not None:
            os.link(self._temporary, name)
            return
        # Naming a src_dir_fd makes Python call linkat(2) with AT_SYMLINK_FOLLOW; plain link(2) would link the
        # entry in /proc itself. The path is absolute, so which descriptor it is does not matter.
        os.link(f"/proc/self/fd/{self._descriptor}", name, src_dir_fd=self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._descriptor)
        if self._temporary is not None:
            self._temporary.unlink(missing_ok=True)


def blob_path(root: Path, address: str) -> Path:
    """Where the bytes of `address` lie. Raises: StorageError when it is not an address."""
    if not ADDRESS.fullmatch(address):
        raise StorageError(
            f"{address!r} is not a content address", hint='addresses look like "sha256:" and 64 hex digits'
        )
    digest = address.removeprefix("sha256:")
    return root / "objects" / digest[:2] / digest[2:]


def read_blob(root: Path, address: str) -> bytes | None:
    """The bytes, checked against their address; None when there are none. Raises: StorageError when the disk
    changed them.
    """
    path = blob_path(root, address)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    if address_of(data) != address:
        raise StorageError(
            f"{path}: the bytes are not the ones that were stored (they hash to {address_of(data)})",
            hint="the disk or someone changed the file; put the content again to repair it",
        )
    return data


def remove_blob(root: Path, address: str) -> bool:
    """Remove the bytes and make that durable; False when they were gone already."""
    path = blob_path(root, address)
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    fsync_folder(path.parent)
    return True


def all_blobs(root: Path) -> Iterator[tuple[str, float]]:
    """Every address that has a file, with the file's change time in seconds."""
    for folder in sorted((root / "objects").iterdir()):
        if not folder.is_dir():
            continue
        for file in sorted(folder.iterdir()):
            address = f"sha256:{folder.name}{file.name}"
            if ADDRESS.fullmatch(address):
                with suppress(FileNotFoundError):
                    yield address, file.stat().st_mtime


def clear_tmp(root: Path, *, older_than: float) -> int:
    """Remove leftovers in `tmp/` last changed before `older_than` (seconds since the epoch); how many."""
    removed = 0
    for file in (root / "tmp").iterdir():
        with suppress(FileNotFoundError):
            if file.stat().st_mtime < older_than:
                file.unlink()
                removed += 1
    return removed


def _sound(path: Path, address: str) -> bool:
    try:
        with path.open("rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}" == address
    except FileNotFoundError:
        return False


def _full_or_same(error: OSError, root: Path) -> Exception:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StorageFull(
            f"{root}: no room for the content ({error.strerror})",
            hint="free space, raise the quota, or run `fumehood store sweep`",
        )
    return error
