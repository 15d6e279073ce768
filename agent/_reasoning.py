"""Reasoning: captured beside the log, carried to the next call, dropped from the first part that cannot be
reproduced.

Guarantees: readable text goes into a store sealed to its execution and nowhere else, before anybody parses
the response (R329 to R331); a put that fails fails the step, so evidence is never silently less than
configured (R337). On a request each part's text is fetched and its digest checked; a part that cannot be
reproduced is dropped with every reasoning part after it, "from here on, all", never "this one" (R366, R372).
A resolver that raises fails the call instead (R373). Parts go only to the provider that made them (R365).
Calls keep their signatures (R371).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

from fumehood.agent._parts import ContentRef, Message, Part, ReasoningPart, Request
from fumehood.agent._redact import RedactionPolicy
from fumehood.agent._resolve import ResolveContext
from fumehood.agent._response import Reasoning, Response, text_free_reasoning
from fumehood.agent._seal import SEALED_TYPE, seal, text_digest, unseal
from fumehood.agent._store import ContentMissing, StoredContent


class SealedStore(Protocol):
    """What capture needs of a content store."""

    def put(self, data: bytes, media_type: str, *, owner: str) -> StoredContent: ...
    def get(self, address: str) -> bytes: ...


ReasoningResolver: TypeAlias = Callable[[ContentRef, ResolveContext], Awaitable[bytes | None]]
"""The authorizing seam (R346): the text as UTF-8, or None for "absent or not yours". Never the
media resolver (R347).
"""


@dataclass(frozen=True, slots=True)
class ReasoningOptions:
    """What to do with reasoning. store: where readable text goes, None to keep none.

    capture: whether to, or a function of the call's context that says so; on when there is a store. live:
    show deltas as they come. resolve: reads a captured text back; the store's own seal check by default.
    redact: what is taken out of readable reasoning before it is stored or shown (R298).
    """

    store: SealedStore | None = None
    capture: bool | Callable[[Any], bool] = True
    live: bool = False
    resolve: ReasoningResolver | None = None
    redact: RedactionPolicy | None = None

    def resolver(self) -> ReasoningResolver | None:
        """How captured text is read back; the same store it was captured into by default (R380)."""
        if self.resolve is not None:
            return self.resolve
        return None if self.store is None else reasoning_store_resolver(self.store)


def reasoning_store_resolver(store: SealedStore) -> ReasoningResolver:
    """Serves a captured text to the execution it is sealed to, and to no other (R344)."""

    async def resolve(ref: ContentRef, context: ResolveContext) -> bytes | None:
        if not context.execution_id:
            return None
        try:
            data = await asyncio.to_thread(store.get, ref.address)
        except ContentMissing:
            return None
        text = unseal(data, context.execution_id)
        return None if text is None else text.encode("utf-8", "surrogatepass")

    return resolve


async def capture_reasoning(
    response: Response, options: ReasoningOptions, *, execution_id: str, context: Any = None
) -> tuple[Response, list[dict[str, Any]]]:
    """The response with recorded parts, and the `parts` of the event that says so (empty when nothing was
    captured; R333 to R335).

    Raises: whatever the store raises; the step is to fail then.
    """
    wanted = options.capture(context) if callable(options.capture) else options.capture
    if options.store is None or not wanted:
        return text_free_reasoning(response), []
    recorded: list[Reasoning | ReasoningPart] = []
    captured: list[dict[str, Any]] = []
    for part in response.reasoning:
        if not isinstance(part, Reasoning) or not part.text:
            recorded.append(part)
            if isinstance(part, Reasoning) and part.kind == "redacted":
                captured.append({"kind": part.kind})
            continue
        text, scrubbed = (part.text, 0) if options.redact is None else options.redact.scrub(part.text)
        stored = await asyncio.to_thread(
            options.store.put, seal(text, execution_id), SEALED_TYPE, owner=execution_id
        )
        digest = text_digest(text)
        size = len(text.encode("utf-8", "surrogatepass"))
        recorded.append(
            ReasoningPart(
                kind=part.kind,
                provider=part.provider,
                signature=part.signature,
                text_ref=ContentRef(address=stored.address, size=size),
                digest=digest,
                omitted=True if scrubbed else None,  # the words that the signature covers are gone
            )
        )
        told = {"kind": part.kind, "ref": stored.address, "digest": digest, "size": size}
        captured.append({**told, "scrubbed": scrubbed} if scrubbed else told)
    event = captured if any("ref" in part for part in captured) else []
    return text_free_reasoning(replace(response, reasoning=tuple(recorded))), event


async def carry_reasoning(
    request: Request, provider: str, resolver: ReasoningResolver | None, context: ResolveContext | None
) -> Request:
    """The request with each reasoning part's text filled in for its provider, and the drop rule applied.

    Raises: what the resolver raises. "Not found" alone drops.
    """
    dropping = False
    messages = []
    for message in request.messages:
        parts = message.content
        if isinstance(parts, (str, dict)) or not any(isinstance(part, ReasoningPart) for part in parts):
            messages.append(message)
            continue
        made: list[Part] = []
        for part in parts:
            if not isinstance(part, ReasoningPart):
                made.append(part)
                continue
            if part.provider != provider:
                continue
            kept = None if dropping else await _reproduced(part, resolver, context)
            dropping = dropping or kept is None
            if kept is not None:
                made.append(kept)
        messages.append(message.model_copy(update={"content": tuple(made)}))
    return request.model_copy(update={"messages": tuple(messages)})


async def _reproduced(
    part: ReasoningPart, resolver: ReasoningResolver | None, context: ResolveContext | None
) -> ReasoningPart | None:
    if part.omitted:
        return None
    if part.kind == "redacted" or (part.digest is None and part.text_ref is None):
        # Nothing readable was ever there: the signature alone is the block. Without one there is nothing to
        # send back.
        return part.model_copy(update={"text": None if part.kind == "redacted" else ""})
    if resolver is None or context is None or part.text_ref is None or not context.execution_id:
        return None
    data = await resolver(part.text_ref, replace(context, origin="reasoning"))
    if data is None:
        return None
    text = data.decode("utf-8", "surrogatepass")
    return part.model_copy(update={"text": text}) if text_digest(text) == part.digest else None


def drop_reasoning(messages: Sequence[Message], *, after: int = 0) -> tuple[Message, ...]:
    """The messages without the reasoning parts at position `after` and later; calls keep their signatures
    (R368, R370, R371).

    after: index of the first message that an edit touched; 0 for a change of tools, system prompt or model,
    which invalidates all.
    """
    return tuple(
        _without_reasoning(message) if index >= after else message for index, message in enumerate(messages)
    )


def _without_reasoning(message: Message) -> Message:
    parts = message.content
    if isinstance(parts, (str, dict)) or not any(isinstance(part, ReasoningPart) for part in parts):
        return message
    return message.model_copy(
        update={"content": tuple(part for part in parts if not isinstance(part, ReasoningPart))}
    )


def captured_event(
    parts: Sequence[Mapping[str, Any]], *, step_id: str | None, attempt: int, provider: str, model: str | None
) -> dict[str, Any]:
    """The payload of LLM_REASONING_CAPTURED: references and digests, never text, never signatures (R334)."""
    made: dict[str, Any] = {
        "step_id": step_id,
        "attempt": attempt,
        "provider": provider,
        "parts": [dict(part) for part in parts],
    }
    return made if model is None else {**made, "model": model}
