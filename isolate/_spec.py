"""What the host says about one tool, and about this machine: values, checked elsewhere, from which `_plan`
makes the plan.
"""

from __future__ import annotations

import os
import resource
import site
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fumehood.isolate.child import _uapi_landlock

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one call. Sizes in bytes, times in seconds; enforced without the tool's help (R008)."""

    timeout_s: float = 30.0
    cpu_s: float = 30.0
    memory: int = 512 << 20
    processes: int = 64
    output: int = 8 << 20
    tmp: int = 64 << 20
    events: int = 1000
    start_s: float = 20.0


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One tool as `isolate` sees it.

    path: the module's file (kind "module"). argv: the program and its arguments (kind "command"). env: what
    may stand in the environment before the call (never a credential). doors: ports the broker serves inside,
    None for no network at all. masks: host paths to cover inside grants. cwd: working folder inside. reuse:
    the process may serve later calls of the same principal and environment; the one exception to a fresh
    process per call. exec_writes: programs may be run from `write` paths too (a build wants that; for a tool
    it is refused, so that nothing it wrote is run as native code). files: text files that only the view has,
    by path. covers: paths of the view that show one of `files` instead of what is there. untrusted: folders
    that other tools may write to: no grant is led on by a link that stands in one. collect: patterns of files
    in the call's /tmp that are handed back when it ends well.
    """

    name: str
    kind: Literal["module", "command"]
    path: Path | None = None
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    limits: Limits = Limits()
    preload: tuple[str, ...] = ()
    doors: tuple[int, ...] | None = None
    masks: tuple[Path, ...] = ()
    cwd: str = "/tmp"
    reuse: bool = False
    exec_writes: bool = False
    files: Mapping[str, str] = field(default_factory=dict)
    covers: Mapping[str, str] = field(default_factory=dict)
    untrusted: tuple[Path, ...] = ()
    collect: tuple[str, ...] = ()


def proxy_port(doors: Sequence[int]) -> int:
    """The port of the proxy door inside: 3128, or the next one that no rule names."""
    return next(port for port in range(3128, 3128 + len(doors) + 1) if port not in doors)


@dataclass(frozen=True, slots=True)
class CallFrame:
    """What the tool is given: its input (JSON), its environment with credentials, who calls."""

    call_id: str
    input: Any
    env: Mapping[str, str]
    late_names: frozenset[str] = frozenset()
    arguments: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts about the host that the plan depends on; read once, so that planning stays a pure function.

    descriptors: as many as a process of the host may have.
    """

    root: bool
    executable: str
    sys_path: tuple[str, ...]
    interpreter_dirs: tuple[str, ...]
    site_dirs: tuple[str, ...]
    system_links: Mapping[str, str]
    system_dirs: tuple[str, ...]
    etc: tuple[tuple[str, str], ...]
    landlock_abi: int = 0
    descriptors: int = 1 << 20

    @classmethod
    def read(cls) -> Machine:
        """Look at this host: interpreter, library folders, links of a merged /usr, certificate bundles behind
        links.
        """
        base = os.path.realpath(sys.base_prefix)
        stdlib = [entry for entry in sys.path if entry and _below(os.path.realpath(entry), base)]
        sites = [
            entry for entry in (*site.getsitepackages(), site.getusersitepackages()) if os.path.isdir(entry)
        ]
        links, dirs = {}, []
        for name in ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"):
            if os.path.islink(name):
                links[name] = os.readlink(name)
            elif os.path.isdir(name):
                dirs.append(name)
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        interpreter = [base] if not _below(base, "/usr") else []
        return cls(
            root=os.geteuid() == 0,
            executable=os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable),
            sys_path=tuple(dict.fromkeys(os.path.realpath(entry) for entry in (*_ordered(stdlib), *sites))),
            interpreter_dirs=tuple(interpreter),
            site_dirs=tuple(os.path.realpath(s) for s in sites if not _below(os.path.realpath(s), "/usr")),
            system_links=links,
            system_dirs=("/usr", *dirs),
            etc=tuple(_etc_entries()),
            landlock_abi=_uapi_landlock.abi(),
            descriptors=most if most >= 0 else 1 << 20,
        )


def _below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _ordered(entries: list[str]) -> list[str]:
    """The standard library without site-packages, in the interpreter's order."""
    return [e for e in entries if "site-packages" not in e and "dist-packages" not in e]


# Shown read-only when they exist. Nothing that names a person, a network or a secret: no /etc/shadow, hosts,
# resolv.conf, ssh or mail.
_ETC = (
    "alternatives", "ca-certificates", "ca-certificates.conf", "debian_version", "fonts", "gitconfig",
    "inputrc", "java-17-openjdk", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "magic",
    "mime.types", "os-release", "perl", "pki/ca-trust", "pki/tls/cert.pem", "pki/tls/certs", "protocols",
    "python3", "python3.11", "services", "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "terminfo",
    "timezone", "xattr.conf",
)  # fmt: skip

_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/cert.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/tls/cert.pem",
    "/etc/ssl/ca-bundle.pem",
)


def _etc_entries() -> list[tuple[str, str]]:
    """(source, target) of every /etc entry to show; a link is shown as its target at the link's place.

    A certificate bundle that is a link inside a shown folder gets its own target shown too: the folder alone
    would hold a link to nothing (Fedora, Arch, SUSE), and showing all of /etc/pki would show private keys.
    """
    found = [
        (os.path.realpath(f"/etc/{name}"), f"/etc/{name}") for name in _ETC if os.path.exists(f"/etc/{name}")
    ]
    for bundle in _BUNDLES:
        real = os.path.realpath(bundle)
        if os.path.islink(bundle) and os.path.isfile(real) and not _below(real, "/usr"):
            found.append((real, real))
    return list(dict.fromkeys(found))
