"""Who may import whom: dependencies point downwards, and code that runs in a cage needs the standard library
alone.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tree import FOLDERS, python_files, syntax

_MAY_IMPORT = {
    "policies": {"policies"},
    "broker": {"broker", "policies"},
    "isolate": {"isolate", "policies"},
    "sandbox": {"sandbox", "policies"},
    "agent": {"agent", "policies"},
}
_MODULE_NAME = re.compile(rf"fumehood\.({'|'.join(FOLDERS)})(\.\w+)*")


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    """(line, absolute name) of everything a file of a folder imports; relative imports are resolved.

    A string that is a module's name counts as well: it is there to be given to importlib. A docstring is no
    such string.
    """
    package = ["fumehood", *path.parent.parts]
    for node in ast.walk(syntax(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            # `from fumehood import broker` imports the folder, not the top
            yield from (
                (node.lineno, f"{stem}.{alias.name}" if stem == "fumehood" else stem) for alias in node.names
            )
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and _MODULE_NAME.fullmatch(node.value)
        ):
            yield node.lineno, node.value


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_imports_only_what_lies_below_it(folder: str) -> None:
    upwards = [
        f"{path}:{line} imports {name}"
        for path in python_files(folder)
        for line, name in _imports(path)
        if name.split(".")[0] == "fumehood" and (name.split(".") + [""])[1] not in _MAY_IMPORT[folder]
    ]
    assert upwards == []


def test_nothing_is_imported_by_a_bare_folder_name() -> None:
    bare = [
        f"{path}:{line} imports {name}"
        for path in python_files()
        for line, name in _imports(path)
        if name.split(".")[0] in FOLDERS
    ]
    assert bare == []


@pytest.mark.promise("packaging:cage-code-is-stdlib-only")
def test_code_that_runs_in_a_cage_imports_the_standard_library_and_its_own_folder_alone() -> None:
    foreign = [
        f"{path}:{line} imports {name}"
        for path in python_files("isolate/child")
        for line, name in _imports(path)
        if name.split(".")[0] not in sys.stdlib_module_names and not name.startswith("fumehood.isolate.child")
    ]
    assert foreign == []


@pytest.mark.promise("packaging:cage-code-is-stdlib-only")
def test_code_that_runs_in_a_cage_names_its_own_modules_relatively() -> None:
    """It is started as the package `fumehood_child`: by its absolute name it would not find itself."""
    absolute = [
        f"{path}:{node.lineno}"
        for path in python_files("isolate/child")
        for node in ast.walk(syntax(path))
        if (
            isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").startswith("fumehood")
        )
        or (isinstance(node, ast.Import) and any(alias.name.startswith("fumehood") for alias in node.names))
    ]
    assert absolute == []


def test_kernel_numbers_stand_in_files_named_for_it() -> None:
    """ctypes, and with it structure layouts and numbers of system calls, is used in `_uapi_*.py` files
    only.
    """
    elsewhere = [
        f"{path}:{line}"
        for path in python_files(*FOLDERS, "src")
        for line, name in _imports(path)
        if name == "ctypes" and not path.name.startswith("_uapi_") and not path.is_relative_to("sandbox")
    ]
    assert elsewhere == []
