"""A provider that says what a script says: for tests, demos and replays. No network.

Guarantees: answers come in the script's order, each once; the same checks run as for a real provider, so a
scripted run fails where a real one would; `requests` keeps what was asked. A script is a list of steps,
`{"text"?, "tool_calls"?: [{"name", "input", "id"?}], "reasoning"?, "stop_reason"?}` or `{"error": "..."}`, in
Python or as a JSON file.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

from fumehood.agent._capabilities import assert_request_supported
from fumehood.agent._errors import ProviderError
from fumehood.agent._guard import guard_request
from fumehood.agent._parts import Capabilities, Request, strip_framework_fields
from fumehood.agent._response import Block, Reasoning, Response, ToolCall, Usage, response_of
from fumehood.agent._seal import text_digest
from fumehood.agent.providers._types import Chunk, ToolDelta
from fumehood.policies.errors import ConfigError

EVERYTHING = Capabilities(image=("*",), audio=("*",), file=("*",), reasoning=True)


class ScriptedProvider:
    """Answers from a script. steps: see the module. chunk: characters per piece of a stream. name:
    what its reasoning parts carry.
    """

    def __init__(
        self,
        steps: Iterable[Mapping[str, Any] | Response],
        *,
        name: str = "scripted",
        model: str = "script",
        capabilities: Capabilities = EVERYTHING,
        chunk: int = 8,
    ) -> None:
        self._steps = list(steps)
        self._name = name
        self._model = model
        self._capabilities = capabilities
        self._chunk = chunk
        self.requests: list[Request] = []

    @classmethod
    def from_file(cls, path: str | Path, **options: Any) -> ScriptedProvider:
        """The script in a JSON file: a list of steps, or an object with `steps`. Raises: ConfigError."""
        file = Path(path)
        try:
            script = json.loads(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(
                f"{file}: {error.strerror}", hint="scripted:FILE names a JSON file with a list of steps"
            ) from error
        except ValueError as error:
            raise ConfigError(f"{file}: not JSON ({error})") from error
        steps = script.get("steps") if isinstance(script, dict) else script
        if not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
            raise ConfigError(f"{file}: a script is a list of objects", hint='write [{"text": "hello"}]')
        return cls(steps, **options)

    def __repr__(self) -> str:
        return f"<ScriptedProvider {self._name}: {len(self.requests)} of {len(self._steps)} steps>"

    @property
    def name(self) -> str:
        """The provider's name."""
        return self._name

    @property
    def model(self) -> str:
        """The model's id."""
        return self._model

    @property
    def capabilities(self) -> Capabilities:
        """What the script takes."""
        return self._capabilities

    async def complete(self, request: Request) -> Response:
        """The next step. Raises: GuardError; ProviderError for an error step and past the script's end."""
        guarded = guard_request(request, max_inline_bytes=None, max_inline_total_bytes=None)
        assert_request_supported(guarded, self._capabilities, can_resolve=False)
        at = len(self.requests)
        if at >= len(self._steps):
            raise ProviderError(f"the script has {len(self._steps)} steps and was asked for one more")
        self.requests.append(
            guarded.model_copy(update={"messages": strip_framework_fields(guarded.messages)})
        )
        step = self._steps[at]
        return step if isinstance(step, Response) else self._response(step, at)

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """The next step in small pieces."""
        response = await self.complete(request)
        for part in response.reasoning:
            for piece in self._pieces(part.text or ""):
                yield Chunk(reasoning_delta=piece)
        for piece in self._pieces(response.content):
            yield Chunk(text_delta=piece)
        for index, call in enumerate(response.tool_calls):
            yield Chunk(tool_delta=ToolDelta(index, call.id, call.name))
            for piece in self._pieces(json.dumps(call.input)):
                yield Chunk(tool_delta=ToolDelta(index, fragment=piece))
        yield Chunk(response=response)

    def _pieces(self, text: str) -> list[str]:
        return [text[at : at + self._chunk] for at in range(0, len(text), self._chunk)]

    def _response(self, step: Mapping[str, Any], at: int) -> Response:
        if "error" in step:
            raise ProviderError(str(step["error"]), retryable=bool(step.get("retryable")))
        blocks: list[Block] = []
        if step.get("reasoning") is not None:
            text = step["reasoning"]
            blocks.append(Reasoning("text", self._name, text, f"script-{text_digest(text)[:16]}"))
        if step.get("text"):
            blocks.append(step["text"])
        calls = step.get("tool_calls") or []
        blocks.extend(
            ToolCall(call.get("id", f"call-{at}-{n}"), call["name"], call.get("input", {}))
            for n, call in enumerate(calls)
        )
        return response_of(blocks, step.get("stop_reason") or ("tool_use" if calls else "end_turn"), Usage())
