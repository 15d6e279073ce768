"""Content codings undone in bounded steps, so that a bomb costs no more than the cap it runs into.

Guarantees: no step yields more than STEP bytes (zstd: one block of 128 KiB for each few bytes fed); the
caller counts and stops. One coding only: a stacked Content-Encoding is refused. A body that ends inside its
coding is an error, not a short success.
Not here: the caps themselves (_fetch.py). br and zstd are undone where the `brotli` and `zstandard` packages
are installed, and are not asked for otherwise.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import zlib
from collections.abc import Iterator
from typing import Any, Protocol

STEP = 64 * 1024  # bytes a decoder yields at once
_SLICE = 256  # bytes fed to zstd at once: its worst ratio is one 128 KiB block for 4 bytes


class BadCoding(ValueError):
    """The body does not hold what its Content-Encoding says."""


class Decoder(Protocol):
    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decoded pieces of at most STEP bytes. Raises: BadCoding."""

    def finish(self) -> None:
        """The body ended. Raises: BadCoding when the coding did not."""


@functools.cache  # looking for a module on disk costs more than the rest of a request
def codings() -> tuple[str, ...]:
    """The content codings that this installation undoes, as they stand in Accept-Encoding."""
    more = [
        name for name, module in (("br", "brotli"), ("zstd", "zstandard")) if importlib.util.find_spec(module)
    ]
    return ("gzip", "deflate", *more)


def decoder_for(encoding: str) -> Decoder | None:
    """The decoder for a Content-Encoding value; None for identity and for codings that are handed on
    undecoded.

    Raises: BadCoding for stacked codings.
    """
    names = _names(encoding)
    if len(names) > 1:
        raise BadCoding(f"{len(names)} stacked content codings; one is the limit")
    match names:
        case ["gzip" | "x-gzip"]:
            return _Zlib(31)
        case ["deflate"]:
            return _Zlib(0)
        case ["br"] if "br" in codings():
            return _Brotli()
        case ["zstd"] if "zstd" in codings():
            return _Zstd()
    return None


def is_coded(encoding: str) -> bool:
    """Whether a Content-Encoding value names any coding at all."""
    return bool(_names(encoding))


def _names(encoding: str) -> list[str]:
    names = [name.strip().lower() for name in encoding.split(",") if name.strip()]
    return [name for name in names if name != "identity"]


class _Zlib:
    """gzip (RFC 1952, several members) and deflate (RFC 1950, and the raw RFC 1951 that some servers send
    under its name).
    """

    def __init__(self, window: int) -> None:
        self._window = window
        self._inner = zlib.decompressobj(window) if window else None
        self._started = False
        self._ahead = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._started = self._started or bool(data)
        if self._inner is None:
            data, self._ahead = self._ahead + data, b""
            if len(data) < 2:
                self._ahead = data  # two bytes tell a zlib header from a raw stream
                return
        while data:
            if self._inner is None:
                zlib_header = data[0] & 15 == 8 and (data[0] << 8 | data[1]) % 31 == 0
                self._inner = zlib.decompressobj(15 if zlib_header else -15)
            elif self._inner.eof:
                if self._window != 31:
                    raise BadCoding("bytes after the end of the deflate stream")
                self._inner = zlib.decompressobj(31)
            try:
                piece = self._inner.decompress(data, STEP)
            except zlib.error as error:
                raise BadCoding(f"the body is not what its coding says: {error}") from error
            if piece:
                yield piece
            data = self._inner.unused_data if self._inner.eof else self._inner.unconsumed_tail
            if not data and len(piece) == STEP and not self._inner.eof:
                yield from self._rest()

    def _rest(self) -> Iterator[bytes]:
        """What zlib holds back when output filled the step exactly."""
        assert self._inner is not None
        while piece := self._inner.decompress(b"", STEP):
            yield piece

    def finish(self) -> None:
        if self._started and (self._inner is None or not self._inner.eof):
            raise BadCoding("the body ends inside its coding")


class _Brotli:
    def __init__(self) -> None:
        self._brotli: Any = importlib.import_module("brotli")
        self._inner = self._brotli.Decompressor()
        self._started = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._started = self._started or bool(data)
        try:
            piece = self._inner.process(data, output_buffer_limit=STEP)
            while piece or not self._inner.can_accept_more_data():
                yield piece
                piece = self._inner.process(b"", output_buffer_limit=STEP)
        except self._brotli.error as error:
            raise BadCoding(f"the body is not what its coding says: {error}") from error

    def finish(self) -> None:
        if self._started and not self._inner.is_finished():
            raise BadCoding("the body ends inside its coding")


class _Zstd:
    def __init__(self) -> None:
        self._zstandard: Any = importlib.import_module("zstandard")
        # RFC 8878 section 3.1.1.1.2 asks receivers for 8 MiB windows; more is memory for the sender's
        # pleasure.
        self._inner = self._zstandard.ZstdDecompressor(max_window_size=8 * 1024 * 1024).decompressobj()
        self._started = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        self._started = self._started or bool(data)
        for at in range(0, len(data), _SLICE):
            try:
                piece = self._inner.decompress(data[at : at + _SLICE])
            except self._zstandard.ZstdError as error:
                raise BadCoding(f"the body is not what its coding says: {error}") from error
            if piece:
                yield piece

    def finish(self) -> None:
        if self._started and not self._inner.eof:
            raise BadCoding("the body ends inside its coding")
