"""Layer `mount`: a root of the tool's own, read-only, holding what the plan names and nothing else; /tmp and
/dev/shm private to the call.

Every source is cloned as a detached tree before anything is covered, so that no mount point is ever made on
the host, and carries its flags (read-only, nosuid, nodev, noexec) from its first instant. The view is built
by a more privileged namespace than the one the tool lives in, which locks every mount in it
(mount_namespaces(7)): not even full capabilities inside could undo one.
"""

from __future__ import annotations

import os
import stat
from typing import Any

from .. import _uapi_mount as mnt
from .. import _uapi_proc
from . import FULL, MISSING, Status

_STAGE = os.path.realpath("/tmp")  # exists everywhere; covered only inside our own mount namespace


class ViewError(Exception):
    """A path of the plan cannot be shown; the text names it and says why."""


def build_view(plan: dict[str, Any]) -> None:
    """Build the root the plan describes and pivot into it.

    1. Clone every source (detached).
    2. Cover the stage with a tmpfs: the new root.
    3. Make the places and attach the trees, shallow paths first, so that a deeper grant lies on top.
    4. Files, links, masks.
    5. Pivot, let the old root go, make the new one read-only.
    """
    mnt.make_private()
    identity = _IdentityMaps(plan["slot"])
    trees = []
    for bind in plan["binds"]:
        try:
            fd = _clone(bind, identity)
        except OSError as error:
            if bind.get("optional"):
                continue
            raise ViewError(f"{bind['source']} cannot be shown to the tool: {error.strerror}") from error
        trees.append((bind["target"], fd, stat.S_ISDIR(os.fstat(fd).st_mode)))
    identity.close()
    proc = mnt.clone_tree("/proc", mnt.ATTR_NOSUID | mnt.ATTR_NODEV | mnt.ATTR_NOEXEC)
    mnt.mount("tmpfs", _STAGE, "tmpfs", mnt.MS_NOSUID | mnt.MS_NODEV, "size=4m,nr_inodes=8k,mode=755")
    os.umask(0o022)
    for path in plan["dirs"]:
        os.makedirs(_STAGE + path, exist_ok=True)
    mnt.attach(proc, _STAGE + "/proc")
    for target, fd, is_dir in sorted(trees, key=lambda tree: tree[0].count("/")):
        _make_place(_STAGE + target, is_dir, _STAGE)
        mnt.attach(fd, _STAGE + target)
    for path, text in plan["files"].items():
        if not _is_ours(_STAGE + path, _STAGE):
            # A grant shows the folder it belongs into: writing there would change the host's own file.
            raise ViewError(f"{path} is made by the sandbox, and a grant covers its place; grant less")
        os.makedirs(os.path.dirname(_STAGE + path), exist_ok=True)
        with open(_STAGE + path, "w", encoding="utf-8") as file:
            file.write(text)
    for path, target in plan["links"].items():
        # Inside a grant the host's own link is seen, or the tool took it away: nothing is made there.
        if not os.path.lexists(_STAGE + path) and _is_ours(_STAGE + path, _STAGE):
            os.makedirs(os.path.dirname(_STAGE + path), exist_ok=True)
            os.symlink(target, _STAGE + path)
    for path, shown in plan["covers"].items():
        if os.path.exists(_STAGE + path):
            mnt.mount(_STAGE + shown, _STAGE + os.path.realpath(path), None, mnt.MS_BIND)
    for path in plan["masks"]:
        _mask(_STAGE + path)
    mnt.enter_root(_STAGE)
    mnt.mount(None, "/", None, mnt.MS_BIND | mnt.MS_REMOUNT | mnt.MS_RDONLY | mnt.MS_NOSUID | mnt.MS_NODEV)


def _clone(bind: dict[str, Any], identity: _IdentityMaps) -> int:
    source = bind["source"]
    attributes = mnt.ATTR_NOSUID
    attributes |= 0 if bind.get("device") else mnt.ATTR_NODEV
    attributes |= 0 if bind.get("write") else mnt.ATTR_RDONLY
    attributes |= 0 if bind.get("exec") else mnt.ATTR_NOEXEC
    owner = os.stat(source) if bind.get("own") and identity.wanted else None
    if owner is not None:
        try:
            return mnt.clone_tree(source, attributes, identity.fd(owner.st_uid, owner.st_gid))
        except OSError:
            pass  # the file system has no id-mapped mounts: ordinary permissions of the slot's user hold
    return mnt.clone_tree(source, attributes)


