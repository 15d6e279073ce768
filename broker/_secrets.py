"""Secrets that the broker puts into a request for one origin, and takes out of what comes back.

Guarantees: a value is looked up at the moment it is sent, lives in no event, error or repr, and is replaced
where an answer echoes it (_scrub.py). The tool's own value for that header is dropped; two of them are
refused, because one could hide behind the other.
Not here: which origin gets one (the rule that matched, decided anew for each redirect hop).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable

from fumehood.broker._meant import alike
from fumehood.broker._scrub import Scrubber
from fumehood.policies.errors import FumehoodError, HostError
from fumehood.policies.rules import EgressRule, SecretHeader

__all__ = ["Scrubber", "SecretLookup", "fill", "with_secret"]
_CODINGS = ("accept-encoding", "sec-websocket-extensions")  # permessage-deflate hides a value as gzip does
SecretLookup = Callable[[str], str]


def fill(secret: SecretHeader, lookup: SecretLookup) -> tuple[str, tuple[bytes, ...]]:
    """The header's value with every {NAME} looked up, and what to look for in answers.

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
    return text, (*values, *_of_basic(text))


def _of_basic(text: str) -> tuple[bytes, ...]:
    """What servers make of Basic credentials (RFC 7617): user and password, and the password by itself."""
    scheme, _, coded = text.partition(" ")
    try:
        pair = base64.b64decode(coded.strip(), validate=True) if scheme.lower() == "basic" else b""
    except ValueError:
        return ()
    user, colon, password = pair.partition(b":")
    return (pair, password) if colon and password else ()


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
    kept = tuple((key, value) for key, value in headers if alike(key) != alike(name))
    if not rule.secret.value:
        return kept, Scrubber(())
    text, values = fill(rule.secret, lookup)
    seen_through = tuple((key, value) for key, value in kept if key.lower() not in _CODINGS)
    if keep_length:  # bodies are handed on as they come, so nothing undoes a coding
        seen_through += (("Accept-Encoding", "identity"),)
    return (*seen_through, (name, text)), Scrubber(values, keep_length=keep_length)
