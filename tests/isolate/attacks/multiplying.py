"""Section C of the catalogue: processes without end, that stay, and that kill."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import threading
from typing import Any

from tests.isolate.attacks._kernel import answer, syscall
from tests.isolate.attacks._model import BOTH_TIERS, Ends, Table, World, limits, one_of

TABLE = Table()
attack = TABLE.add


# 44 ---------------------------------------------------------------------------------------------------------

_FEW = limits(processes=16)


def _fork_until(most: int, *, catch: bool) -> tuple[int, str]:
    """Fork sleepers; (how many, what stopped it). They are killed again, unless the refusal is to
    be raised.
    """
    children: list[int] = []
    stopped = "ok"
    while len(children) < most:
        try:
            pid = os.fork()
        except OSError as error:
            if not catch:
                raise
            stopped = errno.errorcode[error.errno or 0]
            break
        if pid == 0:
            signal.pause()
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return len(children), stopped


@attack(
    44,
    "fork-bomb-counted",
    caged={"stopped": "EAGAIN", "within": True, "threads": "EAGAIN"},
    control={"stopped": "ok", "within": False, "threads": "ok"},
    control_as="user",
    first="rlimits",
    cage=_FEW,
    only=BOTH_TIERS,
    heavy=True,
)
def fork_bomb_counted(world: World) -> dict[str, Any]:
    """Fork, and start threads, until it is refused."""
    count, stopped = _fork_until(100, catch=True)
    release = threading.Event()
    threads: list[threading.Thread] = []
    threaded = "ok"
    while len(threads) < 100:
        thread = threading.Thread(target=release.wait)
        try:
            thread.start()
        except RuntimeError:
            threaded = "EAGAIN"
            break
        threads.append(thread)
    release.set()
    for thread in threads:
        thread.join()
    # Where there is no user namespace the kernel counts the user's other processes too: near the limit, not
    # at it.
    most = 16 if world["private"] or world["ctx"] is None else 60
    return {"stopped": stopped, "within": count < most, "threads": threaded}


@attack(
    44,
    "fork-bomb",
    caged=Ends("limit", "processes"),
    control=100,
    control_as="user",
    first="rlimits",
    cage=_FEW,
    only=BOTH_TIERS,
    heavy=True,
)
def fork_bomb(world: World) -> int:
    """Fork until the tool itself falls over the refusal."""
    return _fork_until(100, catch=False)[0]


@attack(
    44,
    "fork-bomb-of-forks",
    caged={"bomb": Ends("limit", "timeout").reason, "sibling": "ok", "gone": True, "next": "ok"},
    no_control="it would end the machine",
    first="rlimits",
    cage=limits(processes=32, timeout_s=1.0),
    only=BOTH_TIERS,
    host="bomb_beside_a_sibling",
    heavy=True,
)
def fork_bomb_of_forks(world: World) -> None:
    """Every child forks as well, in sessions of their own where that is allowed, and none gives up."""
    while True:
        try:
            if os.fork() == 0:
                try:
                    os.setsid()
                except OSError:
                    pass
        except OSError:
            continue


# 52, 53 -----------------------------------------------------------------------------------------------------


@attack(
    52,
    "daemon",
    caged={"outcome": "ok", "value": True, "alive while it runs": True, "gone": True},
    no_control="`test_controls` starts the same daemon from a plain process: it lives on",
    first="pid",
    only=BOTH_TIERS,
    host="daemon",
    walls={"without-namespaces": {"outcome": "ok", "value": True, "alive while it runs": True, "gone": True}},
)
def daemon(world: World) -> bool:
    """Fork twice, a session of its own, and hold the output open."""
    read, write = os.pipe()
    if os.fork() == 0:
        try:
            os.setsid()
        except OSError:
            pass
        if os.fork() == 0:
            os.write(write, b"1")
            os.close(write)
            os.execv("/bin/sleep", ["sleep", world["marker"]])
        os._exit(0)
    os.read(read, 1)
    os.wait()
    if world["ctx"] is not None:
        world["ctx"].emit("STARTED", None)
        os.close(write)
    return True


@attack(
    53,
    "killing-others",
    caged={"own child": "killed", "init": "EPERM", "host": "ESRCH", "victim": "ESRCH", "stop host": "ESRCH",
           "group": "ESRCH", "thread": "ESRCH"},
    control={"own child": "killed", "init": one_of("ok", "EPERM"), "host": "ok", "victim": "ok",
             "stop host": "ok", "group": "ESRCH",
             "thread": "ok"},
    first="pid",
    walls={
        # Process 1 of a namespace does not feel what is sent from inside; the process namespace hides
        # everybody else.
        "without-landlock": {"own child": "killed", "init": "ok", "host": "ESRCH", "victim": "ESRCH",
                             "stop host": "ESRCH", "group": "ESRCH",
                             "thread": "ESRCH"},
        # Landlock's scope, and in root mode another user id.
        "without-namespaces": {"own child": "killed", "init": "EPERM", "host": "EPERM", "victim": "EPERM",
                               "stop host": "EPERM",
                               "group": one_of("ESRCH", "EPERM"), "thread": "EPERM"},
    },
)  # fmt: skip
def killing_others(world: World) -> dict[str, str]:
    """Signals to everybody, to process 1, to the host and to a stranger. Outside, nothing is sent
    but the question (signal 0).
    """
    inside = world["ctx"] is not None
    deadly = signal.SIGKILL if inside and world["private"] else 0
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    if inside:
        answer(lambda: os.kill(-1, deadly))
    os.kill(child, signal.SIGKILL)
    died = "killed" if os.WIFSIGNALED(os.waitpid(child, 0)[1]) else "lives"
    stop = signal.SIGSTOP if deadly else 0
    return {
        "own child": died,
        "init": answer(lambda: os.kill(1, deadly)),
        "host": answer(lambda: os.kill(world["host_pid"], deadly)),
        "victim": answer(lambda: os.kill(world["victim_pid"], deadly)),
        "stop host": answer(lambda: os.kill(world["host_pid"], stop)),
        "group": answer(lambda: os.killpg(world["victim_pid"], deadly)),
        "thread": answer(lambda: syscall(234, world["victim_pid"], world["victim_pid"], deadly)),
    }


def _signal_by_descriptor(pid: int) -> None:
    """Make a process the owner of a socket, and have the kernel tell it with SIGTERM that something came."""
    one, two = socket.socketpair()
    with one, two:
        fcntl.fcntl(one, fcntl.F_SETOWN, pid)
        fcntl.fcntl(one, 10, signal.SIGTERM)  # F_SETSIG
        fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        two.send(b"x")


@attack(
    53,
    "signals-through-descriptors",
    caged={"own child": "killed", "told": "ESRCH", "victim": "lives"},
    control={"own child": "killed", "told": "ok", "victim": "gone"},
    first="pid",
    # Where the other process can be named, Landlock's scope keeps the kernel from sending it.
    walls={"without-namespaces": {"own child": "killed", "told": one_of("ok", "EPERM"), "victim": "lives"}},
    host="signals_through_descriptors",
)
def signals_through_descriptors(world: World) -> dict[str, str]:
    """A signal that no system call for signals sends: the owner of a descriptor is told of what comes."""

    def waiting() -> int:
        pid = os.fork()
        if pid == 0:
            signal.pause()
            os._exit(0)
        return pid

    def died(pid: int) -> bool:
        return os.WIFSIGNALED(os.waitpid(pid, 0)[1])

    child = waiting()
    _signal_by_descriptor(child)
    found = {"own child": "killed" if died(child) else "lives"}
    victim = waiting() if world["ctx"] is None else world["victim_pid"]
    found["told"] = answer(lambda: _signal_by_descriptor(victim))
    if world["ctx"] is None:
        found["victim"] = "gone" if died(victim) else "lives"
    return found
