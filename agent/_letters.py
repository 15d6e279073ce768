"""Base64 of media that stands in text: found in whatever alphabet, line breaks and escapes it comes, and left
out.

Guarantees: letters of a request's own media are found by their first 60, with the standard or the URL-safe
alphabet, in one line or wrapped, with line ends as they are or as escapes of any depth, as JSON in JSON has
them. Linear: a run is read once, and lines are added only to what was found. Short runs and honest words are
never touched.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from fumehood.agent._media import base64_size, decode_base64, sniff

HEAD: Final = 60
"""Letters that tell one file from another: 45 bytes, and no shorter line is wrapped."""

_FIRST: Final = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{60,}+={0,2}")
_NEXT: Final = re.compile(r"(?:(?:\\++r)?+\\++n|\r?+\n)[ \t]*+([A-Za-z0-9+/_-]++={0,2})")
_STANDARD: Final = str.maketrans("-_", "+/")

FEW: Final = 8
"""As many heads are looked for one by one; each of them costs a pass over the text."""

# MP3 frames, bitmaps and scripts have signatures of two bytes, which ordinary letters hit by chance.
_WEAK: Final = frozenset({"audio/mpeg", "image/bmp", "application/x-executable", "text/x-script"})


def heads(data: Iterable[str]) -> frozenset[str]:
    """What media data is recognized by."""
    return frozenset(item[:HEAD] for item in data if len(item) >= HEAD)


def letters_in(text: str) -> int:
    """Bytes that the long runs of base64 letters in a text would stand for."""
    return sum(base64_size(run) for run in _FIRST.findall(text))


def without_media(text: str, known: Collection[str], *, any_media: bool) -> str:
    """The text without base64 of media.

    known: heads of the request's own media. any_media: also what begins as a media file does.
    """
    if not any_media and len(known) <= FEW and not any(_stands_in(head, text) for head in known):
        return text
    made: list[str] = []
    at = 0
    for run in _FIRST.finditer(text):
        start, end = run.span()
        if start < at:
            continue  # a line of what was left out
        start += _escape_before(text, start)
        if end - start < HEAD:
            continue
        head = text[start : min(end, start + 96)].translate(_STANDARD)
        found = None if head[:HEAD] not in known else "media, see the part"
        if found is None and any_media:
            found = _media_type(head)
        if found is None:
            continue
        size, end = _whole(text, start, end)
        words = found if found.startswith("media") else f"{found}, {size} bytes of base64 left out"
        made += (text[at:start], f"[{words}]")
        at = end
    return "".join([*made, text[at:]]) if made else text


def _stands_in(head: str, text: str) -> bool:
    # Only to spare a text that holds none of them the look at every word; by what both alphabets have.
    return max(re.split("[+/]", head), key=len) in text


def _escape_before(text: str, start: int) -> int:
    """How many of the letters belong to an escape in front of them: in JSON a line end is `\\n`."""
    if start == 0 or text[start - 1] != "\\":
        return 0
    return 5 if text[start] == "u" else 1


def _media_type(head: str) -> str | None:
    try:
        found = sniff(decode_base64(head[: len(head) // 4 * 4]))
    except ValueError:
        return None
    return None if found in _WEAK else found


def _whole(text: str, start: int, end: int) -> tuple[int, int]:
    """How many bytes the letters from `start` stand for, and where they end: further lines of one width, and
    a last one that is shorter.
    """
    width = end - start
    letters = text[start:end]
    size = base64_size(letters)
    for line in _lines(text, end) if not letters.endswith("=") else ():
        more = line.group(1)
        if len(more) > width:
            break
        size += base64_size(more)
        end = line.end()
        if len(more) < width or more.endswith("="):
            break
    return size, end


def _lines(text: str, at: int) -> Iterator[re.Match[str]]:
    while (line := _NEXT.match(text, at)) is not None:
        yield line
        at = line.end()
