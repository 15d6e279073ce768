"""Takes secret values out of bytes that go back to a tool, in the spellings that servers give them.

Found: the value as it is, percent-encoded, with JSON's or HTML's escapes, with two of these or one twice
over, in hex, in UTF-16, and in base64 wherever it stands in what was encoded; also where it is split over
pieces. The time is linear in the bytes, and only what may be the start of a value is held back, so that event
streams flow.
Best effort by nature: a peer that means to tell the value can (reversed, in pieces, in another coding). At
either edge of a base64 run up to four bits of the value stay.
"""

from __future__ import annotations

import base64
import bisect
import itertools
import re
from collections.abc import Iterator

_MASK = b"[secret]"
_SHORTEST = 6  # a shorter value would be found everywhere by chance
_DEPTH = 2  # escapes inside escapes: %2541, or a URL inside JSON inside a page
_WIDEST = 32  # bytes that one byte of a value becomes at most, as far as pieces go
_NAMED = {b"amp": b"&", b"lt": b"<", b"gt": b">", b"quot": b'"', b"apos": b"'", b"plus": b"+",
          b"equals": b"=", b"sol": b"/", b"colon": b":", b"lowbar": b"_", b"period": b".",
          b"percnt": b"%"}  # fmt: skip
_LANGUAGES = (
    re.compile(rb"(%[0-9A-Fa-f]{2})"),
    re.compile(rb"(\\(?:u00[0-9A-Fa-f]{2}|x[0-9A-Fa-f]{2}|[\"'\\/]))"),
    re.compile(rb"(&(?:#[xX]0{0,4}[0-9A-Fa-f]{1,2}|#0{0,4}[0-9]{1,3}|" + b"|".join(_NAMED) + rb");)"),
)
_REMEMBERED = 8192
_CUT_OFF = re.compile(rb"(?:%[0-9A-Fa-f]?|\\(?:u0{0,2}|x|)[0-9A-Fa-f]?|&#?[0-9A-Za-z]{0,8})\Z")


class Scrubber:
    """Replaces secret values in text that goes back to the tool, also where one is split over two pieces."""

    def __init__(self, values: tuple[bytes, ...], *, keep_length: bool = False) -> None:
        self._keep_length = keep_length  # where the length was announced already
        spellings = {form for value in values if len(value) >= _SHORTEST for form in _spellings(value)}
        self._spellings = tuple(sorted(spellings, key=len, reverse=True))
        self._window = _WIDEST * max((len(spelling) for spelling in self._spellings), default=0)
        self._kept = b""

    def __repr__(self) -> str:
        return f"<Scrubber of {len(self._spellings)} spellings>"

    @property
    def is_looking(self) -> bool:
        """Whether there is a value to look for."""
        return bool(self._spellings)

    @property
    def is_holding(self) -> bool:
        """Whether something waits for what follows it."""
        return bool(self._kept)

    def text(self, text: str) -> str:
        """A whole header value."""
        return self.whole(text.encode("latin-1", "replace")).decode("latin-1") if self._spellings else text

    def whole(self, data: bytes) -> bytes:
        """Bytes that are not continued, or must not wait for what follows."""
        return self._masked(data, self._found(_views(data)), len(data)) if self._spellings else data

    def feed(self, piece: bytes) -> bytes:
        """What of `piece` may go on now."""
        if not self._spellings:
            return piece
        data = self._kept + piece
        found = self._found(_views(data))
        end = self._end_of_known(data)
        if found and found[-1][1] > end:
            # The end of a value may be the start of another spelling of it, which says more: wait for that,
            # if it does not go on and on.
            start, stop = found[-1]
            end = start if len(data) - start <= self._window else stop
        self._kept = data[end:]
        return self._masked(data, found, end)

    def finish(self) -> Iterator[bytes]:
        """What was held back."""
        if self._kept:
            yield self.whole(self._kept)
            self._kept = b""

    def _found(self, views: list[_View]) -> list[tuple[int, int]]:
        """Where values stand in the source, in order, not overlapping."""
        found: list[tuple[int, int]] = []
        for view in views:
            for spelling in self._spellings:
                at = view.data.find(spelling)
                while at >= 0:
                    end = at + len(spelling)
                    found.append((view.source(at), view.source(end)))
                    at = view.data.find(spelling, at + 1)  # a value may stand in itself, moved a little
        merged: list[tuple[int, int]] = []
        for start, end in sorted(found):
            if merged and start < merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        return merged

    def _end_of_known(self, data: bytes) -> int:
        """Up to where nothing can be the start of a value that goes on in the next piece."""
        base = max(0, len(data) - self._window)
        tail = data[base:]
        # An escape may be cut off, in the bytes or in what they read as: then what stands before it counts.
        lengths = {len(tail), _whole_escapes(_View(tail))}
        lengths |= {_whole_escapes(view) for length in lengths for view in _views(tail[:length], 1)}
        ends = [
            view.source(len(view.data) - self._starting(view.data))
            for length in lengths
            for view in _views(tail[:length])
        ]
        return base + min(ends)

    def _starting(self, data: bytes) -> int:
        """The length of the longest end of `data` that starts a spelling and does not finish it."""
        longest = 0
        for spelling in self._spellings:
            tail = data[-(len(spelling) - 1) :]
            at = tail.find(spelling[:1])
            while 0 <= at < len(tail) - longest:
                if spelling.startswith(tail[at:]):
                    longest = len(tail) - at
                    break
                at = tail.find(spelling[:1], at + 1)
        return longest

    def _masked(self, data: bytes, found: list[tuple[int, int]], end: int) -> bytes:
        out, at = [], 0
        for start, stop in found:
            if stop > end:
                break
            out += [data[at:start], b"*" * (stop - start) if self._keep_length else _MASK]
            at = stop
        return b"".join((*out, data[at:end]))


