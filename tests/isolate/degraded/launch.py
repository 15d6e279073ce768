"""The launcher with walls taken out: reads plan["without"], replaces what puts those walls up, and goes on as
the real one.

Each removal is a wall that a broken build, a broken kernel or a bug of ours could leave out silently; the
host must refuse such a child, or the next wall must answer. Names of functions of `isolate/child` are used
here and fail loudly when they change.
"""

from __future__ import annotations

import errno
import importlib
import importlib.util
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PACKAGE = __name__.rpartition(".")[0]


def _module(name: str) -> Any:
    return importlib.import_module(f"{_PACKAGE}.{name}")


def _real_launch() -> Any:
    real = Path(sys.modules[_PACKAGE].REAL) / "launch.py"
    spec = importlib.util.spec_from_file_location(f"{_PACKAGE}.real_launch", real)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def main(fd: int) -> None:
    """As the real launcher's main; the walls go once the plan, which names them, is there."""
    launch = _real_launch()
    receive = launch._receive_plan

    def receive_and_remove(host: Any) -> bytes:
        data: bytes = receive(host)
        for wall in json.loads(data)["without"]:
            REMOVALS[wall](launch)
        return data

    launch._receive_plan = receive_and_remove
    launch.main(fd)


def _replace(module: Any, name: str, value: Any) -> None:
    if not hasattr(module, name):
        raise AttributeError(f"{module.__name__} has no {name} any more: tests/isolate/degraded must follow")
    setattr(module, name, value)


def _landlock(launch: Any) -> None:
    """As on a kernel that has none."""
    landlock = _module("_uapi_landlock")
    _replace(landlock, "abi", lambda: 0)


def _seccomp(launch: Any) -> None:
    def load(program: bytes, flags: int = 0) -> int:
        if flags:
            raise OSError(errno.EBUSY, "no listener")
        return 0

    _replace(_module("_uapi_proc"), "load_seccomp", load)


def _no_new_privs(launch: Any) -> None:
    uapi = _module("_uapi_proc")
    real = uapi.prctl
    _replace(
        uapi, "prctl", lambda option, *rest: 0 if option == uapi.PR_SET_NO_NEW_PRIVS else real(option, *rest)
    )
    _seccomp(launch)  # it cannot be loaded without


def _capabilities(launch: Any) -> None:
    uapi = _module("_uapi_proc")
    _replace(uapi, "drop_capabilities", lambda: None)


def _bounding_set(launch: Any) -> None:
    _replace(_module("_uapi_proc"), "lock_capabilities", lambda: None)


def _descriptors(launch: Any) -> None:
    os.dup2(os.open("/dev/null", os.O_RDONLY), 77, inheritable=False)
    _replace(_module("_uapi_proc"), "close_from", lambda lowest: None)


def _limits(launch: Any) -> None:
    _replace(_module("layers.limits"), "apply", lambda *_: ("FULL", ""))


def _view(launch: Any) -> None:
    """A mount namespace of its own that shows the host's files."""
    mount = _module("layers.mount")
    _replace(mount, "build_view", lambda plan: _module("_uapi_mount").make_private())


def _private_tmp(launch: Any) -> None:
    _replace(_module("layers.mount"), "private_places", lambda plan: None)


def _small_proc(launch: Any) -> None:
    """/proc as the zygote has it: writable, whole, of the tool's process namespace."""
    _replace(_module("layers.proc"), "mount_for_call", lambda fresh: ("FULL", ""))


def _unshared(flag: str) -> Callable[[Any], None]:
    def remove(launch: Any) -> None:
        uapi = _module("_uapi_proc")
        real, bit = uapi.unshare, getattr(uapi, flag)
        _replace(uapi, "unshare", lambda flags: real(flags & ~bit) if flags & ~bit else None)

    return remove


def _process_namespace(launch: Any) -> None:
    """Neither the tool nor the call has a process namespace: the host's processes are seen, nobody
    is process 1.
    """
    uapi = _module("_uapi_proc")
    _unshared("CLONE_NEWPID")(launch)
    _replace(uapi, "setns", lambda fd, kind: None)
    _replace(uapi, "die_with_parent", lambda parent: uapi.prctl(uapi.PR_SET_PDEATHSIG, signal.SIGKILL))
    _replace(_module("layers.proc"), "mount_for_zygote", lambda: True)
    _small_proc(launch)


def _user(launch: Any) -> None:
    """Root mode without a user of its own for the tool."""
    _replace(_module("layers.user"), "become_slot", lambda uid: None)


def _group(launch: Any) -> None:
    """The child is not in its control group."""
    zygote = _module("zygote")
    real = zygote._child
    _replace(zygote, "_child", lambda plan, fds, *rest: real(plan, fds[:4], *rest))


def _hostname(launch: Any) -> None:
    _unshared("CLONE_NEWUTS")(launch)
    _replace(socket, "sethostname", lambda name: None)


REMOVALS: dict[str, Callable[[Any], None]] = {
    "landlock": _landlock,
    "seccomp": _seccomp,
    "no-new-privs": _no_new_privs,
    "capabilities": _capabilities,
    "bounding-set": _bounding_set,
    "fds": _descriptors,
    "rlimits": _limits,
    "view": _view,
    "private-tmp": _private_tmp,
    "proc": _small_proc,
    "pid": _process_namespace,
    "net": _unshared("CLONE_NEWNET"),
    "ipc": _unshared("CLONE_NEWIPC"),
    "cgroup-ns": _unshared("CLONE_NEWCGROUP"),
    "uts": _hostname,
    "user": _user,
    "group": _group,
}
