"""The ordinary answer and request, read and written without h11: never other than h11 would."""

from __future__ import annotations

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fumehood.broker._plain_answer import PlainAnswer, read_plain, write_plain

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def read(data: bytes, method: str = "GET") -> PlainAnswer | None:
    return read_plain(data, method, most_bytes=64 * 1024, most_lines=256)


def by_h11(data: bytes, method: str) -> tuple[object, ...] | None:
    """Status, phrase, headers, body so far, whether the answer is whole, whether the connection is kept."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=64 * 1024)
    connection.send(h11.Request(method=method, target="/", headers=[("Host", "a.example")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(data)
    head = connection.next_event()
    if not isinstance(head, h11.Response):
        return None
    body = b""
    while isinstance(event := connection.next_event(), h11.Data):
        body += bytes(event.data)
    headers = tuple(
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers.raw_items()
    )
    whole = isinstance(event, h11.EndOfMessage)
    return (
        head.status_code,
        head.reason.decode("latin-1"),
        headers,
        body,
        whole,
        (connection.their_state is h11.DONE if whole else None),
    )


LINES = st.sampled_from(
    [
        b"HTTP/1.1 200 OK", b"HTTP/1.1 204 No Content", b"HTTP/1.1 304 ", b"HTTP/1.1 404", b"HTTP/1.0 200 OK",
        b"HTTP/1.1 100 Continue", b"HTTP/1.1 200 a\tb\xff ", b"Content-Length: 2", b"Content-Length: 02",
        b"content-length:2 ", b"Content-Length: 2, 2", b"Content-Length: +2", b"Content-Length : 2",
        b"Content-Length:", b"Connection: close", b"Connection: keep-alive, CLOSE ", b"Connection: closed",
        b"Transfer-Encoding: chunked", b"Upgrade: h2c", b"X: \t a b\t ", b"X:\x0ba", b"X:\xff\x80",
        b"X: a\x00b", b"X: a\x1fb", b" folded: x", b"X: \x0c", b"Set-Cookie: a=b", b"", b"ok", b"X",
    ]
)  # fmt: skip
ENDS = st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b""])


@given(
    st.lists(st.tuples(LINES, ENDS), max_size=7).map(lambda pairs: b"".join(a + b for a, b in pairs)),
    st.booleans(),
    st.sampled_from(["GET", "HEAD", "POST"]),
)
@example(b"", True, "GET")
@example(b"X: a\r\nContent-Length: 1\r\n\r\nab", True, "GET")
def test_what_is_read_without_h11_is_what_h11_reads(tail: bytes, started: bool, method: str) -> None:
    data = (b"HTTP/1.1 200 OK\r\n" if started else b"") + tail
    found = read(data, method)
    if found is None:
        return
    expected = by_h11(data, method)
    assert expected is not None
    body = data[found.at :][: found.length]
    assert (found.status, found.phrase, found.headers) == expected[:3]
    assert (body, len(body) == found.length) == expected[3:5]
    if expected[5] is not None:
        assert found.keep == expected[5]


def test_an_ordinary_answer_is_read() -> None:
    assert read(HEAD) == PlainAnswer(200, "OK", (("Content-Length", "2"),), len(HEAD) - 2, 2, True)
    assert read(HEAD.replace(b"\r\n\r\n", b"\r\nConnection: x, Close\r\n\r\n")) == PlainAnswer(
        200, "OK", (("Content-Length", "2"), ("Connection", "x, Close")), len(HEAD) + 20, 2, False
    )
    answer = read(b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n")
    assert answer is not None and (answer.length, answer.status) == (0, 304)


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: a\r\n b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\n",
        b"HTTP/1.1 101 Switching Protocols\r\nContent-Length: 2\r\nUpgrade: websocket\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 256 + b"Content-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 40_000 + b"\r\nContent-Length: 2\r\n\r\n",
    ],
)
def test_whatever_is_not_ordinary_is_left_to_h11(data: bytes) -> None:
    assert read(data) is None


VALUES = st.text(st.sampled_from("ab \t\r\n\x00\x0b\xff:"), max_size=6)


@given(
    st.sampled_from(["GET", "POST", "get", "CONNECT", "GE T"]),
    st.sampled_from(["/", "/a?b", "/ x", "/\r\n", ""]),
    st.lists(
        st.tuples(st.sampled_from(["X", "x-y", "Host", "Connection", "X:", "", "X\n"]), VALUES), max_size=3
    ),
    st.sampled_from([b"", b"ab"]),
    st.booleans(),
)
def test_what_is_written_without_h11_is_what_h11_writes(
    method: str, target: str, more: list[tuple[str, str]], body: bytes, announced: bool
) -> None:
    headers = (("Host", "a.example"), *more, *([("Content-Length", str(len(body)))] if announced else []))
    found = write_plain(method, target, headers, body)
    if found is None:
        return
    connection = h11.Connection(h11.CLIENT)
    pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    expected = connection.send(h11.Request(method=method, target=target, headers=pairs)) or b""
    if body:
        expected += connection.send(h11.Data(data=body)) or b""
    assert found == expected + (connection.send(h11.EndOfMessage()) or b"")


def test_an_ordinary_request_is_written() -> None:
    headers = (("Host", "a.example"), ("Content-Length", "2"))
    assert write_plain("POST", "/a", headers, b"ok") == (
        b"POST /a HTTP/1.1\r\nHost: a.example\r\nContent-Length: 2\r\n\r\nok"
    )
    assert write_plain("POST", "/a", headers, b"longer") is None
    assert write_plain("GET", "/a", (("Host", "a"), ("X", "a\r\nb")), b"") is None
    assert write_plain("GET", "/a", (("Host", "a"), ("Transfer-Encoding", "chunked")), b"") is None
    assert write_plain("GET", "/a", (), b"") is None
