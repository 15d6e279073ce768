"""What importing the package costs, and what it exports."""

from __future__ import annotations

import subprocess
import sys

import pytest

import fumehood.policies


def loaded_after(statement: str) -> set[str]:
    """The modules that a fresh interpreter has after `statement`."""
    code = f"{statement}\nimport sys\nprint(*sorted(sys.modules))"
    out = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(out.stdout.split())


@pytest.mark.parametrize("module", ["", ".errors", ".reasons", ".sizes", ".secrets", ".rules", ".names"])
def test_the_small_modules_do_not_pay_for_the_models(module: str) -> None:
    loaded = loaded_after(f"import fumehood.policies{module}")
    assert not loaded & {"pydantic", "jsonschema", "tomllib", "httpx", "dns"}


def test_loading_a_configuration_without_a_schema_does_not_import_jsonschema() -> None:
    loaded = loaded_after(
        "from pathlib import Path\nfrom fumehood.policies import parse_config\n"
        "parse_config('version = 1', base=Path('/'), source='f.toml')"
    )
    assert "pydantic" in loaded and "jsonschema" not in loaded


def test_policies_imports_nothing_else_of_fumehood() -> None:
    names = ["load", "notes", "schemas", "secrets", "rules", "names", "reasons", "sizes", "errors", "config"]
    statement = "; ".join(f"import fumehood.policies.{name}" for name in names)
    ours = {name for name in loaded_after(statement) if name.split(".")[0] == "fumehood"}
    assert {name for name in ours if not name.startswith("fumehood.policies")} == {"fumehood"}


def test_every_public_name_can_be_had_and_unknown_ones_say_so() -> None:
    for name in fumehood.policies.__all__:
        assert getattr(fumehood.policies, name).__name__ if name != "REASONS" else True
    assert dir(fumehood.policies) == sorted(fumehood.policies.__all__)
    assert len(set(fumehood.policies.__all__)) == len(fumehood.policies.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        fumehood.policies.Nothing  # noqa: B018
