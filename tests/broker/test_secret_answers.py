"""Answers that repeat a secret where masking would not see it: in a content coding that was not asked for, or
as what a server makes of Basic credentials.
"""

from __future__ import annotations

import base64
import gzip
import zlib
from collections.abc import Callable, Iterator

import brotli  # type: ignore[import-untyped]
import pytest
import zstandard

from fumehood.broker import BrokerCall, EgressRefused, FetchRequest
from fumehood.testing.http import Reply, Seen
from tests.broker.h2_peers import GET, h2_child
from tests.broker.test_broken_inspection import HOST, SECRET, say
from tests.broker.world import PUBLIC, World, policy

pytestmark = [pytest.mark.anyio, pytest.mark.promise("host:secret-filled-in-outside")]
URL = "https://api.example.com/"
PASSWORD = "correct horse"
CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.compress,
}


def rule(value: str = "{KEY}", **more: object) -> dict[str, object]:
    return {
        "host": "api.example.com",
        "inspect": True,
        "secret": {"header": "Authorization", "value": value},
        **more,
    }


def in_chunks(coded: bytes, coding: str) -> Iterator[bytes]:
    yield f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Encoding: {coding}\r\n\r\n".encode()
    yield from (b"1\r\n" + coded[at : at + 1] + b"\r\n" for at in range(len(coded)))
    yield b"0\r\n\r\n"


async def heard(call: BrokerCall, path: str) -> list[str]:
    """The answer in each door, and in either version behind +inspect."""
    async with h2_child(call) as child:
        await child.send(child.head(1, [*GET[:3], (":path", path), ("accept-encoding", "gzip")]))
        told = await child.answer(1)
        two = f"{told} {child.bodies.get(1, b'').decode('latin-1')}"
    head = f"GET {path} HTTP/1.1\r\n{HOST}Accept-Encoding: gzip\r\nConnection: close\r\n\r\n"
    try:
        reply = await call.fetch(FetchRequest("GET", f"https://api.example.com{path}"))
        fetched = f"{reply.status} {reply.headers} {reply.body.decode('latin-1')}"
    except EgressRefused as refused:
        fetched = f"{refused.reason} {refused.decision.detail}"
    return [await say(call, head), two, fetched]


@pytest.mark.parametrize("coding", CODINGS)
async def test_a_coding_that_nobody_asked_for_hides_no_secret(world: World, coding: str) -> None:
    def answer(seen: Seen) -> Reply | Iterator[bytes]:
        coded = CODINGS[coding](f"it is {seen.header('authorization')}, you see".encode())
        return in_chunks(coded, coding) if seen.path == "/chunks" else Reply(200, coded, (how,))

    how = ("Content-Encoding", coding)
    world.serve(443, answer, tls=True)
    world.name({"*": [PUBLIC]}, ttl=60)
    async with world.call(URL, secrets={"KEY": SECRET}.__getitem__) as call:
        call.update_policy(policy(rule()))
        for path in ("/", "/chunks"):
            for text in await heard(call, path):
                assert "it is" in text and "you see" in text and SECRET not in text, text
                assert "ontent-encoding" not in text.lower()
        call.update_policy(
            policy("https://api.example.com +inspect")
        )  # control: no secret, no business of ours
        control = await say(call, f"GET / HTTP/1.1\r\n{HOST}Connection: close\r\n\r\n")
        assert f"Content-Encoding: {coding}" in control


async def test_a_coding_that_nothing_undoes_is_not_passed_beside_a_secret(world: World) -> None:
    wrong = {
        "/unknown": Reply(200, b"dercs", (("Content-Encoding", "x-reversed"),)),
        "/stacked": Reply(200, gzip.compress(gzip.compress(b"x")), (("Content-Encoding", "gzip, gzip"),)),
        "/broken": Reply(200, b"no gzip at all", (("Content-Encoding", "gzip"),)),
    }
    world.serve(443, lambda seen: wrong.get(seen.path, Reply(204)), tls=True)
    world.name({"*": [PUBLIC]}, ttl=60)
    async with world.call(URL, secrets={"KEY": SECRET}.__getitem__) as call:
        call.update_policy(policy(rule()))
        for path in wrong:
            one, two, three = await heard(call, path)
            assert "dercs" not in one + two and "no gzip" not in one + two
            assert "upstream" in one or path == "/broken", one  # its head may have gone out
            assert "upstream" in two or "reset" in two
            assert three.startswith("upstream"), three


async def test_a_bomb_behind_a_secret_runs_into_the_cap_once_decoded(world: World) -> None:
    bomb = gzip.compress(bytes(20_000_000))
    world.serve(443, lambda seen: Reply(200, bomb, (("Content-Encoding", "gzip"),)), tls=True)
    world.name({"*": [PUBLIC]}, ttl=60)
    async with world.call(URL, secrets={"KEY": SECRET}.__getitem__) as call:
        call.update_policy(policy(rule(max_response="32 KiB")))
        for text in await heard(call, "/"):
            assert len(text) < 100_000
        denied = [row["reason"] for row in call.rows if row["outcome"] == "deny"]
    assert denied == ["budget-bytes"] * 3


async def test_what_a_server_makes_of_basic_credentials_is_masked_too(world: World) -> None:
    """RFC 7617: frameworks hand on user and password by themselves, and debugging pages show them."""

    def answer(seen: Seen) -> Reply:
        coded = (seen.header("authorization") or "").removeprefix("Basic ")
        user, _, password = base64.b64decode(coded).decode().partition(":")
        return Reply(200, f"PHP_AUTH_USER={user} PHP_AUTH_PW={password} {user}:{password}".encode())

    world.serve(443, answer, tls=True)
    world.name({"*": [PUBLIC]}, ttl=60)
    coded = base64.b64encode(f"us:{PASSWORD}".encode()).decode()
    async with world.call(URL, secrets={"KEY": coded}.__getitem__) as call:
        call.update_policy(policy(rule("Basic {KEY}")))
        for text in await heard(call, "/"):
            assert "PHP_AUTH_USER=us" in text and PASSWORD not in text, text
