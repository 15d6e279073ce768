"""Images written anew: in a real cage, and against a cage whose inside was taken over."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fumehood import Host, load_config
from fumehood.agent import MessageStructureError
from fumehood.agent._media import media_fault
from fumehood.agent._reencode import TOOL_FILE, reencode
from tests.agent.samples import PDF, b64, png

pytestmark = pytest.mark.anyio


def picture(kind: str, **options: Any) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (4, 3), (200, 10, 10)).save(out, kind, **options)
    return out.getvalue()


async def test_a_polyglot_comes_out_of_the_cage_as_its_picture_alone(tmp_path: Path) -> None:
    file = tmp_path / "fumehood.toml"
    file.write_text(
        (
            'version = 1\n[host]\nstate = "state"\nrequire_tier = '
            f'"any"\n[tools.reencode]\ndescription = "Write an image anew"\nmodule = "{TOOL_FILE}"\n'
        ),
        encoding="utf-8",
    )
    hostile = {
        "image/gif": picture("GIF") + b"<script>alert(1)</script>",
        "image/jpeg": picture("JPEG", comment=b"<html><script >x</script>") + b"PK\x05\x06" + bytes(18),
        "image/png": png(4, 3) + b"<html >",
    }
    async with Host(load_config(file)) as host:

        async def call(input_: Mapping[str, Any]) -> object:
            result = await host.call("reencode", dict(input_))
            assert result.outcome == "ok", result.error
            return result.value

        for media_type, data in hostile.items():
            assert media_fault(media_type, data) is not None  # the control: it would be refused as it is
            made, kind = await reencode(data, media_type, call)
            assert media_fault(kind, made) is None and b"script" not in made and b"html" not in made
            with Image.open(io.BytesIO(made)) as seen:
                assert seen.size == (4, 3)
        result = await host.call("reencode", {"data": b64(PDF), "media_type": "image/png"})
        assert result.outcome == "tool_error"


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        {"data": 7, "media_type": "image/png"},
        {"data": "%%%", "media_type": "image/png"},
        {"data": b64(PDF), "media_type": "image/png"},
        {"data": b64(png() + b"<script >"), "media_type": "image/png"},
        {"data": b64(png()), "media_type": "text/html"},
        {"data": b64(png() + bytes(200)), "media_type": "image/png"},
    ],
)
async def test_what_a_taken_over_cage_returns_is_judged_like_anything_else(value: Any) -> None:
    async def call(input_: Mapping[str, Any]) -> object:
        return value

    with pytest.raises(MessageStructureError):
        await reencode(png(), "image/png", call, max_bytes=200)


async def test_only_images_are_sent_there() -> None:
    async def call(input_: Mapping[str, Any]) -> object:
        raise AssertionError("must not be asked")

    with pytest.raises(MessageStructureError, match="is not an image"):
        await reencode(PDF, "application/pdf", call)
