"""Section D of the catalogue, row 70: what a tool leaves where the host will collect it.

Outside, as the control, each body looks at what it made as a careless host would: by its name.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
import stat
import time
from collections.abc import Callable
from typing import Any

from tests.isolate.attacks._kernel import answer, scratch
from tests.isolate.attacks._model import BOTH_TIERS, MIB, Cage, Table, World, limits, one_of

TABLE = Table()
attack = TABLE.add

_LINK, _NO_TEXT, _CONTROL = "it is a link", "its name is not UTF-8", "its name holds control characters"


def _made(base: str) -> str:
    """The folder `out`, empty."""
    folder = f"{base}/out"
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    return folder


def _write(path: str | bytes, text: str = "text") -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def _carelessly(path: str) -> str:
    """What opening by name gives: whose content, or what it would wait for."""
    if stat.S_ISFIFO(os.stat(path).st_mode):
        return "waits for ever"
    with open(path, encoding="utf-8") as file:
        return "the secret" if "not the tool's" in file.read(100) else "text"


_ODD_NAMES = {"new\nline": "new\nline", "escape": "esc\x1b[31m", "bidi": "bi\u202edi", "lines": "li\u2028ne"}


@attack(
    70,
    "files-that-are-none",
    caged={
        "told": {"device": "EPERM", "hard link to a grant": one_of("ok", "EXDEV"),
                 "folder moved": one_of("EROFS", "EACCES")},
        "taken": {"out/a": "text", "out/.a": "text", "out/ünï 🎈": "text", "out/same": "text"},
        "refused": {
            "out/b": _LINK, "out/folder": "it is a folder", "out/fifo": "it is a fifo",
            "out/socket": "it is a socket",
            "out/to folder": _LINK, "out/loop": _LINK,
            "out/to folder/events.db": "a link leads there", "out/loop/x": "a link leads there",
            "out/closed": one_of("it cannot be read: Permission denied", "taken"),
            "out/large": "it has 41943040 bytes, and 33554432 are taken at most",
            "out/gone": "there is no such file",
            "out/\udcff": _NO_TEXT, **{f"out/{name}": _CONTROL for name in _ODD_NAMES.values()},
        },
        "descriptors": 0, "outcome": "ok", "next": "ok",
    },
    control={"told": {"device": "ok", "hard link to a grant": one_of("ok", "EXDEV"), "folder moved": "ok"},
             "through a link": "the secret", "through a folder": "the secret", "fifo": "waits for ever"},
    first="host code",
    cage=Cage(limits=(("tmp", 256 * MIB),), write=("results",)),
    only=BOTH_TIERS,
    host="files_that_are_none",
)  # fmt: skip
def files_that_are_none(world: World) -> dict[str, Any]:
    """Links to a secret, a fifo, a socket, a device, hard links, closed and large files, names that are no
    text: each under a name that is asked for.
    """
    base = scratch(world)
    out = _made(base)
    for name in ("a", ".a", "ünï 🎈", "closed"):
        _write(f"{out}/{name}")
    os.chmod(f"{out}/closed", 0)
    os.link(f"{out}/a", f"{out}/same")
    os.symlink(world["secret_file"], f"{out}/b")
    os.symlink(world["secret_folder"], f"{out}/to folder")
    os.symlink("loop", f"{out}/loop")
    os.mkdir(f"{out}/folder")
    os.mkfifo(f"{out}/fifo")
    with socket.socket(socket.AF_UNIX) as sock:
        os.chdir(out)
        sock.bind("socket")
    with open(f"{out}/large", "wb") as file:
        file.truncate(40 * MIB)
    _write(os.fsencode(out) + b"/\xff")
    for name in _ODD_NAMES.values():
        _write(f"{out}/{name}")
    granted = f"{world['results']}/linked-{os.getpid()}"
    _write(granted)
    told = {
        "device": answer(lambda: os.mknod(f"{out}/device", stat.S_IFCHR | 0o666, os.makedev(1, 5))),
        "hard link to a grant": answer(lambda: os.link(granted, f"{out}/granted")),
        "folder moved": answer(lambda: os.rename(base, f"{base}-moved")),
    }
    os.unlink(granted)
    if world["ctx"] is not None:
        return told
    if told["folder moved"] == "ok":
        os.rename(f"{base}-moved", base)
    return {
        "told": told,
        "through a link": _carelessly(f"{out}/b"),
        "through a folder": _carelessly(f"{out}/to folder/{os.path.basename(world['secret_file'])}"),
        "fifo": _carelessly(f"{out}/fifo"),
    }


def _daemon(work: Callable[[], None]) -> None:
    """Run `work` for ever in a process that nobody waits for."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
        except OSError:
            pass
        if os.fork() == 0:
            end = time.monotonic() + 20.0  # outside nobody kills it
            while time.monotonic() < end:
                try:
                    work()
                except OSError as error:
                    if error.errno not in (errno.ENOENT, errno.EEXIST):
                        os._exit(1)
        os._exit(0)
    os.waitpid(pid, 0)


