"""Every code block of every document runs or is checked, every link leads somewhere, every named command
exists.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fumehood.policies import parse_config
from tests.documents import LANGUAGES, Block, blocks, console_steps, documents, matches
from tests.tree import ROOT

_ALL = documents()
_NAMES = [str(path) for path in _ALL]


@pytest.mark.parametrize("document", _ALL, ids=_NAMES)
def test_the_code_blocks_of_a_document_do_what_it_says(document: Path, tmp_path: Path) -> None:
    for block in blocks(document):
        assert block.language in LANGUAGES, f"{block}: {block.language!r} is none of {sorted(LANGUAGES)}"
        if block.language == "python":
            _python(block, tmp_path)
        elif block.language == "toml":
            _toml(block, tmp_path)
        elif block.language == "console" and not block.name:
            _console(block, tmp_path)
        elif block.language == "sh":
            _shell(block)
        elif block.language == "json":
            json.loads(block.text)


def _python(block: Block, folder: Path) -> None:
    compile(block.text, str(block), "exec", dont_inherit=True)
    if block.file is not None:
        _write(folder / block.file, block.text)
    elif not block.name:
        done = _run([sys.executable, "-c", block.text], folder)
        assert done.returncode == 0, f"{block} ended with {done.returncode}\n{done.stdout}"


def _toml(block: Block, folder: Path) -> None:
    table = tomllib.loads(block.text)
    if table.get("version") != 1:
        return
    _write(folder / "fumehood.toml", block.text)
    # Whether the files it names exist is not what the block shows: they do.
    stand_in = folder / "with-files"
    for tool in table.get("tools", {}).values():
        for key in ("module", "script", "input_schema"):
            if isinstance(tool.get(key), str):
                _write(stand_in / tool[key], "{}")
        for path in (*tool.get("read", []), *tool.get("write", [])):
            (stand_in / path).mkdir(parents=True, exist_ok=True)
    assert parse_config(block.text, base=stand_in, source=str(block)).version == 1


def _console(block: Block, folder: Path) -> None:
    for command, expected in console_steps(block):
        done = _run(["bash", "-c", command], folder)
        assert matches(expected, done.stdout), (
            f"{block}: `{command}` printed\n{done.stdout}\nand not\n{expected}"
        )


def _shell(block: Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True)
    assert done.returncode == 0, f"{block}: {done.stderr}"
    unknown = set(re.findall(r"^make ([a-z-]+)", block.text, re.MULTILINE)) - _targets()
    assert not unknown, f"{block}: the Makefile has no target {unknown}"
    for verb in set(
        re.findall(r"(?:^|\| *)fumehood ((?:policy |log |store |mcp )?[a-z]+)", block.text, re.MULTILINE)
    ):
        shown = _run(["fumehood", *verb.split(), "--help"], ROOT)
        assert shown.returncode == 0, f"{block}: there is no `fumehood {verb}`"


def _run(argv: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "COLUMNS": "100",
    }
    return subprocess.run(
        argv, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=120,
    )  # fmt: skip


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("document", _ALL, ids=_NAMES)
def test_every_link_of_a_document_leads_to_a_file_and_heading_of_the_tree(document: Path) -> None:
    text = re.sub(r"```.*?```", "", _text(document), flags=re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "", text)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?:|mailto:", target):
            continue
        name, _, heading = target.partition("#")
        file = (ROOT / document).parent / name if name else ROOT / document
        if not file.exists() or (heading and heading not in _anchors(file)):
            broken.append(target)
    assert broken == []


def _anchors(file: Path) -> set[str]:
    """The headings of a page as links write them."""
    headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_every_page_of_docs_is_listed_in_its_index() -> None:
    index = _text(Path("docs/README.md"))
    pages = [
        path.relative_to("docs") for path in _ALL if path.is_relative_to("docs") and path.name != "README.md"
    ]
    assert [str(page) for page in pages if f"]({page})" not in index] == []


def test_every_target_that_a_document_names_is_in_the_makefile() -> None:
    named = {document: set(re.findall(r"`make ([a-z-]+)", _text(document))) for document in _ALL}
    assert {
        str(document): names - _targets() for document, names in named.items() if names - _targets()
    } == {}


def test_the_readme_names_the_two_commands() -> None:
    assert {"demo", "test"} <= set(re.findall(r"^make ([a-z]+)", _text(Path("README.md")), re.MULTILINE))


def _targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", _text(Path("Makefile")), re.MULTILINE))


def _text(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("a\nb\n", "a\nb", True),
        ("a ... c\n", "a b b c\n", True),
        ("...\nlast\n", "one\ntwo\nlast\n", True),
        ("a\n", "a\nb\n", False),
        ("", "something\n", False),
    ],
)
def test_what_a_document_shows_is_compared_whole(expected: str, printed: str, same: bool) -> None:
    assert matches(expected, printed) is same
