"""Inspecting mode: methods, paths and secrets inside TLS, for clients that only know a CA bundle."""

from __future__ import annotations

import datetime
import ipaddress
import json
import ssl
import threading
from pathlib import Path

import anyio
import pytest

from fumehood.broker import trust_environment
from fumehood.broker._inspect import InspectionAuthority
from fumehood.policies.names import canonical_host
from fumehood.testing.http import Reply, Seen
from tests.broker.netns import Namespace
from tests.broker.test_transparent import caged
from tests.broker.world import PUBLIC, World, rules

pytestmark = pytest.mark.anyio


def trusting(namespace: Namespace, authority: InspectionAuthority, tmp_path: Path) -> None:
    """Show the child the authority's bundle, as the host does."""
    (tmp_path / "bundle.pem").write_bytes(authority.bundle())
    namespace.env.update(trust_environment(str(tmp_path / "bundle.pem")))


@pytest.mark.promise("broker:inspection-enforces-inside-tls")
async def test_methods_paths_and_secrets_hold_inside_tls(world: World, tmp_path: Path) -> None:
    def answer(seen: Seen) -> Reply:
        return Reply(
            200,
            f"{seen.method} {seen.target} {seen.header('authorization')}".encode(),
            (("X-Echo", seen.header("authorization") or ""),),
        )

    server = world.serve(443, answer, tls=True)
    world.name({"*": [PUBLIC]})
    async with caged(world, "GET https://api.example.com/v1/ +inspect +ws", "https://other.example.com") as (
        call,
        namespace,
    ):
        secret = {
            "host": "api.example.com",
            "methods": ["GET"],
            "paths": ["/v1/"],
            "inspect": True,
            "secret": {"header": "Authorization", "value": "Bearer {TOKEN}"},
        }
        call.update_policy(type(call.policy)(allow=rules(secret, "https://other.example.com"), owner="tool"))
        call.broker.secrets = {"TOKEN": "s3cret-value"}.__getitem__
        trusting(namespace, call.broker.authority, tmp_path)
        fine = await namespace.run(
            "curl",
            "-sS",
            "-i",
            "--http1.1",
            "-H",
            "Authorization: Bearer mine",
            "https://api.example.com/v1/x",
        )
        assert fine.out.startswith("HTTP/1.1 200 OK") and "s3cret-value" not in fine.out
        assert "GET /v1/x Bearer ************" in fine.out and "X-Echo: Bearer ************" in fine.out
        for argv, reason in (
            (("https://api.example.com/v2",), "path"),
            (("-X", "POST", "https://api.example.com/v1/x"), "method"),
        ):
            done = await namespace.run("curl", "-sS", "-i", "--http1.1", *argv)
            assert done.out.startswith(f"HTTP/1.1 403 EGRESS_DENIED {reason}"), done
        other = await namespace.run(
            "curl", "-sS", "https://other.example.com/", env={"CURL_CA_BUNDLE": str(world.trust)}
        )
        assert other.code == 0, "an entry without +inspect shows the host's own certificate"
        python = await namespace.python(
            "import urllib.request as u; print(u.urlopen('https://api.example.com/v1/y').status)"
        )
        assert python.out.strip() == "200", python
    sent = [(seen.target, seen.header("authorization")) for seen in server.seen]
    assert sent == [("/v1/x", "Bearer s3cret-value"), ("/", None), ("/v1/y", "Bearer s3cret-value")]
    assert "s3cret-value" not in json.dumps(world.journal.events)


async def test_an_upstream_that_cannot_prove_its_name_is_a_502_and_not_passed_off_as_good(
    world: World, tmp_path: Path
) -> None:
    from fumehood.testing.http import HttpServer

    with HttpServer(tls=world.authority.context("wrong.example.com")) as server:
        world.ports[443] = server
        world.name({"*": [PUBLIC]})
        async with caged(world, "https://api.example.com +inspect") as (call, namespace):
            trusting(namespace, call.broker.authority, tmp_path)
            one = await namespace.run("curl", "-sS", "-i", "--http1.1", "https://api.example.com/")
            two = await namespace.run("curl", "-sS", "-i", "--http2", "https://api.example.com/")
            assert one.out.startswith("HTTP/1.1 502 EGRESS_FAILED upstream"), one
            assert two.out.startswith("HTTP/2 502") and "certificate is not valid" in two.out, two
        assert server.seen == []


