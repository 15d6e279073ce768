"""Section B of the catalogue: new namespaces, and mounts in them."""

from __future__ import annotations

import errno
import functools
import os
import struct
import threading
from collections.abc import Callable

from tests.isolate.attacks._kernel import CLONE, SIGCHLD, answers, clone, opening, scratch, syscall
from tests.isolate.attacks._model import Table, World, one_of

TABLE = Table()
attack = TABLE.add


# 16, 17, 18 -------------------------------------------------------------------------------------------------


@attack(
    16,
    "new-user-namespace",
    caged={"unshare": "EPERM", "clone": "EPERM", "clone high bits": "EPERM"},
    control={"unshare": "ok", "clone": "ok", "clone high bits": "ok"},
    control_as="user",
    first="seccomp",
    # max_user_namespaces is 0 in the call's own user namespace.
    walls={"without-seccomp": {"unshare": "ENOSPC", "clone": "ENOSPC", "clone high bits": "ENOSPC"}},
)
def new_user_namespace(world: World) -> dict[str, str]:
    """A user namespace would bring every capability back, over itself."""
    return answers(
        {
            "unshare": lambda: syscall("unshare", CLONE["user"]),
            "clone": lambda: clone(CLONE["user"]),
            "clone high bits": lambda: clone(CLONE["user"] | 1 << 32),
        }
    )


@attack(
    17,
    "clone3",
    caged={"clone3": "ENOSYS", "clone3 plain": "ENOSYS", "thread": "ok"},
    control={"clone3": "ok", "clone3 plain": "ok", "thread": "ok"},
    control_as="user",
    first="seccomp",
    walls={"without-seccomp": {"clone3": "ENOSPC", "clone3 plain": "ok", "thread": "ok"}},
)
def clone3(world: World) -> dict[str, str]:
    """clone3 keeps its flags in memory, where a filter cannot see them. Threads must work without it."""

    def new(flags: int) -> None:
        arguments = struct.pack("11Q", flags, 0, 0, 0, SIGCHLD, 0, 0, 0, 0, 0, 0)
        pid = syscall("clone3", arguments, len(arguments))
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    def thread() -> None:
        done: list[int] = []
        worker = threading.Thread(target=lambda: done.append(1))
        worker.start()
        worker.join()
        if done != [1]:
            raise OSError(errno.EAGAIN, "the thread did not run")

    return answers({"clone3": lambda: new(CLONE["user"]), "clone3 plain": lambda: new(0), "thread": thread})


_OTHERS = ("mount", "pid", "net", "ipc", "uts", "cgroup", "time")
_JOINS = ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")


@attack(
    18,
    "other-namespaces",
    caged={
        **{f"unshare {n}": "EPERM" for n in _OTHERS},
        **{f"setns {n}": "EPERM" for n in _JOINS},
        "setns pidfd": "EPERM",
    },
    control={
        **{f"unshare {n}": "ok" for n in _OTHERS},
        **{f"setns {n}": one_of("ok", "EINVAL") for n in _JOINS},
        "setns pidfd": "ok",
    },
    first="seccomp",
    # No capability: the same answer, but for joining the user namespace one is in, which is EINVAL for
    # everybody.
    walls={
        "without-seccomp": {
            **{f"unshare {n}": "EPERM" for n in _OTHERS},
            **{f"setns {n}": "EPERM" for n in _JOINS},
            "setns user": "EINVAL",
            "setns pidfd": "EPERM",
        }
    },
)
def other_namespaces(world: World) -> dict[str, str]:
    """Every other kind, made and joined."""

    def join(name: str) -> None:
        fd = os.open(f"/proc/self/ns/{name}", os.O_RDONLY)
        syscall("setns", fd, 0)

    steps: dict[str, Callable[[], object]] = {
        f"unshare {name}": functools.partial(syscall, "unshare", CLONE[name]) for name in _OTHERS
    }
    steps |= {f"setns {name}": functools.partial(join, name) for name in _JOINS}
    steps["setns pidfd"] = lambda: syscall("setns", os.pidfd_open(os.getpid()), CLONE["net"])
    return answers(steps)


# 19, 20, 33 -------------------------------------------------------------------------------------------------

_MOUNT_CALLS = (
    "mount bind", "mount move", "umount", "pivot_root", "chroot", "open_tree", "move_mount", "mount_setattr",
    "fsopen", "fspick",
)  # fmt: skip


def _in_new_mounts(step: Callable[[], object]) -> Callable[[], object]:
    """The control must not change the machine it runs on: outside, a private mount namespace comes
    first; inside it is refused.
    """

    def run() -> None:
        try:
            syscall("unshare", CLONE["mount"])
            syscall("mount", None, b"/", None, 0x44000, None)
        except OSError:
            pass
        step()

    return run


