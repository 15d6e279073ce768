"""Opening SQLite files the way the log and the store need: private, durable, and with errors a person can act
on.

Guarantees: new files are 0600 in a new folder of 0700; every commit is on disk before it returns (WAL with
synchronous=FULL); a file of another program or of a newer fumehood is refused, never rewritten. Before
editing: `mapped` is the only place where SQLite's messages become ours, and the folder entry of a new
database is fsynced here because SQLite syncs it only for its journal.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fumehood.policies.errors import HostError

BUSY_TIMEOUT_S: Final = 30.0
"""How long a write waits for another process that is writing. Their transactions take milliseconds; this is
for a stalled disk.
"""


_MORE_DESCRIPTORS: Final = "this process may have no more open files: raise it, as with ulimit -n 1024"


class StorageError(HostError):
    """The log or the store cannot be read or written; the message names the file and the cause."""


class StorageFull(StorageError):
    """No room left: the disk is full or the file reached its `max_bytes`. Nothing of the refused write was
    kept.
    """


class StorageVersion(StorageError):
    """The file was made by a newer fumehood, or it is not a fumehood file at all."""


@contextmanager
def mapped(path: Path) -> Iterator[None]:
    """Turn SQLite's and the kernel's errors on `path` into ours, chained."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translated(path, error) from error
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror or error}", hint=_os_hint(error, path)) from error


def _translated(path: Path, error: sqlite3.Error) -> StorageError:
    text = str(error)
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith("SQLITE_FULL"):
        return StorageFull(
            f"{path}: the disk is full, or the file reached its size limit",
            hint="free space or raise max_bytes; nothing was written",
        )
    if name.startswith("SQLITE_NOTADB"):
        return StorageVersion(
            f"{path}: this file is not a database",
            hint="point the state folder elsewhere, or move the file away",
        )
    if name.startswith("SQLITE_CORRUPT"):
        return StorageError(
            f"{path}: the database file is damaged ({text})",
            hint="restore it from a copy; keep the damaged file for study",
        )
    if name.startswith("SQLITE_READONLY"):
        return StorageError(
            f"{path}: the file or its folder cannot be written ({text})",
            hint=f"check who owns {path.parent}; SQLite also writes {path.name}-wal there",
        )
    if name.startswith("SQLITE_CANTOPEN") and _out_of_descriptors():
        return StorageError(f"{path}: cannot be opened: too many open files", hint=_MORE_DESCRIPTORS)
    if name.startswith("SQLITE_CANTOPEN"):
        return StorageError(
            f"{path}: cannot be opened ({text})",
            hint=f"check that {path.parent} exists and may be read and written",
        )
    if name.startswith("SQLITE_BUSY") or name.startswith("SQLITE_LOCKED"):
        return StorageError(
            f"{path}: another process held the write lock for more than {BUSY_TIMEOUT_S:g} s",
            hint="look for a stopped or hanging process that has the file open",
        )
    if name.startswith("SQLITE_IOERR"):
        return StorageError(
            f"{path}: the disk refused a read or write ({text})",
            hint="check the disk, quotas and file size limits",
        )
    return StorageError(f"{path}: {text}")


