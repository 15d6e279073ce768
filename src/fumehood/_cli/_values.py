"""Values of options that several verbs take: seconds, sizes, names. What is wrong with one is told with its
option.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import click

from fumehood.policies.errors import ConfigError

MOST_MEMORY = 4 << 40


class Seconds(click.types.FloatParamType):
    """A number of seconds above 0: no word, not NaN, and not without end."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds < math.inf:
            self.fail(f"{value!r} is no number of seconds above 0, such as 90 or 0.5.", param, ctx)
        return seconds


SECONDS = Seconds()


class Days(click.types.FloatParamType):
    """A number of days from 0: not NaN, with which no age compares."""

    name = "days"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            days = float(value)
        except ValueError:
            days = math.nan
        if not 0 <= days < math.inf:
            self.fail(f"{value!r} is no number of days, such as 7 or 0.5.", param, ctx)
        return days


DAYS = Days()


class Name(click.types.StringParamType):
    """An id or name that rows of the log are found by: not empty, and one line."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not text.strip() or not text.isprintable():
            self.fail(f"{text!r} is no name: it is empty, or has what cannot be printed.", param, ctx)
        return text


NAME = Name()


def read_file(file: str, *, most: int, hint: str) -> bytes:
    """The bytes of a file, or of stdin for "-". Raises ConfigError when it cannot be read, and past `most`
    bytes: a device or a pipe may have no end.
    """
    where = "stdin" if file == "-" else file
    try:
        if file == "-":
            data = sys.stdin.buffer.read(most + 1)
        else:
            with Path(file).open("rb") as stream:
                data = stream.read(most + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{where}: cannot be read: {reason}", hint=hint) from error
    if len(data) > most:
        from fumehood.policies.sizes import format_size

        raise ConfigError(f"{where}: is larger than {format_size(most)}", hint=hint)
    return data


def memory_size(text: str, *, least: int) -> int:
    """The bytes that --memory means. Raises ConfigError below `least` and above what a machine can have."""
    from fumehood.policies.sizes import format_size, parse_size

    try:
        size = parse_size(text)
    except ValueError as error:
        raise ConfigError(f"--memory {text!r}: {error}", hint='as in "512 MiB"') from None
    if not least <= size <= MOST_MEMORY:
        bounds = f"{format_size(least)} to {format_size(MOST_MEMORY)}"
        meant = text.isdecimal() and least <= int(text) << 20 <= MOST_MEMORY
        unit = f'; without a unit it counts bytes, write "{text} MiB"' if meant else ""
        raise ConfigError(f"--memory {text!r}: must be from {bounds}{unit}")
    return size
