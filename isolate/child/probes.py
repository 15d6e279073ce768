"""Every layer tried alone, each in a process that is thrown away: for `fumehood doctor` on machines where the
whole cage fails.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable

from . import _uapi_landlock, _uapi_proc
from .layers import FULL, MISSING, PARTIAL, Status, landlock, mount, proc, user

_ALLOW_ALL = bytes.fromhex("0600000000" + "00ff7f")  # one instruction: return SECCOMP_RET_ALLOW


def main(fd: int) -> None:
    """Send {layer: [level, detail]} on the socket and end."""
    out = socket.socket(fileno=fd)
    found: dict[str, Status] = {name: _alone(probe) for name, probe in _PROBES.items()}
    found.update(
        landlock.statuses(_uapi_landlock.abi())
        if _uapi_landlock.abi()
        else dict.fromkeys(_LANDLOCK, _NO_LANDLOCK)
    )
    out.sendall(json.dumps(found).encode())
    os._exit(0)


def _alone(probe: Callable[[], Status]) -> Status:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, json.dumps(probe()).encode())
        except BaseException as error:  # noqa: BLE001 - a probe that breaks is a finding
            os.write(write, json.dumps((MISSING, f"{type(error).__name__}: {error}")).encode())
        finally:
            os._exit(0)
    os.close(write)
    data = b""
    while part := os.read(read, 65536):
        data += part
    os.close(read)
    os.waitpid(pid, 0)
    if not data:
        return MISSING, "the probe's process was killed"
    level, detail = json.loads(data)
    return level, detail


def _namespace(flag: int, what: str) -> Callable[[], Status]:
    def probe() -> Status:
        try:
            _uapi_proc.unshare(flag | (0 if os.geteuid() == 0 else _uapi_proc.CLONE_NEWUSER))
        except OSError as error:
            return MISSING, f"no {what} namespace: {error.strerror}. {user.REMEDY}"
        return FULL, ""

    return probe


def _proc() -> Status:
    if os.geteuid() == 0:
        _uapi_proc.unshare(_uapi_proc.CLONE_NEWNS)
    else:
        user.become_builder()
    _uapi_proc.unshare(_uapi_proc.CLONE_NEWPID)
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, b"1" if proc.mount_for_zygote() else b"0")
        os._exit(0)
    return (
        (FULL, "")
        if os.read(read, 1) == b"1"
        else (PARTIAL, "the outer /proc is masked; run the container with an unmasked /proc")
    )


def _seccomp() -> Status:
    _uapi_proc.prctl(_uapi_proc.PR_SET_NO_NEW_PRIVS, 1)
    _uapi_proc.load_seccomp(_ALLOW_ALL)
    return FULL, ""


def _notify() -> Status:
    _uapi_proc.prctl(_uapi_proc.PR_SET_NO_NEW_PRIVS, 1)
    try:
        _uapi_proc.load_seccomp(_ALLOW_ALL, _uapi_proc.SECCOMP_FILTER_FLAG_NEW_LISTENER)
    except OSError as error:
        return MISSING, f"no listener ({error.strerror}): this process may stand under another one already"
    return FULL, ""


def _keyring() -> Status:
    try:
        _uapi_proc.join_anonymous_session_keyring()
    except OSError as error:
        return PARTIAL, f"no session keyring of its own ({error.strerror})"
    return FULL, ""


def _no_new_privs() -> Status:
    _uapi_proc.prctl(_uapi_proc.PR_SET_NO_NEW_PRIVS, 1)
    return FULL, ""


_LANDLOCK = ("landlock-fs", "landlock-net", "landlock-scope")
_NO_LANDLOCK: Status = (
    MISSING,
    "Landlock is not in this kernel or not in its `lsm=` list; boot with lsm=landlock,…",
)
_PROBES: dict[str, Callable[[], Status]] = {
    "user": user.probe,
    "mount": mount.probe,
    "pid": _namespace(_uapi_proc.CLONE_NEWPID, "process"),
    "net": _namespace(_uapi_proc.CLONE_NEWNET, "network"),
    "ipc": _namespace(_uapi_proc.CLONE_NEWIPC, "ipc"),
    "uts": _namespace(_uapi_proc.CLONE_NEWUTS, "uts"),
    "cgroup-ns": _namespace(_uapi_proc.CLONE_NEWCGROUP, "cgroup"),
    "proc": _proc,
    "seccomp": _seccomp,
    "seccomp-notify": _notify,
    "keyring": _keyring,
    "no-new-privs": _no_new_privs,
}
