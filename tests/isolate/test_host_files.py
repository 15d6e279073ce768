"""Building a view changes no file of the host, whatever is granted."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.marks import only_root

_CALL = """
import asyncio, sys
from pathlib import Path
from fumehood.isolate import CallFrame, Isolator, ToolSpec
from fumehood.policies import SandboxUnavailable

async def main():
    async with Isolator("namespaces", spares=0) as isolator:
        spec = ToolSpec("t", "command", argv=("true",), write=(Path("/etc"),))
        await isolator.call(spec, CallFrame("c", None, {"PATH": "/usr/bin:/bin"}), None)

try:
    asyncio.run(main())
except SandboxUnavailable as error:
    print(error.message)
"""
_ETC = ("passwd", "group", "hosts", "nsswitch.conf", "ld.so.cache")


@only_root("an ordinary user may not write to /etc in any case")
def test_a_writable_grant_of_etc_is_refused_and_no_file_in_it_is_written(tmp_path: Path) -> None:
    """The view has a passwd, a resolv.conf and others of its own.

    Here /etc is a copy, in a mount namespace.
    """
    etc = tmp_path / "etc"
    etc.mkdir()
    for name in _ETC:
        shutil.copy(f"/etc/{name}", etc / name)
    (etc / "resolv.conf").write_text("the host's own\n")
    before = {path.name: path.read_bytes() for path in etc.iterdir()}
    covered = f'mount --bind {etc} /etc && exec "$@"'
    done = subprocess.run(
        [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            covered,
            "sh",
            sys.executable,
            "-c",
            _CALL,
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "a grant covers its place" in done.stdout, done.stderr
    assert {path.name: path.read_bytes() for path in etc.iterdir()} == before
