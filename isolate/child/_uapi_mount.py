"""Mount calls: mount(2), umount2(2), open_tree(2), move_mount(2), mount_setattr(2), pivot_root(2).

Detached clones (`clone_tree`) are used instead of bind mounts: they are read-only from their first instant,
whole trees in one call, and the source may lie under a place that is about to be covered. Linux 5.12 and
later.
"""

from __future__ import annotations

import ctypes
import os
import struct

from . import _uapi_proc as sys

_libc = ctypes.PyDLL(None, use_errno=True)

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 4096, 8192, 16384, 1 << 18
MNT_DETACH = 2

ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_NOEXEC, ATTR_IDMAP = 1, 2, 4, 8, 0x00100000

_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_AT_RECURSIVE = 0x8000
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_F_EMPTY_PATH, _MOVE_MOUNT_T_EMPTY_PATH = 4, 0x40


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """mount(2); OSError names the target."""
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    result = _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])
    sys.checked(result, f"mount {kind or ''} on {target}")


def detach(target: str) -> None:
    """umount2(target, MNT_DETACH)."""
    sys.checked(_libc.umount2(os.fsencode(target), MNT_DETACH), f"umount {target}")


def make_private(target: str = "/") -> None:
    """Nothing that happens below `target` reaches the host from now on."""
    mount(None, target, None, MS_REC | MS_PRIVATE)


def clone_tree(path: str, attributes: int, userns_fd: int | None = None) -> int:
    """A detached clone of the tree at the real path `path` with `attributes` on every mount in it.

    Returns its descriptor. A path that a link leads elsewhere answers ELOOP: somebody put that link there
    since it was looked at.

    userns_fd: map file owners by this user namespace (ATTR_IDMAP); OSError when a file system in the tree
    cannot.
    """
    place = sys.open_real(path)
    try:
        fd = sys.syscall(
            "open_tree", place, b"", _OPEN_TREE_CLONE | _AT_RECURSIVE | _AT_EMPTY_PATH | os.O_CLOEXEC
        )
    finally:
        os.close(place)
    try:
        set_attributes(fd, attributes)
        if userns_fd is not None:
            _set(fd, struct.pack("QQQQ", ATTR_IDMAP, 0, 0, userns_fd))
    except OSError:
        os.close(fd)
        raise
    return fd


def set_attributes(fd: int, attributes: int) -> None:
    """Set mount attributes on a whole (detached or attached) tree."""
    _set(fd, struct.pack("QQQQ", attributes, 0, 0, 0))


def _set(fd: int, attr: bytes) -> None:
    sys.syscall("mount_setattr", fd, b"", _AT_EMPTY_PATH | _AT_RECURSIVE, attr, len(attr))


def attach(fd: int, target: str) -> None:
    """Move a detached tree to the real path `target` and close the descriptor."""
    try:
        place = sys.open_real(target)
        try:
            sys.syscall(
                "move_mount", fd, b"", place, b"", _MOVE_MOUNT_F_EMPTY_PATH | _MOVE_MOUNT_T_EMPTY_PATH
            )
        finally:
            os.close(place)
    finally:
        os.close(fd)


def enter_root(new_root: str) -> None:
    """Make `new_root` the root and let the old one go: pivot_root(".", "."), then detach (pivot_root(2),
    NOTES).
    """
    os.chdir(new_root)
    sys.syscall("pivot_root", b".", b".")
    detach(".")
    os.chdir("/")
