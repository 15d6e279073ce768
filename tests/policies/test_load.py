"""Where a configuration is looked for, and what is said when it cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from fumehood.policies import ConfigError, load_config, parse_config


@pytest.fixture
def three_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with fumehood.toml, and two more files named a.toml and b.toml."""
    for name, queue in (("fumehood", 1), ("a", 2), ("b", 3)):
        (tmp_path / f"{name}.toml").write_text(
            f"version = 1\nhost = {{ queue_limit = {queue} }}\n", encoding="utf-8"
        )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FUMEHOOD_CONFIG", raising=False)
    return tmp_path


def test_the_named_file_wins_over_the_variable_and_the_variable_over_the_current_folder(
    three_places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_config().host.queue_limit == 1
    monkeypatch.setenv("FUMEHOOD_CONFIG", "a.toml")
    assert load_config().host.queue_limit == 2
    assert load_config("b.toml").host.queue_limit == 3
    monkeypatch.setenv("FUMEHOOD_CONFIG", "")
    assert load_config().host.queue_limit == 1


def test_a_file_that_is_not_there_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FUMEHOOD_CONFIG", raising=False)
    said = []
    for path, variable in ((None, ""), (None, "x.toml"), ("y.toml", "")):
        monkeypatch.setenv("FUMEHOOD_CONFIG", variable)
        with pytest.raises(ConfigError) as caught:
            load_config(path)
        said.append(str(caught.value))
    assert said == [
        f"fumehood.toml: there is no such file (looked for in {tmp_path}; $FUMEHOOD_CONFIG is not set)\n"
        "Hint: name the file with --config FILE or $FUMEHOOD_CONFIG",
        "x.toml: there is no such file (named by $FUMEHOOD_CONFIG)\n"
        "Hint: name the file with --config FILE or $FUMEHOOD_CONFIG",
        "y.toml: there is no such file (given with --config, or by the caller)\n"
        "Hint: write it, or name another; without one it is $FUMEHOOD_CONFIG, else ./fumehood.toml",
    ]


def test_a_folder_in_place_of_a_file_says_which_file_may_be_meant(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: is a folder, not a file (given with --config, or by the caller)\n"
        f"Hint: write {tmp_path}/fumehood.toml"
    )


def test_a_name_that_no_file_can_have_is_an_error_like_any_other() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config("a\0b")
    with pytest.raises(ConfigError, match="File name too long"):
        load_config("a" * 300)


def test_a_file_far_too_large_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_bytes(b"#" * (4 * 1024 * 1024 + 1))
    with pytest.raises(ConfigError, match="is larger than 4194304 bytes"):
        load_config(tmp_path / "f.toml")


def test_text_that_no_file_can_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="half of a surrogate pair"):
        parse_config('version = 1\ncolour = "\ud800"\n', base=tmp_path, source="f.toml")


def test_a_control_character_in_a_value_is_shown_escaped(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config('version = 1\ncolour = "\\u001b[31mred\\u202e"\n', base=tmp_path, source="f.toml")
    assert str(caught.value).startswith('f.toml: colour = "\\u001b[31mred\\u202e": unknown key')
