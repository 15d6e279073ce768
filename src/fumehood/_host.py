"""The host: configuration, log, store, broker and cages behind one `call`.

A call is checked (tool, schema, size, queue), recorded, run in a fresh child, recorded again; the result's
facts come from here and never from the tool. Every refusal is a result with a reason, not an exception:
exceptions are for a configuration or a machine that cannot work at all.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from fumehood import _grants
from fumehood._inputs import Inputs
from fumehood._report import (
    bounded,
    cancelled,
    declared,
    end_row,
    new_id,
    result_of,
    unavailable,
    with_files,
)
from fumehood._result import CallResult
from fumehood._scripts import Scripts
from fumehood._services import CallServices
from fumehood._toolspec import call_environment, door_ports, egress_policy, tool_spec, working_folder
from fumehood.isolate import CallFrame, Isolator, Limits, Signals, Streams, Tier, ToolSpec
from fumehood.policies.errors import ConfigError, SandboxUnavailable

if TYPE_CHECKING:
    from fumehood.agent import ContentStore, EventLog
    from fumehood.broker import Broker, BrokerCall, EgressPolicy
    from fumehood.policies.config import Config, ToolConfig
    from fumehood.policies.rules import EgressRule
    from fumehood.sandbox import Limits as ScriptLimits

LOG_FILE, STORE_FOLDER = "events.sqlite3", "store"

RUN_LIMITS = Limits(
    timeout_s=86400.0, cpu_s=86400.0, output=1 << 30, tmp=1 << 30, memory=4 << 30, processes=512
)
"""Of `Host.run`, where none are given: a day and 4 GiB, for servers and builds rather than for calls."""


class Host:
    """Runs configured tools; an async context manager.

    config: from `load_config`. spares: children parked per tool after its first call; 0 for one-off use,
    where a spare would be thrown away. dial: test seam of the broker's connections (see
    `fumehood.broker.Broker`). Raises on entering: StorageError when the state folder cannot be used.
    """

    def __init__(self, config: Config, *, spares: int = 1, dial: Any = None) -> None:
        self.config = config
        self._spares, self._dial = spares, dial
        self._slots = asyncio.Semaphore(config.host.max_parallel)
        self._waiting = 0
        self._inputs = Inputs()
        self._plans: dict[str, tuple[ToolSpec, EgressPolicy]] = {}
        self._stack = contextlib.AsyncExitStack()
        self._scripts = Scripts(self)
        self.log: EventLog
        self.store: ContentStore
        self.broker: Broker
        self._isolator: Isolator

    def __repr__(self) -> str:
        source = self.config.source or "without a file"
        return f"<Host {source}, tools: {len(self.config.tools)}, waiting: {self._waiting}>"

    async def __aenter__(self) -> Self:
        from fumehood.agent import ContentStore, EventLog
        from fumehood.broker import Broker
        from fumehood.policies.secrets import resolve_secret

        state = Path(self.config.host.state)
        try:
            self.log = EventLog(state / LOG_FILE)
            self._stack.callback(self.log.close)
            self.store = ContentStore(state / STORE_FOLDER)
            self._stack.callback(self.store.close)
            self.broker = await self._stack.enter_async_context(
                Broker(
                    self.log,
                    nameservers=self.config.host.nameservers or None,
                    trust=Path(self.config.host.trust) if self.config.host.trust else None,
                    secrets=lambda name: resolve_secret(self.config.secrets[name], name),
                    dial=self._dial,
                    warm=any(tool.egress for tool in self.config.tools.values()),
                )
            )
            self._isolator = await self._stack.enter_async_context(
                Isolator(await self._first_tier(), spares=self._spares)
            )
            self._stack.push_async_callback(self._scripts.close)
            await self.log.record("HOST_STARTED", {"pid": os.getpid(), "tier": self._isolator.tier})
            await self.log.record(
                "POLICY_LOADED", {"source": self.config.source, "digest": self.config.digest}
            )
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    async def _first_tier(self) -> Tier:
        """The tier calls run in: the strongest, or, where the operator lets weaker ones run, the strongest
        this machine has.

        A machine that cannot give what is required is not an error yet: each call then says so, and doctor
        says why.
        """
        wanted = self.config.host.require_tier
        if wanted == "namespaces":
            return "namespaces"
        from fumehood.isolate import doctor

        found = (await doctor.examine()).tier
        if found == "none" and not (wanted == "any" and self.config.host.dangerously_allow_unsandboxed):
            return "landlock"  # and every call will say what is missing
        return found

    @property
    def tier(self) -> Tier:
        """The tier that calls run in."""
        return self._isolator.tier

    # -- calls -----------------------------------------------------------------------------------------------

    async def call(
        self, tool: str, input: Any = None, *, execution_id: str | None = None, principal: str | None = None
    ) -> CallResult:
        """Call a configured tool with a JSON value.

        execution_id: groups the call's rows in the log (default: an execution of its own). principal: on
        whose behalf. Raises ConfigError when a secret of the tool is missing. Everything else that goes wrong
        is in the result.
        """
        call_id = new_id("call")
        execution_id = execution_id or new_id("exec")
        config = self.config.tools.get(tool)
        if config is None:
            known = ", ".join(sorted(self.config.tools)) or "none"
            return await self.refuse(
                call_id,
                execution_id,
                tool,
                "unknown-tool",
                f"there is no tool {tool!r}; configured: {known}",
                principal,
            )
        fault = self._inputs.fault(tool, config, input)
        if fault is not None:
            return await self.refuse(call_id, execution_id, tool, *fault, principal)
        if config.script is not None:
            return await self._scripts.tool(tool, config, input, call_id, execution_id, principal)
        env, late = call_environment(config, self.config)
        spec, policy = self._plans.get(tool) or self._plan(tool, config)
        return await self._run(
            spec,
            CallFrame(call_id, input, env, late),
            policy,
            execution_id=execution_id,
            principal=principal,
            finish=lambda result, network: declared(result, config, network.hosts),
            secrets={name: env[name] for name in late},
        )

    def _plan(self, tool: str, config: ToolConfig) -> tuple[ToolSpec, EgressPolicy]:
        """What every call of the tool is given, made once under one configuration."""
        inspected = self.has_doors and any(rule.inspect for rule in config.egress)
        authorities = self.broker.authority.bundle().decode() if inspected else None
        self._plans[tool] = planned = (
            tool_spec(tool, config, self.config, doors=self.has_doors, authorities=authorities),
            egress_policy(tool, config, self.config),
        )
        return planned

    async def run(
        self,
        argv: Sequence[str],
        *,
        allow: Sequence[str | Mapping[str, Any] | EgressRule] = (),
        deny: Sequence[str | Mapping[str, Any] | EgressRule] = (),
        read: Sequence[str | Path] = (),
        write: Sequence[str | Path] = (),
        collect: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        secret_names: Collection[str] = (),
        limits: Limits | None = None,
        stdin: Any = None,
        streams: Streams | None = None,
        signals: Signals | None = None,
        execution_id: str | None = None,
        principal: str | None = None,
    ) -> CallResult:
        """Run any program in a cage. Its environment is `env` and PATH; it sees the system, `read` and
        `write`, and a private /tmp.

        allow, deny: egress rules in the forms of the configuration. collect: files of that /tmp to hand back
        as parts, when the program ends with 0. secret_names: the names in `env` whose values no log may hold.
        limits: default RUN_LIMITS. streams: descriptors for standard input, output and error; None for a pipe
        whose content the result holds. signals: passes signals on to the program while it runs. Raises
        ConfigError for a path that is not there or never granted, and for a rule that cannot be read.
        """
        from fumehood.broker import EgressPolicy
        from fumehood.isolate import DEFAULT_PATH
        from fumehood.policies.rules import EgressRule, for_programs, parse_rule

        if not argv or not argv[0]:
            raise ConfigError("no program to run", hint="write it after `--`: fumehood run -- CMD [ARG]...")
        rules = for_programs(
            tuple(rule if isinstance(rule, EgressRule) else parse_rule(rule, where="allow") for rule in allow)
        )
        _grants.check(self.config, (*read, *write))
        kept = _grants.kept_as_they_are(self.config, write, by_mounts=self.has_doors)
        cwd = working_folder()
        granted = cwd is not None and any(
            cwd.is_relative_to(Path(path).resolve()) for path in (*read, *write)
        )
        program = argv[0]
        if "/" in program and cwd is not None and not granted:  # meant from here, where it will not stand
            program = str(cwd / program)
        spec = ToolSpec(
            name="run",
            kind="command",
            argv=(program, *argv[1:]),
            read=(*(Path(path) for path in read), *kept),
            write=tuple(Path(path) for path in write),
            collect=_grants.patterns(collect),
            exec_writes=True,
            limits=limits or RUN_LIMITS,
            doors=door_ports(rules) if self.has_doors else None,
            masks=self.config.never_visible,
            cwd=str(cwd) if granted else "/tmp",
        )
        policy = EgressPolicy(
            allow=rules,
            deny=tuple(
                rule if isinstance(rule, EgressRule) else parse_rule(rule, where="deny", deny=True)
                for rule in deny
            ),
            owner="run",
            host_deny=self.config.host.deny,
        )
        frame = CallFrame(new_id("call"), stdin, {"PATH": DEFAULT_PATH, **(env or {})})
        return await self._run(
            spec,
            frame,
            policy,
            execution_id=execution_id or new_id("exec"),
            principal=principal,
            finish=lambda result, network: result,
            secrets={name: frame.env[name] for name in secret_names},
            streams=streams,
            signals=signals,
        )

    async def eval(
        self,
        script: str,
        *,
        lang: str = "js",
        input: Any = None,
        tools: Sequence[str] = (),
        allow: Sequence[str | Mapping[str, Any] | EgressRule] = (),
        limits: ScriptLimits | None = None,
        backend: str | None = None,
        session: str | None = None,
        execution_id: str | None = None,
        principal: str | None = None,
    ) -> CallResult:
        """Run a script a model wrote, in a fresh WASM instance inside a caged worker.

        lang: "js" or "python". tools: configured tools the script may call; each call is an ordinary call of
        this host. allow: egress rules; only with them the script has `fetch`. session: keep the instance for
        later scripts of the same execution and principal. Raises ConfigError for a tool, rule or backend that
        is not there, SandboxUnavailable when the engine cannot be started.
        """
        return await self._scripts.eval(
            script,
            lang=lang,
            input=input,
            tools=tools,
            allow=allow,
            limits=limits,
            backend=backend,
            session=session,
            execution_id=execution_id or new_id("exec"),
            principal=principal,
        )

    async def reload(self, config: Config) -> None:
        """Go on under another configuration. Load it first: one that does not load never gets here.

        Calls that begin from now on run under it. Calls that run keep their process; what their connections
        may reach is decided anew, and what is refused now is closed with the reason `policy-changed`. State
        folder, name servers and the limits on calls stay what they were when the host started.
        """
        from fumehood.broker import EgressPolicy

        self.config = config
        self._inputs = Inputs()
        self._plans.clear()
        for network in self.broker.calls:
            found = config.tools.get(network.scope.tool)
            if found is not None:
                network.update_policy(egress_policy(network.scope.tool, found, config))
            elif network.scope.tool in ("run", "script"):  # their rules came with the call, not from the file
                network.update_policy(replace(network.policy, host_deny=config.host.deny))
            else:
                network.update_policy(EgressPolicy(owner=network.scope.tool))
        await self.log.record("POLICY_LOADED", {"source": config.source, "digest": config.digest})

    @property
    def isolator(self) -> Isolator:
        """What runs this host's processes; for parts that start their own, such as script workers."""
        return self._isolator

    @property
    def has_doors(self) -> bool:
        """Whether programs inside reach the broker by ordinary sockets."""
        return self._isolator.tier == "namespaces"

    async def _run(
        self,
        spec: ToolSpec,
        frame: CallFrame,
        policy: EgressPolicy,
        *,
        execution_id: str,
        principal: str | None,
        finish: Callable[[CallResult, BrokerCall], CallResult],
        secrets: Mapping[str, str],
        streams: Streams | None = None,
        signals: Signals | None = None,
    ) -> CallResult:
        call_id = frame.call_id
        if self._waiting >= self.config.host.queue_limit and self._slots.locked():
            text = f"{self._waiting} calls wait already (queue_limit)"
            return await self.refuse(call_id, execution_id, spec.name, "busy", text, principal)
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        try:
            from fumehood.broker import CallScope

            started = {
                "tool": spec.name,
                "principal": principal,
                "input": bounded(frame.input),
                "runs": str(spec.path)
                if spec.path is not None
                else spec.argv[0],  # no arguments: they may hold what nobody should read
                "limits": asdict(spec.limits),
            }
            await self.log.record("CALL_STARTED", started, execution_id=execution_id, call_id=call_id)
            network = self.broker.open_call(CallScope(call_id, execution_id, spec.name, principal), policy)
            services = CallServices(
                self.log,
                self.store,
                network,
                execution_id=execution_id,
                call_id=call_id,
                tool=spec.name,
                owner=principal or execution_id,
                secrets=secrets,
            )
            try:
                try:
                    ended = await self._isolator.call(
                        spec, frame, services, streams=streams, principal=principal, signals=signals
                    )
                    await network.settle()
                    result = result_of(
                        frame,
                        spec,
                        ended,
                        egress=network.rows,
                        tier=self._isolator.tier,
                        execution_id=execution_id,
                    )
                except SandboxUnavailable as error:
                    result = unavailable(frame, spec, error, execution_id)
            except asyncio.CancelledError:
                await self.record_end(cancelled(call_id, spec.name, execution_id), secrets)
                raise
            finally:
                await network.close()
            result = with_files(finish(result, network), services.files)
            await self.record_end(result, secrets)
            return result
        finally:
            self._slots.release()

    async def record_end(self, result: CallResult, secrets: Mapping[str, str]) -> None:
        """What the sandbox refused and how the call ended, in one transaction."""
        from fumehood.agent import NewEvent

        ids = (result.execution_id, result.call_id)
        rows = [
            NewEvent("SANDBOX_VIOLATION", {"tool": result.tool, **row}, *ids) for row in result.violations
        ]
        await self.log.record_many([*rows, NewEvent("CALL_ENDED", end_row(result, secrets), *ids)])

    async def refuse(
        self, call_id: str, execution_id: str, tool: str, reason: str, text: str, principal: str | None
    ) -> CallResult:
        """A call that never started, on the record."""
        result = CallResult(
            call_id,
            tool,
            "denied",
            reason,
            error={"type": "Denied", "message": text},
            tier=self._isolator.tier,
            execution_id=execution_id,
        )
        await self.log.record(
            "CALL_STARTED", {"tool": tool, "principal": principal}, execution_id=execution_id, call_id=call_id
        )
        await self.log.record("CALL_ENDED", end_row(result, {}), execution_id=execution_id, call_id=call_id)
        return result
