"""What is allowed and still worth a second look: sentences for `fumehood policy check`, never errors.

A note is given where a file is in order but says less than its author may believe. It names file and key path
and shows no value that may be a secret.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from fumehood.policies._checks import real
from fumehood.policies._problems import KeyPath, key_text
from fumehood.policies.config import Config, SecretSource, ToolConfig

_CREDENTIAL_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|PRIVATE_KEY)$", re.IGNORECASE
)
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
"""What a tool without a PATH of its own has: that of `isolate`, which is not to be imported here."""

_Note = tuple[KeyPath, str]


def notes(config: Config) -> tuple[str, ...]:
    """One sentence per thing worth a look, in the order host, secrets, tools."""
    found: list[_Note] = [*_host(config), *_secrets(config)]
    for name, tool in config.tools.items():
        found += [(("tools", name, *path), text) for path, text in _tool(config, tool)]
    return tuple(f"{config.source}: {key_text(path)}: {text}" for path, text in found)


def _host(config: Config) -> Iterator[_Note]:
    if config.host.require_tier == "any":
        yield (
            ("host", "require_tier"),
            "calls may run in a weaker sandbox; each result says in which",
        )
        if config.host.dangerously_allow_unsandboxed:
            yield ("host", "dangerously_allow_unsandboxed"), "calls may run with no sandbox at all"
    elif config.host.dangerously_allow_unsandboxed:
        yield ("host", "dangerously_allow_unsandboxed"), 'has no effect unless require_tier = "any"'


def _secrets(config: Config) -> Iterator[_Note]:
    used = {name for tool in config.tools.values() for name in tool.secret_names}
    used |= {
        name
        for tool in config.tools.values()
        for rule in tool.egress
        if rule.secret is not None
        for name in rule.secret.names
    }
    for name, source in config.secrets.items():
        if name not in used:
            yield ("secrets", name), "no tool uses it"
        elif (missing := _missing(source)) is not None:
            yield ("secrets", name, missing[0]), missing[1]
        if source.file is not None and _open_to_others(source.file):
            yield (
                ("secrets", name, "file"),
                f"other users may read it; try: chmod 600 {source.file}",
            )


def _missing(source: SecretSource) -> tuple[str, str] | None:
    """Key and sentence for a secret that could not be read if a call needed it now."""
    if source.env is not None and source.env not in os.environ:
        return "env", f"{source.env} is not set here; calls that need it are refused until it is"
    if source.file is not None and not source.file.is_file():
        return "file", f"{source.file} is not there; calls that need it are refused until it is"
    return None


def _open_to_others(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & 0o007)
    except OSError:
        return False  # not there yet: reading it will say so


def _tool(config: Config, tool: ToolConfig) -> Iterator[_Note]:
    for name, value in tool.env.items():
        if isinstance(value, str) and value and _CREDENTIAL_NAME.search(name):
            yield ("env", name), "is written in the file; if it is a credential, declare it in [secrets]"
    if tool.command is not None and (program := tool.command[0]).count("/") == 0:
        folders = tool.env.get("PATH", PATH)
        if isinstance(folders, str) and shutil.which(program, path=folders) is None:
            yield ("command",), f"{program!r} is in no folder of the tool's PATH ({folders})"
    for index, rule in enumerate(tool.egress):
        if rule in (first := tool.egress[:index]):
            yield ("egress", index), f"says the same as egress[{first.index(rule)}]"
        if rule.host == "*":
            yield ("egress", index), "allows every public host"
    code = tool.module or tool.script
    if code is not None and not os.access(code, os.R_OK):
        yield (tool.kind,), f"uid {os.geteuid()} cannot read it, so no call will work; try: chmod a+r {code}"
    if code is not None:
        for path in config.never_visible:
            if code.parent in real(path).parents or code.parent == real(path):
                yield (
                    (tool.kind,),
                    f"its folder is readable and holds {path}, which stays hidden from the tool",
                )
