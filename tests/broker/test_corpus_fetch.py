"""The corpus rows that the fetch door can play:

verdict and a fitting reason, over real DNS and real servers on loopback.
"""

from __future__ import annotations

import anyio
import pytest

from fumehood.broker import EgressRefused, FetchRequest
from fumehood.testing.http import Reply, Seen
from tests.broker.world import PUBLIC, Row, World, corpus

pytestmark = pytest.mark.anyio

GRAMMAR = {"malformed", "ambiguous-url"}
FITTING: dict[str, set[str]] = {
    "authority": GRAMMAR,
    "dns": {"not-public", "metadata", "mixed-answers", "no-answer", "malformed"},
    "idna": GRAMMAR,
    "ipv4": GRAMMAR | {"not-listed", "metadata"},
    "ipv6": {"not-listed", "metadata"},
    "match": {"not-listed", "port", "method", *GRAMMAR},
    "names": {"not-listed"},
    "path": {"path"},
    "port": {"port", *GRAMMAR},
    "scheme": {"scheme"},
    "cred": {"malformed"},
    "redirect": {
        "not-listed",
        "port",
        "scheme",
        "ambiguous-url",
        "malformed",
        "too-many-redirects",
        "path",
    },
}
EXACT = {
    "dns-001": "not-public",
    "dns-003": "mixed-answers",
    "dns-004": "metadata",
    "dns-005": "not-public",
    "dns-006": "not-public",
    "dns-007": "not-public",
    "dns-010": "not-public",
    "dns-011": "metadata",
    "dns-012": "no-answer",
    "dns-013": "no-answer",
    "dns-014": "not-public",
    "ipv4-019": "metadata",
    "ipv4-021": "metadata",
    "ipv4-022": "metadata",
    "ipv6-018": "metadata",
    "match-010": "port",
    "match-012": "method",
    "redirect-004": "not-listed",
    "redirect-007": "not-listed",
    "redirect-008": "not-listed",
    "redirect-009": "port",
    "redirect-010": "scheme",
    "redirect-012": "ambiguous-url",
    "redirect-013": "ambiguous-url",
    "redirect-016": "too-many-redirects",
    "redirect-017": "path",
}


def as_fetch(text: str) -> FetchRequest:
    """A url row's request: `[METHOD ]URL[ with Header: value| with two X headers]`."""
    url, _, with_ = text.partition(" with ")
    method, headers = "GET", []
    first, blank, rest = url.partition(" ")
    if blank and first.isupper() and first.isalpha():
        method, url = first, rest
    if with_.startswith("two "):
        name = with_.split()[1]
        headers = [(name, "Bearer a"), (name, "Bearer b")]
    elif with_:
        name, _, value = with_.partition(": ")
        headers = [(name, value)]
    return FetchRequest(method, url, tuple(headers))


def check_refusal(row: Row, refused: EgressRefused, world: World) -> None:
    reason = refused.decision.reason
    assert reason in FITTING[row.id.split("-")[0]], refused
    if row.id in EXACT:
        assert reason == EXACT[row.id], refused
    last = world.journal.events[-1] if row.kind == "url" else None
    if last is not None:
        assert last["kind"] == ("EGRESS_CLOSED" if reason == "no-answer" else "EGRESS_DENIED")
        assert (last["id"], last["data"]["reason"]) == (refused.event_id, reason)
        assert world.journal.dialled == [], "a refused request dials nothing"


def is_never_asked(reason: str | None) -> bool:
    """Whether a refusal for this reason comes before any DNS query."""
    return reason not in ("not-public", "metadata", "mixed-answers", "no-answer")


@pytest.mark.promise("broker:refused-name-never-resolved")
@pytest.mark.promise("broker:no-unjudged-address")
@pytest.mark.promise("broker:every-refusal-has-a-reason")
@pytest.mark.requirement("R470")
@pytest.mark.parametrize("row", corpus("url"), ids=lambda row: row.id)
async def test_each_url_row_has_its_verdict_and_a_fitting_reason(row: Row, world: World) -> None:
    world.serve(443, tls=True)
    world.serve(8443, tls=True)
    world.serve(80)
    world.serve(3000)
    dns = world.name(row.dns)
    with anyio.fail_after(20):
        async with world.call(*row.policy) as call:
            if row.expected == "allow":
                reply = await call.fetch(as_fetch(row.request))
                assert reply.status == 200
                assert call.rows[0]["outcome"] == "allow" and call.hosts
                assert world.journal.entries[0] == ("record", "EGRESS_ALLOWED")
            else:
                with pytest.raises(EgressRefused) as caught:
                    await call.fetch(as_fetch(row.request))
                check_refusal(row, caught.value, world)
                assert call.hosts == ()
                if is_never_asked(caught.value.reason):
                    assert dns.queries == []


@pytest.mark.promise("broker:rebinding-changes-nothing")
@pytest.mark.requirement("R024")
@pytest.mark.parametrize("row", corpus("url-twice"), ids=lambda row: row.id)
async def test_a_name_that_rebinds_between_two_requests_is_judged_again(row: Row, world: World) -> None:
    world.serve(443, tls=True)
    world.name(row.dns)
    async with world.call(*row.policy) as call:
        assert (await call.fetch(FetchRequest("GET", "https://api.example.com/"))).status == 200
        with pytest.raises(EgressRefused) as caught:
            await call.fetch(FetchRequest("GET", "https://api.example.com/"))
    assert caught.value.reason == "not-public"
    assert world.journal.dialled == [(PUBLIC, 443)]


@pytest.mark.promise("broker:redirect-decided-again")
@pytest.mark.requirement("R471")
@pytest.mark.parametrize("row", corpus("redirect"), ids=lambda row: row.id)
async def test_each_redirect_row_is_followed_or_refused_hop_by_hop(row: Row, world: World) -> None:
    first, _, then = row.request.partition(" -> ")
    request = as_fetch(first)

    def answer(seen: Seen) -> Reply:
        if "hops" in then:
            return Reply.redirect(f"/{int(seen.path[1:]) + 1}")
        if seen.path in ("/start", "/submit"):
            status, _, location = then.partition(" Location: ")
            return Reply.redirect(location, int(status))
        return Reply(200, b"end")

    server = world.serve(443, answer, tls=True)
    world.serve(80, answer)
    dns = world.name(row.dns)
    async with world.call(*row.policy) as call:
        if row.expected == "allow":
            reply = await call.fetch(request)
            assert (reply.status, reply.body) == (200, b"end")
            assert [r["outcome"] for r in call.rows] == ["allow", "allow"]
        else:
            with pytest.raises(EgressRefused) as caught:
                await call.fetch(request)
            check_refusal(row, caught.value, world)
            assert call.rows[-1]["reason"] == caught.value.reason
            assert set(dns.names) == {"api.example.com"}
            assert len(server.seen) == (11 if "hops" in then else 1)
