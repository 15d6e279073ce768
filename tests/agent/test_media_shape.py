"""Pictures too large to paint, pictures cut off, and archives hidden in them, seen without decoding."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from PIL import Image

from fumehood.agent._media import media_fault
from fumehood.agent._media_shape import MAX_PIXELS, shape_fault
from tests.agent.samples import PDF, PNG, png


def _real(kind: str, width: int, height: int, **more: Any) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height)).save(out, kind, **more)
    return out.getvalue()


def _png_of(width: int, height: int) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + b"IHDR" + head + struct.pack(">I", zlib.crc32(b"IHDR" + head))
    return PNG[:8] + chunk + PNG[33:]


HEADERS: dict[str, Callable[[int, int], bytes]] = {
    "image/png": _png_of,
    "image/gif": lambda w, h: b"GIF89a" + struct.pack("<HH", w, h) + bytes(20),
    "image/jpeg": lambda w, h: (
        b"\xff\xd8\xff\xe0\x00\x04ab\xff\xff\xc2\x00\x11\x08" + struct.pack(">HH", h, w) + bytes(20)
    ),
    "image/webp": lambda w, h: (
        b"RIFF"
        + struct.pack("<I", 30)
        + b"WEBPVP8X"
        + bytes(8)
        + (w - 1).to_bytes(3, "little")
        + (h - 1).to_bytes(3, "little")
        + bytes(8)
    ),
}


@pytest.mark.parametrize("media_type", HEADERS)
@pytest.mark.parametrize(
    ("width", "height", "fits"), [(10_000, 10_000, True), (10_001, 10_000, False), (65_535, 65_535, False)]
)
def test_a_picture_is_refused_by_the_size_that_its_header_declares(
    media_type: str, width: int, height: int, fits: bool
) -> None:
    fault = media_fault(media_type, HEADERS[media_type](width, height))
    assert fault == (
        None if fits else f"the picture is {width} by {height} pixels; at most {MAX_PIXELS} in all are taken"
    )


@pytest.mark.parametrize(
    ("kind", "media_type", "more"),
    [
        ("PNG", "image/png", {}),
        ("GIF", "image/gif", {}),
        ("JPEG", "image/jpeg", {"progressive": True}),
        ("JPEG", "image/jpeg", {}),
        ("WEBP", "image/webp", {}),
        ("WEBP", "image/webp", {"lossless": True}),
        ("WEBP", "image/webp", {"exif": b"Exif\x00\x00"}),
    ],
)
def test_real_pictures_are_measured_and_pass(kind: str, media_type: str, more: Any) -> None:
    from fumehood.agent._media_shape import _SIZES

    data = _real(kind, 321, 123, **more)
    assert media_fault(media_type, data) is None
    assert _SIZES[media_type](data) == (321, 123)


@pytest.mark.parametrize(("kind", "media_type"), [("PNG", "image/png"), ("WEBP", "image/webp")])
def test_a_picture_that_was_cut_off_is_refused_at_every_length(kind: str, media_type: str) -> None:
    data = _real(kind, 20, 20)
    assert media_fault(media_type, data) is None
    for length in range(33, len(data)):
        assert "cut off" in str(media_fault(media_type, data[:length])), length


@pytest.mark.parametrize("media_type", HEADERS)
def test_any_bytes_behind_a_signature_are_measured_without_an_error(media_type: str) -> None:
    whole = HEADERS[media_type](100, 100)
    for length in range(len(whole)):
        shape_fault(media_type, whole[:length])
    for at in range(8, len(whole)):
        shape_fault(media_type, whole[:at] + b"\xff" * (len(whole) - at))


def test_chunks_without_an_end_are_given_up() -> None:
    many = PNG[:33] + (struct.pack(">I", 0) + b"aaAa" + bytes(4)) * 100_001 + PNG[-12:]
    assert "chunks" in str(media_fault("image/png", many))


def _archive() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        made.writestr("evil.py", "print(1)")
    return out.getvalue()


@pytest.mark.parametrize("behind", [b"", b"\n", bytes(200)])
@pytest.mark.parametrize(("data", "media_type"), [(png(5, 5), "image/png"), (PDF, "application/pdf")])
def test_an_archive_in_a_picture_is_found_also_with_something_behind_it(
    data: bytes, media_type: str, behind: bytes
) -> None:
    hidden = data + _archive() + behind
    assert zipfile.is_zipfile(io.BytesIO(hidden))  # a reader opens it
    assert "also a ZIP archive" in str(media_fault(media_type, hidden))


def test_an_archive_in_a_chunk_of_a_picture_is_found_and_its_letters_alone_are_none() -> None:
    body = b"zpAa" + _archive()
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    hidden = PNG[:-12] + chunk + PNG[-12:]
    assert zipfile.is_zipfile(io.BytesIO(hidden))
    assert "also a ZIP archive" in str(media_fault("image/png", hidden))
    for harmless in (b"PK\x05\x06", b"PK\x05\x06" + b"\xff" * 18, b"PK\x05\x06" + bytes(18) + b"x"):
        chunk = struct.pack(">I", len(harmless)) + b"teXt" + harmless + bytes(4)
        assert media_fault("image/png", PNG[:-12] + chunk + PNG[-12:]) is None
