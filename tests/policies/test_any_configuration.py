"""Whatever stands in a file, reading it gives a Config or a ConfigError, and never repeats a secret."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fumehood.policies import Config, ConfigError, parse_config
from fumehood.policies.config import HostConfig, ToolConfig

BASE = Path(__file__).parent / "data" / "broken"
MARKER = "correct-horse-battery-staple"

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
KNOWN_TEXT = st.sampled_from(
    [
        "api.example.com",
        "GET https://*.x.example/v1 +private",
        "a:1",
        "8 MiB",
        "1.5 GiB",
        "tools/hello.py",
        "~",
        "/",
    ]
    + [
        "../..",
        "json",
        "always",
        "PROM_TOKEN",
        "10/s",
        "schemas/ok.json",
        "a\0b",
        "{PROM_TOKEN}",
        "::1",
        "",
        "true",
    ]
)
SCALAR = st.one_of(
    TEXT,
    KNOWN_TEXT,
    st.booleans(),
    st.integers(),
    st.floats(),
    st.just(datetime.date(2026, 1, 1)),
    st.just(datetime.datetime(2026, 1, 1, 12, 0, 0)),
    st.just(datetime.time(12, 0, 0)),
)
KEY = st.one_of(
    TEXT,
    st.sampled_from(
        [*ToolConfig.model_fields, *HostConfig.model_fields, "host", "secrets", "tools", "secret"]
    ),
    st.sampled_from(
        ["host", "port", "scheme", "methods", "paths", "rate", "header", "value", "$ref", "type"]
    ),
)
VALUE = st.recursive(
    SCALAR,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEY, inner, max_size=3)),
    max_leaves=8,
)
NAMES = st.one_of(st.sampled_from(["t", "u", "bad name"]), TEXT)
TOOL = st.dictionaries(st.one_of(st.sampled_from(list(ToolConfig.model_fields)), KEY), VALUE, max_size=6)
FILE = st.fixed_dictionaries(
    {"version": st.just(1)},
    optional={
        "host": st.dictionaries(
            st.one_of(st.sampled_from(list(HostConfig.model_fields)), KEY), VALUE, max_size=4
        ),
        "secrets": st.dictionaries(st.one_of(st.just("PROM_TOKEN"), TEXT), VALUE, max_size=3),
        "tools": st.dictionaries(NAMES, st.one_of(TOOL, VALUE), max_size=3),
        "colour": VALUE,
    },
)


def toml(value: object) -> str:
    """`value` as a TOML value; tables are inline, and the whole file is one table without its braces."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            escaped = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
            return escaped
        case float():
            return "nan" if math.isnan(value) else repr(value)
        case int():
            return str(value)
        case datetime.date() | datetime.time():
            return value.isoformat()
        case list():
            return "[" + ", ".join(map(toml, value)) + "]"
        case Mapping():
            return "{" + ", ".join(f"{toml(str(k))} = {toml(v)}" for k, v in value.items()) + "}"
    raise AssertionError(value)


def document(table: Mapping[str, object]) -> str:
    return "".join(f"{toml(key)} = {toml(value)}\n" for key, value in table.items())


def read(text: str) -> Config | ConfigError:
    try:
        return parse_config(text, base=BASE, source="f.toml")
    except ConfigError as error:
        return error


@pytest.mark.promise("policies:only-configuration-errors")
@given(FILE)
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_tables_are_a_configuration_or_a_configuration_error(table: dict[str, object]) -> None:
    found = read(document(table))
    if isinstance(found, ConfigError):
        assert found.problems and all(problem.startswith("f.toml") for problem in found.problems)
        assert all(problem.isprintable() for problem in found.problems)


@pytest.mark.promise("policies:only-configuration-errors")
@given(st.one_of(st.text(), st.text().map(lambda text: "version = 1\n" + text)))
@settings(max_examples=400, deadline=None)
def test_any_text_is_a_configuration_or_a_configuration_error(text: str) -> None:
    read(text)


def hidden_places(value: object) -> list[Mapping[str, object]]:
    """Files in which `value` stands where a secret may stand."""
    tool = {"command": ["true"]}
    secret = {"header": "Authorization", "value": value}
    return [
        {"secrets": {"S": value}},
        {"secrets": {"S": {"value": value}}},
        {"secrets": {"S": {"env": value}}},
        {"secrets": {"S": {"credential": value}}},
        {"secrets": value},
        {"tools": {"t": {**tool, "env": {"A": value}}}},
        {"tools": {"t": {**tool, "env": {"LD_PRELOAD": value}}}},
        {"tools": {"t": {**tool, "env": {"A": {"secret": value}}}}},
        {"tools": {"t": {**tool, "env": {"A": {"value": value}}}}},
        {"tools": {"t": {**tool, "egress": [{"host": "x.example", "secret": secret}]}}},
        {"tools": {"t": {**tool, "egress": [{"host": "", "secret": secret}]}}},
        {"tools": {"t": {**tool, "api_key": value}}},
        {"tools": {"t": {**tool, "password": value}}},
    ]


WRAPPED = st.recursive(
    st.sampled_from(
        [MARKER, f"Bearer {MARKER}", f"{{S}} {MARKER} {{", f"{MARKER}\0", f"'{MARKER}'", f'"{MARKER}\\']
    ),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=2), st.dictionaries(TEXT, inner, min_size=1)
    ),
    max_leaves=3,
)


@pytest.mark.promise("policies:secret-value-not-echoed")
@given(WRAPPED, st.integers(min_value=0, max_value=len(hidden_places("")) - 1))
@settings(max_examples=300, deadline=None)
def test_what_stands_where_a_secret_may_stand_is_never_repeated(value: object, place: int) -> None:
    found = read(document({"version": 1, **hidden_places(value)[place]}))
    if isinstance(found, ConfigError):
        assert MARKER not in str(found) and MARKER not in repr(found)
