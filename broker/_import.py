"""`policy import`: other programs' network policies as egress rules, with a note for all that could not be
carried over.

Guarantees: a rule that comes out is one that parses; nothing is widened. What a format can say and ours does
not (address ranges, every port, "allow all") becomes a note, never a guess. Formats: srt (sandbox-runtime
settings), claude (settings.json), cursor (sandbox.json), toolhive (permission profile), smokescreen (ACL
version 1; a plain subset of YAML is read).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from fumehood.policies.errors import ConfigError, RuleError
from fumehood.policies.rules import parse_rule

WEB_PORTS = (
    "443",
    "80",
)  # what "this domain" means in formats without ports: they allow every port, we carry over the web's


@dataclass(slots=True)
class Imported:
    """What came out.

    tools: rules by tool name. host_deny: deny entries of the host. notes: what was left out, and why.
    """

    tools: dict[str, list[str]] = field(default_factory=dict)
    deny: dict[str, list[str]] = field(default_factory=dict)
    audit: set[str] = field(default_factory=set)
    host_deny: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def toml(self) -> str:
        """TOML to paste into fumehood.toml; notes are comments."""
        out = [f"# {note}" for note in self.notes]
        if self.host_deny:
            out += ["", "[host]", _list("deny", self.host_deny)]
        for name in self.tools:
            out += ["", f"[tools.{name}]", "# module, command, mcp or script: what the tool is, goes here"]
            out.append(_list("egress", self.tools[name]))
            if self.deny.get(name):
                out.append(_list("deny", self.deny[name]))
            if name in self.audit:
                out.append('mode = "audit"')
        return "\n".join(out).lstrip("\n") + "\n"


def import_policy(format: str, text: str, *, source: str = "", tool: str = "imported") -> Imported:
    """Convert `text`. format: one of FORMATS. tool: the name for formats that know no tools.

    Raises: ConfigError when the text is not of that format.
    """
    reader = FORMATS.get(format)
    if reader is None:
        raise ConfigError(f"--from {format!r} is none of {', '.join(FORMATS)}")
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tool):
        raise ConfigError(f"--tool {tool!r} is no tool name: letters, digits, _ and -, 64 at most")
    out = Imported()
    try:
        reader(text, out, tool)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigError(f"{source or 'the file'} is not a {format} policy: {error}") from error
    return out


def _list(key: str, rules: Iterable[str]) -> str:
    # TOML knows no surrogate pairs, which JSON's ASCII form is full of.
    lines = "".join(f"  {json.dumps(rule, ensure_ascii=False)},\n" for rule in dict.fromkeys(rules))
    return f"{key} = [\n{lines}]"


def _object(value: object, what: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not an object")
    return value


def _strings(value: object, what: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError(f"{what} is not a list of strings")
    return value


def _add_domains(
    out: Imported, tool: str, domains: Iterable[str], *, deny: bool = False, ports: Iterable[str] = WEB_PORTS
) -> None:
    """Domain patterns as rules; what is no domain becomes a note."""
    rules = out.deny if deny else out.tools
    listed = rules.setdefault(tool, [])
    for domain in domains:
        name = domain.strip()
        if name.startswith("."):
            name = f"*{name}"
        if "/" in name and re.fullmatch(r"[0-9a-fA-F.:]+/[0-9]+", name):
            out.notes.append(f"left out {domain!r}: address ranges are not rules")
            continue
        if name == "*" and not deny:
            out.notes.append(
                "'*' covers ordinary names on 443 and 80 only, never addresses or names of this machine"
            )
        host, _, port = name.rpartition(":") if re.search(r"[^:]:[0-9]+$", name) else (name, "", "")
        if deny or port:
            texts = [name]
        else:
            texts = [_with_port(host, number) for number in ports]
        for text in texts:
            try:
                listed.append(parse_rule(text, deny=deny).text)
            except RuleError as error:
                out.notes.append(f"left out {domain!r}: {error.message}")
                break


def _with_port(host: str, port: str) -> str:
    return {"443": host, "80": f"http://{host}"}.get(port, f"{host}:{port}")


def _srt(text: str, out: Imported, tool: str) -> None:
    network = _object(_object(json.loads(text), "the file").get("network", {}), "network")
    _add_domains(out, tool, _strings(network.get("allowedDomains"), "allowedDomains"))
    _add_domains(out, tool, _strings(network.get("deniedDomains"), "deniedDomains"), deny=True)
    for key in (
        "allowUnixSockets",
        "allowLocalBinding",
        "allowAllUnixSockets",
        "httpProxyPort",
        "socksProxyPort",
    ):
        if network.get(key):
            out.notes.append(f"left out network.{key}: not a matter of egress rules")
    out.notes.append("sandbox-runtime allows a domain on every port; 443 and 80 were carried over")


def _claude(text: str, out: Imported, tool: str) -> None:
    settings = _object(json.loads(text), "the file")
    permissions = _object(settings.get("permissions", {}), "permissions")
    sandbox = _object(_object(settings.get("sandbox", {}), "sandbox").get("network", {}), "sandbox.network")
    for key, deny in (("allow", False), ("deny", True)):
        for entry in _strings(permissions.get(key), f"permissions.{key}"):
            found = re.fullmatch(r"WebFetch\(domain:([^)]+)\)", entry)
            if found:
                _add_domains(out, tool, [found[1]], deny=deny)
            elif entry.startswith(("WebFetch", "WebSearch")):
                out.notes.append(f"left out permissions.{key} {entry!r}: it names no domain")
    if permissions.get("ask"):
        out.notes.append('left out permissions.ask: use approval = "always" on the tool')
    _add_domains(out, tool, _strings(sandbox.get("allowedDomains"), "allowedDomains"))
    _add_domains(out, tool, _strings(sandbox.get("deniedDomains"), "deniedDomains"), deny=True)


def _plain_json(text: str) -> str:
    """JSON with comments and trailing commas, as editors write it, made plain JSON; strings stay as
    they are.
    """
    parts = re.findall(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/|[^"/]+|.', text, re.DOTALL)
    kept = [part for part in parts if not part.startswith(("//", "/*"))]
    out: list[str] = []
    for part in re.findall(r'"(?:[^"\\]|\\.)*"|[^"]+|"', "".join(kept), re.DOTALL):
        out.append(part if part.startswith('"') else re.sub(r",(\s*[}\]])", r"\1", part))
    return "".join(out)


def _cursor(text: str, out: Imported, tool: str) -> None:
    policy = _object(
        _object(json.loads(_plain_json(text)), "the file").get("networkPolicy", {}), "networkPolicy"
    )
    if policy.get("default", "deny") != "deny":
        out.notes.append(
            "networkPolicy.default is 'allow': there is no such mode; list what is needed (audit mode "
            "and `policy suggest` help)"
        )
    _add_domains(out, tool, _strings(policy.get("allow"), "networkPolicy.allow"))
    _add_domains(out, tool, _strings(policy.get("deny"), "networkPolicy.deny"), deny=True)


def _toolhive(text: str, out: Imported, tool: str) -> None:
    profile = _object(json.loads(text), "the file")
    name = profile.get("name")
    tool = re.sub(r"[^A-Za-z0-9_-]", "-", name)[:64] if isinstance(name, str) and name else tool
    outbound = _object(_object(profile.get("network", {}), "network").get("outbound", {}), "network.outbound")
    ports = outbound.get("allow_port") or [443]
    if not isinstance(ports, list) or not all(isinstance(port, int) and 0 < port < 65536 for port in ports):
        raise ValueError("network.outbound.allow_port is not a list of ports")
    if outbound.get("insecure_allow_all"):
        out.notes.append("left out insecure_allow_all: there is no such mode; list what is needed")
    hosts = _strings(outbound.get("allow_host"), "network.outbound.allow_host")
    _add_domains(out, tool, hosts, ports=[str(port) for port in ports])
    for key in ("read", "write"):
        if profile.get(key):
            out.notes.append(f"left out {key!r}: paths of the tool go into its own {key!r} setting")


def _smokescreen(text: str, out: Imported, tool: str) -> None:
    acl = _object(read_plain_yaml(text), "the file")
    if str(acl.get("version", "v1")) not in ("v1", "1"):
        raise ValueError(f"version {acl['version']!r} is not v1")
    services = acl.get("services") or []
    if not isinstance(services, list):
        raise ValueError("services is not a list")
    entries = [_object(service, "a service") for service in services]
    if acl.get("default"):
        entries.append({"name": "default", **_object(acl["default"], "default")})
    for service in entries:
        name = re.sub(r"[^A-Za-z0-9_-]", "-", str(service.get("name") or tool))[:64]
        domains = _strings(service.get("allowed_domains"), f"allowed_domains of {name}")
        _add_domains(out, name, domains, ports=["443"])
        match str(service.get("action", "enforce")):
            case "report":
                out.audit.add(name)
            case "open":
                out.audit.add(name)
                out.notes.append(
                    f"{name}: 'open' became audit mode, which allows and records; metadata and private "
                    f"addresses stay refused"
                )
        if service.get("allowed_domains_mitm"):
            out.notes.append(f"{name}: allowed_domains_mitm was left out; see +inspect")
    denied = Imported()
    _add_domains(denied, "host", _strings(acl.get("global_deny_list"), "global_deny_list"), deny=True)
    out.host_deny += denied.deny.get("host", [])
    out.notes += denied.notes
    for domain in _strings(acl.get("global_allow_list"), "global_allow_list"):
        for name in list(out.tools):
            _add_domains(out, name, [domain], ports=["443"])
    if acl.get("global_allow_list"):
        out.notes.append(
            "global_allow_list was given to each tool; in smokescreen a role's own list outranks the "
            "global deny list, here deny always wins"
        )


FORMATS: Mapping[str, Callable[[str, Imported, str], None]] = {
    "srt": _srt,
    "claude": _claude,
    "cursor": _cursor,
    "toolhive": _toolhive,
    "smokescreen": _smokescreen,
}


def read_plain_yaml(text: str) -> object:
    """Mappings, lists and plain or quoted scalars in block style, as ACL files use them. Anchors, tags and
    flow style are refused.

    Raises: ValueError with the line.
    """
    lines = []
    for number, raw in enumerate(text.split("\n"), 1):
        line = re.sub(r"(^|\s)#.*$", "", raw).rstrip()
        if not line.strip() or line.strip() == "---":
            continue
        if "\t" in line[: len(line) - len(line.lstrip())]:
            raise ValueError(f"line {number}: a tab indents")
        lines.append((len(line) - len(line.lstrip()), line.strip(), number))
    value, rest = _block(lines)
    if rest:
        raise ValueError(f"line {rest[0][2]}: the indentation fits nothing above")
    return value


_Lines = list[tuple[int, str, int]]


def _block(lines: _Lines) -> tuple[object, _Lines]:
    if not lines:
        return {}, []
    return (
        _sequence(lines, lines[0][0])
        if lines[0][1].startswith("- ") or lines[0][1] == "-"
        else _mapping(lines, lines[0][0])
    )


def _sequence(lines: _Lines, indent: int) -> tuple[list[object], _Lines]:
    out: list[object] = []
    while lines and lines[0][0] == indent and (lines[0][1].startswith("- ") or lines[0][1] == "-"):
        _, text, number = lines[0]
        inner = text[1:].lstrip()
        if re.match(r"[A-Za-z_][\w-]*:(\s|$)", inner):
            column = indent + len(text) - len(inner)
            inside, lines = _mapping([(column, inner, number), *lines[1:]], column)
            out.append(inside)
        elif inner:
            out.append(_scalar(inner, number))
            lines = lines[1:]
        else:
            item, lines = _block(lines[1:])
            out.append(item)
    return out, lines


def _mapping(lines: _Lines, indent: int) -> tuple[dict[str, object], _Lines]:
    out: dict[str, object] = {}
    while lines and lines[0][0] == indent and not lines[0][1].startswith("- "):
        _, text, number = lines[0]
        found = re.fullmatch(r"([A-Za-z_][\w-]*):(?:\s+(.*))?", text)
        if not found:
            raise ValueError(f"line {number}: {text!r} is not 'key: value'")
        key, rest = found[1], found[2] or ""
        lines = lines[1:]
        if rest:
            out[key] = _scalar(rest, number)
        elif lines and (lines[0][0] > indent or (lines[0][0] == indent and lines[0][1].startswith("-"))):
            out[key], lines = _block(lines)
        else:
            out[key] = None
    return out, lines


def _scalar(text: str, number: int) -> object:
    if text[:1] in "\"'" and len(text) > 1 and text[-1] == text[0]:
        return text[1:-1]
    if text[:1] == "[" and text[-1] == "]":
        inner = [item.strip() for item in text[1:-1].split(",")]
        return [] if inner == [""] else [_scalar(item, number) for item in inner if item]
    if text[:1] in "&!{[|>%@`" or (text[:1] == "*" and not text.startswith("*.")):
        raise ValueError(
            f"line {number}: {text!r} needs a full YAML reader; quote it or write it in block style"
        )
    return {"true": True, "false": False, "null": None, "~": None}.get(text, text)
