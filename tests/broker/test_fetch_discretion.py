"""What the fetch door keeps to itself: secrets and their echoes, and what of a URL stands in no row."""

from __future__ import annotations

import base64
import html
import json
import urllib.parse

import pytest

from fumehood.broker import EgressRefused, FetchRequest
from fumehood.broker._records import loggable
from fumehood.broker._refusal import http_refusal
from fumehood.testing.http import Reply, Seen
from tests.broker.world import PUBLIC, World

pytestmark = pytest.mark.anyio
URL = "https://api.example.com/"
NAMES = {"api.example.com": [PUBLIC], "files.example.net": [PUBLIC], "evil.test": [PUBLIC]}


@pytest.mark.promise("broker:secret-bound-to-origin")
async def test_a_secret_goes_to_its_origin_alone_and_no_echo_brings_it_back(world: World) -> None:
    secret = {"host": "api.example.com", "secret": {"header": "Authorization", "value": "Bearer {TOKEN}"}}
    received: list[str | None] = []

    def answer(seen: Seen) -> Reply:
        received.append(seen.header("authorization"))
        if seen.path == "/away":
            return Reply.redirect("https://files.example.net/x")
        echo = seen.header("authorization") or ""
        return Reply(200, f"you sent {echo}".encode(), (("X-Echo", echo),))

    world.serve(443, answer, tls=True)
    world.name(NAMES)
    async with world.call(
        secret, "https://files.example.net", secrets={"TOKEN": "s3cret-value"}.__getitem__
    ) as call:
        reply = await call.fetch(FetchRequest("GET", URL, (("Authorization", "Bearer fake"),)))
        await call.fetch(FetchRequest("GET", URL + "away"))
        with pytest.raises(EgressRefused):
            await call.fetch(FetchRequest("GET", URL, (("authorization", "a"), ("Authorization", "b"))))
    assert received == ["Bearer s3cret-value", "Bearer s3cret-value", None]
    assert reply.body == b"you sent Bearer [secret]" and dict(reply.headers)["X-Echo"] == "Bearer [secret]"
    assert "s3cret-value" not in repr(world.journal.events) and "s3cret-value" not in repr(call.rows)


@pytest.mark.promise("broker:secret-bound-to-origin")
async def test_no_spelling_of_an_echo_brings_a_secret_back(world: World) -> None:
    token = "s3cret/value+&42=="
    secret = {"host": "api.example.com", "secret": {"header": "X-Key", "value": "{TOKEN}"}}

    def answer(seen: Seen) -> Reply:
        echo = seen.header("x-key") or ""
        quoted = urllib.parse.quote(echo, safe="")
        if seen.path == "/away":
            return Reply.redirect(f"/next?key={quoted}")
        spelt = [
            quoted,
            urllib.parse.quote(quoted, safe=""),
            json.dumps(echo).replace("/", "\\/"),
            html.escape(json.dumps({"key": echo})),
            echo.encode().hex(),
            *(base64.b64encode(b"x" * n + f"{echo}:rest".encode()).decode() for n in range(3)),
            base64.urlsafe_b64encode(f"user:{echo}".encode()).decode(),
        ]
        return Reply(200, "\n".join(spelt).encode(), (("X-Echo", quoted),))

    world.serve(443, answer, tls=True)
    world.name(NAMES)
    async with world.call(secret, secrets={"TOKEN": token}.__getitem__) as call:
        reply = await call.fetch(FetchRequest("GET", URL))
        with pytest.raises(EgressRefused) as caught:
            await call.fetch(FetchRequest("GET", URL + "away"))
    lines = reply.text.split("\n")
    assert lines[:5] == [
        "[secret]",
        "[secret]",
        '"[secret]"',
        "{&quot;key&quot;: &quot;[secret]&quot;}",
        "[secret]",
    ]
    assert all("[secret]" in line and len(line) < 30 for line in lines[5:]), lines
    assert dict(reply.headers)["X-Echo"] == "[secret]"
    assert caught.value.reason == "redirect"
    assert "s3cret" not in repr(world.journal.events) and "s3cret" not in repr(call.rows)


