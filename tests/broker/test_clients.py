"""The client matrix: unmodified programs through the transparent door and through the proxy, allowed and
refused.

A program that is missing fails its test: `apt-get install curl git nodejs npm postgresql-client redis-tools
openssh-client openssl wget default-jdk-headless` and the development dependencies have them all.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from fumehood.broker import proxy_environment
from fumehood.testing.dns import Said
from fumehood.testing.http import Reply, Seen
from tests.broker.clients import RawServer, needed, until
from tests.broker.test_transparent import caged
from tests.broker.world import PUBLIC, World

pytestmark = pytest.mark.anyio
NAMES: dict[str, Said] = {"*": [PUBLIC], "inside.example.com": ["10.0.0.1"]}
POLICY = (
    "https://*.example.com",
    "http://plain.example.com",
    "http://inside.example.com",
    "tcp://db.example.com:5432",
    "cache.example.com:6379",
    "tcp://git.example.com:22",
    "ws://plain.example.com:8080",
)
PORTS = (443, 80, 5432, 6379, 22, 8080)

PYTHON = {
    "urllib": "import urllib.request as u; print(u.urlopen('{url}', timeout=20).read().decode())",
    "httpx": """
import httpx, ssl
r = httpx.get('{url}', timeout=20, verify=ssl.create_default_context()); r.raise_for_status(); print(r.text)
""",
    "requests": """
import requests
r = requests.get('{url}', timeout=20); r.raise_for_status(); print(r.text)
""",
    "aiohttp": """
import aiohttp, asyncio
async def main():
    async with aiohttp.ClientSession(trust_env=True, raise_for_status=True) as s:
        async with s.get('{url}') as r: print(await r.text())
asyncio.run(main())
""",
    "http.client": """
import http.client, urllib.parse, ssl
p = urllib.parse.urlsplit('{url}')
kind = http.client.HTTPSConnection if p.scheme == 'https' else http.client.HTTPConnection
c = kind(p.hostname)
c.request('GET', '/'); r = c.getresponse(); print(r.read().decode())
assert r.status == 200, (r.status, r.reason)
""",
}
NODE = """
fetch('{url}').then(r => r.text().then(t => {{ if (!r.ok) throw new Error(r.statusText); console.log(t) }}))
  .catch(e => {{ console.error(e.cause || e); process.exit(1) }})
