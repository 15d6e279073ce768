"""What a hostile review broke in the decision and in the verbs that show it. No network."""

from __future__ import annotations

import difflib
import json
import tomllib
from pathlib import Path

import pytest

from fumehood.broker import _decide, decide, import_policy, match
from fumehood.broker._addresses import AddressClass, judge_address, parse_address
from fumehood.broker._verdict import verdict
from tests.broker.test_decide import answers, ask
from tests.broker.world import PUBLIC, policy
from tests.host.cli import Cli

STEPS_UP = [
    "/v1/%c0%ae%c0%ae/x",
    "/v1/..%c0%afx",
    "/v1/%e0%80%ae%E0%80%AE/x",
    "/v1/\uff0e\uff0e/x",
    "/v1/..%ef%bc%8fx",
    "/v1/..;/x",
    "/v1/..;a=b/x",
    "/v1/%2e%2e;/x",
    "/v1/..%3b/x",
    "/v1/..%253b/x",
    "/v1/.%0d./x",
    "/v1/..%20/x",
]


@pytest.mark.parametrize("path", STEPS_UP)
def test_dots_that_some_server_reads_as_a_step_up_leave_the_prefix(path: str) -> None:
    found = decide(policy("https://a.example/v1/"), ask(f"https://a.example{path}"), answers(PUBLIC))
    assert found.reason == "path"


@pytest.mark.parametrize("path", ["/v1/a;b", "/v1/a..b;c/d", "/v1/...;/x", "/v1/a%0Ab", "/v1/x;.."])
def test_parameters_and_dots_that_step_nowhere_pass(path: str) -> None:
    found = decide(policy("https://a.example/v1/"), ask(f"https://a.example{path}"), answers(PUBLIC))
    assert found.reason is None


@pytest.mark.parametrize(
    "path",
    [
        "//admin",
        "/admin;x",
        "/;/admin",
        "/x/..;/admin",
        "/%2561dmin",
        "/ADMIN;a/x",
        "///admin//x",
        "/admi%6e",
    ],
)
def test_a_denied_path_is_denied_in_every_spelling_that_some_server_routes_there(path: str) -> None:
    rules = policy("https://a.example", deny=["https://a.example/admin"])
    assert decide(rules, ask(f"https://a.example{path}"), answers(PUBLIC)).reason == "denied-by-rule"
    for other in ("/administrator", "/x/admin", "/"):
        assert decide(rules, ask(f"https://a.example{other}"), answers(PUBLIC)).reason is None


def test_a_denied_raw_port_is_denied_to_https_too() -> None:
    rules = policy("https://a.example", deny=["tcp://a.example:443"])
    assert decide(rules, ask("https://a.example/"), answers(PUBLIC)).reason == "denied-by-rule"


def test_an_ipv4_address_behind_nat64_is_the_address_that_is_denied_or_our_own() -> None:
    behind = "64:ff9b::5db8:d822"
    denied = policy("https://a.example", deny=[PUBLIC])
    assert decide(denied, ask("https://a.example/"), answers(behind)).reason == "denied-by-rule"
    own = frozenset([parse_address(PUBLIC)])
    found = decide(policy("https://a.example"), ask("https://a.example/"), answers(behind), own)
    assert found.reason == "not-public"


@pytest.mark.parametrize(
    "address",
    ["fd00:a9fe:a9fe::1", "64:ff9b:1:a9fe:a9:fe00::", "64:ff9b:1:0:a9:fea9:fe00:0", "64:ff9b:1:64:64:64c8::"],
)
def test_more_forms_of_metadata_addresses(address: str) -> None:
    assert judge_address(parse_address(address)).kind is AddressClass.METADATA


def test_aliases_of_localhost_are_no_ordinary_names() -> None:
    for name in ("localhost6.localdomain6", "localhost4.localdomain4"):
        assert verdict(policy("http://*"), f"http://{name}/", dns={"*": [PUBLIC]}).reason == "not-listed"


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ("CONNECT a.example.:443 | Host: a.example.:443 | SNI a.example", None),  # curl, of a dotted name
        ("CONNECT a.example:443 | Host: A.example. | SNI a.example", None),
        ("CONNECT a.example:443 | Host: a.example:8443", "malformed"),
        ("CONNECT  a.example:443", "malformed"),
        ("CONNECT a.example:443\n", "malformed"),
        ("CONNECT a.example:443 | plaintext GET / HTTP/1.1", "scheme"),
        ("CONNECT a.example:443 | SSH-2.0 bytes", "scheme"),
        ("https://a.example/ then, after the TTL, https://a.example/", "not-public"),
        ("GET http://a.example:8080/ HTTP/1.1\r\nHost: a.example.:8080\r\n\r\n", None),
        ("GET http://a.example:8080/ HTTP/1.1\r\nHost: a.example\r\n\r\n", "malformed"),
    ],
)
def test_the_verdict_reads_a_request_as_the_doors_do(request_: str, reason: str | None) -> None:
    rules = policy("https://a.example", "http://a.example:8080")
    assert verdict(rules, request_, dns={"*": {"sequence": [[PUBLIC], ["127.0.0.1"]]}}).reason == reason


