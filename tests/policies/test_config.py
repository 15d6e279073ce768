"""What a configuration that is in order comes out as."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from pydantic import ValidationError

from fumehood.policies import (
    Config,
    ConfigError,
    SecretRef,
    SecretSource,
    load_config,
    parse_config,
)
from fumehood.policies._not_yet import NOT_YET
from fumehood.policies.rules import EgressRule, SecretHeader, parse_rule

WHOLE_SURFACE = """
version = 1

[host]
state = "var"
require_tier = "any"
dangerously_allow_unsandboxed = true
max_parallel = 8
queue_limit = 16
nameservers = ["10.0.0.2", "127.0.0.1:5353", "2001:db8::1", "[2001:db8::2]:5300"]
trust = "ca.pem"
deny = ["telemetry.example.com", { host = "*.tracker.example", methods = ["POST"] }]

[secrets]
PROM_TOKEN = { env = "PROM_TOKEN" }
DB = { file = "/run/secrets/db" }
API = { credential = "api" }

[tools.metrics]
description = "Latest CPU figures"
module = "tools/metrics.py"
input_schema = "schemas/metrics.json"
egress = [
    "prometheus.internal:9090",
    "GET,HEAD https://*.example.com/v1/",
    { host = "a.example", methods = ["POST"], paths = ["/a", "/b"], max_request = "1 MiB", rate = "10/s" },
    { host = "b.example", max_connections = 4, max_response = 9, secret = { header = "X", value = "{API}" } },
    "tcp://db.internal:5432 +private",
]
private = ["prometheus.internal:9090"]
deny = ["old.example.com"]
mode = "audit"
env = { PROM_TOKEN = { secret = "PROM_TOKEN" }, LANG = "C.UTF-8", PATH = "/usr/bin" }
read = ["data"]
write = ["out"]
timeout_s = 2.5
cpu_s = 1
memory = "64 MiB"
processes = 4
output = 65536
tmp = "1 MB"
events = 0
preload = ["json", "os.path"]
start_s = 3
reuse = true
idempotent = true
returns_media = true
taint = "always"
approval = "always"
retention = "durable"

[tools.count]
command = ["./bin/count", "-l"]
result = "text"
collect = ["out/*.png", "report.pdf"]
input_schema = { type = "object", properties = { text = { type = "string" } } }

[tools.files]
mcp = ["npx", "-y", "some-server"]
taint = "never"
retention = "requery"

