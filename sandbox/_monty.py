"""The backend `monty`: pydantic-monty, a Rust interpreter for a subset of Python, when it is installed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import util

from fumehood.policies.errors import SandboxUnavailable
from fumehood.sandbox._model import Capabilities, Ending, Progress, Script
from fumehood.sandbox._protocol import Bridge


class MontyBackend:
    """Not built yet: named here so that its name is known."""

    @property
    def name(self) -> str:
        """ "monty"."""
        return "monty"

    @property
    def languages(self) -> frozenset[str]:
        """Python, a subset of it."""
        return frozenset({"python"})

    def capabilities(self) -> Capabilities:
        """See `Capabilities`."""
        return Capabilities(isolation="an interpreter in Rust, without WASM", in_process=True)

    def unavailable(self) -> str | None:
        """Which package is missing, or None."""
        return (
            None
            if util.find_spec("pydantic_monty")
            else "pydantic-monty is not installed; pip install pydantic-monty"
        )

    async def prepare(self, progress: Progress | None = None) -> None:
        """Nothing to build."""

    async def run(self, script: Script, bridge: Bridge) -> Ending:
        """Run one script."""
        raise SandboxUnavailable("the monty backend is not built yet")

    async def forget(self, session: str) -> None:
        """No sessions."""

    async def close(self) -> None:
        """Nothing to stop."""

    def enforcement(self) -> Mapping[str, object]:
        """The interpreter."""
        return {"backend": self.name}