"""
PROGRAMS = {
    "curl": ("curl", "-sS", "--fail-with-body", "{url}"),
    "curl-http2": ("curl", "-sS", "--http2", "{url}"),
    "wget": ("wget", "-q", "-O", "-", "--tries=1", "--ca-certificate={trust}", "{url}"),
    "node-fetch": ("node", "-e", NODE),
}


def everything(world: World) -> None:
    world.serve(443, tls=True)
    world.serve(80)
    world.name(NAMES)


@pytest.mark.promise("broker:clients-work-unchanged")
@pytest.mark.parametrize("client", [*PROGRAMS, *PYTHON])
async def test_an_http_client_reaches_allowed_hosts_and_fails_at_once_elsewhere(
    client: str, world: World
) -> None:
    everything(world)

    async with caged(world, *POLICY, ports=PORTS) as (call, namespace):

        async def get(url: str) -> tuple[int, str]:
            if client in PYTHON:
                done = await namespace.python(PYTHON[client].replace("{url}", url))
            else:
                needed(PROGRAMS[client][0])
                done = await namespace.run(
                    *(word.format(url=url, trust=world.trust) for word in PROGRAMS[client])
                )
            return done.code, done.out + done.err

        with anyio.fail_after(60):
            for url in ("https://api.example.com/", "http://plain.example.com/"):
                code, text = await get(url)
                assert code == 0 and '"host": "' + url.split("/")[2] in text, text
            code, text = await get("https://evil.test/")
            assert (
                code != 0
                and any(
                    word in text.lower()
                    for word in ("resolve", "not known", "enotfound", "no address", "name")
                )
                or client == "wget"
            ), text
            code, text = await get("https://inside.example.com/")
            assert code != 0 and ("access denied" in text or client == "wget"), text
            code, text = await get("http://inside.example.com/")
            if client not in ("curl-http2", "wget"):  # these two say so with other flags only
                assert code != 0 and "not-public" in text, text
    assert {row["reason"] for row in call.rows} == {None, "not-listed", "not-public"}


@pytest.mark.parametrize("client", ["curl", "wget", "urllib", "httpx", "requests", "aiohttp"])
async def test_a_client_set_up_for_the_proxy_works_and_shows_the_reason(client: str, world: World) -> None:
    everything(world)
    async with caged(world, *POLICY, ports=()) as (call, namespace):
        env = proxy_environment(3128)

        async def get(url: str) -> tuple[int, str]:
            if client in PYTHON:
                done = await namespace.python(PYTHON[client].replace("{url}", url), env=env)
            else:
                needed(PROGRAMS[client][0])
                words = [word.format(url=url, trust=world.trust) for word in PROGRAMS[client]]
                done = await namespace.run(*words, env=env)
            return done.code, done.out + done.err

        with anyio.fail_after(60):
            for url in ("https://api.example.com/", "http://plain.example.com/"):
                code, text = await get(url)
                assert code == 0 and '"host": "' + url.split("/")[2] in text, text
            code, text = await get("https://evil.test/")
            assert code != 0 and (
                "not-listed" in text or (client == "curl" and "403" in text) or client == "wget"
            ), text
            code, text = await get("http://evil.test/")
            assert code != 0 and ("not-listed" in text or client == "wget"), text
    assert {row["reason"] for row in call.rows} == {None, "not-listed"}


def a_repository(folder: Path) -> Path:
    """A bare repository that a static server can serve."""
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": str(folder)}
    for name in ("GIT_AUTHOR", "GIT_COMMITTER"):
        env |= {f"{name}_NAME": "n", f"{name}_EMAIL": "e@example.com"}

    def git(*words: str) -> None:
        subprocess.run(["git", *words], cwd=folder, env=env, check=True, capture_output=True)

    git("init", "-q", "-b", "main", "work")
    (folder / "work" / "file").write_text("content")
    git("-C", "work", "add", "file")
    git("-C", "work", "commit", "-q", "-m", "first")
    git("clone", "-q", "--bare", "work", "repo.git")
    git("-C", "repo.git", "update-server-info")
    return folder / "repo.git"


async def test_git_clones_over_https_and_says_what_it_could_not_reach(world: World, tmp_path: Path) -> None:
    needed("git")
    bare = a_repository(tmp_path)

    def static(seen: Seen) -> Reply:
        file = bare / seen.path.removeprefix("/repo.git/")
        return Reply(200, file.read_bytes()) if file.is_file() else Reply(404)

    world.serve(443, static, tls=True)
    world.name(NAMES)
    async with caged(world, *POLICY, ports=PORTS) as (call, namespace):
        done = await namespace.run(
            "git", "clone", "-q", "https://git.example.com/repo.git", str(tmp_path / "out"), timeout=60
        )
        assert done.code == 0 and (tmp_path / "out" / "file").read_text() == "content", done
        refused = await namespace.run("git", "ls-remote", "https://evil.test/repo.git")
        assert refused.code != 0 and "Could not resolve host: evil.test" in refused.err
        proxied = await namespace.run(
            "git", "ls-remote", "https://evil.test/repo.git", env=proxy_environment(3128)
        )
        assert proxied.code != 0 and "403" in proxied.err


async def test_git_over_ssh_reaches_the_server_with_its_own_bytes(world: World) -> None:
    needed("ssh")

    def sshd(connection: socket.socket) -> None:
        connection.sendall(b"SSH-2.0-test\r\n")
        server.received += until(connection, b"\n")

    server = world.stack.enter_context(RawServer(sshd))
    world.ports[22] = server  # type: ignore[assignment]
    world.name(NAMES)
    async with caged(world, *POLICY, ports=PORTS) as (call, namespace):
        env = {"GIT_SSH_COMMAND": "ssh -o BatchMode=yes -o StrictHostKeyChecking=no -F /dev/null"}
        await namespace.run("git", "ls-remote", "ssh://git@git.example.com/x", env=env)
        assert server.received.startswith(b"SSH-2.0-OpenSSH"), server.received
        refused = await namespace.run("git", "ls-remote", "ssh://git@evil.test/x", env=env)
        assert "Could not resolve hostname evil.test" in refused.err


def postgres(connection: socket.socket) -> None:
    """As much of a PostgreSQL server as `select 1` needs (protocol 3.0)."""

    def message(kind: bytes, body: bytes) -> bytes:
        return kind + struct.pack("!I", len(body) + 4) + body

    while True:
        size, code = struct.unpack("!II", connection.recv(8, socket.MSG_WAITALL))
        connection.recv(size - 8, socket.MSG_WAITALL) if size > 8 else b""
        if code not in (80877103, 80877104):  # SSLRequest, GSSENCRequest
            break
        connection.sendall(b"N")
    connection.sendall(
        message(b"R", struct.pack("!I", 0)) + message(b"S", b"server_version\x0015.0\0") + message(b"Z", b"I")
    )
    while head := connection.recv(5, socket.MSG_WAITALL):
        connection.recv(struct.unpack("!I", head[1:])[0] - 4, socket.MSG_WAITALL)
        if head[:1] == b"X":
            return
        row = struct.pack("!H", 1) + b"one\0" + struct.pack("!IhIhih", 0, 0, 23, 4, -1, 0)
        value = struct.pack("!HI", 1, 2) + b"42"
        connection.sendall(
            message(b"T", row) + message(b"D", value) + message(b"C", b"SELECT 1\0") + message(b"Z", b"I")
        )


async def test_psql_and_redis_cli_speak_their_own_protocols(world: World) -> None:
    needed("psql")
    needed("redis-cli")

    def redis(connection: socket.socket) -> None:
        while b"PING" not in (data := connection.recv(4096)) and data:
            connection.sendall(b"-ERR unknown\r\n" * data.count(b"*"))
        connection.sendall(b"+PONG\r\n")
        connection.recv(1)

    world.ports[5432] = world.stack.enter_context(RawServer(postgres))  # type: ignore[assignment]
    world.ports[6379] = world.stack.enter_context(RawServer(redis))  # type: ignore[assignment]
    world.name(NAMES)
    async with caged(world, *POLICY, ports=PORTS) as (call, namespace):
        psql = await namespace.run(
            "psql", "-At", "-c", "select 42 as one", "host=db.example.com user=u dbname=d"
        )
        assert psql.out.strip() == "42", psql
        cli = await namespace.run("redis-cli", "-h", "cache.example.com", "PING")
        assert cli.out.strip() == "PONG", cli
        refused = await namespace.run(
            "psql", "-c", "select 1", "host=evil.test user=u dbname=d connect_timeout=10"
        )
        assert refused.code != 0 and "could not translate host name" in refused.err


async def test_openssl_s_client_sees_the_hosts_own_certificate_and_the_alert(world: World) -> None:
    needed("openssl")
    everything(world)
    async with caged(world, *POLICY, ports=PORTS) as (call, namespace):
        good = await namespace.run(
            "openssl",
            "s_client",
            "-connect",
            "api.example.com:443",
            "-servername",
            "api.example.com",
            "-CAfile",
            str(world.trust),
            "-verify_return_error",
        )
        assert "Verify return code: 0 (ok)" in good.out, good
        for more in (("-servername", "evil.test"), ("-noservername",)):
            bad = await namespace.run("openssl", "s_client", "-connect", "api.example.com:443", *more)
            assert "access denied" in bad.err, bad
    assert [row["reason"] for row in call.rows] == [None, "server-name", "server-name"]


@pytest.fixture
def chat(world: World) -> Iterator[None]:
    """WebSocket echo servers: wss on 443, ws on 8080."""
    from websockets.sync.server import ServerConnection, serve

    def echo(connection: ServerConnection) -> None:
        for text in connection:
            connection.send(text)

    servers = [
        serve(echo, "127.0.0.1", 0, ssl=world.authority.any_name("live.example.com")),
        serve(echo, "127.0.0.1", 0),
    ]
    threads = [threading.Thread(target=server.serve_forever, daemon=True) for server in servers]
    for thread in threads:
        thread.start()
    for port, server in zip((443, 8080), servers, strict=True):
        world.ports[port] = type("At", (), {"port": server.socket.getsockname()[1]})()
    yield
    for server in servers:
        server.shutdown()
    for thread in threads:
        thread.join(5)


async def test_websockets_pass_inside_tls_and_where_the_entry_says_ws(world: World, chat: None) -> None:
    world.name(NAMES)
    code = """