def _out_of_descriptors() -> bool:
    """SQLite does not say why it could not open a file."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno == errno.EMFILE
    return False


_NOTHING_YET = "nothing was recorded here yet, or --config names another state folder"


def _os_hint(error: OSError, path: Path) -> str | None:
    if error.errno == errno.EMFILE:
        return _MORE_DESCRIPTORS
    if isinstance(error, PermissionError):
        return (
            f"uid {os.geteuid()} needs to read and write {path.parent}, or another state folder "
            "([host] state, XDG_STATE_HOME)"
        )
    if isinstance(error, IsADirectoryError):
        return f"move the folder {path} away, or name another state folder ([host] state, XDG_STATE_HOME)"
    if isinstance(error, FileNotFoundError):
        return f"{path.parent} cannot be made there; name another state folder ([host] state, XDG_STATE_HOME)"
    if isinstance(error, (NotADirectoryError, FileExistsError)):
        return f"something that is not a folder stands at {path.parent}"
    return None


def make_private_folder(folder: Path) -> None:
    """Create `folder` and missing parents with mode 0700. A folder that exists keeps the mode its owner
    chose.
    """
    missing = []
    at = folder
    while not at.exists():
        missing.append(at)
        at = at.parent
    for made in reversed(missing):
        try:
            made.mkdir(mode=0o700)
        except FileExistsError:
            continue  # another process was faster
        fsync_folder(made.parent)
    if not folder.is_dir():
        raise NotADirectoryError(20, "is not a folder", str(folder))


def fsync_folder(folder: Path) -> None:
    """Make the entries of a folder durable; a new name is not on disk until its folder is."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def connect(
    path: Path, *, application_id: int, schema: str, version: int, read_only: bool = False
) -> sqlite3.Connection:
    """A connection in autocommit mode to a WAL database of ours, created when missing (unless read_only).

    application_id, version: this file family's mark and schema number; schema: the statements that make
    version `version`. Raises: StorageError, StorageVersion.
    """
    with mapped(path):
        if read_only:
            if not path.exists():
                raise StorageError(f"{path}: there is no such file", hint=_NOTHING_YET)
        else:
            make_private_folder(path.parent)
            _make_private_file(path)
        connection = _reader(path) if read_only else _opened(path, "mode=rw")
    try:
        with mapped(path):
            _check_family(connection, path, application_id, version)
            if read_only:
                if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
                    raise StorageError(f"{path}: is empty", hint=_NOTHING_YET)
                connection.execute("PRAGMA query_only=1")
            else:
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=FULL")
                _create(connection, path, application_id, schema, version)
    except BaseException:  # raised on: whatever ended it, nobody else has the connection to close it
        connection.close()
        raise
    return connection


def _opened(path: Path, how: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{how}",
        uri=True,
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        check_same_thread=False,
    )


def _reader(path: Path) -> sqlite3.Connection:
    """A connection that only reads, on a disk or in a folder that we may not write to as well.

    SQLite wants to make PATH-shm beside a WAL database. Where it may not: without a WAL the file is all there
    is, and whoever begins to write makes one first. With a WAL and no PATH-shm nobody has the database open,
    so a copy of both is the same database.
    """
    with open(path, "rb"):  # the kernel's own word when we may not even read it
        pass
    connection = _opened(path, "mode=ro")
    try:
        connection.execute("PRAGMA schema_version").fetchone()
        return connection
    except sqlite3.OperationalError as error:
        connection.close()
        if not (error.sqlite_errorname or "").startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN")):
            raise
    log = path.with_name(f"{path.name}-wal")
    if not log.exists() or log.stat().st_size == 0:
        return _opened(path, "mode=ro&immutable=1")
    with tempfile.TemporaryDirectory(prefix="fumehood-") as folder:
        copy = Path(folder) / path.name
        shutil.copyfile(path, copy)
        shutil.copyfile(log, f"{copy}-wal")
        connection = _opened(copy, "mode=rw")
        connection.execute("PRAGMA schema_version").fetchone()  # now its files are open: their names may go
    return connection


def _make_private_file(path: Path) -> None:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        mode = path.stat().st_mode
        if mode & 0o077:
            path.chmod(0o600)
        return
    fsync_folder(path.parent)


def _check_family(connection: sqlite3.Connection, path: Path, application_id: int, version: int) -> None:
    found_id = connection.execute("PRAGMA application_id").fetchone()[0]
    found_version = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if found_id != application_id and (tables or found_id):
        raise StorageVersion(
            f"{path}: this is a database of another program", hint="point the state folder elsewhere"
        )
    if found_version > version:
        raise StorageVersion(
            f"{path}: written by a newer fumehood (schema {found_version}; this one knows up to {version})",
            hint="upgrade fumehood on this machine; nothing was changed",
        )


def _create(
    connection: sqlite3.Connection, path: Path, application_id: int, schema: str, version: int
) -> None:
    if connection.execute("PRAGMA user_version").fetchone()[0] == version:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Read again under the lock: another process may have created the schema meanwhile.
        _check_family(connection, path, application_id, version)
        if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
            for statement in schema.split(";"):
                if statement.strip():
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id={application_id}")
            connection.execute(f"PRAGMA user_version={version}")
        connection.execute("COMMIT")
    except BaseException:  # raised on: whatever ended it, the transaction is not left open
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
