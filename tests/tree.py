"""The repository as a list of files, and its Python as syntax trees: for tests that read the tree instead of
running it.
"""

from __future__ import annotations

import ast
import functools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("agent", "broker", "isolate", "policies", "sandbox")
"""The top-level folders that are installed as `fumehood.<folder>`; src/fumehood links to each."""

_LEFTOVERS = {
    ".git",
    ".venv",
    "__pycache__",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
    "dist",
    "build",
}


@functools.cache
def files() -> tuple[Path, ...]:
    """Every file of the tree by its path below ROOT: what git tracks or would track; links as themselves.

    Without git (an unpacked sdist) it is every file but the known leftovers of tools.
    """
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout.decode()
    except (OSError, subprocess.CalledProcessError):
        return tuple(sorted(_walk()))
    found = (Path(name) for name in listed.split("\0") if name)
    return tuple(sorted({path for path in found if os.path.lexists(ROOT / path)}))


def _walk() -> Iterator[Path]:
    for folder, names, here in os.walk(ROOT):
        names[:] = [name for name in names if name not in _LEFTOVERS and not name.endswith(".egg-info")]
        links = [name for name in names if os.path.islink(os.path.join(folder, name))]
        for name in (*here, *links):
            yield Path(os.path.relpath(os.path.join(folder, name), ROOT))


def python_files(*below: str) -> list[Path]:
    """Python files under these folders (all when none is named), by their path below ROOT."""
    return [
        path
        for path in files()
        if path.suffix == ".py" and (not below or any(path.is_relative_to(folder) for folder in below))
    ]


@functools.cache
def syntax(path: Path) -> ast.Module:
    """The syntax tree of a file of the tree."""
    return ast.parse((ROOT / path).read_bytes(), str(path))
