"""Granted tools as a model reads them: TypeScript declarations or Python stubs, made from their JSON
Schemas.

Nothing of a schema is believed to be safe text: names become identifiers or string literals, descriptions
lose what could end a comment or a string, and both are cut. What a schema says beyond shape (formats,
ranges) is left out: the host checks it anyway.
"""

from __future__ import annotations

import json
import keyword
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from fumehood.sandbox._model import ToolSignature

MAX_DEPTH = 6
MAX_ENUM = 20
MAX_TEXT = 300
_IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*\Z")


def declarations(tools: Mapping[str, ToolSignature], lang: str, *, fetch: bool = False) -> str:
    """What to put before a model that writes scripts in `lang` ("js": TypeScript, "python": stubs)."""
    return typescript(tools, fetch=fetch) if lang == "js" else python_stubs(tools, fetch=fetch)


def typescript(tools: Mapping[str, ToolSignature], *, fetch: bool = False) -> str:
    """TypeScript declarations; every tool is asynchronous. Raises nothing for a strange schema: that part
    is `unknown`.
    """
    out = []
    for tool in sorted(tools.values(), key=lambda t: t.name):
        lines = _doc_lines(tool.description)
        if lines:
            out.append(
                "/** " + " ".join(lines) + " */"
                if len(lines) == 1
                else "/**\n" + "".join(f" * {x}\n" for x in lines) + " */"
            )
        result = _ts(tool.output_schema, 0) if tool.output_schema is not None else "any"
        parameter = _ts(tool.input_schema, 0) if tool.input_schema else "Record<string, unknown>"
        optional = "" if _required(tool.input_schema) else "?"
        name = plain_name(tool.name)
        out.append(f"declare function {name}(args{optional}: {parameter}): Promise<{result}>;")
        if name != tool.name:
            out[-1] += f" // also tools[{json.dumps(tool.name)}]"
    if fetch:
        out.append("/** HTTP through the host; only to hosts that it allows. */")
        out.append(
            "declare function fetch(url: string, options?: "
            "{ method?: string; headers?: Record<string, string>; "
            "body?: string }): Promise<{ status: number; ok: boolean; url: string; text(): Promise<string>; "
            "json(): Promise<any>; headers: { get(name: string): string | null } }>;"
        )
    return "\n".join(out)


def python_stubs(tools: Mapping[str, ToolSignature], *, fetch: bool = False) -> str:
    """Python stubs; every tool is a plain function with keyword arguments, and `await` before a call is
    allowed.
    """
    out = []
    for tool in sorted(tools.values(), key=lambda t: t.name):
        properties, required = _properties(tool.input_schema)
        plain = all(_is_python_name(name) for name in properties)
        parts = [
            f"{k}: {_py(v, 0)}" + ("" if k in required else " = ...")
            for k, v in _ordered(properties, required)
        ]
        if not plain:
            signature = "arguments: dict"
        else:
            signature = "*, " + ", ".join(parts) if parts else ""
        result = _py(tool.output_schema, 0) if tool.output_schema is not None else "Any"
        lines = _doc_lines(tool.description)
        body = '    """' + "\n    ".join(lines) + '"""\n    ...' if lines else "    ..."
        out.append(f"def {plain_name(tool.name)}({signature}) -> {result}:\n{body}")
    if fetch:
        out.append(
            "def fetch(url: str, *, method: str = 'GET', headers: dict | None = None, "
            "body: str | None = None, json: Any = None):\n"
            '    """HTTP through the host; the reply has .status .ok .headers .text .body .json()."""'
            "\n    ..."
        )
    return "\n\n".join(out)


def plain_name(name: str) -> str:
    """A tool's name as an identifier, the same in both languages and in the engines."""
    return name.replace("-", "_").replace(".", "_")


def _ts(schema: object, depth: int) -> str:
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return "unknown"
    if "const" in schema:
        return _literal(schema["const"])
    if isinstance(schema.get("enum"), Sequence) and 0 < len(schema["enum"]) <= MAX_ENUM:
        return " | ".join(_literal(v) for v in schema["enum"])
    for union in ("anyOf", "oneOf"):
        if isinstance(schema.get(union), Sequence):
            return " | ".join(dict.fromkeys(_ts(s, depth + 1) for s in schema[union])) or "unknown"
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(dict.fromkeys(_ts({**schema, "type": k}, depth + 1) for k in kind)) or "unknown"
    if kind == "object" or "properties" in schema:
        return _ts_object(schema, depth)
    if kind == "array":
        item = _ts(schema.get("items"), depth + 1)
        return f"Array<{item}>"
    simple = {
        "string": "string",
        "number": "number",
        "integer": "number",
        "boolean": "boolean",
        "null": "null",
    }
    return simple.get(kind, "unknown") if isinstance(kind, str) else "unknown"


