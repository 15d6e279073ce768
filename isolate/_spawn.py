"""Starts launchers: the one place where the host creates a process.

The host never forks a tool's process: it execs a fresh interpreter with a scrubbed environment, from one
thread that lives as long as the host, because the parent-death signal follows the thread that forked
(prctl(2)).
"""

from __future__ import annotations

import concurrent.futures
import errno
import os
import resource
import socket
import subprocess
import threading
from pathlib import Path

from fumehood.isolate._spec import DEFAULT_PATH
from fumehood.policies.errors import SandboxUnavailable

_CHILD_FOLDER = str(Path(__file__).resolve().parent / "child")
_BOOT = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location(
    "fumehood_child", sys.argv[1] + "/__init__.py", submodule_search_locations=[sys.argv[1]]
)
package = importlib.util.module_from_spec(spec)
sys.modules["fumehood_child"] = package
spec.loader.exec_module(package)
from fumehood_child import {module}
{module}.main(int(sys.argv[2]))
"""


LEAST_DESCRIPTORS = 64
"""What one tool's zygote, its spares and a call take, with a host around them."""


def require_descriptors() -> None:
    """Raises SandboxUnavailable where so few are allowed that something would fail in the middle."""
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= most < LEAST_DESCRIPTORS:
        raise SandboxUnavailable(
            f"this process may have {most} open files, and a sandbox needs {LEAST_DESCRIPTORS}",
            hint="raise it, as with ulimit -n 1024, or LimitNOFILE= of a service",
        )


def remedy(error: OSError) -> str | None:
    """What to do where no process can be started for want of descriptors or processes."""
    if error.errno == errno.EMFILE:
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f"this process may have {most} open files: raise it, as with ulimit -n 1024"
    if error.errno == errno.EAGAIN:
        most, _ = resource.getrlimit(resource.RLIMIT_NPROC)
        return f"this user may have {most} processes: end some, or raise it (ulimit -u)"
    if error.errno == errno.ETOOMANYREFS:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f"programs of this user have {most} descriptors under way in sockets: end them, or ulimit -Hn"
    return None


_executor: concurrent.futures.ThreadPoolExecutor | None = None
_executor_lock = threading.Lock()


def _spawner() -> concurrent.futures.ThreadPoolExecutor:
    global _executor
    with _executor_lock:
        if _executor is None:
            _executor = concurrent.futures.ThreadPoolExecutor(1, "fumehood-spawner")
        return _executor


def spawn(
    executable: str, control: socket.socket, errors: int, module: str = "launch"
) -> concurrent.futures.Future[subprocess.Popen[bytes]]:
    """Exec a launcher that holds `control` and writes its complaints to `errors`; both stay the caller's to
    close.

    No credential is in its environment or arguments: both can be read by others (proc(5)).
    """

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [
                executable,
                "-I",
                "-S",
                "-B",
                "-X",
                "utf8",
                "-c",
                _BOOT.format(module=module),
                _CHILD_FOLDER,
                str(control.fileno()),
            ],
            env={"PATH": DEFAULT_PATH},
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
            pass_fds=[control.fileno()],
            cwd="/",
            start_new_session=True,
        )

    return _spawner().submit(start)


def forget_after_fork() -> None:
    """A forked host (tests, multiprocessing) must not use the parent's spawner thread: it does not exist
    there.
    """
    global _executor
    _executor = None


os.register_at_fork(after_in_child=forget_after_fork)
