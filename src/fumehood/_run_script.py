"""The agent tool `run_script`: a model composes configured tools in one script ("code mode").

What a model reads of it and what its calls do stand together here, so that the one cannot promise what the
other does not hold. A call is `Host.eval`; each tool call inside is an ordinary call of the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fumehood._report import new_id
from fumehood._scripts import signature_of
from fumehood.policies import schemas

if TYPE_CHECKING:
    from fumehood._host import Host
    from fumehood._result import CallResult
    from fumehood.policies.rules import EgressRule
    from fumehood.sandbox import Limits


class RunScript:
    """`run_script` for one host. definition: name, description and input_schema (language, code, input), with
    the granted tools declared as TypeScript or as Python stubs; for a provider's list of tools.

    tools: configured tools that scripts may call. languages: "js", "python" or both. allow: egress rules;
    only with them scripts have `fetch`. limits: of each script. Raises ConfigError for a tool that is not
    configured.
    """

    def __init__(
        self,
        host: Host,
        tools: Sequence[str] = (),
        *,
        languages: Sequence[str] = ("js",),
        allow: Sequence[str | Mapping[str, Any] | EgressRule] = (),
        limits: Limits | None = None,
    ) -> None:
        from fumehood.sandbox import run_script_tool

        self._host, self._tools, self._allow, self._limits = host, tuple(tools), tuple(allow), limits
        signatures = {tool: signature_of(host.config, tool) for tool in tools}
        self.definition = run_script_tool(signatures, languages=languages, fetch=bool(allow))
        self._validator = schemas.validator(self.definition["input_schema"])

    def __repr__(self) -> str:
        return f"<RunScript with {', '.join(self._tools) or 'no tools'}>"

    async def call(
        self, arguments: Any, *, execution_id: str | None = None, principal: str | None = None
    ) -> CallResult:
        """One call, with the arguments as the model gave them; what is wrong with them is in the result."""
        fault = schemas.first_fault(self._validator, arguments)
        if fault is not None:
            call_id, execution_id = new_id("call"), execution_id or new_id("exec")
            return await self._host.refuse(
                call_id, execution_id, "run_script", "input-schema", fault, principal
            )
        return await self._host.eval(
            arguments["code"],
            lang=arguments["language"],
            input=arguments.get("input"),
            tools=self._tools,
            allow=self._allow,
            limits=self._limits,
            execution_id=execution_id,
            principal=principal,
        )
