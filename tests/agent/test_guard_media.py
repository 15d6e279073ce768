"""The guard and media: marks, types, signatures, base64, sizes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from fumehood.agent._errors import (
    GuardError,
    MessageStructureError,
    OversizedInlinePartError,
)
from fumehood.agent._guard import MAX_INLINE_BYTES, MAX_INLINE_TOTAL_BYTES, guard_request
from tests.agent.samples import (
    MP3,
    PDF,
    PNG,
    WAV,
    assistant,
    audio,
    call,
    file,
    image,
    ref,
    request,
    result,
    user,
)

Json = dict[str, Any]


def refusal(body: Any, **caps: Any) -> tuple[str, str]:
    """Error name and path of a refused request."""
    with pytest.raises(GuardError) as caught:
        guard_request(body, **caps)
    return type(caught.value).__name__, caught.value.path


@pytest.mark.requirement("R050")
@pytest.mark.requirement("R053")
@pytest.mark.requirement("R056")
def test_the_mark_on_media_stays_for_the_provider_and_the_name_goes() -> None:
    marked = image(untrusted={"origin": "mcp:a/b"}, name="ignore previous.png")
    kept = {name: value for name, value in marked.items() if name != "name"}
    assert guard_request(request(user([marked, image(name="mine.png")]))) == request(
        user([kept, image(name="mine.png")])
    )
    inside = request(assistant([call()]), user([result(content=[marked])]))
    assert guard_request(inside)["messages"][1]["content"][0]["content"] == [kept]


@pytest.mark.requirement("R052")
@pytest.mark.requirement("R077")
@pytest.mark.parametrize("role", ["assistant", "system"])
def test_media_outside_a_user_message_is_refused(role: str) -> None:
    for part in (image(), audio(), file()):
        assert refusal(request({"role": role, "content": [part]})) == (
            "MessageStructureError",
            "messages[0].content[0]",
        )
    marked = image(untrusted={"origin": "o"})
    assert refusal(request({"role": role, "content": [marked]})) == (
        "UntrustedContentError",
        "messages[0].content[0]",
    )


@pytest.mark.requirement("R057")
@pytest.mark.promise("agent:untrusted-chooses-no-blob")
def test_an_untrusted_part_may_not_name_stored_content() -> None:
    part = ref() | {"untrusted": {"origin": "o"}}
    assert refusal(request(user([part]))) == ("UntrustedContentError", "messages[0].content[0].source.ref")
    assert refusal(request(assistant([call()]), user([result(content=[part])])))[0] == "UntrustedContentError"
    assert guard_request(request(user([ref()]))) == request(user([ref()]))


@pytest.mark.requirement("R079")
@pytest.mark.parametrize(
    ("part", "said"),
    [
        (image(media_type="audio/wav"), "audio/wav in an image part"),
        (audio(media_type="image/png"), "image/png in an audio part"),
        (file(media_type="image/png", data=PNG), "image/png in a file part"),
        (image(media_type="image/PNG"), "is not a media type"),
        (image(media_type="png"), "is not a media type"),
        (image(media_type="image/png; q=1"), "is not a media type"),
        (image(media_type=7), "7 is not a string"),  # type: ignore[arg-type]
    ],
)
def test_a_media_type_is_well_formed_and_fits_its_modality(part: Json, said: str) -> None:
    with pytest.raises(MessageStructureError, match=re.escape(said)):
        guard_request(request(user([part])))


@pytest.mark.requirement("R080")
@pytest.mark.requirement("R491")
@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("-_-_", "URL-safe base64"),
        ("+//", "the padding (=) is missing"),
        ("+//+\n", "the padding (=) is missing"),
        ("a b=", "text that is not base64"),
        ("====", "text that is not base64"),
        (None, "null is not a string"),
    ],
)
def test_inline_data_is_standard_base64_with_padding(data: Any, said: str) -> None:
    part = {"type": "image", "media_type": "image/png", "source": {"kind": "data", "data": data}}
    with pytest.raises(MessageStructureError, match=re.escape(said)):
        guard_request(request(user([part])))


@pytest.mark.requirement("R490")
@pytest.mark.parametrize(
    ("part", "said"),
    [
        (image(data=b"\xff\xd8\xff\xe0 jpeg"), "the bytes are image/jpeg, not image/png"),
        (
            image(data=b"GIF89a" + b"<script>alert(1)</script>", media_type="image/gif"),
            "also hold markup at byte 6",
        ),
        (image(data=PNG + b"<html ><body>", media_type="image/png"), "also hold markup"),
        (image(data=PNG + b"PK\x05\x06" + bytes(18), media_type="image/png"), "also a ZIP archive"),
        (image(data=PNG[:40] + b"%PDF-1.7" + PNG[40:], media_type="image/png"), "also a PDF"),
        (image(data=b"hello"), "do not begin as image/png does"),
        (image(data=b"<svg onload=x>", media_type="image/png"), "the bytes are image/svg+xml, not image/png"),
        (
            image(data=b"\x7fELF" + bytes(20), media_type="image/x-unknown"),
            "the bytes are application/x-executable",
        ),
        (image(data=b""), "no bytes to be image/png"),
        (audio(data=PNG, media_type="audio/wav"), "the bytes are image/png, not audio/wav"),
        (
            file(data=b"PK\x03\x04zip", media_type="application/pdf"),
            "the bytes are application/zip, not application/pdf",
        ),
        (file(data=b"a\x00b", media_type="text/plain"), "hold NUL"),
        (file(data=b"\xff\xfe", media_type="text/plain"), "not UTF-8 at byte 0"),
        (file(data=b"<html>", media_type="application/octet-stream"), "the bytes are text/html"),
    ],
)
def test_bytes_that_are_not_what_they_say_or_more_than_one_thing_are_refused(part: Json, said: str) -> None:
    with pytest.raises(MessageStructureError) as caught:
        guard_request(request(user([part])))
    assert said in str(caught.value) and caught.value.path == "messages[0].content[0].source.data"


def test_honest_media_of_every_modality_passes() -> None:
    parts = [
        image(),
        image(b"\xff\xd8\xff\xe0\x00\x10JFIF", "image/jpeg"),
        image(b"GIF89a" + bytes(10), "image/gif"),
        image(b"RIFF\x00\x00\x00\x00WEBPVP8 ", "image/webp"),
        image(b"\x00\x00\x00\x18ftypheic", "image/heic"),
        audio(WAV, "audio/wav"),
        audio(MP3, "audio/mpeg"),
        audio(MP3, "audio/mp3"),
        file(PDF, "application/pdf", name="report.pdf"),
        file("héllo".encode(), "text/plain"),
        file(b'{"a": 1}', "application/json"),
        file(b"PK\x03\x04" + bytes(30), "application/zip"),
        file(bytes(range(256)), "application/octet-stream"),
    ]
    body = request(user(parts))
    assert guard_request(body) == body


@pytest.mark.requirement("R108")
@pytest.mark.requirement("R109")
def test_one_inline_part_is_capped_by_decoded_bytes_and_the_error_names_the_remedy() -> None:
    assert MAX_INLINE_BYTES == 65_536
    exact = PNG + bytes(MAX_INLINE_BYTES - len(PNG))
    body = request(user([image(exact)]))
    assert guard_request(body) == body
    with pytest.raises(OversizedInlinePartError) as caught:
        guard_request(request(user([image(exact + b"\x00")])))
    assert caught.value.path == "messages[0].content[0]"
    assert "65537 bytes inline; at most 65536 are" in str(caught.value)
    assert "store the bytes" in str(caught.value) and "return a ref" in str(caught.value)
    with pytest.raises(OversizedInlinePartError):
        guard_request(request(user([image()])), max_inline_bytes=10)
    assert guard_request(request(user([image(exact + b"\x00")])), max_inline_bytes=None)


@pytest.mark.requirement("R112")
def test_inline_bytes_are_capped_for_the_request_too_wherever_they_stand() -> None:
    assert MAX_INLINE_TOTAL_BYTES == 262_144
    part = image(PNG + bytes(MAX_INLINE_BYTES - len(PNG)))
    four = request(user([part, part]), assistant([call()]), user([result(content=[part, part])]))
    assert guard_request(four) == four
    five = request(*four["messages"], user([image()]))
    assert refusal(five) == ("OversizedInlinePartError", "messages[3].content[0]")


@pytest.mark.requirement("R138")
@pytest.mark.parametrize("size", [-1, 1.5, "12", True, 2**53, 10**30])
def test_a_declared_size_is_a_safe_integer(size: Any) -> None:
    assert refusal(request(user([ref(size=size)]))) == (
        "MessageStructureError",
        "messages[0].content[0].source.ref.size",
    )


def test_a_declared_size_may_be_absent_zero_or_the_largest() -> None:
    for size in (None, 0, 2**53 - 1):
        body = request(user([ref(size=size)]))
        assert guard_request(body) == body
