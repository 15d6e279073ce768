"""`fumehood explain`: plain words from the log's rows, and the same as data."""

from __future__ import annotations

import re

import pytest

from fumehood._cli import _advice
from fumehood.testing.dns import LyingDns
from fumehood.testing.http import HttpServer
from tests.host.cli import Cli, write

FETCH = """\
async def run(input, ctx):
    told = []
    for url in input["urls"]:
        try:
            told.append((await ctx.fetch(url)).status)
        except Exception as error:
            told.append(str(getattr(error, "reason", error)))
    return told
"""


def test_an_ok_call_with_a_pinned_connection(cli: Cli) -> None:
    with HttpServer() as server, LyingDns({"metrics.internal": ["127.0.0.1"]}) as dns:
        write(
            cli.folder,
            f"""\
            nameservers = ["127.0.0.1:{dns.address[1]}"]
            [tools.fetch]
            module = "tools/fetch.py"
            egress = ["http://metrics.internal:{server.port} +private"]
            """,
            fetch=FETCH,
        )
        words = (
            "call",
            "fetch",
            f'{{"urls": ["http://metrics.internal:{server.port}/x"]}}',
            "--principal",
            "alice",
        )
        assert cli(*words).code == 0
    told = cli("explain", "last", width=200).out.splitlines()
    assert told[0].startswith("call-")
    assert told[1].startswith("Tool fetch was called at 20") and told[1].endswith("Z for alice.")
    assert any(line.startswith("Outcome: ok after ") for line in told)
    assert f"- GET metrics.internal:{server.port} (fetch): allowed" in told
    place = "fumehood.toml: tools.fetch.egress[0]"
    assert f"    rule http://metrics.internal:{server.port} +private, {place}" in told
    assert "    the name resolved to 127.0.0.1" in told
    assert "    the connection was pinned to 127.0.0.1" in told
    assert any(
        re.fullmatch(r"    sent \d+ and received \d+ bytes in [\d.]+ ms, status 200", line) for line in told
    )
    assert any(line.startswith("Sandbox: tier namespaces; ") for line in told)
    assert any(line.startswith("Limits: timeout_s 30, cpu_s 30, memory 512 MiB, ") for line in told)
    assert "Its value counts as untrusted: tool:fetch metrics.internal." in told


@pytest.mark.promise("host:a-denial-has-a-reason")
def test_a_refusal_says_reason_near_miss_and_what_to_write(cli: Cli) -> None:
    write(
        cli.folder,
        '[tools.fetch]\nmodule = "tools/fetch.py"\negress = ["https://api.example.com"]\n',
        fetch=FETCH,
    )
    urls = '{"urls": ["https://api.example.org/", "https://api.example.com:8443/"]}'
    result = cli("call", "fetch", urls, "--format", "json").json
    told = cli("explain", result["call_id"], width=200).out.splitlines()
    assert "- GET api.example.org:443 (fetch): refused, not-listed" in told
    assert "    decided before DNS: the name was never resolved" in told
    assert any(line.startswith("    near miss: ") for line in told)
    assert "- GET api.example.com:8443 (fetch): refused, port" in told
    assert '- To allow it, add "api.example.org" to egress of [tools.fetch].' in told
    assert '- To allow the port, add "api.example.com:8443" to egress of [tools.fetch].' in told


def test_the_entry_for_a_name_that_was_only_looked_up_has_no_port() -> None:
    told = _advice.steps(
        "fetch",
        {"outcome": "ok"},
        [
            {"outcome": "deny", "reason": "not-listed", "host": "evil.test", "port": None},
            {"outcome": "deny", "reason": "not-listed", "host": "fd00::1", "port": 8443},
        ],
    )
    assert told == [
        'To allow it, add "evil.test" to egress of [tools.fetch].',
        'To allow it, add "[fd00::1]:8443" to egress of [tools.fetch].',
    ]


def test_no_entry_is_advised_for_what_only_tcp_could_reach() -> None:
    way = "a UDP datagram; only TCP leads out"
    row = {"outcome": "deny", "reason": "not-listed", "host": "8.8.8.8", "port": 53}
    told = _advice.steps("fetch", {"outcome": "ok"}, [{**row, "detail": way}, {**row, "detail": "looked up"}])
    assert told == [
        "Nothing to add for what was sent over UDP: only TCP leads out.",
        'To allow it, add "8.8.8.8:53" to egress of [tools.fetch].',
    ]


