"""A host has the descriptors that its calls' connections need, and a tool those that its limits say."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

_CODE = """
import asyncio, resource
from fumehood._cli._loop import DESCRIPTORS, run_async
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
async def limit():
    return resource.getrlimit(resource.RLIMIT_NOFILE)
most = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
print(run_async(limit()) == (most, hard))
"""


def test_a_verb_takes_as_many_descriptors_as_it_may_have() -> None:
    done = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_what_it_takes_for_itself_is_not_the_tools(tmp_path: Path) -> None:
    soft = min(256, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    argv = [sys.executable, "-m", "fumehood", "run", "--", "sh", "-c", "ulimit -Sn; ulimit -Hn"]
    done = subprocess.run(
        ["sh", "-c", f'ulimit -Sn {soft}; exec "$@"', "sh", *argv],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "XDG_STATE_HOME": str(tmp_path)},
    )
    assert (done.stdout, done.returncode) == ("1024\n1024\n", 0), done
