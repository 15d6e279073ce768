"""The backend `monty`: pydantic-monty, an interpreter in Rust for a subset of Python, in its own worker
processes.

Not WASM and not caged by us: its isolation is its own. Starts faster than anything here, knows no classes
with bases, few modules, and no clock or randomness. Tools are coroutine functions there as well as here,
so `await tool()` and `tool()` both work.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from importlib import util
from typing import Any

from fumehood.policies.errors import SandboxUnavailable
from fumehood.sandbox._json import NotJson, decode, encode
from fumehood.sandbox._model import MIB, Capabilities, Ending, Progress, Script, ScriptError
from fumehood.sandbox._protocol import Bridge, LimitHit
from fumehood.sandbox._signatures import plain_name

DEFAULT_MEMORY = 64 * MIB


class MontyBackend:
    """Scripts in pydantic-monty's workers, when it is installed."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._pool: Any = None
        self._lock = asyncio.Lock()

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
        return Capabilities(
            isolation="an interpreter in Rust, in a worker process without a cage",
            in_process=False,
            default_memory=DEFAULT_MEMORY,
        )

    def unavailable(self) -> str | None:
        """Which package is missing, or None."""
        if util.find_spec("pydantic_monty") is None:
            return "pydantic-monty is not installed; pip install pydantic-monty"
        return None

    async def prepare(self, progress: Progress | None = None, *, fuel: bool = False) -> None:
        """Start its workers. Raises: SandboxUnavailable."""
        async with self._lock:
            if self._pool is None:
                try:
                    monty: Any = importlib.import_module("pydantic_monty")
                    # A worker that served one script isn't given to the next.
                    self._pool = await self._stack.enter_async_context(
                        monty.AsyncMonty(max_checkouts_per_worker=1)
                    )
                except (ImportError, OSError) as error:
                    raise SandboxUnavailable(f"pydantic-monty can't be started: {error}") from error

    async def run(self, script: Script, bridge: Bridge) -> Ending:
        """Run one script."""
        await self.prepare()
        monty: Any = importlib.import_module("pydantic_monty")
        limits = {
            "max_feed_duration_secs": script.limits.wall_s,
            "max_memory": script.limits.memory or DEFAULT_MEMORY,
        }
        inputs = {"input": None if script.input_json is None else decode(script.input_json)}

        def show(stream: str, text: str) -> None:
            bridge.output(1 if stream == "stderr" else 0, text.encode("utf-8", "replace"))

        lookup: dict[str, Any] = {}
        for name in script.tools:
            lookup[plain_name(name)] = _function(bridge, name)
        try:
            async with (
                asyncio.timeout(script.limits.wall_s),
                self._pool.checkout(script_name="script.py", limits=limits) as session,
            ):
                value = await session.feed_run(
                    script.code, inputs=inputs, external_lookup=lookup, print_callback=show
                )
            return Ending("ok", value_json=encode(value))
        except NotJson as error:
            return Ending("tool_error", error=ScriptError("NotJson", str(error)))
        except LimitHit as hit:
            return Ending("limit", hit.reason)
        except TimeoutError:
            return Ending("limit", "timeout")
        except monty.MontyCrashedError as error:
            return Ending("sandbox_error", "crashed", detail=str(error))
        except monty.MontyError as error:
            return _failed(error)

    async def forget(self, session: str) -> None:
        """It keeps no sessions here."""

    async def close(self) -> None:
        """Stop its workers."""
        await self._stack.aclose()
        self._pool = None

    def enforcement(self) -> Mapping[str, object]:
        """Its own isolation; no cage of ours."""
        return {"backend": self.name, "where": "worker", "cage": {"tier": "none", "layers": {}}}


def _function(bridge: Bridge, name: str) -> Callable[..., Awaitable[object]]:
    async def call(*args: object, **kwargs: object) -> object:
        ok, text = await bridge.call(name, encode(args[0] if args else kwargs))
        value = decode(text)
        if not ok:
            raise RuntimeError(value.get("message") or "the tool failed")
        return value

    return call


def _failed(error: Any) -> Ending:
    inner = error.exception()
    kind, message = type(inner).__name__, str(inner)
    if isinstance(inner, MemoryError):
        return Ending("limit", "memory")
    if isinstance(inner, TimeoutError):
        return Ending("limit", "timeout")
    frames = error.traceback() if hasattr(error, "traceback") else []
    line = frames[-1].line if frames else None
    column = frames[-1].column if frames else None
    trace = error.display() if hasattr(error, "display") else ""
    return Ending("tool_error", error=ScriptError(kind, message, line, column, trace[:8000]))
