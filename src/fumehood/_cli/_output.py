"""Text and JSON for people and programs; nothing a tool or a peer wrote reaches a terminal as it came.

`visible` is the only way such text may be printed: a tool's output can hold escape sequences that move the
cursor, set the title or hide what follows. JSON is written with the same characters escaped, which stays
valid JSON.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fumehood._cli._settings import Settings

if TYPE_CHECKING:
    from rich.console import Console

# C0 but for tab and newline, DEL, C1, line separators, bidi controls, zero-width and other format characters,
# half surrogates.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]"
)
_UNSAFE_IN_JSON = re.compile(
    "[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]"
)


def visible(text: str) -> str:
    """`text` with control, bidi and invisible characters written as escapes."""
    return _UNSAFE.sub(_escape, text)


def one_line(text: str) -> str:
    """`visible`, and line ends written as escapes too."""
    return visible(text).replace("\n", "\\n").replace("\t", " ")


def json_text(value: object, *, indent: int | None = None) -> str:
    """JSON that reads well and is safe on a terminal."""
    separators = (",", ":") if indent is None else None
    return _UNSAFE_IN_JSON.sub(
        _json_escape, json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    )


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def _json_escape(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


class Output:
    """Where a verb writes. `out` and `err` are rich consoles, made on first use."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @functools.cached_property
    def out(self) -> Console:
        """stdout."""
        return _console(self.settings, stderr=False)

    @functools.cached_property
    def err(self) -> Console:
        """stderr."""
        return _console(self.settings, stderr=True)

    def json(self, value: object) -> None:
        """The one object of `--format json`: indented for a person, one line for a program."""
        sys.stdout.write(json_text(value, indent=2 if sys.stdout.isatty() else None) + "\n")

    def line(self, text: str = "", style: str | None = None) -> None:
        """One line of text on stdout, wrapped at the terminal's width."""
        from rich.text import Text

        self.out.print(Text(text, style=style or ""))

    def note(self, text: str, style: str | None = None) -> None:
        """Text on stderr that --quiet drops."""
        if not self.settings.quiet:
            self.problem(text, style)

    def problem(self, text: str, style: str | None = None) -> None:
        """Text on stderr."""
        from rich.text import Text

        self.err.print(Text(text, style=style or ""))

    def error(self, message: str, hint: str | None = None) -> None:
        """An error, in the one form all errors have. Not wrapped: a message is copied, searched and
        compared.
        """
        from rich.text import Text

        text = Text.assemble(("error: ", "bold red"), visible(message))
        if hint:
            text.append("\nHint: ", "bold").append(visible(hint), "")
        self.err.print(text, soft_wrap=True)

    def value(self, value: Any) -> None:
        """A tool's value: text as it is (made visible on a terminal), everything else as indented JSON."""
        if isinstance(value, str):
            text = visible(value) if sys.stdout.isatty() else value.encode("utf-8", "replace").decode("utf-8")
            sys.stdout.write(text if text.endswith("\n") else text + "\n")
        else:
            sys.stdout.write(json_text(value, indent=2) + "\n")

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        styles: Sequence[str | None] | None = None,
    ) -> None:
        """Rows under headings where they fit; on a narrow terminal one block a row, so that nothing is cut.

        styles: one for each row.
        """
        cells = [[visible(cell) for cell in row] for row in rows]
        looks: list[str | None] = list(styles) if styles is not None else [None] * len(cells)
        if _fits(columns, cells, self.out.width):
            self._grid(columns, cells, looks)
        else:
            self._blocks(columns, cells, looks)

    def _grid(self, columns: Sequence[str], rows: list[list[str]], styles: list[str | None]) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for at, heading in enumerate(columns):
            longest = max((len(word) for row in rows for word in row[at].split()), default=0)
            last = at == len(columns) - 1
            table.add_column(
                heading, overflow="fold", min_width=min(longest, 24), no_wrap=False, ratio=1 if last else None
            )
        for row, style in zip(rows, styles, strict=True):
            table.add_row(*(Text(cell) for cell in row), style=style)
        self.out.print(table)

    def _blocks(self, columns: Sequence[str], rows: list[list[str]], styles: list[str | None]) -> None:
        from rich.padding import Padding
        from rich.text import Text

        for at, (row, style) in enumerate(zip(rows, styles, strict=True)):
            if at:
                self.out.print()
            self.out.print(Text(row[0] or "-", style=f"bold {style or ''}".strip()))
            for heading, cell in zip(columns[1:], row[1:], strict=True):
                if cell:
                    self.out.print(Padding(Text.assemble((f"{heading}: ", "dim"), cell), (0, 0, 0, 2)))


def _fits(columns: Sequence[str], rows: list[list[str]], width: int) -> bool:
    """Whether a grid keeps short cells on one line and gives the last column at least 24 characters."""
    widths = [
        max([len(columns[at]), *(len(row[at]) for row in rows)], default=0) for at in range(len(columns))
    ]
    return sum(w + 2 for w in widths[:-1]) + min(widths[-1], 24) <= width


def _console(settings: Settings, *, stderr: bool) -> Console:
    from rich.console import Console

    plain = settings.color is not None and not settings.color
    return Console(
        stderr=stderr, highlight=False, markup=False, emoji=False, color_system=None if plain else "auto"
    )
