"""From a configured tool to what `isolate` and `broker` are given: pure, apart from reading secrets for one
call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fumehood.isolate import DEFAULT_PATH, Limits, ToolSpec, own_place, proxy_port
from fumehood.policies.secrets import resolve_secret

if TYPE_CHECKING:
    from fumehood.broker import EgressPolicy
    from fumehood.policies.config import Config, ToolConfig
    from fumehood.policies.rules import EgressRule


CA_BUNDLE = "/etc/fumehood/ca-bundle.pem"
"""Where a tool with an inspected entry finds the authorities: the system's, and the one of this run."""
_SYSTEM_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)
_AUDITED_PORTS = (80, 443)


def tool_spec(
    name: str, tool: ToolConfig, config: Config, *, doors: bool, authorities: str | None = None
) -> ToolSpec:
    """The sandbox's view of a tool.

    doors: whether sockets inside lead to the broker (tier `namespaces`). authorities: certificates to show
    instead of the system's, for a tool with an inspected entry.
    """
    ports = door_ports(tool.egress, audit=tool.mode == "audit") if doors else None
    return ToolSpec(
        name=name,
        kind="command" if tool.kind == "command" else "module",
        path=Path(tool.module) if tool.module is not None else None,
        argv=tuple(tool.command or ()),
        env={key: value for key, value in tool.env.items() if isinstance(value, str)},
        read=(*(Path(path) for path in tool.read), *_own_folder(tool)),
        write=tuple(Path(path) for path in tool.write),
        limits=limits_of(tool),
        preload=tuple(tool.preload),
        doors=ports,
        masks=config.never_visible,
        reuse=tool.reuse,
        untrusted=tuple(Path(path) for other in config.tools.values() for path in other.write),
        files={} if authorities is None else {CA_BUNDLE: authorities},
        covers={} if authorities is None else dict.fromkeys(_SYSTEM_BUNDLES, CA_BUNDLE),
        collect=tool.collect,
    )


def _own_folder(tool: ToolConfig) -> tuple[Path, ...]:
    """Where the program of a command stands, when it is named by a path outside of the system's folders: as
    a module's, it is always readable.
    """
    if tool.kind != "command" or tool.command is None or "/" not in tool.command[0]:
        return ()
    real = Path(tool.command[0]).resolve()
    if real.is_relative_to("/usr") or not real.is_file():
        return ()
    return (Path(own_place(str(real))),)


def door_ports(rules: Sequence[EgressRule], *, audit: bool = False) -> tuple[int, ...] | None:
    """The ports that lead to the broker; None when there is nothing to reach. Audit lets the usual
    ones through.
    """
    ports = {rule.port for rule in rules} | set(_AUDITED_PORTS if audit else ())
    return tuple(sorted(ports)) or None


def limits_of(tool: ToolConfig) -> Limits:
    """The bounds of one call of a tool."""
    return Limits(
        timeout_s=tool.timeout_s,
        cpu_s=tool.cpu_s,
        memory=tool.memory,
        processes=tool.processes,
        output=tool.output,
        tmp=tool.tmp,
        events=tool.events,
        start_s=tool.start_s,
    )


def network_environment(tool: ToolConfig) -> dict[str, str]:
    """The variables that the operator asked for with `proxy = true` or an inspected entry; none otherwise."""
    from fumehood.broker import proxy_environment, trust_environment

    found: dict[str, str] = {}
    if tool.proxy:
        found |= proxy_environment(proxy_port(door_ports(tool.egress, audit=tool.mode == "audit") or ()))
    if any(rule.inspect for rule in tool.egress):
        found |= trust_environment(CA_BUNDLE)
    return found


def call_environment(tool: ToolConfig, config: Config) -> tuple[dict[str, str], frozenset[str]]:
    """The tool's whole environment for one call, and the names in it that are secrets (R005, R006).

    Raises ConfigError when a secret is not where the file says.
    """
    env: dict[str, str] = {"PATH": DEFAULT_PATH, **network_environment(tool)}
    late = set()
    for key, value in tool.env.items():
        if isinstance(value, str):
            env[key] = value
        else:
            env[key] = resolve_secret(config.secrets[value.secret], value.secret)
            late.add(key)
    return env, frozenset(late)


def egress_policy(name: str, tool: ToolConfig, config: Config) -> EgressPolicy:
    """What the tool may reach; the host's own refusals stand above (deny wins)."""
    from fumehood.broker import EgressPolicy

    return EgressPolicy(
        allow=tool.egress, deny=tool.deny, mode=tool.mode, owner=name, host_deny=config.host.deny
    )


def scrubbed(value: object, secrets: Mapping[str, str]) -> object:
    """`value` with every occurrence of a secret replaced by its name: for the log, which others read."""
    if not secrets:
        return value
    if isinstance(value, str):
        for name, secret in secrets.items():
            value = value.replace(secret, f"[secret {name}]")
        return value
    if isinstance(value, list):
        return [scrubbed(item, secrets) for item in value]
    if isinstance(value, dict):
        return {str(scrubbed(key, secrets)): scrubbed(item, secrets) for key, item in value.items()}
    return value


def working_folder() -> Path | None:
    """The real path of the current folder; None when it is there no more."""
    try:
        return Path.cwd().resolve()
    except FileNotFoundError:
        return None
