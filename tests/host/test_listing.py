"""`tools`, `policy check`, `policy schema` and `doctor`: what they print at any width, and as data."""

from __future__ import annotations

from pathlib import Path

import pytest

from fumehood.isolate import LAYERS
from tests.host.cli import COMMAND, Cli, write
from tests.users import run_as_user, user_folder

CONFIG = """\
[secrets]
TOKEN = { env = "TOKEN" }
[tools.fetch]
description = "Latest CPU figures"
module = "tools/fetch.py"
egress = ["api.example.com", "GET https://*.example.org/v1/"]
env = { TOKEN = { secret = "TOKEN" }, LANG = "C.UTF-8" }
memory = "64 MiB"
[tools.upper]
command = ["tr", "a-z", "A-Z"]
"""


@pytest.fixture
def listed(cli: Cli) -> Cli:
    write(cli.folder, CONFIG, fetch="def run(input, ctx):\n    return 1\n")
    return cli


def test_tools_as_a_grid(listed: Cli) -> None:
    assert listed("tools", width=100).out == (
        "tool   kind     network                                         about\n"
        "fetch  module   api.example.com, GET https://*.example.org/v1/  Latest CPU figures\n"
        "upper  command  none                                            tr a-z A-Z\n"
    )


def test_tools_as_blocks_on_a_narrow_terminal(listed: Cli) -> None:
    assert listed("tools", width=50).out == (
        "fetch\n"
        "  kind: module\n"
        "  network: api.example.com, GET\n"
        "  https://*.example.org/v1/\n"
        "  about: Latest CPU figures\n"
        "\n"
        "upper\n"
        "  kind: command\n"
        "  network: none\n"
        "  about: tr a-z A-Z\n"
    )


def test_tools_as_data(listed: Cli) -> None:
    limits = {
        "timeout_s": 30.0,
        "cpu_s": 30.0,
        "memory": 512 << 20,
        "processes": 64,
        "output": 8 << 20,
        "tmp": 64 << 20,
        "events": 1000,
        "start_s": 20.0,
    }
    common: dict[str, object] = {"input_schema": None, "deny": [], "read": [], "write": []}
    assert listed("tools", "--format", "json").json == {
        "tools": [
            {
                "name": "fetch",
                "kind": "module",
                "runs": [str(listed.folder / "tools" / "fetch.py")],
                "description": "Latest CPU figures",
                "egress": ["api.example.com", "GET https://*.example.org/v1/"],
                "env": ["LANG", "TOKEN"],
                "secrets": ["TOKEN"],
                "limits": {**limits, "memory": 64 << 20},
                **common,
            },
            {
                "name": "upper",
                "kind": "command",
                "runs": ["tr", "a-z", "A-Z"],
                "description": "",
                "egress": [],
                "env": [],
                "secrets": [],
                "limits": limits,
                **common,
            },
        ]
    }


def test_policy_check_says_what_is_there_and_what_is_worth_a_look(
    listed: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "x")
    with (listed.folder / "fumehood.toml").open("a", encoding="utf-8") as file:
        file.write('[secrets.UNUSED]\nenv = "X"\n')
    done = listed("policy", "check", width=200)
    digest = listed("policy", "check", "--format", "json").json["digest"]
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "OK  fumehood.toml\n"
        "    2 tools, 1 with network; 2 secrets\n"
        f"    sandbox at least: namespaces; state in {listed.folder}/state\n"
        f"    sha256 {digest}\n"
        "note: fumehood.toml: secrets.UNUSED: no tool uses it\n"
    )
    assert (
        listed("policy", "check", "--quiet").out == "note: fumehood.toml: secrets.UNUSED: no tool uses it\n"
    )


def test_policy_check_lists_every_fault_and_is_2(listed: Cli) -> None:
    with (listed.folder / "fumehood.toml").open("a", encoding="utf-8") as file:
        file.write('timeot_s = 5\n[tools.x]\nmodule = "tools/none.py"\n')
    done = listed("policy", "check")
    assert (done.code, done.out) == (2, "")
    assert "tools.upper.timeot_s" in done.err and "write timeout_s" in done.err
    assert "tools.x.module" in done.err
    problems = listed("policy", "check", "--format", "json").json["error"]["problems"]
    assert len(problems) == 2


def test_policy_schema_is_the_published_one(cli: Cli) -> None:
    from fumehood.policies import config_schema

    assert cli("policy", "schema").out.startswith(
        '{\n  "$schema": "https://json-schema.org/draft/2020-12/schema"'
    )
    assert cli("policy", "schema").json == cli("policy", "schema", "--format", "json").json == config_schema()


def test_doctor_names_every_layer_and_the_tier(cli: Cli) -> None:
    told = cli("doctor", "--format", "json")
    assert (told.code, told.err) == (0, "")
    assert {name: told.json[name] for name in ("tier", "required", "met", "trouble")} == {
        "tier": "namespaces",
        "required": "namespaces",
        "met": True,
        "trouble": None,
    }
    assert list(told.json["layers"]) == list(LAYERS)
    for name, layer in told.json["layers"].items():
        assert layer["level"] in ("FULL", "PARTIAL", "MISSING"), name
        assert (layer["reason"] is None) == (layer["level"] == "FULL"), name


@pytest.mark.parametrize("width", [50, 80, 120])
def test_doctor_as_text_holds_every_layer_at_any_width(cli: Cli, width: int) -> None:
    out = cli("doctor", width=width).out
    assert max(map(len, out.splitlines())) <= width
    assert [line.split()[0] for line in out.splitlines() if line and line.split()[0] in LAYERS] == list(
        LAYERS
    )
    assert "tier: namespaces (private namespaces, Landlock and" in out


def test_doctor_as_an_ordinary_user(tmp_path: Path) -> None:
    with user_folder() as folder:
        done = run_as_user([*COMMAND, "doctor"], cwd=folder)
        assert (done.returncode, done.stderr) == (0, "")
        assert "tier: namespaces" in done.stdout
