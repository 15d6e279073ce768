"""From a tool's spec and the machine's facts to the plan that the launcher carries out: pure, and tested by
equality.

The plan is plain JSON. The order of layers stands in `child/cage.py` and `child/launch.py`; here is only what
each of them is given.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fumehood.isolate._spec import DEFAULT_PATH, Machine, ToolSpec, proxy_port
from fumehood.isolate.tiers import Tier
from fumehood.policies.errors import SandboxUnavailable


@dataclass(frozen=True, slots=True)
class Filters:
    """The seccomp program in two forms: answering for itself, and asking the host's listener."""

    plain: bytes
    notify: bytes


_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_DEVICE_LINKS = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
    "/var/tmp": "/tmp",
    "/var/run": "/run",
}
_FILES = {
    "/etc/passwd": "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\ntool:x:1000:1000:tool:/tmp:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    "/etc/group": "root:x:0:\ntool:x:1000:\nnogroup:x:65534:\n",
    "/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n",
    "/etc/hostname": "fumehood\n",
    "/etc/host.conf": "multi on\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\nnetworks: files\nprotocols: files\n"
    "services: files\n",
    "/etc/resolv.conf": "nameserver 127.0.0.1\noptions timeout:2 attempts:1\n",
}
_DNS_PORT = 53
_SHARED_FOLDERS = frozenset(
    {"/", "/tmp", "/var/tmp", "/dev/shm", "/home", "/root", "/etc", "/usr", "/var", "/opt", "/srv", "/mnt"}
)
_DESCRIPTORS = 1024
_PATH_STEPS = 4096  # components of a grant's path, links followed: longer is a circle
_STACK = 8 << 20
_BESIDE = (
    4  # the zygote and a few children of other calls, which count with the call's where it has no namespace
)