async def test_a_client_that_does_not_trust_the_authority_is_told_by_its_own_tls(world: World) -> None:
    server = world.serve(443, tls=True)
    world.name({"*": [PUBLIC]})
    async with caged(world, "https://api.example.com +inspect") as (call, namespace):
        done = await namespace.run("curl", "-sS", "https://api.example.com/")
        assert done.code == 60
    assert server.connections == 0


def test_a_leaf_is_for_one_host_and_the_authority_signs_nothing_else(tmp_path: Path) -> None:
    authority = InspectionAuthority()
    first = authority.context(canonical_host("a.example"))
    assert authority.context(canonical_host("a.example")) is first
    client = ssl.create_default_context(cadata=authority.pem.decode())
    for host, name, good in (
        ("a.example", "a.example", True),
        ("a.example", "b.example", False),
        ("192.0.2.1", "192.0.2.1", True),
        ("[2606::1]", "2606::1", True),
    ):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        asking = client.wrap_bio(incoming, outgoing, server_hostname=name)
        answering = authority.context(canonical_host(host)).wrap_bio(outgoing, incoming, server_side=True)
        try:
            for _ in range(4):
                for side in (asking, answering):
                    try:
                        side.do_handshake()
                    except ssl.SSLWantReadError:
                        pass
            assert good
        except ssl.SSLCertVerificationError:
            assert not good
    assert authority.bundle().endswith(authority.pem) and authority.bundle().count(b"BEGIN CERTIFICATE") > 1
    assert b"PRIVATE" not in authority.bundle()


async def test_an_inspected_connection_carries_bodies_both_ways(world: World, tmp_path: Path) -> None:
    world.serve(443, lambda seen: Reply(200, seen.body[::-1]), tls=True)
    world.name({"*": [PUBLIC]})
    code = """
import urllib.request as u, os
body = os.urandom(3_000_000)
print(u.urlopen(u.Request("https://api.example.com/", body)).read() == body[::-1])
"""
    async with caged(world, "https://api.example.com +inspect") as (call, namespace):
        trusting(namespace, call.broker.authority, tmp_path)
        with anyio.fail_after(30):
            done = await namespace.python(code)
    assert done.out.strip() == "True", done


def test_a_leaf_says_what_a_server_of_one_host_may_and_for_how_long() -> None:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    authority = InspectionAuthority()
    root = x509.load_pem_x509_certificate(authority.pem)
    now = datetime.datetime.now(datetime.UTC)
    minute, day = datetime.timedelta(minutes=1), datetime.timedelta(days=1)
    for host, name in (
        ("a.example", x509.DNSName("a.example")),
        ("xn--bcher-kva.example", x509.DNSName("xn--bcher-kva.example")),
        ("192.0.2.1", x509.IPAddress(ipaddress.ip_address("192.0.2.1"))),
        ("[2606::1]", x509.IPAddress(ipaddress.ip_address("2606::1"))),
    ):
        leaf = x509.load_der_x509_certificate(shown(authority, host))
        leaf.verify_directly_issued_by(root)
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
        assert list(names.value) == [name] and names.critical == (len(leaf.subject) == 0)
        usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
        assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        keys = leaf.extensions.get_extension_for_class(x509.KeyUsage).value
        assert keys.digital_signature and not keys.key_cert_sign
        assert now - 6 * minute <= leaf.not_valid_before_utc <= now - 5 * minute + minute / 6
        assert day <= leaf.not_valid_after_utc - now <= day + 6 * minute
        assert root.not_valid_before_utc <= leaf.not_valid_before_utc
        assert leaf.not_valid_after_utc < root.not_valid_after_utc
    assert root.extensions.get_extension_for_class(x509.BasicConstraints).value.path_length == 0
    assert root.not_valid_after_utc - now > 3000 * day, "a host that runs for years goes on inspecting"


