"""The configuration as values: `Config` and what it holds, one model for each table of the file.

Guarantees: unknown keys are errors, values are of the declared kind and inside their bounds, nothing can be
assigned afterwards. Sizes are bytes, paths absolute, rules parsed, `private` folded into the rules it names.
Not here: what needs more than one key to judge (`_checks.py`) and what no part enforces yet (`_not_yet.py`);
build a Config with `fumehood.policies.load`, which applies all of it, not with `model_validate`.
Before editing: a key also needs its row in docs/configuration.md, which a test compares with these models.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    PrivateAttr,
)

from fumehood.policies import _env_names
from fumehood.policies._fields import (
    AbsolutePath,
    AllowRule,
    CertificateFile,
    CollectPattern,
    Command,
    DenyRule,
    DottedName,
    ExistingPath,
    InputSchema,
    Many,
    ModuleFile,
    Nameserver,
    ScriptFile,
    Seconds,
    SizeBetween,
)
from fumehood.policies.errors import ConfigError

KiB, MiB, GiB = 1024, 1024**2, 1024**3
Kind = Literal["module", "command", "mcp", "script"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def default_state() -> Path:
    """`$XDG_STATE_HOME/fumehood`, or `~/.local/state/fumehood` when that is unset or relative (XDG base
    directories).

    Raises: ConfigError when there is no home folder either, as in a service without one.
    """
    named = Path(os.environ.get("XDG_STATE_HOME", ""))
    if named.is_absolute():
        return named / "fumehood"
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home() raises what no caller expects
    if not home.is_absolute():
        raise ConfigError(
            "host.state: is missing, and this user has no home folder", hint="write state = PATH"
        )
    return home / ".local" / "state" / "fumehood"


class HostConfig(_Table):
    """The table [host]: what holds for every tool."""

    state: AbsolutePath = Field(
        default_factory=default_state, description="Folder of event log and content store."
    )
    require_tier: Literal["namespaces", "landlock", "any"] = Field(
        default="namespaces", description='Weakest sandbox that calls may run in; "any" lets every tier run.'
    )
    dangerously_allow_unsandboxed: bool = Field(
        default=False,
        description='Together with require_tier = "any": run even where no sandbox can be built.',
    )
    max_parallel: int = Field(default=32, ge=1, le=4096, description="Calls at once; more wait.")
    queue_limit: int = Field(
        default=1024, ge=0, le=1_000_000, description="Calls that may wait; more are refused as busy."
    )
    nameservers: Annotated[tuple[Nameserver, ...], Many] = Field(
        default=(),
        description="The broker's name servers by address, with a port where it is not 53.",
    )
    trust: CertificateFile | None = Field(
        default=None, description="Extra CA certificates (PEM) for the broker's own TLS."
    )
    deny: Annotated[tuple[DenyRule, ...], Many] = Field(
        default=(), description="Egress rules that no tool may override."
    )


def _variable(value: object) -> str:
    if not isinstance(value, str) or not _env_names.NAME.fullmatch(value):
        raise ValueError(
            "must be the NAME of an environment variable; the secret itself never stands in this file"
        )
    return value


def _credential(value: object) -> str:
    ok = isinstance(value, str) and 0 < len(value) <= 255 and value not in (".", "..") and value.isprintable()
    if not ok or "/" in str(value):
        raise ValueError("must be the name of a systemd credential, without a slash")
    return str(value)


def _exactly_one(*keys: str) -> ConfigDict:
    """What `_checks` enforces, said in the JSON Schema too, for editors that read it."""
    return ConfigDict(json_schema_extra={"oneOf": [{"required": [key]} for key in keys]})


class SecretSource(_Table):
    """Where one secret comes from.

    Exactly one of the three is set; the secret itself is never in the file.
    """

    model_config = _exactly_one("env", "file", "credential")
    env: Annotated[str, PlainValidator(_variable, json_schema_input_type=str)] | None = Field(
        default=None, description="Name of a variable in fumehood's own environment."
    )
    file: AbsolutePath | None = Field(
        default=None, description="File that holds the secret and nothing else."
    )
    credential: Annotated[str, PlainValidator(_credential, json_schema_input_type=str)] | None = Field(
        default=None, description="Name of a systemd credential ($CREDENTIALS_DIRECTORY)."
    )


class SecretRef(_Table):
    """The value of an `env` entry that is a secret: `{ secret = "NAME" }`."""

    secret: str = Field(description="Name of an entry of [secrets].")


def _env_name(name: str) -> str:
    if not _env_names.NAME.fullmatch(name):
        raise ValueError("must be letters, digits and underscores, and not begin with a digit")
    why = _env_names.reserved_reason(name)
    if why is not None:
        raise ValueError(
            f"this name is reserved: {why}; a tool that needs it sets it for the programs it starts"
        )
    return name


def _env_value(value: object) -> str | SecretRef:
    if isinstance(value, SecretRef):
        return value
    if isinstance(value, dict):
        if set(value) == {"secret"} and isinstance(value["secret"], str):
            return SecretRef(secret=value["secret"])
        raise ValueError('a table here is { secret = "NAME" }, with a name from [secrets]')
    if not isinstance(value, str):
        raise ValueError('must be a string in quotes, or { secret = "NAME" }')
    if "\0" in value:
        raise ValueError("holds a NUL character, which no environment can")
    return value


EnvName = Annotated[str, AfterValidator(_env_name)]
EnvValue = Annotated[str | SecretRef, PlainValidator(_env_value, json_schema_input_type=str | SecretRef)]


class ToolConfig(_Table):
    """One table [tools.NAME]: what the tool is, what it may reach, and where its limits are."""

    model_config = _exactly_one(*KINDS)
    description: str = Field(default="", description="What the tool does, for people and models.")
    module: ModuleFile | None = Field(
        default=None, description="Python file with a function run(input, ctx)."
    )
    command: Command | None = Field(default=None, description="Program and arguments; input JSON on stdin.")
    mcp: Command | None = Field(default=None, description="Program and arguments of a stdio MCP server.")
    script: ScriptFile | None = Field(default=None, description="A .js or .py file for the WASM sandbox.")
    input_schema: InputSchema | None = Field(
        default=None, description="JSON Schema 2020-12: a path or a table."
    )
    result: Literal["json", "text"] = Field(default="json", description="How a command's stdout is read.")
    egress: Annotated[tuple[AllowRule, ...], Many] = Field(
        default=(), description="Hosts the tool may reach; none when empty."
    )
    private: Annotated[tuple[AllowRule, ...], Many] = Field(
        default=(), description="Entries of egress that may resolve to non-public addresses."
    )
    deny: Annotated[tuple[DenyRule, ...], Many] = Field(default=(), description="Rules that win over egress.")
    mode: Literal["enforce", "audit"] = Field(
        default="enforce", description="audit: allow and record what is merely unlisted."
    )
    env: dict[EnvName, EnvValue] = Field(
        default_factory=dict, description="With PATH, the tool's whole environment."
    )
    read: Annotated[tuple[ExistingPath, ...], Many] = Field(
        default=(), description="Extra paths the tool may read."
    )
    write: Annotated[tuple[ExistingPath, ...], Many] = Field(
        default=(), description="Paths the tool may write."
    )
    collect: Annotated[tuple[CollectPattern, ...], Many, Field(max_length=64)] = Field(
        default=(), description="Files of the call's /tmp that are handed back."
    )
    timeout_s: Seconds = Field(default=30.0, description="Wall time of a call, in seconds.")
    cpu_s: Seconds = Field(default=30.0, description="Processor time of a call, in seconds.")
    memory: Annotated[int, SizeBetween(8 * MiB, 4096 * GiB)] = Field(
        default=512 * MiB, description="Memory of a call."
    )
    processes: int = Field(default=64, ge=1, le=32768, description="Processes and threads at once.")
    output: Annotated[int, SizeBetween(KiB, GiB)] = Field(
        default=8 * MiB, description="Result, stdout and stderr together."
    )
    tmp: Annotated[int, SizeBetween(64 * KiB, 1024 * GiB)] = Field(
        default=64 * MiB, description="Size of the private /tmp."
    )
    events: int = Field(default=1000, ge=0, le=1_000_000, description="ctx.emit calls in one call.")
    preload: Annotated[tuple[DottedName, ...], Many] = Field(
        default=(), description="Modules imported ahead in the zygote."
    )
    start_s: Seconds = Field(
        default=20.0, description="Time a child may take to import the tool, in seconds."
    )
    reuse: bool = Field(
        default=False, description="Let the process serve later calls of the same tool, env and principal."
    )
    idempotent: bool = Field(default=False, description="A repeated call does no harm.")
    returns_media: bool = Field(default=False, description="The tool's output may be read as media.")
    taint: Literal["auto", "always", "never"] = Field(
        default="auto", description="Whether results count as untrusted."
    )
    proxy: bool = Field(
        default=False,
        description="Set HTTP_PROXY and its kin to the broker's proxy inside, for clients that want one.",
    )
    approval: Literal["never", "always"] = Field(
        default="never", description="Whether each call asks a person first."
    )
    retention: Literal["none", "requery", "durable"] = Field(
        default="none", description="What later turns keep of a result."
    )

    @property
    def kind(self) -> Kind:
        """Which of the four the tool is.

        Raises: ValueError when none is set, which `load_config` never lets through.
        """
        for kind in KINDS:
            if getattr(self, kind) is not None:
                return kind
        raise ValueError("the tool has none of module, command, mcp and script")

    @property
    def secret_names(self) -> tuple[str, ...]:
        """The secrets whose values the tool's own environment holds, in order and each once."""
        return tuple(
            dict.fromkeys(value.secret for value in self.env.values() if isinstance(value, SecretRef))
        )


