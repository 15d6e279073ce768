"""From policies/seccomp.toml to a BPF program: pure, once per host and variant.

The program checks the machine, then finds the system call's number by binary search over ranges of equal
answers (about eight comparisons), then looks at arguments where a rule wants it. libseccomp is asked only for
names and numbers, in the host, never in a child. Sources: seccomp(2), linux/filter.h, linux/audit.h. Attacks
16 to 33 of the catalogue are answered here.
"""

from __future__ import annotations

import errno
import functools
import importlib.resources
import platform
import struct
import tomllib
from collections.abc import Mapping
from typing import Any, Literal

from fumehood.isolate import _uapi_seccomp
from fumehood.policies.errors import SandboxUnavailable

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_KILL_PROCESS = 0x80000000
_USER_NOTIF = 0x7FC00000
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000

# struct seccomp_data: number, architecture, instruction pointer, six 64-bit arguments (low half first: both
# machines are little-endian)
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16
_LOAD, _JUMP, _JUMP_EQUAL, _JUMP_GE, _JUMP_SET, _RETURN = 0x20, 0x05, 0x15, 0x35, 0x45, 0x06

Instruction = tuple[int, int, int, int]
Variant = Literal["net", "no-net"]


@functools.cache
def program(
    variant: Variant,
    *,
    no_detach: bool = False,
    notify: bool = False,
    uncounted: bool = False,
    same_user: bool = False,
    watching: bool = False,
) -> bytes:
    """The filter as the kernel wants it, 8 bytes an instruction.

    variant: "net" when the child has network and ipc namespaces of its own, "no-net" when IP sockets, sockets
    in the file system and System V objects would be the host's. no_detach: also refuse setsid and setpgid
    (the tier without process namespaces, where a process group is all that can be killed). uncounted: no
    control group counts memory, so that memory which is in no process's size is refused. same_user: the
    tool sees other processes of its user, the host's too, and must not change their limits and priorities.
    watching: files may be watched, through which the use that others make of shared ones can be seen.
    notify: what is refused as an attack is sent to the listener that the filter must then be loaded with,
    instead of answered. Raises SandboxUnavailable when libseccomp is missing or the machine is unknown.
    """
    data = _data()
    numbers = _known_numbers(data["numbers"])
    refuse = dict.fromkeys(data["refuse"], _USER_NOTIF if notify else _ERRNO | errno.EPERM)
    absent = dict.fromkeys(data["absent"], _ERRNO | errno.ENOSYS)
    if no_detach:
        refuse |= dict.fromkeys(("setsid", "setpgid"), _ERRNO | errno.EPERM)
    if variant == "no-net":
        refuse |= dict.fromkeys(data["shared"], _ERRNO | errno.EPERM)
        absent |= dict.fromkeys(data["reaching"], _ERRNO | errno.EACCES)
    if uncounted:
        absent |= dict.fromkeys(data["uncounted"], _ERRNO | errno.ENOSYS)
    if not watching:
        absent |= dict.fromkeys(data["watching"], _ERRNO | errno.ENOSPC)
    rules: dict[int, list[Mapping[str, Any]]] = {}
    when = {variant, "uncounted" if uncounted else variant, "same-user" if same_user else variant}
    for rule in data["arguments"]:
        if rule.get("when", variant) in when and rule["call"] in numbers:
            rules.setdefault(numbers[rule["call"]], []).append(rule)
    answers = {number: refuse.get(name, absent.get(name, _ALLOW)) for name, number in numbers.items()}
    return _assemble(answers, rules)


def both(variant: Variant, **options: bool) -> tuple[bytes, bytes]:
    """The filter in its two forms: answering for itself, and asking a listener."""
    return program(variant, **options), program(variant, notify=True, **options)


@functools.cache
def names() -> dict[int, str]:
    """System call names of this machine by number."""
    return {number: name for name, number in _known_numbers(_data()["numbers"]).items()}


def why_refused(name: str) -> str:
    """Why the policy refuses this system call, in a few words; "" when it does not."""
    reason: str = _data()["refuse"].get(name, "")
    return reason


