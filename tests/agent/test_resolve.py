"""From references to bytes: who may, how much, how often, and what a failure does."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from fumehood.agent import ContentStore, ContentTooLarge
from fumehood.agent._effect import EffectContext, create_llm_effect, parse_request
from fumehood.agent._errors import AgentLoopConfigError, UnresolvedContentError, UnsupportedModalityError
from fumehood.agent._parts import ContentRef, Request
from fumehood.agent._resolve import (
    MAX_RESOLVED_BYTES,
    RESOLVE_CONCURRENCY,
    ResolveContext,
    owner_resolver,
    resolve_request_content,
)
from fumehood.agent.providers import ScriptedProvider
from tests.agent.samples import (
    PDF,
    PNG,
    PNG_B,
    assistant,
    b64,
    call,
    image,
    ref,
    request,
    result,
    text,
    user,
)

pytestmark = pytest.mark.anyio
Json = dict[str, Any]
CONTEXT = ResolveContext("e1", "s1", "w1", "alice")


class Recorder:
    """A resolver that remembers what it was asked."""

    def __init__(self, blobs: dict[str, bytes]) -> None:
        self.blobs = blobs
        self.asked: list[tuple[str, ResolveContext]] = []

    async def __call__(self, wanted: ContentRef, context: ResolveContext) -> bytes | None:
        self.asked.append((wanted.address, context))
        return self.blobs.get(wanted.address)


async def resolve(
    body: Json, resolver: Any, context: ResolveContext | None = CONTEXT, **options: Any
) -> Json:
    return (
        await resolve_request_content(Request.model_validate(body), resolver, context, **options)
    ).to_json()


@pytest.mark.requirement("R100")
@pytest.mark.requirement("R101")
@pytest.mark.requirement("R118")
async def test_each_address_is_fetched_once_and_every_part_that_names_it_is_filled() -> None:
    resolver = Recorder({"a": PNG, "b": PNG_B})
    body = request(
        user([ref("a"), text("x"), ref("b"), ref("a", size=len(PNG))]),
        assistant([call()]),
        user([result(content=[ref("a")])]),
    )
    assert await resolve(body, resolver) == request(
        user([image(PNG), text("x"), image(PNG_B), image(PNG)]),
        assistant([call()]),
        user([result(content=[image(PNG)])]),
    )
    assert sorted(address for address, _ in resolver.asked) == ["a", "b"]


async def test_a_request_without_references_is_the_same_object_and_needs_no_resolver() -> None:
    body = Request.model_validate(request(user([image()]), user("x")))
    assert await resolve_request_content(body, None, None) is body


@pytest.mark.requirement("R139")
async def test_a_resolver_that_minds_no_bound_hands_over_four_blobs_at_most() -> None:
    handed: list[int] = []
    running, all_four = 0, asyncio.Event()

    async def heedless(wanted: ContentRef, context: ResolveContext) -> bytes:
        nonlocal running
        running += 1
        if running == RESOLVE_CONCURRENCY:
            all_four.set()
        async with asyncio.timeout(5):
            await all_four.wait()
        assert context.max_bytes is not None and context.max_bytes <= 80
        handed.append(len(PNG) + 1000)
        return PNG + bytes(1000)

    with pytest.raises(UnresolvedContentError):
        await resolve(request(user([ref(f"a{n}") for n in range(9)])), heedless, max_total_bytes=80)
    assert 1 <= len(handed) <= RESOLVE_CONCURRENCY and running == RESOLVE_CONCURRENCY


@pytest.mark.requirement("R119")
async def test_fetches_run_four_at_a_time() -> None:
    assert RESOLVE_CONCURRENCY == 4
    running = most = 0
    gate = asyncio.Event()

    async def slow(wanted: ContentRef, context: ResolveContext) -> bytes:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if most == 4:
            gate.set()
        async with asyncio.timeout(5):
            await gate.wait()
        running -= 1
        return PNG

    await resolve(request(user([ref(f"a{n}") for n in range(9)])), slow)
    assert most == 4


@pytest.mark.requirement("R120")
@pytest.mark.requirement("R121")
@pytest.mark.requirement("R124")
async def test_the_resolver_is_told_who_asks_and_for_whom() -> None:
    resolver = Recorder({"app": PNG, "tool": PNG, "both": PNG})
    body = request(
        user([ref("app")]),
        assistant([call()]),
        user([result(content=[ref("tool"), ref("both")]), ref("both")]),
    )
    await resolve(body, resolver)
    told = {
        address: (c.execution_id, c.step_id, c.workflow_id, c.principal, c.origin, c.signal.is_set())
        for address, c in resolver.asked
    }
    assert told == {
        "app": ("e1", "s1", "w1", "alice", "app", False),
        "tool": ("e1", "s1", "w1", "alice", "tool", False),
        "both": ("e1", "s1", "w1", "alice", "app", False),
    }


@pytest.mark.requirement("R125")
@pytest.mark.requirement("R134")
@pytest.mark.requirement("R133")
async def test_each_fetch_is_told_what_is_left_of_the_budget() -> None:
    assert MAX_RESOLVED_BYTES == 32 * 1024 * 1024
    resolver = Recorder({f"a{n}": PNG for n in range(6)})
    await resolve(request(user([ref(f"a{n}") for n in range(6)])), resolver)
    hints = [context.max_bytes for _, context in resolver.asked]
    assert hints[0] == MAX_RESOLVED_BYTES and hints == sorted(hints, reverse=True) and hints[-1] < hints[0]
    assert MAX_RESOLVED_BYTES - hints[-1] == len(PNG) * 5


@pytest.mark.requirement("R135")
@pytest.mark.requirement("R132")
async def test_the_first_fetch_past_the_budget_aborts_the_rest() -> None:
    asked: list[str] = []
    fired, all_running = asyncio.Event(), asyncio.Event()

    async def resolver(wanted: ContentRef, context: ResolveContext) -> bytes:
        asked.append(wanted.address)
        if len(asked) == 4:
            all_running.set()
        if wanted.address == "a0":
            async with asyncio.timeout(5):
                await all_running.wait()
            return PNG + bytes(200)
        async with asyncio.timeout(5):
            await context.signal.wait()
        fired.set()
        return PNG

    with pytest.raises(UnresolvedContentError, match="bytes are used up") as caught:
        await resolve(request(user([ref(f"a{n}") for n in range(9)])), resolver, max_total_bytes=80)
    assert caught.value.path == "messages[0].content[0]"
    assert fired.is_set() and sorted(asked) == ["a0", "a1", "a2", "a3"]


@pytest.mark.requirement("R136")
async def test_a_reference_that_declares_too_much_is_refused_before_any_fetch() -> None:
    resolver = Recorder({"a": PNG})
    with pytest.raises(UnresolvedContentError, match="it declares 33554433 bytes; at most 33554432"):
        await resolve(request(user([ref("a", size=MAX_RESOLVED_BYTES + 1)])), resolver)
    assert resolver.asked == []


@pytest.mark.requirement("R138")
def test_a_size_that_is_no_safe_integer_cannot_even_become_a_reference() -> None:
    for size in (-1, 1.5, "1", True, 2**53):
        with pytest.raises(ValueError, match="size"):
            ContentRef(address="a", size=size)  # type: ignore[arg-type]


@pytest.mark.requirement("R128")
@pytest.mark.requirement("R129")
@pytest.mark.requirement("R130")
@pytest.mark.requirement("R131")
@pytest.mark.requirement("R132")
@pytest.mark.requirement("R137")
@pytest.mark.requirement("R490")
@pytest.mark.requirement("R491")
@pytest.mark.parametrize(
    ("blob", "size", "said"),
    [
        (None, None, "absent, or not for this caller"),
        (PNG, 5, f"{len(PNG)} bytes, but 5 were declared"),
        (PDF, None, "the bytes are application/pdf, not image/png"),
        (OSError("disk on fire"), None, "could not be read (OSError: disk on fire)"),
    ],
)
async def test_a_failure_is_feedback_for_a_tools_reference_and_the_end_for_the_applications(
    blob: bytes | Exception | None, size: int | None, said: str
) -> None:
    async def resolver(wanted: ContentRef, context: ResolveContext) -> bytes | None:
        if isinstance(blob, Exception):
            raise blob
        return blob

    tools = request(
        assistant([call()]), user([result(content=[text("before"), ref("a", size), text("after")])])
    )
    answered = (await resolve(tools, resolver))["messages"][1]["content"][0]
    notice = json.dumps({"error": "content_unavailable", "address": "a"})
    assert answered == result(content=[text("before"), text(notice), text("after")], is_error=True)
    with pytest.raises(UnresolvedContentError) as caught:
        await resolve(request(user([text("x"), ref("a", size)])), resolver)
    assert caught.value.path == "messages[0].content[1]" and said in str(caught.value)


@pytest.mark.requirement("R116")
@pytest.mark.requirement("R117")
async def test_a_reference_without_a_resolver_is_refused_before_the_provider_is_asked() -> None:
    provider = ScriptedProvider([{"text": "x"}])
    effect = create_llm_effect(provider)
    with pytest.raises(UnsupportedModalityError, match="no resolver"):
        await effect(request(user([ref()])), EffectContext("e", "s"))
    assert provider.requests == []


@pytest.mark.requirement("R127")
@pytest.mark.requirement("R126")
async def test_resolver_and_context_come_together_and_the_execution_is_named() -> None:
    body = request(user([ref("a")]))
    with pytest.raises(AgentLoopConfigError):
        await resolve(body, Recorder({}), None)
    with pytest.raises(AgentLoopConfigError):
        await resolve(body, None, CONTEXT)
    with pytest.raises(UnresolvedContentError, match="without an execution_id"):
        await resolve(body, Recorder({"a": PNG}), ResolveContext(None, principal="alice"))


@pytest.mark.requirement("R141")
@pytest.mark.requirement("R149")
async def test_capabilities_are_checked_before_anything_is_fetched() -> None:
    resolver = Recorder({"a": PNG})
    effect = create_llm_effect(ScriptedProvider([{"text": "x"}]), resolve_content=resolver, capabilities={})
    with pytest.raises(UnsupportedModalityError):
        await effect(request(user([ref("a")])), EffectContext("e", "s"))
    assert resolver.asked == []


@pytest.mark.requirement("R058")
@pytest.mark.promise("agent:untrusted-chooses-no-blob")
async def test_a_reference_of_an_untrusted_party_never_reaches_a_resolver() -> None:
    from fumehood.agent._errors import UntrustedContentError
    from fumehood.agent._results import media_result, tool_result
    from tests.agent.samples import bad

    resolver = Recorder({"a": PNG})
    provider = ScriptedProvider([{"text": "x"}] * 3)
    effect = create_llm_effect(provider, resolve_content=resolver)
    marked = ref("a") | {"untrusted": {"origin": "o"}}
    with pytest.raises(UntrustedContentError):
        await effect(request(user([marked])), EffectContext("e", "s"))
    claims = media_result(
        [{"type": "image", "media_type": "image/png", "source": {"kind": "ref", "ref": {"address": "a"}}}]
    )
    for output, declared in ((bad(claims), True), (claims, False), (bad(claims), False)):
        part = tool_result("c1", "t", output, returns_media=declared)
        await effect(request(assistant([call()]), user([part.to_json()])), EffectContext("e", "s"))
    assert resolver.asked == []


@pytest.mark.requirement("R123")
@pytest.mark.requirement("R126")
@pytest.mark.requirement("R140")
@pytest.mark.requirement("R144")
@pytest.mark.requirement("R143")
async def test_the_store_lets_each_owner_read_and_nobody_else(tmp_path: Path) -> None:
    with ContentStore(tmp_path / "content") as store:
        address = store.put(PNG, "image/png", owner="alice").address
        store.put(PNG, "image/png", owner="bob")
        read = owner_resolver(store)
        wanted = ContentRef(address=address)

        async def ask(execution: str | None, principal: str | None, **more: Any) -> bytes | None:
            return await read(wanted, ResolveContext(execution, principal=principal, **more))

        assert await ask("e", "alice") == PNG and await ask("e", "bob") == PNG
        assert await ask("e", "mallory") is None
        assert (
            await ask(None, "alice") is None
            and await ask("e", None) is None
            and await ask("", "alice") is None
        )
        with pytest.raises(ContentTooLarge):
            await ask("e", "alice", max_bytes=10)
        assert await read(ContentRef(address="sha256:" + "0" * 64), CONTEXT) is None
        by_execution = owner_resolver(store, lambda context: {"e9": "alice"}.get(context.execution_id or ""))
        assert await by_execution(wanted, ResolveContext("e9")) == PNG
        assert await by_execution(wanted, ResolveContext("e8")) is None


@pytest.mark.requirement("R098")
@pytest.mark.requirement("R099")
@pytest.mark.requirement("R434")
@pytest.mark.requirement("R142")
async def test_the_journalled_input_carries_the_address_and_the_provider_gets_the_bytes() -> None:
    provider = ScriptedProvider([{"text": "x"}])
    effect = create_llm_effect(provider, resolve_content=Recorder({"sha256:" + "0" * 64: PNG}))
    body = request(user([ref()]), system="s", tools=[])
    journalled = json.dumps(body)
    await effect(body, EffectContext("e", "s", principal="alice"))
    assert json.dumps(body) == journalled and b64(PNG) not in journalled
    assert provider.requests[0].messages[0].to_json() == user([image(PNG)])
    # The shape is {kind: "ref"}, with nothing of a store's own marker in it.
    assert parse_request(body).messages[0].to_json()["content"][0]["source"] == {
        "kind": "ref",
        "ref": {"address": "sha256:" + "0" * 64},
    }


@pytest.mark.requirement("R130")
@pytest.mark.parametrize("by", ["erase", "drop"])
async def test_content_that_goes_while_it_is_read_is_content_that_is_not_there(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ContentStore(tmp_path / "content") as store:
        addresses = [store.put(data, "image/png", owner="alice").address for data in (PNG, PNG_B)]
        owners = store.owners

        def owners_then_gone(address: str) -> frozenset[str]:
            found = owners(address)
            if by == "erase":
                store.erase(address)
            else:
                store.drop(address, owner="alice")
            return found

        monkeypatch.setattr(store, "owners", owners_then_gone)
        own = request(user([ref(addresses[0])]))
        with pytest.raises(UnresolvedContentError) as caught:
            await resolve(own, owner_resolver(store))
        assert caught.value.path == "messages[0].content[0]"
        of_tool = request(assistant([call()]), user([result(content=[ref(addresses[1])])]))
        answered = (await resolve(of_tool, owner_resolver(store)))["messages"][1]["content"][0]
    assert answered["is_error"] is True and "content_unavailable" in answered["content"][0]["text"]