def build_plan(
    spec: ToolSpec,
    machine: Machine,
    *,
    slot: int | None,
    host_pid: int,
    seccomp: Filters,
    tier: Tier,
    with_asyncio: bool = False,
    busy: int = 0,
) -> dict[str, Any]:
    """The whole plan for one tool's zygote.

    slot: the user id of this zygote in root mode (nobody else has it), None for an ordinary user. tier: on
    `landlock` and `none` there is no view; the network is refused by seccomp and files by Landlock, as far as
    the machine has them. busy: tasks that the tool's user has already where the kernel counts them together
    with the tool's, because there is no user namespace.
    """
    namespaces = tier == "namespaces"
    real = _real_paths(spec)
    read = [real[path] for path in spec.read]
    write = [real[path] for path in spec.write]
    own = [own_place(os.path.realpath(spec.path))] if spec.path is not None else []
    # A program needs no Python packages; our own runtime, before it becomes the program, needs the standard
    # library.
    interpreter = [*machine.interpreter_dirs, *(machine.site_dirs if spec.kind == "module" else ())]
    binds = _binds(machine, interpreter, own, read, write, spec.exec_writes)
    below_tmp = sorted(
        (b["target"] for b in binds if _under(b["target"], "/tmp")), key=lambda p: p.count("/")
    )
    ports = list(spec.doors) if spec.doors is not None else []
    # Links into them need no rule: Landlock judges the real place.
    programs = [*machine.system_dirs, *interpreter]
    limits = spec.limits
    return {
        "tool": {
            "kind": spec.kind,
            "path": str(spec.path.absolute()) if spec.path else None,
            "argv": list(spec.argv),
            "asyncio": with_asyncio,
        },
        "namespaces": namespaces,
        "unsandboxed": tier == "none",
        "no_namespaces": _left_open(machine.root),
        "reuse": spec.reuse,
        "root": machine.root,
        "slot": slot,
        "host_pid": host_pid,
        "hostname": "fumehood",
        "binds": binds,
        "dirs": ["/proc", "/tmp", "/dev/shm", "/run", "/etc", "/var"],
        "files": {**_FILES, **spec.files},
        "covers": dict(spec.covers),
        "links": _links(machine, spec, real),
        "masks": _masks(spec, binds, namespaces),
        "below_tmp": below_tmp,
        "tmp_bytes": limits.tmp,
        "tmp_inodes": max(1024, limits.tmp // 16384),
        "cwd": spec.cwd if namespaces or spec.cwd != "/tmp" else None,
        "sys_path": list(machine.sys_path),
        "preload": list(spec.preload),
        "early_env": {"PATH": DEFAULT_PATH, **spec.env},
        "doors": list(spec.doors) if spec.doors is not None else None,
        "proxy_port": proxy_port(ports),
        # Below ABI 6 Landlock has no scope for abstract sockets: calls of one tool must not share a network.
        "net_per_call": machine.landlock_abi < 6,
        "limits": {
            # Counts over the life of a process: a process of many calls is watched from outside instead.
            "cpu_s": None if spec.reuse or math.isinf(limits.cpu_s) else max(1, round(limits.cpu_s + 0.499)),
            "processes": limits.processes if namespaces else limits.processes + busy + _BESIDE,
            # Above /tmp's own size, which is to answer first; a sparse file of a terabyte ends here.
            "file_bytes": max(limits.tmp, limits.output, 16 << 30 if write else 0) + (1 << 20),
            # What a user's processes send each other through sockets is counted together: half is the host's.
            "descriptors": min(_DESCRIPTORS, machine.descriptors // 2),
            # A back-stop for what no group counts. Every thread reserves a stack, most of which it never
            # uses.
            "data_bytes": 2 * limits.memory + min(limits.processes, 256) * _STACK,
            "processes_enforced": namespaces,
        },
        "landlock": {
            "watched": False,  # the launcher looks whether the doors can be
            "read_exec": [*programs, *own, *read, *(write if spec.exec_writes else [])],
            # The host's /dev is not the view's: shared memory of its programs, terminals, cameras.
            "read": ["/etc", "/run", "/dev"] if namespaces else _host_etc(machine),
            # The view holds only what was granted: seeing the names of its folders tells nothing.
            "list": ["/"] if namespaces else [],
            "devices": list(_DEVICES),
            "write": write,
            "sockets": spec.exec_writes,  # made in `write`; builds and servers of a run want that
            "write_own": ["/dev/shm"] if namespaces else [],
            "read_own": ["/proc"],
            "connect_ports": sorted({_DNS_PORT, proxy_port(ports), *ports}) if spec.doors is not None else [],
        },
        "dumpable": True,
        "seccomp": seccomp.plain.hex(),
        "seccomp_notify": seccomp.notify.hex(),
    }


def _real_paths(spec: ToolSpec) -> dict[Path, str]:
    """The real place of every grant.

    A link that stands in a folder which a tool may write to is not followed: the tool may have made it, to be
    shown what nobody granted. Raises SandboxUnavailable.
    """
    writable = [os.path.realpath(path) for path in (*spec.write, *spec.untrusted)]
    return {path: _real_path(path, writable, spec.name) for path in (*spec.read, *spec.write)}


def _real_path(path: Path, writable: list[str], tool: str) -> str:
    left, real = list(reversed(path.absolute().parts[1:])), "/"
    for _ in range(_PATH_STEPS):
        if not left:
            return real
        part = left.pop()
        place = os.path.dirname(real) if part == ".." else os.path.join(real, part)
        if part == ".." or not os.path.islink(place):
            real = place
            continue
        if any(_under(real, folder) for folder in writable):
            raise SandboxUnavailable(
                f"tool {tool!r}: the grant {path} leads through the link {place}, which a tool may have made",
                hint="grant the real folder, or keep links out of folders that a tool may write to",
            )
        target = os.readlink(place)
        real = "/" if target.startswith("/") else real
        left += [part for part in reversed(target.split("/")) if part not in ("", ".")]
    raise SandboxUnavailable(f"tool {tool!r}: the grant {path} leads in a circle")


def _left_open(root: bool) -> dict[str, str]:
    """Layer -> what a tool can do without this namespace, whatever Landlock and seccomp refuse (measured: the
    abuse catalogue's rows on the tier `landlock`).
    """
    its = "a user of its own" if root else "the host's own user"
    mine = "" if root else ", change modes, times and attributes of that user's files"
    left = {
        "user": f"the tool runs as {its} in the host's user namespace",
        "mount": f"the tool can ask for the metadata of any path{mine}; its own folder has no size",
        "pid": "the tool sees every process and its arguments" + "; seccomp keeps it from changing them",
        "net": "there are no IP sockets at all, only ctx.fetch, and no socket can be connected to another",
        "ipc": "there are no System V objects and no message queues at all",
        "uts": "the tool sees the host's name",
        "cgroup-ns": "the tool sees the path of its control group",
        "proc": "the tool reads the host's /proc: what everybody may read of the kernel and the network",
    }
    return {
        layer: f"{text}; `fumehood doctor` says why this host has no namespaces"
        for layer, text in left.items()
    }


def own_place(module: str) -> str:
    """What a tool sees of where its file stands: its folder, or the file alone when the folder is shared."""
    folder = os.path.dirname(module)
    return module if folder in _SHARED_FOLDERS or folder == os.path.expanduser("~") else folder


def _masks(spec: ToolSpec, binds: list[dict[str, Any]], namespaces: bool) -> list[str]:
    """Paths inside grants that must not be seen; without mounts nothing can be hidden, so nothing runs.

    Raises SandboxUnavailable.
    """
    hidden = [path for mask in spec.masks if _shown(path := os.path.realpath(mask), binds)]
    if hidden and not namespaces:
        raise SandboxUnavailable(
            f"tool {spec.name!r} may read a folder that holds {hidden[0]}, "
            "which only the tier `namespaces` can hide",
            hint="keep the state folder and the files of secrets outside every folder that a tool may read",
        )
    return hidden


def _host_etc(machine: Machine) -> list[str]:
    """Without a view of its own, a tool reads the host's /etc: only the entries that a view would show."""
    names = ("passwd", "group", "nsswitch.conf", "host.conf")
    return [source for source, _ in machine.etc] + [f"/etc/{name}" for name in names]


def _binds(
    machine: Machine,
    interpreter: list[str],
    own: list[str],
    read: list[str],
    write: list[str],
    exec_writes: bool,
) -> list[dict[str, Any]]:
    """Every tree of the view.

    `own`: map the owner's files to the slot's user; `exec`: programs may run from it.
    """
    binds: list[dict[str, Any]] = [
        {"source": path, "target": path, "exec": True} for path in machine.system_dirs
    ]
    binds += [{"source": source, "target": target, "optional": True} for source, target in machine.etc]
    binds += [{"source": path, "target": path, "device": True} for path in _DEVICES]
    binds += [{"source": path, "target": path, "exec": True, "optional": True} for path in interpreter]
    binds += [{"source": path, "target": path, "exec": True, "own": True} for path in own]
    binds += [{"source": path, "target": path, "exec": True, "own": True} for path in read]
    binds += [
        {"source": path, "target": path, "exec": exec_writes, "own": True, "write": True} for path in write
    ]
    # A path named twice is shown once, with the last and widest grant.
    last = {bind["target"]: bind for bind in binds}
    return [last[target] for target in last if not _covered(last[target], last)]


def _covered(bind: dict[str, Any], others: dict[str, dict[str, Any]]) -> bool:
    """Whether a plain read-only tree lies inside another one that shows the same: nothing to add."""
    if bind.get("write") or bind.get("own") or bind.get("device"):
        return False
    return any(
        _under(bind["target"], other)
        and other != bind["target"]
        and bind["source"] == bind["target"]
        and others[other].get("exec")
        for other in others
    )


def _links(machine: Machine, spec: ToolSpec, real: Mapping[Path, str]) -> dict[str, str]:
    links = dict(machine.system_links) | _DEVICE_LINKS
    named = dict(real) | ({spec.path.parent: os.path.realpath(spec.path.parent)} if spec.path else {})
    for path, place in named.items():
        if place != str(path.absolute()):
            links[str(path.absolute())] = place
    return links


def _shown(path: str, binds: list[dict[str, Any]]) -> bool:
    return any(_under(path, bind["target"]) for bind in binds)


def _under(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
