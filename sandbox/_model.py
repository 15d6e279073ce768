"""What a script is given and what comes back: plain frozen values, no behaviour.

JSON stays text (`str`) between a backend and the runner and becomes Python values once, in
`_json.decode`, under its caps. Before editing: field names of `ScriptResult` are those of the result
object of the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

MIB = 1 << 20
Outcome = Literal["ok", "tool_error", "denied", "limit", "sandbox_error"]
Language = Literal["js", "python"]
MAX_CODE = 4 * MIB
MAX_CROSSING = 200 * MIB  # below the largest frame to a worker
MAX_JOB = 255 * MIB  # one frame: a script, its input and a snapshot together
MAX_WALL_S = 86_400.0
MAX_STACK = 1 << 30  # the engine counts in 32 bits


@dataclass(frozen=True, slots=True)
class Limits:
    """What one script may use.

    wall_s: seconds from start to result, waiting for tools included. fuel: instructions as wasmtime
    counts them, or None for no such budget; the same script with the same seed always uses the same.
    memory: bytes the script's instance may grow to; None = the backend's default (64 MiB for quickjs, 256
    MiB for cpython). stack: bytes of script stack, 0 = the backend's default. output: bytes of value,
    stdout and stderr together. tool_calls: questions to tools and fetch. bridge_bytes: JSON bytes of all
    questions, with 64 more for each list or object in them, and again JSON bytes of all answers. pending:
    questions open at once.
    """

    wall_s: float = 10.0
    fuel: int | None = None
    memory: int | None = None
    stack: int = 0
    output: int = 1 * MIB
    tool_calls: int = 1000
    bridge_bytes: int = 64 * MIB
    pending: int = 256

    def __post_init__(self) -> None:
        if not isinstance(self.wall_s, int | float) or not 0 <= self.wall_s <= MAX_WALL_S:
            raise ValueError(f"limits.wall_s is {self.wall_s!r}; it must be 0 to {MAX_WALL_S:g} seconds")
        for name in ("fuel", "memory", "stack", "output", "tool_calls", "bridge_bytes", "pending"):
            value = getattr(self, name)
            if value is None and name in ("fuel", "memory"):
                continue
            if not isinstance(value, int):  # the engine would not take it, and a script may not find that out
                raise ValueError(f"limits.{name} is {value!r}; it must be a whole number")
            if not 0 <= value < 1 << 63:
                raise ValueError(f"limits.{name} is {value!r}; it must be 0 to 2**63 - 1")
        if self.memory == 0:
            raise ValueError("limits.memory is 0; use None for the backend's default")
        if self.stack > MAX_STACK:
            raise ValueError(f"limits.stack is {self.stack!r}; at most {MAX_STACK} bytes")
        for name in ("output", "bridge_bytes"):
            if getattr(self, name) > MAX_CROSSING:
                raise ValueError(
                    f"limits.{name} is {getattr(self, name)!r}; at most {MAX_CROSSING} bytes can cross"
                )
        if self.fuel == 0:
            raise ValueError(f"limits.fuel is {self.fuel!r}; use None for no budget")


@dataclass(frozen=True, slots=True)
class ToolSignature:
    """A granted tool as a script and the model see it. The schemas are JSON Schema; output_schema may be
    unknown.
    """

    name: str
    description: str = ""
    input_schema: Mapping[str, object] = field(default_factory=dict)
    output_schema: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Script:
    """One script as a backend gets it.

    input_json: JSON text of `input`, or None when there is none. tools: granted names. seed: 16 bytes for
    the script's random generator. session: key of an instance to keep, or None for a fresh one. restore:
    bytes of an earlier snapshot.
    """

    lang: str
    code: str
    limits: Limits
    input_json: str | None = None
    tools: tuple[str, ...] = ()
    fetch: bool = False
    clock: bool = False
    seed: bytes = bytes(16)
    session: str | None = None
    snapshot: bool = False
    restore: bytes | None = None


@dataclass(frozen=True, slots=True)
class ScriptError:
    """What the script threw, as it said itself. line and column are 1-based places in the script, or None
    when unknown.
    """

    type: str
    message: str
    line: int | None = None
    column: int | None = None
    trace: str = ""

    def __str__(self) -> str:
        place = (
            ""
            if self.line is None
            else f" (line {self.line}" + ("" if self.column is None else f", column {self.column}") + ")"
        )
        return f"{self.type}: {self.message}{place}"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a backend says a script ended. value_json is set for "ok". detail is for the operator, never
    for the script.
    """

    outcome: Outcome
    reason: str | None = None
    value_json: str | None = None
    error: ScriptError | None = None
    detail: str = ""
    usage: Mapping[str, float] = field(default_factory=dict)
    snapshot: bytes | None = None
    session_lost: bool = False
    signal: int | None = None


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a granted tool gave back.

    value: JSON value when ok. message: the sentence the script sees otherwise; it goes into the sandbox
    as it is, so it must hold no secret and no path. reason: a code of `fumehood.policies.reasons`. taint:
    origin of the value, or None. call_id: the host's id.
    """

    value: object = None
    ok: bool = True
    message: str = ""
    reason: str | None = None
    taint: str | None = None
    call_id: str | None = None


class ToolRefused(Exception):
    """Raised by a `call_tool` or `fetch` callable for a no that the script may read. Anything else it
    raises stays with the host.
    """

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason


@dataclass(frozen=True, slots=True)
class FetchCall:
    """A request a script makes. url and headers are the script's own text; the callable decides."""

    url: str
    method: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """The broker's reply."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    url: str
    taint: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One question of the script and what became of it: "ok", "error" (the tool failed, or the question was
    refused: `reason`), or "abandoned" when the script ended before its answer. args: None when it was never
    asked.
    """

    name: str
    outcome: Literal["ok", "error", "abandoned"]
    args: object = None
    reason: str | None = None
    message: str = ""
    call_id: str | None = None
    wall_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class ScriptEvent:
    """Something that happened while a script ran: "started", "stdout", "stderr", "tool-started",
    "tool-ended", "retried", "ended".
    """

    kind: str
    data: Mapping[str, object]


EventSink = Callable[[ScriptEvent], None]
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a backend can do. isolation: one sentence for people. in_process: an engine bug would be a bug
    of this process.
    """

    isolation: str
    in_process: bool
    fuel: bool = False
    sessions: bool = False
    snapshots: bool = False
    memory_limit: bool = True
    default_memory: int = 64 * MIB
    concurrent_tools: bool = True
    caged: bool = False


@dataclass(frozen=True, slots=True)
class ScriptResult:
    """The end of a script, whatever it was. `tool_calls` lists every question it asked or tried to ask, also
    when the script was killed.

    reason: a code of `fumehood.policies.reasons`, None for "ok" and "tool_error" (then `error` says what
    was thrown). value: JSON value for "ok". tainted: origins of what flowed in through tools and fetch;
    empty when nothing did. snapshot: bytes for `restore=`, when asked for. session_lost: the kept
    instance is gone, so the next script of the session starts fresh.
    """

    outcome: Outcome
    reason: str | None = None
    value: object = None
    error: ScriptError | None = None
    detail: str = ""
    stdout: str = ""
    stderr: str = ""
    truncated: Mapping[str, bool] = field(default_factory=lambda: {"stdout": False, "stderr": False})
    tool_calls: tuple[ToolCall, ...] = ()
    tainted: tuple[str, ...] = ()
    usage: Mapping[str, float] = field(default_factory=dict)
    enforcement: Mapping[str, object] = field(default_factory=dict)
    snapshot: bytes | None = None
    session_lost: bool = False
