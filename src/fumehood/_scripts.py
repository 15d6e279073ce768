"""Scripts a model wrote, run for a host.

Granted tools are ordinary calls with all their checks, `fetch` is the broker's. The engine is `sandbox`'s,
its worker processes stand in cages of `isolate` (`_workers`); here is what a script and the rest of the house
have to do with each other: log rows, taint, and what a refused tool tells a script.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fumehood._result import CallResult, Usage
from fumehood._toolspec import egress_policy
from fumehood.policies.errors import ConfigError, SandboxUnavailable
from fumehood.policies.reasons import REASONS
from fumehood.policies.script_reasons import script_reason

if TYPE_CHECKING:
    from fumehood._host import Host
    from fumehood.broker import BrokerCall, EgressPolicy
    from fumehood.policies.config import Config, ToolConfig
    from fumehood.policies.rules import EgressRule
    from fumehood.sandbox import (
        FetchAnswer,
        FetchCall,
        Limits,
        ScriptResult,
        ScriptRunner,
        ToolAnswer,
        ToolSignature,
    )


class Scripts:
    """One host's scripts; the engine and its workers start with the first one."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._runner: ScriptRunner | None = None

    async def close(self) -> None:
        """Stop the workers."""
        if self._runner is not None:
            await self._runner.close()
            self._runner = None

    def runner(self) -> ScriptRunner:
        """The engines, in caged workers."""
        if self._runner is None:
            from fumehood._workers import CagedLauncher
            from fumehood.sandbox import ScriptRunner

            self._runner = ScriptRunner(
                launcher=CagedLauncher(self._host.isolator),
                require_cage=self._host.config.host.require_tier != "any",
            )
        return self._runner

    async def eval(
        self,
        code: str,
        *,
        allow: Sequence[str | Mapping[str, Any] | EgressRule],
        execution_id: str,
        principal: str | None,
        **how: Any,
    ) -> CallResult:
        """`Host.eval`: see there."""
        from fumehood._report import new_id
        from fumehood.broker import EgressPolicy
        from fumehood.policies.rules import EgressRule, parse_rule

        rules = tuple(
            rule if isinstance(rule, EgressRule) else parse_rule(rule, where="allow") for rule in allow
        )
        policy = EgressPolicy(allow=rules, owner="script", host_deny=self._host.config.host.deny)
        call_id = new_id("call")
        return await self._recorded(
            code, "script", call_id, execution_id, principal, policy if rules else None, **how
        )

    async def tool(
        self, name: str, tool: ToolConfig, value: Any, call_id: str, execution_id: str, principal: str | None
    ) -> CallResult:
        """A configured tool that is a script: its file, under the tool's limits and egress rules."""
        from fumehood._report import taint_of
        from fumehood.sandbox import Limits
        from fumehood.sandbox._model import MAX_CROSSING

        assert tool.script is not None
        path = Path(tool.script)
        lang = "python" if path.suffix == ".py" else "js"
        try:
            code = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:  # it was there and readable when the file was loaded
            told = {
                "type": type(error).__name__,
                "message": f"{path}: the script cannot be read: {error}",
                "of": "script",
            }
            result = CallResult(
                call_id, name, "sandbox_error", "start", error=told, execution_id=execution_id
            )
            await self._started(name, call_id, execution_id, principal, value, lang)
            await self._host.record_end(result, {})
            return result
        result = await self._recorded(
            code,
            name,
            call_id,
            execution_id,
            principal,
            egress_policy(name, tool, self._host.config) if tool.egress else None,
            lang=lang,
            input=value,
            tools=(),
            backend=None,
            session=None,
            limits=Limits(wall_s=tool.timeout_s, memory=tool.memory, output=min(tool.output, MAX_CROSSING)),
        )
        reached = [str(row["host"]) for row in result.egress if row["outcome"] == "allow"]
        return replace(result, tainted=taint_of(name, tool.taint, reached))

    async def _recorded(
        self,
        code: str,
        name: str,
        call_id: str,
        execution_id: str,
        principal: str | None,
        policy: EgressPolicy | None,
        **how: Any,
    ) -> CallResult:
        """One script with its log rows.

        It takes no slot of max_parallel: the tools it calls do, and would wait for it.
        """
        from fumehood._report import cancelled
        from fumehood.broker import CallScope

        host = self._host
        await self._started(name, call_id, execution_id, principal, how["input"], how["lang"])
        network = None
        if policy is not None:
            network = host.broker.open_call(CallScope(call_id, execution_id, name, principal), policy)
        try:
            result = await self._run(
                code,
                name=name,
                call_id=call_id,
                execution_id=execution_id,
                principal=principal,
                network=network,
                **how,
            )
        except SandboxUnavailable as error:
            told = {
                "type": "SandboxUnavailable",
                "message": error.message,
                "hint": error.hint,
                "of": "script",
            }
            result = CallResult(call_id, name, "sandbox_error", "tier", error=told, execution_id=execution_id)
        except ConfigError as error:  # the caller hears it; the log must not hold a call without an end
            told = {"type": "ConfigError", "message": error.message, "hint": error.hint, "of": "script"}
            ended = CallResult(call_id, name, "denied", "input-schema", error=told, execution_id=execution_id)
            await host.record_end(ended, {})
            raise
        except asyncio.CancelledError:
            await host.record_end(cancelled(call_id, name, execution_id), {})
            raise
        finally:
            if network is not None:
                await network.close()
        await host.record_end(result, {})
        return result

    async def _started(
        self, name: str, call_id: str, execution_id: str, principal: str | None, value: Any, runs: str
    ) -> None:
        """The row that a call begins with. Raises ConfigError for an input that no row could hold."""
        from fumehood._report import bounded

        try:
            row = {"tool": name, "principal": principal, "input": bounded(value), "runs": runs}
        except (TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"the script's input is not JSON: {error}") from error
        await self._host.log.record("CALL_STARTED", row, execution_id=execution_id, call_id=call_id)

    async def _run(
        self,
        code: str,
        *,
        call_id: str,
        execution_id: str,
        principal: str | None,
        lang: str,
        input: Any,
        tools: Sequence[str],
        network: BrokerCall | None,
        limits: Limits | None,
        backend: str | None,
        session: str | None,
        name: str,
    ) -> CallResult:
        """Run one script.

        network: grants `fetch` through it. Raises ConfigError for a tool or backend that is not there.
        """
        result = await self.runner().run(
            code,
            lang=lang,
            input=input,
            tools={tool: signature_of(self._host.config, tool) for tool in tools},
            call_tool=lambda tool, value: self._call_tool(tool, value, execution_id, principal),
            fetch=None if network is None else lambda call: _fetch(network, call),
            limits=limits,
            backend=backend,
            # as JSON, where no name can hold what separates it from the next
            session=None if session is None else json.dumps([execution_id, principal, session]),
        )
        return _as_call(result, call_id, execution_id, name, network)

    async def _call_tool(
        self, tool: str, value: object, execution_id: str, principal: str | None
    ) -> ToolAnswer:
        """One tool call of a script: an ordinary call. It reads of a failure what a model may read of it."""
        from fumehood.sandbox import ToolAnswer

        result = await self._host.call(tool, value, execution_id=execution_id, principal=principal)
        taint = result.tainted["origin"] if result.tainted else None
        if result.outcome == "ok":
            return ToolAnswer(result.value, taint=taint, call_id=result.call_id)
        told = model_words(result.reason) or "the tool failed"
        if result.outcome == "tool_error" and result.error is not None:
            told = f"{result.error['type']}: {result.error['message']}"
        return ToolAnswer(ok=False, message=told, reason=result.reason, taint=taint, call_id=result.call_id)


