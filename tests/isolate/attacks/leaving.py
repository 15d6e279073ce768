"""Section E of the catalogue (and row 11): what one call leaves in a process, and what the next one sees.

Inside, the first call does it and the second looks. As control, one process does both: a worker that is
used again.
"""

from __future__ import annotations

import atexit
import builtins
import codecs
import ctypes
import decimal
import functools
import gc
import json
import locale
import logging
import os
import random
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
import weakref
from typing import Any

from tests.isolate.attacks._kernel import answer, find_in_memory, opening, scratch, syscall
from tests.isolate.attacks._model import PEOPLE, Table, World, first_call, one_of

TABLE = Table()
attack = TABLE.add

_KEPT: list[Any] = []


# 11 ---------------------------------------------------------------------------------------------------------


@attack(
    11,
    "credentials-of-another",
    caged={"environment": False, "files": [], "memory": False, "key": "EPERM", "start": False},
    control={"environment": True, "files": ["left"], "memory": True, "key": "ok", "start": False},
    control_as="user",
    first="fresh process",
    only=PEOPLE,
    host="two_calls_two_credentials",
)
def credentials_of_another(world: World) -> Any:
    """Tool A keeps its credential everywhere it can; tool B looks everywhere."""
    place = (
        f"{scratch(world)}/kept-{world['folder_name']}" if world["ctx"] is None else f"{scratch(world)}/kept"
    )
    if first_call(world):
        secret = os.environ["TOOL_SECRET"]
        _KEPT.append(bytearray(secret.encode()))
        os.makedirs(place, exist_ok=True)
        with open(f"{place}/left", "w", encoding="ascii") as file:
            file.write(secret)
        answer(lambda: syscall("add_key", b"user", b"fumehood-kept", secret.encode(), len(secret), -3))
        if world["ctx"] is not None:
            return "kept"
    first, second = (part.encode() for part in world["halves"])
    files = os.listdir(place) if os.path.isdir(place) else []
    with open("/proc/self/environ", "rb") as file:
        start = first + second in file.read() if world["ctx"] is not None else False
    if world["ctx"] is None:
        import shutil

        shutil.rmtree(place)
    return {
        "environment": any(value.encode() == first + second for value in os.environ.values()),
        "files": files,
        "memory": find_in_memory(first, second),
        "key": answer(lambda: syscall("request_key", b"user", b"fumehood-kept", None, 0)),
        "start": start,
    }


@attack(
    11,
    "folder-of-a-neighbour",
    caged={
        "list": one_of("ok", "ENOENT"),
        "read": "ENOENT",
        "write": "ENOENT",
        "socket": "EPERM",
        "outcome": "ok",
    },
    no_control="both are one user's processes: outside, the second reads the first's files",
    first="mount",
    only=("root", "user", "root-without-namespaces", "user-without-namespaces"),
    host="neighbours",
    # No view of its own: Landlock grants each call its own folder and no other.
    walls={
        "without-namespaces": {
            "list": "EACCES",
            "read": "EACCES",
            "write": "EACCES",
            "socket": "EACCES",
            "outcome": "ok",
        }
    },
)
def folder_of_a_neighbour(world: World) -> Any:
    """Two calls of one tool at once: one tells the other, by the attacker outside, where its
    private folder is.
    """
    if first_call(world):
        with open(f"{scratch(world)}/secret", "w", encoding="ascii") as file:
            file.write("mine")
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(f"\0fumehood-neighbour{scratch(world)}")
        listening.listen()
        world["ctx"].emit("HERE", scratch(world))
        world["ctx"].put(b"wait", "text/plain")
        return "kept"
    there = world["there"]

    def write() -> None:
        with open(f"{there}/from-outside", "w", encoding="ascii") as file:
            file.write("x")

    def connect() -> None:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(f"\0fumehood-neighbour{there}")

    return {
        "list": answer(lambda: os.listdir(there)),
        "read": opening(f"{there}/secret"),
        "write": answer(write) if there != "/tmp" else "ENOENT",
        "socket": answer(connect),
    }


# 71, 72 -----------------------------------------------------------------------------------------------------


class _Finder:
    """A hostile entry of sys.meta_path."""

    def find_spec(self, *_: object) -> None:
        return None


