"""From what isolate saw of a call to the result its caller gets and the row in the log: pure, apart from new
ids.

What the tool claims and what the host observed are kept apart here; see `_result.py` for who vouches for
which field.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fumehood._result import CallResult, Usage
from fumehood._toolspec import scrubbed
from fumehood.isolate import (
    CallFrame,
    Ended,
    NotStrict,
    Tier,
    ToolSpec,
    decode_strict_json,
    layer_table,
    why_refused,
)
from fumehood.policies.errors import SandboxUnavailable
from fumehood.policies.reasons import reason as reason_of

if TYPE_CHECKING:
    from fumehood.policies.config import ToolConfig

_SHORT_SECRET = 4  # a shorter value would be found in half of all words


def result_of(
    frame: CallFrame,
    spec: ToolSpec,
    ended: Ended,
    *,
    egress: Sequence[Mapping[str, Any]],
    tier: Tier,
    execution_id: str,
) -> CallResult:
    """The result of a call that ran. egress: the broker's rows of this call."""
    verdict = ended.verdict
    error = verdict.error
    if error is None and verdict.outcome != "ok":
        words = reason_of(verdict.reason).model if verdict.reason else ""
        error = {
            "type": verdict.reason or verdict.outcome,
            "message": verdict.message or words,
            "signal": verdict.signal,
        }
    return CallResult(
        call_id=frame.call_id,
        tool=spec.name,
        outcome=verdict.outcome,
        reason=verdict.reason,
        value=verdict.value,
        error=error,
        stdout=ended.stdout.decode("utf-8", "replace"),
        stderr=ended.stderr.decode("utf-8", "replace"),
        truncated={"stdout": ended.stdout_cut, "stderr": ended.stderr_cut},
        events=tuple({"kind": kind, "data": data} for kind, data in ended.events),
        usage=Usage(
            round(ended.wall_s * 1000, 3),
            round(ended.cpu_s * 1000, 3) if ended.cpu_s is not None else None,
            ended.max_rss,
        ),
        tier=tier,
        layers=layer_table(ended.layers),
        egress=tuple(egress),
        violations=tuple(
            {"syscall": name, "count": count, "why": why_refused(name)}
            for name, count in ended.violations.items()
        ),
        uncollected=tuple({"name": name, "why": why} for name, why in ended.uncollected),
        execution_id=execution_id,
        process_code=ended.exit_code,
    )


def unavailable(frame: CallFrame, spec: ToolSpec, error: SandboxUnavailable, execution_id: str) -> CallResult:
    """The result of a call for which no cage could be built."""
    told = {"type": "SandboxUnavailable", "message": error.message, "hint": error.hint}
    return CallResult(
        frame.call_id, spec.name, "sandbox_error", "tier", error=told, execution_id=execution_id
    )


def cancelled(call_id: str, tool: str, execution_id: str) -> CallResult:
    """What the log holds of a call whose caller went away; nobody is there to return it to."""
    return CallResult(call_id, tool, "limit", "cancelled", execution_id=execution_id)


def declared(result: CallResult, tool: ToolConfig, hosts: Sequence[str]) -> CallResult:
    """What only the operator's declaration decides: how a command's output is read, and the taint."""
    if tool.kind == "command" and result.outcome == "ok":
        result = _read_output(result, tool.result)
    result = replace(result, tainted=taint_of(result.tool, tool.taint, hosts))
    return _with_parts(result) if tool.returns_media and result.outcome == "ok" else result


def with_files(result: CallResult, files: Sequence[Mapping[str, Any]]) -> CallResult:
    """The result and the files that its call left. What a tainted call left is as untrusted as its value."""
    if not files:
        return result
    mark = {"untrusted": dict(result.tainted)} if result.tainted is not None else {}
    return replace(result, parts=(*(result.parts or ()), *({**part, **mark} for part in files)))


def _with_parts(result: CallResult) -> CallResult:
    """Media that the operator says this tool returns; a tainted value is never read as media (R059,
    R103, R104).
    """
    from fumehood.agent import tainted, tool_result

    value = result.value if result.tainted is None else tainted(result.value, result.tainted["origin"])
    answer = tool_result(result.call_id, result.tool, value, returns_media=True)
    if not isinstance(answer.content, tuple):
        return result
    if answer.is_error:
        return replace(result, outcome="tool_error", error={"type": "Media", "message": str(answer.content)})
    return replace(result, parts=tuple(part.to_json() for part in answer.content))


def _read_output(result: CallResult, form: str) -> CallResult:
    if form == "text":
        return replace(result, value=result.stdout, stdout="")
    try:
        return replace(result, value=decode_strict_json(result.stdout.encode()), stdout="")
    except NotStrict as error:
        told = {
            "type": "OutputNotJson",
            "message": f'the program\'s standard output is no JSON: {error}; set result = "text" for text',
        }
        return replace(result, outcome="tool_error", error=told)


def taint_of(name: str, rule: str, hosts: Sequence[str]) -> dict[str, str] | None:
    """Tainted when the operator says always, or the tool really reached a host (R480)."""
    if rule == "never" or (rule == "auto" and not hosts):
        return None
    return {"origin": " ".join([f"tool:{name}", *sorted(hosts)])}


def end_row(result: CallResult, secrets: Mapping[str, str]) -> dict[str, Any]:
    """The result as the log keeps it: without what the tool said, and without secrets."""
    row = result.to_json()
    for key in ("value", "stdout", "stderr", "events", "call_id", "execution_id"):
        del row[key]
    known = {name: value for name, value in secrets.items() if len(value) >= _SHORT_SECRET}
    return {key: scrubbed(value, known) for key, value in row.items()}


def bounded(value: Any) -> Any:
    """The input for the log, or its size when it is long."""
    size = len(json.dumps(value))
    return value if size <= 65536 else {"omitted_bytes": size}


def new_id(kind: str) -> str:
    """An id that sorts by time and cannot be guessed: kind, microseconds in hex, 40 random bits."""
    return f"{kind}-{time.time_ns() // 1000:014x}{os.urandom(5).hex()}"
