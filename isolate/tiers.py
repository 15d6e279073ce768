"""Which tier this machine reaches, found by doing it (contract section 4, design D2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Tier = Literal["namespaces", "landlock", "none"]

LAYERS = (
    "user", "mount", "pid", "net", "ipc", "uts", "cgroup-ns", "proc", "landlock-fs", "landlock-net",
    "landlock-scope", "seccomp", "seccomp-notify", "capabilities", "no-new-privs", "rlimits",
    "cgroup-limits", "keyring", "fds", "environment",
)  # fmt: skip
"""Every layer of the contract, in the order `doctor` shows them."""

_ALL_NAMESPACES = ("user", "mount", "pid", "net", "ipc", "uts")


def reached(layers: Mapping[str, tuple[str, str]]) -> Tier:
    """The tier that a child's layers amount to."""

    def on(*names: str) -> bool:
        return all(layers.get(name, ("MISSING", ""))[0] != "MISSING" for name in names)

    if not on("landlock-fs", "seccomp"):
        return "none"
    return "namespaces" if on(*_ALL_NAMESPACES) else "landlock"


def layer_table(layers: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Layer -> level, for a result's `enforcement`."""
    return {name: level for name, (level, _) in sorted(layers.items())}


def at_least(reached_tier: Tier, wanted: Tier) -> Verdict:
    """Whether a tier is as strong as another, with the sentence that says it."""
    enough = STRENGTH[reached_tier] >= STRENGTH[wanted]
    text = "" if enough else f"this machine reaches the tier {reached_tier!r}, and {wanted!r} is required"
    return Verdict(enough, text)


@dataclass(frozen=True, slots=True)
class Verdict:
    """enough: whether the machine suffices. text: why not, or ""."""

    enough: bool
    text: str


STRENGTH: Mapping[str, int] = {"none": 0, "landlock": 1, "namespaces": 2}