def test_a_limit_says_what_to_raise(cli: Cli) -> None:
    write(
        cli.folder,
        '[tools.slow]\nmodule = "tools/slow.py"\ntimeout_s = 0.5\n',
        slow="import time\ndef run(input, ctx):\n    time.sleep(9)\n",
    )
    assert cli("call", "slow").code == 5
    told = cli("explain", "last", width=200).out
    assert "Outcome: limit, reason timeout after " in told
    assert (
        "\nWall time `timeout_s` ran out. The host kills the tree; the tool's help is not needed.\n" in told
    )
    assert (
        "- Raise timeout_s in [tools.slow], or give the tool less to do in one call. It was timeout_s 0.5.\n"
        in told
    )


def test_a_call_of_run_is_told_about_options_and_not_about_tables(cli: Cli) -> None:
    assert cli("run", "--time", "0.5", "--", "sleep", "9").code == 5
    told = cli("explain", "last").out
    assert "It runs sleep.\n" in told
    assert "- Give it longer with --time SECONDS. It was timeout_s 0.5.\n" in told


def test_json_holds_the_same_facts(cli: Cli) -> None:
    write(cli.folder, '[tools.bad]\nmodule = "tools/bad.py"\n', bad="def run(input, ctx):\n    1 / 0\n")
    call_id = cli("call", "bad", '{"n": 1}', "--execution", "e", "--format", "json").json["call_id"]
    told = cli("explain", call_id, "--format", "json").json
    for name in ("started_at", "ended_at", "usage", "enforcement", "limits", "runs"):
        assert told.pop(name)
    told["error"].pop("trace")
    assert told == {
        "call_id": call_id,
        "execution_id": "e",
        "tool": "bad",
        "principal": None,
        "input": {"n": 1},
        "outcome": "tool_error",
        "reason": None,
        "sentence": "The tool itself failed; the sandbox and the host are in order.",
        "background": None,
        "error": {"type": "ZeroDivisionError", "message": "division by zero", "during": "run"},
        "tainted": None,
        "violations": [],
        "uncollected": [],
        "egress": [],
        "events": 0,
        "stored": [],
        "next": [],
    }


def test_a_refused_system_call_is_named_by_call_and_explain(cli: Cli) -> None:
    write(
        cli.folder,
        '[tools.mounts]\nmodule = "tools/mounts.py"\n',
        mounts="""\
        import ctypes
        def run(input, ctx):
            libc = ctypes.CDLL(None, use_errno=True)
            return libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)
        """,
    )
    layers = cli("call", "mounts", "--format", "json").json["enforcement"]["layers"]
    done = cli("call", "mounts", width=200)
    assert done.out == "-1\n"
    if layers["seccomp-notify"] == "FULL":
        assert done.err.startswith("system call refused: mount: ")
        assert "\n- system call refused: mount: " in cli("explain", "last", width=200).out


def test_an_unknown_call_is_answered_with_the_nearest(cli: Cli) -> None:
    nothing = cli("explain", "call-1")
    assert nothing.code == 1
    assert cli("run", "--", "true").code == 0
    known = cli("log", "show", "--kind", "CALL_STARTED", "--format", "json").json["rows"][0]["call_id"]
    wrong = cli("explain", known[:-1] + "x")
    assert (wrong.code, wrong.out) == (2, "")
    assert wrong.err.splitlines()[1] == f"Hint: nearest: {known}"


def test_a_call_that_has_not_ended_is_told_so(cli: Cli) -> None:
    from fumehood.agent import EventLog

    with EventLog(cli.folder / "fumehood" / "events.sqlite3") as log:
        log.record_sync("CALL_STARTED", {"tool": "t", "input": {}}, call_id="call-1", execution_id="e")
    assert (
        "It has not ended: it still runs, or the host was killed while it ran."
        in cli("explain", "call-1", width=200).out
    )


def test_it_reads_well_at_50_columns_and_shows_no_control_character(cli: Cli) -> None:
    write(
        cli.folder,
        '[tools.bad]\nmodule = "tools/bad.py"\n',
        bad="def run(input, ctx):\n    raise ValueError('\\x1b[2J\\u202e' + 'word ' * 40)\n",
    )
    cli("call", "bad")
    out = cli("explain", "last", width=50).out
    assert max(map(len, out.splitlines())) <= 50
    assert not any(char in out for char in "\x1b\u202e")
