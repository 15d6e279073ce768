"""A look at a child from outside, before it may serve: what the kernel says of it, compared with what the
plan asked for (contract section 4).

The child's own report is not needed for any of this. What the kernel does not show from outside (Landlock,
the keyring) is taken from our own runtime's report, which was made before any tool code was imported.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_NAMESPACES = {
    "user": "user", "mount": "mnt", "pid": "pid", "net": "net", "ipc": "ipc", "uts": "uts",
    "cgroup-ns": "cgroup",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Posture:
    """What was seen: namespaces that differ from the host's, seccomp mode, no_new_privs, capability lines,
    descriptors, user id, environment.
    """

    own_namespaces: frozenset[str] | None
    seccomp_mode: int
    no_new_privs: bool
    capabilities: int
    bounding: int
    descriptors: tuple[int, ...] | None
    uid: int
    environment: tuple[str, ...] | None


def look(pid: int) -> Posture:
    """Read /proc/PID of a child. Raises OSError when it is gone.

    None for what only a host with CAP_SYS_PTRACE may see of another user's process: a container's root lacks
    it by default.
    """
    status = _status(pid)
    capabilities = 0
    for line in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        capabilities |= int(status[line], 16)
    try:
        ours = _our_namespaces(os.getpid())
        own = frozenset(
            layer
            for layer, name in _NAMESPACES.items()
            if os.readlink(f"/proc/{pid}/ns/{name}") != ours[layer]
        )
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = tuple(
                part.decode("utf-8", "replace") for part in file.read().split(b"\0") if part
            )
        descriptors = tuple(sorted(int(name) for name in os.listdir(f"/proc/{pid}/fd")))
    except PermissionError:
        own = environment = descriptors = None  # type: ignore[assignment]
    return Posture(
        own_namespaces=own,
        seccomp_mode=int(status["Seccomp"]),
        no_new_privs=status["NoNewPrivs"] == "1",
        capabilities=capabilities,
        bounding=int(status["CapBnd"], 16),
        descriptors=descriptors,
        uid=int(status["Uid"].split()[0]),
        environment=environment,
    )


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
    return wrong


def seen_levels(seen: Posture) -> dict[str, tuple[str, str]]:
    """Levels of the layers that only a look from outside can vouch for."""
    unseen = ("PARTIAL", "not seen from outside: the host lacks CAP_SYS_PTRACE; our own runtime set it up")
    return {
        "fds": ("FULL", "") if seen.descriptors is not None else unseen,
        "environment": ("FULL", "") if seen.environment is not None else unseen,
    }


def _status(pid: int) -> dict[str, str]:
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        pairs = (line.split(":", 1) for line in file if ":" in line)
        return {key: value.strip() for key, value in pairs}


def host_pid(pidfd: int) -> int:
    """The process number behind a pidfd as this namespace numbers it; -1 when it is gone (pidfd_open(2))."""
    with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as file:
        for line in file:
            if line.startswith("Pid:"):
                return int(line.split()[1])
    return -1