@attack(
    71,
    "patched-modules",
    caged={"open": True, "json": True, "time": True, "module": True, "finders": True, "hooks": 0, "heard": 0},
    control={
        "open": False,
        "json": False,
        "time": False,
        "module": False,
        "finders": False,
        "hooks": 1,
        "heard": 1,
    },
    control_as="user",
    first="fresh process",
    only=PEOPLE,
    host="two_calls",
)
def patched_modules(world: World) -> Any:
    """Replace what the next call would use."""
    real_dumps = json.dumps
    heard: list[str] = []
    if first_call(world):
        builtins.open = lambda *_, **__: None  # type: ignore[assignment]
        json.dumps = lambda *_, **__: '"evil"'
        time.time = lambda: 0.0
        sys.modules["colorsys"] = sys
        sys.meta_path.insert(0, _Finder())
        sys.path_hooks.insert(0, _Finder)  # type: ignore[arg-type]
        sys.addaudithook(lambda event, _: heard.append(event) if event == "fumehood.marker" else None)
        if world["ctx"] is not None:
            return "patched"
    import colorsys

    sys.audit("fumehood.marker")
    found = {
        "open": builtins.open.__module__ in ("io", "_io"),
        "json": json.dumps.__module__ == "json",
        "time": time.time() > 1e9,
        "module": hasattr(colorsys, "rgb_to_hls"),
        "finders": type(sys.meta_path[0]).__name__ != "_Finder" and sys.meta_path[0].__class__ is not _Finder,
        "hooks": sum("_Finder" in repr(hook) for hook in sys.path_hooks),
        "heard": len(heard),
    }
    json.dumps = real_dumps
    return found


@attack(
    72,
    "what-runs-on",
    caged={
        "threads": 0,
        "children": 0,
        "timer": 0.0,
        "trace": True,
        "profile": True,
        "at exit": True,
        "finalizers": 0,
    },
    control={
        "threads": 1,
        "children": 1,
        "timer": 1.0,
        "trace": False,
        "profile": False,
        "at exit": False,
        "finalizers": 1,
    },
    control_as="user",
    first="fresh process",
    only=PEOPLE,
    host="two_calls",
)
def what_runs_on(world: World) -> Any:
    """Threads, children, timers, hooks."""
    before = atexit._ncallbacks()
    if first_call(world):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        if os.fork() == 0:
            signal.pause()
            os._exit(0)
        signal.signal(signal.SIGVTALRM, signal.SIG_IGN)
        signal.setitimer(signal.ITIMER_VIRTUAL, 1000.0)
        sys.settrace(lambda *_: None)
        sys.setprofile(lambda *_: None)
        atexit.register(int)
        _KEPT.append(threading.local())
        weakref.finalize(_KEPT[-1], int)
        if world["ctx"] is not None:
            return "left"
    try:
        os.waitpid(-1, os.WNOHANG)
        children = 1
    except ChildProcessError:
        children = 0
    found = {
        "threads": threading.active_count() - 1,
        "children": children,
        "timer": min(1.0, signal.getitimer(signal.ITIMER_VIRTUAL)[0]),
        "trace": sys.gettrace() is None,
        "profile": sys.getprofile() is None,
        "at exit": atexit._ncallbacks() == before,
        "finalizers": len(weakref.finalize._registry),  # type: ignore[attr-defined]
    }
    sys.settrace(None)
    sys.setprofile(None)
    if world["ctx"] is None:
        import subprocess

        subprocess.run(["pkill", "-KILL", "-P", str(os.getpid())], check=False)
    return found


# 73, 74, 75 -------------------------------------------------------------------------------------------------


def _slack() -> int:
    return syscall("prctl", 30)


