"""Landlock: landlock_create_ruleset(2), landlock_add_rule(2), landlock_restrict_self(2).

A right that this kernel does not know is left out of the ruleset and shows in the layer's status; nothing
here decides whether that is enough. Table of ABIs: Documentation/userspace-api/landlock.rst.
"""

from __future__ import annotations

import os
import stat
import struct

from . import _uapi_proc as sys

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
MAKE_SOCK = 1 << 9
READ = READ_FILE | READ_DIR
# remove and make rights, bits 4 to 12: directories, files, fifos, sockets, devices and links
CHANGE = 0b1_1111_1111 << 4
_FILE_ONLY = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV

BIND_TCP, CONNECT_TCP = 1, 2
SCOPE_ABSTRACT_SOCKET, SCOPE_SIGNAL = 1, 2

_FS_BY_ABI = ((1, (1 << 13) - 1), (2, REFER), (3, TRUNCATE), (5, IOCTL_DEV))
_NET_SINCE, _SCOPE_SINCE = 4, 6
_RULE_PATH, _RULE_PORT = 1, 2


def abi() -> int:
    """The Landlock ABI of this kernel; 0 when there is none or it is switched off."""
    try:
        return sys.syscall("landlock_create_ruleset", None, 0, 1)
    except OSError:
        return 0


def handled_fs(version: int) -> int:
    """Every file-system right that ABI `version` can handle."""
    return sum(bits for since, bits in _FS_BY_ABI if version >= since)


def handled_net(version: int) -> int:
    """Every TCP right that ABI `version` can handle."""
    return BIND_TCP | CONNECT_TCP if version >= _NET_SINCE else 0


def handled_scope(version: int) -> int:
    """Every scope that ABI `version` can handle."""
    return SCOPE_ABSTRACT_SOCKET | SCOPE_SIGNAL if version >= _SCOPE_SINCE else 0


def create(
    version: int, *, fs: bool = True, net: bool = True, scope: bool = True, connect: bool = True
) -> int:
    """A ruleset that refuses everything it handles; returns its descriptor.

    connect: whether TCP connects are among it.
    """
    attributes = struct.pack(
        "QQQ",
        handled_fs(version) if fs else 0,
        handled_net(version) & (BIND_TCP | (CONNECT_TCP if connect else 0)) if net else 0,
        handled_scope(version) if scope else 0,
    )
    size = 8 if version < _NET_SINCE else 16 if version < _SCOPE_SINCE else 24
    return sys.syscall("landlock_create_ruleset", attributes[:size], size, 0)


def allow_path(ruleset: int, version: int, path: str, rights: int, *, real: bool = False) -> None:
    """Grant `rights` beneath `path`; directory rights are left out for a file (the kernel answers EINVAL
    otherwise). real: OSError(ELOOP) when a link leads the path elsewhere.
    """
    fd = sys.open_real(path) if real else os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        granted = rights & handled_fs(version)
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            granted &= _FILE_ONLY
        if granted:
            sys.syscall("landlock_add_rule", ruleset, _RULE_PATH, struct.pack("=Qi", granted, fd), 0)
    finally:
        os.close(fd)


def allow_port(ruleset: int, rights: int, port: int) -> None:
    """Grant TCP bind or connect on one port."""
    sys.syscall("landlock_add_rule", ruleset, _RULE_PORT, struct.pack("=QQ", rights, port), 0)


def restrict(ruleset: int) -> None:
    """Put the ruleset on this thread and all it forks, for good."""
    sys.syscall("landlock_restrict_self", ruleset, 0)
