"""Which tier this machine reaches, found by doing it (contract section 4, design D2)."""

from __future__ import annotations

from typing import Literal

Tier = Literal["namespaces", "landlock", "none"]

LAYERS = (
    "user", "mount", "pid", "net", "ipc", "uts", "cgroup-ns", "proc", "landlock-fs", "landlock-net", "landlock-scope", "seccomp",
    "seccomp-notify", "capabilities", "no-new-privs", "rlimits", "cgroup-limits", "keyring", "fds", "environment",
)  # fmt: skip
"""Every layer of the contract, in the order `doctor` shows them."""
