"""From a file to a `Config`, or to one ConfigError that lists everything wrong with the file.

Guarantees: a Config that comes back is safe to act on: no unknown key, nothing that this version does not
enforce, no reference to what is not there. An error names file, key path, value and, where known, the
corrected value, and never a secret. Whatever the text is, nothing but ConfigError is raised.
The steps, each needing the one before: bytes, text, TOML, version, then models and cross-checks together (so
that all their faults come out at once), then paths against each other, then `private` folded into the rules.
"""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from fumehood.policies import _checks
from fumehood.policies._problems import (
    KeyPath,
    Problem,
    in_file_order,
    nearest,
    printable,
    sentence,
    type_text,
    value_at,
)
from fumehood.policies.config import Config, HostConfig, SecretRef, SecretSource, ToolConfig
from fumehood.policies.errors import ConfigError

FILE_NAME = "fumehood.toml"
VARIABLE = "FUMEHOOD_CONFIG"
MAX_FILE_BYTES = 4 * 1024 * 1024
"""A configuration is written by hand; four megabytes of it are something else."""

_OTHER_WORDS = {
    "timeout": "timeout_s",
    "timeout_ms": "timeout_s, in seconds",
    "module_path": "module",
    "allow": "egress",
    "network": "egress",
    "hosts": "egress",
    "environment": "env",
    "cmd": "command",
    "args": "command, with the arguments after the program",
    "mem": "memory",
    "max_events": "events",
}
"""What people used to other programs write, and the word here."""


def load_config(path: str | Path | None = None) -> Config:
    """The configuration in `path`, else in $FUMEHOOD_CONFIG, else in ./fumehood.toml.

    Raises: ConfigError when there is no such file or anything in it is wrong.
    """
    file, origin = _find(path)
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"{file}: there is no such file ({origin})", hint=_find_hint(path)) from None
    except IsADirectoryError:
        raise ConfigError(
            f"{file}: is a folder, not a file ({origin})", hint=f"write {file / FILE_NAME}"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{file}: cannot be read: {reason} ({origin})") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{file}: is larger than {MAX_FILE_BYTES} bytes")
    text = _decode(data, str(file))
    return _parse(
        text, base=_absolute(file).parent, source=str(file), file=_absolute(file), allow_unsupported=False
    )


def _absolute(file: Path) -> Path:
    return Path(os.path.abspath(file))  # noqa: PTH100 - lexical: a symbolic link's neighbours are the link's, not the target's


def _find(path: str | Path | None) -> tuple[Path, str]:
    if path is not None:
        return Path(path), "given with --config, or by the caller"
    if named := os.environ.get(VARIABLE):
        return Path(named), f"named by ${VARIABLE}"
    return Path(FILE_NAME), f"looked for in {Path.cwd()}; ${VARIABLE} is not set"


def _find_hint(path: str | Path | None) -> str | None:
    if path is not None:
        return f"write it, or name another; without one it is ${VARIABLE}, else ./{FILE_NAME}"
    return f"name the file with --config FILE or ${VARIABLE}"


def _decode(data: bytes, source: str) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ConfigError(
            f"{source}, line 1, column 1: is UTF-16, and TOML is UTF-8", hint="save the file as UTF-8"
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise ConfigError(
            f"{source}, line {line}, column {column}: byte 0x{data[error.start]:02x} is not UTF-8",
            hint="save the file as UTF-8",
        ) from None


def parse_config(text: str, *, base: Path, source: str, allow_unsupported: bool = False) -> Config:
    """The configuration in `text`.

    base: the folder that relative paths start from. source: the file's name for messages. allow_unsupported:
    do not refuse what no part enforces yet; for tests of the models, never for running tools.
    Raises: ConfigError; `problems` holds one sentence per fault.
    """
    return _parse(text, base=base, source=source, file=None, allow_unsupported=allow_unsupported)


def _parse(text: str, *, base: Path, source: str, file: Path | None, allow_unsupported: bool) -> Config:
    data = _read_toml(text, source)
    _check_version(data, source)
    config: Config | None = None
    problems: list[Problem] = []
    try:
        config = Config.model_validate(data, context={"base": base})
    except ValidationError as error:
        problems += _model_problems(error, data)
    except RecursionError:
        raise ConfigError(f"{source}: is nested too deeply") from None
    problems += _checks.cross_checks(data, base, allow_unsupported=allow_unsupported)
    if config is not None:
        problems += _checks.path_checks(config, file)
    if problems or config is None:
        lines = tuple(dict.fromkeys(sentence(source, data, p) for p in in_file_order(data, problems)))
        raise ConfigError("\n".join(lines), problems=lines)
    config = _finished(config, source)
    config._source, config._file = source, file
    config._digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
    return config


def _read_toml(text: str, source: str) -> dict[str, Any]:
    if text.startswith("\ufeff"):
        raise ConfigError(
            f"{source}, line 1, column 1: begins with a byte order mark",
            hint="save the file as UTF-8 without one",
        )
    if not text.strip():
        raise ConfigError(f"{source}: is empty", hint='the smallest file is the line "version = 1"')
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ConfigError(f"{source}: holds half of a surrogate pair, which is no text") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_toml_message(str(error), text, source), hint=_toml_hint(str(error))) from None
    except RecursionError:
        raise ConfigError(f"{source}: is nested too deeply") from None
    except ValueError as error:
        # An integer of thousands of digits: the parser lets Python's own refusal through.
        raise ConfigError(f"{source}: holds a number of thousands of digits") from error