def _version(value: object) -> int:
    # Literal[1] alone takes true for 1.
    if value == 1 and not isinstance(value, bool | float):
        return 1
    raise ValueError("this program reads version 1; write 1")


def _tool_name(name: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name, re.ASCII):
        return name
    better = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:64] if name.isascii() else ""
    raise ValueError(
        "a tool's name is 1 to 64 letters, digits, underscores and hyphens"
        + (f"; write {better}" if better else "")
    )


def _secret_name(name: str) -> str:
    if _env_names.NAME.fullmatch(name):
        return name
    raise ValueError("a secret's name is letters, digits and underscores, and does not begin with a digit")


ToolName = Annotated[str, AfterValidator(_tool_name)]
SecretName = Annotated[str, AfterValidator(_secret_name)]


class Config(_Table):
    """A whole configuration file, checked. `source` and `digest` say which one."""

    version: Annotated[Literal[1], BeforeValidator(_version)] = Field(
        description="Version of the file's form: 1."
    )
    host: HostConfig = Field(default_factory=HostConfig, description="What holds for every tool.")
    secrets: dict[SecretName, SecretSource] = Field(
        default_factory=dict, description="Where secrets come from."
    )
    tools: dict[ToolName, ToolConfig] = Field(default_factory=dict, description="The tools by name.")

    _source: str = PrivateAttr("")
    _file: Path | None = PrivateAttr(None)
    _digest: str = PrivateAttr("")

    @property
    def source(self) -> str:
        """The file this came from, as it was given; "" when it came from none."""
        return self._source

    @property
    def digest(self) -> str:
        """SHA-256 of the file's bytes in hex, for the event POLICY_LOADED; "" when it came from none."""
        return self._digest

    @property
    def file(self) -> Path | None:
        """The absolute path of the file it was loaded from; None for a text."""
        return self._file

    @property
    def never_visible(self) -> tuple[Path, ...]:
        """Paths that no cage may show, even below a folder it may read: the state folder and secret files."""
        files = [source.file for source in self.secrets.values() if source.file is not None]
        return (self.host.state, *dict.fromkeys(files))
