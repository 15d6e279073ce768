"""What tools and bystanders do at the edges: limits met exactly, loud imports, odd files, killed zygotes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fumehood import Host, load_config
from tests.host.cli import COMMAND, Cli, finish, spawn

pytestmark = pytest.mark.anyio

ONE = "def run(input, ctx):\n    return 1\n"


def configured(folder: Path, source: str, keys: str = "") -> Path:
    (folder / "tool.py").write_text(source, encoding="utf-8")
    path = folder / "fumehood.toml"
    path.write_text(
        f'version = 1\n[host]\nstate = "state"\n[tools.t]\nmodule = "tool.py"\n{keys}', encoding="utf-8"
    )
    return path


# -- output --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("printed", "returned", "outcome"),
    [
        (0, 65534, "ok"),  # and two quotation marks
        (0, 65535, "limit"),
        (40000, 25534, "ok"),
        (40000, 25535, "limit"),
        (40000, 40000, "limit"),
    ],
)
async def test_result_and_streams_share_one_limit_to_the_byte(
    tmp_path: Path, printed: int, returned: int, outcome: str
) -> None:
    source = (
        "import sys\ndef run(input, ctx):\n    sys.stdout.write('p' * input[0])\n    return 'r' * input[1]\n"
    )
    async with Host(load_config(configured(tmp_path, source, 'output = "64 KiB"\n'))) as host:
        result = await host.call("t", [printed, returned])
    assert (result.outcome, result.reason) == (outcome, "output" if outcome == "limit" else None)


async def test_an_import_that_prints_more_than_a_pipe_holds_is_no_hang(tmp_path: Path) -> None:
    source = "import sys\nprint('o' * 300_000)\nsys.stderr.write('e' * 300_000)\n" + ONE
    async with Host(load_config(configured(tmp_path, source, "start_s = 5\n"))) as host:
        for _ in range(2):  # a child forked on demand, and a spare
            result = await host.call("t")
            assert (result.outcome, result.value) == ("ok", 1)
            assert result.stdout == "o" * 300_000 + "\n"
            assert result.stderr == "e" * 300_000
            await asyncio.sleep(1)


async def test_an_import_that_prints_without_end_ends_with_its_time(tmp_path: Path) -> None:
    source = "import os\nwhile True:\n    os.write(1, b'x' * 65536)\n"
    async with Host(load_config(configured(tmp_path, source, "start_s = 1\n")), spares=0) as host:
        result = await asyncio.wait_for(host.call("t"), 20)
    assert (result.outcome, result.reason) == ("sandbox_error", "start")


async def test_one_who_fills_the_pipe_cannot_keep_the_host_reading(tmp_path: Path) -> None:
    source = (
        "import os\ndef run(input, ctx):\n"
        "    for _ in range(4):\n        if os.fork() == 0:\n"
        "            while True:\n                os.write(1, b'x' * 65536)\n"
        "    return 1\n"
    )
    async with Host(load_config(configured(tmp_path, source, 'output = "1 GiB"\n'))) as host:
        result = await asyncio.wait_for(host.call("t"), 20)
    assert result.value == 1


# -- requests that an honest tool got wrong ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("ctx.emit('', 1)", "ctx.emit: a kind has 1 to 200 characters, and this one 0"),
        ("ctx.emit('k' * 201, 1)", "ctx.emit: a kind has 1 to 200 characters, and this one 201"),
        ("ctx.put(bytes(40 << 20), 'text/plain')", "ctx.put takes 33554432 bytes at most"),
        ("ctx.fetch('http://x.example/', body=bytes(40 << 20))", "ctx.fetch takes 33554432 bytes at most"),
    ],
)
@pytest.mark.parametrize("kind", ["def", "async def"])
async def test_what_is_too_long_to_ask_for_is_an_error_in_the_tool(
    tmp_path: Path, call: str, told: str, kind: str
) -> None:
    wait = "await " if kind == "async def" and "emit" not in call else ""
    source = f"{kind} run(input, ctx):\n    {wait}{call}\n"
    async with Host(load_config(configured(tmp_path, source)), spares=0) as host:
        result = await host.call("t")
    assert result.outcome == "tool_error"
    assert result.error is not None
    assert result.error["type"] == "ValueError"
    assert told in result.error["message"]


# -- the module's file ---------------------------------------------------------------------------------------


def _folder(path: Path) -> None:
    path.mkdir()


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _nothing(path: Path) -> None:
    return None


@pytest.mark.parametrize(("becomes", "told"), [
    (_nothing, "cannot be read"), (_folder, "is no regular file"), (_fifo, "is no regular file")
])  # fmt: skip
async def test_a_module_that_is_no_file_any_more_is_said_and_comes_back(
    tmp_path: Path, becomes: Any, told: str
) -> None:
    path = configured(tmp_path, ONE)
    async with Host(load_config(path)) as host:
        assert (await host.call("t")).value == 1
        (tmp_path / "tool.py").rename(tmp_path / "kept")
        becomes(tmp_path / "tool.py")
        result = await asyncio.wait_for(host.call("t"), 20)
        assert (result.outcome, result.reason) == ("sandbox_error", "start")
        assert told in str(result.error)
        assert [row.kind for row in host.log.events(call_id=result.call_id)][-1] == "CALL_ENDED"
        (tmp_path / "tool.py").rmdir() if becomes is _folder else (tmp_path / "tool.py").unlink(True)
        (tmp_path / "kept").rename(tmp_path / "tool.py")
        assert (await host.call("t")).value == 1


async def test_an_editors_lock_beside_the_tool_stops_nothing(tmp_path: Path) -> None:
    path = configured(tmp_path, ONE)
    (tmp_path / ".#tool.py").symlink_to("someone@somewhere.1234")
    async with Host(load_config(path)) as host:
        assert (await host.call("t")).value == 1


async def test_a_change_that_keeps_size_and_time_is_seen(tmp_path: Path) -> None:
    path = configured(tmp_path, ONE)
    file = tmp_path / "tool.py"
    async with Host(load_config(path)) as host:
        assert (await host.call("t")).value == 1
        await asyncio.sleep(0.3)  # a spare holds the old code now
        before = file.stat()
        with file.open("r+") as writing:
            writing.write(ONE.replace("1", "2"))
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert (await host.call("t")).value == 2


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import os\nos._exit(3)\n", "ended with code 3"),
        ("import os\nos.kill(os.getpid(), 9)\n", "was ended by SIGKILL"),
    ],
)
async def test_an_import_that_ends_the_process_says_how(tmp_path: Path, source: str, told: str) -> None:
    async with Host(load_config(configured(tmp_path, source)), spares=0) as host:
        result = await host.call("t")
    assert (result.outcome, result.reason) == ("sandbox_error", "start")
    assert told in str(result.error)


# -- somebody kills the zygote -------------------------------------------------------------------------------


@pytest.mark.parametrize("spares", [0, 1])
async def test_the_call_after_a_killed_zygote_works_however_soon_it_comes(
    tmp_path: Path, spares: int
) -> None:
    # A spare that is taken in the very moment in which it dies may have begun the call: that is told.
    pauses = (0.0, 0.0, 0.001, 0.003, 0.01, 0.05) if spares == 0 else (0.3, 0.3)
    async with Host(load_config(configured(tmp_path, ONE)), spares=spares) as host:
        for pause in pauses:
            assert (await host.call("t")).value == 1
            await asyncio.sleep(0.2)
            zygote = host.isolator._cages["t"].zygote.pid
            assert zygote is not None
            os.kill(zygote, signal.SIGKILL)
            await asyncio.sleep(pause)
            result = await asyncio.wait_for(host.call("t"), 30)
            assert (result.outcome, result.error, result.value) == ("ok", None, 1)


# -- fumehood run --------------------------------------------------------------------------------------------


def test_run_from_a_folder_that_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    words = " ".join(COMMAND)
    done = subprocess.run(
        ["sh", "-c", f'mkdir "{gone}"; cd "{gone}"; rmdir "{gone}"; {words} run -- pwd'],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "/tmp\n"), done.stderr


def test_a_program_named_from_here_is_found_below_a_grant(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "it").write_text("#!/bin/sh\necho ran\n")
    (tmp_path / "bin" / "it").chmod(0o755)
    assert finish(["run", "--read", "bin", "--", "bin/it"], cwd=tmp_path).out == "ran\n"


@pytest.mark.parametrize("place", ["/", "/tmp", "/etc", "/proc", "/dev"])
@pytest.mark.parametrize("option", ["--read", "--write"])
def test_a_grant_of_what_the_sandbox_brings_is_bad_usage(cli: Cli, place: str, option: str) -> None:
    done = cli("run", option, place, "--", "true")
    assert done.code == 2
    assert done.err.startswith(f"error: {place}: ")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("verb", ["run -- true", "doctor", "nonsense"])
def test_closed_standard_streams_make_no_traceback(tmp_path: Path, closed: str, verb: str) -> None:
    words = " ".join(COMMAND)
    done = subprocess.run(
        ["sh", "-c", f"{words} {verb} {closed}"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
        check=False,
    )
    assert done.returncode == (2 if verb == "nonsense" else 0), done.stderr
    assert "Traceback" not in done.stderr


def test_an_input_that_is_to_be_read_from_a_closed_stdin_is_empty(tmp_path: Path) -> None:
    configured(tmp_path, ONE)
    with spawn(["call", "t", "-"], cwd=tmp_path, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        _, err = process.communicate(timeout=60)
    assert b"Traceback" not in err
    assert b"inside fumehood" not in err
