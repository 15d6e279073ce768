"""Sizes in bytes, as people write them: "512 MiB", "8 MB", "1048576".

KiB, MiB, GiB, TiB are powers of 1024; kB, MB, GB, TB are powers of 1000. A unit must be spelled in one of
these ways (letter case aside): "512M" means one thing to `dd` and another to a disk maker, so it is refused
with both spellings named. No fractions: 1.5 GiB is 1536 MiB. Nothing here knows about configuration files.
"""

from __future__ import annotations

import re

_UNITS: dict[str, int] = {
    "B": 1,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
    "TiB": 1024**4,
    "kB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
}
_BY_LOWER = {name.lower(): factor for name, factor in _UNITS.items()}
_BINARY = ("TiB", "GiB", "MiB", "KiB")
_FORM = re.compile(r"([0-9]{1,19})[ ]?([A-Za-z]*)", re.ASCII)
_FRACTION = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})[ ]?([A-Za-z]+)", re.ASCII)
_COMMA = re.compile(r"^(\s*[0-9]{1,9}),([0-9]{1,2}|[0-9]{4,9})(?![0-9])", re.ASCII)
"""A comma before other than three digits is a decimal point; "1,024 MiB" is 1024 of them."""

_SHORT = {"k": "KiB", "m": "MiB", "g": "GiB", "t": "TiB", "ki": "KiB", "mi": "MiB", "gi": "GiB", "ti": "TiB"}
MAX_SIZE = 2**63 - 1
"""What the kernel's 64-bit signed limits can hold; a larger size is a typing error."""


def parse_size(text: str) -> int:
    """Bytes meant by `text`: digits, at most one blank, a unit (or none, for bytes).

    Raises: ValueError whose text gives the corrected size where one is known.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size{_correction(text)}")
    number, unit = int(match[1]), match[2]
    factor = _BY_LOWER.get(unit.lower() or "b")
    if factor is None:
        short = _SHORT.get(unit.lower())
        if short is None:
            raise ValueError(f"{text!r} has the unknown unit {unit!r}; units are {', '.join(_UNITS)}")
        decimal = short.replace("i", "").replace("K", "k")
        raise ValueError(f'{text!r} has an unclear unit; write "{number} {short}" or "{number} {decimal}"')
    if number * factor > MAX_SIZE:
        raise ValueError(f"{text!r} is more than the kernel can count ({MAX_SIZE} bytes)")
    return number * factor


def _correction(text: str) -> str:
    """The rest of the sentence for a text that is not a size: the size most likely meant, else an example."""
    text = _COMMA.sub(r"\1.\2", text)
    fraction = _FRACTION.fullmatch(text.strip())
    if fraction is not None and fraction[3].lower() in _BY_LOWER:
        scale = 10 ** len(fraction[2])
        whole = int(fraction[1] + fraction[2]) * _BY_LOWER[fraction[3].lower()] // scale
        return f'; fractions are not read, write "{format_size(whole)}"'
    squeezed = re.sub(r"[\s_,]+", "", text)
    close = _FORM.fullmatch(squeezed)
    if close is not None and (close[2].lower() or "b") in _BY_LOWER:
        return f'; write "{close[1]} {close[2]}"' if close[2] else f'; write "{close[1]}"'
    return '; write a number and a unit, like "512 MiB"'


def format_size(size: int) -> str:
    """`size` bytes in the largest binary unit that holds them without a fraction: 536870912 -> "512 MiB".

    `parse_size(format_size(n)) == n` for every n from 0 to MAX_SIZE.
    """
    for unit in _BINARY:
        if size and size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]} {unit}"
    return f"{size} B"