async def test_a_secret_that_cannot_be_read_fails_the_request_without_its_value(world: World) -> None:
    secret = {"host": "api.example.com", "secret": {"header": "Authorization", "value": "Bearer {GONE}"}}
    server = world.serve(443, tls=True)
    world.name(NAMES)
    async with world.call(secret) as call:
        with pytest.raises(EgressRefused) as caught:
            await call.fetch(FetchRequest("GET", URL))
    assert caught.value.reason == "upstream" and "'GONE' cannot be read" in str(caught.value)
    assert server.seen == []


@pytest.mark.promise("broker:secret-bound-to-origin")
async def test_a_refused_urls_password_and_query_are_in_no_row_and_no_message(world: World) -> None:
    async with world.call(URL) as call:
        for url in (
            "https://user:hunter2@api.example.com/",
            "https://evil.test/x?token=hunter2",
            "https:\\\\x?key=hunter2",
        ):
            with pytest.raises(EgressRefused) as caught:
                await call.fetch(FetchRequest("GET", url))
            assert "hunter2" not in str(caught.value)
    assert "hunter2" not in repr(world.journal.events) + repr(call.rows)


LONG = "a" * 9000


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (f"https://api.example.com/{LONG}", "path"),
        (f"https://api.example.com/{LONG}%2f{LONG}", "malformed"),
        (f"https://api.example.com/{LONG}?key=s3cret-{LONG}", "malformed"),
        (f"https://{LONG}.example.com/", "malformed"),
        (f"https://api.example.com:{LONG}/", "malformed"),
        (f"https://api.example.com/{LONG}\\{LONG[:100]}", "ambiguous-url"),
        (f"{LONG}", "malformed"),
        (f"{LONG}://x/", "scheme"),
    ],
    ids=range(8),
)
async def test_a_long_url_is_cut_where_it_is_read_and_the_row_has_its_hash(
    world: World, url: str, reason: str
) -> None:
    world.name({"*": [PUBLIC]})
    async with world.call("https://api.example.com/v1/") as call:
        with pytest.raises(EgressRefused) as caught:
            await call.fetch(FetchRequest("GET", url))
        again = EgressRefused(caught.value.decision, caught.value.event_id)
    assert caught.value.reason == reason, caught.value
    assert len(str(caught.value)) < 900 and len(http_refusal(again)) < 2500
    data = world.journal.events[0]["data"]
    shown = data["path"] if reason == "path" else data["text"]
    assert len(shown) == 512 and data["length"] >= 9000 and len(data["sha256"]) == 64, data
    assert len(json.dumps(data)) < 3000 and "s3cret" not in json.dumps(data)


@pytest.mark.parametrize(
    "url",
    [
        "https://user:s3cret-p@api.example.com/",
        "https://s3cret-p@api.example.com/@scope/x",
        "http:user:s3cret-p@api.example.com/",
        "https:/user:s3cret-p@api.example.com/",
        "https:\\\\user:s3cret-p@api.example.com/",
        "///user:s3cret-p@api.example.com/",
        "user:s3cret-p@api.example.com",
        "https://user:s3cret-p/x@api.example.com/",
        "https://user:s3cret-p#x@api.example.com/",
        "https://user:s3cret-p?x@api.example.com/",
        "https://user:a s3cret-p@api.example.com/",
        "https://user:a's3cret-p\"b@api.example.com/",
        "https://user:s3cret-p@" + "x" * 600,
        "https://user:" + "s3cret-p" * 200 + "@api.example.com/",
        "https://api.example.com/a b?key=s3cret-p",
        "https://api.example.com/a%zz?key=s3cret-p c=s3cret-p",
        "gopher://user:s3cret-p@api.example.com/",
    ],
)
async def test_no_row_has_the_user_or_the_query_of_a_url_in_any_spelling(world: World, url: str) -> None:
    world.serve(443, lambda seen: Reply.redirect(url), tls=True)
    world.name(NAMES)
    async with world.call("https://api.example.com/") as call:
        for asked in (url, URL):  # as the tool's own, and as where a host redirects to
            with pytest.raises(EgressRefused):
                await call.fetch(FetchRequest("GET", asked))
    assert "s3cret-p" not in json.dumps(world.journal.events), world.journal.events


@pytest.mark.parametrize("text", ["https://127.1/@scope/x", "https://127.1:80/@scope", "127.1", "a@b"])
def test_a_refused_place_stays_readable_in_its_row(text: str) -> None:
    assert loggable(text) == {"a@b": "…@b"}.get(text, text)
