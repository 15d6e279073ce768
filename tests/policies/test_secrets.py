"""Secrets come from variables, files and systemd credentials, and never come out by accident."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path

import pytest

from fumehood.policies import ConfigError, Secret, SecretSource, read_secret, resolve_secret

VALUE = "correct-horse-battery-staple"


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b"abc", "abc"),
        (b"abc\n", "abc"),
        (b"abc\n\n", "abc\n"),  # exactly one newline goes
        (b"abc\r\n", "abc\r"),  # a carriage return is the secret's own
        (b" abc ", " abc "),
        ("größe\n".encode(), "größe"),
        (b"-----BEGIN KEY-----\nx\n-----END KEY-----\n", "-----BEGIN KEY-----\nx\n-----END KEY-----"),
    ],
)
def test_a_file_loses_one_newline_at_its_end_and_nothing_else(
    tmp_path: Path, content: bytes, value: str
) -> None:
    (tmp_path / "s").write_bytes(content)
    assert resolve_secret(SecretSource(file=tmp_path / "s"), "S") == value


def test_a_variable_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_VARIABLE", " abc\n")
    assert resolve_secret(SecretSource(env="MY_VARIABLE"), "S") == " abc\n"


def test_a_credential_is_a_file_of_the_credentials_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prom").write_text("abc\n", encoding="utf-8")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert resolve_secret(SecretSource(credential="prom"), "S") == "abc"


def test_a_rotated_secret_is_used_by_the_next_read(tmp_path: Path) -> None:
    source = SecretSource(file=tmp_path / "s")
    (tmp_path / "s").write_text("one", encoding="utf-8")
    assert resolve_secret(source, "S") == "one"
    (tmp_path / "s").write_text("two", encoding="utf-8")
    assert resolve_secret(source, "S") == "two"


def test_a_missing_secret_says_its_name_and_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    monkeypatch.setenv("EMPTY", "")
    (tmp_path / "nul").write_bytes(b"a\0b")
    (tmp_path / "large").write_bytes(b"x" * (64 * 1024 + 1))
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    (tmp_path / "blank").write_bytes(b"\n")
    said = []
    for source in (
        SecretSource(env="NOT_SET"),
        SecretSource(env="EMPTY"),
        SecretSource(credential="prom"),
        SecretSource(file=tmp_path / "absent"),
        SecretSource(file=tmp_path),
        SecretSource(file=tmp_path / "nul"),
        SecretSource(file=tmp_path / "large"),
        SecretSource(file=tmp_path / "latin"),
        SecretSource(file=tmp_path / "blank"),
        SecretSource(),
    ):
        with pytest.raises(ConfigError) as caught:
            read_secret(source, "TOKEN")
        said.append(str(caught.value).replace(str(tmp_path), "{tmp}"))
    assert said == [
        "secret TOKEN: the variable NOT_SET is not set\n"
        "Hint: set NOT_SET in the environment that starts fumehood",
        "secret TOKEN: the variable EMPTY is empty",
        "secret TOKEN: no credentials were passed ($CREDENTIALS_DIRECTORY is not set)\n"
        "Hint: start fumehood as a systemd unit with LoadCredential=prom:PATH",
        "secret TOKEN: {tmp}/absent cannot be read: No such file or directory",
        "secret TOKEN: {tmp} cannot be read: Is a directory",
        "secret TOKEN: {tmp}/nul holds a NUL character, which no environment can",
        "secret TOKEN: {tmp}/large is larger than 65536 bytes",
        "secret TOKEN: {tmp}/latin is not UTF-8",
        "secret TOKEN: {tmp}/blank is empty",
        "secret TOKEN: has none of env, file and credential",
    ]


@pytest.mark.promise("policies:secret-value-not-echoed")
def test_an_error_about_a_secret_holds_no_byte_of_it_even_in_its_traceback(tmp_path: Path) -> None:
    for tail in (b"\xff", b"\0"):
        (tmp_path / "s").write_bytes(VALUE.encode() + tail)
        with pytest.raises(ConfigError) as caught:
            read_secret(SecretSource(file=tmp_path / "s"), "S")
        text = "".join(traceback.format_exception(caught.value))
        assert VALUE not in text and "staple" not in text


@pytest.mark.promise("policies:secret-value-not-echoed")
def test_a_secret_shows_itself_only_when_asked() -> None:
    secret = Secret("S", VALUE)
    for shown in (
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret:>40}",
        str.format("{}", secret),
        repr([secret]),
        repr({1: secret}),
    ):
        assert VALUE not in shown and "Secret('S', not shown)" in shown
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    with pytest.raises(TypeError):
        vars(secret)
    assert secret.reveal() == VALUE


@pytest.mark.promise("policies:no-secret-in-the-file")
@pytest.mark.parametrize(
    "credential",
    [
        "ghp_" + "a1B2" * 9,
        "github_pat_" + "a1B2" * 9,
        "glpat-" + "a1B2" * 5,
        "sk-ant-" + "a1B2" * 6,
        "sk-proj-" + "a1B2" * 6,
        "xoxb-123456789012-abc",
        "AKIA" + "ABCD" * 4,
        "AIza" + "a1B2c" * 7,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
        "-----BEGIN PRIVATE KEY-----",
    ],
)
@pytest.mark.parametrize(
    "place",
    [
        "[tools.t]\ncommand = ['true']\nenv = { A = '%s' }",
        "[tools.t]\ncommand = ['curl', '-u', 'me:%s']",
        "[tools.t]\ncommand = 'curl %s'",
        "[tools.t]\ncommand = ['true']\ndescription = 'use %s'",
        "[tools.t]\ncommand = ['true']\ninput_schema = { default = '%s' }",
        "[tools.t]\nmodule = '%s.py'",
        "[tools.t]\ncommand = ['true']\negress = ['api.example.com/%s']",
        "[tools.t]\ncommand = ['true']\negress = ['https://%s@api.example.com']",
        "[host]\nstate = '~/%s'",
        "[secrets]\nS = '%s'",
        "[secrets]\nS = { file = '%s' }",
        "colour = '%s'",
    ],
)
def test_a_credential_is_recognised_by_its_shape_wherever_it_stands_and_not_repeated(
    place: str, credential: str
) -> None:
    from fumehood.policies import parse_config

    with pytest.raises(ConfigError) as caught:
        parse_config("version = 1\n" + place % credential + "\n", base=Path("/nowhere"), source="f.toml")
    assert credential not in str(caught.value)
    assert "looks like a credential" in str(caught.value) or "a secret never stands in this file" in str(
        caught.value
    )