[tools.rollup]
script = "tools/rollup.js"
"""


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


def one_tool(base: Path, body: str) -> Config:
    head = 'version = 1\n[tools.t]\nmodule = "tools/metrics.py"\n'
    return parse_config(head + body, base=base, source="f.toml", allow_unsupported=True)


def test_a_tool_that_says_only_what_it_is_gets_the_documented_defaults(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/var/lib/op")
    text = 'version = 1\n[tools.t]\nmodule = "tools/metrics.py"\n'
    config = parse_config(text, base=base, source="f.toml")
    assert config.model_dump() == {
        "version": 1,
        "host": {
            "state": Path("/var/lib/op/fumehood"),
            "require_tier": "namespaces",
            "dangerously_allow_unsandboxed": False,
            "max_parallel": 32,
            "queue_limit": 1024,
            "nameservers": (),
            "trust": None,
            "deny": (),
        },
        "secrets": {},
        "tools": {
            "t": {
                "description": "",
                "module": base / "tools/metrics.py",
                "command": None,
                "mcp": None,
                "script": None,
                "input_schema": None,
                "result": "json",
                "egress": (),
                "private": (),
                "deny": (),
                "mode": "enforce",
                "env": {},
                "read": (),
                "write": (),
                "collect": (),
                "timeout_s": 30.0,
                "cpu_s": 30.0,
                "memory": 512 * 1024**2,
                "processes": 64,
                "output": 8 * 1024**2,
                "tmp": 64 * 1024**2,
                "events": 1000,
                "preload": (),
                "start_s": 20.0,
                "reuse": False,
                "idempotent": False,
                "returns_media": False,
                "taint": "auto",
                "proxy": False,
                "approval": "never",
                "retention": "none",
            }
        },
    }
    assert config.tools["t"].kind == "module"
    assert config.source == "f.toml"
    assert config.digest == hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.requirement("R019")
def test_every_key_of_the_surface_is_read(base: Path) -> None:
    config = parse_config(WHOLE_SURFACE, base=base, source="f.toml", allow_unsupported=True)
    host, metrics = config.host, config.tools["metrics"]
    assert host.state == base / "var"
    assert host.nameservers == (
        ("10.0.0.2", 53),
        ("127.0.0.1", 5353),
        ("2001:db8::1", 53),
        ("2001:db8::2", 5300),
    )
    assert host.trust == base / "ca.pem"
    assert [rule.where for rule in host.deny] == ["f.toml: host.deny[0]", "f.toml: host.deny[1]"]
    assert all(rule.deny for rule in (*host.deny, *metrics.deny))
    assert config.secrets == {
        "PROM_TOKEN": SecretSource(env="PROM_TOKEN"),
        "DB": SecretSource(file=Path("/run/secrets/db")),
        "API": SecretSource(credential="api"),
    }
    assert metrics.egress == (
        parse_rule("prometheus.internal:9090 +private"),
        parse_rule("GET,HEAD https://*.example.com/v1/"),
        EgressRule(
            text="",
            scheme="https",
            host="a.example",
            port=443,
            methods=frozenset({"POST"}),
            paths=("/a", "/b"),
            max_request=1024**2,
            rate=10.0,
        ),
        EgressRule(
            text="",
            scheme="https",
            host="b.example",
            port=443,
            max_connections=4,
            max_response=9,
            secret=SecretHeader("X", "{API}"),
        ),
        parse_rule("tcp://db.internal:5432 +private"),
    )
    assert [rule.where for rule in metrics.egress] == [f"f.toml: tools.metrics.egress[{i}]" for i in range(5)]
    assert metrics.env == {
        "PROM_TOKEN": SecretRef(secret="PROM_TOKEN"),
        "LANG": "C.UTF-8",
        "PATH": "/usr/bin",
    }
    assert metrics.secret_names == ("PROM_TOKEN",)
    assert (metrics.read, metrics.write) == ((base / "data",), (base / "out",))
    assert (metrics.timeout_s, metrics.cpu_s, metrics.start_s) == (2.5, 1.0, 3.0)
    assert (metrics.memory, metrics.output, metrics.tmp) == (64 * 1024**2, 65536, 1_000_000)
    assert metrics.preload == ("json", "os.path")
    assert metrics.input_schema == {"type": "object"}
    assert config.tools["count"].command == (str(base / "bin/count"), "-l")
    assert config.tools["count"].collect == ("out/*.png", "report.pdf")
    assert config.tools["files"].mcp == ("npx", "-y", "some-server")
    assert config.tools["rollup"].script == base / "tools/rollup.js"
    assert [tool.kind for tool in config.tools.values()] == ["module", "command", "mcp", "script"]


@pytest.mark.promise("policies:not-yet-refused")
def test_the_same_file_is_refused_for_every_entry_that_nothing_enforces_yet(base: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(WHOLE_SURFACE, base=base, source="f.toml")
    assert all(": not supported yet: " in problem for problem in caught.value.problems)
    keys = {problem.split(": ")[1].partition(" = ")[0] for problem in caught.value.problems}
    assert keys == {
        "tools.metrics.approval",
        "tools.metrics.retention",
        "tools.files.mcp",
        "tools.files.retention",
    }


def test_the_list_of_what_is_not_enforced_names_keys_that_exist(base: Path) -> None:
    rule = parse_rule("api.example.com")
    tool = one_tool(base, "").tools["t"]
    for entry in NOT_YET:
        path = entry.removeprefix("tools.*.").partition(" = ")[0]
        if path.startswith("egress.*."):
            assert hasattr(rule, path.removeprefix("egress.*."))
        else:
            assert hasattr(tool, path)


def test_a_configuration_cannot_be_changed(base: Path) -> None:
    config = one_tool(base, "")
    with pytest.raises(ValidationError, match="frozen"):
        config.tools["t"].timeout_s = 1.0


def test_a_file_with_windows_line_ends_loads(base: Path) -> None:
    text = 'version = 1\r\n[tools.t]\r\nmodule = "tools/metrics.py"\r\n'
    assert parse_config(text, base=base, source="f.toml").tools["t"].kind == "module"


@pytest.mark.parametrize(
    ("private", "folded"),
    [
        ('["a.internal:1"]', [True, True, False]),  # scheme, host and port name every entry that has them
        ('["GET a.internal:1"]', [False, True, False]),
        ('["a.internal:1", "a.internal:2"]', [True, True, True]),
        ("[]", [False, False, False]),
    ],
)
def test_private_is_folded_into_the_entries_it_names(base: Path, private: str, folded: list[bool]) -> None:
    config = one_tool(
        base, f'egress = ["a.internal:1", "GET a.internal:1", "a.internal:2"]\nprivate = {private}\n'
    )
    assert [rule.private for rule in config.tools["t"].egress] == folded


def test_paths_are_taken_from_the_folder_of_the_file_and_not_from_the_current_one(
    base: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (base / "f.toml").write_text(
        'version = 1\n[tools.t]\nmodule = "tools/metrics.py"\nread = ["data"]\n', encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    tool = load_config(base / "f.toml").tools["t"]
    assert (tool.module, tool.read) == (base / "tools/metrics.py", (base / "data",))


def test_a_path_of_the_current_folder_is_offered_as_the_absolute_one(
    base: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path_factory.mktemp("here")
    (here / "mine").mkdir()
    monkeypatch.chdir(here)
    with pytest.raises(ConfigError) as caught:
        one_tool(base, 'read = ["mine"]\n')
    assert str(caught.value) == (
        f'f.toml: tools.t.read[0] = "mine": {base}/mine does not exist; '
        f'paths are relative to the file ({base}), so write "{here}/mine"'
    )


def test_code_is_named_by_its_real_path_and_data_by_the_path_as_written(base: Path) -> None:
    (base / "link.py").symlink_to(base / "tools/metrics.py")
    (base / "linked").symlink_to(base / "data")
    text = 'version = 1\n[tools.t]\nmodule = "link.py"\nread = ["linked"]\n'
    tool = parse_config(text, base=base, source="f.toml").tools["t"]
    assert (tool.module, tool.read) == (base / "tools/metrics.py", (base / "linked",))


def test_a_socket_is_never_passed_in(base: Path) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(base / "data/docker.sock"))
    with pytest.raises(ConfigError, match="sockets and devices are never passed in"):
        one_tool(base, 'write = ["data/docker.sock"]\n')


@pytest.mark.promise("policies:host-files-out-of-reach")
@pytest.mark.parametrize(
    ("key", "what"),
    [
        ('read = ["var/log"]', "read the state folder"),  # inside
        ('read = ["link"]', "read the state folder"),  # by a symbolic link
        ('write = ["var"]', "change the state folder"),
        ('write = ["keys"]', "change the secret K"),
        ('read = ["keys/k"]', "read the secret K"),
        ('write = ["tools"]', "change the code of t"),
        ('write = ["ca.pem"]', "change the certificates that the broker trusts"),
    ],
)
def test_a_tool_is_never_given_what_belongs_to_the_host(base: Path, key: str, what: str) -> None:
    (base / "var/log").mkdir(parents=True)
    (base / "keys").mkdir()
    (base / "keys/k").write_text("x", encoding="utf-8")
    (base / "link").symlink_to(base / "var")
    text = f"""version = 1
