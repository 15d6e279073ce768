"""The launcher: exec'd afresh for every tool, it builds the tool's part of the cage and leaves an init and a
zygote in it.

Started by the host as `python -I -S -c BOOT FD`, with a scrubbed environment. It never holds a credential and
imports nothing of the tool's. Processes: this one (a stub in the host's process namespace) -> process 1
(makes inits, reaps) -> the zygote. Each dies with its parent, and the zygote ends when the host's socket
closes: two ties, because the parent-death signal alone depends on a thread.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from typing import Any, NoReturn

from . import _uapi_proc, inits, zygote
from .layers import limits, mount, net, proc, user

_RECEIVE = 1 << 20


def main(fd: int) -> NoReturn:
    """Read the plan, build, serve. Ends with a message to the host when a step fails."""
    host = socket.socket(fileno=fd)
    host.set_inheritable(False)
    plan = json.loads(_receive_plan(host))
    for key in ("seccomp", "seccomp_notify"):
        plan[key] = bytes.fromhex(plan[key])
        _uapi_proc.describe_filter(plan[key])
    code = 1
    try:
        # Remembered for every child: none of them sees /proc/sys.
        _uapi_proc.last_capability()
        limits.core_bytes()
        os.umask(0o022)
        limits.raise_descriptors()
        if plan["namespaces"]:
            _enter_tool_namespaces(host, plan)
        else:
            if plan["root"]:
                _uapi_proc.lock_capabilities()
                user.become_slot(plan["slot"])
                # The locks keep a change of user from taking the capabilities along.
                _uapi_proc.drop_capabilities()
            # No parent-death signal here: without a process namespace the zygote must live long enough to
            # kill its children's groups. It hears of the host's end by the socket, which the kernel closes
            # however the host goes.
            _be_zygote(host, None, plan)
        code = 0
    except mount.ViewError as error:
        _tell_failure(host, "mount", str(error), None)
    except OSError as error:
        _tell_failure(host, plan.get("step", "start"), str(error), error.errno)
    except BaseException as error:  # noqa: BLE001 - top of a process: the host shows this text
        _tell_failure(host, plan.get("step", "start"), f"{type(error).__name__}: {error}", None)
    finally:
        os._exit(code)


def _receive_plan(host: socket.socket) -> bytes:
    length, plan = int(host.recv(64)), b""
    while len(plan) < length:
        plan += host.recv(_RECEIVE)
    return plan


def _tell_failure(host: socket.socket, step: str, text: str, errno: int | None) -> None:
    try:
        host.send(json.dumps({"t": "failed", "step": step, "error": text[:4096], "errno": errno}).encode())
    except OSError:
        sys.stderr.write(f"fumehood launcher: {step}: {text}\n")


def _enter_tool_namespaces(host: socket.socket, plan: dict[str, Any]) -> None:
    """Build the view with the privilege we have, give that up, enter the tool's namespaces, split into the
    three processes.

    1. Become the builder: root with mounts of its own, or an ordinary user in a first user namespace.
    2. Build the view and pivot.
    3. Lose every privilege (root mode: a user id nobody has).
    4. One unshare of everything: from a more privileged namespace, so that every mount is locked.
    5. Fork process 1, which mounts /proc, and from it the zygote.
    """
    plan["step"] = "user"
    if plan["root"]:
        _uapi_proc.unshare(_uapi_proc.CLONE_NEWNS)
    else:
        user.become_builder()
    plan["step"] = "mount"
    mount.build_view(plan)
    plan["step"] = "user"
    if plan["root"]:
        user.become_slot(plan["slot"])
    me = user.open_self()
    uid, gid = os.geteuid(), os.getegid()
    _uapi_proc.unshare(
        _uapi_proc.CLONE_NEWUSER
        | _uapi_proc.CLONE_NEWNS
        | _uapi_proc.CLONE_NEWPID
        | _uapi_proc.CLONE_NEWNET
        | _uapi_proc.CLONE_NEWIPC
        | _uapi_proc.CLONE_NEWUTS
        | _uapi_proc.CLONE_NEWCGROUP
    )
    user.write_maps(me, user.INSIDE, uid, gid)
    os.close(me)
    os.setresgid(user.INSIDE, user.INSIDE, user.INSIDE)
    os.setresuid(user.INSIDE, user.INSIDE, user.INSIDE)
    plan["step"] = "uts"
    socket.sethostname(plan["hostname"])
    _uapi_proc.die_with_parent(plan["host_pid"])
    plan["step"] = "pid"
    pid = os.fork()
    if pid:
        host.close()
        _wait_for(pid)
    _be_process_one(host, plan)


def _wait_for(pid: int) -> NoReturn:
    """The stub: nothing but to end when the tree below has ended."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    _, status = os.waitpid(pid, 0)
    os._exit(0 if status == 0 else 1)


def _be_process_one(host: socket.socket, plan: dict[str, Any]) -> NoReturn:
    code = 1
    try:
        _uapi_proc.prctl(_uapi_proc.PR_SET_PDEATHSIG, signal.SIGKILL)
        plan["step"] = "proc"
        plan["fresh_proc"] = proc.mount_for_zygote()
        plan["landlock"]["watched"] = plan["doors"] is not None and net.can_watch()
        plan["step"] = "start"
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        _use_up_number_two()
        pid = os.fork()
        if pid == 0:
            ours.close()
            _uapi_proc.die_with_parent(1)
            _be_zygote(host, theirs, plan)
        theirs.close()
        host.close()
        inits.serve(ours)
        code = 0
    except BaseException as error:  # noqa: BLE001 - top of a process
        _tell_failure(host, plan["step"], f"{type(error).__name__}: {error}", getattr(error, "errno", None))
    finally:
        os._exit(code)


def _use_up_number_two() -> None:
    """Every call's child is process 2 of its namespace, so the zygote must not be: OpenSSL tells a fork by
    the number (attack 78).
    """
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _be_zygote(host: socket.socket, inits_socket: socket.socket | None, plan: dict[str, Any]) -> NoReturn:
    code = 1
    try:
        plan["step"] = "preload"
        zygote.prepare(plan)
        host.send(json.dumps({"t": "up", "fresh_proc": plan.get("fresh_proc", False)}).encode())
        zygote.Zygote(host, inits_socket, plan).serve()
        code = 0
    except BaseException as error:  # noqa: BLE001 - top of a process; the import of a preloaded library can raise anything
        _tell_failure(host, plan["step"], f"{type(error).__name__}: {error}", getattr(error, "errno", None))
    finally:
        os._exit(code)
