"""The seam between the runner and whatever runs a script. A third party adds a backend by an entry point
of GROUP.

Guarantees a backend has to give are checked by `fumehood.testing.check_sandbox_backend`. The bridge
counts output, calls and bytes by itself, so a careless backend is still bounded; wall time is watched by
the runner from outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from fumehood.sandbox._model import Capabilities, Ending, Progress, Script

GROUP = "fumehood.sandbox_backends"


class LimitHit(Exception):
    """A bridge call went past a cap. The backend ends the script; the runner reports this reason whatever
    the backend says.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@runtime_checkable
class Bridge(Protocol):
    """What a running script may reach. Given to `SandboxBackend.run`; belongs to one script."""

    async def call(self, name: str, args_json: str, *, fetch: bool = False) -> tuple[bool, str]:
        """Ask a granted tool. (ok, JSON): the value, or `{"message", "reason"}` for the script. Raises:
        LimitHit.
        """
        ...

    def tried(self, name: str, reason: str) -> None:
        """A question that a cap kept from being asked, for a backend that counts ahead of the bridge; it ends
        the script.
        """
        ...

    def output(self, stream: int, data: bytes) -> None:
        """What the script printed; stream 0 is stdout, 1 stderr. Raises: LimitHit."""
        ...

    @property
    def asked(self) -> int:
        """Questions so far. A script that asked none may be run again without harm."""
        ...


@runtime_checkable
class SandboxBackend(Protocol):
    """One way to run scripts. `run` may be called many times at once; cancelling it must stop the script
    and free what it used.
    """

    @property
    def name(self) -> str:
        """What `backend=` and `--backend` call it."""
        ...

    @property
    def languages(self) -> frozenset[str]:
        """Of "js" and "python"."""
        ...

    def capabilities(self) -> Capabilities:
        """What it can do, without starting anything."""
        ...

    def unavailable(self) -> str | None:
        """Why it can't be used here, with the package to install; None when it can."""
        ...

    async def prepare(self, progress: Progress | None = None, *, fuel: bool = False) -> None:
        """Build and load what the first script would wait for; `fuel`: of one with a fuel budget. Quick
        when done.

        Raises: SandboxUnavailable.
        """
        ...

    async def run(self, script: Script, bridge: Bridge) -> Ending:
        """Run one script. Raises nothing for what a script does. Raises: SandboxUnavailable."""
        ...

    async def forget(self, session: str) -> None:
        """End a session; nothing happens when there is none."""
        ...

    async def close(self) -> None:
        """Stop everything; scripts that still run end with `sandbox_error`."""
        ...

    def enforcement(self) -> Mapping[str, object]:
        """What stands between the script and the host, for the result."""
        ...
