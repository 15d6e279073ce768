"""Section C of the catalogue: time, and ends that do not come."""

from __future__ import annotations

import os
import re
import signal
import threading
import time

from tests.isolate.attacks._model import BOTH_TIERS, Ends, Table, World, limits

TABLE = Table()
attack = TABLE.add


# 50, 51 -----------------------------------------------------------------------------------------------------

_SHORT = limits(timeout_s=0.5, cpu_s=20.0)
_TIMEOUT = Ends("limit", "timeout")
RAN_ON = "ran on"


def busy(world: World) -> str:
    """Nothing but work, for two seconds of the processor."""
    end = time.process_time() + 2
    while time.process_time() < end:
        pass
    return RAN_ON


attack(
    50,
    "busy-loop",
    caged=_TIMEOUT,
    control=RAN_ON,
    control_as="user",
    first="host timer",
    cage=_SHORT,
    only=BOTH_TIERS,
)(busy)
attack(50, "cpu-time", caged=Ends("limit", "cpu"), control=RAN_ON, control_as="user", first="rlimits",
       cage=limits(timeout_s=20.0, cpu_s=1.0), only=BOTH_TIERS)(busy)  # fmt: skip


@attack(50, "cpu-time-of-dead-orphans", caged=Ends("limit", "cpu"), control=RAN_ON, control_as="user",
        first="watcher",
        cage=limits(timeout_s=40.0, cpu_s=1.0), only=("root", "user"), heavy=True)  # fmt: skip
def cpu_time_of_dead_orphans(world: World) -> str:
    """Twelve processes one after the other, each let go by its parent and dead before it is much of one."""
    for _ in range(12):
        read, write = os.pipe()
        if os.fork() == 0:
            if os.fork() == 0:
                end = time.process_time() + 0.4
                while time.process_time() < end:
                    pass
            os._exit(0)
        os.wait()
        os.close(write)
        os.read(read, 1)  # ends when the last holder of the other end does
        os.close(read)
    return RAN_ON


@attack(50, "cpu-time-of-many", caged=Ends("limit", "cpu"), control=RAN_ON, control_as="user",
        first="watcher",
        cage=limits(timeout_s=20.0, cpu_s=1.0), only=BOTH_TIERS, heavy=True)  # fmt: skip
def cpu_time_of_many(world: World) -> str:
    """Four processes, none of which uses up the time alone."""
    children = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            busy(world)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    return RAN_ON


@attack(
    50,
    "holding-the-interpreter",
    caged=_TIMEOUT,
    no_control="it would not end by itself for hours",
    first="host timer",
    cage=_SHORT,
    only=BOTH_TIERS,
)
def holding_the_interpreter(world: World) -> int:
    """One C call that lets no other thread run."""
    return int(len(str(9**9**7)))


@attack(
    50,
    "regular-expression",
    caged=_TIMEOUT,
    no_control="it would not end by itself for years",
    first="host timer",
    cage=_SHORT,
    only=BOTH_TIERS,
)
def regular_expression(world: World) -> bool:
    """Exponential backtracking."""
    return bool(re.match(r"^(a+)+$", "a" * 60 + "!"))


@attack(
    50,
    "busy-threads",
    caged=_TIMEOUT,
    control=RAN_ON,
    control_as="user",
    first="host timer",
    cage=_SHORT,
    only=BOTH_TIERS,
)
def busy_threads(world: World) -> str:
    """Eight threads."""
    threads = [threading.Thread(target=busy, args=(world,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return RAN_ON


@attack(
    51,
    "deaf-to-signals",
    caged=_TIMEOUT,
    control=RAN_ON,
    control_as="user",
    first="pid",
    cage=_SHORT,
    only=BOTH_TIERS,
)
def deaf_to_signals(world: World) -> str:
    """Every signal that can be ignored is ignored, the rest is blocked."""
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        try:
            signal.signal(number, signal.SIG_IGN)
        except OSError:
            continue
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    return busy(world)


@attack(
    51,
    "stopped",
    caged=_TIMEOUT,
    no_control="a stopped process reports nothing",
    first="pid",
    cage=_SHORT,
    only=BOTH_TIERS,
)
def stopped(world: World) -> None:
    """It stops itself: SIGKILL must end it all the same."""
    os.kill(os.getpid(), signal.SIGSTOP)


@attack(
    51,
    "sleeping-at-exit",
    caged="returned",
    control="returned",
    control_as="user",
    first="pid",
    cage=_SHORT,
    only=BOTH_TIERS,
)
def sleeping_at_exit(world: World) -> str:
    """What runs after the result is not waited for."""
    import atexit

    if world["ctx"] is not None:
        atexit.register(time.sleep, 30)
        threading.Thread(target=time.sleep, args=(30,)).start()
    return "returned"


class _Clinging:
    """Its destructor never ends."""

    def __del__(self) -> None:
        while True:
            pass


@attack(
    51,
    "endless-destructor",
    caged=_TIMEOUT,
    no_control="it would not end",
    first="pid",
    cage=_SHORT,
    only=BOTH_TIERS,
)
def endless_destructor(world: World) -> str:
    """An object that does not let go."""
    _Clinging()
    return RAN_ON