def signature_of(config: Config, tool: str) -> ToolSignature:
    """What a script, and the model that writes it, know of a configured tool. Raises ConfigError."""
    from fumehood.sandbox import ToolSignature

    found: ToolConfig | None = config.tools.get(tool)
    if found is None:
        known = ", ".join(sorted(config.tools)) or "none"
        raise ConfigError(f"there is no tool {tool!r} to grant", hint=f"configured: {known}")
    schema = found.input_schema
    return ToolSignature(tool, found.description, schema if isinstance(schema, Mapping) else {})


async def _fetch(network: BrokerCall, call: FetchCall) -> FetchAnswer:
    from fumehood.broker import EgressRefused, FetchRequest
    from fumehood.sandbox import FetchAnswer, ToolRefused

    try:
        reply = await network.fetch(FetchRequest(call.method, call.url, call.headers, call.body))
    except EgressRefused as refused:
        raise ToolRefused(refused.message, reason=refused.reason) from None
    return FetchAnswer(
        reply.status, tuple(reply.headers), reply.body, reply.url, taint=" ".join(network.hosts)
    )


def _as_call(
    result: ScriptResult, call_id: str, execution_id: str, name: str, network: BrokerCall | None
) -> CallResult:
    error: dict[str, Any] | None = None
    if result.error is not None:
        thrown = result.error
        error = {"type": thrown.type, "message": thrown.message, "line": thrown.line, "column": thrown.column}
        error["trace"] = thrown.trace
    elif result.outcome != "ok":
        reason = script_reason(result.reason)
        words = reason.model if reason is not None else ""
        error = {"type": result.reason or result.outcome, "message": result.detail or words}
    if error is not None:
        error["of"] = "script"
    cage = result.enforcement.get("cage")
    cage = cage if isinstance(cage, Mapping) else {}
    origins = sorted(set(result.tainted))
    cpu = result.usage.get("cpu_ms")
    memory = result.usage.get("memory_bytes")
    return CallResult(
        call_id=call_id,
        tool=name,
        outcome=result.outcome,
        reason=result.reason,
        value=result.value,
        error=error,
        tainted={"origin": " ".join([f"script:{name}", *origins])} if origins else None,
        stdout=result.stdout,
        stderr=result.stderr,
        truncated=dict(result.truncated),
        events=tuple(
            {
                "kind": "SCRIPT_TOOL_CALL",
                "data": {"tool": c.name, "outcome": c.outcome, "reason": c.reason, "call_id": c.call_id},
            }
            for c in result.tool_calls
        ),
        usage=Usage(
            round(result.usage.get("wall_ms", 0.0), 3), cpu, int(memory) if memory is not None else None
        ),
        tier=cage.get("tier"),
        layers=cage.get("layers", {}),
        egress=tuple(network.rows) if network is not None else (),
        execution_id=execution_id,
    )


def model_words(reason: str | None) -> str:
    """The sentence of a reason that a model, and so a script, may read."""
    return REASONS[reason].model if reason is not None and reason in REASONS else ""
