"""Section C of the catalogue: what the kernel counts for a whole user, for the machine, or for nobody."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Any

from tests.isolate.attacks._kernel import SIGCHLD, answer, answers, syscall
from tests.isolate.attacks._model import BOTH_TIERS, Table, World, one_of

TABLE = Table()
attack = TABLE.add


# 45, 50 -----------------------------------------------------------------------------------------------------


@attack(
    45,
    "a-sister-process",
    caged="EPERM",
    control="ok",
    control_as="user",
    first="seccomp",
    only=BOTH_TIERS,
)
def a_sister_process(world: World) -> str:
    """A process that is the child of one's own parent: nothing that leads from the call's process to its
    descendants leads there, so neither its memory nor its time would count.
    """

    def sister() -> None:
        pid = syscall("clone", 0x8000 | SIGCHLD, None, None, None, 0)  # CLONE_PARENT
        if pid == 0:
            signal.pause()
            os._exit(0)
        os.kill(pid, signal.SIGKILL)

    return answer(sister)


# 46 ---------------------------------------------------------------------------------------------------------


@attack(
    46,
    "semaphores",
    caged="ok",
    control="ok",
    control_as="user",
    first="cgroup-limits",
    only=BOTH_TIERS,
    # Where no group counts them, two MiB a set would be the machine's.
    walls={
        "user": "ENOSYS",
        "without-namespaces": "EPERM",
        "user-without-namespaces": one_of("ENOSYS", "EPERM"),
    },
)
def semaphores(world: World) -> str:
    """System V semaphores, as many in a set as there may be: memory of the kernel's that is in no process."""

    def make() -> None:
        syscall(66, syscall(64, 0, 32000, 0o1600), 0, 0, None)  # semget, semctl(IPC_RMID)

    return answer(make)


# 57 ---------------------------------------------------------------------------------------------------------


@attack(
    57,
    "pools-of-machine-and-user",
    caged={"events of disks": "ENOSYS", "watchers of files": "ENOSPC"},
    control={"events of disks": "ok", "watchers of files": "ok"},
    control_as="user",
    first="seccomp",
    only=BOTH_TIERS,
)
def pools_of_machine_and_user(world: World) -> dict[str, Any]:
    """Pools that are empty for everybody when one call has taken all: fs.aio-max-nr of the whole machine,
    fs.inotify.max_user_instances of the user.
    """
    context = ctypes.c_ulong(0)
    return answers(
        {
            "events of disks": lambda: syscall(206, 1024, ctypes.byref(context)),  # io_setup
            "watchers of files": lambda: os.close(syscall(294, 0)),  # inotify_init1
        }
    )
