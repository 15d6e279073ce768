"""Properties of every parser that reads a child's or a peer's bytes: any input is read one way or refused,
however it is cut into pieces.

`make soak` runs the same properties for longer (FUMEHOOD_EXAMPLES).
"""

from __future__ import annotations

import asyncio
import gzip
import os
import ssl
import zlib

import brotli  # type: ignore[import-untyped]
import dns.message
import h11
import pytest
import zstandard
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from fumehood.broker import policy_verdict
from fumehood.broker._addresses import parse_address
from fumehood.broker._body import BodyReader
from fumehood.broker._decode import BadCoding, decoder_for
from fumehood.broker._dns_message import BadMessage, address_record, answer, read_question, reversed_address
from fumehood.broker._head import BadHead, RequestHead, find_end, parse_request_head
from fumehood.broker._hello import BadHello, HelloReader, looks_like_tls, read_hello
from fumehood.broker._names import SyntheticNames
from fumehood.policies.errors import ConfigError
from tests.broker.clients import hello
from tests.broker.world import policy

EXAMPLES = int(os.environ.get("FUMEHOOD_EXAMPLES", "150"))
many = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])

LINES = st.sampled_from(
    [
        b"Host: a.example",
        b"Host: b.example",
        b"Content-Length: 4",
        b"Content-Length: +4",
        b"Transfer-Encoding: chunked",
        b"Transfer-Encoding: gzip, chunked",
        b"X: y",
        b" folded",
        b"X : y",
        b": z",
        b"Connection: close",
        b"Expect: 100-continue",
        b"X: \xff",
        b"X: a\rb",
        b"X: a\nContent-Length: 9",
        b"\x00: x",
    ]
)
ENDS = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r"])
FIRST = st.sampled_from(
    [
        b"GET / HTTP/1.1",
        b"POST /x HTTP/1.1",
        b"GET / HTTP/1.0",
        b"get / HTTP/1.1",
        b"GET  / HTTP/1.1",
        b"GET /\t HTTP/1.1",
        b"GET / HTTP/2.0",
        b"GET http://a.example/ HTTP/1.1",
        b"\r\nGET / HTTP/1.1",
        b"GET /",
    ]
)


@st.composite
def heads(draw: st.DrawFn) -> bytes:
    parts = [draw(FIRST), *draw(st.lists(LINES, max_size=5))]
    return b"".join(part + draw(ENDS) for part in parts) + b"\r\n"


def verdict_on_head(data: bytes, places: list[int]) -> int | str:
    """Where the head ends, or that something is wrong with it, when it comes in these pieces."""
    seen, so_far = 0, b""
    try:
        for piece in cut(data, places):
            so_far += piece
            if (end := find_end(so_far, seen)) >= 0:
                return end
            seen = len(so_far)
    except BadHead:
        return "bad"
    return -1


@pytest.mark.parametrize("target", [b"/caf\xc3\xa9", b"/a\tb", b"/\xff", b"/\0"])
def test_a_target_that_is_not_percent_encoded_is_told_what_to_do(target: bytes) -> None:
    with pytest.raises(BadHead, match="percent-encode"):
        parse_request_head(b"GET " + target + b" HTTP/1.1\r\nHost: a.example\r\n\r\n")
    assert parse_request_head(b"GET /caf%C3%A9 HTTP/1.1\r\nHost: a.example\r\n\r\n").target == "/caf%C3%A9"


@many
@given(heads() | st.binary(max_size=60), st.lists(st.integers(0, 200), max_size=8))
def test_a_head_in_pieces_ends_where_it_ends_in_one(data: bytes, places: list[int]) -> None:
    assert verdict_on_head(data, places) == verdict_on_head(data, [])


@pytest.mark.promise("broker:no-request-smuggling")
@many
@given(heads() | st.binary(max_size=200).map(lambda data: data + b"\r\n\r\n"))
def test_a_head_that_is_read_means_the_same_to_another_parser(data: bytes) -> None:
    try:
        end = find_end(data)
        assume(end > 0)
        head = parse_request_head(data[:end])
    except BadHead as bad:
        assert bad.status in (400, 431, 505)
        return
    server = h11.Connection(h11.SERVER)
    server.receive_data(data[:end])
    event = server.next_event()
    assert isinstance(event, h11.Request)
    assert (event.method.decode(), event.target.decode()) == (head.method, head.target)
    ours = [(name.lower().encode(), value.encode("latin-1")) for name, value in head.headers]
    assert [(name, value) for name, value in event.headers] == ours
    framed = h11._headers.get_comma_header(event.headers, b"transfer-encoding") == [b"chunked"]
    assert framed == head.chunked
    assert head.chunked or head.length is not None


