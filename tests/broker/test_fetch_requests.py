"""What a tool may send through the fetch door, what follows a redirect, and what the broker does not take
from its environment.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from fumehood.agent import EventLog
from fumehood.broker import BrokerCall, EgressPolicy, EgressRefused, FetchRequest, Limits
from fumehood.testing.dns import Misbehave, Said
from fumehood.testing.http import Reply, Seen
from tests.broker.world import PUBLIC, World

pytestmark = pytest.mark.anyio
URL = "https://api.example.com/"
NAMES = {"api.example.com": [PUBLIC], "files.example.net": [PUBLIC], "evil.test": [PUBLIC]}

FORBIDDEN_HEADERS = [
    ("Host", "evil.test"),
    ("Connection", "keep-alive, X-Hop"),
    ("Proxy-Authorization", "Basic x"),
    ("Proxy-Connection", "keep-alive"),
    ("Transfer-Encoding", "chunked"),
    ("TE", "trailers"),
    ("Trailer", "X"),
    ("Upgrade", "websocket"),
    ("Expect", "100-continue"),
    ("Keep-Alive", "timeout=5"),
    ("Content-Length", "7"),
    ("X-Split", "a\r\nHost: evil.test"),
    ("X-Nul", "a\x00b"),
    ("X-Snowman", "\u2603"),
    ("Bad Name", "x"),
    ("", "x"),
]


@pytest.mark.promise("broker:host-and-hop-headers-ours")
@pytest.mark.requirement("R474")
@pytest.mark.parametrize("header", FORBIDDEN_HEADERS, ids=lambda header: header[0] or "empty")
async def test_headers_that_belong_to_the_broker_are_refused_and_nothing_is_sent(
    header: tuple[str, str], world: World
) -> None:
    server = world.serve(443, tls=True)
    dns = world.name(NAMES)
    async with world.call(URL) as call:
        with pytest.raises(EgressRefused) as caught:
            await call.fetch(FetchRequest("GET", URL, (header,)))
        assert caught.value.reason == "malformed"
        assert (await call.fetch(FetchRequest("GET", URL, (("X-Fine", "1"),)))).status == 200  # control
    assert len(server.seen) == 1 and dns.names == ["api.example.com"]


@pytest.mark.parametrize("method", ["get", "CONNECT", "TRACE", "GET /x", "", "GÉT"])
async def test_methods_outside_the_grammar_are_refused(method: str, world: World) -> None:
    async with world.call(URL) as call:
        with pytest.raises(EgressRefused) as caught:
            await call.fetch(FetchRequest(method, URL))
    assert caught.value.reason == "malformed"


async def test_what_is_sent_is_the_parsed_target_and_not_the_text(world: World) -> None:
    server = world.serve(443, tls=True)
    world.name(NAMES)
    async with world.call("https://api.example.com") as call:
        await call.fetch(
            FetchRequest("POST", "HTTPS://API.example.com./a/./b/../\u00e9?q=\u00fc#frag", (), b"body")
        )
    seen = server.seen[0]
    assert (seen.method, seen.target, seen.body, seen.sni) == (
        "POST",
        "/a/%C3%A9?q=%C3%BC",
        b"body",
        "api.example.com",
    )
    assert seen.headers[0] == ("host", "api.example.com")


@pytest.mark.promise("broker:credentials-dropped-on-origin-change")
@pytest.mark.requirement("R471")
async def test_nothing_that_could_be_a_credential_follows_a_redirect_to_another_origin(world: World) -> None:
    mine = (
        ("Authorization", "Bearer a"),
        ("Cookie", "c=1"),
        ("X-Api-Key", "k"),
        ("Accept", "text/plain"),
        ("User-Agent", "tool/1"),
    )

    def answer(seen: Seen) -> Reply:
        if seen.path == "/away":
            return Reply.redirect("https://files.example.net/x", 307)
        return Reply.redirect("/y", 307) if seen.path == "/near" else Reply()

    server = world.serve(443, answer, tls=True)
    world.name(NAMES)
    async with world.call("https://api.example.com", "https://files.example.net") as call:
        await call.fetch(FetchRequest("POST", "https://api.example.com/away", mine, b"body"))
        await call.fetch(FetchRequest("POST", "https://api.example.com/near", mine, b"body"))
    away, near = server.seen[1], server.seen[3]
    assert {name for name, _ in away.headers} == {
        "host",
        "accept",
        "user-agent",
        "accept-encoding",
        "content-length",
    }
    assert (away.header("host"), away.method, away.body) == ("files.example.net", "POST", b"body")
    assert {"authorization", "cookie", "x-api-key"} <= {
        name for name, _ in near.headers
    }  # control: same origin


@pytest.mark.parametrize(
    ("status", "method", "then"),
    [
        (301, "POST", "GET"),
        (302, "POST", "GET"),
        (303, "PUT", "GET"),
        (307, "POST", "POST"),
        (308, "PUT", "PUT"),
        (303, "HEAD", "HEAD"),
        (301, "DELETE", "DELETE"),
    ],
)
async def test_a_redirect_changes_the_method_as_http_says(
    status: int, method: str, then: str, world: World
) -> None:
    server = world.serve(
        443, lambda seen: Reply.redirect("/b", status) if seen.path == "/a" else Reply(), tls=True
    )
    world.name(NAMES)
    async with world.call(URL) as call:
        await call.fetch(FetchRequest(method, URL + "a", (("Content-Type", "text/plain"),), b"x"))
    assert server.seen[1].method == then
    assert server.seen[1].body == (b"x" if then == method else b"")
    assert (server.seen[1].header("content-type") is None) == (then != method)


async def test_a_redirect_from_https_to_http_is_refused_even_where_http_is_listed(world: World) -> None:
    world.serve(443, lambda seen: Reply.redirect("http://api.example.com/x"), tls=True)
    plain = world.serve(80)
    world.name(NAMES)
    async with world.call("https://api.example.com", "http://api.example.com") as call:
        with pytest.raises(EgressRefused) as caught:
            await call.fetch(FetchRequest("GET", URL))
    assert caught.value.reason == "redirect" and plain.seen == []


async def test_follow_false_hands_the_redirect_to_the_tool(world: World) -> None:
    world.serve(443, lambda seen: Reply.redirect("https://evil.test/"), tls=True)
    world.name(NAMES)
    async with world.call(URL) as call:
        reply = await call.fetch(FetchRequest("GET", URL, follow=False))
    assert (reply.status, dict(reply.headers)["Location"]) == (302, "https://evil.test/")


@pytest.mark.promise("broker:row-before-first-byte")
@pytest.mark.requirement("R022")
async def test_the_row_is_on_disk_before_anything_is_dialled_and_before_a_refusal_returns(
    world: World, tmp_path: Path
) -> None:
    path = tmp_path / "log.db"
    at_dial: list[list[str]] = []

    def dial(address: str, port: int) -> tuple[str, int]:
        with_other_eyes = EventLog(path)  # a second process would see the same
        try:
            at_dial.append([event.kind for event in with_other_eyes.events()])
        finally:
            with_other_eyes.close()
        return world.dial(address, port)

    world.serve(443, tls=True)
    world.name(NAMES)
    log = EventLog(path)
    try:
        async with world.call(URL, recorder=log, dial=dial) as call:
            await call.fetch(FetchRequest("GET", URL))
            assert at_dial == [["EGRESS_ALLOWED"]]
            with pytest.raises(EgressRefused) as caught:
                await call.fetch(FetchRequest("GET", "https://evil.test/"))
            refused = [event for event in log.events() if event.kind == "EGRESS_DENIED"]
            assert [event.id for event in refused] == [caught.value.event_id]
        kinds = [event.kind for event in log.events()]
        assert sorted(kinds) == ["EGRESS_ALLOWED", "EGRESS_CLOSED", "EGRESS_DENIED"]
        assert log.verify().ok
    finally:
        log.close()


@pytest.mark.promise("broker:proxy-environment-ignored")
@pytest.mark.requirement("R475")
async def test_proxy_and_certificate_variables_of_the_parent_steer_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    proxy = world.serve(9999)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy.url)
        monkeypatch.setenv(name.lower(), proxy.url)
    (tmp_path / "empty.pem").write_text("")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "empty.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    (tmp_path / ".netrc").write_text("machine api.example.com login u password p\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    server = world.serve(443, tls=True)
    world.name(NAMES)
    async with world.call(URL) as call:
        await call.fetch(FetchRequest("GET", URL))
        assert call.broker.tls.cert_store_stats()["x509_ca"] > 1, "the system's own store, by its path"
    assert proxy.connections == 0
    assert server.seen[0].header("authorization") is None


@pytest.mark.promise("broker:tls-verified-on-the-name")
async def test_a_certificate_for_another_name_or_from_an_unknown_authority_is_no_answer(world: World) -> None:
    import trustme

    from fumehood.testing.http import HttpServer

    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("api.example.com").configure_cert(stranger)
    for context in (world.authority.context("other.example.com"), stranger):
        with HttpServer(tls=context) as server:
            world.ports[443] = server
            world.name(NAMES)
            async with world.call(URL) as call:
                with pytest.raises(EgressRefused) as caught:
                    await call.fetch(FetchRequest("GET", URL))
            assert caught.value.reason == "upstream" and "certificate" in str(caught.value)
            assert server.seen == []


@pytest.mark.promise("broker:no-network-outside-a-call")
async def test_a_closed_call_reaches_nothing(world: World) -> None:
    server = world.serve(443, tls=True)
    dns = world.name(NAMES)
    async with world.call(URL) as call:
        await call.close()
        with pytest.raises(EgressRefused) as caught:
            await call.fetch(FetchRequest("GET", URL))
    assert caught.value.reason == "no-call"
    assert (server.seen, dns.queries, world.journal.kinds()) == ([], [], ["EGRESS_DENIED"])


async def test_the_next_vetted_address_is_tried_when_one_refuses(world: World) -> None:
    server = world.serve(443, tls=True)
    world.name({"api.example.com": [PUBLIC, "93.184.216.35", "2606:2800:220:1::1946"]})

    def dial(address: str, port: int) -> tuple[str, int]:
        world.dial(address, port)
        return ("127.0.0.1", server.port) if address == "93.184.216.35" else ("127.0.0.1", 1)

    async with world.call(URL, dial=dial) as call:
        await call.fetch(FetchRequest("GET", URL))
        assert call.rows[0]["pinned"] == "93.184.216.35"
    assert world.journal.dialled == [(PUBLIC, 443), ("2606:2800:220:1::1946", 443), ("93.184.216.35", 443)]


async def test_an_address_that_hangs_is_overtaken_by_the_next(world: World) -> None:
    import socket

    server = world.serve(443, tls=True)
    world.name({"api.example.com": [PUBLIC, "93.184.216.35"]})
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        fill = [socket.socket() for _ in range(3)]
        for sock in fill:
            sock.setblocking(False)
            sock.connect_ex(full.getsockname())
        with anyio.fail_after(10):
            async with world.call(
                URL,
                dial=lambda address, port: (
                    full.getsockname() if address == PUBLIC else world.dial(address, port)
                ),
            ) as call:
                await call.fetch(FetchRequest("GET", URL))
                assert call.rows[0]["pinned"] == "93.184.216.35"
        for sock in fill:
            sock.close()
    assert len(server.seen) == 1


LIES: list[tuple[str, Said, str | None]] = [
    ("truncates over UDP", Misbehave.TRUNCATE, None),
    ("answers late", Misbehave.LATE, None),
    ("fails for AAAA only", [PUBLIC, "AAAA SERVFAIL"], None),
    ("says SERVFAIL", Misbehave.SERVFAIL, "no-answer"),
    ("says REFUSED", Misbehave.REFUSED, "no-answer"),
    ("says NXDOMAIN", Misbehave.NXDOMAIN, "no-answer"),
    ("says nothing", Misbehave.DROP, "no-answer"),
    ("sends garbage", Misbehave.GARBAGE, "no-answer"),
    ("sends half a message", Misbehave.HALF, "no-answer"),
    ("answers another question", Misbehave.WRONG_ID, "no-answer"),
    ("answers about another name", Misbehave.WRONG_NAME, "no-answer"),
    ("gives a long chain", ["CNAME c1.test"], "no-answer"),
    ("gives a chain of nine hops with its address", ["CNAME d8.test"], "no-answer"),
    ("gives a chain of eight hops with its address", ["CNAME d7.test"], None),
    ("gives private beside public", [PUBLIC, "fd00::1"], "mixed-answers"),
    ("gives a chain to a private address", ["CNAME inside.test"], "not-public"),
    ("gives a hundred addresses", [f"93.184.217.{n}" for n in range(100)], "no-answer"),
]


@pytest.mark.promise("broker:lying-dns-reaches-nothing")
@pytest.mark.parametrize(
    ("how", "said", "reason"),
    LIES,
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
async def test_a_name_server_that_lies_or_breaks_leads_to_no_unjudged_address(
    how: str, said: Said, reason: str | None, world: World
) -> None:
    world.serve(443, tls=True)
    chain: dict[str, Said] = {f"c{n}.test": [f"CNAME c{n + 1}.test"] for n in range(1, 30)}
    chain |= {f"d{n}.test": [f"CNAME d{n - 1}.test"] for n in range(1, 9)} | {"d0.test": [PUBLIC]}
    world.name({"api.example.com": said, "inside.test": ["10.1.2.3"], **chain})
    with anyio.fail_after(20):
        patience = Limits(resolve=5.0 if reason is None else 1.0)
        async with world.call(URL, limits=patience) as call:
            if reason is None:
                assert (await call.fetch(FetchRequest("GET", URL))).status == 200
                assert world.journal.dialled == [(PUBLIC, 443)]
            else:
                with pytest.raises(EgressRefused) as caught:
                    await call.fetch(FetchRequest("GET", URL))
                assert caught.value.reason == reason, caught.value
                assert world.journal.dialled == []
                expected = "EGRESS_CLOSED" if reason == "no-answer" else "EGRESS_DENIED"
                assert world.journal.kinds() == [expected]


async def test_answers_are_cached_for_their_ttl_and_judged_at_each_use(world: World) -> None:
    world.serve(443, tls=True)
    world.serve(80)
    dns = world.name({"api.example.com": ["10.0.0.5"]}, ttl=300)
    async with world.call("https://api.example.com +private", "http://api.example.com") as call:
        await call.fetch(FetchRequest("GET", URL))
        with pytest.raises(EgressRefused) as caught:  # the same cached answer, another entry, another verdict
            await call.fetch(FetchRequest("GET", "http://api.example.com/"))
    assert caught.value.reason == "not-public"
    assert len(dns.queries) == 2  # A and AAAA, once


@pytest.mark.promise("broker:deny-wins")
async def test_a_deny_entry_of_host_or_tool_outranks_every_allow_entry(world: World) -> None:
    dns = world.name(NAMES)
    async with world.call("https://api.example.com", "https://*", deny=["api.example.com"]) as call:
        with pytest.raises(EgressRefused) as caught:
            await call.fetch(FetchRequest("GET", URL))
    decision = caught.value.decision
    assert (decision.reason, decision.rule_text, decision.source) == (
        "denied-by-rule",
        "api.example.com",
        "tool-deny",
    )
    assert dns.queries == []


async def test_audit_mode_lets_the_unlisted_pass_and_says_what_it_would_have_said(world: World) -> None:
    world.serve(443, tls=True)
    world.name({**NAMES, "inside.test": ["10.0.0.1"]})
    async with world.call(mode="audit", deny=["evil.test"]) as call:
        await call.fetch(FetchRequest("GET", URL))
        assert call.rows[0] == {
            "outcome": "allow",
            "reason": None,
            "host": "api.example.com",
            "port": 443,
            "rule": None,
            "pinned": PUBLIC,
            "event_id": "e1",
            "would_deny": "not-listed",
        }
        for url, reason in (
            ("https://evil.test/", "denied-by-rule"),
            ("https://inside.test/", "not-public"),
            ("http://169.254.169.254/", "metadata"),
        ):
            with pytest.raises(EgressRefused) as caught:
                await call.fetch(FetchRequest("GET", url))
            assert caught.value.reason == reason


@pytest.mark.promise("broker:reload-ends-what-it-refuses")
async def test_a_fetch_under_way_ends_when_the_policy_drops_its_entry_or_the_call_ends(world: World) -> None:
    main = anyio.lowlevel.current_token()
    half = anyio.Event()

    def slow(seen: Seen) -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"
        anyio.from_thread.run_sync(half.set, token=main)
        stop.wait(10)

    stop = threading.Event()
    world.serve(443, slow, tls=True)
    world.name(NAMES)
    for reason in ("policy-changed", "no-call"):
        half = anyio.Event()
        async with world.call(URL) as call:
            refused: list[EgressRefused] = []

            async def ask(call: BrokerCall = call, refused: list[EgressRefused] = refused) -> None:
                with pytest.raises(EgressRefused) as caught:
                    await call.fetch(FetchRequest("GET", URL))
                refused.append(caught.value)

            with anyio.fail_after(10):
                async with anyio.create_task_group() as group:
                    group.start_soon(ask)
                    await half.wait()
                    if reason == "no-call":
                        await call.close()
                    else:
                        assert call.update_policy(EgressPolicy(generation=1)) == 1
            assert refused[0].reason == reason
    stop.set()


@pytest.mark.promise("broker:no-unjudged-address")
async def test_an_httpx_client_over_the_pinned_backend_dials_the_decided_host_only(world: World) -> None:
    import httpcore

    from fumehood.broker import EgressRequest, PinnedBackend, parse_url

    server = world.serve(443, tls=True)
    world.name(NAMES)
    async with world.call(URL) as call:
        permit = await call.authorize(EgressRequest(parse_url(URL), "GET"))
        backend = PinnedBackend(call.broker.dialer, permit.decision)
        async with httpcore.AsyncConnectionPool(ssl_context=call.broker.tls, network_backend=backend) as pool:
            assert (await pool.request("GET", URL)).status == 200
            with pytest.raises(httpcore.ConnectError, match="was not decided"):
                await pool.request("GET", "https://evil.test/")
        call.finished(permit)
    assert len(server.seen) == 1 and world.journal.dialled == [(PUBLIC, 443)]
