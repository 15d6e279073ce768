"""Input schemas are judged when the file is loaded, and applied without ever fetching anything."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fumehood.policies.schemas import check_schema, first_fault, read_schema, validator

SCHEMA: dict[str, object] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$defs": {"at": {"type": "integer", "minimum": 0}},
    "type": "object",
    "properties": {"at": {"$ref": "#/$defs/at"}, "$ref": {"type": "string"}},
    "required": ["at"],
    "additionalProperties": False,
}


class Remote(http.server.BaseHTTPRequestHandler):
    """Serves a schema that accepts everything, and counts who asks."""

    asked: list[str] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def remote() -> Iterator[str]:
    Remote.asked = []
    with http.server.HTTPServer(("127.0.0.1", 0), Remote) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_schema_that_refers_to_itself_is_accepted_and_applied() -> None:
    checker = validator(check_schema(SCHEMA))
    assert first_fault(checker, {"at": 1}) is None
    assert first_fault(checker, {"at": 1, "$ref": "x"}) is None  # a property may be called $ref
    assert first_fault(checker, {"at": -1}) == "$.at: -1 is less than the minimum of 0"
    assert first_fault(checker, {}) == "$: 'at' is a required property"
    assert first_fault(checker, [1]) == "$: [1] is not of type 'object'"


@pytest.mark.promise("policies:schema-never-fetches")
@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
def test_a_schema_that_points_to_a_server_is_refused_and_the_server_is_never_asked(
    remote: str, keyword: str
) -> None:
    schema: dict[str, object] = {"properties": {"at": {"items": [{keyword: f"{remote}/at.json"}][0]}}}
    with pytest.raises(ValueError, match="nothing outside it is ever fetched"):
        check_schema(schema)
    assert Remote.asked == []


@pytest.mark.promise("policies:schema-never-fetches")
def test_a_validator_of_an_unchecked_schema_fetches_nothing_either(remote: str) -> None:
    from referencing.exceptions import Unresolvable

    checker = validator({"$ref": f"{remote}/at.json"})
    with pytest.raises(Exception) as caught:
        first_fault(checker, 1)
    assert isinstance(caught.value, Unresolvable)
    assert Remote.asked == []


def test_a_reference_inside_data_is_no_reference() -> None:
    schema: dict[str, object] = {"enum": [{"$ref": "https://example.com/"}], "default": {"$ref": "x"}}
    assert check_schema(schema) is schema


def test_references_resolve_against_the_schemas_own_id() -> None:
    check_schema({"$id": "https://example.com/s", "$defs": {"a": {}}, "$ref": "s#/$defs/a"})
    check_schema({"$defs": {"a": {"$anchor": "here"}}, "$ref": "#here"})


def test_an_input_nested_without_end_is_a_fault_and_no_crash() -> None:
    checker = validator(check_schema({"$ref": "#"}))
    assert first_fault(checker, 1) == "$: the input is nested too deeply for the schema"
    deep: object = 1
    for _ in range(5000):
        deep = [deep]
    tree = validator(check_schema({"items": {"$ref": "#"}}))
    assert first_fault(tree, deep) == "$: the input is nested too deeply for the schema"


def test_a_schema_nested_without_end_is_refused(tmp_path: Path) -> None:
    deep: dict[str, object] = {}
    for _ in range(5000):
        deep = {"not": deep}
    with pytest.raises(ValueError, match="nested too deeply"):
        check_schema(deep)
    (tmp_path / "s.json").write_text('{"not":' * 100_000, encoding="utf-8")
    with pytest.raises(ValueError, match="nested too deeply"):
        read_schema(tmp_path / "s.json")


def test_a_long_value_does_not_make_a_long_message() -> None:
    checker = validator(check_schema({"type": "integer"}))
    said = first_fault(checker, "x" * 100_000)
    assert said is not None and len(said) < 250


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff{}", "is not UTF-8 at byte 0"),
        (b"true", "must hold a JSON object"),
        (b"", "is not JSON: Expecting value (line 1, column 1)"),
        (b'{"minimum": Infinity}', "is not JSON: Infinity is no JSON value"),
        (b'{"minimum": 1' + b"0" * 5000 + b"}", "is not JSON: "),
        (b" " * (1024 * 1024 + 1), "is larger than 1048576 bytes"),
    ],
)
def test_a_file_that_is_no_schema_says_why(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "s.json"
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        read_schema(path)
    assert str(caught.value).startswith(f"{path} {said}")


def test_the_files_own_schema_is_valid_2020_12_and_takes_what_the_loader_takes(tmp_path: Path) -> None:
    import tomllib

    from fumehood.policies import config_schema
    from tests.policies.test_config import WHOLE_SURFACE

    schema = config_schema()
    checker = validator(check_schema(schema))
    assert first_fault(checker, tomllib.loads(WHOLE_SURFACE)) is None
    assert json.loads(json.dumps(schema)) == schema
    for text in (
        "",
        "version = 2",
        "version = 1\ncolour = 1",
        "version = 1\n[tools.t]\ncolour = 1",
        "version = 1\n[tools.t]\ncommand = 'x'",
        "version = 1\n[tools.t]",
        "version = 1\n[tools.t]\ncommand = ['x']\nmodule = 'x.py'",
        "version = 1\n[tools.t]\ncommand = ['x']\negress = [3]",
        "version = 1\n[tools.t]\ncommand = ['x']\negress = [{ hosts = 'x' }]",
        "version = 1\n[secrets]\nS = 'x'",
        "version = 1\n[secrets]\nS = { env = 'x', file = 'y' }",
    ):
        assert first_fault(checker, tomllib.loads(text)) is not None, text


def test_the_table_form_of_a_rule_has_the_keys_that_the_reader_knows() -> None:
    from fumehood.policies._egress_table import EgressTable
    from fumehood.policies.rules import _TABLE_KEYS

    assert set(EgressTable.model_fields) == set(_TABLE_KEYS)
