"""The kinds of value a configuration key may have: sizes, seconds, counts, paths, rules, commands, name
servers.

Guarantees: each kind accepts exactly one spelling family, turns it into the type the rest of the program
uses, and says in its error what to write instead. Nothing here opens a network connection or reads a secret.
Before editing: validators raise ValueError with a sentence that continues "file: key = value: …"; the place
and the value are put in front by `_problems.py`, which also decides whether the value may be shown.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import (
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    PlainValidator,
    ValidationInfo,
)
from pydantic_core import core_schema

from fumehood.policies._egress_table import EgressTable
from fumehood.policies._problems import nearest
from fumehood.policies.errors import RuleError
from fumehood.policies.rules import EgressRule, parse_rule
from fumehood.policies.schemas import check_schema, read_schema
from fumehood.policies.sizes import format_size, parse_size

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SizeBetween:
    """Marks an int as a size in bytes, written as "512 MiB" or as a whole number, within these bounds."""

    low: int
    high: int

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        written = core_schema.union_schema([core_schema.str_schema(), core_schema.int_schema(ge=0)])
        return core_schema.no_info_plain_validator_function(self.read, json_schema_input_schema=written)

    def read(self, value: object) -> int:
        """Bytes. Raises: ValueError with the corrected size where one is known."""
        if isinstance(value, str):
            size = parse_size(value)
        elif isinstance(value, int) and not isinstance(value, bool):
            size = value
        else:
            raise ValueError('must be a size such as "512 MiB", or a whole number of bytes')
        if not self.low <= size <= self.high:
            raise ValueError(f"must be from {format_size(self.low)} to {format_size(self.high)}")
        return size


Seconds = Annotated[float, Field(gt=0, le=86400, allow_inf_nan=False)]
"""Wall or processor time; a day is the most, since a longer call is a service and not a call."""


def base_of(info: ValidationInfo) -> Path:
    """The folder that relative paths start from: the file's own, or the current one without a file."""
    context: Mapping[str, Any] = info.context or {}
    return Path(context.get("base") or Path.cwd())


def _absolute(value: object, info: ValidationInfo) -> Path:
    if not isinstance(value, str | os.PathLike):
        raise ValueError("must be a path in quotes")
    text = os.fspath(value)
    if not isinstance(text, str) or not text.strip():
        raise ValueError("must name a path")
    if any(ord(char) < 32 or ord(char) == 127 for char in text):
        raise ValueError("holds a control character, which no path here may")
    if text == "~" or text.startswith("~/"):
        raise ValueError(f'"~" is not expanded; write "{os.path.expanduser(text)}"')  # noqa: PTH111 - does not raise
    # Lexical on purpose: the tool will use the path as it is written, so that is where it must appear.
    return Path(os.path.normpath(base_of(info) / text))


def _existing(value: object, info: ValidationInfo) -> Path:
    path = _absolute(value, info)
    try:
        if not path.exists():
            raise ValueError(f"{path} does not exist{_meant(path, str(value), base_of(info))}")
        if not path.is_dir() and not path.is_file():
            raise ValueError(
                f"{path} is neither a folder nor a regular file; sockets and devices are never passed in"
            )
    except OSError as error:
        raise ValueError(f"{path} cannot be looked at: {error.strerror}") from None
    if (fault := never_granted(path)) is not None:
        raise ValueError(fault)
    return path


def never_granted(path: Path) -> str | None:
    """Why this path is never passed into a sandbox, if it is not; what lies below it may still be."""
    real = path.resolve()
    for root in ("/proc", "/sys", "/dev"):
        if real == Path(root) or Path(root) in real.parents:
            return f"nothing below {root} is passed in; the sandbox brings its own"
    if real == Path("/"):
        return "names the whole file system; name the folders that the tool needs"
    if real in (Path("/tmp"), Path("/etc")):
        return f"the sandbox brings its own {real}; name what the tool needs below it"
    return None


def _meant(path: Path, written: str, base: Path) -> str:
    """The rest of the sentence for a path that is not there: the one most likely meant, when there is one."""
    if close := nearest(path.name, _names_in(path.parent), cutoff=0.8):
        return f'; write "{Path(written).parent / close}"'
    here = Path.cwd() / written
    if here != path and here.exists():
        return f'; paths are relative to the file ({base}), so write "{here}"'
    return "" if Path(written).is_absolute() else "; paths are relative to the file"


