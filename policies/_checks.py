"""Checks that need more than one key: kinds, secrets, private entries, paths that would open the house.

Guarantees: every check runs on the raw tables as well as it can, whatever else is wrong with them, so that
one load reports all faults. A check never raises.
Before editing: a check takes the raw data (any JSON-like value may stand anywhere) and yields Problems; it
looks at types before it looks at values.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fumehood.policies._not_yet import unsupported
from fumehood.policies._problems import CREDENTIAL_SHAPE, KeyPath, Problem, nearest
from fumehood.policies.config import KINDS, Config, SecretSource, ToolConfig
from fumehood.policies.errors import RuleError
from fumehood.policies.rules import NEEDS_INSPECTION, EgressRule, parse_rule
from fumehood.policies.sizes import parse_size

_ONLY_FOR = {"result": "command", "preload": "module"}
# A script has no file, no environment and no process of its own; `ctx` is not there to emit events with.
_NOT_FOR_SCRIPTS = (
    "read",
    "write",
    "collect",
    "env",
    "processes",
    "tmp",
    "cpu_s",
    "events",
    "start_s",
    "reuse",
)
_READ_BY_HOST = ("module", "script", "input_schema")


def table(value: object) -> Mapping[str, Any]:
    """`value` when it is a table, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def cross_checks(data: Mapping[str, Any], base: Path, *, allow_unsupported: bool) -> Iterator[Problem]:
    """Every fault that one key alone does not show. base: the folder of the file."""
    secrets = table(data.get("secrets"))
    yield from _secret_sources(secrets)
    for name, raw in table(data.get("tools")).items():
        if not isinstance(raw, Mapping):
            continue
        at: KeyPath = ("tools", name)
        rules = _parsed(raw.get("egress"))
        yield from _kind(at, raw)
        yield from _tunnels(at, raw, rules)
        yield from _secret_references(at, raw, secrets, rules)
        yield from _private(at, raw, rules)
        if not allow_unsupported:
            for path, text in unsupported(raw, rules):
                yield Problem((*at, *path), text)
    yield from _credentials_in_plain_sight(data, ())


def _secret_sources(secrets: Mapping[str, Any]) -> Iterator[Problem]:
    for name, raw in secrets.items():
        if not isinstance(raw, Mapping) or not raw.keys() <= SecretSource.model_fields.keys():
            continue  # the model says that a secret was written here, and one sentence is enough
        written = list(raw)
        if len(written) != 1:
            yield Problem(
                ("secrets", name),
                f"needs exactly one of env, file and credential, and has {' and '.join(written) or 'none'}"
                + ("" if written else f'; write {{ env = "{name}" }}'),
            )


def _kind(at: KeyPath, raw: Mapping[str, Any]) -> Iterator[Problem]:
    kinds = [kind for kind in KINDS if kind in raw]
    if not kinds and any(table(value).keys() & set(KINDS) for value in raw.values()):
        return  # [tools.a.b]: the unknown key "b" is the fault, and says what to write
    if len(kinds) != 1:
        has = f"this one has {' and '.join(kinds)}" if kinds else "this one has none"
        yield Problem(at, f"a tool has exactly one of module, command, mcp and script; {has}")
        return
    said = {key for key, value in raw.items() if not _is_default(key, value)}
    for key in _NOT_FOR_SCRIPTS if kinds == ["script"] else ():
        if key in said:
            yield Problem(
                (*at, key), "has no meaning for a script, which has no file and no process; delete it"
            )
    if kinds == ["mcp"] and "collect" in said:
        yield Problem((*at, "collect"), "has no meaning for a server, which has one /tmp for many calls")
    if raw.get("collect") and raw.get("reuse") is True:
        yield Problem(
            (*at, "collect"),
            "files are read when the process is gone, and reuse = true keeps it; delete one",
        )
    for key, kind in _ONLY_FOR.items():
        if key in said and kinds != [kind]:
            yield Problem(
                (*at, key), f"has a meaning only for {kind} tools, and this is a {kinds[0]} tool; delete it"
            )


def _is_default(key: str, value: object) -> bool:
    """Whether the entry says what would hold without it: no fault then, whatever kind of tool says it."""
    field = ToolConfig.model_fields.get(key)
    if field is None or field.is_required():
        return False
    default = field.get_default(call_default_factory=True)
    if isinstance(value, list):
        value = tuple(value)
    elif isinstance(value, str) and not isinstance(default, str):
        try:
            value = parse_size(value)
        except ValueError:
            return False
    return value == default and isinstance(value, bool) == isinstance(default, bool)


def _parsed(entries: object) -> dict[int, EgressRule]:
    """The entries that are rules, by index. What is wrong with the others is reported by their field."""
    rules: dict[int, EgressRule] = {}
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, str | Mapping):
            try:
                rules[index] = parse_rule(entry)
            except RuleError:
                continue
    return rules


