"""A list of rules and the word `idempotent` mean the same wherever a tool is declared, and the list is asked
first.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fumehood import Host, load_config
from fumehood.testing.http import Reply
from tests.broker.world import PUBLIC, World
from tests.host.test_doors import configured

pytestmark = pytest.mark.anyio

RULE = "http://api.example.com/open"
ASKED = ("http://api.example.com/open/x", "http://api.example.com/shut", "http://evil.test/")
MODULE = """
async def run(input, ctx):
    said = []
    for url in input:
        try:
            said.append((await ctx.fetch(url)).status)
        except Exception as error:
            said.append(type(error).__name__)
    return said
"""
SCRIPT = """
const said = [];
for (const url of input) {
  try { said.push((await fetch(url)).status); } catch (error) { said.push("refused"); }
}
said
"""


def _verdicts(egress: Any) -> list[tuple[Any, ...]]:
    return [(row["host"], row["outcome"], row["reason"], row["rule"], row["pinned"]) for row in egress]


@pytest.mark.requirement("R020")
@pytest.mark.requirement("R021")
async def test_the_list_means_the_same_on_every_kind_of_tool_and_is_asked_before_anything_is_opened(
    tmp_path: Path, world: World
) -> None:
    server = world.serve(80, lambda seen: Reply(200, b"in"))
    (tmp_path / "t.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "t.js").write_text(SCRIPT, encoding="utf-8")
    curl = ["sh", "-c", 'for url in "$@"; do curl -sS -o /dev/null "$url"; done; true', "sh", *ASKED]
    tools = (
        f'[tools.module]\nmodule = "t.py"\negress = ["{RULE}"]\n'
        f'[tools.table]\nmodule = "t.py"\negress = [{{ host = "api.example.com", scheme = "http", '
        'paths = ["/open"] }]\n'
        f'[tools.script]\nscript = "t.js"\negress = ["{RULE}"]\n'
        f'[tools.command]\ncommand = {json.dumps(curl)}\nresult = "text"\negress = ["{RULE}"]\n'
    )
    path = configured(tmp_path, world, tools)
    assert world.dns is not None
    found: dict[str, list[tuple[Any, ...]]] = {}
    async with Host(load_config(path), dial=world.dial) as host:
        for name in ("module", "table", "script", "command"):
            found[name] = _verdicts((await host.call(name, list(ASKED))).egress)
        found["run"] = _verdicts((await host.run(curl, allow=[RULE])).egress)
        found["eval"] = _verdicts((await host.eval(SCRIPT, input=list(ASKED), allow=[RULE])).egress)
    assert found["module"] == [
        ("api.example.com", "allow", None, RULE, PUBLIC),
        ("api.example.com", "deny", "path", None, None),
        ("evil.test", "deny", "not-listed", None, None),
    ]
    for name, rows in found.items():
        verdicts = [row[:3] for row in rows]
        if name in ("command", "run"):
            # Names that no rule has are refused when they are asked for, once for each kind of address.
            verdicts = list(dict.fromkeys(verdicts))
        assert verdicts == [row[:3] for row in found["module"]], name
    # The list comes first: what it refuses is neither resolved nor dialled.
    assert {seen.path for seen in server.seen} == {"/open/x"} and len(server.seen) == len(found)
    assert set(world.dns.names) == {"api.example.com"}


@pytest.mark.requirement("R009")
@pytest.mark.parametrize("idempotent", ["true", "false"])
@pytest.mark.parametrize("end", ["os._exit(3)", "raise ValueError('no')", "return 'done'"])
async def test_isolation_repeats_no_call_whatever_idempotent_says(
    tmp_path: Path, idempotent: str, end: str
) -> None:
    """`idempotent` is the caller's leave to call again; in its cage a call runs once, and is told once."""
    (tmp_path / "out").mkdir()
    (tmp_path / "t.py").write_text(
        f"import os\ndef run(input, ctx):\n    open({str(tmp_path / 'out' / 'runs')!r}, 'a').write('x')\n"
        f"    {end}\n",
        encoding="utf-8",
    )
    path = tmp_path / "fumehood.toml"
    path.write_text(
        f'version = 1\n[host]\nstate = "state"\n[tools.t]\nmodule = "t.py"\nwrite = ["out"]\n'
        f"idempotent = {idempotent}\n",
        encoding="utf-8",
    )
    config = load_config(path)
    assert config.tools["t"].idempotent is (idempotent == "true")
    async with Host(config) as host:
        result = await host.call("t", None)
        rows = [event.kind for event in host.log.events(call_id=result.call_id)]
    assert (tmp_path / "out" / "runs").read_text(encoding="utf-8") == "x"
    assert (rows[0], rows[-1], rows.count("CALL_STARTED")) == ("CALL_STARTED", "CALL_ENDED", 1)
