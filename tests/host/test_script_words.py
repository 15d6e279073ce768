"""What is said of a script that ended badly: in the result, on the command line and by `explain`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fumehood import Host, load_config
from fumehood._cli import _advice
from fumehood.sandbox import Limits
from tests.host.cli import Cli

pytestmark = pytest.mark.anyio

ENDINGS: list[tuple[str, str, dict[str, Any]]] = [
    ("timeout", "for (;;);", {"wall_s": 0.2}),
    ("memory", "const a = []; for (;;) a.push(new Uint8Array(1 << 20).fill(1))", {}),
    ("output", "'x'.repeat(3e6)", {}),
    ("stack", "eval('('.repeat(1e5))", {}),
    ("tool-calls", "await tool('t', {})", {"tool_calls": 0}),
    ("bridge-bytes", "await tool('t', 'x'.repeat(2000))", {"bridge_bytes": 1000}),
    ("pending", "await tool('t', {})", {"pending": 0}),
    ("oversized-input", " " * (5 << 20), {}),
]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "t.py").write_text("def run(input, ctx):\n    return input\n")
    path = tmp_path / "fumehood.toml"
    path.write_text('version = 1\n[host]\nstate = "state"\n[tools.t]\nmodule = "t.py"\n')
    return path


async def test_every_bad_ending_of_a_script_speaks_of_the_script(config: Path) -> None:
    async with Host(load_config(config)) as host:
        for reason, code, limits in ENDINGS:
            result = await host.eval(code, tools=["t"], limits=Limits(**limits))
            assert result.reason == reason, result
            end = result.to_json()
            said = [str(end["error"]["message"]), _advice.sentence(end), *_advice.steps("script", end, [])]
            assert end["error"]["of"] == "script"
            assert not [text for text in said if "tools.script" in text or "timeout_s" in text], said
            assert not said[1].startswith(("The tool ", "The call ", "The child ")), said
            assert "script" in (said[0] + said[1]).lower(), said


def test_the_command_line_and_explain_speak_of_the_script(config: Path, cli: Cli) -> None:
    script = config.parent / "endless.js"
    script.write_text("for (;;);")
    ended = cli("--config", str(config), "eval", "--time", "0.2", str(script))
    told = cli("--config", str(config), "explain", "last")
    assert ended.code == 5
    assert "The script was still running when its wall time ended" in ended.err
    assert "The tool" not in ended.err and "process tree" not in ended.err
    assert "The script was still running" in told.out and "--time SECONDS" in told.out
    thrown = config.parent / "thrown.js"
    thrown.write_text("null.x")
    cli("--config", str(config), "eval", str(thrown))
    assert "The script itself failed" in cli("--config", str(config), "explain", "last").out


async def test_a_long_url_that_is_refused_is_not_repeated_whole(config: Path) -> None:
    async with Host(load_config(config)) as host:
        code = "try { await fetch('https://evil.test/' + 'x'.repeat(100000)) } catch (e) { e.message }"
        result = await host.eval(code, allow=["api.example.com"])
    assert result.outcome == "ok" and isinstance(result.value, str)
    assert len(result.value) < 1000
    assert len(json.dumps(result.events)) < 2000
