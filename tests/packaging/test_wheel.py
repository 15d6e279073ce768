"""What is installed is the tree: the whole of it, nothing else, and the links for development lead where they
say.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.packaging.conftest import Built, run
from tests.tree import FOLDERS, ROOT, files

_KINDS_OF_FILE = {".py", ".toml", ".md", ".typed", ".json", ".js", ".mjs", ".wasm", ".wit", ".css", ".html"}


_ONE_CALL = """
import asyncio, fumehood, json, sys
async def main():
    async with fumehood.Host(fumehood.load_config(sys.argv[1]), spares=0) as host:
        result = await host.call("where", 7)
        print(json.dumps([fumehood.__file__, result.outcome, result.value]))
asyncio.run(main())
"""


def _expected_in_wheel() -> dict[str, Path]:
    """What has to stand in a wheel, and which file of the tree it is: src/fumehood without its links, and the
    folders that pyproject.toml maps.
    """
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    places = tool["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert {folder: f"fumehood/{folder}" for folder in FOLDERS} | {"examples": "fumehood/_examples"} == places
    found = {}
    for path in files():
        if path.is_relative_to("src") and not (ROOT / path).is_symlink():
            found[str(path.relative_to("src"))] = path
        elif path.parts[0] in places:
            found[str(Path(places[path.parts[0]], *path.parts[1:]))] = path
    return found


@pytest.mark.promise("packaging:wheel-is-the-tree")
def test_a_wheel_made_from_the_sdist_holds_exactly_the_files_of_the_tree(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert inside == set(_expected_in_wheel())


@pytest.mark.promise("packaging:wheel-is-the-tree")
def test_every_file_in_the_wheel_has_the_bytes_of_the_tree(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        differing = [
            name
            for name, path in _expected_in_wheel().items()
            if wheel.read(name) != (built.tree / path).read_bytes()
        ]
    assert differing == []


def test_only_kinds_of_file_that_belong_to_a_package_are_installed(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        strange = {
            name
            for name in wheel.namelist()
            if ".dist-info/" not in name and Path(name).suffix not in _KINDS_OF_FILE
        }
    assert strange == set()


def test_the_sdist_holds_everything_of_the_tree_but_the_links_and_nothing_that_git_ignores(
    built: Built,
) -> None:
    with tarfile.open(built.sdist) as sdist:
        inside = {name.partition("/")[2] for name in sdist.getnames()}
    links = {f"src/fumehood/{folder}" for folder in FOLDERS}
    assert inside - {"PKG-INFO"} == {str(path) for path in files()} - links


def test_an_editable_install_is_a_path_and_copies_nothing(built: Built, tmp_path: Path) -> None:
    """hatchling would lay the mapped folders beside the path, out of date from the first edit on
    (hatch_build.py).
    """
    code = f"import hatchling.build as build; print(build.build_editable({str(tmp_path)!r}))"
    name = run([sys.executable, "-c", code], cwd=built.tree).strip()
    with zipfile.ZipFile(tmp_path / name) as wheel:
        assert [entry for entry in wheel.namelist() if ".dist-info/" not in entry] == ["_fumehood.pth"]


def test_the_links_for_development_lead_to_the_folders_they_are_named_for() -> None:
    found = {
        path.name: os.readlink(ROOT / path)
        for path in files()
        if path.is_relative_to("src/fumehood") and (ROOT / path).is_symlink()
    }
    assert found == {folder: f"../../{folder}" for folder in FOLDERS}


def test_the_console_script_of_the_wheel_runs(wheel_python: Path) -> None:
    shown = run([wheel_python.with_name("fumehood"), "--help"], cwd="/")
    assert "policy" in shown and "doctor" in shown


def test_a_call_runs_from_the_wheel_without_the_checkout(wheel_python: Path, tmp_path: Path) -> None:
    (tmp_path / "fumehood.toml").write_text(
        'version = 1\n[host]\nstate = "state"\nrequire_tier = "any"\n[tools.where]\nmodule = "where.py"\n'
    )
    (tmp_path / "where.py").write_text("def run(input, ctx):\n    return {'got': input, 'tool': ctx.tool}\n")
    shown = run([wheel_python, "-c", _ONE_CALL, tmp_path / "fumehood.toml"], cwd="/")
    site = next(wheel_python.parent.parent.glob("lib/python*/site-packages"))
    assert shown.strip() == f'["{site}/fumehood/__init__.py", "ok", {{"got": 7, "tool": "where"}}]'


def test_the_demo_of_the_wheel_runs_without_the_checkout(wheel_python: Path) -> None:
    """Its configuration and its tools are data files of the wheel; it checks each outcome by itself."""
    demo = [str(wheel_python.with_name("fumehood")), "--format", "json", "demo"]
    done = subprocess.run(demo, cwd="/", capture_output=True, text=True, timeout=120)
    shown = json.loads(done.stdout)
    assert [line for line in shown["lines"] if not line["held"]] == []
    assert (shown["outcome"], shown["log"]["ok"], done.returncode) == ("ok", True, 0)


def test_version_is_said_in_one_way(wheel_python: Path) -> None:
    both = "import fumehood, importlib.metadata as m; print(fumehood.__version__, m.version('fumehood'))"
    assert set(run([wheel_python, "-c", both], cwd="/").split()) == {importlib.metadata.version("fumehood")}
