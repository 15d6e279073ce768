"""HTTP/2 behind `+inspect`: streams are messages like any other, in real clients' and real hosts' hands."""

from __future__ import annotations

import json
import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from fumehood.testing.http import Reply, Seen
from tests.broker.h2_peers import GET, SETTINGS, WINDOW_UPDATE, H2Server, H2Side, frame, h2_child
from tests.broker.test_inspect import trusting
from tests.broker.test_transparent import caged
from tests.broker.world import PUBLIC, World, policy

pytestmark = pytest.mark.anyio

RULE = {
    "host": "api.example.com",
    "methods": ["GET", "POST", "HEAD"],
    "paths": ["/v1/"],
    "inspect": True,
    "secret": {"header": "Authorization", "value": "Bearer {TOKEN}"},
}
SECRET = "s3cret-value"


def told(seen: Seen, _: object = None, __: object = None) -> Reply:
    """An answer that repeats what came."""
    said = [seen.method, seen.target, seen.header("authorization"), len(seen.body)]
    return Reply(200, json.dumps(said).encode(), (("X-Echo", seen.header("authorization") or ""),))


def h2_host(world: World, answer: object = told) -> H2Server:
    server = H2Server(world, answer)  # type: ignore[arg-type]
    world.stack.enter_context(server)
    world.ports[443] = server  # type: ignore[assignment]  # a port is all that the dial map reads
    return server


CURL = (
    ("--http2", "/v1/a", "GET", "HTTP/2 200", None),
    ("--http1.1", "/v1/a", "GET", "HTTP/1.1 200 OK", None),
    ("--http2", "/v1/a", "POST", "HTTP/2 200", None),
    ("--http2", "/v1/a", "HEAD", "HTTP/2 200", None),
    ("--http2", "/v2", "GET", "HTTP/2 403", "path"),
    ("--http2", "/v1/a", "PUT", "HTTP/2 403", "method"),
)


@pytest.mark.promise("broker:inspection-enforces-inside-tls")
@pytest.mark.parametrize("host_speaks", ["h2", "http/1.1"])
async def test_methods_paths_and_secrets_hold_inside_http2(
    world: World, tmp_path: Path, host_speaks: str
) -> None:
    server = h2_host(world) if host_speaks == "h2" else world.serve(443, told, tls=True)
    world.name({"*": [PUBLIC]})
    async with caged(world, "https://api.example.com") as (call, namespace):
        call.update_policy(policy(RULE))
        call.broker.secrets = {"TOKEN": SECRET}.__getitem__
        trusting(namespace, call.broker.authority, tmp_path)
        for version, path, method, line, reason in CURL:
            if host_speaks == "h2" and version == "--http1.1":
                continue  # what speaks HTTP/1.1 here is asked in HTTP/1.1 there
            how = {"HEAD": ["-I"], "POST": ["-d", "body"]}.get(method, ["-X", method])
            done = await namespace.run(
                "curl", "-sSi", version, "-H", "Authorization: mine", *how, f"https://api.example.com{path}"
            )
            head = done.out.lower()
            assert done.out.startswith(line), done
            assert SECRET not in done.out
            if reason is None:
                assert "x-echo: bearer ************" in head
            else:
                assert f"x-proxy-error: egress_denied {reason}" in head
                assert json.loads(done.out.split("\r\n\r\n")[1])["reason"] == reason
    assert {seen.header("authorization") for seen in server.seen} == {f"Bearer {SECRET}"}
    assert [seen.method for seen in server.seen][-3:] == ["GET", "POST", "HEAD"]
    assert SECRET not in json.dumps(world.journal.events)
    kinds = world.journal.kinds()
    assert kinds.count("EGRESS_DENIED") == 2 and kinds.count("EGRESS_ALLOWED") == kinds.count("EGRESS_CLOSED")


HTTPX = """
import asyncio, hashlib, httpx, json, os
async def main():
    async with httpx.AsyncClient(http2=True, timeout=30) as client:
        async def one(n):
            body = os.urandom(400 * n * n)
            async def pieces():
                for at in range(0, len(body), 5000): yield body[at:at + 5000]
            reply = await client.post(f"https://api.example.com/v1/{n}", content=pieces() if n % 2 else body)
            return [reply.http_version, reply.status_code, reply.content == body[::-1]]
        print(json.dumps(await asyncio.gather(*(one(n) for n in range(30)))))
asyncio.run(main())
"""