def test_names_of_answers_may_be_written_as_people_write_them() -> None:
    for name in ("bücher.example", "xn--bcher-kva.example", "XN--BCHER-KVA.example."):
        found = verdict(policy("https://bücher.example"), "https://bücher.example/", dns={name: [PUBLIC]})
        assert found.pinned == PUBLIC
    for failure in ("NXDOMAIN", "SERVFAIL", "TIMEOUT"):
        assert (
            verdict(policy("https://a.example"), "https://a.example/", dns={"*": [failure]}).reason
            == "no-answer"
        )


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"[" * 100_000, b'{"request": "x", "method": 5}'])
def test_a_batch_that_cannot_be_read_is_bad_usage_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    file = tmp_path / "batch.jsonl"
    if content is not None:
        file.write_bytes(content)
    done = Cli(tmp_path, capsys, monkeypatch)("policy", "test", "--batch", str(file))
    assert done.code == 2 and "batch.jsonl" in done.err.replace("\n", "")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[" * 100_000])
def test_a_policy_that_cannot_be_read_is_bad_usage_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    file = tmp_path / "policy.json"
    file.write_bytes(content)
    done = Cli(tmp_path, capsys, monkeypatch)("policy", "import", "--from", "srt", str(file))
    assert done.code == 2 and "policy.json" in done.err.replace("\n", "")


def test_imported_rules_are_toml_whatever_they_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = json.dumps({"network": {"allowedDomains": ["\U00020000.example"]}})
    parsed = tomllib.loads(import_policy("srt", text).toml())
    assert parsed["tools"]["imported"]["egress"] == ["\U00020000.example", "http://\U00020000.example"]
    bad = Cli(tmp_path, capsys, monkeypatch)("policy", "import", "--from", "srt", "--tool", "a b", __file__)
    assert bad.code == 2 and "'a b'" in bad.err


def test_comments_and_trailing_commas_of_editors_are_read() -> None:
    text = '{ // a "comment"\n "networkPolicy": {"allow": ["a.com", /* , */ "b//c.com",], } }'
    found = import_policy("cursor", text)
    assert found.tools["imported"] == ["a.com", "http://a.com"] and "b//c.com" in found.notes[0]


def test_lists_of_an_acl_may_stand_on_one_line() -> None:
    found = import_policy("smokescreen", "services:\n  - name: a\n    allowed_domains: [b.com, '*.c.com']\n")
    assert found.tools == {"a": ["b.com", "*.c.com"]}


def test_a_path_is_read_once_for_all_rules_and_a_name_compared_with_a_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a tool may ask about without end costs no more for each rule than a look."""
    compared: list[int] = []
    close = difflib.get_close_matches

    def counting(word: str, among: list[str], n: int, cutoff: float) -> list[str]:
        compared.append(len(among))
        return close(word, among, n=n, cutoff=cutoff)

    monkeypatch.setattr(difflib, "get_close_matches", counting)
    many = policy(*(f"https://host-{number}.a.example" for number in range(1000)))
    assert match(many, ask("https://hots-123.a.example/")).hint == "the nearest entry is 'host-123.a.example'"
    assert compared and compared[0] <= 8
    limited = policy(
        *(f"https://a.example/v{number}/" for number in range(200)),
        deny=[f"https://a.example/v{number}/x" for number in range(200)],
    )
    path = "/v7/" + "%2541/" * 2000
    for readings in (_decide._reads_twice, _decide._plain, _decide._served):
        readings.cache_clear()
    assert match(limited, ask(f"https://a.example{path}")).reason is None
    assert [one.cache_info().misses for one in (_decide._reads_twice, _decide._plain, _decide._served)] == [
        1,
        1,
        1,
    ]
