"""One build of the tree for all packaging tests: offline, from a copy, through the source distribution."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tree import ROOT, files


@dataclass(frozen=True, slots=True)
class Built:
    """`tree`: the copy that was built. `sdist`, `wheel`: the two files that came of it."""

    tree: Path
    sdist: Path
    wheel: Path


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The source distribution of the tree, and the wheel made from that (never from the tree itself).

    The copy holds what git would track, and files that git ignores: neither may end in a distribution.
    """
    tree = tmp_path_factory.mktemp("tree")
    for path in files():
        (tree / path.parent).mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, tree / path, follow_symlinks=False)
    for ignored in ("isolate/leftover.pyc", "broker/__pycache__/cached.pyc", "state/log.sqlite3"):
        (tree / ignored).parent.mkdir(exist_ok=True)
        (tree / ignored).write_bytes(b"ignored by git")
    out = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", out, tree])
    return Built(tree, *out.glob("*.tar.gz"), *out.glob("*.whl"))


@pytest.fixture(scope="session")
def wheel_python(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that sees the wheel and our dependencies, and not the checkout.

    The dependencies are the files of this environment (hard links, where that can be): a path to them would
    lead out of what a cage shows.
    """
    venv = tmp_path_factory.mktemp("wheel-venv")
    run([sys.executable, "-m", "venv", "--without-pip", venv])
    python = venv / "bin" / "python"
    (site,) = venv.glob("lib/python*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(("fumehood", "_fumehood", "__editable__")):
            try:
                run(["cp", "-al", entry, site])
            except AssertionError:  # another file system
                run(["cp", "-a", entry, site])
    install: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    run([*install, "--no-index", "--no-deps", built.wheel])
    return python


def run(argv: list[str | Path], **options: object) -> str:
    """Run to the end and give the output; whatever it printed is in the error when it fails."""
    done = subprocess.run(
        [str(word) for word in argv], capture_output=True, text=True, timeout=300, **options
    )  # type: ignore[call-overload]
    assert done.returncode == 0, f"{argv} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return str(done.stdout)