def read_body(head: RequestHead, pieces: list[bytes]) -> tuple[bytes, bytes, tuple[tuple[str, str], ...]]:
    waiting = list(pieces)

    async def read() -> bytes:
        return waiting.pop(0) if waiting else b""

    async def main() -> tuple[bytes, bytes, tuple[tuple[str, str], ...]]:
        reader = BodyReader(head, b"", read)
        body = b"".join([piece async for piece in reader])
        return body, reader.rest + b"".join(waiting), reader.trailers

    return asyncio.run(main())


def cut(data: bytes, places: list[int]) -> list[bytes]:
    marks = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in zip(marks, marks[1:], strict=False) if data[a:b]]


CHUNKED = RequestHead("POST", "/", "1.1", (("Host", "a"),), None, True)


@many
@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=5),
    st.lists(st.integers(0, 400), max_size=8),
    st.booleans(),
)
def test_a_chunked_body_is_the_same_however_it_arrives(
    chunks: list[bytes], places: list[int], trailer: bool
) -> None:
    data = (
        b"".join(b"%x;ext=1\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
        + b"0\r\n"
        + b"X-Sum: 1\r\n" * trailer
        + b"\r\n"
    )
    body, rest, trailers = read_body(CHUNKED, cut(data + b"next", places))
    assert (body, rest) == (b"".join(chunks), b"next")
    assert trailers == ((("X-Sum", "1"),) if trailer else ())


@many
@given(
    st.binary(max_size=120)
    | st.lists(
        st.sampled_from(
            [
                b"3\r\nabc\r\n",
                b"3\nabc\n",
                b"0\r\n\r\n",
                b"g\r\n",
                b"3\r\nabcd\r\n",
                b"0\r\nHost: x\r\n\r\n",
                b"fffffffffffff\r\n",
                b"-1\r\n",
            ]
        ),
        max_size=4,
    ).map(b"".join)
)
def test_any_bytes_are_a_chunked_body_or_a_broken_one(data: bytes) -> None:
    try:
        body, _, _ = read_body(CHUNKED, [data])
    except BadHead:
        return
    assert len(body) <= len(data)


@many
@given(
    st.binary(max_size=300) | st.binary(max_size=300).map(lambda data: b"\x16\x03\x01" + data),
    st.integers(0, 300),
)
def test_any_bytes_are_a_hello_or_not_one(data: bytes, at: int) -> None:
    looks_like_tls(data[:at])
    try:
        read_hello(data)
    except BadHello:
        pass


@many
@given(
    st.sampled_from(["a.example", "API.example.com", None]),
    st.integers(0, 3000),
    st.integers(1, 3000),
    st.booleans(),
    st.data(),
)
def test_a_hello_reads_the_same_in_any_records_and_any_prefix_of_it_waits(
    name: str | None, pad: int, record: int, ech: bool, data: st.DataObject
) -> None:
    whole = hello(name, pad=pad, record=record, ech=ech)
    found = read_hello(whole)
    assert found is not None
    assert (found.server_name, found.ech) == (name.lower() if name else None, ech)
    assert read_hello(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None
    reader, places = HelloReader(), sorted({*data.draw(st.lists(st.integers(0, len(whole)))), len(whole)})
    assert [reader.read(whole[:place]) for place in places][-1] == found
    broken = bytearray(whole)
    broken[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        read_hello(bytes(broken))
    except BadHello:
        pass


def test_the_hello_of_a_real_client_is_read() -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2", "http/1.1"])
    client = context.wrap_bio(incoming, outgoing, server_hostname="real.example")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    data = outgoing.read()
    found = read_hello(data)
    assert found is not None and looks_like_tls(data)
    assert (found.server_name, found.alpn) == ("real.example", ("h2", "http/1.1"))


def test_a_hello_with_two_names_or_two_lists_or_a_tail_is_refused() -> None:
    good = hello("a.example")
    doubled = hello("a.example")[43:]
    assert doubled  # the shape below is built by hand
    body = good[9:]
    extension = body[body.index(b"\0\0\0\x0e") :][:18]
    twice = body[:41] + (len(body) - 43 + 18).to_bytes(2, "big") + extension + body[43:]
    message = b"\1" + len(twice).to_bytes(3, "big") + twice
    with pytest.raises(BadHello, match="twice"):
        read_hello(b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message)
    with pytest.raises(BadHello, match="follow"):
        read_hello(good[:3] + (len(good) - 5 + 1).to_bytes(2, "big") + good[5:] + b"x")
    with pytest.raises(BadHello, match="no ClientHello"):
        read_hello(good[:5] + b"\2" + good[6:])


@many
@given(
    st.binary(max_size=100)
    | st.binary(max_size=60).map(lambda data: b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + data)
)
def test_any_datagram_is_a_question_or_a_bad_message(data: bytes) -> None:
    try:
        question = read_question(data)
    except BadMessage as bad:
        assert bad.answer is None or len(bad.answer) == 12
        return
    reply = answer(question)
    assert reply[:2] == data[:2] and reply[2] & 0x80 and question.raw in reply


@many
@given(
    st.from_regex(r"[a-zA-Z0-9]{1,20}(\.[a-z0-9-]{1,20}){0,4}", fullmatch=True),
    st.sampled_from(["A", "AAAA", "TXT", "HTTPS"]),
    st.booleans(),
)
def test_an_answer_is_a_right_message_to_another_implementation(name: str, kind: str, edns: bool) -> None:
    query = dns.message.make_query(name, kind, use_edns=0 if edns else False)
    question = read_question(query.to_wire())
    assert question.name == name.lower() and question.edns == edns
    records = (
        (address_record(parse_address("198.18.0.1")),)
        if kind == "A"
        else (address_record(parse_address("fd66::1")),)
        if kind == "AAAA"
        else ()
    )
    reply = dns.message.from_wire(answer(question, 0, records))
    assert query.is_response(reply)
    assert [str(item) for rrset in reply.answer for item in rrset] == {
        "A": ["198.18.0.1"],
        "AAAA": ["fd66::1"],
    }.get(kind, [])
    assert (reply.edns == 0) == edns


def test_reverse_names_are_read_for_both_families() -> None:
    assert reversed_address("1.0.18.198.in-addr.arpa") == "198.18.0.1"
    six = ".".join(reversed("fd66756d65686f640000000000000001")) + ".ip6.arpa"
    assert six.count(".") == 33
    address = reversed_address(six)
    assert address is not None and parse_address(address) == parse_address("fd66:756d:6568:6f64::1")
    for other in ("a.example", "0.18.198.in-addr.arpa", "x.ip6.arpa"):
        assert reversed_address(other) is None


PACKERS = {"gzip": gzip.compress, "deflate": zlib.compress, "br": brotli.compress, "zstd": zstandard.compress}


@many
@given(
    st.sampled_from(sorted(PACKERS)),
    st.binary(max_size=4000),
    st.integers(1, 60),
    st.lists(st.integers(0, 5000), max_size=6),
)
def test_a_coded_body_decodes_the_same_however_it_arrives(
    coding: str, data: bytes, times: int, places: list[int]
) -> None:
    decoder = decoder_for(coding)
    assert decoder is not None
    out = b"".join(
        part for piece in cut(PACKERS[coding](data * times), places) for part in decoder.feed(piece)
    )
    decoder.finish()
    assert out == data * times


@many
@given(st.sampled_from(sorted(PACKERS)), st.binary(max_size=400))
def test_any_bytes_decode_or_are_a_bad_coding(coding: str, data: bytes) -> None:
    decoder = decoder_for(coding)
    assert decoder is not None
    try:
        for part in decoder.feed(data):
            assert len(part) <= 128 * 1024
        decoder.finish()
    except BadCoding:
        pass


@many
@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["ask", "hold", "release"])), max_size=80))
def test_an_address_in_use_never_changes_its_name(steps: list[tuple[int, str]]) -> None:
    names = SyntheticNames(capacity=8)
    held: dict[str, list[object]] = {}
    for number, step in steps:
        name = f"n{number}.example"
        if step == "ask":
            pair = names.addresses(name)
            if pair is not None:
                assert {names.name_of(address) for address in pair} == {name}
        elif step == "hold" and (pair := names.addresses(name)) is not None:
            names.hold(pair[0])
            held.setdefault(name, []).append(pair[0])
        elif step == "release" and held.get(name):
            address = held[name].pop()
            names.release(address)  # type: ignore[arg-type]
        for owner, addresses in held.items():
            for address in addresses:
                assert names.name_of(address) == owner  # type: ignore[arg-type]
        assert len(names) <= 8


@many
@given(
    st.text(max_size=60)
    | st.from_regex(
        (
            r"(CONNECT |GET |socks5://)?[a-z:/.\[\]0-9@ -]{0,40}( \| (Host|SNI): ?[a-z.:]*)?( -> 302 "
            r"Location: .{0,20})?"
        ),
        fullmatch=True,
    ),
    st.dictionaries(
        st.sampled_from(["*", "a.example"]),
        st.lists(
            st.sampled_from(["93.184.216.34", "CNAME a.example", "CNAME b", "AAAA SERVFAIL", "::1"]),
            max_size=3,
        ),
    ),
)
def test_any_request_text_has_a_verdict(text: str, dns_: dict[str, list[str]]) -> None:
    found = policy_verdict(policy("https://*.example", "tcp://a.example:22 +private"), text, dns=dns_)
    assert (found.outcome == "allow") == (found.reason is None)


def test_an_answer_that_is_no_address_is_the_operators_mistake() -> None:
    with pytest.raises(ConfigError):
        policy_verdict(policy("https://a.example"), "https://a.example/", dns={"*": ["nonsense"]})