@pytest.mark.parametrize("host_speaks", ["h2", "http/1.1"])
async def test_streams_run_side_by_side_with_bodies_both_ways(
    world: World, tmp_path: Path, host_speaks: str
) -> None:
    def answer(seen: Seen, *_: object) -> Reply:
        return Reply(200, seen.body[::-1])

    server = h2_host(world, answer) if host_speaks == "h2" else world.serve(443, answer, tls=True)
    world.name({"*": [PUBLIC]}, ttl=60)
    async with caged(world, "https://api.example.com +inspect") as (call, namespace):
        trusting(namespace, call.broker.authority, tmp_path)
        with anyio.fail_after(60):
            done = await namespace.python(HTTPX)
    assert json.loads(done.out or "null") == [["HTTP/2", 200, True]] * 30, done
    assert len(server.seen) == 30
    if host_speaks == "h2":
        assert server.connections == 1, "streams that came together share one connection to the host"
    assert world.journal.kinds().count("EGRESS_ALLOWED") == 31  # the tunnel, then each message


NODE_HOST = """
const http2 = require('http2');
const {KEY: key, CERT: cert} = process.env;
const server = http2.createSecureServer({key, cert});
server.on('stream', (stream, headers) => {
  stream.on('error', () => {});
  if (headers[':path'] === '/v1/early') {
    stream.additionalHeaders({':status': 103, 'link': '</a.css>', 'x-key': headers['x-key'] || ''});
    stream.respond({':status': 200}); stream.end('after the hints');
  } else if (headers[':path'] === '/v1/reset') { stream.close(2);
  } else {
    stream.respond({':status': 200, 'set-cookie': ['a=1', 'b=2']}, {waitForTrailers: true});
    const last = {'x-checksum': 'abc', 'x-cookie': headers.cookie || ''};
    stream.on('wantTrailers', () => stream.sendTrailers(last));
    stream.pipe(stream);
  }
});
server.listen(0, '127.0.0.1', () => console.log(server.address().port));
"""
NODE_CLIENT = """
const http2 = require('http2');
const session = http2.connect('https://api.example.com');
let left = 3; const out = {};
const done = () => { if (--left === 0) { console.log(JSON.stringify(out)); session.close(); } };
const ask = (path, headers, body) => {
  const at = out[path] = {data: ''};
  const stream = session.request({':path': path, ':method': 'POST', ...headers});
  stream.setEncoding('latin1');
  stream.on('headers', h => { at.early = h[':status']; });
  stream.on('response', h => { at.status = h[':status']; at.cookies = h['set-cookie']; });
  stream.on('trailers', t => { at.trailers = [t['x-checksum'], t['x-cookie']]; });
  stream.on('data', d => { at.data += d.length > 99 ? d.length : d; });
  stream.on('error', e => { at.error = e.code; });
  stream.on('close', () => { at.rst = stream.rstCode; done(); });
  stream.end(body);
};
ask('/v1/trailers', {cookie: ['c=3', 'd=4']}, 'ping');
ask('/v1/early', {'x-key': 'k'}, '');
ask('/v1/reset', {}, '');
"""


@contextmanager
def node_host(world: World) -> Iterator[int]:
    """Node's own HTTP/2 server."""
    leaf = world.authority.ca.issue_cert("api.example.com")
    cert = b"".join(blob.bytes() for blob in leaf.cert_chain_pems).decode()
    env = {**os.environ, "KEY": leaf.private_key_pem.bytes().decode(), "CERT": cert}
    with subprocess.Popen(["node", "-e", NODE_HOST], stdout=subprocess.PIPE, env=env) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


async def test_trailers_cookies_and_resets_pass_and_interim_answers_stop_here(
    world: World, tmp_path: Path
) -> None:
    world.name({"*": [PUBLIC]})
    with node_host(world) as port:
        async with caged(world, "https://api.example.com/v1/ +inspect") as (call, namespace):
            call.broker.dialer._map = lambda *_: ("127.0.0.1", port)
            trusting(namespace, call.broker.authority, tmp_path)
            done = await namespace.run("node", "-e", NODE_CLIENT)
    said = json.loads(done.out or "null")
    assert said["/v1/trailers"] == {
        "data": "ping",
        "status": 200,
        "cookies": ["a=1", "b=2"],
        "trailers": ["abc", "c=3; d=4"],
        "rst": 0,
    }, done
    assert said["/v1/early"] == {"data": "after the hints", "status": 200, "rst": 0}
    assert said["/v1/reset"]["status"] == 502


