"""Secrets that the broker puts into a request for one origin, and takes out of what comes back.

Guarantees: a value is looked up at the moment it is sent, lives in no event, error or repr, and is replaced
where an answer echoes it. The tool's own value for that header is dropped; two of them are refused, because
one could hide behind the other.
Not here: which origin gets one (the rule that matched, decided anew for each redirect hop).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from fumehood.policies.errors import FumehoodError, HostError
from fumehood.policies.rules import EgressRule, SecretHeader

SecretLookup = Callable[[str], str]
_MASK = b"[secret]"
_SHORTEST = 6  # a shorter value would be found everywhere by chance


def fill(secret: SecretHeader, lookup: SecretLookup) -> tuple[str, tuple[bytes, ...]]:
    """The header's value with every {NAME} looked up, and the values by themselves.

    Raises: HostError without the value when a secret is missing or cannot stand in a header.
    """
    values: list[bytes] = []

    def value_of(found: re.Match[str]) -> str:
        try:
            value = lookup(found[1])
        except (KeyError, OSError, FumehoodError) as error:
            raise HostError(
                f"the secret {found[1]!r} cannot be read", hint="see [secrets] in the configuration"
            ) from error
        if not value.isascii() or not value.isprintable():
            raise HostError(f"the secret {found[1]!r} has characters that no header can hold")
        values.append(value.encode())
        return value

    text = re.sub(r"\{([A-Za-z_][A-Za-z0-9_-]*)\}", value_of, secret.value)
    return text, tuple(values)


def with_secret(
    headers: tuple[tuple[str, str], ...],
    rule: EgressRule | None,
    lookup: SecretLookup,
    *,
    keep_length: bool = False,
) -> tuple[tuple[tuple[str, str], ...], Scrubber]:
    """The headers to send, and the scrubber for what comes back.

    What the tool says about codings is dropped as well: a coding that the scrubber cannot see through would
    hide a value that comes back.
    """
    if rule is None or rule.secret is None:
        return headers, Scrubber(())
    name = rule.secret.header
    kept = tuple((key, value) for key, value in headers if key.lower() != name.lower())
    if not rule.secret.value:
        return kept, Scrubber(())
    text, values = fill(rule.secret, lookup)
    seen_through = tuple((key, value) for key, value in kept if key.lower() != "accept-encoding")
    if keep_length:  # bodies are handed on as they come, so nothing undoes a coding
        seen_through += (("Accept-Encoding", "identity"),)
    return (*seen_through, (name, text)), Scrubber(values, keep_length=keep_length)


class Scrubber:
    """Replaces secret values in text that goes back to the tool, also where one is split over two pieces."""

    def __init__(self, values: tuple[bytes, ...], *, keep_length: bool = False) -> None:
        self._keep_length = keep_length  # where the length was announced already
        self._values = tuple(
            sorted((value for value in values if len(value) >= _SHORTEST), key=len, reverse=True)
        )
        self._hold = max((len(value) - 1 for value in self._values), default=0)
        self._kept = b""

    def __repr__(self) -> str:
        return f"<Scrubber of {len(self._values)} values>"

    def text(self, text: str) -> str:
        """A whole header value."""
        return self._clean(text.encode("latin-1", "replace")).decode("latin-1") if self._values else text

    def whole(self, data: bytes) -> bytes:
        """Bytes that are not continued, or must not wait for what follows."""
        return self._clean(data)

    def feed(self, piece: bytes) -> bytes:
        """What of `piece` may go on now."""
        if not self._values:
            return piece
        data = self._clean(self._kept + piece)
        # Hold back only what could be the start of a value, so that event streams flow.
        keep = next((n for n in range(min(self._hold, len(data)), 0, -1) if self._starts(data[-n:])), 0)
        self._kept = data[len(data) - keep :]
        return data[: len(data) - keep]

    def finish(self) -> Iterator[bytes]:
        """What was held back."""
        if self._kept:
            yield self._kept
            self._kept = b""

    def _starts(self, tail: bytes) -> bool:
        return any(value.startswith(tail) for value in self._values)

    def _clean(self, data: bytes) -> bytes:
        for value in self._values:
            data = data.replace(value, b"*" * len(value) if self._keep_length else _MASK)
        return data
