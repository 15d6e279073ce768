"""Inside a default container no namespaces are to be had: what holds there, and that the rest is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.users import reachable

WAY_OUT = "this sandbox has no network of its own; use ctx.fetch"
TOOL = """
import asyncio, os, socket, subprocess, time, urllib.request

def attempt(what):
    try:
        return what()
    except OSError as error:
        return os.strerror(error.errno)
    except Exception as error:
        return type(error).__name__ + ": " + getattr(error, "reason", "")

def words(what):
    try:
        return what()
    except OSError as error:
        return str(error)

def run(input, ctx):
    if input == "bomb":
        for _ in range(3):
            if os.fork() == 0:
                time.sleep(1000)
        time.sleep(1000)
    return {
        "socket": attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM)),
        "its words": words(lambda: socket.create_connection(("93.184.216.34", 443))),
        "a name": words(lambda: socket.create_connection(("api.example.com", 443))),
        "a library": words(lambda: urllib.request.urlopen("https://api.example.com/")),
        "asyncio": words(lambda: asyncio.run(asyncio.open_connection("93.184.216.34", 443))),
        "another family": words(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)),
        "a pair": words(lambda: [end.close() for end in socket.socketpair()]),
        "shadow": attempt(lambda: open("/etc/shadow").read()),
        "home": attempt(lambda: os.listdir("/root")),
        "outside": attempt(lambda: open("/tmp/written-by-a-tool", "w")),
        "own": attempt(lambda: open(ctx.tmp + "/x", "w").write("12")),
        "environ of the host": attempt(lambda: open("/proc/%d/environ" % os.getppid()).read()),
        "kill the zygote": attempt(lambda: os.kill(os.getppid(), 0)),
        "new session": attempt(os.setsid),
        "program": subprocess.run(["echo", "hi"], capture_output=True, text=True).stdout,
        "fetch": attempt(lambda: ctx.fetch("http://not-listed.test/")),
    }
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user can reach: a slot's user in a container sees files as everybody does."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made)


def in_container(
    folder: Path, *argv: str, user: int | None = None, tier: str = "any"
) -> tuple[int, Any, str]:
    """`fumehood ARGV` in the simulated container: (exit code, JSON, standard error)."""
    (folder / "tools").mkdir(exist_ok=True)
    (folder / "tools" / "t.py").write_text(TOOL, encoding="utf-8")
    config = folder / "fumehood.toml"
    config.write_text(
        f'version = 1\n[host]\nstate = "state"\nrequire_tier = "{tier}"\n'
        '[tools.t]\nmodule = "tools/t.py"\negress = ["api.example.com"]\ntimeout_s = 2\n',
        encoding="utf-8",
    )
    if user is not None:
        os.chown(folder, user, user)
    command = [sys.executable, "-m", "tests.isolate.container", sys.executable, "-m", "fumehood",
               "--config", str(config), "--format", "json", *argv]  # fmt: skip
    ran = subprocess.run(
        reachable(command) if user is not None else command,
        capture_output=True, text=True, timeout=60, cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, **({"CONTAINER_USER": str(user)} if user else {})},
    )  # fmt: skip
    return ran.returncode, json.loads(ran.stdout) if ran.stdout.strip() else None, ran.stderr


@pytest.mark.requirement("R012")
@pytest.mark.promise("isolate:container-tier")
@pytest.mark.parametrize("user", [None, 1500], ids=["root", "user"])
def test_a_tool_runs_on_the_tier_landlock_and_the_result_says_what_is_missing(
    folder: Path, user: int | None
) -> None:
    code, result, errors = in_container(folder, "call", "t", user=user)
    assert code == 0, (result, errors)
    enforcement = result["enforcement"]
    assert enforcement["tier"] == "landlock"
    missing = {layer for layer, level in enforcement["layers"].items() if level == "MISSING"}
    assert missing >= {"user", "mount", "pid", "net", "ipc", "uts", "cgroup-ns", "proc"}
    assert {enforcement["layers"][layer] for layer in ("landlock-fs", "seccomp", "no-new-privs")} == {"FULL"}
    assert result["value"] == {
        "socket": "Address family not supported by protocol",
        "its words": f"[Errno 97] Address family not supported by protocol: {WAY_OUT}",
        "a name": f"[Errno -3] Temporary failure in name resolution: {WAY_OUT}",
        "a library": f"<urlopen error [Errno -3] Temporary failure in name resolution: {WAY_OUT}>",
        "asyncio": f"[Errno 97] Address family not supported by protocol: {WAY_OUT}",
        "another family": "[Errno 97] Address family not supported by protocol",
        "a pair": [None, None],
        "shadow": "Permission denied",
        "home": "Permission denied",
        "outside": "Permission denied",
        "own": 2,
        "environ of the host": "Permission denied",
        "kill the zygote": "Operation not permitted",
        "new session": "Operation not permitted",
        "program": "hi\n",
        "fetch": "EgressDenied: not-listed",
    }


@pytest.mark.parametrize("user", [None, 1500], ids=["root", "user"])
def test_a_call_that_does_not_end_is_killed_with_all_its_children(folder: Path, user: int | None) -> None:
    code, result, errors = in_container(folder, "call", "t", '"bomb"', user=user)
    assert (code, result["outcome"], result["reason"]) == (5, "limit", "timeout"), errors
    left = subprocess.run(["pgrep", "-f", str(folder)], capture_output=True, text=True).stdout
    assert left == ""


@pytest.mark.promise("isolate:weaker-than-asked-does-not-run")
def test_what_requires_namespaces_does_not_run_and_the_remedy_is_named(folder: Path) -> None:
    code, result, errors = in_container(folder, "call", "t", tier="namespaces")
    assert (code, result["outcome"], result["reason"]) == (4, "sandbox_error", "tier"), errors
    assert "doctor" in result["error"]["hint"]
    code, examined, _ = in_container(folder, "doctor", tier="namespaces")
    assert (code, examined["tier"]) == (4, "landlock")
    assert "container" in json.dumps(examined)


def test_a_tool_that_the_sandboxs_user_cannot_reach_is_refused_with_the_folder_named(folder: Path) -> None:
    in_container(folder, "tools")
    (folder / "tools").chmod(0o700)
    code, result, _ = in_container(folder, "call", "t")
    assert (code, result["reason"]) == (4, "tier")
    assert f"{folder}/tools is closed to others" in result["error"]["message"]


@pytest.mark.promise("isolate:container-tier")
@pytest.mark.parametrize("user", [None, 1500], ids=["root", "user"])
def test_scripts_run_in_what_there_is_and_say_so(
    folder: Path, user: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = folder / "cache"
    cache.mkdir(mode=0o700)
    os.chown(cache, user or 0, user or 0)
    monkeypatch.setenv("FUMEHOOD_CACHE", str(cache))
    (folder / "s.js").write_text("input.a + 1", encoding="utf-8")
    script = str(folder / "s.js")
    code, result, errors = in_container(folder, "eval", "--input", '{"a": 41}', script, user=user)
    assert (code, result["value"]) == (0, 42), (result, errors)
    assert result["enforcement"]["tier"] == "landlock"
    assert result["enforcement"]["layers"]["landlock-fs"] == "FULL"
    code, result, errors = in_container(folder, "eval", script, user=user, tier="namespaces")
    assert (code, result["outcome"], result["reason"]) == (4, "sandbox_error", "tier"), errors
