"""Images written anew in a cage before they are stored: what remains of a polyglot or a booby-trapped file is
its picture.

Guarantees: what comes back is judged like any other bytes, because the cage's inside may have been taken
over: its signature, its size, no second format. The call is made by whoever has cages (`Host.call`, with
`TOOL_FILE` as the tool's module); nothing is decoded here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from fumehood.agent._errors import MessageStructureError
from fumehood.agent._media import decode_base64, encode_base64, media_fault

TOOL_FILE: Final = Path(__file__).parent / "tools" / "reencode_image.py"
"""The module of the tool that does the work."""

MAX_REENCODED_BYTES: Final = 64 * 1024 * 1024
"""Longest answer that is taken: a small file may hold a large picture."""


async def reencode(
    data: bytes,
    media_type: str,
    call: Callable[[Mapping[str, Any]], Awaitable[object]],
    *,
    max_bytes: int = MAX_REENCODED_BYTES,
) -> tuple[bytes, str]:
    """The image written anew, and its media type (an animation becomes a PNG of its first frame).

    call: runs the tool in a cage with this input and returns its value. Raises: MessageStructureError when
    the bytes are no such image or the answer is not one; what `call` raises.
    """
    if not media_type.startswith("image/"):
        raise MessageStructureError("media_type", f"{media_type} is not an image")
    value = await call({"data": encode_base64(data), "media_type": media_type})
    if not isinstance(value, Mapping) or not isinstance(value.get("data"), str):
        raise MessageStructureError("value", "the re-encoding tool did not return an image")
    made_type = value.get("media_type")
    if made_type not in (media_type, "image/png"):
        raise MessageStructureError("value.media_type", "the re-encoding tool returned another type")
    try:
        made = decode_base64(value["data"])
    except ValueError as error:
        raise MessageStructureError("value.data", str(error)) from error
    if len(made) > max_bytes:
        raise MessageStructureError("value.data", f"{len(made)} bytes; at most {max_bytes} are taken")
    if (fault := media_fault(str(made_type), made)) is not None:
        raise MessageStructureError("value.data", fault)
    return made, str(made_type)
