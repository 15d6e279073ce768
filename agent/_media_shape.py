"""Sizes that a picture's header declares, and whether its file is all there, read without decoding anything.

Guarantees: a picture of more pixels than a decoder should be made to paint is named, and so is a PNG or WebP
that was cut off: every later request that holds it would be the vendor's 400. What cannot be read here is
passed: whether it is a picture at all is the decoder's to say. Source: PNG 1.2, RFC 9649 (WebP), ITU T.81,
GIF89a.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

MAX_PIXELS: Final = 100_000_000
"""Ten thousand by ten thousand. Vendors take far less; a decoder's memory is four times this in bytes."""

MAX_CHUNKS: Final = 100_000


def shape_fault(media_type: str, data: bytes) -> str | None:
    """Why the picture may not pass, in words, or None."""
    size = (_SIZES[media_type](data) if media_type in _SIZES else None) or (0, 0)
    if size[0] * size[1] > MAX_PIXELS:
        return f"the picture is {size[0]} by {size[1]} pixels; at most {MAX_PIXELS} in all are taken"
    if media_type == "image/png":
        return _png_fault(data)
    if media_type == "image/webp" and 8 + int.from_bytes(data[4:8], "little") > len(data) > 16:
        return "the file is cut off: it is shorter than its header says"
    return None


def _png(data: bytes) -> tuple[int, int] | None:
    if data[12:16] != b"IHDR" or len(data) < 24:
        return None
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def _png_fault(data: bytes) -> str | None:
    if _png(data) is None:
        return None
    at = 8
    for _ in range(MAX_CHUNKS):
        if at + 12 > len(data):
            return "the file is cut off: a PNG ends with an IEND chunk"
        kind, at = data[at + 4 : at + 8], at + 12 + int.from_bytes(data[at : at + 4], "big")
        if kind == b"IEND":
            return None
    return f"the file has more than {MAX_CHUNKS} chunks"


def _gif(data: bytes) -> tuple[int, int] | None:
    return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")


def _jpeg(data: bytes) -> tuple[int, int] | None:
    at = 2
    for _ in range(MAX_CHUNKS):
        while data[at : at + 2] == b"\xff\xff":
            at += 1
        if at + 9 > len(data) or data[at] != 0xFF:
            return None
        kind, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")
        if kind == 0xDA or length < 2:
            return None
        at += 2 + length
    return None


def _webp(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X" and len(data) >= 30:
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8L" and len(data) >= 25:
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 " and len(data) >= 30:
        wide, high = int.from_bytes(data[26:28], "little"), int.from_bytes(data[28:30], "little")
        return wide & 0x3FFF, high & 0x3FFF
    return None


_SIZES: Final[dict[str, Callable[[bytes], tuple[int, int] | None]]] = {
    "image/png": _png,
    "image/gif": _gif,
    "image/jpeg": _jpeg,
    "image/jpg": _jpeg,
    "image/pjpeg": _jpeg,
    "image/webp": _webp,
}
