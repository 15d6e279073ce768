"""The work that every contestant does, as files in a temporary folder: a tool that returns its input, with
and without libraries, and the same as a program for peers that start one.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fumehood.isolate import Machine

PAYLOAD: dict[str, Any] = {"text": "x" * 960, "numbers": [1, 2.5, None]}
"""One kilobyte of JSON, in and out."""

PAYLOAD_TEXT = json.dumps(PAYLOAD).encode()
LIBRARIES = ("httpx", "pydantic")

_NOOP = "def run(input, ctx):\n    return input\n"
_LIBRARY = """\
import httpx
import pydantic


class Input(pydantic.BaseModel):
    text: str
    numbers: list[float | None]


def run(input, ctx):
    Input.model_validate(input)
    return input
"""
_PROGRAM = """\
import json, sys
sys.path[:] = json.loads(sys.argv[1])
sys.path.append(sys.argv[2])
module = __import__(sys.argv[3])
json.dump(module.run(json.load(sys.stdin), None), sys.stdout)
"""
_BALLAST = """\
TABLES = [{{f"key {{n}}": [n, str(n)] for n in range(1000)}} for _ in range({tables})]
"""
_TABLES_PER_MB = 4.3  # measured: one table is about 240 KB


class Work:
    """The folder and what is in it. A context manager; the folder goes at the end."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fumehood-bench-"))
        self.folder.chmod(0o755)
        self.tools, self.extra = self.folder / "tools", self.folder / "extra"
        for folder in (self.tools, self.extra):
            folder.mkdir()
        self.noop = self._write(self.tools / "noop.py", _NOOP)
        self.library = self._write(self.tools / "library.py", _LIBRARY)
        self.program = self._write(self.tools / "program.py", _PROGRAM)
        here = Machine.read()
        self.machine = dataclasses.replace(
            here,
            sys_path=(*here.sys_path, str(self.extra)),
            site_dirs=(*here.site_dirs, str(self.extra)),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def ballast(self, megabytes: int) -> str:
        """A module whose import takes about that much memory, as its name."""
        name = f"fumehood_bench_ballast_{megabytes}"
        self._write(
            self.extra / f"{name}.py", _BALLAST.format(tables=max(1, round(megabytes * _TABLES_PER_MB)))
        )
        return name

    def python(self, module: Path) -> list[str]:
        """The command that runs a tool's module once, as a program of its own."""
        return [
            self.machine.executable, "-I", "-S", str(self.program),
            json.dumps(self.machine.sys_path), str(module.parent), module.stem,
        ]  # fmt: skip

    @staticmethod
    def _write(path: Path, text: str) -> Path:
        path.write_text(text, encoding="utf-8")
        return path
