"""One attack (or honest program): a function that runs inside a child and, unchanged, outside as its own
control.

What a body returns is compared as a whole value. An expectation is a JSON value, in which a frozenset of
texts stands for "one of these"; or `Ends`, for a call that must not come back with a value. This module and
everything beside it is stdlib-only: it is imported inside the cage too, by `tool.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

World = Mapping[str, Any]
"""What the runner prepared outside and tells the attacker: process numbers, ports, paths, the
call's own input.
"""

Body = Callable[[World], Any]
B = TypeVar("B", bound=Body)

SETUPS = (
    "root",
    "user",
    "root-without-seccomp",
    "user-without-seccomp",
    "root-without-landlock",
    "user-without-landlock",
    "root-without-namespaces",
    "user-without-namespaces",
)
"""Who the host runs as, and which wall is taken away. Without namespaces is the tier `landlock`."""

PEOPLE = ("root", "user")
"""For what does not depend on a wall: the host's own code, a fresh process."""
BOTH_TIERS = (*PEOPLE, "root-without-namespaces", "user-without-namespaces")
"""For what does not depend on seccomp or Landlock, such as limits."""

ALONE = "seccomp"
"""A first wall with no second behind it: the host must refuse a child without one (`test_refused`)."""
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Ends:
    """The call's verdict when it is no value. signal: name of the signal that ended the process."""

    outcome: str
    reason: str | None = None
    signal: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Cage:
    """How the cage of one case differs from the plain one. limits: fields of `Limits`. read, write:
    keys of the world that hold paths.
    """

    limits: tuple[tuple[str, float], ...] = ()
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    doors: tuple[int, ...] | None = None
    env: tuple[tuple[str, str], ...] = ()


PLAIN = Cage()


def limits(**values: float) -> Cage:
    """A cage with other limits."""
    return Cage(limits=tuple(sorted(values.items())))


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the catalogue, or a part of one. walls: set-up (or "without-x") -> expectation
    where it is not `caged`.
    """

    row: str
    name: str
    body: Body
    caged: Any
    control: Any
    control_as: Literal["root", "user"]
    no_control: str
    first: str
    walls: Mapping[str, Any]
    cage: Cage
    only: tuple[str, ...]
    heavy: bool
    host: str

    @property
    def id(self) -> str:
        return f"{self.row}-{self.name}"

    def expected(self, setup: str) -> Any:
        """What the body must return (or how it must end) in `setup`."""
        person, _, without = setup.partition("-")
        for key in (setup, without, person):
            if key and key in self.walls:
                return self.walls[key]
        return self.caged

    def runs_in(self, setup: str) -> bool:
        return setup in self.only


@dataclass(slots=True)
class Table:
    """The cases of one module, filled by its decorators."""

    cases: dict[str, Case] = field(default_factory=dict)

    def add(
        self,
        row: int | str,
        name: str,
        *,
        caged: Any,
        control: Any = None,
        control_as: Literal["root", "user"] = "root",
        no_control: str = "",
        first: str = "",
        walls: Mapping[str, Any] | None = None,
        cage: Cage = PLAIN,
        only: tuple[str, ...] = SETUPS,
        heavy: bool = False,
        host: str = "",
    ) -> Callable[[B], B]:
        """Register a body.

        caged: the expectation in the whole cage. control: what the same body gives outside, run as
        `control_as`; no_control says why there can be none. first: the wall that answers first. walls:
        expectations in other set-ups. only: set-ups it runs in. heavy: it uses the machine up or is measured,
        so nothing runs beside it. host: the name of the host-side function (`drivers.py`) that drives it.
        """
        if (control is None) == (not no_control):
            raise ValueError(f"{row}-{name}: give a control or say why there is none")

        def register(body: B) -> B:
            case = Case(
                str(row),
                name,
                body,
                caged,
                control,
                control_as,
                no_control,
                first,
                dict(walls or {}),
                cage,
                only,
                heavy,
                host,
            )
            if case.id in self.cases:
                raise ValueError(f"{case.id} is there twice")
            self.cases[case.id] = case
            return body

        return register


def settle(expected: Any, got: Any) -> Any:
    """`expected` with every choice that `got` satisfies replaced by what was got: the two are then
    compared with ==.
    """
    if isinstance(expected, frozenset):
        return got if isinstance(got, str) and got in expected else sorted(expected)
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        return {key: settle(value, got.get(key)) for key, value in expected.items()}
    if isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        return [settle(value, other) for value, other in zip(expected, got, strict=True)]
    return expected


def one_of(*names: str) -> frozenset[str]:
    """Any of these answers is sound."""
    return frozenset(names)


MACHINE_INIT = one_of("ok", "EPERM", "EACCES")
"""The machine's process 1 may be out of reach of root as well; the other targets are the control."""


def first_call(world: World) -> bool:
    """Whether this is the call that does it, and not the one that looks for what is left."""
    return not world.get("second")