@functools.cache
def _data() -> dict[str, Any]:
    text = importlib.resources.files("fumehood.policies").joinpath("seccomp.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _known_numbers(newer: Mapping[str, int]) -> dict[str, int]:
    """Every system call name libseccomp knows on this machine, and the newer ones of the data file."""
    try:
        return _uapi_seccomp.names() | dict(newer)
    except OSError as error:
        raise SandboxUnavailable(
            f"seccomp filters cannot be made: {error}",
            hint="install libseccomp (Debian: apt install libseccomp2)",
        ) from error


def _assemble(answers: Mapping[int, int], rules: Mapping[int, list[Mapping[str, Any]]]) -> bytes:
    machine = platform.machine()
    if machine not in _AUDIT_ARCH:
        raise SandboxUnavailable(
            f"no seccomp policy for the machine {machine!r}", hint="x86_64 and aarch64 are supported"
        )
    unknown = _ERRNO | errno.ENOSYS
    leaves: list[tuple[int, int | tuple[int, list[Mapping[str, Any]]]]] = [(0, unknown)]
    for number in sorted(answers):
        leaf: Any = (
            (number, rules[number]) if number in rules and answers[number] == _ALLOW else answers[number]
        )
        for point, value in ((number, leaf), (number + 1, unknown)):
            if leaves[-1][0] == point:
                leaves[-1] = (point, value)
            else:
                leaves.append((point, value))
    merged = [leaves[0]]
    for point, value in leaves[1:]:
        if value != merged[-1][1]:
            merged.append((point, value))
    head: list[Instruction] = [
        (_LOAD, 0, 0, _ARCH),
        (_JUMP_EQUAL, 1, 0, _AUDIT_ARCH[machine]),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD, 0, 0, _NUMBER),
        (_JUMP_GE, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, unknown),
    ]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in head + _search(merged))


def _search(leaves: list[Any]) -> list[Instruction]:
    """Binary search: the left half first, a jump over it to the right half."""
    if len(leaves) == 1:
        return _answer(leaves[0][1])
    middle = len(leaves) // 2
    left, right = _search(leaves[:middle]), _search(leaves[middle:])
    if len(left) <= 255:
        return [(_JUMP_GE, len(left), 0, leaves[middle][0]), *left, *right]
    return [(_JUMP_GE, 0, 1, leaves[middle][0]), (_JUMP, 0, 0, len(left)), *left, *right]


def _answer(value: Any) -> list[Instruction]:
    if isinstance(value, int):
        return [(_RETURN, 0, 0, value)]
    instructions: list[Instruction] = []
    for rule in value[1]:
        instructions += _argument_rule(rule)
    return [*instructions, (_RETURN, 0, 0, _ALLOW)]


def _argument_rule(rule: Mapping[str, Any]) -> list[Instruction]:
    """One look at the low 32 bits of an argument: the kernel compares no more where it takes an int
    (CVE-2019-10063).
    """
    # "none" makes the call succeed without being done: nothing is refused, and nothing happens.
    refusal = (_RETURN, 0, 0, _ERRNO | (0 if rule["errno"] == "none" else getattr(errno, rule["errno"])))
    load = (_LOAD, 0, 0, _ARGUMENTS + 8 * rule["index"])
    if "only" in rule:
        other, bits = rule["only"]
        rest = _argument_rule({key: value for key, value in rule.items() if key != "only"})
        return [(_LOAD, 0, 0, _ARGUMENTS + 8 * other), (_JUMP_SET, 0, len(rest), bits), *rest]
    if "refuse_bits" in rule:
        return [load, (_JUMP_SET, 0, 1, rule["refuse_bits"]), refusal]
    if "refuse_values" in rule:
        values = rule["refuse_values"]
        tests = [
            (_JUMP_EQUAL, len(values) - i, 0 if i + 1 < len(values) else 1, v) for i, v in enumerate(values)
        ]
        # Each hit jumps to the refusal behind the last test; a miss on the last one jumps over it.
        return [load, *((op, yes - 1, no, v) for op, yes, no, v in tests), refusal]
    values = rule["allow_values"]
    tests = [(_JUMP_EQUAL, len(values) - i, 0, v) for i, v in enumerate(values)]
    return [load, *tests, refusal]
