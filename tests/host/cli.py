"""Runs the command line for tests: in this process where only its answer matters, as a process of its own
where signals and descriptors do.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.users import PYTHON

COMMAND = [str(PYTHON), "-m", "fumehood"]


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout as the one JSON object it must be."""
        return json.loads(self.out)


class Cli:
    """The command line in one folder, in this process. width: of the terminal that is not there."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self.folder, self._capsys, self._patch = folder, capsys, patch
        patch.chdir(folder)
        for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "FUMEHOOD_CONFIG"):
            patch.delenv(name, raising=False)

    def __call__(self, *words: str, width: int = 80) -> Done:
        from fumehood.cli import main

        self._patch.setenv("COLUMNS", str(width))
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(words)
        out, err = self._capsys.readouterr()
        assert isinstance(end.value.code, int)
        return Done(end.value.code, out, err)


def write(folder: Path, config: str, **tools: str) -> Path:
    """A configuration and its tools; returns the file. State is in the folder."""
    (folder / "tools").mkdir(exist_ok=True)
    for name, text in tools.items():
        (folder / "tools" / f"{name}.py").write_text(textwrap.dedent(text), encoding="utf-8")
    file = folder / "fumehood.toml"
    file.write_text('version = 1\n[host]\nstate = "state"\n' + textwrap.dedent(config), encoding="utf-8")
    return file


@contextlib.contextmanager
def spawn(
    words: Sequence[str], *, cwd: Path, env: Mapping[str, str] | None = None, **streams: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """`fumehood WORDS` as a process of its own, with a state folder below `cwd`; killed when a test fails."""
    full = {**os.environ, "XDG_STATE_HOME": str(cwd), **(env or {})}
    with subprocess.Popen([*COMMAND, *words], cwd=cwd, env=full, **streams) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise


def finish(
    words: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    input: bytes = b"",
    timeout: float = 60,
) -> Done:
    """The same, waited for."""
    pipe = subprocess.PIPE
    with spawn(words, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        out, err = process.communicate(input, timeout)
    return Done(process.returncode, out.decode(), err.decode())