def _names_in(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []


def code_file(*suffixes: str) -> PlainValidator:
    """A validator for a file of code: it must exist and end in one of `suffixes`. Gives the real path."""
    wanted = " or ".join(suffixes)

    def read(value: object, info: ValidationInfo) -> Path:
        path = _existing(value, info)
        if not path.is_file():
            inside = [name for name in _names_in(path) if name.endswith(suffixes)]
            fix = f'; write "{Path(str(value)) / inside[0]}"' if len(inside) == 1 else ""
            raise ValueError(f"{path} is a folder, and a file ending in {wanted} is needed{fix}")
        if path.suffix not in suffixes:
            raise ValueError(f"must end in {wanted}")
        return path.resolve()

    return PlainValidator(read, json_schema_input_type=str)


def _certificates(value: object, info: ValidationInfo) -> Path:
    path = _existing(value, info)
    try:
        data = path.read_bytes() if path.is_file() else b""
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    if b"-----BEGIN CERTIFICATE-----" not in data:
        raise ValueError(f"{path} holds no certificate in PEM form (-----BEGIN CERTIFICATE-----)")
    return path.resolve()


AbsolutePath = Annotated[Path, PlainValidator(_absolute, json_schema_input_type=str)]
ExistingPath = Annotated[Path, PlainValidator(_existing, json_schema_input_type=str)]
CertificateFile = Annotated[Path, PlainValidator(_certificates, json_schema_input_type=str)]
ModuleFile = Annotated[Path, code_file(".py")]
ScriptFile = Annotated[Path, code_file(".js", ".py")]


def _as_tuple(value: object) -> object:
    """TOML arrays are lists; strict models want the tuple.

    Anything else is left to fail with its own error.
    """
    return tuple(value) if isinstance(value, list) else value


Many = BeforeValidator(_as_tuple)
"""Put on a tuple field, so that a TOML array is accepted and every element is judged on its own."""


def _rule(value: object, deny: bool) -> EgressRule:
    if isinstance(value, EgressRule):
        return value
    if not isinstance(value, str | Mapping):
        raise ValueError('must be a rule in quotes such as "api.example.com", or a table with a host')
    try:
        return parse_rule(value, deny=deny)
    except RuleError as error:
        # The message repeats the table, and with it a secret's template; the cause has the bare fault.
        cause = error.__cause__
        what, fixed = getattr(cause, "what", error.message), getattr(cause, "fixed", None)
        if isinstance(value, Mapping) and isinstance(value.get("secret"), Mapping):
            template = str(value["secret"].get("value"))
            what = what.replace(repr(template), "(not shown)").replace(template, "(not shown)")
        raise ValueError(f'{what}; write "{fixed}"' if fixed else what) from None


AllowRule = Annotated[
    EgressRule, PlainValidator(lambda value: _rule(value, False), json_schema_input_type=str | EgressTable)
]
DenyRule = Annotated[
    EgressRule, PlainValidator(lambda value: _rule(value, True), json_schema_input_type=str | EgressTable)
]


def _nameserver(value: object) -> tuple[str, int]:
    if not isinstance(value, str):
        raise ValueError('must be an address in quotes such as "10.0.0.2" or "127.0.0.1:5353"')
    host, port = value, "53"
    if bracketed := re.fullmatch(r"\[([^\]]*)\](?::(.*))?", value):
        host, port = bracketed[1], bracketed[2] or "53"
    elif value.count(":") == 1:
        host, port = value.split(":")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if value.count(":") > 1:
            raise ValueError('an IPv6 address with a port is written "[2001:db8::1]:53"') from None
        raise ValueError(
            "a name server is given by its address, since a name would need one to be found"
        ) from None
    if "%" in host:
        raise ValueError("an address with a zone is not read")
    if not re.fullmatch(r"[1-9][0-9]{0,4}", port, re.ASCII) or int(port) > 65535:
        raise ValueError(f"the port must be from 1 to 65535, not {port!r}")
    return str(address), int(port)


Nameserver = Annotated[tuple[str, int], PlainValidator(_nameserver, json_schema_input_type=str)]


def _command(value: object, info: ValidationInfo) -> tuple[str, ...]:
    if isinstance(value, str):
        raise ValueError(f"no shell reads it; write {_toml_list(value.split())}")
    if not isinstance(value, list | tuple) or not value or not all(isinstance(word, str) for word in value):
        raise ValueError('must be the program and its arguments as an array, like ["jq", ".items"]')
    if any("\0" in word for word in value):
        raise ValueError("holds a NUL character, which no argument can")
    if not value[0]:
        raise ValueError("names no program")
    program = value[0]
    if "/" in program:
        path = _absolute(program, info)
        if path.is_dir():
            raise ValueError(f"{path} is a folder; name the program in it")
        path = _existing(program, info)
        if not path.is_file() or not os.access(path, os.X_OK):
            raise ValueError(f'{path} is not an executable file; try "chmod +x {path}"')
        program = str(path)
    return (program, *value[1:])


def _toml_list(words: list[str]) -> str:
    return "[" + ", ".join('"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"' for word in words) + "]"


Command = Annotated[tuple[str, ...], PlainValidator(_command, json_schema_input_type=list[str])]


def collect_pattern(value: object) -> str:
    """A pattern of files below the call's /tmp. Raises ValueError that says what to write."""
    if not isinstance(value, str):
        raise ValueError('must be a pattern in quotes such as "out/*.png"')
    if not value or any(ord(char) < 32 or ord(char) == 127 for char in value):
        raise ValueError("must name files, without control characters")
    for base in ("/tmp/", "./"):
        if value.startswith(base) and len(value) > len(base):
            raise ValueError(f'starts from the call\'s own /tmp; write "{value[len(base) :]}"')
    parts = value.split("/")
    if value.startswith(("/", "~")) or ".." in parts:
        raise ValueError("names files below the call's own /tmp, from there and without ..")
    if "" in parts or "." in parts:
        raise ValueError("names one file or several, with single slashes between folders")
    if any("**" in part for part in parts):
        raise ValueError('"**" is not read; write one pattern for each depth, such as "*/*.png"')
    return value


CollectPattern = Annotated[str, PlainValidator(collect_pattern, json_schema_input_type=str)]


def _dotted_name(value: object) -> str:
    if not isinstance(value, str) or not all(part.isidentifier() for part in value.split(".")):
        raise ValueError('must be a module as an import statement names it, such as "numpy" or "os.path"')
    return value


DottedName = Annotated[str, PlainValidator(_dotted_name, json_schema_input_type=str)]


def _input_schema(value: object, info: ValidationInfo) -> dict[str, object]:
    if isinstance(value, str):
        path = _existing(value, info)
        return read_schema(path)
    if isinstance(value, Mapping):
        return check_schema(dict(value))
    raise ValueError("must be the path of a JSON Schema file, or the schema itself as a table")


InputSchema = Annotated[
    dict[str, object], PlainValidator(_input_schema, json_schema_input_type=str | dict[str, Any])
]
