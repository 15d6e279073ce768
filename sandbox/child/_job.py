"""What a script is given and what its end looks like, inside the worker; and the counters every engine
shares.

Guarantees: a cap is checked before bytes are copied out of the guest, and going past it ends the script
with the reason of that cap. The host counts the same things again: a worker that an engine bug has taken
over can't talk its way past them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, Protocol

CALL, FETCH = 4, 5  # kinds of question a script may ask, as in the prelude


@dataclass(frozen=True, slots=True)
class JobLimits:
    """The numbers of `fumehood.sandbox.Limits`, as they go over the wire. Bytes and seconds."""

    wall_s: float
    fuel: int | None
    memory: int
    stack: int
    output: int
    tool_calls: int
    bridge_bytes: int
    pending: int


@dataclass(frozen=True, slots=True)
class Job:
    """One script. `code` and `input_json` travel in the frame's body; `seed` is 32 hex digits."""

    lang: str
    code: str
    input_json: str | None
    tools: tuple[str, ...]
    fetch: bool
    clock: bool
    seed: str
    limits: JobLimits
    session: str | None = None
    snapshot: bool = False
    restore: bytes | None = None

    def header(self) -> dict[str, Any]:
        """All but the long parts, for a frame."""
        head = {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if f.name not in ("code", "input_json", "limits", "restore")
        }
        return head | {"limits": asdict(self.limits)}


@dataclass(frozen=True, slots=True)
class Failure:
    """What the script threw, as text. line and column are 1-based positions in the script, when known."""

    type: str
    message: str
    line: int | None = None
    column: int | None = None
    trace: str = ""


@dataclass(slots=True)
class End:
    """How a script ended. reason is None for "ok"; value is JSON text."""

    outcome: Literal["ok", "tool_error", "limit", "sandbox_error"]
    reason: str | None = None
    value: bytes | None = None
    failure: Failure | None = None
    detail: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    snapshot: bytes | None = None
    session_lost: bool = False


class Stop(Exception):
    """The script has to end with this reason of the family "limit"."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Transport(Protocol):
    """How questions leave the engine's thread and answers come back. Blocking; the worker and the
    in-process backend each have one.
    """

    def ask(self, id_: int, kind: int, name: str, args: bytes) -> None: ...
    def tried(self, name: str, reason: str) -> None: ...
    def answer(self, timeout: float) -> tuple[int, bool, bytes] | None: ...
    def output(self, stream: int, data: bytes) -> None: ...

    @property
    def cancelled(self) -> bool: ...


class Port:
    """The counters between one script and its transport."""

    def __init__(self, job: Job, transport: Transport) -> None:
        limits = job.limits
        self.deadline = time.monotonic() + limits.wall_s
        self.pending = 0
        self._transport = transport
        self._limits = limits
        self._output_left = limits.output
        self._calls_left = limits.tool_calls
        self._bytes_out = self._bytes_in = limits.bridge_bytes

    def take_output(self, size: int) -> int:
        """How many of `size` bytes of output may be copied; the rest is past the cap."""
        allowed = min(size, self._output_left)
        self._output_left -= allowed
        return allowed

    def output(self, stream: int, data: bytes) -> None:
        """Pass on output that `take_output` allowed."""
        self._transport.output(stream, data)

    def check_question(self, name: str, size: int) -> None:
        """Before a question of `size` bytes is copied; one that is past a cap is reported as tried. Raises:
        Stop.
        """
        if self._calls_left <= 0:
            reason = "tool-calls"
        elif self.pending >= self._limits.pending:
            reason = "pending"
        elif size > self._bytes_out:
            reason = "bridge-bytes"
        else:
            return
        self.tried(name, reason)
        raise Stop(reason)

    def tried(self, name: str, reason: str) -> None:
        """Tell of a question that a cap keeps from being asked."""
        self._transport.tried(name, reason)

    def ask(self, id_: int, kind: int, name: str, args: bytes) -> None:
        """Send a question on. Whether it is granted the host knows, and has it on its list either way."""
        self._calls_left -= 1
        self._bytes_out -= len(args)
        self.pending += 1
        self._transport.ask(id_, kind, name, args)

    def answer(self) -> tuple[int, bool, bytes]:
        """Wait for the next answer. Raises: Stop at the deadline or past the cap of bytes."""
        found = self._transport.answer(max(0.0, self.deadline - time.monotonic()))
        if found is None:
            raise Stop("cancelled" if self._transport.cancelled else "timeout")
        self.pending -= 1
        self._bytes_in -= len(found[2])
        if self._bytes_in < 0:
            raise Stop("bridge-bytes")
        return found

    def should_stop(self) -> str | None:
        """ "timeout" after the deadline, "cancelled" when the host wants it, else None."""
        if self._transport.cancelled:
            return "cancelled"
        return "timeout" if time.monotonic() >= self.deadline else None


class Engine(Protocol):
    """One language in a worker. `run` blocks its thread; several threads may run at once.

    `rest` is called on the same thread when the result is on its way: it frees what the script used and makes
    an instance for the next one, so that neither is waited for.
    """

    def run(self, job: Job, transport: Transport) -> End: ...
    def rest(self) -> None: ...
    def forget(self, session: str) -> None: ...
    def close(self) -> None: ...


_PLAIN = tuple({f.name for f in fields(Job)} - {"code", "input_json", "limits", "restore", "tools"})


def job_from(header: Mapping[str, Any], code: str, input_json: str | None, restore: bytes | None) -> Job:
    """A job from its frame."""
    return Job(
        code=code,
        input_json=input_json,
        limits=JobLimits(**header["limits"]),
        tools=tuple(header["tools"]),
        restore=restore,
        **{key: header[key] for key in _PLAIN if key in header},
    )