@attack(
    19,
    "mount-family",
    caged=dict.fromkeys(_MOUNT_CALLS, "EPERM"),
    control=dict.fromkeys(_MOUNT_CALLS, "ok")
    | {"mount move": one_of("ok", "EINVAL"), "pivot_root": one_of("ok", "EINVAL", "EBUSY")},
    first="seccomp",
    # No capability and Landlock.
    walls={
        "without-seccomp": dict.fromkeys(_MOUNT_CALLS, "EPERM")
        | {"move_mount": one_of("EPERM", "EBADF", "EINVAL")}
    },
)
def mount_family(world: World) -> dict[str, str]:
    """Every call that changes what a path means, old and new."""

    def tree() -> int:
        return syscall("open_tree", -100, b"/tmp", 1 | os.O_CLOEXEC)

    def move() -> None:
        try:
            fd = tree()
        except OSError:
            fd = os.open("/tmp", os.O_PATH)
        syscall("move_mount", fd, b"", -100, b"/tmp", 4)

    def pivot() -> None:
        try:
            syscall("mount", b"t", b"/tmp", b"tmpfs", 0, None)
        except OSError:
            pass
        os.chdir("/tmp")
        syscall("pivot_root", b".", b".")

    def attributes() -> None:
        syscall("mount_setattr", -100, b"/", 0, struct.pack("4Q", 0, 1, 0, 0), 32)

    def unmount() -> None:
        try:
            syscall("mount", b"t", b"/tmp", b"tmpfs", 0, None)
        except OSError:
            pass
        syscall("umount2", b"/tmp", 2)

    steps = {
        "mount bind": lambda: syscall("mount", b"/usr", b"/tmp", None, 4096, None),
        "mount move": lambda: syscall("mount", b"/tmp", b"/usr", None, 8192, None),
        "umount": unmount,
        "pivot_root": pivot,
        "chroot": lambda: syscall("chroot", b"/tmp"),
        "open_tree": tree,
        "move_mount": move,
        "mount_setattr": attributes,
        "fsopen": lambda: syscall("fsopen", b"tmpfs", 0),
        "fspick": lambda: syscall("fspick", -100, b"/", 0),
    }
    return answers({name: _in_new_mounts(step) for name, step in steps.items()})


@attack(
    20,
    "undo-read-only",
    caged={"remount /usr": "EPERM", "remount /": "EPERM", "write /usr": "EROFS", "write /": "EROFS",
           "clear flags": "EPERM"},
    control={"remount /usr": one_of("ok", "EINVAL"), "remount /": "ok", "write /usr": "ok", "write /": "ok",
             "clear flags": "ok"},
    first="seccomp",
    walls={
        "without-seccomp": {
            "remount /usr": "EPERM", "remount /": "EPERM", "write /usr": "EROFS", "write /": "EROFS",
            "clear flags": "EPERM",
        },
        "without-namespaces": {
            "remount /usr": "EPERM", "remount /": "EPERM", "write /usr": "EACCES", "write /": "EACCES",
            "clear flags": "EPERM",
        },
    },
)  # fmt: skip
def undo_read_only(world: World) -> dict[str, str]:
    """Make the view writable, then write to it."""
    remount = 32 | 4096

    def write(folder: str) -> Callable[[], object]:
        def step() -> None:
            path = f"{folder}/fumehood-was-here-{os.getpid()}"
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
            os.unlink(path)

        return step

    return answers(
        {
            "remount /usr": _in_new_mounts(lambda: syscall("mount", b"none", b"/usr", None, remount, None)),
            "remount /": _in_new_mounts(lambda: syscall("mount", b"none", b"/", None, remount, None)),
            "clear flags": _in_new_mounts(
                lambda: syscall("mount_setattr", -100, b"/", 0x8000, struct.pack("4Q", 0, 1, 0, 0), 32)
            ),
            "write /usr": write("/usr"),
            "write /": write(""),
        }
    )


@attack(
    33,
    "own-filesystem",
    caged={"fuse": "ENOENT", "overlay": "EPERM", "tmpfs": "EPERM", "proc": "EPERM"},
    control={
        "fuse": one_of("ok", "ENOENT", "ENODEV"),
        "overlay": one_of("ok", "ENODEV"),
        "tmpfs": "ok",
        "proc": "ok",
    },
    first="seccomp",
    walls={
        "without-namespaces": {
            "fuse": one_of("EACCES", "ENOENT"),
            "overlay": "EPERM",
            "tmpfs": "EPERM",
            "proc": "EPERM",
        }
    },
)
def own_filesystem(world: World) -> dict[str, str]:
    """A file system whose answers the attacker makes."""

    def overlay() -> None:
        base = f"{scratch(world)}/overlay-{os.getpid()}"
        for name in ("lower", "upper", "work"):
            os.makedirs(f"{base}/{name}", exist_ok=True)
        syscall("mount", b"t", base.encode(), b"tmpfs", 0, None)
        for name in ("lower", "upper", "work"):
            os.makedirs(f"{base}/{name}", exist_ok=True)
        options = f"lowerdir={base}/lower,upperdir={base}/upper,workdir={base}/work"
        syscall("mount", b"o", base.encode(), b"overlay", 0, options.encode())

    return {
        "fuse": opening("/dev/fuse", os.O_RDWR),
        **answers(
            {
                "overlay": _in_new_mounts(overlay),
                "tmpfs": _in_new_mounts(lambda: syscall("mount", b"t", b"/tmp", b"tmpfs", 0, None)),
                "proc": _in_new_mounts(lambda: syscall("mount", b"p", b"/tmp", b"proc", 0, None)),
            }
        ),
    }
