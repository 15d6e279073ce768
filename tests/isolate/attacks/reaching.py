"""Keys, counters and sockets of the host: rows 12 to 14 and 35 to 37 of the catalogue."""

from __future__ import annotations

import ctypes
import functools
import os
import socket
from collections.abc import Callable
from typing import Any

from tests.isolate.attacks._kernel import answers, apart, syscall
from tests.isolate.attacks._model import Cage, Table, World, one_of

TABLE = Table()
attack = TABLE.add

_KEYCTL_GET_KEYRING_ID, _KEYCTL_READ, _SESSION = 0, 11, -3
_SYSLOG_READ_ALL = 3


# 12, 13 -----------------------------------------------------------------------------------------------------


@attack(
    12,
    "keyring",
    caged={"session": "EPERM", "read host key": "EPERM", "add": "EPERM", "request": "EPERM"},
    control={"session": "ok", "read host key": "ok", "add": "ok", "request": "ok"},
    control_as="user",
    first="seccomp",
    # A session keyring of its own: the host's key is not possessed and cannot be found.
    walls={"without-seccomp": {"session": "ok", "read host key": "EACCES", "add": "ok", "request": "ENOKEY"}},
)
def keyring(world: World) -> dict[str, str]:
    """The kernel's keys of the host: by number, by name, and a new one for the next call to find."""
    import ctypes

    buffer = ctypes.create_string_buffer(64)
    return answers(
        {
            "session": lambda: syscall("keyctl", _KEYCTL_GET_KEYRING_ID, _SESSION, 0),
            "read host key": lambda: syscall("keyctl", _KEYCTL_READ, world["key_id"], buffer, 64, 0),
            "add": lambda: syscall("add_key", b"user", b"fumehood-left", b"x", 1, _SESSION),
            "request": lambda: syscall("request_key", b"user", world["key_name"].encode(), None, 0),
        }
    )


@attack(
    13,
    "kernel-log-perf-bpf",
    caged={"syslog": "EPERM", "perf": "EPERM", "bpf": "EPERM"},
    control={
        "syslog": "ok",
        "perf": one_of("ok", "ENOENT", "EOPNOTSUPP"),
        "bpf": one_of("ok", "EINVAL", "EFAULT", "E2BIG"),
    },
    first="seccomp",
    # dmesg_restrict, perf_event_paranoid and unprivileged_bpf_disabled answer where seccomp does not (sysctls
    # of this kernel).
    walls={
        "without-seccomp": {
            "syslog": one_of("EPERM", "ok"),
            "perf": one_of("EPERM", "EACCES", "ENOENT"),
            "bpf": "EPERM",
        }
    },
)
def kernel_log_perf_bpf(world: World) -> dict[str, str]:
    """The log of the kernel, its counters and its virtual machine."""
    import ctypes

    buffer = ctypes.create_string_buffer(4096)
    attributes = ctypes.create_string_buffer(128)
    attributes.raw = (
        (1).to_bytes(4, "little") + (128).to_bytes(4, "little") + bytes(120)
    )  # a software clock, all processes
    program = ctypes.create_string_buffer(128)
    return answers(
        {
            "syslog": lambda: syscall("syslog", _SYSLOG_READ_ALL, buffer, 4096),
            "perf": lambda: syscall("perf_event_open", attributes, -1, 0, -1, 0),
            "bpf": lambda: syscall("bpf", 5, program, 128),
        }
    )


# 14 ---------------------------------------------------------------------------------------------------------


def _connect(family: int, kind: int, address: Any) -> None:
    with socket.socket(family, kind) as sock:
        sock.settimeout(5)
        if kind == socket.SOCK_STREAM:
            sock.connect(address)
        else:
            sock.sendto(b"x", address)


def _network(world: World) -> dict[str, str]:
    return answers(
        {
            "metadata": lambda: _connect(socket.AF_INET, socket.SOCK_STREAM, ("169.254.169.254", 80)),
            "loopback": lambda: _connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", world["port"])),
            "loopback six": lambda: _connect(
                socket.AF_INET6, socket.SOCK_STREAM, ("::ffff:127.0.0.1", world["port"])
            ),
            "datagram": lambda: _connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", world["udp_port"])),
            "datagram away": lambda: _connect(socket.AF_INET, socket.SOCK_DGRAM, ("169.254.169.254", 53)),
        }
    )