def test_a_leaf_is_made_anew_before_it_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from fumehood.broker import _inspect

    monkeypatch.setattr(_inspect, "LEAF_LIFE", datetime.timedelta(seconds=-1))
    authority = InspectionAuthority()
    first = authority.context(canonical_host("a.example"))
    monkeypatch.setattr(_inspect, "LEAF_LIFE", datetime.timedelta(days=1))
    second = authority.context(canonical_host("a.example"))
    assert second is not first
    assert authority.context(canonical_host("a.example")) is second  # control


def shown(authority: InspectionAuthority, host: str) -> bytes:
    """The certificate that a client of this host is shown."""
    client = ssl.create_default_context(cadata=authority.pem.decode())
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(incoming, outgoing, server_hostname=host.strip("[]"))
    answering = authority.context(canonical_host(host)).wrap_bio(outgoing, incoming, server_side=True)
    for _ in range(4):
        for side in (asking, answering):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
    leaf = asking.getpeercert(binary_form=True)
    assert leaf is not None
    return leaf


WEBSOCKET = """
import asyncio, json, websockets
async def main():
    async with websockets.connect("wss://api.example.com/v1/live") as one:
        await one.send("over http/1.1")
        heard = await one.recv()
    try:
        async with websockets.connect("wss://api.example.com/v2"):
            pass
    except Exception as error:
        print(json.dumps([heard, str(error)]))
asyncio.run(main())
"""


async def test_websockets_pass_where_the_entry_says_so_and_paths_hold_for_them(
    world: World, tmp_path: Path
) -> None:
    from websockets.sync.server import serve

    context = world.authority.context("api.example.com")
    with serve(lambda peer: peer.send(str(peer.recv())[::-1]), "127.0.0.1", 0, ssl=context) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        world.name({"*": [PUBLIC]})
        async with caged(world, "https://api.example.com/v1/ +inspect +ws") as (call, namespace):
            call.broker.dialer._map = lambda *_: server.socket.getsockname()
            trusting(namespace, call.broker.authority, tmp_path)
            done = await namespace.python(WEBSOCKET)
        server.shutdown()
    heard, refused = json.loads(done.out or "null") or ("", "")
    assert heard == "over http/1.1"[::-1] and "403" in refused, done


PRIOR = r"""
import json, socket, ssl, sys
out = []
for port, tls in ((80, False), (443, True), (3128, False)):
    host = "127.0.0.1" if port == 3128 else "api.example.com"
    s = socket.create_connection((host, port), timeout=5)
    if tls:
        s = ssl.create_default_context().wrap_socket(s, server_hostname=host)
    s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5))
    got = s.makefile("rb").read()
    code, words = int.from_bytes(got[22:26], "big"), got[26:60].decode()
    out.append([got[:9] == bytes(3) + b"\4" + bytes(5), got[12], code, words])
print(json.dumps(out))
"""


async def test_http2_that_was_not_agreed_on_is_told_to_come_back_in_http11(
    world: World, tmp_path: Path
) -> None:
    server = world.serve(80)
    world.serve(443, tls=True)
    world.name({"*": [PUBLIC]})
    async with caged(world, "http://api.example.com", "https://api.example.com +inspect") as (
        call,
        namespace,
    ):
        trusting(namespace, call.broker.authority, tmp_path)
        done = await namespace.python(PRIOR)
        assert json.loads(done.out or "null") == [[True, 7, 13, "EGRESS_DENIED scheme: HTTP/2 was n"]] * 3, (
            done
        )
        known = ("curl", "-sS", "--http2-prior-knowledge", "http://api.example.com/")
        assert (await namespace.run(*known)).code != 0
        assert (
            await namespace.run("curl", "-sS", "--http2", known[-1])
        ).code == 0  # control: an offer, no claim
        refused = [row["reason"] for row in call.rows if row["outcome"] == "deny"]
        assert refused[:4] == ["scheme"] * 4
    assert len(server.seen) == 1
