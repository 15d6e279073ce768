"""What `fumehood doctor` advises in a default container is enough: done there, the tier is reached."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.marks import only_root
from tests.tree import ROOT

SYS_PTRACE, SYS_ADMIN = 19, 21
HEADLINE = "seccomp=unconfined"


def doctor(**container: str) -> dict[str, Any]:
    """`fumehood doctor` in the simulated container, started with these options."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o777)
        done = subprocess.run(
            [sys.executable, "-m", "tests.isolate.container", sys.executable, "-m", "fumehood", "--format",
             "json", "doctor"],
            capture_output=True, text=True, check=False, cwd=ROOT,
            env={**os.environ, "XDG_STATE_HOME": folder, **container},
        )  # fmt: skip
    told: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if told["met"] else 4), done.stderr
    return told


@only_root("nobody else can be in a container with fourteen capabilities")
@pytest.mark.parametrize("user", [None, "1500"], ids=["root", "user"])
def test_a_default_container_is_told_every_remedy_once_a_cause(user: str | None) -> None:
    told = doctor(**({"CONTAINER_USER": user} if user else {}))
    assert (told["tier"], told["met"]) == ("landlock", False)
    weak = {name: layer for name, layer in told["layers"].items() if layer["level"] != "FULL"}
    assert [name for name, layer in weak.items() if not layer["reason"] or not layer["remedy"]] == []
    assert "fumehood doctor" not in json.dumps(told)
    assert HEADLINE in weak["user"]["remedy"] and "--user 1000" in weak["user"]["remedy"]


@only_root("nobody else can be in a container with fourteen capabilities")
def test_an_ordinary_user_needs_the_profile_alone_and_the_whole_proc_for_all_of_it() -> None:
    told = doctor(CONTAINER_USER="1500", CONTAINER_OPEN="seccomp")
    assert (told["tier"], told["met"]) == ("namespaces", True)
    assert told["layers"]["proc"]["level"] == "PARTIAL"
    assert "systempaths=unconfined" in told["layers"]["proc"]["remedy"]
    told = doctor(CONTAINER_USER="1500", CONTAINER_OPEN="seccomp proc")
    assert [n for n, layer in told["layers"].items() if layer["level"] != "FULL"] == ["cgroup-limits"]


@only_root("nobody else can be in a container with fourteen capabilities")
def test_root_needs_the_two_capabilities_that_are_named() -> None:
    both = f"{SYS_ADMIN} {SYS_PTRACE}"
    assert doctor(CONTAINER_OPEN="seccomp proc", CONTAINER_CAPS=both)["tier"] == "namespaces"
    assert doctor(CONTAINER_OPEN="seccomp proc", CONTAINER_CAPS=str(SYS_ADMIN))["tier"] == "landlock"
