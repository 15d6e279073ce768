"""Programs that must work inside as outside: the "Isolation" scenarios of public bug reports. Each is its own
control. The ids are those of the reports (I11, I12, ...); bodies return what they saw, and the same outside.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from typing import Any

from tests.isolate.attacks._kernel import scratch
from tests.isolate.attacks._model import BOTH_TIERS, PEOPLE, Cage, Table, World, limits, one_of
from tests.isolate.attacks._programs import ABSENT, run, works

TABLE = Table()


# -- threads, processes, shared memory -----------------------------------------------------------------------


@works(TABLE, "threads", "I11", {"sum": 4950, "pool": [0, 1, 4, 9]}, only=BOTH_TIERS)
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


@works(TABLE, "node", "I11", one_of("ok 42 7", ABSENT), cage=limits(memory=1 << 30))
def node(world: World) -> str:
    """Node with a worker thread and WebAssembly."""
    script = (
        "const { Worker } = require('worker_threads');"
        "const m = new WebAssembly.Memory({ initial: 1, maximum: 16 });"
        "new Uint8Array(m.buffer)[0] = 7;"
        "new Worker('require(\"worker_threads\").parentPort.postMessage(42)', { eval: true })"
        ".on('message', (n) => console.log('ok', n, new Uint8Array(m.buffer)[0]));"
    )
    return run("node", "-e", script)


@works(TABLE, "forks-that-share", "I25", 3, only=BOTH_TIERS, cage=limits(memory=256 << 20))
def forks_that_share(world: World) -> int:
    """Large data, and children that only read it: there is one of it, whoever counts."""
    data = os.urandom(160 << 20)
    children = []
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            time.sleep(0.5)  # for where a watcher looks
            os._exit(data[0] & 0)
        children.append(pid)
    return sum(os.waitpid(pid, 0)[1] == 0 for pid in children)


def _double(number: int) -> int:
    return number * 2


@works(
    TABLE,
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


@works(TABLE, "asyncio", "I16", {"gathered": [0, 1, 2], "program": "out", "signal": True}, only=BOTH_TIERS)
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
    TABLE,
    "bash",
    "I12",
    {"substitution": "b", "heredoc": "one two", "test": "yes", "pipe": "3", "exit": "7", "here string": "x"},
    only=PEOPLE,
)
def bash(world: World) -> Any:
    """Process substitution, here-documents, test -x, pipes, exit codes."""
    return {
        "substitution": run("bash", "-c", "comm -13 <(echo a) <(printf 'a\\nb\\n')"),
        "heredoc": run("bash", "-c", "read a b <<E\none two\nE\necho $a $b"),
        "test": run("bash", "-c", "test -x /bin/sh && test -r /etc/passwd && echo yes"),
        "pipe": run("bash", "-c", "printf 'a\\nb\\nc\\n' | wc -l | tr -d ' '"),
        "exit": run("bash", "-c", "(exit 7); echo $?"),
        "here string": run("bash", "-c", "cat <<< x"),
    }


@works(TABLE, "tar", "I13", {"mode": 0o750, "link": True}, only=BOTH_TIERS)
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


@works(TABLE, "perl", "I12", one_of("8 äö", ABSENT), only=BOTH_TIERS)
def perl(world: World) -> str:
    """Modules, sorting, text."""
    return run(
        "perl", "-MList::Util=sum", "-CS", "-e", "use utf8; print sum(grep { $_ % 2 == 0 } 1..4, 2), ' äö'"
    )


@works(TABLE, "git", "I21", {"new": "one", "status": "", "granted": "first", "granted status": "",
                             "owner": True},
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
    run("git", "init", "-q", ".", cwd=base, env=who)
    with open(f"{base}/file", "w", encoding="ascii") as file:
        file.write("x")
    run("git", "add", "file", cwd=base, env=who)
    run("git", "commit", "-q", "-m", "one", cwd=base, env=who)
    found = {
        "new": run("git", "log", "--format=%s", cwd=base, env=who),
        "status": run("git", "status", "--porcelain", cwd=base, env=who),
        "granted": run("git", "log", "--format=%s", cwd=world["repository"], env=who),
        "granted status": run(
            "git", "--no-optional-locks", "status", "--porcelain", cwd=world["repository"], env=who
        ),
        "owner": os.stat("/usr").st_uid != os.getuid(),
    }
    shutil.rmtree(base)
    return found
