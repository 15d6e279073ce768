"""Programs that must work inside as outside: files, names, certificates, and calls beside each other."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from typing import Any

from tests.isolate.attacks._kernel import answer, opening, scratch
from tests.isolate.attacks._model import BOTH_TIERS, PEOPLE, Table, World, limits, one_of
from tests.isolate.attacks._programs import ABSENT, run, works

TABLE = Table()
honest = TABLE.add


# -- files ---------------------------------------------------------------------------------------------------


@works(TABLE, "sqlite", "I23", {"mode": "wal", "rows": 100, "reader": 100}, only=BOTH_TIERS)
def sqlite(world: World) -> Any:
    """A database in WAL mode, written and read by two connections."""
    import sqlite3

    path = f"{scratch(world)}/db-{os.getpid()}.sqlite"
    one = sqlite3.connect(path)
    mode = one.execute("pragma journal_mode=wal").fetchone()[0]
    one.execute("create table t (n)")
    with one:
        one.executemany("insert into t values (?)", [(n,) for n in range(100)])
    two = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    found = {
        "mode": mode,
        "rows": one.execute("select count(*) from t").fetchone()[0],
        "reader": two.execute("select count(*) from t").fetchone()[0],
    }
    two.close()
    one.close()
    for suffix in ("", "-wal", "-shm"):
        answer(functools.partial(os.unlink, path + suffix))
    return found


@works(
    TABLE,
    "own-place-in-proc",
    "I19",
    {
        "exe": True,
        "stdin": "in",
        "stdout": "out",
        "fd": "fd",
        "cmdline": True,
        "status": True,
        "threads": 1,
        "maps": True,
    },
    # Landlock covers no /proc of the call's own there: it reads the host's.
    only=BOTH_TIERS,
)
def own_place_in_proc(world: World) -> Any:
    """Programs find themselves and their streams by path."""
    read, write = os.pipe()
    os.write(write, b"fd")
    os.close(write)
    with open(f"/dev/fd/{read}", encoding="ascii") as file:
        by_fd = file.read()
    with open("/proc/self/cmdline", "rb") as binary:
        cmdline = len(binary.read()) > 0
    with open("/proc/self/status", encoding="utf-8") as file:
        status = f"Pid:\t{os.getpid()}\n" in file.read()
    return {
        "exe": os.path.exists(os.readlink("/proc/self/exe")),
        "stdin": run("sh", "-c", "cat /dev/stdin", text="in"),
        "stdout": run("sh", "-c", "echo out > /dev/stdout"),
        "fd": by_fd,
        "cmdline": cmdline,
        "status": status,
        "threads": len(os.listdir("/proc/self/task")),
        "maps": opening("/proc/self/maps") == "ok",
    }


@works(TABLE, "renames", "I20", {"between folders": "ok", "link": "ok", "over": "ok"}, only=BOTH_TIERS)
def renames(world: World) -> Any:
    """Move and link between two folders of one's own."""
    base = f"{scratch(world)}/move-{os.getpid()}"
    os.makedirs(f"{base}/a")
    os.makedirs(f"{base}/b")
    for name in ("x", "y"):
        with open(f"{base}/a/{name}", "w", encoding="ascii") as file:
            file.write(name)
    found = {
        "between folders": answer(lambda: os.rename(f"{base}/a/x", f"{base}/b/x")),
        "link": answer(lambda: os.link(f"{base}/a/y", f"{base}/b/y")),
        "over": answer(lambda: os.replace(f"{base}/a/y", f"{base}/b/x")),
    }
    shutil.rmtree(base)
    return found


_NAMES = ["a b", "ä\u0308", "日本語", "-rf", "new\nline", "\udcff raw", ".hidden", "e" * 200]


@works(TABLE, "names-of-files", "I23", {"kept": True, "opened": True}, only=BOTH_TIERS)
def names_of_files(world: World) -> Any:
    """Names that are no ASCII, no UTF-8, or look like an option."""
    base = f"{scratch(world)}/names-{os.getpid()}"
    os.mkdir(base)
    for name in _NAMES:
        with open(f"{base}/{name}", "w", encoding="utf-8") as file:
            file.write(name.encode("utf-8", "surrogateescape").hex())
    opened = all(opening(f"{base}/{name}") == "ok" for name in _NAMES)
    kept = sorted(os.listdir(base)) == sorted(_NAMES)
    shutil.rmtree(base)
    return {"kept": kept, "opened": opened}


# -- names, certificates, time -------------------------------------------------------------------------------


@works(
    TABLE,
    "certificates",
    "I17",
    {"authorities": True, "private keys": "ENOENT"},
    control={"authorities": True, "private keys": one_of("ENOENT", "EACCES", "ok")},
)
def certificates(world: World) -> Any:
    """The system's authorities can be read, and no private key."""
    import ssl

    stats = ssl.create_default_context().cert_store_stats()
    return {"authorities": stats["x509_ca"] > 0, "private keys": opening("/etc/pki/tls/private/key.pem")}


