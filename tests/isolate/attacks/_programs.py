"""What honest programs share: run one, and register a body that is its own control."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

from tests.isolate.attacks._model import PEOPLE, Body, Table

ABSENT = "not on this machine"


def run(
    *argv: str, text: str | None = None, cwd: str | None = None, env: dict[str, str] | None = None
) -> str:
    """What the program printed, or how it failed."""
    if shutil.which(argv[0]) is None:
        return ABSENT
    whole = {**os.environ, **(env or {})}
    done = subprocess.run(argv, input=text, capture_output=True, text=True, cwd=cwd, env=whole)
    return (
        done.stdout.strip()
        if done.returncode == 0
        else f"code {done.returncode}: {done.stderr.strip()[-300:]}"
    )


def works(table: Table, name: str, row: str, value: Any, **more: Any) -> Callable[[Body], Body]:
    """A program whose value is the same inside and outside."""
    more.setdefault("only", PEOPLE)
    control = more.pop("control", value)
    return table.add(row, name, caged=value, control=control, control_as="user", first="nothing", **more)
