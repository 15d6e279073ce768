"""Compiled modules on disk: made once, verified at every load, never trusted because of where they lie.

A compiled module is native code, so the folder is 0700 and ours, files are 0600 and ours, and each file
begins with the SHA-256 of what follows. That catches damage and mix-ups; against someone who may write as
this user there is no defence here. The key covers the engine's bytes, our own edits, the wasmtime
version, its settings and the machine.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_DIGEST = 32
DAY_S = 86_400
KEEP_S = 30 * DAY_S


class CacheError(Exception):
    """The cache folder can't be used; the message says why and what to do."""


def default_folder() -> Path:
    """$FUMEHOOD_CACHE, else $XDG_CACHE_HOME/fumehood, else ~/.cache/fumehood."""
    given = os.environ.get("FUMEHOOD_CACHE")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fumehood"


class Cache:
    """A folder of verified files. Raises CacheError when another user could write to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise CacheError(
                f"{folder} must be a folder of mode 0700 owned by user {os.geteuid()}, but has mode "
                f"{stat.S_IMODE(found.st_mode):04o} and owner {found.st_uid}; "
                f"chmod 700 it, or set FUMEHOOD_CACHE to another folder"
            )

    def get(self, key: str) -> bytes | None:
        """The verified content of `key`; None when absent or damaged (a damaged file is removed)."""
        path = self._path(key)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        with os.fdopen(fd, "rb") as file:
            found = os.fstat(file.fileno())
            mine = found.st_uid == os.geteuid() and not found.st_mode & 0o077 and stat.S_ISREG(found.st_mode)
            if time.time() - found.st_mtime > DAY_S:
                os.utime(file.fileno())  # in use: `_prune` goes by this
            data = file.read() if mine else b""
        if hashlib.sha256(memoryview(data)[_DIGEST:]).digest() != data[:_DIGEST] or len(data) <= _DIGEST:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        return data[_DIGEST:]

    def put(self, key: str, data: bytes) -> None:
        """Store under `key`: whole or not at all."""
        fd, temporary = tempfile.mkstemp(dir=self.folder)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(hashlib.sha256(data).digest())
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(self._path(key))
            self._prune()
        except BaseException:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
            raise

    def _prune(self) -> None:
        """Remove what nobody loaded for a month: engines of older versions, tens of megabytes each."""
        for path in self.folder.iterdir():
            with contextlib.suppress(OSError):
                if path.suffix in (".bin", ".lock") and time.time() - path.lstat().st_mtime > KEEP_S:
                    path.unlink()

    def get_or_make(self, key: str, make: Callable[[], bytes]) -> bytes:
        """What `get` finds, or what `make` builds; one builder at a time across processes."""
        found = self.get(key)
        if found is not None:
            return found
        with self._locked(key):
            found = self.get(key)
            if found is None:
                found = make()
                self.put(key, found)
        return found

    @contextlib.contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        fd = os.open(self.folder / f"{_digest(key)}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _path(self, key: str) -> Path:
        return self.folder / f"{_digest(key)}.bin"


def _digest(key: str) -> str:
    return hashlib.sha256(f"{key}\0{platform.machine()}".encode()).hexdigest()[:40]


def bundle(parts: dict[str, bytes], meta: dict[str, Any]) -> bytes:
    """Several files and their meta data as one cache entry."""
    head = json.dumps({"meta": meta, "sizes": {name: len(data) for name, data in parts.items()}}).encode()
    return len(head).to_bytes(4, "little") + head + b"".join(parts.values())


def unbundle(data: bytes) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Back from `bundle`."""
    size = int.from_bytes(data[:4], "little")
    head = json.loads(data[4 : 4 + size])
    parts, at = {}, 4 + size
    for name, length in head["sizes"].items():
        parts[name] = data[at : at + length]
        at += length
    return parts, head["meta"]
