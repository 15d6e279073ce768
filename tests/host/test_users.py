"""The helper that runs commands as an ordinary user does what its callers rely on."""

from __future__ import annotations

import os
import select
import subprocess
from pathlib import Path

import pytest

from tests import users
from tests.marks import only_root
from tests.users import PYTHON, run_as_user, user_folder


def test_an_ordinary_user_can_import_fumehood_from_the_checkout() -> None:
    done = run_as_user([PYTHON, "-c", "import fumehood, os; print(fumehood.__version__, os.geteuid() != 0)"])
    assert (done.stdout, done.stderr, done.returncode) == ("0.1.0 True\n", "", 0)


def test_it_has_no_group_no_capability_and_none_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUMEHOOD_LEAK", "1")
    code = (
        "import os\n"
        "print(os.getgroups() in ([], [os.getgid()]), 'FUMEHOOD_LEAK' in os.environ)\n"
        "print([l.split()[1] for l in open('/proc/self/status') if l.startswith(('CapEff', 'CapPrm'))])"
    )
    done = run_as_user([PYTHON, "-c", code])
    groups, capabilities = done.stdout.splitlines()
    assert capabilities == "['0000000000000000', '0000000000000000']"
    if os.geteuid() == 0:
        assert groups == "True False"


def test_a_folder_of_the_user_can_be_written_and_is_gone_afterwards() -> None:
    with user_folder() as folder:
        done = run_as_user(["sh", "-c", f"echo hello > {folder}/file && cat {folder}/file"])
        assert (done.stdout, done.returncode) == ("hello\n", 0)
    assert not folder.exists()


def test_a_command_that_does_not_end_is_killed_with_what_it_started() -> None:
    with user_folder() as folder:
        with pytest.raises(subprocess.TimeoutExpired):
            run_as_user(["sh", "-c", f"sleep 1000 & echo $! > {folder}/pid; wait"], timeout=1)
        pid = int((folder / "pid").read_text())
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        assert select.select([handle], [], [], 5)[0], "it still runs"
        os.close(handle)


@only_root("only root can be in a folder that others cannot enter")
def test_a_checkout_that_others_cannot_reach_is_shown_in_a_private_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # /tmp is open to all everywhere, and the checkout may lie below it.
    monkeypatch.setattr(users, "_may_read", lambda path, uid, gid: path in (Path("/"), Path("/tmp")))
    users._view_script.cache_clear()
    try:
        assert users.as_user(["true"])[0] == "unshare"
        done = run_as_user([PYTHON, "-c", "import fumehood, os; print(fumehood.__file__, os.geteuid() != 0)"])
    finally:
        users._view_script.cache_clear()
        users._readable.cache_clear()
    assert (done.stdout, done.stderr) == (f"{users.ROOT}/src/fumehood/__init__.py True\n", "")