_REACHED = {"metadata": one_of("ok", "ETIMEDOUT", "EHOSTUNREACH", "ENETUNREACH", "EAGAIN", "None",
                               "ECONNREFUSED"), "loopback": "ok",
            "loopback six": "ok", "datagram": "ok", "datagram away": one_of("ok", "ENETUNREACH",
            "EHOSTUNREACH")}  # fmt: skip


@attack(
    14,
    "host-loopback",
    caged={
        "metadata": "EACCES",
        "loopback": "EACCES",
        "loopback six": "EACCES",
        "datagram": "ENETUNREACH",
        "datagram away": "ENETUNREACH",
    },
    control=_REACHED,
    control_as="user",
    first="net",
    walls={
        "without-landlock": dict.fromkeys(_REACHED, "ENETUNREACH"),
        "without-namespaces": dict.fromkeys(_REACHED, "EAFNOSUPPORT"),
    },
)
def host_loopback(world: World) -> dict[str, str]:
    """Connect to the metadata address and to a service that listens on the host, by TCP and UDP."""
    return _network(world)


_NOBODY_THERE = {"metadata": "ECONNREFUSED", "loopback": "ECONNREFUSED", "loopback six": "ECONNREFUSED",
                 "datagram": "ok", "datagram away": "ok"}  # fmt: skip


@attack(
    14,
    "host-loopback-with-egress",
    # The namespace has a loopback of its own, to which every address leads: nobody listens there. Landlock
    # lets connects get that far, because there the host sees them (tests/host/test_unserved.py).
    caged=_NOBODY_THERE,
    control=_REACHED,
    control_as="user",
    first="net",
    cage=Cage(doors=(443,)),
    walls={
        "without-landlock": _NOBODY_THERE,
        "without-namespaces": dict.fromkeys(_REACHED, "EAFNOSUPPORT"),
    },
)  # fmt: skip
def host_loopback_with_egress(world: World) -> dict[str, str]:
    """The same for a tool with doors: every address is its own loopback. (A datagram to a port
    nobody has is sent and lost.)
    """
    return _network(world)


@attack(
    14,
    "own-server",
    caged={"bind": "EACCES"},
    control={"bind": "ok"},
    control_as="user",
    first="landlock-net",
    walls={"without-landlock": {"bind": "ok"}, "without-namespaces": {"bind": "EAFNOSUPPORT"}},
)
def own_server(world: World) -> dict[str, str]:
    """Listen: behind a network namespace nobody could come, and Landlock refuses it besides."""

    def serve() -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
            sock.bind(("127.0.0.1", 0))
            sock.listen()

    return {"bind": apart(serve)}


# 35, 36, 37 -------------------------------------------------------------------------------------------------


def _socket(*given: int) -> None:
    os.close(syscall("socket", *given))


_FAMILIES = {
    "netlink": (16, 3, 0),
    "packet": (17, 3, 0),
    "vsock": (40, 1, 0),
    "alg": (38, 5, 0),
    "xdp": (44, 3, 0),
    "bluetooth": (31, 3, 1),
}
_KINDS = {
    "raw": (2, 3, 1), "raw six": (10, 3, 58), "raw cloexec": (2, 3 | 0o2000000, 1), "packet type": (2, 10, 0),
    "sctp": (2, 1, 132),
    "mptcp": (2, 1, 262), "mptcp six": (10, 1, 262), "dccp": (2, 6, 33),
}  # fmt: skip


