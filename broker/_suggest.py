"""`policy suggest`: what audit mode saw, as the smallest entries that would have allowed it, with counts.

Guarantees: an entry names exactly the hosts and ports that were reached, one entry for each, methods only
where all of its traffic showed them; nothing is widened to a wildcard. What was refused for its addresses, or
because its port had no door, is offered as a comment, never as an entry. Reads rows of the event log
(EGRESS_ALLOWED with `would_deny`, EGRESS_DENIED); writes TOML text.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_DEFAULT = {443: "https", 80: "http"}
_ADDRESS_REASONS = ("not-public", "mixed-answers")
_INTERNAL = "only if it is meant to be internal"
_NO_DOOR = "refused, as audit mode has doors for 80 and 443 only; add it and run again"


@dataclass(slots=True)
class Suggestion:
    """One entry.

    rule: string form. count: requests seen. note: why it is only a comment, empty for a real entry.
    """

    tool: str
    rule: str
    count: int
    note: str = ""


@dataclass(slots=True)
class _Seen:
    count: int = 0
    methods: set[str] = field(default_factory=set)
    opaque: bool = False


def suggest(events: Iterable[tuple[str, Mapping[str, object]]]) -> list[Suggestion]:
    """Suggestions from (kind, data) pairs of the log, by tool and then by count."""
    seen: dict[tuple[str, str, str, int], _Seen] = defaultdict(_Seen)
    refused: dict[tuple[str, str, str], int] = defaultdict(int)
    for kind, data in events:
        tool, host, port = data.get("tool"), data.get("host"), data.get("port")
        if not isinstance(tool, str) or not isinstance(host, str) or not isinstance(port, int):
            continue
        if kind == "EGRESS_ALLOWED" and data.get("would_deny"):
            scheme = data.get("scheme")
            known = scheme if scheme in ("https", "http") else _DEFAULT.get(port, "any")
            entry = seen[(tool, str(known), host, port)]
            entry.count += 1
            if isinstance(data.get("method"), str):
                entry.methods.add(str(data["method"]))
            else:
                entry.opaque = True
        elif kind == "EGRESS_DENIED" and data.get("reason") in _ADDRESS_REASONS:
            refused[(tool, f"{_host(host)}:{port} +private", str(data["reason"]))] += 1
        elif (
            kind == "EGRESS_DENIED"
            and (data.get("reason"), data.get("source")) == ("port", "audit")
            and host != "localhost"  # the tool's own, not this host's
        ):
            refused[(tool, f"{_host(host)}:{port}", "port")] += 1
    found = [
        Suggestion(tool, _rule(scheme, host, port, entry), entry.count)
        for (tool, scheme, host, port), entry in seen.items()
    ]
    found += [
        Suggestion(tool, rule, count, _NO_DOOR if reason == "port" else f"refused as {reason}; {_INTERNAL}")
        for (tool, rule, reason), count in refused.items()
    ]
    return sorted(found, key=lambda one: (one.tool, bool(one.note), -one.count, one.rule))


def suggestions_toml(found: Iterable[Suggestion]) -> str:
    """The suggestions as TOML, ready to be looked through and pasted."""
    by_tool: dict[str, list[Suggestion]] = defaultdict(list)
    for one in found:
        by_tool[one.tool].append(one)
    if not by_tool:
        return "# Nothing was seen that the rules do not allow already.\n"
    out = []
    for tool, entries in by_tool.items():
        out.append(f"[tools.{_key(tool)}]")
        out.append("egress = [")
        for one in entries:
            text = f"  {json.dumps(one.rule)},"
            times = f"{one.count} request{'' if one.count == 1 else 's'}"
            out.append(
                f"{text}  # {times}" if not one.note else f"  # {json.dumps(one.rule)},  # {times} {one.note}"
            )
        out += ["]", ""]
    return "\n".join(out)


def _rule(scheme: str, host: str, port: int, entry: _Seen) -> str:
    at = "" if _DEFAULT.get(port) == scheme else f":{port}"
    target = (
        f"{_host(host)}{at}"
        if scheme in ("any", "https") and (scheme == "any" or not at)
        else f"{scheme}://{_host(host)}{at}"
    )
    if entry.opaque or scheme == "any" or not entry.methods:
        return target
    return f"{','.join(sorted(entry.methods))} {target}"


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _key(name: str) -> str:
    return (
        name if all(char.isalnum() or char in "_-" for char in name) and name.isascii() else json.dumps(name)
    )