def _secret_references(
    at: KeyPath, raw: Mapping[str, Any], secrets: Mapping[str, Any], rules: Mapping[int, EgressRule]
) -> Iterator[Problem]:
    wanted: list[tuple[KeyPath, str]] = []
    for name, value in table(raw.get("env")).items():
        if isinstance(value, Mapping) and isinstance(value.get("secret"), str):
            wanted.append(((*at, "env", name, "secret"), value["secret"]))
    for index, rule in rules.items():
        for name in rule.secret.names if rule.secret is not None else ():
            wanted.append(((*at, "egress", index, "secret"), name))
    for path, name in wanted:
        if name not in secrets:
            close = nearest(name, map(str, secrets))
            fix = f'write "{close}"' if close else 'declare it there, like NAME = { env = "NAME" }'
            yield Problem(path, f"there is no secret of this name in [secrets]; {fix}")


def _private(at: KeyPath, raw: Mapping[str, Any], rules: Mapping[int, EgressRule]) -> Iterator[Problem]:
    for index, rule in _parsed(raw.get("private")).items():
        if not any(covers_private(rule, listed) for listed in rules.values()):
            same_host = [listed.text for listed in rules.values() if listed.host == rule.host]
            close = nearest(rule.text, same_host or [listed.text for listed in rules.values()])
            fix = f'write "{close}"' if close else f'add "{rule.text}" to egress, or delete it here'
            yield Problem((*at, "private", index), f"is not an entry of egress; {fix}")


def covers_private(private: EgressRule, listed: EgressRule) -> bool:
    """Whether an entry of `private` names this entry of `egress`.

    It is the same entry, or it gives scheme, host and port, and methods and paths as well or not at all.
    Anything else in it (a rate, a size) would have no effect and so names nothing.
    """
    if replace(listed, private=private.private) == private:
        return True
    bare = EgressRule(text="", scheme=private.scheme, host=private.host, port=private.port)
    return (
        replace(private, methods=None, paths=(), private=False) == bare
        and private.target == listed.target
        and private.methods in (None, listed.methods)
        and private.paths in ((), listed.paths)
    )


def _tunnels(at: KeyPath, raw: Mapping[str, Any], rules: Mapping[int, EgressRule]) -> Iterator[Problem]:
    if "command" not in raw and "mcp" not in raw:
        return  # a module has `ctx.fetch` and a script `fetch`, which hold every rule
    for index, rule in rules.items():
        if rule.needs_inspection:
            fix = (
                f'write "{rule.text} +inspect"'
                if isinstance(raw["egress"][index], str)
                else "add inspect = true"
            )
            yield Problem((*at, "egress", index), f"{NEEDS_INSPECTION}; {fix}")


def _credentials_in_plain_sight(node: object, path: KeyPath) -> Iterator[Problem]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from _credentials_in_plain_sight(value, (*path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _credentials_in_plain_sight(value, (*path, index))
    elif isinstance(node, str) and CREDENTIAL_SHAPE.search(node):
        yield Problem(
            path,
            "looks like a credential, and this file never holds one; declare it in [secrets] and refer to it",
        )


def path_checks(config: Config, file: Path | None) -> Iterator[Problem]:
    """Paths that would let a tool read what is the host's, or write what the host will run or obey."""
    state = config.host.state
    if os.path.exists(state) and not os.path.isdir(state):  # noqa: PTH110, PTH112 - these never raise
        yield Problem(("host", "state"), "is no folder; name one, which is made when it is missing")
    private = {real(path): "the state folder" for path in (config.host.state,)}
    private |= {
        real(s.file): f"the secret {name}" for name, s in config.secrets.items() if s.file is not None
    }
    obeyed: dict[Path, str] = {} if file is None else {real(file): "this configuration file"}
    if config.host.trust is not None:
        obeyed[real(config.host.trust)] = "the certificates that the broker trusts"
    for name, tool in config.tools.items():
        for path in (
            tool.module,
            tool.script,
            *(Path(c[0]) for c in (tool.command, tool.mcp) if c and "/" in c[0]),
        ):
            if path is not None:
                obeyed[real(path)] = f"the code of {name}"
    for name, tool in config.tools.items():
        for key, kept in (("read", private), ("write", private | obeyed)):
            for index, path in enumerate(getattr(tool, key)):
                opened = real(path)
                for guarded, what in kept.items():
                    if opened == guarded or opened in guarded.parents or guarded in opened.parents:
                        verb = "read" if key == "read" else "change"
                        yield Problem(
                            ("tools", name, key, index),
                            f"would let the tool {verb} {what} ({guarded}); name a narrower path",
                        )
                        break


def real(path: Path) -> Path:
    """The path with its symbolic links followed as far as they exist."""
    return Path(os.path.realpath(path))