@attack(
    73,
    "process-state",
    caged={"cwd": True, "umask": 0o077, "descriptors": [0, 1, 2, 3], "non-blocking": False,
           "SIGCHLD": "SIG_DFL", "mask": [], "files": True,
           "nice": 0, "affinity": True, "name": True, "slack": 50_000},
    control={"cwd": False, "umask": 0, "descriptors": [1, 2, 33, 34], "non-blocking": True,
             "SIGCHLD": "SIG_IGN", "mask": ["SIGUSR1"], "files": False,
             "nice": 19, "affinity": False, "name": False, "slack": 1000},
    control_as="user",
    first="fresh process",
    only=PEOPLE,
    host="two_calls",
)  # fmt: skip
def process_state(world: World) -> Any:
    """Everything the kernel keeps of a process."""
    cores = len(os.sched_getaffinity(0))
    if first_call(world):
        gone = tempfile.mkdtemp(dir=scratch(world))
        os.chdir(gone)
        os.rmdir(gone)
        os.umask(0)
        os.set_blocking(1, False)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, [signal.SIGUSR1])
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        os.nice(19)
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        syscall("prctl", 15, b"evil\0")
        syscall("prctl", 29, 1000)
        if world["ctx"] is not None:
            return "changed"
        os.dup2(1, 33)
        os.dup2(3, 34)
        os.close(0)
        os.close(3)
    try:
        cwd = os.path.isdir(os.getcwd())
    except OSError:
        cwd = False
    umask = os.umask(0)
    os.umask(umask)
    opened = [fd for fd in range(100) if answer(functools.partial(os.fstat, fd)) == "ok"]
    name = ctypes.create_string_buffer(16)
    syscall("prctl", 16, name)
    found = {
        "cwd": cwd,
        "umask": umask,
        "descriptors": [fd for fd in opened if fd not in (77, 78, 79)],
        "non-blocking": not os.get_blocking(1),
        "SIGCHLD": signal.Handlers(signal.getsignal(signal.SIGCHLD)).name,  # type: ignore[arg-type]
        "mask": sorted(signal.Signals(s).name for s in signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 100,
        "nice": os.nice(0),
        "affinity": len(os.sched_getaffinity(0)) == cores,
        "name": name.value != b"evil",
        "slack": _slack(),
    }
    if world["ctx"] is None:
        os.dup2(34, 3)  # the control's value goes out by this number
    return found


def _interpreter_state() -> dict[str, Any]:
    return {
        "environment": os.environ.get("LEFT"),
        "zone": time.tzname[0],
        "locale": locale.setlocale(locale.LC_NUMERIC),
        "precision": decimal.getcontext().prec,
        "random": random.random() == random.Random(7).random(),
        "recursion": sys.getrecursionlimit(),
        "switch": sys.getswitchinterval(),
        "gc": gc.isenabled(),
        "callbacks": len(gc.callbacks),
        "filters": len(warnings.filters) > 100,
        "handlers": len(logging.getLogger().handlers),
        "errors": codecs.lookup_error("strict").__name__,
        "timeout": socket.getdefaulttimeout(),
        "path": "/evil" in sys.path,
    }


_PRISTINE = {
    "environment": None, "zone": "UTC", "locale": "C", "precision": 28, "random": False, "recursion": 1000,
    "switch": 0.005, "gc": True,
    "callbacks": 0, "filters": False, "handlers": 0, "errors": "strict_errors", "timeout": None,
    "path": False,
}  # fmt: skip


@attack(
    74,
    "interpreter-state",
    caged=_PRISTINE,
    control={
        "environment": "left", "zone": "EST", "locale": one_of("C.UTF-8", "C", "en_US.UTF-8"), "precision": 3,
        "random": True, "recursion": 500,
        "switch": 1.0, "gc": False, "callbacks": 1, "filters": True, "handlers": 1, "errors": "<lambda>",
        "timeout": 0.5, "path": True,
    },
    control_as="user",
    first="fresh process",
    only=PEOPLE,
    host="two_calls",
)  # fmt: skip
def interpreter_state(world: World) -> Any:
    """Everything the interpreter keeps between two calls."""
    if first_call(world):
        os.environ["LEFT"] = "left"
        os.environ["TZ"] = "EST5EDT"
        time.tzset()
        answer(lambda: locale.setlocale(locale.LC_NUMERIC, "C.UTF-8"))
        decimal.getcontext().prec = 3
        sys.setrecursionlimit(500)
        sys.setswitchinterval(1.0)
        gc.disable()
        gc.callbacks.append(lambda *_: None)
        for number in range(200):
            warnings.filterwarnings("ignore", message=str(number))
        logging.getLogger().addHandler(logging.NullHandler())
        codecs.register_error("strict", lambda error: ("", 0))
        socket.setdefaulttimeout(0.5)
        sys.path.append("/evil")
        random.seed(7)
        if world["ctx"] is not None:
            return "changed"
    return _interpreter_state()


class _Writer:
    """Writes into whatever is descriptor 1 now."""

    def write(self, text: str) -> int:
        return os.write(1, b"hostile:" + text.encode())

    def flush(self) -> None:
        return None


@attack(
    75,
    "output-of-the-next-call",
    caged={"own": "second", "stdout": "second\n", "first": True},
    control={"own": "hostile:secondhostile:"},
    control_as="user",
    first="fresh process",
    only=PEOPLE,
    host="two_calls_and_output",
)
def output_of_the_next_call(world: World) -> Any:
    """Replace sys.stdout, leave bytes unflushed, and let a thread write on."""
    if first_call(world):
        sys.stdout.write("left unflushed")
        sys.stdout = _Writer()

        def write_on() -> None:
            while True:
                answer(lambda: os.write(1, b"."))
                time.sleep(0.001)

        if world["ctx"] is not None:
            threading.Thread(target=write_on, daemon=True).start()
            return "replaced"
    if world["ctx"] is None:
        read, write = os.pipe()
        kept = os.dup(1)
        os.dup2(write, 1)
        print("second", end="")
        os.dup2(kept, 1)
        os.close(write)
        return {"own": os.read(read, 100).decode()}
    print("second")
    return {"own": "second"}
