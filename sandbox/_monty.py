"""The backend `monty`: pydantic-monty, an interpreter in Rust for a subset of Python, in its own worker
processes.

Not WASM and not caged by us: its isolation is its own. Starts faster than anything here, knows no classes
with bases, few modules, and no clock or randomness. `await echo()` and `echo()` both work. What it cannot:
text with lone surrogates (its strings are UTF-8), `tools["a-name"]` (`tool("a-name")` is there), `ToolError`
(a refusal is a RuntimeError), fetch, fuel, sessions.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import importlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
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
        output = _Output(bridge, script.limits.output)
        feed = _Feed(monty, script, bridge)
        try:
            async with (
                asyncio.timeout(script.limits.wall_s),
                self._pool.checkout(script_name="script.py", limits=limits) as session,
            ):
                value = await feed.drive(session, output)
            return Ending("ok", value_json=encode(value))
        except NotJson as error:
            return Ending("tool_error", error=ScriptError("NotJson", str(error)))
        except LimitHit as hit:
            return Ending("limit", hit.reason)
        except TimeoutError:
            return Ending("limit", "output" if output.over else "timeout")
        except monty.MontyCrashedError as error:
            if output.over:
                return Ending("limit", "output")
            return Ending("sandbox_error", "crashed", detail=str(error))
        except monty.MontyError as error:
            return Ending("limit", "output") if output.over else _failed(error)
        except (UnicodeError, ValueError) as error:  # what its own values cannot be
            return Ending("tool_error", error=ScriptError(type(error).__name__, str(error)))
        finally:
            feed.close()

    async def forget(self, session: str) -> None:
        """It keeps no sessions here."""

    async def close(self) -> None:
        """Stop its workers."""
        await self._stack.aclose()
        self._pool = None

    def enforcement(self) -> Mapping[str, object]:
        """Its own isolation; no cage of ours."""
        return {"backend": self.name, "where": "worker", "cage": {"tier": "none", "layers": {}}}


class _Output:
    """What is printed, brought to the loop's thread: it is called on one of monty's."""

    def __init__(self, bridge: Bridge, most: int) -> None:
        self.over = False
        self._bridge = bridge
        self._left = most
        self._loop = asyncio.get_running_loop()

    def __call__(self, stream: str, text: str) -> None:
        data = text.encode("utf-8", "replace")
        if self._left < 0:
            raise LimitHit("output")
        self._left -= len(data)
        self.over = self._left < 0
        self._loop.call_soon_threadsafe(self._keep, 1 if stream == "stderr" else 0, data)
        if self.over:
            raise LimitHit("output")

    def _keep(self, stream: int, data: bytes) -> None:
        with contextlib.suppress(LimitHit):  # the runner sees the bridge's stop
            self._bridge.output(stream, data)


class _Feed:
    """One script, driven from question to question.

    A call that the script awaits, or hands to `gather`, is a coroutine; any other is answered before the
    script goes on, so `echo()["a"]` is what it looks like.
    """

    def __init__(self, monty: Any, script: Script, bridge: Bridge) -> None:
        self._monty, self._script, self._bridge = monty, script, bridge
        self._awaited = _awaited_calls(script.code)
        self._names = {plain_name(name): name for name in script.tools}
        self._asking: set[asyncio.Task[Any]] = set()

    def close(self) -> None:
        """Ask no more: the script is over."""
        for task in self._asking:
            task.cancel()

    async def drive(self, session: Any, output: _Output) -> Any:
        """The value of the script. Raises: LimitHit, and monty's errors."""
        given = self._script.input_json
        names = [*self._names, *(["tool"] if self._names else [])]
        at = await session.feed_start(
            self._script.code,
            inputs={"input": None if given is None else decode(given)},
            external_lookup={name: self._function(name) for name in names},
            print_callback=output,
        )
        while not isinstance(at, self._monty.MontyComplete):
            calls = isinstance(at, self._monty.AsyncFunctionSnapshot) and not at.is_os_function
            if calls and at.function_name in names and at.position.start not in self._awaited:
                at = await at.resume(await self._answer(at.function_name, at.args, at.kwargs))
            elif isinstance(at, self._monty.AsyncFunctionSnapshot) and at.is_os_function:
                at = await at.resume_not_handled()
            else:
                at = await at.resume_auto()
        return at.output

    async def _answer(
        self, name: str, args: Sequence[object], kwargs: Mapping[str, object]
    ) -> dict[str, Any]:
        try:
            return {"return_value": await self._ask(name, args, kwargs)}
        except (RuntimeError, TypeError) as error:
            return {"exception": error}

    async def _ask(self, name: str, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
        if name == "tool":
            if not args:
                raise TypeError("tool() takes the tool's name first")
            wanted, args = str(args[0]), args[1:]
        else:
            wanted = self._names[name]
        if len(args) > 1 or (args and kwargs):
            raise TypeError(f"{name}() takes keyword arguments or one dictionary")
        ok, text = await self._bridge.call(wanted, encode(args[0] if args else kwargs))
        value = decode(text)
        if not ok:
            raise RuntimeError(value.get("message") or "the tool failed")
        return value

    def _function(self, name: str) -> Callable[..., Awaitable[object]]:
        async def call(*args: object, **kwargs: object) -> object:
            task = asyncio.current_task()
            assert task is not None
            self._asking.add(task)
            try:
                return await self._ask(name, args, kwargs)
            finally:
                self._asking.discard(task)

        return call


TAKE_MANY = frozenset(("gather", "create_task"))


def _awaited_calls(code: str) -> frozenset[int]:
    """Where calls stand that are awaited or handed to `gather`: UTF-8 offsets, as monty counts. None when the
    code isn't Python of this version.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    starts = [0]
    for line in code.encode("utf-8", "replace").splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found: set[int] = set()
    for node in ast.walk(tree):
        inside: list[ast.AST] = []
        if isinstance(node, ast.Await):
            inside = [node.value]
        elif isinstance(node, ast.Call) and _last_name(node.func) in TAKE_MANY:
            inside = [inner for argument in node.args for inner in ast.walk(argument)]
        found.update(
            starts[inner.lineno - 1] + inner.col_offset for inner in inside if isinstance(inner, ast.Call)
        )
    return frozenset(found)


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


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
