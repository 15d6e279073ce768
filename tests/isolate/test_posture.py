"""Running children, their zygote and the processes above it, inspected from outside: whole values,
as root and as an ordinary user.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from fumehood.isolate import DEFAULT_PATH, Machine
from tests.isolate.inspect_child import CAPABILITIES, LIMITS, NAMESPACES
from tests.isolate.setups import ROOTLESS, results
from tests.marks import only_root

PEOPLE = ["user"] if ROOTLESS else ["root", "user"]
NO_CAPABILITIES = dict.fromkeys(CAPABILITIES, 0)
SIGPIPE_AND_SIGXFSZ = 1 << 12 | 1 << 24
"""What every Python ignores from its start."""
READ_ONLY, CLOSED = "ro,nosuid,nodev", "ro,nosuid,nodev,noexec"


def seen(person: str, tier: str, call: int = 0) -> Mapping[str, Any]:
    found: Mapping[str, Any] = results("posture", person)[tier][call]
    return found


def _user(person: str, uid: list[str]) -> list[str]:
    """The one id, by what it is: a slot's or the host's own."""
    (only,) = uid
    return ["a slot's"] if person == "root" and 200_000 <= int(only) < 260_000 else [only]


def _same_for_both(person: str) -> dict[str, Any]:
    return {
        "groups": "",
        "no new privs": "1",
        "seccomp": ["2", "1"],
        "umask": "0077",
        "blocked": 0,
        "ignored": SIGPIPE_AND_SIGXFSZ,
        "threads": 1,
        "environment": [f"PATH={DEFAULT_PATH}"],
        "descriptors": {"0": "/dev/null", "1": "pipe", "2": "pipe", "3": "socket"},
        "leads its session": True,
        "terminal": 0,
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "oom": int(Path("/proc/self/oom_score_adj").read_text(encoding="ascii")),
    }


@pytest.mark.promise("isolate:posture")
@pytest.mark.promise("isolate:env-exact")
@pytest.mark.requirement("R005")
@pytest.mark.parametrize("person", PEOPLE)
def test_a_running_child_has_exactly_what_the_plan_gives_it(person: str) -> None:
    child = seen(person, "namespaces")["child"]
    wanted = _same_for_both(person) | {
        "capabilities": NO_CAPABILITIES,
        "inner pid": 2,
        "own namespaces": sorted(set(NAMESPACES) - {"time"}),
        "cwd": "/tmp",
    }
    assert {key: child[key] for key in wanted} == wanted


@pytest.mark.promise("isolate:posture")
@pytest.mark.parametrize("person", PEOPLE)
def test_the_init_of_a_call_holds_nothing_and_nobody_looks_into_it(person: str) -> None:
    assert seen(person, "namespaces")["child"]["init"] == {
        "capabilities": NO_CAPABILITIES,
        "no new privs": "1",
        "inner pid": 1,
        "threads": 1,
        "descriptors": [],
        "readable by its user": False,
    }


@pytest.mark.promise("isolate:posture")
@pytest.mark.parametrize("person", PEOPLE)
def test_without_namespaces_a_running_child_has_the_rest_of_it(person: str) -> None:
    child = seen(person, "landlock")["child"]
    # An ordinary user cannot empty the bounding set without a namespace; no_new_privs keeps it without
    # effect.
    capabilities = (
        NO_CAPABILITIES if person == "root" else NO_CAPABILITIES | {"CapBnd": child["capabilities"]["CapBnd"]}
    )
    wanted = _same_for_both(person) | {"capabilities": capabilities, "own namespaces": []}
    assert {key: child[key] for key in wanted} == wanted
    assert "/fumehood-" in child["cwd"]


@pytest.mark.promise("isolate:posture")
@pytest.mark.parametrize("tier", ["namespaces", "landlock"])
@pytest.mark.parametrize("person", PEOPLE)
def test_a_tool_runs_as_a_user_of_its_own_where_the_host_is_root(person: str, tier: str) -> None:
    processes = seen(person, tier)
    host = [str(os.geteuid())] if ROOTLESS else processes["child"]["uid"]
    wanted = ["a slot's"] if person == "root" else host
    assert {name: _user(person, process["uid"]) for name, process in processes.items()} == dict.fromkeys(
        processes, wanted
    )
    assert {name: process["gid"] for name, process in processes.items()} == {
        name: process["uid"] if person == "root" else process["gid"] for name, process in processes.items()
    }
    assert "0" not in {number for process in processes.values() for number in process["uid"] + process["gid"]}


@pytest.mark.promise("isolate:posture")
@pytest.mark.parametrize("person", PEOPLE)
def test_the_limits_are_those_of_the_tool(person: str) -> None:
    child = seen(person, "namespaces")["child"]["limits"]
    mebibyte, stack = 1 << 20, 8 << 20
    wanted = {
        "Max cpu time": ["7", "8"],
        "Max file size": [str(LIMITS.tmp + mebibyte)] * 2,
        "Max data size": [str(2 * LIMITS.memory + LIMITS.processes * stack)] * 2,
        "Max core file size": ["0", "0"],
        "Max processes": ["33", "33"],
        "Max open files": ["1024", "1024"],
        "Max locked memory": ["65536", "65536"],
        "Max msgqueue size": ["0", "0"],
        "Max nice priority": ["0", "0"],
        "Max realtime priority": ["0", "0"],
    }
    assert {name: child[name] for name in wanted} == wanted


@pytest.mark.promise("isolate:posture")
@pytest.mark.promise("isolate:the-view-is-what-was-granted")
@pytest.mark.parametrize("person", PEOPLE)
def test_every_mount_of_the_view_is_known_and_carries_its_flags(person: str) -> None:
    mounts = {
        point: flags.partition(" ")[2]
        for point, flags in seen(person, "namespaces")["child"]["mounts"].items()
    }
    machine = Machine.read()
    folder = results("posture", person)["host"]["folder"]
    tool = {point for point in mounts if point.startswith(folder)}
    etc = {target: CLOSED for _, target in machine.etc}
    devices = dict.fromkeys(
        ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"), "ro,nosuid,noexec"
    )
    system = dict.fromkeys((*machine.system_dirs, *machine.interpreter_dirs, *machine.site_dirs), READ_ONLY)
    private = dict.fromkeys(("/tmp", "/dev/shm"), "rw,nosuid,nodev,noexec")
    wanted = {"/": READ_ONLY, "/proc": CLOSED, **etc, **devices, **system, **private}
    shown = {point: flags for point, flags in mounts.items() if point not in tool}
    assert shown == {point: flags for point, flags in wanted.items() if point in shown}
    # What lies inside another read-only tree of the same kind needs no mount of its own.
    left = [point for point in wanted if point not in shown]
    assert [point for point in left if not any(point.startswith(f"{other}/") for other in system)] == []
    # As root the owner's files look like the slot's own.
    assert {mounts[point] for point in tool} == {f"{READ_ONLY},idmapped" if person == "root" else READ_ONLY}


@pytest.mark.promise("isolate:fresh-child")
@pytest.mark.parametrize("person", PEOPLE)
def test_two_calls_of_one_tool_share_no_namespace_that_holds_state(person: str) -> None:
    one, two = (seen(person, "namespaces", call)["child"]["namespaces"] for call in (0, 1))
    # Host name and control-group root are the tool's; so is a network in which nothing is up.
    assert {name for name in NAMESPACES if one[name] == two[name]} == {"cgroup", "net", "time", "uts"}


@pytest.mark.promise("isolate:posture")
@pytest.mark.parametrize("person", PEOPLE)
def test_the_processes_above_a_child_hold_nothing_of_the_host(person: str) -> None:
    processes = seen(person, "namespaces")
    above = {name: process for name, process in processes.items() if name != "child"}
    assert sorted(above) == ["launcher", "process 1", "zygote"]
    assert {name: process["environment"] for name, process in above.items()} == dict.fromkeys(
        above, [f"PATH={DEFAULT_PATH}"]
    )
    assert {name: process["inner pid"] for name, process in above.items() if name != "launcher"} == {
        "process 1": 1,
        "zygote": 3,
    }
    # Whatever capability they have is over the tool's own namespaces, and they are in no namespace of the
    # host's.
    assert {name: process["own namespaces"] for name, process in above.items()} == {
        "launcher": sorted(set(NAMESPACES) - {"time", "pid"}),
        "process 1": sorted(set(NAMESPACES) - {"time"}),
        "zygote": sorted(set(NAMESPACES) - {"time"}),
    }


@pytest.mark.promise("isolate:posture")
@pytest.mark.parametrize("person", PEOPLE)
def test_without_namespaces_the_zygote_has_no_capability_over_the_host(person: str) -> None:
    zygote = seen(person, "landlock")["zygote"]
    bounding = 0 if person == "root" else zygote["capabilities"]["CapBnd"]
    assert zygote["capabilities"] == NO_CAPABILITIES | {"CapBnd": bounding}
    assert zygote["environment"] == [f"PATH={DEFAULT_PATH}"]


@pytest.mark.promise("isolate:no-secret-outside-the-call")
@pytest.mark.requirement("R006")
@pytest.mark.parametrize("tier", ["namespaces", "landlock"])
@pytest.mark.parametrize("person", PEOPLE)
def test_no_argument_list_and_no_start_environment_holds_the_credential(person: str, tier: str) -> None:
    secret = results("posture", person)["host"]["secret"]
    told = [
        (name, process["arguments"], process["environment"])
        for call in (0, 1)
        for name, process in seen(person, tier, call).items()
    ]
    assert len(told) == (8 if tier == "namespaces" else 4)
    assert [name for name, *texts in told if secret in str(texts)] == []


@pytest.mark.promise("isolate:limits-hold")
@only_root("an ordinary user makes no control group")
def test_each_call_has_a_control_group_of_its_own() -> None:
    groups = [seen("root", "namespaces", call)["child"]["groups of control"] for call in (0, 1)]
    own = [[path for path in paths if "/fumehood-" in path] for paths in groups]
    assert all(own) and own[0] != own[1]
