"""What a call gives back: the fields of contract section 3, each marked by who vouches for it.

Every field is what `--format json` shows under its name: equal to it, and read like it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

Outcome = Literal["ok", "tool_error", "denied", "limit", "sandbox_error"]

EXIT_CODES: Mapping[str, int] = {"ok": 0, "tool_error": 1, "denied": 3, "sandbox_error": 4, "limit": 5}
"""Outcome -> exit code of the command line.

A crashed tool is the tool's failure: see `CallResult.exit_code`.
"""


class _Table(Mapping[str, Any]):
    """A value that is read by attribute, and by key as the JSON object it stands for."""

    __slots__ = ()

    def __getitem__(self, name: str) -> Any:
        if name not in tuple(self):
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return (each.name for each in fields(self))  # type: ignore[arg-type]  # what inherits is a dataclass

    def __len__(self) -> int:
        return len(fields(self))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, eq=False)
class Usage(_Table):
    """Measured by the host: wall and CPU milliseconds, peak resident bytes. None where nothing ran."""

    wall_ms: float
    cpu_ms: float | None = None
    max_rss_bytes: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Enforcement(_Table):
    """What held the call: its tier, and each layer with its level. None and empty where nothing ran."""

    tier: str | None
    layers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CallResult:
    """One call. `value`, `error`, `stdout`, `stderr` and `events` are what the tool claimed; everything else
    comes from the host alone.

    parts: text and media parts, for a tool that the operator says returns media, and the files that were
    collected. uncollected: {"name", "why"} of files that were asked for and not taken. tainted:
    {"origin": text} when the value counts as untrusted. egress: one row a decision of the broker. violations:
    system calls that the sandbox refused, as {"syscall", "count", "why"}. process_code: how the tool's own
    process ended (negative: signal), None when there was none.
    """

    call_id: str
    tool: str
    outcome: Outcome
    reason: str | None = None
    value: Any = None
    parts: Sequence[Mapping[str, Any]] | None = None
    error: Mapping[str, Any] | None = None
    tainted: Mapping[str, str] | None = None
    stdout: str = ""
    stderr: str = ""
    truncated: Mapping[str, bool] = field(default_factory=lambda: {"stdout": False, "stderr": False})
    events: Sequence[Mapping[str, Any]] = ()
    usage: Usage = field(default_factory=lambda: Usage(0.0))
    tier: str | None = None
    layers: Mapping[str, str] = field(default_factory=dict)
    egress: Sequence[Mapping[str, Any]] = ()
    violations: Sequence[Mapping[str, Any]] = ()
    uncollected: Sequence[Mapping[str, str]] = ()
    execution_id: str | None = None
    process_code: int | None = None

    def __post_init__(self) -> None:
        for name in ("parts", "events", "egress", "violations", "uncollected"):
            rows = getattr(self, name)
            object.__setattr__(self, name, None if rows is None else list(rows))

    @property
    def enforcement(self) -> Enforcement:
        """`tier` and `layers`, as the JSON object has them."""
        return Enforcement(self.tier, self.layers)

    @property
    def exit_code(self) -> int:
        """The command line's exit code: 4 only when the sandbox could not be built; a tool that crashed
        failed by itself.
        """
        if self.outcome == "sandbox_error" and self.reason in ("crashed", "protocol", "start"):
            return 1
        return EXIT_CODES[self.outcome]

    def to_json(self) -> dict[str, Any]:
        """The object that `--format json` prints."""
        return {
            "call_id": self.call_id,
            "tool": self.tool,
            "outcome": self.outcome,
            "reason": self.reason,
            "value": self.value,
            "parts": None if self.parts is None else [dict(part) for part in self.parts],
            "error": dict(self.error) if self.error is not None else None,
            "tainted": dict(self.tainted) if self.tainted is not None else None,
            "stdout": self.stdout,
            "stderr": self.stderr,
            "truncated": dict(self.truncated),
            "events": [dict(event) for event in self.events],
            "usage": dict(self.usage),
            "enforcement": {"tier": self.tier, "layers": dict(self.layers)},
            "egress": [dict(row) for row in self.egress],
            "violations": [dict(row) for row in self.violations],
            "uncollected": [dict(row) for row in self.uncollected],
            "execution_id": self.execution_id,
            "process_code": self.process_code,
        }
