"""What an operator decides, as checked values: configuration, egress rules, sizes, secrets, reasons, errors.

Errors, reasons, sizes and rules are imported here; whatever needs pydantic is imported on first use, so that
`import fumehood.policies` stays cheap. This package imports nothing else of fumehood.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fumehood.policies.errors import (
    ConfigError,
    FumehoodError,
    HostError,
    PolicyDenied,
    RuleError,
    SandboxUnavailable,
    ToolError,
)
from fumehood.policies.reasons import REASONS, Reason, reason
from fumehood.policies.secrets import Secret, read_secret, resolve_secret
from fumehood.policies.sizes import format_size, parse_size

if TYPE_CHECKING:
    from fumehood.policies.config import Config, HostConfig, SecretRef, SecretSource, ToolConfig
    from fumehood.policies.load import config_schema, load_config, parse_config
    from fumehood.policies.names import BadHost, Host, canonical_host
    from fumehood.policies.rules import EgressRule, SecretHeader, parse_rule

_LATER = {
    "BadHost": "names",
    "Config": "config",
    "EgressRule": "rules",
    "Host": "names",
    "HostConfig": "config",
    "SecretHeader": "rules",
    "SecretRef": "config",
    "SecretSource": "config",
    "ToolConfig": "config",
    "canonical_host": "names",
    "config_schema": "load",
    "load_config": "load",
    "parse_config": "load",
    "parse_rule": "rules",
}

__all__ = [
    "REASONS",
    "BadHost",
    "Config",
    "ConfigError",
    "EgressRule",
    "FumehoodError",
    "Host",
    "HostConfig",
    "HostError",
    "PolicyDenied",
    "Reason",
    "RuleError",
    "SandboxUnavailable",
    "Secret",
    "SecretHeader",
    "SecretRef",
    "SecretSource",
    "ToolConfig",
    "ToolError",
    "canonical_host",
    "config_schema",
    "format_size",
    "load_config",
    "parse_config",
    "parse_rule",
    "parse_size",
    "read_secret",
    "reason",
    "resolve_secret",
]


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