from websockets.sync.client import connect
import sys
with connect(sys.argv[1]) as c:
    for n in (1, 70000):
        c.send("x" * n); assert len(c.recv()) == n
print("echoed")
"""
    async with caged(world, *POLICY, "http://quiet.example.com:8080", ports=PORTS) as (call, namespace):
        for url in ("wss://live.example.com/", "ws://plain.example.com:8080/"):
            done = await namespace.run(sys.executable, "-c", code, url)
            assert done.out.strip() == "echoed", done
        refused = await namespace.run(sys.executable, "-c", code, "ws://quiet.example.com:8080/")
        assert "403" in refused.err
    assert call.rows[-1]["reason"] == "scheme"


JAVA = """
import java.net.URI; import java.net.http.*;
public class Fetch {
  public static void main(String[] a) throws Exception {
    var request = HttpRequest.newBuilder(URI.create(a[0])).build();
    var reply = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
    System.out.println(reply.statusCode() + " " + reply.body());
  }
}
"""


async def test_a_jvm_reaches_allowed_hosts_and_shows_the_reason_elsewhere(
    world: World, tmp_path: Path
) -> None:
    needed("javac")
    needed("keytool")
    everything(world)
    (tmp_path / "Fetch.java").write_text(JAVA)
    store = f"-importcert -noprompt -alias ca -file {world.trust} -keystore {tmp_path}/trust.p12"
    for words in (["keytool", *store.split(), "-storepass", "changeit"], ["javac", "Fetch.java"]):
        subprocess.run(words, check=True, capture_output=True, cwd=tmp_path)
    trust = (
        f"-Djavax.net.ssl.trustStore={tmp_path}/trust.p12",
        "-Djavax.net.ssl.trustStorePassword=changeit",
    )
    async with caged(world, *POLICY, ports=PORTS) as (call, namespace):

        async def get(url: str) -> str:
            done = await namespace.run("java", *trust, "-cp", str(tmp_path), "Fetch", url, timeout=60)
            return done.out + done.err

        assert (await get("https://api.example.com/")).startswith('200 {"method": "GET"')
        assert (await get("http://plain.example.com/")).startswith('200 {"method": "GET"')
        assert (await get("http://inside.example.com/")).startswith(
            '403 {"error": "EGRESS_DENIED not-public"'
        )
        assert "ConnectException" in await get("https://evil.test/")
        assert "access_denied" in await get("https://inside.example.com/")