async def test_a_host_that_goes_away_politely_ends_nothing_and_is_dialled_anew(world: World) -> None:
    def answer(seen: Seen, side: H2Side, stream: int) -> Reply | None:
        if seen.target == "/last":
            frame = b"\0\0\x08\x07\0\0\0\0\0" + stream.to_bytes(4, "big") + bytes(4)
            side.sock.sendall(frame)  # GOAWAY, this stream is the last one; its answer still comes
        return Reply(200, f"{len(side.sock.getpeername())}".encode())

    server = h2_host(world, answer)
    world.name({"*": [PUBLIC]}, ttl=60)
    async with world.call("https://api.example.com +inspect") as call:
        async with h2_child(call) as child:
            for stream, path in ((1, "/"), (3, "/last"), (5, "/"), (7, "/")):
                await child.send(child.head(stream, [*GET[:3], (":path", path)]))
                assert (await child.answer(stream))[":status"] == "200"
    assert [seen.target for seen in server.seen] == ["/", "/last", "/", "/"]
    assert server.connections == 2


async def test_a_request_the_host_did_not_look_at_is_sent_once_more_and_only_then(world: World) -> None:
    refusals: list[str] = []

    def answer(seen: Seen, side: H2Side, stream: int) -> Reply | None:
        if seen.target == "/refused" and not refusals:
            refusals.append(seen.target)
            side.h2.reset_stream(stream, 7)
            side.flush()
            return None
        if seen.target == "/broken":
            side.h2.reset_stream(stream, 2)
            side.flush()
            return None
        return Reply(200)

    server = h2_host(world, answer)
    world.name({"*": [PUBLIC]}, ttl=60)
    async with world.call("https://api.example.com +inspect") as call:
        async with h2_child(call) as child:
            await child.send(child.head(1, [*GET[:3], (":path", "/refused")]))
            assert (await child.answer(1))[":status"] == "200"
            await child.send(child.head(3, [*GET[:3], (":path", "/broken")]))
            assert (await child.answer(3))[":status"] == "502"
    assert [seen.target for seen in server.seen] == ["/refused", "/refused", "/broken"]


async def test_rates_sizes_and_connections_are_counted_for_each_stream(world: World) -> None:
    h2_host(world, lambda seen, *_: Reply(200, b"x" * (50 if seen.target == "/" else 5000)))
    world.name({"*": [PUBLIC]}, ttl=60)
    rule = "https://api.example.com +inspect +max_request=1KiB +max_response=1KiB"
    async with world.call(rule) as call:
        async with h2_child(call) as child:
            post = [(":method", "POST"), *GET[1:]]
            await child.send(child.head(1))
            await child.send(child.head(3, [*GET[:3], (":path", "/large")]))
            await child.send(child.head(5, [*post, ("content-length", "2000")], end=False))
            await child.send(child.head(7, post, end=False), b"\0\x08\0\0\0\0\0\0\7" + bytes(2048))
            answers = [await child.answer(stream) for stream in (1, 3, 5, 7)]
            assert [answer[":status"] for answer in answers] == ["200", "413", "413", "413"]
        rows = [row["reason"] for row in call.rows]
        call.update_policy(policy("https://api.example.com +inspect +rate=1/m"))
        async with h2_child(call) as child:
            await child.send(child.head(1), child.head(3))
            first, late = await child.answer(1), await child.answer(3)
        call.update_policy(policy("https://api.example.com +inspect +max_connections=1"))
        async with h2_child(call) as child:
            await child.send(child.head(1, end=False), child.head(3))
            more = await child.answer(3)
    assert rows == [None, "budget-bytes", "budget-bytes", "budget-bytes"]
    assert (first[":status"], late[":status"]) == ("200", "429")
    assert late["x-proxy-error"] == more["x-proxy-error"] == "EGRESS_DENIED budget-rate"
    assert int(late["retry-after"]) > 0


async def test_a_row_is_on_disk_before_the_first_byte_of_its_stream_goes_out(world: World) -> None:
    def answer(seen: Seen, side: H2Side, stream: int) -> Reply:
        world.journal.entries.append(("asked", seen.target))
        return Reply(200)

    h2_host(world, answer)
    world.name({"*": [PUBLIC]}, ttl=60)
    async with world.call("https://api.example.com +inspect") as call:
        async with h2_child(call) as child:
            for stream in (1, 3):
                await child.send(child.head(stream))
                await child.answer(stream)
    order = [entry[0] if entry[0] != "record" else entry[1] for entry in world.journal.entries]
    assert [step for step in order if step != "EGRESS_CLOSED"] == [
        "EGRESS_ALLOWED",
        "dial",
        "asked",
        "EGRESS_ALLOWED",
        "asked",
    ]


