"""One file per way a configuration can be broken, and the whole message that it earns.

`data/broken/NAME.toml` is the configuration, `data/broken/NAME.txt` the message; "{base}" in it stands for
the folder. A new kind of fault is a new pair of files.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from fumehood.policies import ConfigError, load_config
from fumehood.policies._not_yet import NOT_YET

BROKEN = Path(__file__).parent / "data" / "broken"
CASES = sorted(path.stem for path in BROKEN.glob("*.toml"))


def message(case: str) -> str:
    """What loading the file says, with the folder taken out."""
    with pytest.raises(ConfigError) as caught:
        load_config(f"{case}.toml")
    assert caught.value.exit_code == 2
    return str(caught.value).replace(str(BROKEN), "{base}") + "\n"


@pytest.fixture(autouse=True)
def in_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BROKEN)
    monkeypatch.setenv("HOME", "/home/operator")


@pytest.mark.promise("policies:every-fault-named")
@pytest.mark.parametrize("case", CASES)
def test_a_broken_configuration_is_refused_with_file_key_value_and_remedy(case: str) -> None:
    assert message(case) == (BROKEN / f"{case}.txt").read_text(encoding="utf-8")


def test_every_message_has_its_configuration() -> None:
    assert sorted(path.stem for path in BROKEN.glob("*.txt")) == CASES


@pytest.mark.promise("policies:unknown-key-refused")
@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("unknown-")])
def test_an_unknown_key_never_passes(case: str) -> None:
    assert "unknown key" in message(case)


@pytest.mark.promise("policies:not-yet-refused")
def test_every_entry_that_nothing_enforces_yet_has_a_file_that_is_refused() -> None:
    refused = [message(case) for case in CASES if case.startswith("not-yet-")]
    assert all(text.count("\n") == 1 for text in refused), "each file has this one fault only"
    for entry, what in NOT_YET.items():
        assert any(f": not supported yet: {what}" in text for text in refused), entry
    assert len(refused) == len(NOT_YET)


@pytest.mark.promise("policies:secret-value-not-echoed")
@pytest.mark.parametrize("case", [c for c in CASES if c.startswith(("secret-", "credential-", "env-"))])
def test_a_message_never_repeats_a_secret_or_an_environment_value(case: str) -> None:
    text = message(case)
    for part in ("correct", "horse", "staple", "0123456789abcdef"):
        assert part not in text


def test_all_faults_of_a_file_come_out_at_once_and_in_its_order() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config("many-faults.toml")
    keys = [problem.split(": ")[1].partition(" = ")[0] for problem in caught.value.problems]
    assert keys == [
        "colour",
        "host.max_parallel",
        "tools.hello.module",
        "tools.hello.timeout_s",
        "tools.hello.egress[0]",
        "tools.hello.private[0]",
        "tools.hello.env.LD_PRELOAD",
        "tools.hello.env.TOKEN.secret",
        "tools.hello.retention",
        'tools."say hello"',
        'tools."say hello".memory',
    ]
    assert str(caught.value) == "\n".join(caught.value.problems)
