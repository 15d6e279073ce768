"""A child that lacks a wall is refused, with the wall's name, before a line of the tool's code has run.

Each wall is left out by `degraded/launch.py`, as a broken build or kernel would; the child's own report says
FULL all the same. The host finds out by looking.
"""

from __future__ import annotations

import pytest

from tests.isolate.setups import ROOTLESS, results

NAMED = {
    "landlock": "landlock-fs",
    "seccomp": "seccomp",
    "no-new-privs": "no-new-privs",
    "capabilities": "capabilities",
    "bounding-set": "capabilities",
    "fds": "fds",
    "rlimits": "rlimits",
    "view": "mount",
    "private-tmp": "mount",
    "proc": "proc",
    "pid": "pid",
    "net": "net",
    "ipc": "ipc",
    "cgroup-ns": "cgroup-ns",
    "uts": "uts",
    "user": "user",
}
"""Wall left out -> the layer that the refusal names."""

PEOPLE = ["user"] if ROOTLESS else ["root", "user"]


@pytest.mark.promise("isolate:looked-at-before-use")
@pytest.mark.promise("isolate:weaker-than-asked-does-not-run")
@pytest.mark.requirement("R007")
@pytest.mark.parametrize("person", PEOPLE)
@pytest.mark.parametrize("wall", sorted(NAMED))
def test_a_child_without_this_wall_is_refused_before_tool_code_runs(wall: str, person: str) -> None:
    found = results("refusals", person)[wall]
    if (wall, person) == ("user", "user"):
        # Nothing to leave out: an ordinary user's tools run as that user.
        assert found == {"told": "ran", "ran": True}
        return
    assert found["ran"] is False
    assert f"'{NAMED[wall]}'" in found["told"], found["told"]


@pytest.mark.promise("isolate:looked-at-before-use")
@pytest.mark.parametrize("person", PEOPLE)
def test_a_child_with_all_walls_runs(person: str) -> None:
    assert results("refusals", person)["nothing"] == {"told": "ran", "ran": True}


@pytest.mark.promise("isolate:looked-at-before-use")
@pytest.mark.parametrize("person", PEOPLE[:-1])
def test_a_child_that_did_not_join_its_group_is_put_into_it(person: str) -> None:
    assert results("refusals", person)["group"] == {"told": "ran", "ran": True, "group": "FULL"}
