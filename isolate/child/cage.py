"""The per-call part of the cage: what one forked child does to itself before any tool code is imported.

The order is the security (spec of the layers: docs/isolation.md); each step says why it stands where it
stands. No step may be skipped silently: a step that fails ends the child with its name on the call socket,
and the host refuses to use it.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what `signal` wraps: its enumerations are pages to copy
import contextlib
import fcntl
import os
import signal
import termios
from typing import Any

from . import _uapi_proc
from .channel import Channel
from .layers import FULL, MISSING, PARTIAL, Status, landlock, limits, mount, net, proc, user

# What the interpreter has changed and a program expects to find unchanged.
_INTERPRETERS_SIGNALS = (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ)


class CageError(Exception):
    """A layer that was asked for could not be put on: (layer, what happened)."""

    def __init__(self, layer: str, error: OSError) -> None:
        super().__init__(layer, str(error))
        self.layer, self.error = layer, error


def enter(
    plan: dict[str, Any], channel: Channel, zygote: int, ruleset: int | None
) -> tuple[dict[str, Status], int | None]:
    """Put on every per-call layer; returns the levels as the kernel's answers showed them, and the listener
    of refused system calls, which the host gets.

    1. Own session, default signals: no terminal, no handler of the zygote's.
    2. Mounts while we still may: /proc of this process namespace, /tmp, /dev/shm.
    3. The call's own user namespace (and ipc, and net): from here on we cannot mount any more, the mount
       namespace belongs to the tool's.
    4. Network doors, before Landlock and seccomp forbid netlink and low ports.
    5. Keyring, limits, umask.
    6. no_new_privs: Landlock and seccomp need it.
    7. Landlock: it forbids what 2 did.
    8. Capabilities: gone, bounding set too, read back.
    9. Parent-death signal: a change of credentials clears it.
    10. seccomp, last: it refuses what every step before needed.
    """
    os.setsid()
    if os.isatty(0):
        # A terminal of another session cannot be ours; its modes still can.
        with contextlib.suppress(OSError):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # The zygote's own; it sees to the others before it forks.
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    if plan["tool"]["kind"] == "command":
        for number in _INTERPRETERS_SIGNALS:
            _signal.signal(number, _signal.SIG_DFL)
    if plan["namespaces"]:
        done = _namespaces(plan, channel)
    else:
        done = {layer: (MISSING, left) for layer, left in plan["no_namespaces"].items()}
    done["keyring"] = _keyring()
    os.umask(0o077)
    with _step("rlimits"):
        done["rlimits"] = limits.apply(plan["limits"])
    os.chdir(plan["cwd"] or plan["tmp"])
    with _step("no-new-privs"):
        _uapi_proc.prctl(_uapi_proc.PR_SET_NO_NEW_PRIVS, 1)
        done["no-new-privs"] = (FULL, "")
    with _step("landlock-fs"):
        done.update(landlock.apply(plan["landlock"], plan["tmp"], ruleset))
    with _step("capabilities"):
        done["capabilities"] = _capabilities(plan)
    _uapi_proc.prctl(_uapi_proc.PR_SET_DUMPABLE, 1 if plan["dumpable"] else 0)
    _uapi_proc.die_with_parent(zygote)
    with _step("seccomp"):
        layers, listener = _seccomp(plan)
        done.update(layers)
    return done, listener


def _seccomp(plan: dict[str, Any]) -> tuple[dict[str, Status], int | None]:
    """The filter with a listener; without one where another listener stands above us
    already (EBUSY).
    """
    try:
        listener = _uapi_proc.load_seccomp(
            plan["seccomp_notify"], _uapi_proc.SECCOMP_FILTER_FLAG_NEW_LISTENER
        )
    except OSError as error:
        missing = (
            MISSING,
            f"no listener ({error.strerror}); refused system calls are refused without being named",
        )
        return {"seccomp": _plain_seccomp(plan), "seccomp-notify": missing}, None
    return {"seccomp": (FULL, ""), "seccomp-notify": (FULL, "")}, listener


def _plain_seccomp(plan: dict[str, Any]) -> Status:
    try:
        _uapi_proc.load_seccomp(plan["seccomp"])
    except OSError as error:
        if plan["unsandboxed"]:
            return MISSING, f"seccomp filters cannot be installed: {error.strerror}"
        raise
    return FULL, ""


def _namespaces(plan: dict[str, Any], channel: Channel) -> dict[str, Status]:
    done: dict[str, Status] = {}
    with _step("mount"):
        _uapi_proc.unshare(_uapi_proc.CLONE_NEWNS)
        me, kernel_limits = user.open_self(), user.open_limits()
        mount.private_places(plan)
        done["mount"] = (FULL, "")
    with _step("proc"):
        done["proc"] = proc.mount_for_call(plan["fresh_proc"])
    with _step("user"):
        flags = _uapi_proc.CLONE_NEWUSER | _uapi_proc.CLONE_NEWIPC
        # Now: after the unshare we are the overflow user until the maps are written.
        uid, gid = os.geteuid(), os.getegid()
        own_net = plan["doors"] is not None or plan["net_per_call"]
        _uapi_proc.unshare(flags | (_uapi_proc.CLONE_NEWNET if own_net else 0))
        user.write_maps(me, user.INSIDE, uid, gid)
        done["user"] = user.forbid_more(kernel_limits)
        os.close(me)
        os.close(kernel_limits)
        done["ipc"] = done["pid"] = done["uts"] = done["cgroup-ns"] = (FULL, "")
    with _step("net"):
        if plan["doors"] is not None:
            net.open_doors(channel, plan["doors"], plan["proxy_port"], plan["landlock"]["watched"])
        done["net"] = (FULL, "")
    return done


def _keyring() -> Status:
    try:
        _uapi_proc.join_anonymous_session_keyring()
    except OSError as error:
        return (
            PARTIAL,
            f"no session keyring of its own ({error.strerror}); seccomp refuses keyctl all the same",
        )
    return FULL, ""


def _capabilities(plan: dict[str, Any]) -> Status:
    if plan["namespaces"]:
        _uapi_proc.lock_capabilities()
    _uapi_proc.drop_capabilities()
    if not plan["namespaces"] and not plan["root"]:
        return PARTIAL, "an ordinary user cannot empty the bounding set; no_new_privs keeps it without effect"
    return FULL, ""


class _step:
    """Names the layer in whatever the block raises."""

    def __init__(self, layer: str) -> None:
        self.layer = layer

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise CageError(self.layer, error) from error
