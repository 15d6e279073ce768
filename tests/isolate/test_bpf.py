"""The seccomp program, run here by a small interpreter: every system call's answer, not a sample."""

from __future__ import annotations

import errno
import platform
import struct
import tomllib
from importlib import resources
from typing import Any

import pytest

from fumehood.isolate import _bpf

ALLOW, KILL, NOTIFY = 0x7FFF0000, 0x80000000, 0x7FC00000
ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[platform.machine()]
POLICY: dict[str, Any] = tomllib.loads(
    resources.files("fumehood.policies").joinpath("seccomp.toml").read_text()
)
NUMBERS = {name: number for number, name in _bpf.names().items()}


def answer(program: bytes, number: int, arguments: tuple[int, ...] = (), arch: int = ARCH) -> int:
    """What the kernel would answer: classic BPF as far as the generator uses it (linux/filter.h)."""
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, arch, 0, *(*arguments, *[0] * (6 - len(arguments))))
    code = [struct.unpack_from("HBBI", program, at) for at in range(0, len(program), 8)]
    at = accumulator = 0
    while True:
        operation, yes, no, value = code[at]
        at += 1
        match operation:
            case 0x20:
                accumulator = struct.unpack_from("<I", data, value)[0]
            case 0x05:
                at += value
            case 0x15:
                at += yes if accumulator == value else no
            case 0x35:
                at += yes if accumulator >= value else no
            case 0x45:
                at += yes if accumulator & value else no
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"unknown instruction {operation:#x}")


def refused(code: int) -> int:
    return 0x00050000 | code


@pytest.mark.promise("isolate:seccomp-answers")
@pytest.mark.parametrize("name", sorted(POLICY["refuse"]))
def test_every_refused_call_answers_eperm_or_asks_the_listener(name: str) -> None:
    if name not in NUMBERS:
        assert name in {"stime", "clock_settime64", "clock_adjtime64"}, "unknown here, so it answers ENOSYS"
        return
    assert answer(_bpf.program("net"), NUMBERS[name]) == refused(errno.EPERM)
    assert answer(_bpf.program("net", notify=True), NUMBERS[name]) == NOTIFY


@pytest.mark.parametrize("name", sorted(set(POLICY["absent"]) & set(NUMBERS)))
def test_what_libraries_probe_is_absent(name: str) -> None:
    assert answer(_bpf.program("net", notify=True), NUMBERS[name]) == refused(errno.ENOSYS)


def test_everything_known_and_not_named_is_allowed_and_every_other_number_is_absent() -> None:
    program = _bpf.program("net")
    named = {
        *POLICY["refuse"],
        *POLICY["absent"],
        *POLICY["watching"],
        *(rule["call"] for rule in POLICY["arguments"]),
    }
    for number in range(1024):
        name = _bpf.names().get(number)
        if name is None:
            assert answer(program, number) == refused(errno.ENOSYS), number
        elif name not in named:
            assert answer(program, number) == ALLOW, name


@pytest.mark.promise("isolate:seccomp-answers")
def test_shared_files_are_watched_by_nobody_but_a_run() -> None:
    for variant in ("net", "no-net"):
        for name in ("inotify_add_watch", "inotify_init1"):
            assert answer(_bpf.program(variant), NUMBERS[name]) == refused(errno.ENOSPC)
            assert answer(_bpf.program(variant, watching=True), NUMBERS[name]) == ALLOW


def test_another_machine_is_killed_and_the_x32_numbers_are_absent() -> None:
    program = _bpf.program("net")
    assert answer(program, 20, arch=0x40000003) == KILL
    assert answer(program, 0x40000000 | 39) == refused(errno.ENOSYS)


