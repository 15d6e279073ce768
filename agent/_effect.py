"""One governed model call: the steps between a transcript and a recorded answer.

Guarantees, in this order, each before the next: (1) guard, always (R031); (2) capabilities, before anything
is fetched (R141, R149); (3) reasoning carried or dropped; (4) references resolved, inside the effect and
right before the call (R100); (5) framework fields removed, so no adapter can leak one (R183); (6) the
provider; (7) readable reasoning captured and taken off, before `parse` sees the answer (R329, R331). What the
step records is JSON with references and no bytes. A replay never comes here: it is served from the log (R436,
R437). Tool deltas are shown as they come and pass no delta guard, validator or token budget (R403).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from pydantic import ValidationError

from fumehood.agent._capabilities import assert_request_supported
from fumehood.agent._errors import AgentLoopConfigError, MessageStructureError, ProviderError
from fumehood.agent._guard import MAX_INLINE_BYTES, MAX_INLINE_TOTAL_BYTES, guard_request
from fumehood.agent._guard_checks import first_fault
from fumehood.agent._parts import Capabilities, Request, strip_framework_fields
from fumehood.agent._reasoning import ReasoningOptions, capture_reasoning, captured_event, carry_reasoning
from fumehood.agent._resolve import ContentResolver, ResolveContext, resolve_request_content
from fumehood.agent._response import Response
from fumehood.agent._taint import tainted
from fumehood.agent.providers._types import Chunk, Provider, ToolDelta

logger = logging.getLogger(__name__)

Emit: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class EffectContext:
    """Whose call this is. emit: writes an event durably (the log's `record`, bound to the
    execution); attempt: counts reruns from 1.
    """

    execution_id: str
    step_id: str
    attempt: int = 1
    principal: str | None = None
    workflow_id: str | None = None
    emit: Emit | None = None
    on_text_delta: Callable[[str], None] | None = None
    on_reasoning_delta: Callable[[Mapping[str, Any]], None] | None = None

    def resolve_context(self) -> ResolveContext:
        """The part of it that a resolver authorizes by."""
        return ResolveContext(self.execution_id, self.step_id, self.workflow_id, self.principal)


class LlmEffect(Protocol):
    """A governed model call: a request in, a step value out."""

    async def __call__(self, request: Request | Mapping[str, Any], context: EffectContext) -> Any: ...


@dataclass(frozen=True, slots=True)
class _Settings:
    provider: Provider
    resolve_content: ContentResolver | None
    reasoning: ReasoningOptions
    capabilities: Capabilities
    max_inline_bytes: int
    max_inline_total_bytes: int
    stream: bool
    on_tool_delta: Callable[[ToolDelta], None] | None
    on_tool_reset: Callable[[], None] | None
    parse: Callable[[Response], Any]
    extra: dict[str, Any] = field(default_factory=dict)


def create_llm_effect(
    provider: Provider,
    *,
    resolve_content: ContentResolver | None = None,
    reasoning: ReasoningOptions | None = None,
    capabilities: Capabilities | Mapping[str, Any] | None = None,
    max_inline_bytes: int = MAX_INLINE_BYTES,
    max_inline_total_bytes: int = MAX_INLINE_TOTAL_BYTES,
    stream: bool = False,
    on_tool_delta: Callable[[ToolDelta], None] | None = None,
    on_tool_reset: Callable[[], None] | None = None,
    parse: Callable[[Response], Any] = Response.to_json,
) -> LlmEffect:
    """The one way from a transcript to a model.

    resolve_content: reads references; without it a request that holds one is refused. capabilities: overrides
    what the provider declares. max_inline_bytes: the cap of one inline part, for this effect. stream: call
    the provider's stream, show deltas to the context's sinks. on_tool_delta, on_tool_reset: pieces of calls,
    and the word that a retried attempt makes the earlier pieces void (R402). parse: from the response, which
    holds no readable reasoning by then, to the step value. Raises (when called): GuardError before anything
    is sent; ProviderError; what the reasoning store raises.
    """
    if on_tool_delta is not None and not stream:
        raise AgentLoopConfigError("on_tool_delta needs stream=True; a whole answer has no pieces")
    declared = provider.capabilities
    if capabilities is not None:
        declared = (
            capabilities
            if isinstance(capabilities, Capabilities)
            else Capabilities.model_validate(capabilities)
        )
    settings = _Settings(
        provider,
        resolve_content,
        reasoning or ReasoningOptions(),
        declared,
        max_inline_bytes,
        max_inline_total_bytes,
        stream,
        on_tool_delta,
        on_tool_reset,
        parse,
    )

    async def effect(request: Request | Mapping[str, Any], context: EffectContext) -> Any:
        return await _call(settings, parse_request(request), context)

    return effect


def create_agent_model_effect(provider: Provider, **options: Any) -> LlmEffect:
    """The effect of an agent's model step: takes `{messages, tools, system}` (R434) and records the
    response as JSON.
    """
    return create_llm_effect(provider, **options)


def parse_request(request: Request | Mapping[str, Any]) -> Request:
    """A request from its JSON form, marks still on. Raises: MessageStructureError, UntrustedContentError."""
    if isinstance(request, Request):
        return request
    try:
        return Request.model_validate(
            guard_request(request, max_inline_bytes=None, max_inline_total_bytes=None)
        )
    except ValidationError as error:
        raise MessageStructureError(*first_fault(error)) from error


async def _call(settings: _Settings, request: Request, context: EffectContext) -> Any:
    guarded = guard_request(
        request,
        max_inline_bytes=settings.max_inline_bytes,
        max_inline_total_bytes=settings.max_inline_total_bytes,
    )
    assert_request_supported(guarded, settings.capabilities, can_resolve=settings.resolve_content is not None)
    where = context.resolve_context()
    carried = await carry_reasoning(guarded, settings.provider.name, settings.reasoning.resolver(), where)
    resolved = await resolve_request_content(carried, settings.resolve_content, where)
    # A new object: what the provider gets never had the fields, whatever it does with the message (R183).
    bare = resolved.model_copy(update={"messages": strip_framework_fields(resolved.messages)})
    if context.attempt > 1 and settings.on_tool_reset is not None:
        settings.on_tool_reset()
    response = (
        await _streamed(settings, bare, context)
        if settings.stream
        else await settings.provider.complete(bare)
    )
    recorded, captured = await capture_reasoning(
        response, settings.reasoning, execution_id=context.execution_id, context=context
    )
    if captured:
        payload = captured_event(
            captured,
            step_id=context.step_id,
            attempt=context.attempt,
            provider=settings.provider.name,
            model=settings.provider.model,
        )
        if context.emit is None:
            raise AgentLoopConfigError(
                "reasoning is captured, but nobody records that it was",
                hint="give the context an `emit`, such as the log's record",
            )
        await context.emit("LLM_REASONING_CAPTURED", payload)
    return settings.parse(recorded)


async def _streamed(settings: _Settings, request: Request, context: EffectContext) -> Response:
    response: Response | None = None
    held: list[str] = []
    async for chunk in settings.provider.stream(request):
        if chunk.text_delta and context.on_text_delta is not None:
            context.on_text_delta(chunk.text_delta)
        if settings.reasoning.redact is None:
            _show_reasoning(settings, context, chunk.reasoning_delta)
        elif chunk.reasoning_delta:
            held.append(chunk.reasoning_delta)
        elif held:
            # What a pattern matches may lie across pieces, so the whole of it is shown at once.
            _show_reasoning(settings, context, settings.reasoning.redact.scrub("".join(held))[0])
            held.clear()
        if chunk.tool_delta is not None and settings.on_tool_delta is not None:
            settings.on_tool_delta(chunk.tool_delta)
        response = chunk.response or response
    if response is None:
        raise ProviderError("the stream ended without an answer", retryable=True)
    return response


def _show_reasoning(settings: _Settings, context: EffectContext, text: str) -> None:
    if text and settings.reasoning.live and context.on_reasoning_delta is not None:
        # A channel of its own, and marked: nobody who listens for text hears reasoning by accident (R381,
        # R382).
        context.on_reasoning_delta({"reasoning": tainted(text, f"llm-reasoning:{context.step_id}")})


async def collect_stream(
    chunks: AsyncIterator[Chunk],
    *,
    on_text_delta: Callable[[str], None] | None = None,
    on_tool_delta: Callable[[ToolDelta], None] | None = None,
) -> Response:
    """The whole response of a stream, with the pieces shown on the way (R400). Raises:
    ProviderError when it ends early.
    """
    response: Response | None = None
    async for chunk in chunks:
        if chunk.text_delta and on_text_delta is not None:
            on_text_delta(chunk.text_delta)
        if chunk.tool_delta is not None and on_tool_delta is not None:
            on_tool_delta(chunk.tool_delta)
        response = chunk.response or response
    if response is None:
        raise ProviderError("the stream ended without an answer", retryable=True)
    return response


UNKEPT_WARNING: Final = (
    "reasoning of %s is not kept for audit, only signatures for continuation; configure "
    "observability.reasoning.store"
)
"""What a boot check says of an effect whose provider returns reasoning and which has no store
(R163, R408).
"""


def warn_unkept_reasoning(effect_id: str, provider: Provider, reasoning: ReasoningOptions | None) -> bool:
    """Log the warning for one effect, once per call; True when it was due. An effect that set
    `capture=False` itself is not warned of.
    """
    kept = reasoning is not None and (reasoning.store is not None or reasoning.capture is False)
    if kept or not provider.capabilities.reasoning:
        return False
    logger.warning(UNKEPT_WARNING, effect_id)
    return True