class _View:
    """Bytes as they read, and where each of them comes from.

    parts: what they are made of, beside what each part was in the view below; None for the source itself.
    """

    def __init__(
        self, data: bytes, parts: tuple[list[bytes], list[bytes]] | None = None, below: _View | None = None
    ) -> None:
        self.data, self._parts, self._below = data, parts, below
        self._places: tuple[list[int], list[int]] | None = None

    def source(self, at: int) -> int:
        """The place in the source of the byte at `at`."""
        if self._parts is None or self._below is None:
            return at
        if self._places is None:  # seldom asked for, and as long as the data
            here, there = self._parts
            self._places = (
                list(itertools.accumulate(map(len, here), initial=0)),
                list(itertools.accumulate(map(len, there), initial=0)),
            )
        places, below = self._places
        number = bisect.bisect_right(places, at) - 1
        return self._below.source(below[number] + at - places[number])


def _views(data: bytes, depth: int = _DEPTH) -> list[_View]:
    """`data` as it is, and as it reads once the escapes of one language are read, and then of another."""
    views = level = [_View(data)]
    for _ in range(depth):
        level = [read for view in level for language in _LANGUAGES if (read := _read(view, language))]
        known = {view.data for view in views}
        level = list({view.data: view for view in level if view.data not in known}.values())
        views = views + level
    return views


def _read(view: _View, language: re.Pattern[bytes]) -> _View | None:
    there = language.split(view.data)
    if len(there) == 1:
        return None
    here = there.copy()
    here[1::2] = [_READ[escape] for escape in there[1::2]]
    return _View(b"".join(here), (here, there), view)


def _whole_escapes(view: _View) -> int:
    """Up to where in the source no escape is cut off."""
    found = _CUT_OFF.search(view.data, max(0, len(view.data) - 12))
    return view.source(len(view.data) if found is None else found.start())


class _Escapes(dict[bytes, bytes]):
    """Escape -> the byte it stands for, read once: there are a few thousand."""

    def __missing__(self, escape: bytes) -> bytes:
        if escape.startswith(b"\\") and escape[1:2] not in b"ux":
            byte = escape[1:]
        elif escape.startswith(b"&") and escape[1:2] != b"#":
            byte = _NAMED[escape[1:-1]]
        elif escape.startswith(b"&#") and escape[2:3] not in b"xX":
            byte = bytes((int(escape[2:-1]) & 255,))
        else:
            byte = bytes((int(escape.rstrip(b";")[-2:].lstrip(b"xX"), 16),))
        if len(self) < _REMEMBERED:
            self[escape] = byte
        return byte


_READ = _Escapes()


def _spellings(value: bytes) -> set[bytes]:
    """The value, and what becomes of it in hex, in UTF-16 and in base64, whatever stands before and after."""
    found = {value, value.replace(b" ", b"+"), value.hex().encode(), value.hex().upper().encode()}
    found.add(b"\0".join(value[at : at + 1] for at in range(len(value))))  # UTF-16, either byte order
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + value)
        run = encoded[(before * 8 + 5) // 6 : (before + len(value)) * 8 // 6]
        found |= {run, run.translate(_URL_SAFE)}
    return found


_URL_SAFE = bytes.maketrans(b"+/", b"-_")
