"""`fumehood bench sandbox`: what it names and how peers are found. No figure is judged here."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from fumehood._bench import NotRun, Options, run_area
from fumehood._bench._script_peers import JAVASCRIPT, PYTHON, PYTHONS, Peer, found

pytestmark = pytest.mark.anyio
OURS = ["fumehood, caged worker", "fumehood, in process", "fumehood, engine alone"]


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """One quick run, as the command line prints it."""
    made = asyncio.run(run_area("sandbox", Options(rounds=100, quick=True, say=lambda line: None)))
    whole: dict[str, Any] = json.loads(json.dumps(made.to_json()))
    return whole


def test_every_peer_is_measured_or_named_with_what_would_bring_it(report: dict[str, Any]) -> None:
    sections = {section["name"]: section for section in report["sections"]}
    assert list(sections) == ["fresh-js", "fresh-python", "bridge-js", "bridge-python", "throughput"]
    for name, peers in (("fresh-js", JAVASCRIPT), ("fresh-python", PYTHON)):
        run = [row["contestant"] for row in sections[name]["rows"]]
        absent = {peer["contestant"]: peer["remedy"] for peer in sections[name]["not_run"]}
        assert run[:3] == OURS
        assert sorted([*run[3:], *absent]) == sorted(peer.name for peer in peers)
        assert all(absent.values())
        assert all(row["what"] for row in sections[name]["rows"])


def test_a_caged_worker_is_measured_and_every_target_is_named(report: dict[str, Any]) -> None:
    assert report["machine"]["tier"] != "none"
    named = [aim["name"] for aim in report["targets"]]
    assert len(named) == len(set(named)) == 11
    assert [aim["met"] is None for aim in report["targets"]][:7] == [False] * 7


async def test_a_package_is_looked_for_in_the_interpreters_that_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = Peer("quickjs-rs", "x", "pip install it", True, module="quickjs_rs")
    fake = tmp_path / "python"  # an interpreter that has the module, with an engine that knows one sum
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "quickjs_rs.py").write_text(
        "import contextlib\n\n\nclass Context:\n    def eval(self, code):\n        return eval(code)\n\n\n"
        "class Runtime:\n    def __enter__(self):\n        return self\n\n"
        "    def __exit__(self, *_):\n        pass\n\n"
        "    @contextlib.contextmanager\n    def new_context(self):\n        yield Context()\n"
    )
    fake.write_text(
        f'#!/bin/sh\n[ "$1" = -I ] && shift\nPYTHONPATH={tmp_path}/lib exec {sys.executable} "$@"\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv(PYTHONS, os.pathsep.join([str(tmp_path / "none"), str(fake)]))
    usable, absent = await found([peer])
    assert ([contestant.name for contestant in usable], absent) == (["quickjs-rs"], [])
    assert usable[0].isolated and usable[0].what == "x"


async def test_a_peer_that_cannot_start_is_named_with_its_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python"
    broken.write_text('#!/bin/sh\n[ "$1" = -I ] && exit 0\necho "no engine here" >&2\nexit 1\n')
    broken.chmod(0o755)
    monkeypatch.setenv(PYTHONS, str(broken))
    absent_here = Peer("pyeryx", "x", "pip install it", True, module="a_module_that_nobody_has")
    wrong = Peer("wrong", "x", "", False, argv=("sh", "-c", "echo 3"))
    gone = Peer("gone", "x", "apt install gone", False, argv=("a-program-that-nobody-has",))
    usable, absent = await found([absent_here, wrong, gone])
    assert usable == []
    assert absent == [
        NotRun("pyeryx", "installed, but pyeryx could not start: no engine here"),
        NotRun("wrong", "installed, but wrong answered b'3\\n' b''"),
        NotRun("gone", "apt install gone"),
    ]
    assert shutil.which("a-program-that-nobody-has") is None
