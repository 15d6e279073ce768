"""fumehood: run tools nobody should have to trust.

The public names are in `__all__`; each is imported when it is first used, so that `import fumehood` stays
cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fumehood._host import Host
    from fumehood._result import CallResult, Enforcement, Usage
    from fumehood._run_script import RunScript
    from fumehood.agent import guard_request, media_result, tainted, unwrap_tainted
    from fumehood.policies.config import Config
    from fumehood.policies.errors import ConfigError, FumehoodError, PolicyDenied, SandboxUnavailable
    from fumehood.policies.load import load_config

_WHERE = {
    "CallResult": "fumehood._result",
    "Config": "fumehood.policies.config",
    "ConfigError": "fumehood.policies.errors",
    "Enforcement": "fumehood._result",
    "FumehoodError": "fumehood.policies.errors",
    "Host": "fumehood._host",
    "PolicyDenied": "fumehood.policies.errors",
    "RunScript": "fumehood._run_script",
    "SandboxUnavailable": "fumehood.policies.errors",
    "Usage": "fumehood._result",
    "guard_request": "fumehood.agent",
    "load_config": "fumehood.policies.load",
    "media_result": "fumehood.agent",
    "tainted": "fumehood.agent",
    "unwrap_tainted": "fumehood.agent",
}

__version__ = "0.1.0"
__all__ = [
    "CallResult",
    "Config",
    "ConfigError",
    "Enforcement",
    "FumehoodError",
    "Host",
    "PolicyDenied",
    "RunScript",
    "SandboxUnavailable",
    "Usage",
    "__version__",
    "guard_request",
    "load_config",
    "media_result",
    "tainted",
    "unwrap_tainted",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'fumehood' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
