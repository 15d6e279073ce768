"""Input schemas of tools: JSON Schema 2020-12, checked when the file is loaded, applied in the parent
process.

Guarantees: a schema that loads is valid 2020-12, is an object, refers to nothing outside itself (jsonschema
would fetch such a reference over the network) and holds what JSON can hold. `validator()` has an empty
registry, so it cannot fetch either.
Not here: how long a `pattern` takes. Python's regular expressions can be slow on hostile input; a schema is
the operator's, its input the model's, so write patterns without nested repeats.
jsonschema is imported on first use; it takes longer to import than the rest of this package.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAX_SCHEMA_BYTES = 1024 * 1024
"""A schema goes into every request to a model; one of a megabyte is a mistake."""
_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_DATA_KEYS = frozenset({"const", "enum", "default", "examples"})  # their values are data, not schemas


def read_schema(path: Path) -> dict[str, object]:
    """The schema in the JSON file `path`.

    Raises: ValueError saying what is wrong with the file or the schema.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > MAX_SCHEMA_BYTES:
        raise ValueError(f"{path} is larger than {MAX_SCHEMA_BYTES} bytes")
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path} is not JSON: {error.msg} (line {error.lineno}, column {error.colno})"
        ) from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object")
    return check_schema(value)


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is no JSON value")


def check_schema(schema: dict[str, object]) -> dict[str, object]:
    """`schema` itself when it is a valid, self-contained JSON Schema 2020-12.

    Raises: ValueError saying where in the schema the fault is.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError, best_match

    declared = schema.get("$schema", DIALECT)
    if not isinstance(declared, str) or declared.rstrip("#") != DIALECT:
        raise ValueError(f'"$schema" is {declared!r}, and only "{DIALECT}" is read')
    try:
        json.dumps(schema, allow_nan=False)
        fault: SchemaError | None = best_match(
            Draft202012Validator(Draft202012Validator.META_SCHEMA).iter_errors(schema)
        )
        if fault is not None:
            where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in fault.path)
            what = _short(fault.message)
            if where.endswith(".type") and isinstance(fault.instance, str):
                what = f"{_short(fault.instance)!r} is no type; types are {', '.join(_TYPES)}"
            raise ValueError(f"not a valid JSON Schema 2020-12 at ${where}: {what}")
        for where, reference in _references(schema, "$"):
            _check_reference(schema, where, reference)
    except RecursionError:
        raise ValueError("the schema is nested too deeply") from None
    except TypeError as error:
        raise ValueError(f"the schema holds what JSON cannot: {error}") from None
    return schema


def _short(text: str) -> str:
    return text if len(text) <= 200 else text[:197] + "…"


def _references(node: object, where: str) -> Iterator[tuple[str, str]]:
    """Every `$ref` and `$dynamicRef` of the schema with its place.

    A property that is called $ref is no string.
    """
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key in ("$ref", "$dynamicRef") and isinstance(value, str):
                yield f"{where}.{key}", value
            elif key not in _DATA_KEYS:
                yield from _references(value, f"{where}.{key}")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _references(value, f"{where}[{index}]")


def _check_reference(schema: dict[str, object], where: str, reference: str) -> None:
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    resource = DRAFT202012.create_resource(schema)
    base = resource.id() or ""
    registry = Registry().with_resource(base, resource)
    try:
        registry.resolver(base).lookup(reference)
    except Unresolvable:
        raise ValueError(
            f"{where} points to {_short(reference)!r}, which is not in the schema; "
            "nothing outside it is ever fetched"
        ) from None


def validator(schema: Mapping[str, object]) -> Draft202012Validator:
    """A validator for inputs that never fetches anything. Build it once per tool; it is safe to share."""
    from jsonschema import Draft202012Validator
    from referencing import Registry

    return Draft202012Validator(schema, registry=Registry())


def first_fault(checker: Draft202012Validator, value: object) -> str | None:
    """What is wrong with an input, as "$.at: …", or None when it fits. The sentence may quote the input."""
    from jsonschema.exceptions import best_match

    try:
        fault = best_match(checker.iter_errors(value))
    except RecursionError:
        return "$: the input is nested too deeply for the schema"
    return None if fault is None else f"{fault.json_path}: {_short(fault.message)}"
