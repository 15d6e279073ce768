"""What an import brings with it, and what it must never bring: other people's names, or half of our
dependencies.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.conftest import run
from tests.tree import FOLDERS, ROOT

_HEAVY = {
    "ada_url", "anthropic", "asyncio", "click", "dns", "httpcore", "httpx", "jsonschema", "openai", "psutil",
    "pydantic", "pydantic_core", "rich", "sqlite3", "ssl", "wasmtime",
}  # fmt: skip
_LIST = "import {module}, sys; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"


def _loaded(module: str, python: str | Path = sys.executable, cwd: str | Path = "/") -> set[str]:
    return set(run([python, "-c", _LIST.format(module=module)], cwd=cwd).split())


def test_importing_fumehood_loads_no_dependency() -> None:
    """`make bench` shows what that comes to in milliseconds."""
    assert _loaded("fumehood") & _HEAVY == set()


@pytest.mark.parametrize(
    ("module", "kept_out"),
    [
        ("fumehood.policies", {"pydantic", "pydantic_core", "jsonschema", "asyncio"}),
        ("fumehood.agent", {"pydantic", "httpx", "dns", "wasmtime", "jsonschema"}),
        ("fumehood.broker", {"dns", "wasmtime", "pydantic", "jsonschema"}),
        ("fumehood.isolate", {"pydantic", "httpx", "dns", "wasmtime", "jsonschema"}),
        ("fumehood.sandbox", {"wasmtime", "httpx", "dns", "jsonschema"}),
    ],
)
def test_a_part_loads_only_what_its_import_needs(module: str, kept_out: set[str]) -> None:
    assert _loaded(module) & kept_out == set()


@pytest.mark.promise("packaging:no-bare-names")
def test_no_bare_name_is_importable_where_the_wheel_is_installed(wheel_python: Path, tmp_path: Path) -> None:
    for name in FOLDERS:
        done = subprocess.run(
            [wheel_python, "-c", f"import {name}"], cwd=tmp_path, capture_output=True, text=True
        )
        assert f"No module named {name!r}" in done.stderr, f"`import {name}` found something"


@pytest.mark.promise("packaging:no-bare-names")
def test_no_bare_name_is_importable_beside_the_editable_install(tmp_path: Path) -> None:
    for name in FOLDERS:
        done = subprocess.run(
            [sys.executable, "-c", f"import {name}"], cwd=tmp_path, capture_output=True, text=True
        )
        assert f"No module named {name!r}" in done.stderr, f"`import {name}` found something"


@pytest.mark.promise("packaging:no-bare-names")
def test_nothing_of_ours_is_imported_under_a_bare_name_even_at_the_root_of_the_checkout() -> None:
    """There every bare name is importable, so a stray import would make a second copy of a module without a
    word.
    """
    everything = ", ".join(f"fumehood.{folder}" for folder in FOLDERS)
    assert _loaded(everything, cwd=ROOT) & set(FOLDERS) == set()


def test_the_tests_themselves_hold_no_second_copy_of_a_module() -> None:
    assert {name.partition(".")[0] for name in sys.modules} & set(FOLDERS) == set()
