"""A call that fails for want of room: in its own places it is the limit `tmp`, in a grant it is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fumehood import Host, load_config

pytestmark = pytest.mark.anyio

TOOL = """
import errno, os

def fill(place, kind, clean):
    made = []
    try:
        if kind == "bytes":
            made.append(place + "/large")
            with open(made[0], "wb", buffering=0) as file:
                while True:
                    file.write(bytes(65536))
        while True:
            made.append(f"{place}/{len(made)}")
            open(made[-1], "wb").close()
    finally:
        for path in made if clean else ():
            if os.path.exists(path):
                os.unlink(path)

def run(input, ctx):
    try:
        fill(*input)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise
"""
HEAD = 'version = 1\n[host]\nstate = "state"\n'
BYTES = "head -c 10000000 /dev/zero > {}/large"
NAMES = "i=0; while [ $i -lt 6000 ] && : > {}/$i; do i=$((i+1)); done; [ $i = 6000 ]"


@pytest.mark.promise("isolate:limits-hold")
async def test_a_full_place_of_the_calls_own_is_named_as_its_limit_of_both_kinds(tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text(TOOL, encoding="utf-8")
    commands = {
        f"{kind} in {place}": f'command = ["sh", "-c", {json.dumps(text.format(place))}]\nresult = "text"\n'
        for place in ("/tmp", "/dev/shm")
        for kind, text in (("bytes", BYTES), ("names", NAMES))
    }
    tables = "".join(f'[tools.c{n}]\ntmp = "1 MiB"\n{text}' for n, text in enumerate(commands.values()))
    path = tmp_path / "fumehood.toml"
    path.write_text(f'{HEAD}[tools.m]\nmodule = "tool.py"\ntmp = "1 MiB"\n{tables}', encoding="utf-8")
    found = {}
    async with Host(load_config(path)) as host:
        for place in ("/tmp", "/dev/shm"):
            for kind in ("bytes", "names"):
                for clean in (False, True):
                    result = await host.call("m", [place, kind, clean])
                    found[f"module: {kind} in {place}, cleaned up: {clean}"] = (result.outcome, result.reason)
        for number, name in enumerate(commands):
            result = await host.call(f"c{number}")
            found[f"command: {name}"] = (result.outcome, result.reason)
    assert len(found) == 12
    assert found == dict.fromkeys(found, ("limit", "tmp"))


SMALL = """
import asyncio, json, sys
from fumehood import Host, load_config

async def main():
    async with Host(load_config(sys.argv[1])) as host:
        results = [await host.call("m", [sys.argv[2], "bytes", False]), await host.call("c")]
    print(json.dumps([[r.outcome, r.reason, (r.error or {}).get("hint")] for r in results]))

asyncio.run(main())
"""


@pytest.mark.promise("isolate:limits-hold")
def test_a_full_file_system_of_a_grant_is_the_tools_error_and_says_which(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "tool.py").write_text(TOOL, encoding="utf-8")
    command = json.dumps(BYTES.format(tmp_path / "out"))
    (tmp_path / "fumehood.toml").write_text(
        f'{HEAD}[tools.m]\nmodule = "tool.py"\nwrite = ["out"]\n'
        f'[tools.c]\ncommand = ["sh", "-c", {command}]\nwrite = ["out"]\nresult = "text"\n',
        encoding="utf-8",
    )
    # A small file system in a mount namespace of its own; an ordinary user has the power for it only in one
    # of his own user namespaces.
    mine = [] if os.geteuid() == 0 else ["--map-current-user", "--keep-caps"]
    script = f'mount -t tmpfs -o size=1m,mode=777 small {tmp_path}/out && exec "$@"'
    ran = subprocess.run(
        ["unshare", *mine, "--mount", "sh", "-c", script, "sh", sys.executable, "-c", SMALL,
         str(tmp_path / "fumehood.toml"), str(tmp_path / "out")],
        capture_output=True,
        text=True,
    )  # fmt: skip
    hint = f"the file system of {tmp_path}/out has no room left: free some, or grant a folder elsewhere"
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == [["tool_error", None, hint]] * 2
