"""What `fumehood run` gives a command of the file system, and what it hands back of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from fumehood import _grants
from fumehood.policies.errors import ConfigError
from fumehood.policies.load import load_config
from tests.host.cli import COMMAND, Cli, write
from tests.host.test_clear_errors import WITHOUT
from tests.users import give_to_user, run_as_user, user_folder

CAT = '[tools.cat]\ncommand = ["cat"]\n'


@pytest.mark.promise("host:files-handed-back")
def test_files_of_its_tmp_come_back_when_it_ended_well(cli: Cli) -> None:
    script = "mkdir out; echo one > out/a.txt; echo two > b.log; ln -s /etc/passwd out/c.txt"
    words = ("run", "--collect", "out/*.txt", "--collect", "none.txt", "--", "sh", "-c")
    done = cli(*words, script, width=200)
    assert (done.code, done.out) == (0, "")
    taken, refused, absent = sorted(done.err.splitlines())
    assert taken.startswith("file not taken: none.txt: ")
    assert refused.startswith("file not taken: out/c.txt: ")
    assert absent.startswith("file: out/a.txt: 4 bytes of text/plain: sha256:")
    assert cli("store", "get", absent.split()[-1]).out == "one\n"
    told = cli(*words, script, "--format", "json")
    told = cli("run", "--format", "json", "--collect", "out/*.txt", "--", "sh", "-c", script).json
    assert [part["name"] for part in told["parts"]] == ["out/a.txt"]
    assert cli(*words, f"{script}; exit 3").err == ""


@pytest.mark.promise("host:state-is-hidden")
@pytest.mark.parametrize("option", ["--read", "--write"])
@pytest.mark.parametrize("path", ["state", "state/events.sqlite3", "link", "token"])
def test_neither_the_state_folder_nor_what_is_in_it_is_granted(cli: Cli, option: str, path: str) -> None:
    (cli.folder / "token").write_text("s3cret")
    write(cli.folder, CAT + '[secrets]\nT = { file = "token" }\n')
    assert cli("call", "cat", "1").code == 0
    (cli.folder / "link").symlink_to("state/events.sqlite3")
    done = cli("run", option, path, "--", "cat", str(cli.folder / path))
    assert (done.code, done.out) == (2, "")
    assert "no sandbox is shown" in done.err
    assert cli("run", option, "tools", "--", "true").code == 0


@pytest.mark.promise("host:run-keeps-the-configuration")
def test_a_command_with_the_folder_cannot_change_the_configuration_in_it(cli: Cli) -> None:
    file = write(cli.folder, CAT)
    before = file.read_text()
    for change in ("echo x >> {}", "rm {}", "mv {} moved", "ln -sf /dev/null {}", "chmod 777 {}", "touch {}"):
        done = cli(
            "run", "--format", "json", "--write", ".", "--", "sh", "-c", change.format("fumehood.toml")
        )
        assert done.json["outcome"] == "tool_error", done
        done = cli(
            "run", "--format", "json", "--write", ".", "--", "sh", "-c", change.format("tools/x; touch y")
        )
        assert (cli.folder / "y").exists()  # the control: the folder is the command's
        (cli.folder / "y").unlink()
    assert (file.read_text(), file.stat().st_mode & 0o777) == (before, 0o644)
    done = cli("run", "--write", "fumehood.toml", "--", "true")
    assert (done.code, done.err.splitlines()[0]) == (
        2,
        f"error: {file}: would let the program change the configuration {file}",
    )


def test_a_configuration_that_a_command_leaves_is_pointed_out(cli: Cli) -> None:
    done = cli("run", "--write", ".", "--", "sh", "-c", "echo version = 1 > fumehood.toml", width=200)
    assert (done.code, done.err) == (
        0,
        "fumehood: the command left fumehood.toml here, and the next fumehood in this folder obeys it; look "
        "at it first\n",
    )
    assert cli("run", "--write", ".", "--", "true").err == ""


def test_where_no_mount_can_hold_it_a_folder_with_the_configuration_is_not_granted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    file = write(tmp_path, CAT)
    (tmp_path / "out").mkdir()
    config = load_config(file)
    assert _grants.kept_as_they_are(config, [tmp_path], by_mounts=True) == (file,)
    assert _grants.kept_as_they_are(config, [tmp_path / "out"], by_mounts=False) == ()
    with pytest.raises(ConfigError, match="would let the program change the configuration"):
        _grants.kept_as_they_are(config, [tmp_path], by_mounts=False)


def test_on_the_tier_landlock_it_is_said_that_a_program_has_no_network() -> None:
    with user_folder() as folder:
        file = write(folder, 'require_tier = "landlock"\n')
        give_to_user(folder)
        words = [*WITHOUT, "userns", *COMMAND, "--config", str(file), "run"]
        done = run_as_user([*words, "--allow", "a.example", "--", "echo", "hi"], cwd=folder)
        assert (done.returncode, done.stdout) == (0, "hi\n")
        assert " ".join(done.stderr.split()) == (
            "fumehood: in the tier landlock a program has no network, whatever --allow says"
        )
        assert run_as_user([*words, "--", "true"], cwd=folder).stderr == ""
