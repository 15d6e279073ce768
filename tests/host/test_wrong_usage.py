"""A command line that cannot be meant: the option, its value and what to write instead, exit code 2."""

from __future__ import annotations

import pytest

from tests.host.cli import Cli, write

TOOL = '[tools.t]\ncommand = ["true"]\nresult = "text"\n'


@pytest.mark.parametrize("words", [[], ["policy"], ["log"], ["store"], ["guard"]])
def test_without_a_command_there_is_the_help_and_no_error_line(cli: Cli, words: list[str]) -> None:
    done = cli(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"Usage: {' '.join(['fumehood', *words])} [OPTIONS] COMMAND")
    assert "\nCommands:\n" in done.err and "..." not in done.err.partition("Commands:")[2]
    told = cli(*words, "--format", "json")
    assert (told.code, told.json["error"]["type"]) == (2, "UsageError")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["log", "show", "--kind", "EGRES_DENIED"],
            "error: --kind EGRES_DENIED: no row has this kind\nHint: did you mean EGRESS_DENIED?",
        ),
        (
            ["log", "show", "--limit", "9" * 20],
            "error: Invalid value for '--limit': 99999999999999999999 is not in",
        ),
        (["log", "show", "--kind", "x"], "error: --kind X: no row has this kind\nHint: kinds are APPROVAL_"),
        (
            ["policy", "suggest", "--tool", "u"],
            "error: --tool 'u': no such tool is configured, nor was one seen\nHint: there are: run, ",
        ),
        (
            ["policy", "import", "--from", "srt", "."],
            "error: .: cannot be read: Is a directory\nHint: FILE is a policy of srt",
        ),
        (
            ["policy", "import", "--from", "srt", "latin"],
            "error: latin, line 1, column 1: byte 0xff is not UTF-8",
        ),
        (
            ["policy", "test", "--batch", "none"],
            "error: none: cannot be read: No such file or directory\nHint: --batch FILE holds one ",
        ),
        (
            ["policy", "test", "--method", "G T", "https://a.example/"],
            "error: --method 'G T' is no HTTP method; write one such as GET",
        ),
        (
            ["guard", "check", "none"],
            "error: none: cannot be read: No such file or directory\nHint: FILE holds",
        ),
        (
            ["log", "export", "--output", "no/where"],
            "error: --output no/where: No such file or directory\nHint: name a file in a folder that you can",
        ),
        (["call", "t", "@/dev/zero"], "error: /dev/zero: is larger than 64 MiB\nHint: @FILE names a file"),
        (["call", "t", "@a\0b"], "error: a\\x00b: cannot be read: embedded null byte\nHint: @FILE"),
        (["eval", "/dev/zero"], "error: /dev/zero: is larger than 16 MiB\nHint: FILE, or - for stdin"),
        (
            ["policy", "import", "--from", "srt", "/dev/zero"],
            "error: /dev/zero: is larger than 16 MiB\nHint: FILE is a policy of srt",
        ),
        (["--config", "/dev/zero", "tools"], "error: /dev/zero: is larger than 4194304 bytes"),
        (["guard", "check", "/dev/zero"], "error: /dev/zero: more than "),
        (
            ["store", "sweep", "--older-than", "nan", "--reclaim"],
            "error: Invalid value for '--older-than': 'nan' is no number of days, such as 7 or 0.5.",
        ),
        (["store", "sweep", "--reasoning-older-than", "-1"], "error: Invalid value for '--reasoning-older"),
        (["eval", "latin"], "error: latin, line 1, column 1: byte 0xff is not UTF-8"),
        (
            ["eval", "--memory", "64", "s"],
            "error: --memory '64': must be from 1 MiB to 4 TiB; without a unit ",
        ),
        (["eval", "--time", "nan", "s"], "error: Invalid value for '--time': 'nan' is no number of seconds "),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_wrong_is_named_with_the_remedy(cli: Cli, words: list[str], told: str) -> None:
    write(cli.folder, TOOL)
    (cli.folder / "latin").write_bytes(b"\xff")
    (cli.folder / "s").write_text("1")
    assert cli("call", "t").code == 0  # there is a log
    done = cli(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(told)


def test_a_url_without_a_scheme_is_answered_with_the_one_that_was_meant(cli: Cli) -> None:
    told = cli("policy", "test", "--allow", "a.example", "a.example/v1", width=60).out.splitlines()
    assert told[-1] == "    hint: write https://a.example/v1"
    assert all(line.startswith("    ") for line in told[1:]), "what wraps stays where it began"
    told = cli("policy", "test", "a.example:8443").out.splitlines()
    assert told[-2:] == [
        "    hint: write https://a.example:8443/, or 'CONNECT a.example:8443' for a",
        "    tunnel",
    ]
    done = cli("policy", "test", "--allow", "a.example", "https://a.example/", "--format", "json")
    assert (done.code, done.json["hint"]) == (0, None)


def test_what_audit_mode_saw_is_one_object_in_json_and_toml_as_text(cli: Cli) -> None:
    write(
        cli.folder,
        '[tools.far]\nmodule = "tools/far.py"\nmode = "audit"\negress = ["a.example"]\n',
        far="def run(input, ctx):\n    return ctx.fetch('http://10.0.0.1/').status\n",
    )
    assert cli("call", "far").code == 1
    entry = cli("policy", "suggest", "--format", "json").json["entries"]
    assert [(one["tool"], one["rule"], one["count"]) for one in entry] == [("far", "10.0.0.1:80 +private", 1)]
    assert '# "10.0.0.1:80 +private",' in cli("policy", "suggest", "--tool", "far").out
    assert cli("policy", "suggest", "--tool", "run", "--format", "json").json == {"entries": []}


def test_connect_is_taken_in_one_word_or_two(cli: Cli) -> None:
    for words in (["CONNECT a.example:443"], ["CONNECT", "a.example:443"]):
        done = cli("policy", "test", "--allow", "a.example", *words)
        assert (done.code, done.out.splitlines()[0]) == (0, "allow  CONNECT a.example:443")
    done = cli("policy", "test", "https://a.example/", "https://b.example/")
    assert (done.code, done.err.splitlines()[0]) == (2, "error: give one URL, not 2")


def test_a_row_of_run_says_what_ran(cli: Cli) -> None:
    write(cli.folder, TOOL)
    assert cli("run", "--", "true").code == 0
    assert cli("call", "t", '{"a": 1}').code == 0
    rows = cli("log", "show", "--kind", "call-started", width=200).out.splitlines()[1:]
    assert [row.split()[-2:] for row in rows] == [["run", "true"], ["t", '{"a":1}']]


@pytest.mark.parametrize("name", ["s.js", "s.py"])
def test_a_script_that_was_not_granted_what_it_asks_for_says_how_to(cli: Cli, name: str) -> None:
    write(cli.folder, TOOL.replace("tools.t", "tools.make-it"))
    for code, hint in (
        ("make_it(1)", "make-it is configured, and the script was not granted it: --tool make-it"),
        ("fetch('https://a.example/')", "a script has fetch when it was granted a host: --allow RULE"),
    ):
        (cli.folder / name).write_text(code)
        done = cli("eval", name, width=200)
        assert (done.code, done.err.splitlines()[1]) == (1, f"Hint: {hint}"), done.err
        assert cli("eval", name, "--format", "json").json["error"]["hint"] == hint
    (cli.folder / name).write_text("other(1)")
    assert "Hint" not in cli("eval", name).err
