"""`fumehood demo`: everything comes out as it must, as root and as an ordinary user, and reads well."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from fumehood import Host
from fumehood._demo import Tour, open_world, take_tour
from fumehood._demo.world import DNS_PORT, METRICS_PORT, example_folder
from fumehood.policies import load_config
from tests.host.cli import COMMAND, Cli
from tests.host.test_clear_errors import WITHOUT
from tests.tree import ROOT
from tests.users import run_as_user

LINES = [
    ("Honest tools", "module tool", "done"),
    ("Honest tools", "command tool", "done"),
    ("Honest tools", "media tool", "done"),
    ("Honest tools", "unmodified clients", "done"),
    ("A hostile tool", "another host", "refused"),
    ("A hostile tool", "the metadata address", "refused"),
    ("A hostile tool", "a raw socket", "refused"),
    ("A hostile tool", "another's credential", "nothing"),
    ("A hostile tool", "our environment", "nothing"),
    ("A hostile tool", "/etc/shadow", "refused"),
    ("A hostile tool", "its own code", "refused"),
    ("A hostile tool", "a fork that stays", "killed"),
    ("A hostile tool", "an endless loop", "killed"),
    ("A name server that lies", "rebind.example", "done"),
    ("A name server that lies", "rebind.example again", "refused"),
    ("A name server that lies", "intranet.example", "refused"),
    ("A name server that lies", "clouds.example", "refused"),
    ("A name server that lies", "mixed.example", "refused"),
    ("A tool that lies about itself", "in its result", "not believed"),
    ("A tool that lies about itself", "in its frames", "killed"),
    ("A tool that lies about itself", "in what it returns", "refused"),
    ("A script a model wrote", "three calls in one", "done"),
    ("A script a model wrote", "a tool not granted", "refused"),
    ("A script a model wrote", "an endless script", "killed"),
]


def _check(told: dict[str, Any]) -> None:
    assert [line for line in told["lines"] if not line["held"]] == []
    assert [(line["section"], line["what"], line["verdict"]) for line in told["lines"]] == LINES
    assert (told["outcome"], told["log"]["ok"]) == ("ok", True)
    assert {call["enforcement"]["tier"] for call in told["calls"]} == {"namespaces"}
    outcomes = {(call["what"], call["outcome"], call["reason"]) for call in told["calls"]}
    assert ("loop", "limit", "timeout") in outcomes
    assert ("forged frame", "sandbox_error", "protocol") in outcomes


@pytest.mark.promise("host:the-demo-holds")
def test_everything_comes_out_as_it_must(cli: Cli) -> None:
    done = cli("demo", "--format", "json")
    _check(done.json)
    assert (done.code, done.err) == (0, "")


@pytest.mark.promise("host:the-demo-holds")
def test_everything_comes_out_as_it_must_for_an_ordinary_user(tmp_path: Path) -> None:
    done = run_as_user([*COMMAND, "demo", "--format", "json"], timeout=120)
    _check(json.loads(done.stdout))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("width", [50, 80])
def test_it_reads_well_at_any_width_and_leaves_what_was_asked_to_stay(cli: Cli, width: int) -> None:
    done = cli("demo", "--keep", width=width)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    kept = Path(next(line for line in lines if line.startswith("Kept: ")).removeprefix("Kept: "))
    try:
        assert all(len(line) <= width for line in lines if "/tmp/" not in line)
        assert any(line.startswith("log verify: OK, ") for line in lines)
        assert f"{len(LINES)} of {len(LINES)} came out as they must, in " in done.out
        assert "FAILED" not in done.out and "UNEXPECTED" not in done.out
        assert cli("log", "verify", "--config", str(kept / "fumehood.toml")).code == 0
        assert cli("explain", "last", "--config", str(kept / "fumehood.toml")).code == 0
    finally:
        shutil.rmtree(kept)


def test_a_port_that_is_taken_is_replaced_in_the_copy_and_said(cli: Cli) -> None:
    with socket.socket() as taken:
        try:
            taken.bind(("127.77.0.2", METRICS_PORT))
            taken.listen()
        except OSError:
            pass  # another demo has it: as good
        with open_world() as world:
            assert world.moved[METRICS_PORT] == world.metrics.port
            config = load_config(world.folder / "fumehood.toml")
            (rule,) = config.tools["metrics"].egress
            assert rule.text == f"http://metrics.internal:{world.metrics.port} +private"
            folder = world.folder
        assert not folder.exists()


def test_the_example_is_the_one_of_the_tree_and_loads() -> None:
    assert example_folder() == ROOT / "examples" / "demo"
    config = load_config(ROOT / "examples" / "demo" / "fumehood.toml")
    assert sorted(config.tools) == ["chart", "hostile", "liar", "metrics", "reader", "unmodified", "words"]
    assert config.host.nameservers == (("127.77.0.1", DNS_PORT),)


@pytest.mark.anyio
async def test_a_policy_that_lets_go_is_noticed() -> None:
    """The control: with the vault allowed, the attempt gets through, and the demo says so."""
    with open_world() as world:
        file = world.folder / "fumehood.toml"
        text = file.read_text(encoding="utf-8")
        allowed = f'egress = ["http://vault.internal:{world.vault.port} +private"]'
        strict = text.index("egress", text.index("[tools.hostile]"))
        weak = text[:strict] + allowed + text[text.index("\ntimeout_s = 1") :]
        file.write_text(weak, encoding="utf-8")
        async with Host(load_config(file), dial=world.dial) as host:
            tour = Tour(host, world)
            async with contextlib.aclosing(take_tour(tour)) as lines:
                async for line in lines:
                    if line.what == "another host":
                        break
    assert (line.what, line.held) == ("another host", False)
    assert line.why == "UNEXPECTED: ok (None): the crown jewels"


def test_the_calls_are_a_table_on_a_terminal_of_the_usual_width(cli: Cli) -> None:
    lines = cli("demo", width=80).out.splitlines()
    head = lines.index("Every call, as the host saw it") + 1
    assert lines[head].split() == ["call", "outcome", "reason", "time", "tier", "egress"]
    assert len([line for line in lines[head + 1 :] if "namespaces" in line]) == 20
    assert max(map(len, lines)) <= 80


def test_a_machine_without_cages_is_said_once_with_its_code() -> None:
    done = run_as_user([*WITHOUT, "userns", *COMMAND, "demo", "--quiet"])
    assert (done.returncode, done.stdout) == (4, "")
    told = done.stderr.splitlines()
    assert told[0].startswith("error: the sandbox cannot be built: layer `user`: ")
    assert told[1:] == ["Hint: `fumehood doctor` names the layer that is missing, and its remedy"]
