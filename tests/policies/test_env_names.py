"""Names by which a loader or interpreter would be steered cannot be set; others can."""

from __future__ import annotations

from pathlib import Path

import pytest

from fumehood.policies import ConfigError, parse_config
from fumehood.policies._env_names import RESERVED, reserved_reason

HEAD = 'version = 1\n[tools.t]\ncommand = ["true"]\n'


@pytest.mark.promise("policies:reserved-env-refused")
@pytest.mark.parametrize(
    "name",
    [
        *(entry.replace("*", "_X" if entry.startswith(("LUA", "COR_")) else "X") for entry in RESERVED),
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "LD_AUDIT",
        "LUA_INIT",
        "GIT_CONFIG_GLOBAL",
        "GIT_CONFIG_KEY_0",
    ],
)
def test_a_reserved_name_is_refused_with_what_would_obey_it(name: str) -> None:
    why = reserved_reason(name)
    assert why is not None
    with pytest.raises(ConfigError) as caught:
        parse_config(f'{HEAD}env = {{ {name} = "payload" }}\n', base=Path("/"), source="f.toml")
    assert str(caught.value) == (
        f"f.toml: tools.t.env.{name} = (not shown): this name is reserved: {why}; "
        "a tool that needs it sets it for the programs it starts"
    )


@pytest.mark.promise("policies:reserved-env-refused")
def test_a_secret_does_not_lift_the_reservation() -> None:
    text = f'{HEAD}env = {{ LD_PRELOAD = {{ secret = "S" }} }}\n[secrets]\nS = {{ env = "S" }}\n'
    with pytest.raises(ConfigError, match="this name is reserved"):
        parse_config(text, base=Path("/"), source="f.toml")


@pytest.mark.parametrize(
    "name",
    [
        "PATH",
        "HOME",
        "TMPDIR",
        "LANG",
        "LC_ALL",
        "TZ",
        "PYTHONUNBUFFERED",
        "PYTHONUTF8",
        "NODE_ENV",
        "GIT_AUTHOR_NAME",
    ]
    + [
        "GIT_TERMINAL_PROMPT",
        "SSL_CERT_FILE",
        "EDITOR",
        "PAGER",
        "ld_preload",
        "MY_LD_PRELOAD",
        "ENVIRONMENT",
        "_",
    ],
)
def test_an_ordinary_name_may_be_set(name: str) -> None:
    config = parse_config(f'{HEAD}env = {{ {name} = "x" }}\n', base=Path("/"), source="f.toml")
    assert config.tools["t"].env == {name: "x"}


def test_the_reasons_complete_their_sentence() -> None:
    for why in RESERVED.values():
        assert not why.endswith(".") and ";" not in why