@attack(
    35,
    "other-sockets",
    caged={**dict.fromkeys(_FAMILIES, "EAFNOSUPPORT"), "raw": "EPERM", "raw six": "EPERM",
           "raw cloexec": "EPERM", "packet type": "EPERM",
           "sctp": one_of("EPROTONOSUPPORT", "EPERM"), "mptcp": "EPERM", "mptcp six": "EPERM",
           "dccp": one_of("ESOCKTNOSUPPORT", "EPROTONOSUPPORT", "EPERM"), "pair": "EAFNOSUPPORT"},
    control={**dict.fromkeys(_FAMILIES, one_of("ok", "EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT")),
             "netlink": "ok", "packet": "ok",
             "vsock": "ok", "raw": "ok", "raw six": "ok", "raw cloexec": "ok", "packet type": "ok",
             "sctp": one_of("ok", "EPROTONOSUPPORT"),
             "mptcp": one_of("ok", "EPROTONOSUPPORT"), "mptcp six": one_of("ok", "EPROTONOSUPPORT"),
             "dccp": one_of("ok", "ESOCKTNOSUPPORT", "EPROTONOSUPPORT"), "pair": one_of("ENOTSUP",
             "EPROTONOSUPPORT")},
    first="seccomp",
    walls={
        # The network namespace and no capability; vsock is not namespaced, so that only the filter refuses
        # it.
        "without-seccomp": {**dict.fromkeys(_FAMILIES, one_of("ok", "EAFNOSUPPORT", "EPERM",
        "EPROTONOSUPPORT", "ESOCKTNOSUPPORT")), "packet": "EPERM",
                            "vsock": "ok", "raw": "EPERM", "raw six": "EPERM", "raw cloexec": "EPERM",
                            "packet type": "EPERM",
                            "sctp": one_of("ok", "EPROTONOSUPPORT"), "mptcp": one_of("ok", "EPROTONOSUPPORT"),
                            "mptcp six": one_of("ok", "EPROTONOSUPPORT"), "dccp": one_of("ok",
                            "ESOCKTNOSUPPORT", "EPROTONOSUPPORT"),
                            "pair": one_of("ENOTSUP", "EPROTONOSUPPORT")},
        "without-namespaces": {**dict.fromkeys(_FAMILIES, "EAFNOSUPPORT"), **dict.fromkeys(_KINDS,
        "EAFNOSUPPORT"), "pair": "EAFNOSUPPORT"},
    },
)  # fmt: skip
def other_sockets(world: World) -> dict[str, str]:
    """Families that no namespace contains, raw kinds, and protocols that go round Landlock's TCP rules."""
    steps: dict[str, Callable[[], object]] = {
        name: functools.partial(_socket, *given) for name, given in {**_FAMILIES, **_KINDS}.items()
    }
    pair = ctypes.create_string_buffer(8)
    steps["pair"] = lambda: syscall(53, 2, 1, 0, pair)
    return answers(steps)


def _unix(address: str, kind: int = socket.SOCK_STREAM) -> Callable[[], object]:
    def step() -> None:
        with socket.socket(socket.AF_UNIX, kind) as sock:
            sock.settimeout(5)
            sock.connect(address)

    return step


@attack(
    36,
    "abstract-sockets",
    caged={"stream": "ECONNREFUSED"},
    control={"stream": "ok"},
    control_as="user",
    first="net",
    walls={"without-namespaces": {"stream": "EACCES"}},  # seccomp, and Landlock's scope behind it
)
def abstract_sockets(world: World) -> dict[str, str]:
    """A socket of the host whose name is no file."""
    return {"stream": apart(_unix("\0" + world["abstract"]))}


_UNIX = ("straight", "datagram", "pair", "through the root of another")


@attack(
    37,
    "path-sockets",
    caged={
        "straight": "ENOENT",
        "datagram": "ENOENT",
        "pair": "ENOENT",
        "through the root of another": "ENOENT",
    },
    control={"straight": "ok", "datagram": "ok", "pair": "ok", "through the root of another": "ok"},
    first="mount",
    # Landlock covers these from ABI 9 only: on the tier without namespaces nothing is connected at all.
    walls={
        "without-namespaces": {
            "straight": "EACCES",
            "datagram": "EPROTOTYPE",
            "pair": "EPROTOTYPE",
            "through the root of another": "EACCES",
        }
    },
)
def path_sockets(world: World) -> dict[str, str]:
    """docker.sock and its kin; by datagrams, which need no connect, too."""

    def datagram() -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"x", world["path_datagrams"])

    def pair() -> None:
        one, two = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with one, two:
            one.sendto(b"x", world["path_datagrams"])

    return {
        "straight": apart(_unix(world["path_socket"])),
        "datagram": apart(datagram),
        "pair": apart(pair),
        "through the root of another": apart(
            _unix(f"/proc/{world['victim_pid']}/root{world['path_socket']}")
        ),
    }
