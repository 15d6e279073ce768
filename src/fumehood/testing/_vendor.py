"""What the fake model vendors share: answers as blocks, the queue of them, and strict checks of JSON."""

from __future__ import annotations

import abc
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fumehood.testing.http import Reply, Seen

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Say:
    """One block of an answer. kind: which fields count: text; thinking (text, signature); redacted
    (signature); call; other (block). block: of a text or call, more fields of the vendor's own.
    """

    kind: Literal["text", "thinking", "redacted", "call", "other"]
    text: str = ""
    signature: str | None = None
    id: str = ""
    name: str = ""
    input: object = None
    raw_input: str | None = None
    block: Mapping[str, Any] | None = None

    @property
    def more(self) -> Json:
        """More fields of a text or call."""
        return dict(self.block or {})

    @property
    def arguments(self) -> str:
        """The call's input as the JSON text that the vendor sends."""
        return json.dumps(self.input) if self.raw_input is None else self.raw_input


class BadBody(Exception):
    """The vendor would answer 400."""


class FakeVendor(abc.ABC):
    """Common part: the queue of answers and the log of bodies. Subclasses give the wire."""

    path = ""
    stream_path = ""
    key_header = "authorization"

    def __init__(self) -> None:
        self.bodies: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self._answers: list[tuple[list[Say], str]] = []
        self._default: tuple[list[Say], str] = ([Say("text", "ok")], "end")
        self.raw: Reply | bytes | Iterable[bytes] | None = None

    def say(self, *blocks: Say, stop: Literal["end", "length"] = "end") -> None:
        """Queue an answer; the last one said is repeated when the queue is empty."""
        self._answers.append((list(blocks), stop))
        self._default = self._answers[-1]

    def __call__(self, seen: Seen) -> Reply | bytes | Iterable[bytes]:
        self.headers.append(dict(seen.headers))
        try:
            body = json.loads(seen.body)
            streams = self._asked_for_stream(seen, body)
            self.bodies.append(body)
            self.check(body)
        except (BadBody, KeyError, TypeError, ValueError) as error:
            return Reply.json(
                {"error": {"type": "invalid_request_error", "message": f"{type(error).__name__}: {error}"}},
                400,
            )
        if self.raw is not None:
            return self.raw
        blocks, stop = self._answers.pop(0) if self._answers else self._default
        if not streams:
            return Reply.json(self.answer(blocks, stop))
        events = "".join(self.events(blocks, stop)).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        # Cut at odd places, also inside characters and between CR and LF, as networks do.
        return iter([head, *(events[at : at + 37] for at in range(0, len(events), 37))])

    def _asked_for_stream(self, seen: Seen, body: Json) -> bool:
        if seen.path not in (self.path, self.stream_path):
            raise BadBody(f"no such path: {seen.path}")
        return bool(body.get("stream"))

    @abc.abstractmethod
    def check(self, body: Json) -> None:
        """Raise BadBody for what the vendor would refuse."""

    @abc.abstractmethod
    def answer(self, blocks: list[Say], stop: str) -> Json:
        """The whole answer."""

    @abc.abstractmethod
    def events(self, blocks: list[Say], stop: str) -> Iterator[str]:
        """The answer as events."""


def only(value: Mapping[str, Any], where: str, required: str, optional: str = "") -> None:
    need, may = set(required.split()), set(optional.split())
    if missing := need - value.keys():
        raise BadBody(f"{where}: {sorted(missing)} missing")
    if extra := value.keys() - need - may:
        raise BadBody(f"{where}: {sorted(extra)} not permitted")


def sse(data: object, name: str | None = None) -> str:
    return (f"event: {name}\n" if name else "") + f"data: {json.dumps(data, ensure_ascii=False)}\n\n"


def halves(text: str) -> list[str]:
    middle = max(1, len(text) // 2)
    return [piece for piece in (text[:middle], text[middle:]) if piece]


def words(text: str, where: str) -> None:
    if not isinstance(text, str) or not text:
        raise BadBody(f"{where}: text must be a non-empty string")