host = {{ state = "var", trust = "ca.pem" }}
secrets = {{ K = {{ file = "keys/k" }} }}
[tools.t]
module = "tools/metrics.py"
{key}
"""
    with pytest.raises(ConfigError, match=f"would let the tool {what}"):
        parse_config(text, base=base, source="f.toml")
    harmless = text.replace(key, 'read = ["data"]\nwrite = ["out"]')
    config = parse_config(harmless, base=base, source="f.toml")
    assert config.never_visible == (base / "var", base / "keys/k")


@pytest.mark.parametrize(
    ("home", "state", "expected"),
    [
        ("/home/op", None, "/home/op/.local/state/fumehood"),
        ("/home/op", "/var/state", "/var/state/fumehood"),
        ("/home/op", "relative", "/home/op/.local/state/fumehood"),
        ("/home/op", "", "/home/op/.local/state/fumehood"),
    ],
)
def test_the_state_folder_follows_the_base_directory_rules(
    monkeypatch: pytest.MonkeyPatch, home: str, state: str | None, expected: str
) -> None:
    monkeypatch.setenv("HOME", home)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    if state is not None:
        monkeypatch.setenv("XDG_STATE_HOME", state)
    config = parse_config("version = 1\n", base=Path("/"), source="f.toml")
    assert config.host.state == Path(expected)


def test_a_user_without_a_home_folder_is_told_to_name_the_state_folder(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(uid: int) -> object:
        raise KeyError(uid)

    monkeypatch.setattr("pwd.getpwuid", nobody)
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    with pytest.raises(ConfigError) as caught:
        one_tool(base, "")
    assert str(caught.value) == (
        "host.state: is missing, and this user has no home folder\nHint: write state = PATH"
    )
    text = 'version = 1\n[host]\nstate = "~/x"\n'
    with pytest.raises(ConfigError, match='"~" is not expanded'):
        parse_config(text, base=base, source="f.toml")
