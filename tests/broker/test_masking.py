"""Properties of the masking of secrets: every spelling, however the stream is cut, and nothing else."""

from __future__ import annotations

import base64
import html
import json
import os
import urllib.parse
from collections.abc import Callable

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fumehood.broker._scrub import Scrubber

EXAMPLES = int(os.environ.get("FUMEHOOD_EXAMPLES", "150"))
many = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def cut(data: bytes, places: list[int]) -> list[bytes]:
    marks = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in zip(marks, marks[1:], strict=False) if data[a:b]]


@many
@given(
    st.lists(
        st.sampled_from([b"s3cret-value", b"s3cret", b"-value", b"x", b"s", b"other-secret"]), max_size=12
    ).map(b"".join),
    st.lists(st.integers(0, 200), max_size=8),
)
def test_a_secret_is_masked_wherever_the_pieces_are_cut(text: bytes, places: list[int]) -> None:
    values = (b"s3cret-value", b"other-secret")
    scrubber = Scrubber(values)
    out = b"".join([*(scrubber.feed(piece) for piece in cut(text, places)), *scrubber.finish()])
    assert out == text.replace(values[0], b"[secret]").replace(values[1], b"[secret]")
    kept = Scrubber(values, keep_length=True)
    assert len(b"".join([*(kept.feed(piece) for piece in cut(text, places)), *kept.finish()])) == len(text)


SECRETS = [b"tok/en+42==\"'", b"Zm9v%41\\&amp;", b"0123456789abcdef", b"aaaaaaab", b"two words&more"]


SPELT: dict[str, Callable[[bytes], bytes]] = {
    "percent": lambda value: "".join(f"%{byte:02x}" for byte in value).encode(),
    "quoted": lambda value: urllib.parse.quote(value, safe="").encode(),
    "quoted twice": lambda value: urllib.parse.quote(urllib.parse.quote(value, safe=""), safe="").encode(),
    "form": lambda value: urllib.parse.quote_plus(value).encode(),
    "json": lambda value: json.dumps(value.decode())[1:-1].replace("/", "\\/").encode(),
    "json, all": lambda value: "".join(f"\\u{byte:04X}" for byte in value).encode(),
    "javascript": lambda value: "".join(f"\\x{byte:02x}" for byte in value).encode(),
    "html": lambda value: html.escape(value.decode()).encode(),
    "html, all": lambda value: "".join(f"&#{byte};" for byte in value).encode(),
    "html, hex": lambda value: "".join(f"&#x{byte:X};" for byte in value).encode(),
    "json in html": lambda value: html.escape(json.dumps(value.decode())[1:-1]).encode(),
    "hex": lambda value: value.hex().encode(),
    "HEX": lambda value: value.hex().upper().encode(),
    "utf-16": lambda value: value.decode().encode("utf-16-le")[:-1],
}  # fmt: skip


@many
@given(
    st.sampled_from(SECRETS),
    st.sampled_from(sorted(SPELT)),
    st.sampled_from([b"", b"a", b"%", b'{"echo": "', b"&am", b"\\", b"0", b"aaaa"]),
    st.sampled_from([b"", b"!", b"%2", b'"}', b"aaaa", b"&#"]),
    st.lists(st.integers(0, 400), max_size=12),
)
def test_a_secret_is_masked_in_every_spelling_that_servers_give_it(
    value: bytes, how: str, before: bytes, after: bytes, places: list[int]
) -> None:
    spelt = SPELT[how](value)
    text = before + spelt + after
    scrubber = Scrubber((value,))
    out = b"".join([*(scrubber.feed(piece) for piece in cut(text, places)), *scrubber.finish()])
    assert spelt not in out and value not in out
    assert out.count(b"[secret]") >= 1
    if value != b"aaaaaaab" and value not in spelt and not before.endswith((b"%", b"\\", b"&am")):
        assert out == before + b"[secret]" + after
    kept = Scrubber((value,), keep_length=True)
    assert len(b"".join([*(kept.feed(piece) for piece in cut(text, places)), *kept.finish()])) == len(text)


@many
@example(b"aaaaaaab", b"\0" * 17 + b"!", b"\0\0", False, [33])
@given(
    st.sampled_from(SECRETS),
    st.binary(max_size=20),
    st.binary(max_size=20),
    st.booleans(),
    st.lists(st.integers(0, 120), max_size=8),
)
def test_a_secret_in_base64_is_masked_wherever_it_stands(
    value: bytes, before: bytes, after: bytes, url_safe: bool, places: list[int]
) -> None:
    # Around it nothing of it: else the same letters, or nearly, are found there too.
    before, after = (bytes(byte for byte in part if byte not in value) for part in (before, after))
    encode = base64.urlsafe_b64encode if url_safe else base64.b64encode
    text = encode(before + value + after)
    scrubber = Scrubber((value,))
    out = b"".join([*(scrubber.feed(piece) for piece in cut(text, places)), *scrubber.finish()])
    first, _, last = out.partition(b"[secret]")
    # What is left are the bytes around it, and at most four bits of the value at either edge.
    assert _ == b"[secret]" and len(first) <= (len(before) * 8 + 5) // 6
    assert len(last.rstrip(b"=")) <= (len(after) * 8 + 11) // 6


def test_a_value_that_stands_in_itself_a_little_moved_is_masked_whole() -> None:
    assert Scrubber((b"abcabcabc",)).whole(b"xx abcabcabcabcabc yy") == b"xx [secret] yy"


ODDS = [b"%25", b"%", b"2", b"5", b"41", b"&#", b"x", b";", b"\\", b"u00", b"A", b" "]


@many
@given(st.lists(st.sampled_from(ODDS), max_size=40).map(b"".join), st.lists(st.integers(0, 120), max_size=12))
def test_text_without_a_secret_passes_unchanged_however_it_is_cut(text: bytes, places: list[int]) -> None:
    scrubber = Scrubber((b"A%41A AAAAA never there",))
    assert b"".join([*(scrubber.feed(piece) for piece in cut(text, places)), *scrubber.finish()]) == text


def test_only_what_may_be_the_start_of_a_secret_is_held_back() -> None:
    scrubber = Scrubber((b"token-value-1",))
    for piece, goes_on in (
        (b"data: hello\n\n", b"data: hello\n\n"),
        (b"data: to", b"data: "),
        (b"day\n\n", b"today\n\n"),
        (b"%74%6fke", b""),
        (b"n-value-1 and on", b"[secret] and on"),
        (b"50 %", b"50 "),
        (b" off", b"% off"),
    ):
        assert scrubber.feed(piece) == goes_on, piece