class _IdentityMaps:
    """User namespaces that make a grant's owner look like the slot's user (root mode: the slot owns no file
    on disk).
    """

    def __init__(self, slot: int | None) -> None:
        self._slot = slot
        self._fds: dict[tuple[int, int], int] = {}

    @property
    def wanted(self) -> bool:
        return self._slot is not None

    def fd(self, uid: int, gid: int) -> int:
        if (uid, gid) not in self._fds:
            self._fds[uid, gid] = self._make(uid, gid)
        return self._fds[uid, gid]

    def _make(self, uid: int, gid: int) -> int:
        ready_read, ready_write = os.pipe2(os.O_CLOEXEC)
        hold_read, hold_write = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            os.close(hold_write)
            try:
                _uapi_proc.unshare(_uapi_proc.CLONE_NEWUSER)
                os.write(ready_write, b"1")
                os.read(hold_read, 1)
            finally:
                os._exit(0)
        os.close(ready_write)
        os.close(hold_read)
        try:
            if os.read(ready_read, 1) != b"1":
                raise OSError(1, "no user namespace for an id-mapped mount")
            for name, number in (("uid_map", uid), ("gid_map", gid)):
                with open(f"/proc/{pid}/{name}", "w", encoding="ascii") as file:
                    file.write(f"{number} {self._slot} 1")
            return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            os.close(ready_read)
            os.close(hold_write)
            os.waitpid(pid, 0)

    def close(self) -> None:
        for fd in self._fds.values():
            os.close(fd)


def _is_ours(path: str, stage: str) -> bool:
    """Whether what has to be made for `path` is made on our own tmpfs, not in the host's tree."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return os.path.realpath(path) == path and os.lstat(path).st_dev == os.lstat(stage).st_dev


def _make_place(path: str, is_dir: bool, stage: str) -> None:
    if os.path.lexists(path):
        return
    if not _is_ours(path, stage):
        raise ViewError(f"{path[len(stage) :]} is gone from the folder that another grant shows")
    os.makedirs(path if is_dir else os.path.dirname(path), exist_ok=True)
    if not is_dir:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o444))


def _mask(path: str) -> None:
    """Cover what a grant would show by accident: the host's own state inside a folder that the tool may
    read.
    """
    if os.path.isdir(path):
        mnt.mount(
            "tmpfs",
            path,
            "tmpfs",
            mnt.MS_RDONLY | mnt.MS_NOSUID | mnt.MS_NODEV | mnt.MS_NOEXEC,
            "size=4k,mode=555",
        )
    elif os.path.exists(path):
        mnt.attach(
            mnt.clone_tree(f"{_STAGE}/dev/null", mnt.ATTR_RDONLY | mnt.ATTR_NOSUID | mnt.ATTR_NOEXEC), path
        )


def private_places(plan: dict[str, Any]) -> None:
    """The call's own /tmp and /dev/shm, bounded in bytes and inodes, with the grants that lie below /tmp put
    back on top.
    """
    flags = mnt.MS_NOSUID | mnt.MS_NODEV | mnt.MS_NOEXEC
    options = f"size={plan['tmp_bytes']},nr_inodes={plan['tmp_inodes']},mode=1777"
    if plan["below_tmp"]:
        # Built aside, on /dev/shm's place, because the grants' sources are still visible below /tmp and must
        # be bound first.
        aside = "/dev/shm"
        mnt.mount("tmpfs", aside, "tmpfs", flags, options)
        for path in plan["below_tmp"]:
            place = aside + path[len("/tmp") :]
            _make_place(place, os.path.isdir(path), aside)
            mnt.mount(path, place, None, mnt.MS_BIND | mnt.MS_REC)
        mnt.mount(aside, "/tmp", None, mnt.MS_MOVE)
    else:
        mnt.mount("tmpfs", "/tmp", "tmpfs", flags, options)
    mnt.mount("tmpfs", "/dev/shm", "tmpfs", flags, f"size={plan['tmp_bytes']},nr_inodes=4k,mode=1777")


def probe() -> Status:
    """Clone a tree read-only and attach it: the calls the view is built from (Linux 5.12)."""
    try:
        if os.geteuid() == 0:
            _uapi_proc.unshare(_uapi_proc.CLONE_NEWNS)
        else:
            from . import user

            user.become_builder()
        mnt.make_private()
        fd = mnt.clone_tree("/usr", mnt.ATTR_RDONLY | mnt.ATTR_NOSUID | mnt.ATTR_NODEV)
        mnt.mount("tmpfs", _STAGE, "tmpfs", 0, "size=64k")
        os.mkdir(_STAGE + "/usr")
        mnt.attach(fd, _STAGE + "/usr")
    except OSError as error:
        return (
            MISSING,
            f"no private mounts ({error}); needs root with CAP_SYS_ADMIN or user namespaces, and Linux 5.12",
        )
    return FULL, ""