def _toml_message(error: str, text: str, source: str) -> str:
    what = error
    line, column = text.count("\n") + 1, len(text) - text.rfind("\n")
    if found := re.fullmatch(r"(.*) \(at line ([0-9]+), column ([0-9]+)\)", error, re.DOTALL):
        what, line, column = found[1], int(found[2]), int(found[3])
    elif found := re.fullmatch(r"(.*) \(at end of document\)", error, re.DOTALL):
        what = f"{found[1]}, at the end of the file"
    return f"{source}, line {line}, column {column}: not TOML: {printable(what)}"


def _toml_hint(error: str) -> str | None:
    if error.startswith("Invalid value"):
        return 'values are "strings in quotes", numbers, true, false, [arrays] and { tables }'
    if error.startswith("Invalid initial character for a key part"):
        return 'a { table } stays on one line, and a key is a bare word or "in quotes"'
    if "twice" in error or error.startswith("Cannot overwrite"):
        return "a name stands twice; rename or delete one"
    return None


def _check_version(data: Mapping[str, Any], source: str) -> None:
    """The version decides how everything else is read, so it is judged first and alone."""
    version = data.get("version")
    if "version" not in data:
        raise ConfigError(f"{source}: version: is missing; write version = 1 as the first line")
    if version != 1 or isinstance(version, bool | float):
        raise ConfigError(
            sentence(source, data, Problem(("version",), "this program reads version 1; write version = 1"))
        )


def _model_problems(error: ValidationError, data: Mapping[str, Any]) -> Iterator[Problem]:
    for fault in error.errors(include_url=False):
        path: KeyPath = tuple(step for step in fault["loc"] if step != "[key]")
        value, kind = value_at(data, path), fault["type"]
        if path[:1] == ("secrets",) and len(path) in (2, 3) and kind in ("model_type", "extra_forbidden"):
            close = nearest(str(path[-1]), SecretSource.model_fields, cutoff=0.7)
            if kind == "extra_forbidden" and close:
                yield Problem(path, f"unknown key; write {close}")
                continue
            yield Problem(
                path[:2],
                "a secret never stands in this file; write "
                f'{path[1]} = {{ env = "{path[1]}" }} and set that variable',
            )
        elif path == ("host", "require_tier") and value == "none":
            yield Problem(path, 'write "any" together with dangerously_allow_unsandboxed = true')
        elif path == ("tools",):
            yield Problem(path, "must be one table for each tool; write [tools.NAME]")
        elif kind == "extra_forbidden":
            yield Problem(path, _unknown_key(path, value))
        else:
            yield Problem(path, type_text(kind, value, fault.get("ctx", {})))


def _model_at(path: KeyPath) -> type[BaseModel] | None:
    match path:
        case ():
            return Config
        case ("host",):
            return HostConfig
        case ("secrets", _):
            return SecretSource
        case ("tools", _):
            return ToolConfig
        case ("tools", _, "env", _):
            return SecretRef
    return None


def _unknown_key(path: KeyPath, value: object) -> str:
    key, model = str(path[-1]), _model_at(path[:-1])
    known = list(model.model_fields) if model is not None else []
    if key in _OTHER_WORDS and _OTHER_WORDS[key].partition(",")[0] in known:
        return f"unknown key; write {_OTHER_WORDS[key]}"
    if close := nearest(key, known, cutoff=0.7):
        return f"unknown key; write {close}"
    if model is not ToolConfig and key in ToolConfig.model_fields:
        return "unknown key here; it belongs in a table [tools.NAME]"
    if model is not HostConfig and key in HostConfig.model_fields:
        return "unknown key here; it belongs in the table [host]"
    if model is ToolConfig and isinstance(value, Mapping) and value.keys() & ToolConfig.model_fields.keys():
        return f"unknown key; a dot in a table's name begins another table, so write [tools.{path[1]}-{key}]"
    return f"unknown key; known are {', '.join(sorted(known))}"


def _finished(config: Config, source: str) -> Config:
    """The same configuration with `private` folded into the rules it names and every rule knowing its
    place."""
    tools = {}
    for name, tool in config.tools.items():
        egress = tuple(
            replace(
                rule,
                private=rule.private or any(_checks.covers_private(entry, rule) for entry in tool.private),
                where=f"{source}: tools.{name}.egress[{index}]",
            )
            for index, rule in enumerate(tool.egress)
        )
        deny = tuple(
            replace(rule, where=f"{source}: tools.{name}.deny[{index}]")
            for index, rule in enumerate(tool.deny)
        )
        tools[name] = tool.model_copy(update={"egress": egress, "deny": deny})
    host_deny = tuple(
        replace(rule, where=f"{source}: host.deny[{index}]") for index, rule in enumerate(config.host.deny)
    )
    host = config.host.model_copy(update={"deny": host_deny})
    return config.model_copy(update={"host": host, "tools": tools})


def config_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the file as it is written, as `fumehood policy schema` prints it.

    It is wider than the loader: whether a rule can be read, a file is there or a secret declared is not in
    it.
    """
    schema = _tidy(Config.model_json_schema(mode="validation"))
    assert isinstance(schema, dict)
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": FILE_NAME}
    return {**head, **schema}


def _tidy(node: object) -> object:
    """Without what only Python needs: generated titles, and null, which TOML cannot say."""
    if isinstance(node, list):
        return [_tidy(item) for item in node]
    if not isinstance(node, dict):
        return node
    options = node.get("anyOf")
    if isinstance(options, list) and {"type": "null"} in options:
        rest = [option for option in options if option != {"type": "null"}]
        node = {key: value for key, value in node.items() if key not in ("anyOf", "default")}
        node = {**(rest[0] if len(rest) == 1 else {"anyOf": rest}), **node}
    # A title that is no string is a key of the file called "title", which stays.
    return {k: _tidy(v) for k, v in node.items() if not (k == "title" and isinstance(v, str))}