@works(TABLE,
    "names-and-zones",
    "I23",
    {"user": "tool", "home": "/tmp", "localhost": True, "zone": "+0900", "utc": True, "locale": "UTF-8",
     "host": "fumehood"},
    control={"user": one_of("fumehood-test", "root"), "home": one_of("/nonexistent", "/root"),
             "localhost": True, "zone": "+0900", "utc": True,
             "locale": "UTF-8", "host": one_of("any")},
)  # fmt: skip
def names_and_zones(world: World) -> Any:
    """Users, host names, time zones, encodings."""
    import datetime
    import pwd
    import socket
    import zoneinfo

    me = pwd.getpwuid(os.getuid())
    moment = datetime.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("Asia/Tokyo"))
    return {
        "user": me.pw_name,
        "home": me.pw_dir,
        "localhost": any(
            found[4][0] in ("127.0.0.1", "::1") for found in socket.getaddrinfo("localhost", 80)
        ),
        "zone": moment.strftime("%z"),
        "utc": moment.astimezone(datetime.UTC).hour == 15,
        "locale": run(
            sys.executable or "python3",
            "-c",
            "import locale; print(locale.getpreferredencoding())",
            env={"LANG": "C.UTF-8"},
        ),
        "host": socket.gethostname() if world["ctx"] is not None else "any",
    }


@works(
    TABLE, "numpy", "I14", one_of("10.0", ABSENT), cage=limits(processes=3), control=one_of("10.0", ABSENT)
)
def numpy_(world: World) -> str:
    """numpy with its thread pool under a small limit of processes: it works, or it is not there."""
    try:
        import numpy  # type: ignore[import-not-found]
    except ModuleNotFoundError:
        return ABSENT
    return str(float((numpy.ones((10, 10)) @ numpy.ones((10, 1)))[0, 0]))


@honest(
    "I22",
    "loopback-fails-at-once",
    caged={"server": "EACCES", "client": one_of("EACCES", "ENETUNREACH")},
    control={"server": "ok", "client": "ECONNREFUSED"},
    control_as="user",
    first="landlock-net",
    only=BOTH_TIERS,
    cage=limits(timeout_s=5.0),
    # asyncio passes over a family that the kernel does not have: the server has no socket, the client says
    # why.
    walls={"without-namespaces": {"server": "ok", "client": "EAFNOSUPPORT"}},
)
def loopback_fails_at_once(world: World) -> Any:
    """A test client and a server on loopback: an error at once, and never a wait. (The call's
    deadline is the judge.)
    """
    import asyncio

    async def main() -> Any:
        async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        found = {}
        try:
            server = await asyncio.start_server(served, "127.0.0.1", 0)
            server.close()
            found["server"] = "ok"
        except OSError as error:
            found["server"] = _name(error)
        try:
            await asyncio.open_connection("127.0.0.1", 9)
            found["client"] = "ok"
        except OSError as error:
            found["client"] = _name(error)
        return found

    return asyncio.run(main())


def _name(error: OSError) -> str:
    import errno

    return errno.errorcode.get(error.errno or 0, str(error))


# -- driven from outside -------------------------------------------------------------------------------------


@honest("I25", "neighbours-at-sixty-percent", caged={"outcomes": ["ok"] * 5},
        no_control="there is no limit outside", first="nothing", only=PEOPLE,
        cage=limits(memory=100 << 20), heavy=True, host="five_at_once")  # fmt: skip
def neighbours_at_sixty_percent(world: World) -> int:
    """Sixty of a hundred MiB, while four others do the same."""
    kept = os.urandom(60 << 20)
    world["ctx"].put(b"wait", "text/plain")
    return len(kept)


@honest("I27", "limits-up-and-down", caged={"outcomes": ["ok", "ok", "limit memory", "ok"]},
        no_control="there is no limit outside", first="nothing",
        only=PEOPLE, heavy=True, host="limits_up_and_down")  # fmt: skip
def limits_up_and_down(world: World) -> int:
    """So much memory, under limits that rise and fall in one slot."""
    return len(os.urandom(world["size"] << 20))


@honest("I29", "grandchild-on-the-pipe", caged={"outcome": "limit timeout", "gone": True, "waited": False},
        no_control="`sh` itself would wait",
        first="nothing", only=BOTH_TIERS, host="grandchild_on_the_pipe")  # fmt: skip
def grandchild_on_the_pipe(world: World) -> None:
    """`sh -c "sleep 30 & wait"` with a limit of a second. (The driver runs it as a command.)"""


@honest("I33", "no-mount-points-on-the-host", caged={"during": "", "after": "", "made": ["results.txt"]},
        no_control="there are no mounts outside",
        first="nothing", only=PEOPLE, host="grants_in_a_repository")  # fmt: skip
def no_mount_points_on_the_host(world: World) -> bool:
    """Write into a grant inside a repository."""
    with open(f"{world['out']}/results.txt", "w", encoding="ascii") as file:
        file.write("x")
    world["ctx"].put(b"look", "text/plain")
    return True
