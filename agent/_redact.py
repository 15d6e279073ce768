"""Taking out of readable reasoning what nobody is to keep or read, before any audit sees it (R298, R486).

Guarantees: with a policy, text that a pattern matches is never at rest, never in a live delta and never in
what an audit reads: it is scrubbed before it is stored. Such a text cannot go back to its vendor, whose
signature covers the words as they were, so its part counts as not kept and the drop rule applies (R379).
Without a match nothing changes. The patterns are the operator's, and so is the time they take.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from fumehood.policies.errors import ConfigError


@dataclass(frozen=True, slots=True, init=False)
class RedactionPolicy:
    """thinking: regular expressions of what is taken out of reasoning. replacement: what stands there then.

    Raises: ConfigError for an expression that is none, or that matches the empty text.
    """

    thinking: tuple[re.Pattern[str], ...]
    replacement: str

    def __init__(self, thinking: Iterable[str | re.Pattern[str]], *, replacement: str = "[redacted]") -> None:
        made = []
        for given in thinking:
            try:
                pattern = re.compile(given)
            except re.error as error:
                raise ConfigError(
                    f"redaction: {given!r} is not a regular expression: {error}",
                    hint="see re in Python's manual",
                ) from error
            if pattern.fullmatch(""):
                raise ConfigError(
                    f"redaction: {pattern.pattern!r} matches the empty text",
                    hint="name what is to be taken out",
                )
            made.append(pattern)
        object.__setattr__(self, "thinking", tuple(made))
        object.__setattr__(self, "replacement", replacement)

    def scrub(self, text: str) -> tuple[str, int]:
        """The text without what the patterns match, and how many places that were."""
        places = 0
        for pattern in self.thinking:
            text, found = pattern.subn(lambda _: self.replacement, text)
            places += found
        return text, places
