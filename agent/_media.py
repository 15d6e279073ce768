"""What media bytes are, judged by their first bytes alone; the parent process never decodes them (design.md
D7).

Guarantees: `media_fault` names why bytes may not pass under a declared media type: another signature (R490),
a second format appended or hidden inside (HTML, a script, a ZIP directory, a PDF in an image), or text that
is not text. `decode_base64` takes the standard alphabet with padding and nothing else (R491). Does not
promise that a file is harmless to its decoder: that is what re-encoding in a cage is for. Before editing: the
table is short on purpose; a type that is not in it passes only when the bytes match nothing else that is.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from fumehood.agent._media_shape import shape_fault

MEDIA_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}")

_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}")

_SIGNATURES: Final[tuple[tuple[int, bytes, str], ...]] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (0, b"BM", "image/bmp"),
    (0, b"II*\x00", "image/tiff"),
    (0, b"MM\x00*", "image/tiff"),
    (8, b"WAVE", "audio/wav"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"\x1aE\xdf\xa3", "video/webm"),
    (4, b"ftyp", "video/mp4"),
    (0, b"%PDF-", "application/pdf"),
    (0, b"PK\x03\x04", "application/zip"),
    (0, b"PK\x05\x06", "application/zip"),
    (0, b"\x1f\x8b", "application/gzip"),
    (0, b"\x7fELF", "application/x-executable"),
    (0, b"MZ", "application/x-executable"),
    (0, b"#!", "text/x-script"),
)

_SAME: Final[dict[str, frozenset[str]]] = {
    "image/jpeg": frozenset({"image/jpeg", "image/jpg", "image/pjpeg"}),
    "audio/wav": frozenset({"audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave"}),
    "audio/mpeg": frozenset({"audio/mpeg", "audio/mp3"}),
    "audio/flac": frozenset({"audio/flac", "audio/x-flac"}),
    "audio/ogg": frozenset({"audio/ogg", "audio/opus", "application/ogg", "video/ogg"}),
    "video/webm": frozenset({"video/webm", "audio/webm", "video/x-matroska"}),
    "video/mp4": frozenset(
        {
            "video/mp4",
            "audio/mp4",
            "audio/m4a",
            "audio/x-m4a",
            "video/quicktime",
            "image/heic",
            "image/heif",
            "image/avif",
        }
    ),
    "image/bmp": frozenset({"image/bmp", "image/x-ms-bmp"}),
}

_ENDINGS: Final[dict[str, str]] = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "bmp": "image/bmp",
    "tif": "image/tiff",
    "tiff": "image/tiff",
    "svg": "image/svg+xml",
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "ogg": "audio/ogg",
    "flac": "audio/flac",
    "mp4": "video/mp4",
    "webm": "video/webm",
    "pdf": "application/pdf",
    "zip": "application/zip",
    "gz": "application/gzip",
    "json": "application/json",
    "xml": "application/xml",
    "html": "text/html",
    "txt": "text/plain",
    "log": "text/plain",
    "md": "text/markdown",
    "csv": "text/csv",
}

_MARKUP: Final = re.compile(
    rb"<\s*(?:!doctype\s+html|html[\s>]|script[\s>]|svg[\s>]|body[\s>]|iframe[\s>]|\?php)", re.IGNORECASE
)
_MARKUP_START: Final = re.compile(
    rb"\s*+(?:\xef\xbb\xbf)?+\s*+<(?:!doctype|html|head|body|script|svg|\?xml|\?php|iframe)", re.IGNORECASE
)


def sniff(data: bytes) -> str | None:
    """The media type that the first bytes say, or None when they say nothing that is known."""
    head = data[:64]
    for offset, signature, media_type in _SIGNATURES:
        if head[offset : offset + len(signature)] == signature:
            if media_type in ("image/webp", "audio/wav") and head[:4] not in (b"RIFF", b"RF64"):
                continue
            return media_type
    if len(head) >= 2 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0 and head[1] & 0x06:
        return "audio/mpeg"
    if _MARKUP_START.match(data[:512]):
        return "image/svg+xml" if b"<svg" in data[:1024].lower() else "text/html"
    return None


def type_of_file(name: str, data: bytes) -> str:
    """The media type that a file's name says, else the one its bytes say. The two may differ: `media_fault`
    judges that.
    """
    before, _, ending = name.rpartition("/")[2].rpartition(".")
    return (_ENDINGS.get(ending.lower()) if before else None) or sniff(data) or "application/octet-stream"


def media_fault(media_type: str, data: bytes) -> str | None:
    """Why these bytes may not pass as `media_type`, in words, or None when they may."""
    found = sniff(data)
    top = media_type.partition("/")[0]
    if top in ("image", "audio", "video") or media_type == "application/pdf":
        if not data:
            return f"there are no bytes to be {media_type}"
        if found is None and media_type in _known_types():
            return f"the bytes do not begin as {media_type} does"
        if found is not None and media_type != found and media_type not in _SAME.get(found, ()):
            return f"the bytes are {found}, not {media_type}"
        return _second_format(media_type, data) or shape_fault(media_type, data)
    if top == "text" or media_type in ("application/json", "application/xml"):
        return _text_fault(media_type, data)
    if found in ("application/x-executable", "text/x-script", "text/html", "image/svg+xml"):
        return None if media_type == found else f"the bytes are {found}, not {media_type}"
    return None


def _known_types() -> frozenset[str]:
    known = {media_type for _, _, media_type in _SIGNATURES}
    return frozenset(known.union(*_SAME.values())) | {"image/svg+xml"}


def _second_format(media_type: str, data: bytes) -> str | None:
    if media_type not in ("image/svg+xml", "application/pdf") and (hidden := _MARKUP.search(data)):
        return f"the bytes are {media_type} and also hold markup at byte {hidden.start()}"
    if _zip_inside(data):
        return f"the bytes are {media_type} and also a ZIP archive"
    if media_type != "application/pdf" and b"%PDF-" in data[:1024]:
        return f"the bytes are {media_type} and also a PDF"
    return None


def _zip_inside(data: bytes) -> bool:
    # Readers look for the end record from the back and many do not mind what follows it, so each one counts
    # whose directory stands right before it, or whose comment reaches exactly to the end of the file.
    at = data.find(b"PK\x05\x06")
    while at >= 0:
        if len(data) - at >= 22:
            directory = int.from_bytes(data[at + 12 : at + 16], "little")
            if at + 22 + int.from_bytes(data[at + 20 : at + 22], "little") == len(data) or (
                0 < directory <= at and data[at - directory : at - directory + 4] == b"PK\x01\x02"
            ):
                return True
        at = data.find(b"PK\x05\x06", at + 4)
    return False


def _text_fault(media_type: str, data: bytes) -> str | None:
    if b"\x00" in data:
        return f"the bytes hold NUL and cannot be {media_type}"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"the bytes are not UTF-8 at byte {error.start} and cannot be {media_type}"
    return None


def is_text(media_type: str) -> bool:
    """Whether a file of this type is read as text."""
    top, _, kind = media_type.partition("/")
    return top == "text" or kind in ("json", "xml") or kind.endswith(("+json", "+xml"))


def base64_size(text: str) -> int:
    """How many bytes base64 text stands for, from its length alone."""
    return len(text) // 4 * 3 - text[-2:].count("=")


def base64_fault(text: str) -> str | None:
    """Why `text` is not standard base64 with padding, in words, or None when it is (R491)."""
    if "-" in text or "_" in text:
        return "URL-safe base64 (with - or _); use the standard alphabet with + and /"
    if len(text) % 4:
        return f"base64 of length {len(text)}; the padding (=) is missing"
    if not _BASE64.fullmatch(text):
        return "text that is not base64"
    return None


def decode_base64(text: str) -> bytes:
    """The bytes of standard, padded base64. Raises: ValueError with the reason."""
    if (fault := base64_fault(text)) is not None:
        raise ValueError(fault)
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error


def encode_base64(data: bytes) -> str:
    """Standard base64 with padding."""
    return base64.b64encode(data).decode("ascii")