@pytest.mark.parametrize(
    ("call", "arguments", "expected"),
    [
        ("clone", (0x11,), ALLOW),
        ("clone", (0x10000011,), refused(errno.EPERM)),
        ("clone", (0x20000 | 17,), refused(errno.EPERM)),
        ("clone", (0x8000 | 17,), refused(errno.EPERM)),
        ("clone", ((1 << 40) | 0x3D0F00,), ALLOW),
        ("fchmodat", (0, 0, 0o755), ALLOW),
        ("fchmodat", (0, 0, 0o2755), ALLOW),
        ("fchmodat", (0, 0, 0o4755), refused(errno.EPERM)),
        ("openat", (0, 0, 0x40, 0o4755), refused(errno.EPERM)),
        ("openat", (0, 0, 0x410002, 0o4755), refused(errno.EPERM)),
        ("openat", (0, 0, 0x40, 0o755), ALLOW),
        ("openat", (0, 0, 0x2, 0o4755), ALLOW),
        ("socket", (1, 1, 0), ALLOW),
        ("socket", (2, 1, 0), ALLOW),
        ("socket", (10, 2, 0), ALLOW),
        ("socket", (16, 3, 0), refused(errno.EAFNOSUPPORT)),
        ("socket", (40, 1, 0), refused(errno.EAFNOSUPPORT)),
        ("socket", (2 + 2**32, 1, 0), ALLOW),
        ("socket", (16 + 2**32, 1, 0), refused(errno.EAFNOSUPPORT)),
        ("socket", (2, 3, 0), refused(errno.EPERM)),
        ("socket", (2, 3 | 0x80000, 0), refused(errno.EPERM)),
        ("socket", (2, 1, 262), refused(errno.EPERM)),
        ("socketpair", (1, 1, 0), ALLOW),
        ("socketpair", (2, 1, 0), refused(errno.EAFNOSUPPORT)),
        ("ioctl", (0, 0x5401), ALLOW),
        ("ioctl", (0, 0x5412), refused(errno.EPERM)),
        ("ioctl", (0, 0x100005412), refused(errno.EPERM)),
        ("ioctl", (0, 0x541C), refused(errno.EPERM)),
        ("prctl", (35,), refused(errno.EPERM)),
        ("prctl", (15,), ALLOW),
        ("personality", (0xFFFFFFFF,), ALLOW),
        ("personality", (0x0040000,), refused(errno.EPERM)),
        ("personality", (0x0400000,), refused(errno.EPERM)),
    ],
)
def test_arguments_are_judged_by_their_low_half(call: str, arguments: tuple[int, ...], expected: int) -> None:
    assert answer(_bpf.program("net"), NUMBERS[call], arguments) == expected


def test_without_a_network_namespace_only_unix_sockets_exist_and_nothing_leaves_its_group() -> None:
    program = _bpf.program("no-net", no_detach=True)
    assert answer(program, NUMBERS["socket"], (1, 1, 0)) == ALLOW
    assert answer(program, NUMBERS["socket"], (2, 1, 0)) == refused(errno.EAFNOSUPPORT)
    for call in ("socket", "socketpair"):
        assert answer(program, NUMBERS[call], (1, 0x80001, 0)) == ALLOW
        assert answer(program, NUMBERS[call], (1, 0x80002, 0)) == refused(errno.EPROTOTYPE)
    assert answer(program, NUMBERS["connect"]) == refused(errno.EACCES)
    assert answer(program, NUMBERS["setsid"]) == refused(errno.EPERM)
    assert answer(program, NUMBERS["setpgid"]) == refused(errno.EPERM)


def test_every_entry_of_the_policy_says_why() -> None:
    reasons = [
        *POLICY["refuse"].values(),
        *POLICY["absent"].values(),
        *POLICY["watching"].values(),
        *POLICY["reaching"].values(),
        *(rule["why"] for rule in POLICY["arguments"]),
    ]
    assert all(
        isinstance(reason, str) and len(reason) > 8 or reason in {"retired", "terminals"}
        for reason in reasons
    )
    assert _bpf.why_refused("ptrace") == POLICY["refuse"]["ptrace"]
    assert _bpf.why_refused("read") == ""
