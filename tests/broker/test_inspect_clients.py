"""Ordinary clients behind `+inspect`: each trusts the authority by the variables, and shows a refusal."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fumehood.testing.http import Reply
from tests.broker.test_inspect import trusting
from tests.broker.test_transparent import caged
from tests.broker.world import PUBLIC, World

pytestmark = pytest.mark.anyio
FINE, NO = "https://api.example.com/v1/x", "https://api.example.com/v2"
PYTHON = {
    "urllib": """
import urllib.request as u, urllib.error as e
for url in ({fine!r}, {no!r}):
    try: print(u.urlopen(url).read().decode())
    except e.HTTPError as error: print(error.code, error.headers["X-Proxy-Error"], error.reason)
""",
    "requests": """
import requests
for url in ({fine!r}, {no!r}):
    reply = requests.get(url); print(reply.text, reply.status_code, reply.headers.get("X-Proxy-Error"))
""",
    "httpx": """
import httpx
for h2 in (False, True):
    with httpx.Client(http2=h2) as client:
        for url in ({fine!r}, {no!r}):
            reply = client.get(url)
            print(reply.text, reply.http_version, reply.status_code, reply.headers.get("X-Proxy-Error"))
""",
    "aiohttp": """
import aiohttp, asyncio
async def main():
    async with aiohttp.ClientSession() as session:
        for url in ({fine!r}, {no!r}):
            async with session.get(url) as reply:
                print(await reply.text(), reply.status, reply.headers.get("X-Proxy-Error"))
asyncio.run(main())
""",
}
NODE = """
const ask = async url => {{
  const reply = await fetch(url);
  console.log(await reply.text(), reply.headers.get("x-proxy-error"));
}};
ask({fine!r}).then(() => ask({no!r}));
"""
CLIENTS = {
    **{name: (sys.executable, "-c", code.format(fine=FINE, no=NO)) for name, code in PYTHON.items()},
    "node": ("node", "-e", NODE.format(fine=FINE, no=NO)),
    "curl": ("curl", "-sSi", FINE, NO),
    "curl over HTTP/1.1": ("curl", "-sSi", "--http1.1", FINE, NO),
    "git": ("git", "-c", "http.extraHeader=X-A: b", "ls-remote", NO),
    "openssl": (
        "openssl",
        "s_client",
        "-verify_return_error",
        "-brief",
        "-alpn",
        "h2",
        "-connect",
        "api.example.com:443",
    ),
}


@pytest.mark.promise("broker:inspection-enforces-inside-tls")
@pytest.mark.parametrize("client", CLIENTS)
async def test_a_client_trusts_the_authority_and_shows_what_was_refused(
    world: World, tmp_path: Path, client: str
) -> None:
    server = world.serve(443, lambda seen: Reply(200, b"as asked"), tls=True)
    world.name({"*": [PUBLIC]}, ttl=60)
    async with caged(world, "https://api.example.com/v1/ +inspect") as (call, namespace):
        trusting(namespace, call.broker.authority, tmp_path)
        done = await namespace.run(*CLIENTS[client])
    said = done.out + done.err
    if client == "openssl":
        assert "Verification: OK" in said, done
        return
    if client == "git":
        assert "403" in said and not server.seen, done
        return
    assert "as asked" in said and "EGRESS_DENIED path" in said, done
    assert {seen.target for seen in server.seen} == {"/v1/x"}


def _line(text: str) -> bytes:
    """A line of git's protocol (gitprotocol-common)."""
    return f"{len(text) + 5:04x}{text}\n".encode()


async def test_git_that_may_only_read_says_so_when_its_upload_is_refused(
    world: World, tmp_path: Path
) -> None:
    """Its request has a body that it has not ended when the answer comes; it hears that all the same."""
    offer = _line("# service=git-upload-pack") + b"0000" + _line("version 2") + _line("ls-refs") + b"0000"
    kind = (("Content-Type", "application/x-git-upload-pack-advertisement"),)
    server = world.serve(443, lambda seen: Reply(200, offer, kind), tls=True)
    world.name({"*": [PUBLIC]}, ttl=60)
    async with caged(world, "GET https://api.example.com +inspect") as (call, namespace):
        trusting(namespace, call.broker.authority, tmp_path)
        for version in ("HTTP/2", "HTTP/1.1"):
            how = ("git", "-c", f"http.version={version}", "-c", "protocol.version=2", "ls-remote")
            done = await namespace.run(*how, "https://api.example.com/repo.git")
            assert done.code != 0 and "403" in done.err, (version, done)
        assert [row["reason"] for row in call.rows if row["outcome"] == "deny"] == ["method"] * 2
    assert {seen.method for seen in server.seen} == {"GET"}