async def test_a_policy_that_changes_ends_the_streams_that_it_refuses_and_no_other(world: World) -> None:
    def answer(seen: Seen, side: H2Side, stream: int) -> Reply | None:
        if seen.target == "/done":
            return Reply(200)
        side.h2.send_headers(stream, [(":status", "200")])
        side.flush()
        return None  # its body never ends

    h2_host(world, answer)
    world.name({"*": [PUBLIC]}, ttl=60)
    async with world.call("https://api.example.com +inspect") as call:
        async with h2_child(call) as child:
            for stream, path in ((1, "/old/a"), (3, "/new/b")):
                await child.send(child.head(stream, [*GET[:3], (":path", path)]))
                await child.until(lambda found, stream=stream: found.stream == stream)  # type: ignore[misc]
            assert call.update_policy(policy("https://api.example.com/new/ +inspect")) == 1
            assert "reset" in await child.answer(1)
            assert [row["reason"] for row in call.rows] == ["policy-changed", None]
            assert call.update_policy(policy("https://other.example.com")) == 1
            assert "reset" in await child.answer(3)


async def test_without_h2_the_handshake_agrees_on_http11(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fumehood.broker import _inspect

    monkeypatch.setattr(_inspect, "can_inspect_h2", lambda: False)
    world.serve(443, told, tls=True)
    world.name({"*": [PUBLIC]})
    async with caged(world, "https://api.example.com +inspect") as (call, namespace):
        trusting(namespace, call.broker.authority, tmp_path)
        done = await namespace.run("curl", "-sSi", "--http2", "https://api.example.com/")
    assert done.out.startswith("HTTP/1.1 200 OK"), done


async def test_a_stream_may_follow_an_answer_at_once_though_its_work_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that has as many streams as were announced opens the next one when an answer has come."""
    from fumehood.broker import _h2_door
    from fumehood.broker._h2_upstream import MixedUpstream

    over, release = anyio.Event(), MixedUpstream.release

    async def late(*args: Any) -> None:
        await over.wait()
        await release(*args)

    monkeypatch.setattr(_h2_door, "MAX_STREAMS", 1)
    monkeypatch.setattr(MixedUpstream, "release", late)
    world.serve(443, lambda seen: Reply(200, b"fine"), tls=True)
    world.name({"*": [PUBLIC]}, ttl=60)
    async with world.call("https://api.example.com +inspect") as call:
        async with h2_child(call) as child:
            for stream in (1, 3):
                await child.send(child.head(stream))
                assert (await child.answer(stream))[":status"] == "200"
            await child.send(child.head(5))  # control: work that does not end is bounded too
            assert (await child.answer(5))["reset"] == "7"
            over.set()
        async with h2_child(call) as child:
            await child.send(child.head(1, [(":method", "POST"), *GET[1:]], end=False), child.head(3))
            assert (await child.answer(3))["reset"] == "7"  # control: one that is not answered yet


@pytest.mark.parametrize("crowd", [0, 100])
async def test_connections_among_many_have_narrow_windows(world: World, crowd: int) -> None:
    """What a client or a host may send before anybody reads it is memory of the broker's, for each one."""
    server = h2_host(world, lambda seen, side, stream: Reply(200, b"x" * 200_000))
    world.name({"*": [PUBLIC]}, ttl=60)
    async with world.call("https://api.example.com +inspect") as call:
        call.broker.places.taken += crowd
        async with h2_child(call) as child:
            await child.until(lambda found: found.kind == WINDOW_UPDATE)
            settings = next(found.payload for found in child.frames if found.kind == SETTINGS)
            said = dict(struct.iter_unpack("!HI", settings))
            await child.send(frame(WINDOW_UPDATE, 0, 0, struct.pack("!I", 1 << 20)))
            await child.send(child.head(1), frame(WINDOW_UPDATE, 0, 1, struct.pack("!I", 1 << 20)))
            assert (await child.answer(1))[":status"] == "200" and len(child.bodies[1]) == 200_000
            windows = said[4], server.sides[0].h2.remote_settings.initial_window_size
        call.broker.places.taken -= crowd
    assert windows == ((64 * 1024, 64 * 1024) if crowd else (256 * 1024, 1024 * 1024))
