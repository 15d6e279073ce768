"""The plan is a pure function of spec and machine: compared as whole values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fumehood.isolate import Limits, Machine, ToolSpec
from fumehood.isolate._plan import Filters, build_plan
from fumehood.isolate.tiers import Tier
from fumehood.policies.errors import SandboxUnavailable

MACHINE = Machine(
    root=True,
    executable="/usr/bin/python3.11",
    sys_path=("/usr/lib/python3.11", "/venv/site-packages"),
    interpreter_dirs=(),
    site_dirs=("/venv/site-packages",),
    system_links={"/bin": "usr/bin"},
    system_dirs=("/usr",),
    etc=(("/etc/ssl/certs", "/etc/ssl/certs"), ("/etc/pki/x.pem", "/etc/ssl/cert.pem")),
    landlock_abi=7,
)


def plan(spec: ToolSpec, machine: Machine = MACHINE, tier: Tier = "namespaces") -> dict[str, Any]:
    filters = Filters(b"\1", b"\2")
    return build_plan(spec, machine, slot=200007, host_pid=42, seccomp=filters, tier=tier)


def module(folder: Path, **fields: Any) -> ToolSpec:
    return ToolSpec("t", "module", path=folder / "t.py", **fields)


def test_a_module_tool_sees_the_system_python_and_its_own_folder(tmp_path: Path) -> None:
    folder = tmp_path / "tools"
    folder.mkdir()
    made = plan(module(folder))
    assert made["binds"] == [
        {"source": "/usr", "target": "/usr", "exec": True},
        {"source": "/etc/ssl/certs", "target": "/etc/ssl/certs", "optional": True},
        {"source": "/etc/pki/x.pem", "target": "/etc/ssl/cert.pem", "optional": True},
        *({"source": d, "target": d, "device": True} for d in DEVICES),
        {"source": "/venv/site-packages", "target": "/venv/site-packages", "exec": True, "optional": True},
        {"source": str(folder), "target": str(folder), "exec": True, "own": True},
    ]
    assert made["landlock"] == {
        "watched": False,
        "read_exec": ["/usr", "/venv/site-packages", str(folder)],
        "read": ["/etc", "/run", "/dev"],
        "read_own": ["/proc"],
        "list": ["/"],
        "devices": list(DEVICES),
        "write": [],
        "sockets": False,
        "write_own": ["/dev/shm"],
        "connect_ports": [],
    }


DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def test_a_command_sees_no_python_packages() -> None:
    made = plan(ToolSpec("t", "command", argv=("cat",)))
    assert "/venv/site-packages" not in [bind["target"] for bind in made["binds"]]


@pytest.mark.promise("isolate:no-egress-no-port")
def test_ports_are_granted_for_doors_and_for_nothing_else(tmp_path: Path) -> None:
    assert plan(module(tmp_path))["doors"] is None
    assert plan(module(tmp_path))["landlock"]["connect_ports"] == []
    with_doors = plan(module(tmp_path, doors=(443, 80)))
    assert with_doors["doors"] == [443, 80]
    assert with_doors["landlock"]["connect_ports"] == [53, 80, 443, 3128]


def test_grants_are_real_paths_and_links_to_them_are_kept(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    made = plan(ToolSpec("t", "command", argv=("cat",), read=(link,), write=(real,)))
    assert {"source": str(real), "target": str(real), "exec": False, "own": True, "write": True} in made[
        "binds"
    ]
    assert made["links"][str(link)] == str(real)
    assert made["below_tmp"] == ([str(real)] if str(real).startswith("/tmp/") else [])


@pytest.mark.promise("isolate:state-is-hidden")
def test_state_inside_a_grant_is_covered_and_without_mounts_nothing_runs(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    spec = module(tmp_path, masks=(state, Path("/elsewhere")))
    assert plan(spec)["masks"] == [str(state)]
    with pytest.raises(SandboxUnavailable, match="only the tier `namespaces` can hide"):
        plan(spec, tier="landlock")


@pytest.mark.parametrize("folder", ["/tmp", "/", "/etc", "/home"])
def test_a_module_in_everybodys_folder_shows_its_file_alone(folder: str) -> None:
    made = plan(module(Path(folder)))
    own = [bind["target"] for bind in made["binds"] if bind.get("own")]
    assert own == [str(Path(folder) / "t.py")]


def test_limits_become_what_the_kernel_is_told(tmp_path: Path) -> None:
    limits = Limits(cpu_s=1.5, memory=64 << 20, processes=20, tmp=8 << 20, output=1 << 20)
    made = plan(module(tmp_path, limits=limits))
    assert made["limits"] == {
        "cpu_s": 2,
        "processes": 20,
        "file_bytes": (8 << 20) + (1 << 20),
        "descriptors": 1024,
        "data_bytes": 2 * (64 << 20) + 20 * (8 << 20),
        "processes_enforced": True,
    }
    assert (made["tmp_bytes"], made["tmp_inodes"]) == (8 << 20, 1024)
    assert plan(module(tmp_path, limits=limits, reuse=True))["limits"]["cpu_s"] is None


def test_below_abi_6_every_call_has_a_network_of_its_own(tmp_path: Path) -> None:
    assert plan(module(tmp_path))["net_per_call"] is False
    assert plan(module(tmp_path), replace(MACHINE, landlock_abi=5))["net_per_call"] is True


def test_without_namespaces_only_the_entries_of_etc_that_a_view_would_show_are_read(tmp_path: Path) -> None:
    made = plan(module(tmp_path), tier="landlock")
    assert made["landlock"]["read"] == [
        "/etc/ssl/certs",
        "/etc/pki/x.pem",
        "/etc/passwd",
        "/etc/group",
        "/etc/nsswitch.conf",
        "/etc/host.conf",
    ]
    assert made["landlock"]["list"] == []
    assert made["namespaces"] is False and made["unsandboxed"] is False


@pytest.mark.requirement("R005")
@pytest.mark.promise("isolate:env-exact")
def test_the_environment_before_the_call_is_path_and_what_the_spec_says(tmp_path: Path) -> None:
    made = plan(module(tmp_path, env={"LANG": "C.UTF-8"}))
    assert set(made["early_env"]) == {"PATH", "LANG"}
