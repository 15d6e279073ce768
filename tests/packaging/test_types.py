"""Another project sees our types: against the editable install and against the wheel, every public name
included.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tree import FOLDERS

_PACKAGES = ["fumehood", "fumehood.testing", *(f"fumehood.{folder}" for folder in FOLDERS)]
_USES = """\
from fumehood import CallResult, Host, load_config
from fumehood.agent import EventLog
from fumehood.broker import EgressDecision
from fumehood.isolate import Limits
from fumehood.policies import parse_size


async def use(path: str) -> CallResult:
    async with Host(load_config(path)) as host:
        return await host.call("tool", {"at": 1})


def figures(decision: EgressDecision, limits: Limits) -> tuple[str, float, int]:
    return decision.outcome, limits.timeout_s, parse_size("1 MiB")


wrong: int = figures
"""


def _public_names() -> str:
    lines = []
    for number, package in enumerate(_PACKAGES):
        names = getattr(importlib.import_module(package), "__all__", [])
        lines += [
            f"from {package} import {name} as name_{number}_{place}" for place, name in enumerate(names)
        ]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def consumer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that uses fumehood, with one mistake of its own."""
    folder = tmp_path_factory.mktemp("consumer")
    (folder / "uses.py").write_text(_USES)
    (folder / "public_names.py").write_text(_public_names())
    return folder


def _complaints(folder: Path, python: str | Path) -> list[str]:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-error-summary",
            "--python-executable",
            str(python),
            "uses.py",
            "public_names.py",
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return [re.sub(r"\(expression has type.*", "(…)", line) for line in done.stdout.splitlines()]


_OWN_MISTAKE = ["uses.py:17: error: Incompatible types in assignment (…)"]


def test_a_consumer_of_the_editable_install_sees_types_and_every_public_name(consumer: Path) -> None:
    assert _complaints(consumer, sys.executable) == _OWN_MISTAKE


def test_a_consumer_of_the_wheel_sees_types_and_every_public_name(consumer: Path, wheel_python: Path) -> None:
    assert _complaints(consumer, wheel_python) == _OWN_MISTAKE


@pytest.mark.parametrize("package", _PACKAGES)
def test_public_names_are_listed_in_order_once_and_exist(package: str) -> None:
    module = importlib.import_module(package)
    names = list(module.__all__)
    assert names == sorted(set(names), key=_constants_then_classes_then_functions)
    assert [name for name in names if not hasattr(module, name)] == []
    assert set(names) <= set(dir(module))


def _constants_then_classes_then_functions(name: str) -> tuple[int, str]:
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)