@attack(
    70,
    "swapped-while-it-is-read",
    caged={"secret": False, "contents": "whole", "still running": False, "outcome": "ok", "next": "ok"},
    control={"still running": True, "swapped": True},
    first="host code",
    cage=Cage(limits=(("tmp", 256 * MIB),), write=("results",)),
    only=BOTH_TIERS,
    host="swapped_while_it_is_read",
)  # fmt: skip
def swapped_while_it_is_read(world: World) -> dict[str, Any]:
    """Daemons that swap a file for a link to a secret, a folder for a link to its folder, and let a file
    grow, without end; each holds a lock by which the host sees whether it lives.
    """
    out = _made(scratch(world))
    for name in ("file", "swap", "grows"):
        _write(f"{out}/{name}")
    os.mkdir(f"{out}/folder")
    _write(f"{out}/folder/events.db")
    os.symlink(world["secret_file"], f"{out}/soft")
    os.symlink(world["secret_folder"], f"{out}/soft folder")
    lock = os.open(f"{world['results']}/lock", os.O_RDWR | os.O_CREAT, 0o666)
    fcntl.flock(lock, fcntl.LOCK_EX)

    def swap() -> None:
        for one, other in (("soft", "swap"), ("soft folder", "folder")):
            os.rename(f"{out}/{one}", f"{out}/aside")
            os.rename(f"{out}/{other}", f"{out}/{one}")
            os.rename(f"{out}/aside", f"{out}/{other}")

    def grow() -> None:
        with open(f"{out}/grows", "ab") as file:
            if file.tell() < 16 * MIB:
                file.write(b"x" * 65536)

    _daemon(swap)
    _daemon(grow)
    if world["ctx"] is not None:
        os.close(lock)
        return {}
    os.close(lock)
    lock = os.open(f"{world['results']}/lock", os.O_RDWR)
    running = answer(lambda: fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)) != "ok"
    end, seen = time.monotonic() + 20.0, set[bool]()
    while len(seen) < 2 and time.monotonic() < end:
        try:
            seen.add(os.path.islink(f"{out}/swap"))
        except OSError:
            continue
    return {"still running": running, "swapped": seen == {True, False}}


@attack(
    70,
    "too-many-names",
    caged={"made": True, "taken": 0,
           "refused": {"out/*": "there are more than 20000 names to look at; nothing was taken"},
           "memory": "bounded", "outcome": "ok", "next": "ok"},
    control={"made": True},
    first="host code",
    cage=limits(tmp=1024 * MIB),
    only=BOTH_TIERS,
    heavy=True,
    host="too_many_names",
)  # fmt: skip
def too_many_names(world: World) -> dict[str, Any]:
    """A folder of so many names that listing it would be work for the host."""
    out = _made(scratch(world))
    fd = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    for number in range(21_000):
        os.close(os.open(f"{number}", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    made = len(os.listdir(fd)) == 21_000
    if world["ctx"] is None:
        shutil.rmtree(out)
    return {"made": made}


@attack(
    70,
    "more-than-is-taken",
    caged={
        "files": [256, "there are more than 256 files", 44],
        "bytes": [1, "the files together have more bytes than the tool's `tmp` (4194304)", 2],
        "sparse": "EFBIG", "memory": "bounded", "outcome": "ok", "next": "ok",
    },
    control={"sparse": one_of("ok", "EFBIG")},
    first="host code",
    cage=limits(tmp=4 * MIB),
    only=BOTH_TIERS,
    heavy=True,
    host="more_than_is_taken",
)  # fmt: skip
def more_than_is_taken(world: World) -> dict[str, Any]:
    """300 files, three of 3 MiB where 4 are allowed in all, and one of a terabyte: all of holes."""
    out = _made(scratch(world))
    for number in range(300):
        _write(f"{out}/n{number:03}", "x")
    for number in range(3):
        with open(f"{out}/h{number}", "wb") as file:
            file.truncate(3 * MIB)
    with open(f"{out}/sparse", "wb") as file:
        told = answer(lambda: file.truncate(1 << 40))
    if world["ctx"] is None:
        shutil.rmtree(out)
    return {"sparse": told}
