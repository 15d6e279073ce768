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
    from rich.text import Text

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


LAST_COLUMN = 24
"""Characters the last column of a grid needs, to be worth reading; with less room the rows become blocks."""


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
        """Text on stdout, wrapped at the terminal's width."""
        from rich.text import Text

        self.out.print(Text(text, style=style or ""))

    def note(self, text: str, style: str | None = None, *, wrap: bool = True) -> None:
        """Text on stderr that --quiet drops."""
        if not self.settings.quiet:
            self.problem(text, style, wrap=wrap)

    def problem(self, text: str, style: str | None = None, *, wrap: bool = True) -> None:
        """Text on stderr. wrap: False for what others wrote, whose lines are to stay as they are."""
        from rich.text import Text

        self._to_stderr(Text(text, style=style or ""), soft_wrap=not wrap)

    def error(self, message: str, hint: str | None = None) -> None:
        """An error, in the one form all errors have. Not wrapped: a message is copied, searched and
        compared.
        """
        from rich.text import Text

        text = Text.assemble(("error: ", "bold red"), visible(message))
        if hint:
            text.append("\nHint: ", "bold").append(visible(hint), "")
        self._to_stderr(text, soft_wrap=True)

    def _to_stderr(self, text: Text, *, soft_wrap: bool) -> None:
        """Where stderr is full or broken there is no place to say so, and the exit code still tells."""
        try:
            self.err.print(text, soft_wrap=soft_wrap)
        except BrokenPipeError:
            raise
        except OSError:
            return

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
        head: int = 1,
    ) -> None:
        """Rows under headings where they fit; on a narrow terminal one block a row, so that nothing is cut.

        The last column wraps. styles: one for each row. head: how many cells make the first line of a block.
        """
        cells = [[visible(cell) for cell in row] for row in rows]
        looks: list[str | None] = list(styles) if styles is not None else [None] * len(cells)
        widths = [max(map(cell_len, column), default=0) for column in zip(columns, *cells, strict=True)]
        room = self.out.width - sum(width + 2 for width in widths[:-1])
        if room >= min(widths[-1], LAST_COLUMN):
            self._grid(columns, cells, looks, widths, room)
        else:
            self._blocks(columns, cells, looks, head)

    def _grid(
        self,
        columns: Sequence[str],
        rows: list[list[str]],
        styles: list[str | None],
        widths: list[int],
        room: int,
    ) -> None:
        indent = " " * (self.out.width - room)
        for row, style in zip([list(columns), *rows], ["bold", *styles], strict=True):
            start = "".join(
                cell + " " * (width + 2 - cell_len(cell))
                for cell, width in zip(row[:-1], widths, strict=False)
            )
            first, *more = wrapped(row[-1], room) or [""]
            self.line("\n".join([(start + first).rstrip(), *(indent + line for line in more)]), style)

    def _blocks(
        self, columns: Sequence[str], rows: list[list[str]], styles: list[str | None], head: int
    ) -> None:
        for at, (row, style) in enumerate(zip(rows, styles, strict=True)):
            if at and head == 1:
                self.line()
            self.line("  ".join(cell for cell in row[:head] if cell) or "-", f"bold {style or ''}".strip())
            named = len(columns) - head > 1
            for heading, cell in zip(columns[head:], row[head:], strict=True):
                if cell:
                    self.hanging(f"{heading}: {cell}" if named else cell, 2)

    def hanging(self, text: str, indent: int, style: str | None = None) -> None:
        """A paragraph that stands `indent` characters in, and stays there when it wraps."""
        pad = " " * indent
        self.line("\n".join(pad + line for line in wrapped(text, self.out.width - indent)), style)


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` cells; a longer word is broken, nothing is lost."""
    from rich.text import Text

    lines = []
    for part in text.split("\n"):
        lines += [line.plain.rstrip() for line in Text(part).wrap(_measuring(), max(width, 8))] or [""]
    return lines


@functools.cache
def _measuring() -> Console:
    from rich.console import Console

    return Console()


def cell_len(text: str) -> int:
    """How many columns of a terminal `text` takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len as of_rich

    return of_rich(text)


def _console(settings: Settings, *, stderr: bool) -> Console:
    from rich.console import Console

    class Told(Console):
        def on_broken_pipe(self) -> None:
            """rich would end us with exit code 1; whoever reads the code is to know that it was the pipe."""
            raise  # noqa: PLE0704 - called while the BrokenPipeError is handled

    plain = settings.color is not None and not settings.color
    return Told(
        stderr=stderr, highlight=False, markup=False, emoji=False, color_system=None if plain else "auto"
    )
