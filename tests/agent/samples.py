"""Small real media and request builders that the agent tests share."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

from fumehood.agent._parts import Message
from fumehood.agent._taint import tainted

Json = dict[str, Any]


def png(width: int = 1, height: int = 1, fill: bytes = b"\x00\x00\x00") -> bytes:
    """A valid PNG."""
    rows = b"".join(b"\x00" + fill * width for _ in range(height))
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    ]
    body = b"".join(
        struct.pack(">I", len(d)) + t + d + struct.pack(">I", zlib.crc32(t + d)) for t, d in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


PNG = png()
PNG_B = png(2, 2, b"\xff\x00\x00")
WAV = b"RIFF\x24\x00\x00\x00WAVEfmt " + bytes(28)
MP3 = b"ID3\x04\x00\x00\x00\x00\x00\x00" + bytes(16)
PDF = b"%PDF-1.4\n1 0 obj\n<<>>\nendobj\ntrailer\n<<>>\n%%EOF\n"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def image(data: bytes = PNG, media_type: str = "image/png", **more: Any) -> Json:
    return {"type": "image", "media_type": media_type, "source": {"kind": "data", "data": b64(data)}, **more}


def audio(data: bytes = WAV, media_type: str = "audio/wav", **more: Any) -> Json:
    return {"type": "audio", "media_type": media_type, "source": {"kind": "data", "data": b64(data)}, **more}


def file(data: bytes = PDF, media_type: str = "application/pdf", **more: Any) -> Json:
    return {"type": "file", "media_type": media_type, "source": {"kind": "data", "data": b64(data)}, **more}


def ref(
    address: str = "sha256:" + "0" * 64,
    size: int | None = None,
    kind: str = "image",
    media_type: str = "image/png",
) -> Json:
    inner: Json = {"address": address} | ({} if size is None else {"size": size})
    return {"type": kind, "media_type": media_type, "source": {"kind": "ref", "ref": inner}}


def text(value: Any) -> Json:
    return {"type": "text", "text": value}


def call(id_: str = "c1", name: str = "t", input_: Any = None, **more: Any) -> Json:
    return {"type": "tool_use", "id": id_, "name": name, "input": {} if input_ is None else input_, **more}


def result(id_: str = "c1", content: Any = "done", **more: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": id_, "content": content, **more}


def user(content: Any) -> Json:
    return {"role": "user", "content": content}


def assistant(content: Any) -> Json:
    return {"role": "assistant", "content": content}


def request(*messages: Json, **more: Any) -> Json:
    return {"messages": list(messages), **more}


def bad(value: Any, origin: str = "mcp:acme/fetch_doc") -> Json:
    return tainted(value, origin)


def fenced(value: str, origin: str = "mcp:acme/fetch_doc") -> str:
    return f'<untrusted-input origin="{origin}">\n{value}\n</untrusted-input>'


def parts_of(message: Message) -> list[Any]:
    """The parts of a message for a test to look into, typed loosely on purpose."""
    content: Any = message.content
    return [content] if isinstance(content, str) else list(content)
