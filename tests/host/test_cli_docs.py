"""docs/cli.md and the command line say the same: a section for every verb, a row for every option."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from fumehood._cli._settings import global_options
from fumehood._cli._verbs import root
from tests.tree import ROOT

_GLOBAL = {name for option in global_options() for name in option.opts}


def _leaves(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from _leaves(child, f"{path} {name}")
    else:
        yield path, command


def _options(command: click.Command) -> set[str]:
    return {
        name for param in command.params if isinstance(param, click.Option) for name in param.opts
    } - _GLOBAL


def _sections() -> dict[str, str]:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _documented(section: str) -> set[str]:
    """Options at the start of a row of the section's table."""
    cells = re.findall(r"^\| ((?:`-[^|]*?(?:\\\|[^|]*?)*`(?:, )?)+) \|", section, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(--?[a-z][a-z-]*)", cell)}


def test_every_verb_and_option_is_documented_and_nothing_else_is() -> None:
    sections = _sections()
    told = {
        title[1:-1]: _documented(text) for title, text in sections.items() if title.startswith("`fumehood ")
    }
    assert told == {path: _options(command) for path, command in _leaves(root, "fumehood")}


def test_every_global_option_is_documented() -> None:
    assert _documented(_sections()["Every verb"]) == {*_GLOBAL, "--help", "-h"}


def test_the_exit_codes_are_those_of_the_program() -> None:
    from fumehood._result import EXIT_CODES
    from fumehood.policies import errors

    rows = re.findall(r"^\| (\d[\d, ]*) \|", _sections()["Every verb"], re.MULTILINE)
    documented = {int(code) for row in rows for code in row.split(",")}
    kinds = [value for value in vars(errors).values() if isinstance(value, type)]
    used = {kind.exit_code for kind in kinds if issubclass(kind, errors.FumehoodError)} | set(
        EXIT_CODES.values()
    )
    assert used < documented
    assert documented == {0, 1, 2, 3, 4, 5, 129, 130, 141, 143}


def test_every_verb_of_the_table_says_in_a_line_what_it_does() -> None:
    for path, command in _leaves(root, "fumehood"):
        assert command.help, path
        assert command.get_short_help_str(200).strip(), path
