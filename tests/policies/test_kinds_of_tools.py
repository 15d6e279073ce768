"""What each kind of tool may say in its table, and what has no meaning there."""

from __future__ import annotations

from pathlib import Path

import pytest

from fumehood.policies import (
    ConfigError,
    RuleError,
    parse_config,
)
from fumehood.policies.config import KINDS, ToolConfig
from fumehood.policies.rules import for_programs


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder with every file that WHOLE_SURFACE names."""
    for folder in ("tools", "schemas", "data", "out", "bin"):
        (tmp_path / folder).mkdir()
    for name in ("tools/metrics.py", "tools/rollup.js"):
        (tmp_path / name).write_text("", encoding="utf-8")
    (tmp_path / "schemas/metrics.json").write_text('{"type": "object"}', encoding="utf-8")
    (tmp_path / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n", encoding="utf-8")
    (tmp_path / "bin/count").write_text("#!/bin/sh\n", encoding="utf-8")
    (tmp_path / "bin/count").chmod(0o755)
    return tmp_path


DEFAULTS = """
description = ""
result = "json"
egress = []
private = []
deny = []
mode = "enforce"
env = {}
read = []
write = []
collect = []
timeout_s = 30
cpu_s = 30
memory = "512 MiB"
processes = 64
output = "8 MiB"
tmp = "64 MiB"
events = 1000
preload = []
start_s = 20
reuse = false
idempotent = false
returns_media = false
taint = "auto"
proxy = false
approval = "never"
retention = "none"
"""


@pytest.mark.parametrize(
    "kind", ['module = "tools/metrics.py"', 'command = ["cat"]', 'script = "tools/rollup.js"']
)
def test_every_kind_of_tool_may_write_out_what_holds_anyway(base: Path, kind: str) -> None:
    head = f"version = 1\n[tools.t]\n{kind}\n"
    assert set(DEFAULTS.split()) >= ToolConfig.model_fields.keys() - {*KINDS, "input_schema"}, (
        "a key is missing here"
    )
    written = parse_config(head + DEFAULTS, base=base, source="f.toml")
    assert written.tools == parse_config(head, base=base, source="f.toml").tools


@pytest.mark.parametrize(
    "said", ["reuse = 0", "events = true", 'tmp = "64"', 'preload = ["json"]', "cpu_s = 31"]
)
def test_what_only_looks_like_the_default_is_still_refused_where_it_has_no_meaning(
    base: Path, said: str
) -> None:
    with pytest.raises(ConfigError):
        parse_config(
            f'version = 1\n[tools.t]\nscript = "tools/rollup.js"\n{said}\n', base=base, source="f.toml"
        )


@pytest.mark.parametrize("kind", ["module", "script"])
def test_rules_inside_tls_are_for_what_has_the_brokers_fetch(base: Path, kind: str) -> None:
    file = {"module": "tools/metrics.py", "script": "tools/rollup.js"}[kind]
    text = f'version = 1\n[tools.t]\n{kind} = "{file}"\negress = ["GET https://b.example.com"]\n'
    rules = parse_config(text, base=base, source="f.toml").tools["t"].egress
    with pytest.raises(RuleError) as caught:
        for_programs(rules)
    assert str(caught.value) == (
        "f.toml: tools.t.egress[0]: egress rule 'GET https://b.example.com': methods, paths and secrets hold "
        "inside the TLS of a program only with inspection\n"
        "Hint: add +inspect to the rule, or inspect = true where it is a table"
    )
