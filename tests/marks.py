"""What the tests say about themselves, read from their source: which promises and which requirements each one
holds; and the one mark by which a test is left out.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.tree import python_files, syntax

KINDS = ("promise", "requirement")


@dataclass(frozen=True, slots=True)
class Mark:
    """One `@pytest.mark.KIND("value")`. value: None when it is not written as a plain string."""

    kind: str
    value: str | None
    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line} names {self.value!r}"


def only_root(why: str) -> pytest.MarkDecorator:
    """A test that needs root: where the suite runs as an ordinary user it is left out.

    why: what nobody else can do.
    """
    return pytest.mark.skipif(os.geteuid() != 0, reason=f"needs root: {why}")


def marks(kind: str) -> Iterator[Mark]:
    """Every mark of a kind in the tests: on functions, on classes, in `pytestmark` and on parameters."""
    for path in python_files("tests"):
        for node in ast.walk(syntax(path)):
            if isinstance(node, ast.Call) and _is_mark(node.func, kind):
                for argument in node.args or [ast.Constant(None)]:
                    plain = isinstance(argument, ast.Constant) and isinstance(argument.value, str)
                    yield Mark(kind, argument.value if plain else None, path, node.lineno)  # type: ignore[attr-defined]


def _is_mark(function: ast.expr, kind: str) -> bool:
    return (
        isinstance(function, ast.Attribute)
        and function.attr == kind
        and isinstance(function.value, ast.Attribute)
        and function.value.attr == "mark"
    )
