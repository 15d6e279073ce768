"""An upstream's answer on its way to a child: which fields go on, and the body, in the clear where a secret
has to be looked for, masked and counted.

Guarantees: fields of one connection stay behind; nothing is looked for in a coding: where the broker put a
secret in, it asks for none, and an answer that has one all the same is decoded, or refused when it cannot be;
bytes over a cap go nowhere, decoded ones neither.
Not here: which bytes are a secret (_scrub.py), and how the child's side is framed.
"""

from __future__ import annotations

from collections.abc import Iterator

from fumehood.broker._decode import BadCoding, Decoder, decoder_for, is_coded
from fumehood.broker._exchange import Headers, ResponseHead, UpstreamFailed
from fumehood.broker._head import HOP_BY_HOP
from fumehood.broker._scrub import Scrubber

HIDDEN = "the answer is in a content coding that nobody asked for and that may hide the entry's secret"


class AnswerBody:
    """most: bytes that may come, as they are and decoded."""

    def __init__(self, decoder: Decoder | None, scrubber: Scrubber, most: int | None) -> None:
        self._decoder, self._scrubber, self._most = decoder, scrubber, most
        self._received = self._decoded = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """What of `piece` goes on now, in parts of bounded size. Raises: UpstreamFailed."""
        self._received += len(piece)
        self._check(self._received, "")
        if self._decoder is None:
            if part := self._scrubber.feed(piece):
                yield part
            return
        try:
            for part in self._decoder.feed(piece):
                self._decoded += len(part)
                self._check(self._decoded, " once decoded")
                if part := self._scrubber.feed(part):
                    yield part
        except BadCoding as error:
            raise UpstreamFailed(str(error)) from error

    def finish(self) -> bytes:
        """What was held back. Raises: UpstreamFailed."""
        try:
            if self._decoder is not None:
                self._decoder.finish()
        except BadCoding as error:
            raise UpstreamFailed(str(error)) from error
        return b"".join(self._scrubber.finish())

    def _check(self, count: int, how: str) -> None:
        if self._most is not None and count > self._most:
            raise UpstreamFailed(f"the answer has over {self._most} bytes{how}", "budget-bytes")


def in_the_clear(answer: ResponseHead, scrubber: Scrubber) -> tuple[ResponseHead, Decoder | None]:
    """The answer as it is without a coding that would hide a secret, and what undoes that coding.

    Raises: UpstreamFailed when nothing undoes it.
    """
    coding = ", ".join(answer.all("content-encoding")) if scrubber.is_looking else ""
    if not is_coded(coding):
        return answer, None
    try:
        decoder = decoder_for(coding)
    except BadCoding as error:
        raise UpstreamFailed(str(error)) from error
    if decoder is None or answer.status == 206:
        raise UpstreamFailed(HIDDEN)
    headers = tuple(
        (key, value)
        for key, value in answer.headers
        if key.lower() not in ("content-encoding", "content-length")
    )
    return ResponseHead(answer.status, answer.phrase, headers, answer.version), decoder


def kept(answer: ResponseHead) -> Headers:
    """The headers of an answer that go on to the child: not those of the connection that it came by.

    A length stays whatever Connection names: the child's framing relies on it.
    """
    named = {option.strip().lower() for value in answer.all("connection") for option in value.split(",")}
    dropped = (HOP_BY_HOP | named) - {"content-length"}
    return tuple((key, value) for key, value in answer.headers if key.lower() not in dropped)


def scrubbed(headers: Headers, scrubber: Scrubber) -> Headers:
    """The headers with secrets masked, in names too and across the colon."""
    out = []
    for key, value in headers:
        line = scrubber.text(f"{key}: {value}")
        if line != f"{key}: {value}":
            key, _, value = line.partition(": ") if ": " in line else ("x-masked", "", line)
        out.append((key, value))
    return tuple(out)
