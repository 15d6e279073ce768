"""A module tool that decodes an image and writes it anew, so that nothing but the picture comes through.

Runs in a cage: a decoder that hostile bytes overcome meets the cage's walls. Needs Pillow there. Input:
{"data": base64, "media_type"}; result: {"data": base64, "media_type", "width", "height"}. Metadata, comments,
trailing bytes and second formats do not survive; neither do animations.
"""

import base64
import io

FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "WEBP", "image/gif": "GIF"}
MAX_PIXELS = 64_000_000


def run(input, ctx):  # type: ignore[no-untyped-def]
    """Decode by the declared format alone and encode the bare pixels."""
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = MAX_PIXELS
    name = FORMATS[input["media_type"]]
    with Image.open(io.BytesIO(base64.b64decode(input["data"])), formats=[name]) as source:
        source.load()
        mode = (
            "RGB"
            if name == "JPEG"
            else "RGBA"
            if "A" in source.getbands() or "transparency" in source.info
            else "RGB"
        )
        pixels = source.convert(mode)
    clean = Image.frombytes(mode, pixels.size, pixels.tobytes())
    out = io.BytesIO()
    clean.save(out, "PNG" if name == "GIF" else name)
    return {
        "data": base64.b64encode(out.getvalue()).decode(),
        "media_type": "image/png" if name == "GIF" else input["media_type"],
        "width": clean.width,
        "height": clean.height,
    }
