"""Layers `landlock-fs`, `landlock-net` and `landlock-scope`: one ruleset, restricted last but for
capabilities and seccomp.

The second wall behind the mount, network and process namespaces; on the tier without namespaces it is the
only one for files. Most rules are made ahead in the zygote; a rule on /tmp must name the call's own tmpfs,
which exists only in the child.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from .. import _uapi_landlock as landlock
from . import FULL, MISSING, PARTIAL, Status

_NEWEST_KNOWN = 7


def prepare(plan: dict[str, Any]) -> int | None:
    """A ruleset with every rule that does not depend on the call; None without Landlock.

    Paths that do not exist are left out: what is not there needs no right.
    """
    version = min(landlock.abi(), _NEWEST_KNOWN)
    if version == 0:
        return None
    # Refused here, a connect would leave no trace. Where the call's own network, which is nothing but the
    # host's doors, shows the host what it refuses, the connect may get that far.
    ruleset = landlock.create(version, connect=not plan["watched"])
    for paths, rights in (
        (plan["read"], landlock.READ),
        (plan["list"], landlock.READ_DIR),
        (plan["devices"], landlock.READ | landlock.WRITE_FILE | landlock.TRUNCATE),
    ):
        for path in paths:
            if os.path.exists(path):
                landlock.allow_path(ruleset, version, path, rights)
    for paths, rights in (
        (plan["read_exec"], landlock.READ | landlock.EXECUTE),
        # Two calls that meet at a socket hand each other descriptors, and what those hold on to is neither's.
        (plan["write"], _change(version) & ~(0 if plan["sockets"] else landlock.MAKE_SOCK)),
    ):
        for path in paths:
            # A grant that is gone, or that a link has replaced since it was looked at, gives no right.
            with contextlib.suppress(OSError):
                landlock.allow_path(ruleset, version, path, rights, real=True)
    if version >= 4 and not plan["watched"]:
        for port in plan["connect_ports"]:
            landlock.allow_port(ruleset, landlock.CONNECT_TCP, port)
    return ruleset


def apply(plan: dict[str, Any], tmp: str, ruleset: int | None) -> dict[str, Status]:
    """Add what only this call has, and restrict this process.

    tmp: the call's own folder. ruleset: from `prepare`, in the zygote. A mount that the call made covers the
    place that the zygote saw, so its rules are made here.
    """
    if ruleset is None:
        missing = (
            MISSING,
            "Landlock is not in this kernel or not in its `lsm=` list; boot with lsm=landlock,…",
        )
        return {"landlock-fs": missing, "landlock-net": missing, "landlock-scope": missing}
    version = min(landlock.abi(), _NEWEST_KNOWN)
    for path in (tmp, *plan["write_own"]):
        landlock.allow_path(ruleset, version, path, _change(version))
    for path in plan["read_own"]:
        landlock.allow_path(ruleset, version, path, landlock.READ)
    landlock.restrict(ruleset)
    os.close(ruleset)
    return statuses(version, watched=plan["watched"])


def _change(version: int) -> int:
    """Every right but running programs and device controls."""
    return landlock.handled_fs(version) & ~landlock.EXECUTE & ~landlock.IOCTL_DEV


def statuses(version: int, *, watched: bool = False) -> dict[str, Status]:
    """What a ruleset of this ABI holds, layer by layer. watched: connects are not refused here."""
    if version < 4:
        net: Status = MISSING, "TCP rules need ABI 4 (Linux 6.7)"
    elif watched:
        net = (
            PARTIAL,
            "refuses TCP bind only; connects are left to the call's own network, which shows them",
        )
    else:
        net = FULL, ""
    return {
        "landlock-fs": (FULL, "")
        if version >= 3
        else (PARTIAL, "truncate(2) is not covered below ABI 3 (Linux 6.2)"),
        "landlock-net": net,
        "landlock-scope": (FULL, "")
        if version >= 6
        else (MISSING, "signal and abstract socket scopes need ABI 6 (Linux 6.12)"),
    }
