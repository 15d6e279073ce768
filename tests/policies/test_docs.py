"""The pages that describe configuration and reasons are complete, and their examples load."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from fumehood.policies import REASONS, Config, HostConfig, SecretSource, ToolConfig, format_size, parse_config
from fumehood.policies._egress_table import EgressTable
from fumehood.policies._fields import SizeBetween
from fumehood.policies._not_yet import NOT_YET

ROOT = Path(__file__).parents[2]
CONFIGURATION = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
REASONS_PAGE = (ROOT / "docs/reasons.md").read_text(encoding="utf-8")
SECTIONS: dict[str, type[BaseModel]] = {
    "The file": Config,
    "[host]": HostConfig,
    "[secrets]": SecretSource,
    "[tools.NAME]": ToolConfig,
    "Egress rules": EgressTable,
}


def rows(page: str, section: str) -> dict[str, list[str]]:
    """The table of a section: the cells after the key, by key."""
    body = page.split(f"\n## {section}\n")[1].split("\n## ")[0]
    found = {}
    for line in body.splitlines():
        if match := re.match(r"\| `([^`]+)` \|(.*)\|$", line):
            found[match[1]] = [cell.strip() for cell in match[2].split(" | ")]
    return found


def written_default(model: type[BaseModel], key: str) -> str:
    """The default of a key as the page writes it."""
    field = model.model_fields[key]
    if field.is_required():
        return "required"
    if key == "state":
        return "`$XDG_STATE_HOME/fumehood`"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None:
        return "none"
    if any(isinstance(mark, SizeBetween) for mark in field.metadata):
        return f"`{format_size(value)}`"
    match value:
        case bool():
            return f"`{str(value).lower()}`"
        case str():
            return f'`"{value}"`'
        case tuple():
            return "`[]`"
        case int() | float():
            return f"`{value}`"
    return "`{}`"


@pytest.mark.parametrize("section", SECTIONS)
def test_every_key_stands_on_the_page_with_its_default_and_in_the_order_of_the_models(section: str) -> None:
    model = SECTIONS[section]
    table = rows(CONFIGURATION, section)
    assert list(table) == list(model.model_fields)
    assert {key: cells[1] for key, cells in table.items()} == {
        key: written_default(model, key) for key in model.model_fields
    }


def test_the_page_says_of_every_entry_that_is_not_enforced_that_it_is_not() -> None:
    tools, rules = rows(CONFIGURATION, "[tools.NAME]"), rows(CONFIGURATION, "Egress rules")
    marked = {f"tools.*.{key}" for key, cells in tools.items() if "upported yet" in cells[-1]}
    marked |= {f"tools.*.egress.*.{key}" for key, cells in rules.items() if "upported yet" in cells[-1]}
    assert marked == {entry.partition(" = ")[0] for entry in NOT_YET}


def test_the_bounds_on_the_page_are_those_of_the_models() -> None:
    table = rows(CONFIGURATION, "[tools.NAME]")
    for key, field in ToolConfig.model_fields.items():
        for mark in field.metadata:
            if isinstance(mark, SizeBetween):
                assert table[key][0] == f"{format_size(mark.low)} to {format_size(mark.high)}"
        low, high = (
            [getattr(mark, edge) for mark in field.metadata if hasattr(mark, edge)] for edge in ("ge", "le")
        )
        if low and high:
            assert table[key][0] == f"{low[0]} to {high[0]}"


EXAMPLES = re.findall(r"```toml\n(.*?)```", CONFIGURATION, re.DOTALL)


@pytest.mark.parametrize("text", EXAMPLES)
def test_every_example_on_the_page_loads(text: str, tmp_path: Path) -> None:
    for name in ("tools/fetch_metrics.py", "tools/news.py", "schemas/fetch.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}", encoding="utf-8")
    assert parse_config(text, base=tmp_path, source="fumehood.toml").tools


def test_the_messages_on_the_page_are_what_is_said(tmp_path: Path) -> None:
    from fumehood.policies import ConfigError

    text = """version = 1
[tools.fetch-metrics]
command = ["true"]
memory = "512M"
timeout_ms = 5000
env = { LD_PRELOAD = "x" }
"""
    shown = re.findall(r"```text\n(.*?)```", CONFIGURATION, re.DOTALL)[0]
    with pytest.raises(ConfigError) as caught:
        parse_config(text, base=tmp_path, source="fumehood.toml")
    assert str(caught.value) == shown.strip()


@pytest.mark.promise("policies:denial-has-reasons")
def test_every_reason_stands_on_its_page_under_its_family_with_its_sentence() -> None:
    for family in ("limit", "denied", "sandbox_error", "egress"):
        table = rows(REASONS_PAGE, family)
        assert {code: cells[0] for code, cells in table.items()} == {
            code: entry.doc for code, entry in REASONS.items() if entry.family == family
        }
        assert all(cells[1] for cells in table.values())


def test_the_folders_own_page_names_every_module() -> None:
    readme = (ROOT / "policies/README.md").read_text(encoding="utf-8")
    for path in (ROOT / "policies").iterdir():
        if path.suffix in (".py", ".toml") and path.name != "__init__.py":
            assert f"`{path.name}`" in readme, path.name
