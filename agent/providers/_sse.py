"""Server-sent events, as far as model vendors use them (WHATWG HTML, section 9.2).

Guarantees: the same events whatever pieces the bytes come in, and a cap on the length of one event. Sans I/O:
bytes in, events out. Retry fields and event ids are skipped; nobody reconnects in the middle of an answer.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import Final, NamedTuple

MAX_EVENT_BYTES: Final = 16 * 1024 * 1024
"""Longest event. Terminal events repeat a whole answer, so this is generous; without it a vendor
could fill memory.
"""


class SseEvent(NamedTuple):
    """One event: its name ("message" when it has none) and its data."""

    name: str
    data: str


class SseParser:
    """Feed it bytes; it yields events as their blank line arrives. Raises ValueError for an event
    past the cap.
    """

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._rest: list[str] = []
        self._rest_size = 0
        self._size = 0
        self._name = ""
        self._data: list[str] = []
        self._last_cr = False
        self._start = True

    def feed(self, data: bytes, *, final: bool = False) -> Iterator[SseEvent]:
        """Events that these bytes complete. final: no more bytes come; a last event without its
        blank line is given too.
        """
        text = self._decode(data, final)
        if self._start and text:
            text = text.removeprefix("\ufeff")
            self._start = False
        # A CRLF may be cut between its halves: the LF that opens this piece belongs to the CR that closed the
        # last one.
        if self._last_cr and text:
            text = text.removeprefix("\n")
            self._last_cr = False
        if text.endswith("\r"):
            self._last_cr = True
        lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        for line in lines[:-1]:
            yield from self._line("".join([*self._rest, line]))
            self._rest.clear()
            self._rest_size = 0
        if lines[-1]:
            self._rest.append(lines[-1])
            self._rest_size += len(lines[-1])
        if self._size + self._rest_size > MAX_EVENT_BYTES:
            raise ValueError(f"a server-sent event is longer than {MAX_EVENT_BYTES} characters")
        if final:
            if self._rest:
                yield from self._line("".join(self._rest))
                self._rest.clear()
            yield from self._line("")

    def _line(self, line: str) -> Iterator[SseEvent]:
        self._size += len(line)
        if not line:
            if self._data:
                yield SseEvent(self._name or "message", "\n".join(self._data))
            self._name, self._size = "", 0
            self._data = []
            return
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
