"""A look at a child from outside, before it may serve: what the kernel says of it, compared with what the
plan asked for (contract section 4).

The child's own report is not needed for any of this. What the kernel does not show from outside (Landlock,
the keyring) is taken from our own runtime's report, which was made before any tool code was imported.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fumehood.isolate._small import read_small

_NAMESPACES = {
    "user": "user", "mount": "mnt", "pid": "pid", "net": "net", "ipc": "ipc", "uts": "uts",
    "cgroup-ns": "cgroup",
}  # fmt: skip

_STATUS = re.compile(rb"^(Uid|Cap[A-Z][a-z]+|NoNewPrivs|Seccomp):\t(.*)$", re.MULTILINE)
_PID = re.compile(rb"^Pid:\t(-?\d+)$", re.MULTILINE)
_PRIVATE = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC
_LIMITS = {
    "Max core file size": None, "Max cpu time": "cpu_s", "Max processes": "processes",
    "Max file size": "file_bytes", "Max open files": "descriptors", "Max data size": "data_bytes",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Posture:
    """What was seen: namespaces that differ from the host's, seccomp mode, no_new_privs, capability lines,
    descriptors, user id, environment, what is wrong with the view (layer -> text), hard limits by the
    kernel's names for them (None: no limit).
    """

    own_namespaces: frozenset[str] | None
    seccomp_mode: int
    no_new_privs: bool
    capabilities: int
    bounding: int
    descriptors: tuple[int, ...] | None
    uid: int
    environment: tuple[str, ...] | None
    view: Mapping[str, str] | None
    limits: Mapping[str, int | None]


def look(pid: int) -> Posture:
    """Read /proc/PID of a child. Raises OSError when it is gone.

    None for what only a host with CAP_SYS_PTRACE may see of another user's process: a container's root lacks
    it by default.
    """
    status = dict(_STATUS.findall(read_small(f"/proc/{pid}/status")))
    capabilities = 0
    for line in (b"CapInh", b"CapPrm", b"CapEff", b"CapAmb"):
        capabilities |= int(status[line], 16)
    try:
        ours = _our_namespaces(os.getpid())
        own = frozenset(
            layer
            for layer, name in _NAMESPACES.items()
            if os.readlink(f"/proc/{pid}/ns/{name}") != ours[layer]
        )
        entries = read_small(f"/proc/{pid}/environ").split(b"\0")
        environment = tuple(entry.decode("utf-8", "replace") for entry in entries if entry)
        descriptors = tuple(sorted(int(name) for name in os.listdir(f"/proc/{pid}/fd")))
        view = _view(f"/proc/{pid}/root")
    except PermissionError:
        own = environment = descriptors = view = None  # type: ignore[assignment]
    return Posture(
        own_namespaces=own,
        seccomp_mode=int(status[b"Seccomp"]),
        no_new_privs=status[b"NoNewPrivs"] == b"1",
        capabilities=capabilities,
        bounding=int(status[b"CapBnd"], 16),
        descriptors=descriptors,
        uid=int(status[b"Uid"].split()[0]),
        environment=environment,
        view=view,
        limits=_limits(pid),
    )


def _view(root: str) -> dict[str, str]:
    """What is wrong with what a child sees below `root`, by layer."""
    wrong: dict[str, str] = {}
    if os.stat(root).st_dev == os.stat("/").st_dev:
        wrong["mount"] = "the child sees the host's root"
    elif not os.statvfs(root).f_flag & os.ST_RDONLY:
        wrong["mount"] = "the child's root is not read-only"
    for place in ("/tmp", "/dev/shm"):
        if os.statvfs(root + place).f_flag & _PRIVATE != _PRIVATE:
            wrong["mount"] = f"{place} is not the call's own"
    if os.path.exists(f"{root}/proc/sys"):
        wrong["proc"] = "/proc shows the kernel's files"
    return wrong


def _limits(pid: int) -> dict[str, int | None]:
    """Hard limits (proc(5), /proc/PID/limits)."""
    found: dict[str, int | None] = {}
    for line in read_small(f"/proc/{pid}/limits").decode("ascii").splitlines()[1:]:
        hard = line[47:68].strip()
        found[line[:26].strip()] = int(hard) if hard.isdigit() else None
    return found


@functools.cache
def _our_namespaces(pid: int) -> dict[str, str]:
    """The host's own; it never changes them. pid: a forked host is another one."""
    return {layer: os.readlink(f"/proc/{pid}/ns/{name}") for layer, name in _NAMESPACES.items()}


def faults(seen: Posture, plan: Mapping[str, Any]) -> dict[str, str]:
    """Layer -> what is wrong, for everything that is not as the plan says; empty when the child may serve."""
    wrong: dict[str, str] = {}
    if plan["namespaces"]:
        for layer in _NAMESPACES:
            if seen.own_namespaces is None:
                wrong[layer] = "the host may not look at the child (CAP_SYS_PTRACE)"
            elif layer not in seen.own_namespaces:
                wrong[layer] = "the child shares this namespace with the host"
    if seen.seccomp_mode != 2 and not plan["unsandboxed"]:
        wrong["seccomp"] = f"seccomp mode is {seen.seccomp_mode}, not 2"
    if not seen.no_new_privs:
        wrong["no-new-privs"] = "no_new_privs is not set"
    if seen.capabilities:
        wrong["capabilities"] = f"capabilities are left: {seen.capabilities:#x}"
    if seen.bounding and (plan["namespaces"] or plan["root"]):
        wrong["capabilities"] = f"the bounding set is not empty: {seen.bounding:#x}"
    if seen.descriptors not in (None, (0, 1, 2, 3)):
        wrong["fds"] = f"descriptors are open that should not be: {seen.descriptors}"
    names = {entry.partition("=")[0] for entry in seen.environment or ()}
    if names - {"PATH", "LC_CTYPE"}:
        wrong["environment"] = f"the start environment holds more than PATH: {sorted(names)}"
    if seen.uid == 0 or (plan["slot"] is not None and seen.uid != plan["slot"]):
        wrong["user"] = f"the child runs as user {seen.uid}"
    if plan["namespaces"]:
        wrong |= seen.view or {}
    for name, key in _LIMITS.items():
        most = 1 if key is None else plan["limits"][key]  # a core of one byte is none: layers/limits.py
        hard = seen.limits.get(name)
        if most is not None and (hard is None or hard > most + (key == "cpu_s")):
            wrong["rlimits"] = f"{name} is {hard}, not {most}"
    return wrong


def seen_levels(seen: Posture) -> dict[str, tuple[str, str]]:
    """Levels of the layers that only a look from outside can vouch for."""
    unseen = ("PARTIAL", "not seen from outside: the host lacks CAP_SYS_PTRACE; our own runtime set it up")
    return {
        "fds": ("FULL", "") if seen.descriptors is not None else unseen,
        "environment": ("FULL", "") if seen.environment is not None else unseen,
    }


def host_pid(pidfd: int) -> int:
    """The process number behind a pidfd as this namespace numbers it; -1 when it is gone (pidfd_open(2))."""
    found = _PID.search(read_small(f"/proc/self/fdinfo/{pidfd}"))
    return int(found[1]) if found else -1
