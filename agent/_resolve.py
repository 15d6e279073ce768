"""From references to bytes, right before the provider call and nowhere else (R100).

Guarantees: each address is fetched once per request, four at a time, within one running budget of 32 MiB; the
first fetch past it fires the signal and nothing queued starts (R133 to R135). A blob of another size or type
than declared is refused. A tool's reference that cannot be read becomes an error result the model can act on;
the application's fails the call (R131, R132). The resolver decides who may read: it gets the execution and
the principal, and what it returns None for is "absent or not yours" (R123, R128). Order matters: capabilities
are checked before this runs (R141). At most four blobs are held when a resolver ignores `max_bytes` (R139).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from fumehood.agent._capabilities import media_parts
from fumehood.agent._errors import AgentLoopConfigError, GuardError, UnresolvedContentError
from fumehood.agent._media import encode_base64, media_fault
from fumehood.agent._parts import (
    AudioPart,
    ContentRef,
    DataSource,
    FilePart,
    ImagePart,
    MediaPart,
    Message,
    Part,
    RefSource,
    Request,
    ResultPart,
    TextPart,
    ToolResultPart,
)
from fumehood.agent._store import ContentStore, ContentTooLarge

MAX_RESOLVED_BYTES: Final = 33_554_432
"""Bytes that one request may resolve in all."""

RESOLVE_CONCURRENCY: Final = 4
"""Fetches at once."""

Origin: TypeAlias = Literal["tool", "app", "reasoning"]


@dataclass(frozen=True, slots=True)
class ResolveContext:
    """Who asks, for what (R120). max_bytes: what is left of the budget. signal: set when the
    request gave up on the bytes.
    """

    execution_id: str | None
    step_id: str | None = None
    workflow_id: str | None = None
    principal: str | None = None
    origin: Origin = "app"
    max_bytes: int = MAX_RESOLVED_BYTES
    signal: asyncio.Event = field(default_factory=asyncio.Event)


ContentResolver: TypeAlias = Callable[[ContentRef, ResolveContext], Awaitable[bytes | None]]
"""Reads a reference for someone, or returns None. It MUST authorize: whoever can name an address is
not yet its owner.
"""


def owner_resolver(
    store: ContentStore, tenant_of: Callable[[ResolveContext], str | None] | None = None
) -> ContentResolver:
    """A resolver over the content store that lets a tenant read what it put (R144).

    tenant_of: the asking tenant; by default the principal. A context without an execution or without a tenant
    reads nothing (R126).
    """

    async def resolve(ref: ContentRef, context: ResolveContext) -> bytes | None:
        tenant = tenant_of(context) if tenant_of is not None else context.principal
        if not context.execution_id or not tenant:
            return None
        found = await asyncio.to_thread(store.stat, ref.address)
        if found is None or tenant not in store.owners(ref.address):
            return None
        if found.size > context.max_bytes:
            raise ContentTooLarge(
                f"{ref.address}: {found.size} bytes; {context.max_bytes} are left for this request"
            )
        return await asyncio.to_thread(store.get, ref.address)

    return resolve


async def resolve_request_content(
    request: Request,
    resolver: ContentResolver | None,
    context: ResolveContext | None,
    *,
    max_total_bytes: int = MAX_RESOLVED_BYTES,
) -> Request:
    """The request with every media reference turned into data; unchanged when it has none.

    Raises: UnresolvedContentError for the application's own references; AgentLoopConfigError when only one of
    resolver and context is given.
    """
    wanted = _wanted(request)
    if not wanted:
        return request
    if resolver is None or context is None:
        raise AgentLoopConfigError(
            "references need a resolver and the context of the call, both",
            hint="pass resolve_content and the execution's ids",
        )
    if not context.execution_id:
        raise UnresolvedContentError(
            next(path for path, part, _ in media_parts(request) if isinstance(part.source, RefSource)),
            "references cannot be read for a call without an execution_id",
        )
    outcomes = await _fetch_all(wanted, resolver, context, max_total_bytes)
    return _filled(request, outcomes)


@dataclass(slots=True)
class _Wanted:
    ref: ContentRef
    origin: Origin


_Outcome: TypeAlias = bytes | str | BaseException
"""Bytes, or why there are none."""


def _wanted(request: Request) -> dict[str, _Wanted]:
    wanted: dict[str, _Wanted] = {}
    for _, part, of_tool in media_parts(request):
        if not isinstance(part.source, RefSource):
            continue
        ref = part.source.ref
        known = wanted.setdefault(ref.address, _Wanted(ref, "tool"))
        if not of_tool:
            known.origin = "app"  # the application asked for it too, so it answers for it
    return wanted


async def _fetch_all(
    wanted: Mapping[str, _Wanted], resolver: ContentResolver, context: ResolveContext, max_total: int
) -> dict[str, _Outcome]:
    left = max_total
    # A signal of its own for every request: a context may be used for several, and one that gave up must not
    # end the next. The caller's own signal stops the queue as well.
    signal = asyncio.Event()
    outcomes: dict[str, _Outcome] = {}
    queue = list(wanted.values())
    queue.reverse()

    async def worker() -> None:
        nonlocal left
        while queue:
            item = queue.pop()
            address, size = item.ref.address, item.ref.size
            if size is not None and size > max_total:
                outcomes[address] = (
                    f"it declares {size} bytes; at most {max_total} are resolved for one request"
                )
                continue
            if signal.is_set() or context.signal.is_set():
                outcomes[address] = f"the request's {max_total} bytes are used up"
                continue
            asked = replace(context, origin=item.origin, max_bytes=left, signal=signal)
            try:
                data: object = await resolver(item.ref, asked)
            except (asyncio.CancelledError, KeyboardInterrupt):
                raise
            except Exception as error:  # noqa: BLE001 - the resolver is the application's; whatever it raises is "could not be read"
                outcomes[address] = error
                continue
            if isinstance(data, (bytearray, memoryview)):
                data = bytes(data)
            if data is None:
                outcomes[address] = "absent, or not for this caller"
            elif not isinstance(data, bytes):
                # Never shown: it may be the content itself, decoded by mistake.
                outcomes[address] = f"the resolver gave a {type(data).__name__}, not bytes"
            elif len(data) > left or signal.is_set():
                outcomes[address] = f"the request's {max_total} bytes are used up"
                signal.set()
            else:
                left -= len(data)
                outcomes[address] = data

    async with asyncio.TaskGroup() as group:
        for _ in range(min(RESOLVE_CONCURRENCY, len(queue))):
            group.create_task(worker())
    return outcomes


def _filled(request: Request, outcomes: Mapping[str, _Outcome]) -> Request:
    messages = [
        _filled_message(message, outcomes, f"messages[{index}].content")
        for index, message in enumerate(request.messages)
    ]
    return request.model_copy(update={"messages": tuple(messages)})


def _filled_message(message: Message, outcomes: Mapping[str, _Outcome], path: str) -> Message:
    parts = message.content
    if isinstance(parts, (str, dict)):
        return message
    made: list[Part] = []
    for index, part in enumerate(parts):
        if isinstance(part, ToolResultPart):
            made.append(_filled_result(part, outcomes))
        elif isinstance(part, (ImagePart, AudioPart, FilePart)) and isinstance(part.source, RefSource):
            found = _bytes_for(part, outcomes)
            if isinstance(found, bytes):
                made.append(_with_data(part, found))
                continue
            cause = found if isinstance(found, BaseException) else None
            if isinstance(cause, GuardError):
                raise cause
            why = f"could not be read ({type(cause).__name__}: {cause})" if cause else str(found)
            raise UnresolvedContentError(f"{path}[{index}]", f"{part.source.ref.address}: {why}") from cause
        else:
            made.append(part)
    return message.model_copy(update={"content": tuple(made)})


def _filled_result(part: ToolResultPart, outcomes: Mapping[str, _Outcome]) -> ToolResultPart:
    if isinstance(part.content, (str, dict)):
        return part
    failed = False
    made: list[ResultPart] = []
    for inner in part.content:
        if isinstance(inner, TextPart) or not isinstance(inner.source, RefSource):
            made.append(inner)
            continue
        found = _bytes_for(inner, outcomes)
        if isinstance(found, bytes):
            made.append(_with_data(inner, found))
        else:
            failed = True
            # The cause stays out of the model's sight: an error text of the store is not for a transcript.
            made.append(
                TextPart(
                    text=json.dumps({"error": "content_unavailable", "address": inner.source.ref.address})
                )
            )
    return part.model_copy(update={"content": tuple(made)} | ({"is_error": True} if failed else {}))


def _bytes_for(part: MediaPart, outcomes: Mapping[str, _Outcome]) -> _Outcome:
    assert isinstance(part.source, RefSource)
    ref = part.source.ref
    found = outcomes[ref.address]
    if not isinstance(found, bytes):
        return found
    # Checked per part: two parts may name one address and declare different things about it.
    if ref.size is not None and ref.size != len(found):
        return f"{len(found)} bytes, but {ref.size} were declared"
    return media_fault(part.media_type, found) or found


def _with_data(part: MediaPart, data: bytes) -> MediaPart:
    return part.model_copy(update={"source": DataSource(data=encode_base64(data))})