def _ts_object(schema: Mapping[str, object], depth: int) -> str:
    properties, required = _properties(schema)
    if not properties:
        extra = schema.get("additionalProperties")
        return (
            f"Record<string, {_ts(extra, depth + 1)}>"
            if isinstance(extra, Mapping)
            else "Record<string, unknown>"
        )
    parts = []
    for name, inner in properties.items():
        key = name if _IDENTIFIER.match(name) else json.dumps(name)
        parts.append(f"{key}{'' if name in required else '?'}: {_ts(inner, depth + 1)}")
    return "{ " + "; ".join(parts) + " }"


def _py(schema: object, depth: int) -> str:
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return "Any"
    values = schema.get("enum") if "enum" in schema else [schema["const"]] if "const" in schema else None
    if isinstance(values, Sequence) and 0 < len(values) <= MAX_ENUM:
        if all(isinstance(v, str | int | bool | None) for v in values):
            return f"Literal[{', '.join(repr(v) for v in values)}]"
        return "Any"
    for union in ("anyOf", "oneOf"):
        if isinstance(schema.get(union), Sequence):
            return " | ".join(dict.fromkeys(_py(s, depth + 1) for s in schema[union])) or "Any"
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(dict.fromkeys(_py({**schema, "type": k}, depth + 1) for k in kind)) or "Any"
    if kind == "array":
        return f"list[{_py(schema.get('items'), depth + 1)}]"
    if kind == "object" or "properties" in schema:
        properties, required = _properties(schema)
        if not properties or depth > 0:
            return "dict[str, Any]"
        # a text, since Python has no other type for it on one line, where a comment would hide what follows
        inner = ", ".join(f"{k!r}: {_py(v, depth + 1)}" for k, v in _ordered(properties, required))
        return repr("{" + inner + "}")
    simple = {"string": "str", "number": "float", "integer": "int", "boolean": "bool", "null": "None"}
    return simple.get(kind, "Any") if isinstance(kind, str) else "Any"


def _properties(schema: object) -> tuple[dict[str, object], frozenset[str]]:
    if not isinstance(schema, Mapping) or not isinstance(schema.get("properties"), Mapping):
        return {}, frozenset()
    required = schema.get("required")
    names = required if isinstance(required, Sequence) and not isinstance(required, str) else ()
    return {str(k): v for k, v in schema["properties"].items()}, frozenset(str(n) for n in names)


def _ordered(properties: Mapping[str, object], required: frozenset[str]) -> list[tuple[str, object]]:
    return sorted(properties.items(), key=lambda item: item[0] not in required)


def _required(schema: object) -> bool:
    properties, required = _properties(schema)
    return any(name in required for name in properties)


def _is_python_name(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)


def _literal(value: object) -> str:
    try:
        return json.dumps(value) if not isinstance(value, dict | list) else "unknown"
    except (TypeError, ValueError):
        return "unknown"


def _doc_lines(text: str) -> list[str]:
    safe = "".join(
        c if c == "\n" or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") else " "
        for c in text[:MAX_TEXT]
    )
    safe = safe.replace("*/", "* /").replace('"""', "'''").replace("\\", "/")
    lines = [line.strip() for line in safe.splitlines() if line.strip()][:6]
    while lines and lines[-1].endswith('"'):  # beside the quotes that end the text, once all else is cut
        lines[-1:] = [left] if (left := lines[-1].rstrip('" ')) else []
    return lines


_SPOKEN = {"js": "JavaScript", "python": "Python"}
RUN_SCRIPT_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "language": {
            "type": "string",
            "enum": ["js", "python"],
            "description": "What the script is written in.",
        },
        "code": {
            "type": "string",
            "description": (
                "The script. Its last expression is its value. "
                "Granted tools are functions; in js, await them."
            ),
        },
        "input": {"description": "A JSON value that the script finds as the variable `input`."},
    },
    "required": ["language", "code"],
    "additionalProperties": False,
}


def run_script_tool(
    tools: Mapping[str, ToolSignature], *, languages: Sequence[str] = ("js",), fetch: bool = False
) -> dict[str, Any]:
    """The agent tool `run_script` as name, description and input_schema, with the granted tools declared
    in the description.
    """
    properties = dict(RUN_SCRIPT_SCHEMA["properties"])  # type: ignore[call-overload]
    properties["language"] = {**properties["language"], "enum": list(languages)}
    parts = [
        "Run a short script in a sandbox without files, network or clock, and get the value of its last "
        "expression. Use it to call several tools, filter or add up their results, and return only what "
        "matters."
    ]
    for lang in languages:
        shown = declarations(tools, lang, fetch=fetch)
        if shown:
            parts.append(f"Available in {_SPOKEN[lang]}:\n{shown}")
    schema = {**RUN_SCRIPT_SCHEMA, "properties": properties}
    return {"name": "run_script", "description": "\n\n".join(parts), "input_schema": schema}
