"""The documents of the tree as lists of code blocks, each with what it is meant for.

The first word after the fence is the language, a second one a name:

- `python` is run as a script; with a first line `# path/to/file.py` it becomes that file instead.
- `toml` with `version = 1` is loaded as a configuration and kept as fumehood.toml.
- `console` is run: lines after `$ ` are commands, the others what they print (`...` stands for anything).
- `sh` is not run: commands for a person. It must be valid, and what it calls of ours must exist.
- `json` must be JSON. `text`, `javascript`, `typescript` and no language are not looked at.
- A block with a name (`python verify`) is run by a test of its own; here it only has to be valid.

The blocks of one document share an empty folder and run in order, offline.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.tree import ROOT, files

LANGUAGES = {"python", "toml", "console", "sh", "json", "text", "javascript", "typescript", ""}
_FENCE = re.compile(r"^( *)```(.*)$")
_FILE_NAME = re.compile(r"# ([\w./-]+\.\w+)$")


@dataclass(frozen=True, slots=True)
class Block:
    """One code block. line: where its first line stands. name: the second word of the fence, or ""."""

    document: Path
    line: int
    language: str
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def file(self) -> str | None:
        """The file that the block is, when its first line is a comment with nothing but a path."""
        match = _FILE_NAME.match(self.text.partition("\n")[0])
        return match[1] if match else None


def documents() -> list[Path]:
    """Every Markdown file of the tree."""
    return [path for path in files() if path.suffix == ".md"]


def blocks(document: Path) -> list[Block]:
    """The code blocks of a document, in order. Raises ValueError for one that is never closed."""
    found: list[Block] = []
    fence: tuple[int, str, list[str]] | None = None
    for number, line in enumerate((ROOT / document).read_text(encoding="utf-8").splitlines(), 1):
        match = _FENCE.match(line)
        if fence is None:
            if match:
                fence = number, match[1], [match[2].strip()]
        elif match and not match[2]:
            begun, indent, (info, *lines) = fence
            language, _, name = info.partition(" ")
            text = "".join(f"{line.removeprefix(indent)}\n" for line in lines)
            found.append(Block(document, begun + 1, language, name, text))
            fence = None
        else:
            fence[2].append(line)
    if fence is not None:
        raise ValueError(f"{document}:{fence[0]}: this code block is never closed")
    return found


def console_steps(block: Block) -> list[tuple[str, str]]:
    """(command, what it prints) of a `console` block; a command goes on in lines that begin with `> `."""
    steps: list[tuple[str, str]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            steps.append((line[2:], ""))
        elif line.startswith("> ") and steps and not steps[-1][1]:
            steps[-1] = (f"{steps[-1][0]}\n{line[2:]}", "")
        elif steps:
            steps[-1] = (steps[-1][0], f"{steps[-1][1]}{line}\n")
        else:
            raise ValueError(f"{block}: a console block begins with `$ command`")
    return steps


def matches(expected: str, printed: str) -> bool:
    """Whether `printed` is what a document shows; `...` stands for any text, a line of it for any lines."""
    pattern = ".*".join(re.escape(part) for part in expected.strip().split("..."))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None
