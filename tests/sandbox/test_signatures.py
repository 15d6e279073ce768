"""Granted tools as a model reads them, and nothing of a schema that could break out of that."""

# ruff: noqa: E501 - scripts read better in one line
from __future__ import annotations

import ast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fumehood.sandbox import ToolSignature, declarations, python_stubs, run_script_tool, typescript

FETCH = ToolSignature(
    "fetch-metrics",
    "Latest CPU figures.\nOne row for each host.",
    {
        "type": "object",
        "properties": {
            "at": {"type": "string", "format": "date-time"},
            "hosts": {"type": "array", "items": {"type": "string"}},
            "kind": {"enum": ["cpu", "memory"]},
            "page": {"type": ["integer", "null"]},
            "odd key": {"anyOf": [{"type": "number"}, {"type": "object", "properties": {"x": {"const": 1}}}]},
        },
        "required": ["at", "kind"],
    },
    {"type": "object", "properties": {"rows": {"type": "array"}}},
)
PLAIN = ToolSignature("echo", "", {"type": "object", "properties": {"n": {"type": "integer"}}})


def test_typescript_is_one_declaration_a_tool() -> None:
    assert typescript({"b": FETCH, "a": PLAIN}) == (
        "declare function echo(args?: { n?: number }): Promise<any>;\n"
        "/**\n * Latest CPU figures.\n * One row for each host.\n */\n"
        "declare function fetch_metrics(args: { at: string; hosts?: Array<string>; "
        'kind: "cpu" | "memory"; page?: number | null; "odd key"?: number | { x?: 1 } }): '
        'Promise<{ rows?: Array<unknown> }>; // also tools["fetch-metrics"]'
    )


def test_python_stubs_are_functions_with_keywords() -> None:
    text = python_stubs({"a": PLAIN, "b": ToolSignature("search.docs", "Find.", {"type": "object", "properties": {
        "limit": {"type": "integer"}, "q": {"type": "string"}}, "required": ["q"]})})  # fmt: skip
    assert text == (
        "def echo(*, n: int = ...) -> Any:\n    ...\n\n"
        'def search_docs(*, q: str, limit: int = ...) -> Any:\n    """Find."""\n    ...'
    )
    ast.parse(text)


def test_fetch_is_declared_when_granted() -> None:
    assert "declare function fetch(" in declarations({}, "js", fetch=True)
    assert "def fetch(url: str" in declarations({}, "python", fetch=True)
    assert declarations({}, "js") == ""


def test_run_script_is_a_tool_with_its_tools_in_the_description() -> None:
    tool = run_script_tool({"echo": PLAIN}, languages=("js", "python"))
    assert tool["name"] == "run_script"
    assert "declare function echo(" in str(tool["description"]) and "def echo(" in str(tool["description"])
    schema = tool["input_schema"]
    assert isinstance(schema, dict) and schema["required"] == ["language", "code"]
    assert schema["properties"]["language"]["enum"] == ["js", "python"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)
words = st.sampled_from(
    ["type", "properties", "enum", "const", "items", "anyOf", "required", "x y", "class", '"""', "*/"]
)
schemas = st.dictionaries(words, st.sampled_from(["object", "array", "string"]) | json_values, max_size=5)


@pytest.mark.promise("sandbox:signatures-stay-text")
@given(description=st.text(max_size=80), schema=schemas, inner=schemas)
@example('"\U00018cd6', {}, {})  # a quote that is the last character once another is taken away
@example('1\n2\n3\n4\n5\n6"\n7', {}, {})
def test_any_schema_and_description_gives_python_that_parses(
    description: str, schema: dict[str, object], inner: dict[str, object]
) -> None:
    tool = ToolSignature(
        "a-tool", description, {"type": "object", "properties": {"p": inner}} | schema, inner
    )
    ast.parse(python_stubs({"a": tool}))
    text = typescript({"a": tool})
    assert text.count("*/") <= 1


@pytest.mark.promise("sandbox:signatures-stay-text")
def test_a_description_can_not_end_its_comment() -> None:
    evil = ToolSignature("a", 'x */ evil() /* """\nimport os\n\\"""" \u202e\x1b[2J', {})
    assert typescript({"a": evil}).count("*/") == 1
    assert ast.get_docstring(ast.parse(python_stubs({"a": evil})).body[0]) is not None  # type: ignore[arg-type]
    assert "\x1b" not in typescript({"a": evil}) and "\u202e" not in typescript({"a": evil})


@pytest.mark.promise("sandbox:signatures-stay-text")
def test_an_object_with_known_keys_inside_arguments_or_result_gives_python_that_parses() -> None:
    inner = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"enum": ["'", '"']}}}
    schema = {"type": "object", "properties": {"filter": inner, "n": {"type": "integer"}}, "required": ["n"]}
    stub = ast.parse(python_stubs({"t": ToolSignature("t", "", schema, inner)})).body[0]
    assert isinstance(stub, ast.FunctionDef)
    assert [a.arg for a in stub.args.kwonlyargs] == ["n", "filter"]
    assert isinstance(stub.returns, ast.Constant) and "'a': str" in str(stub.returns.value)
