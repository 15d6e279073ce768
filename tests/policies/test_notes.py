"""Notes on a configuration that is in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from fumehood.isolate import DEFAULT_PATH
from fumehood.policies import parse_config
from fumehood.policies.notes import notes


def said(base: Path, text: str) -> list[str]:
    config = parse_config(text, base=base, source="f.toml")
    found = notes(config)
    assert all(note.startswith("f.toml: ") for note in found)
    return [note.removeprefix("f.toml: ").replace(str(base), "{base}") for note in found]


def test_a_plain_configuration_earns_no_note(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools/t.py").write_text("", encoding="utf-8")
    assert said(tmp_path, 'version = 1\nhost = { state = "s" }\n[tools.t]\nmodule = "tools/t.py"\n') == []


def test_each_thing_worth_a_second_look_is_named_with_its_key(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("", encoding="utf-8")
    (tmp_path / "key").write_text("x", encoding="utf-8")
    (tmp_path / "key").chmod(0o604)
    text = """version = 1
[host]
state = "state"
require_tier = "any"
dangerously_allow_unsandboxed = true
[secrets]
UNUSED = { env = "X" }
KEY = { file = "key" }
[tools.t]
module = "t.py"
egress = ["api.example.com", "*"]
env = { API_TOKEN = "plain", KEY = { secret = "KEY" }, TOKENS = "3", EMPTY_TOKEN = "" }
"""
    assert said(tmp_path, text) == [
        "host.require_tier: calls may run in a weaker sandbox; each result says in which",
        "host.dangerously_allow_unsandboxed: calls may run with no sandbox at all",
        "secrets.UNUSED: no tool uses it",
        "secrets.KEY.file: other users may read it; try: chmod 600 {base}/key",
        "tools.t.env.API_TOKEN: is written in the file; if it is a credential, declare it in [secrets]",
        "tools.t.egress[1]: allows every public host",
        "tools.t.module: its folder is readable and holds {base}/state, which stays hidden from the tool",
        "tools.t.module: its folder is readable and holds {base}/key, which stays hidden from the tool",
    ]


def test_what_is_not_there_now_is_named_before_a_call_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    monkeypatch.setenv("SET", "x")
    text = """version = 1
host = { state = "s" }
[secrets]
A = { env = "NOT_SET" }
B = { file = "none" }
C = { env = "SET" }
[tools.t]
command = ["no-such-program"]
egress = ["api.example.com", "other.example.com", "https://API.example.com"]
env = { A = { secret = "A" }, B = { secret = "B" }, C = { secret = "C" } }
[tools.u]
command = ["sh"]
[tools.v]
command = ["sh"]
env = { PATH = "/nowhere" }
"""
    assert said(tmp_path, text) == [
        "secrets.A.env: NOT_SET is not set here; calls that need it are refused until it is",
        "secrets.B.file: {base}/none is not there; calls that need it are refused until it is",
        f"tools.t.command: 'no-such-program' is in no folder of the tool's PATH ({DEFAULT_PATH})",
        "tools.t.egress[2]: says the same as egress[0]",
        "tools.v.command: 'sh' is in no folder of the tool's PATH (/nowhere)",
    ]


def test_a_weak_switch_without_effect_is_pointed_out(tmp_path: Path) -> None:
    text = "version = 1\nhost = { dangerously_allow_unsandboxed = true }\n"
    assert said(tmp_path, text) == [
        'host.dangerously_allow_unsandboxed: has no effect unless require_tier = "any"'
    ]
