"""Programs that must work inside as outside: the "Isolation" scenarios of public bug reports. Each is its own
control.

The ids are those of the reports (I11, I12, ...); bodies return what they saw, and the same outside.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from tests.isolate.attacks._kernel import answer, opening, scratch
from tests.isolate.attacks._model import Body, Cage, Table, World, limits, one_of

TABLE = Table()
honest = TABLE.add

PEOPLE = ("root", "user")
BOTH_TIERS = (*PEOPLE, "root-without-namespaces", "user-without-namespaces")
ABSENT = "not on this machine"


def _run(
    *argv: str, text: str | None = None, cwd: str | None = None, env: dict[str, str] | None = None
) -> str:
    """What the program printed, or how it failed."""
    if shutil.which(argv[0]) is None:
        return ABSENT
    done = subprocess.run(
        argv, input=text, capture_output=True, text=True, cwd=cwd, env={**os.environ, **(env or {})}
    )
    return (
        done.stdout.strip()
        if done.returncode == 0
        else f"code {done.returncode}: {done.stderr.strip()[-300:]}"
    )


def works(name: str, row: str, value: Any, **more: Any) -> Callable[[Body], Body]:
    """A program whose value is the same inside and outside."""
    more.setdefault("only", PEOPLE)
    return honest(
        row, name, caged=value, control=more.pop("control", value), control_as="user", first="nothing", **more
    )


# -- threads, processes, shared memory -----------------------------------------------------------------------


@works("threads", "I11", {"sum": 4950, "pool": [0, 1, 4, 9]}, only=BOTH_TIERS)
def threads(world: World) -> Any:
    """Plain threads and a pool of them."""
    import concurrent.futures

    total: list[int] = []
    running = [threading.Thread(target=total.append, args=(n,)) for n in range(100)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        return {"sum": sum(total), "pool": list(pool.map(lambda n: n * n, range(4)))}


@works("node", "I11", one_of("ok 42 7", ABSENT), cage=limits(memory=1 << 30))
def node(world: World) -> str:
    """Node with a worker thread and WebAssembly."""
    script = (
        "const { Worker } = require('worker_threads');"
        "const m = new WebAssembly.Memory({ initial: 1, maximum: 16 });"
        "new Uint8Array(m.buffer)[0] = 7;"
        "new Worker('require(\"worker_threads\").parentPort.postMessage(42)', { eval: true })"
        ".on('message', (n) => console.log('ok', n, new Uint8Array(m.buffer)[0]));"
    )
    return _run("node", "-e", script)


def _double(number: int) -> int:
    return number * 2


@works(
    "multiprocessing",
    "I16",
    {
        "semaphore": True,
        "lock": True,
        "shared": b"hello".hex(),
        "queue": 5,
        "pool": [0, 2, 4, 6],
        "array": [1.5, 2.5],
    },
    cage=limits(memory=1 << 30),
)
def multiprocessing_(world: World) -> Any:
    """Semaphores, locks, shared memory, queues and pools of processes."""
    import concurrent.futures
    import multiprocessing
    from multiprocessing import shared_memory

    context = multiprocessing.get_context("fork")
    semaphore, lock, queue = context.Semaphore(1), context.Lock(), context.Queue()
    shared = shared_memory.SharedMemory(create=True, size=64)
    memoryview(shared.buf or b"")[:5] = b"hello"
    again = shared_memory.SharedMemory(name=shared.name)
    seen = bytes(memoryview(again.buf or b"")[:5]).hex()
    again.close()
    shared.close()
    shared.unlink()
    process = context.Process(target=queue.put, args=(5,))
    process.start()
    got = queue.get()
    process.join()
    array = context.Array("d", [1.5, 2.5])
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        pooled = list(pool.map(_double, range(4)))
    return {
        "semaphore": semaphore.acquire(timeout=5),
        "lock": lock.acquire(timeout=5),
        "shared": seen,
        "queue": got,
        "pool": pooled,
        "array": list(array[:]),
    }


@works("asyncio", "I16", {"gathered": [0, 1, 2], "program": "out", "signal": True}, only=BOTH_TIERS)
def asyncio_(world: World) -> Any:
    """Tasks, a program and a signal handler on an event loop."""
    import asyncio
    import signal

    async def main() -> Any:
        loop = asyncio.get_running_loop()
        heard = asyncio.Event()
        loop.add_signal_handler(signal.SIGUSR1, heard.set)
        os.kill(os.getpid(), signal.SIGUSR1)
        gathered = await asyncio.gather(*(asyncio.sleep(0, n) for n in range(3)))
        process = await asyncio.create_subprocess_exec("echo", "out", stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        async with asyncio.timeout(5):
            await heard.wait()
        return {"gathered": list(gathered), "program": out.decode().strip(), "signal": True}

    return asyncio.run(main())


# -- programs ------------------------------------------------------------------------------------------------


@works(
    "bash",
    "I12",
    {"substitution": "b", "heredoc": "one two", "test": "yes", "pipe": "3", "exit": "7", "here string": "x"},
    only=PEOPLE,
)
def bash(world: World) -> Any:
    """Process substitution, here-documents, test -x, pipes, exit codes."""
    return {
        "substitution": _run("bash", "-c", "comm -13 <(echo a) <(printf 'a\\nb\\n')"),
        "heredoc": _run("bash", "-c", "read a b <<E\none two\nE\necho $a $b"),
        "test": _run("bash", "-c", "test -x /bin/sh && test -r /etc/passwd && echo yes"),
        "pipe": _run("bash", "-c", "printf 'a\\nb\\nc\\n' | wc -l | tr -d ' '"),
        "exit": _run("bash", "-c", "(exit 7); echo $?"),
        "here string": _run("bash", "-c", "cat <<< x"),
    }


@works("tar", "I13", {"mode": 0o750, "link": True}, only=BOTH_TIERS)
def tar(world: World) -> Any:
    """Unpack a file with a mode of its own, and a link."""
    base = f"{scratch(world)}/tar-{os.getpid()}"
    os.makedirs(f"{base}/in")
    os.makedirs(f"{base}/out")
    with open(f"{base}/in/file", "w", encoding="ascii") as file:
        file.write("x")
    os.chmod(f"{base}/in/file", 0o750)
    os.symlink("file", f"{base}/in/link")
    subprocess.run(["tar", "-C", f"{base}/in", "-cf", f"{base}/a.tar", "."], check=True)
    subprocess.run(["tar", "-C", f"{base}/out", "-xpf", f"{base}/a.tar"], check=True)
    found = {"mode": os.stat(f"{base}/out/file").st_mode & 0o777, "link": os.path.islink(f"{base}/out/link")}
    shutil.rmtree(base)
    return found


@works("perl", "I12", one_of("8 äö", ABSENT), only=BOTH_TIERS)
def perl(world: World) -> str:
    """Modules, sorting, text."""
    return _run(
        "perl", "-MList::Util=sum", "-CS", "-e", "use utf8; print sum(grep { $_ % 2 == 0 } 1..4, 2), ' äö'"
    )


@works("git", "I21", {"new": "one", "status": "", "granted": "first", "granted status": "", "owner": True},
       cage=Cage(read=("repository",)),
       control={"new": "one", "status": "", "granted": one_of("first"), "granted status": "", "owner": True},
       only=PEOPLE)  # fmt: skip
def git(world: World) -> Any:
    """A repository of one's own, and one that was granted: nobody else's by what the files say of
    their owner.
    """
    base = f"{scratch(world)}/git-{os.getpid()}"
    os.mkdir(base)
    who = {
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@b.c",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@b.c",
        "HOME": base,
    }
    if world["ctx"] is None:
        who |= {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
        }  # outside it is another user's
    _run("git", "init", "-q", ".", cwd=base, env=who)
    with open(f"{base}/file", "w", encoding="ascii") as file:
        file.write("x")
    _run("git", "add", "file", cwd=base, env=who)
    _run("git", "commit", "-q", "-m", "one", cwd=base, env=who)
    found = {
        "new": _run("git", "log", "--format=%s", cwd=base, env=who),
        "status": _run("git", "status", "--porcelain", cwd=base, env=who),
        "granted": _run("git", "log", "--format=%s", cwd=world["repository"], env=who),
        "granted status": _run(
            "git", "--no-optional-locks", "status", "--porcelain", cwd=world["repository"], env=who
        ),
        "owner": os.stat("/usr").st_uid != os.getuid(),
    }
    shutil.rmtree(base)
    return found


# -- files ---------------------------------------------------------------------------------------------------


@works("sqlite", "I23", {"mode": "wal", "rows": 100, "reader": 100}, only=BOTH_TIERS)
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
        "stdin": _run("sh", "-c", "cat /dev/stdin", text="in"),
        "stdout": _run("sh", "-c", "echo out > /dev/stdout"),
        "fd": by_fd,
        "cmdline": cmdline,
        "status": status,
        "threads": len(os.listdir("/proc/self/task")),
        "maps": opening("/proc/self/maps") == "ok",
    }


@works("renames", "I20", {"between folders": "ok", "link": "ok", "over": "ok"}, only=BOTH_TIERS)
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


@works("names-of-files", "I23", {"kept": True, "opened": True}, only=BOTH_TIERS)
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


@works(
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
        "locale": _run(
            sys.executable or "python3",
            "-c",
            "import locale; print(locale.getpreferredencoding())",
            env={"LANG": "C.UTF-8"},
        ),
        "host": socket.gethostname() if world["ctx"] is not None else "any",
    }


@works("numpy", "I14", one_of("10.0", ABSENT), cage=limits(processes=3), control=one_of("10.0", ABSENT))
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
