"""What the tree must not hold: long modules, and words that only mean something on the machine where they
were written.
"""

from __future__ import annotations

import re

import pytest

from tests.tree import ROOT, files, python_files

_TOO_LONG = 450
_HOME = "/ro" + "ot/"
_FOREIGN = re.compile(
    # folders of a workplace; a home folder of root by its usual contents, since /proc/PID/root/ is something
    # else
    r"(?<![\w.])/(?:wo" r"rk|fa" r"rm)/"
    rf"|(?<![\w\])}}]){_HOME}\.?(?:pyenv|cache|local|\.venv)"
    r"|pypi\." r"org|python" r"hosted\.org|registry\.npm" r"js|deb\.deb" r"ian\.org|security\.deb" r"ian\.org"
)  # fmt: skip


def test_no_module_is_longer_than_450_lines() -> None:
    """Of what is shipped: the lists of attacks and cases below tests/ grow with what was thought of."""
    lengths = {
        str(path): len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in python_files()
    }
    shipped = {path: lines for path, lines in lengths.items() if not path.startswith("tests/")}
    assert {path for path, lines in shipped.items() if lines > _TOO_LONG} == set()


@pytest.mark.promise("packaging:no-machine-in-the-tree")
def test_no_file_names_a_folder_of_this_machine_or_the_host_of_a_registry() -> None:
    found = []
    for path in files():
        if (ROOT / path).is_symlink():
            continue
        text = (ROOT / path).read_bytes().decode("utf-8", "replace")
        found += [f"{path}: {match.group()}" for match in _FOREIGN.finditer(text)]
    assert found == []


def test_every_python_file_is_utf8_and_says_what_it_is() -> None:
    silent = [
        str(path)
        for path in python_files("agent", "broker", "isolate", "policies", "sandbox", "src", "scripts")
        if (text := (ROOT / path).read_text(encoding="utf-8")) and not text.startswith(('"""', "#"))
    ]
    assert silent == []
