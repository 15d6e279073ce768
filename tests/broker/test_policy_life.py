"""Suggestions from audit mode, and other programs' policies as ours."""

from __future__ import annotations

import json
import tomllib

import pytest

from fumehood.broker import import_policy, suggest, suggestions_toml
from fumehood.broker._import import read_plain_yaml
from fumehood.policies.errors import ConfigError
from fumehood.policies.rules import parse_rule


def allowed(
    host: str, port: int, scheme: str, method: str | None = None, tool: str = "t"
) -> tuple[str, dict[str, object]]:
    return "EGRESS_ALLOWED", {
        "tool": tool,
        "host": host,
        "port": port,
        "scheme": scheme,
        "method": method,
        "would_deny": "not-listed",
    }


def test_what_audit_saw_becomes_the_smallest_entries_with_counts() -> None:
    rows: list[tuple[str, dict[str, object]]] = [
        allowed("api.example.com", 443, "https", "GET"),
        allowed("api.example.com", 443, "https", "POST"),
        allowed("cdn.example.com", 443, "tunnel"),
        allowed("cdn.example.com", 443, "tunnel"),
        allowed("cdn.example.com", 443, "tunnel"),
        allowed("db.example.com", 5432, "tunnel"),
        allowed("api.example.com", 8443, "https", "GET", tool="u"),
        (
            "EGRESS_ALLOWED",
            {"tool": "t", "host": "listed.example", "port": 443, "scheme": "https", "method": "GET"},
        ),
        ("EGRESS_DENIED", {"tool": "t", "host": "inside.example", "port": 443, "reason": "not-public"}),
        ("EGRESS_DENIED", {"tool": "t", "host": "169.254.169.254", "port": 80, "reason": "metadata"}),
        ("EGRESS_CLOSED", {"tool": "t", "host": "x.example", "port": 443}),
        ("EGRESS_DENIED", {"tool": "t", "host": None, "port": None, "reason": "malformed"}),
    ]
    found = suggest(rows)
    assert [(one.tool, one.rule, one.count) for one in found] == [
        ("t", "cdn.example.com", 3),
        ("t", "GET,POST api.example.com", 2),
        ("t", "db.example.com:5432", 1),
        ("t", "inside.example:443 +private", 1),
        ("u", "GET https://api.example.com:8443", 1),
    ]
    text = suggestions_toml(found)
    parsed = tomllib.loads(text)
    assert parsed["tools"]["t"]["egress"] == [
        "cdn.example.com",
        "GET,POST api.example.com",
        "db.example.com:5432",
    ]
    assert "# 3 requests" in text and '# "inside.example:443 +private",' in text
    for tool in parsed["tools"].values():
        for rule in tool["egress"]:
            parse_rule(rule)
    assert suggestions_toml([]).startswith("# Nothing")


IMPORTS: list[tuple[str, str, dict[str, object], list[str]]] = [
    (
        "srt",
        json.dumps(
            {
                "network": {
                    "allowedDomains": ["github.com", "*.example.org", "10.0.0.0/8"],
                    "deniedDomains": ["evil.example"],
                    "allowLocalBinding": True,
                }
            }
        ),
        {
            "egress": ["github.com", "http://github.com", "*.example.org", "http://*.example.org"],
            "deny": ["evil.example"],
        },
        ["address ranges", "allowLocalBinding", "every port"],
    ),
    (
        "claude",
        json.dumps(
            {
                "permissions": {
                    "allow": ["WebFetch(domain:docs.example.com)", "Bash(ls)", "WebSearch"],
                    "deny": ["WebFetch(domain:evil.example)"],
                    "ask": ["Bash"],
                },
                "sandbox": {"network": {"allowedDomains": ["*.example.org"]}},
            }
        ),
        {
            "egress": [
                "docs.example.com",
                "http://docs.example.com",
                "*.example.org",
                "http://*.example.org",
            ],
            "deny": ["evil.example"],
        },
        ["names no domain", "approval"],
    ),
    (
        "cursor",
        (
            '{\n  // comment\n  "networkPolicy": {"default": "allow", "allow": ["packages.example.org"], '
            '"deny": ["10.0.0.0/8", "evil.example"]}\n}'
        ),
        {"egress": ["packages.example.org", "http://packages.example.org"], "deny": ["evil.example"]},
        ["no such mode", "address ranges"],
    ),
    (
        "toolhive",
        json.dumps(
            {
                "name": "my server",
                "read": ["/data"],
                "network": {
                    "outbound": {
                        "insecure_allow_all": True,
                        "allow_host": ["api.github.com", ".example.com"],
                        "allow_port": [443, 8080],
                    }
                },
            }
        ),
        {"egress": ["api.github.com", "api.github.com:8080", "*.example.com", "*.example.com:8080"]},
        ["insecure_allow_all", "'read'"],
    ),
]


@pytest.mark.parametrize(
    ("format_", "text", "expected", "notes"),
    IMPORTS,
    ids=lambda value: value if isinstance(value, str) and len(value) < 12 else "",
)
def test_a_policy_of_another_program_becomes_rules_and_notes(
    format_: str, text: str, expected: dict[str, object], notes: list[str]
) -> None:
    found = import_policy(format_, text)
    (tool,) = tomllib.loads(found.toml())["tools"].values()
    assert tool == expected
    for note in notes:
        assert any(note in one for one in found.notes), (note, found.notes)


SMOKESCREEN = """
version: v1
services:
  - name: "billing worker"
    project: payments
    action: enforce
    allowed_domains:
      - api.stripe.com
      - "*.example.com"
  - name: crawler   # everything, watched
    action: open
  - name: new
    project: x
    action: report
    allowed_domains:
    - a.example
default:
  name: default
  action: enforce
global_deny_list:
  - evil.example
global_allow_list:
  - ok.example
"""


def test_a_smokescreen_acl_becomes_a_tool_for_each_role() -> None:
    found = import_policy("smokescreen", SMOKESCREEN)
    assert tomllib.loads(found.toml()) == {
        "host": {"deny": ["evil.example"]},
        "tools": {
            "billing-worker": {"egress": ["api.stripe.com", "*.example.com", "ok.example"]},
            "crawler": {"egress": ["ok.example"], "mode": "audit"},
            "new": {"egress": ["a.example", "ok.example"], "mode": "audit"},
            "default": {"egress": ["ok.example"]},
        },
    }
    assert any("deny always wins" in note for note in found.notes)


@pytest.mark.parametrize(
    ("format_", "text"),
    [
        ("srt", "["),
        ("srt", '{"network": []}'),
        ("cursor", '{"networkPolicy": {"allow": "x"}}'),
        ("toolhive", '{"network": {"outbound": {"allow_port": ["x"]}}}'),
        ("smokescreen", "a: &x y"),
        ("smokescreen", "version: v2"),
        ("nginx", ""),
    ],
)
def test_a_file_of_another_kind_is_an_error_that_says_so(format_: str, text: str) -> None:
    with pytest.raises(ConfigError):
        import_policy(format_, text)


def test_plain_yaml_is_read_and_the_rest_is_refused_with_its_line() -> None:
    assert read_plain_yaml("a:\n- b\n- c: 1\n  d:\n    - 'e'\nf: true\n") == {
        "a": ["b", {"c": "1", "d": ["e"]}],
        "f": True,
    }
    with pytest.raises(ValueError, match="line 2"):
        read_plain_yaml("a: 1\nb: {c: d}\n")
    with pytest.raises(ValueError, match="line 2"):
        read_plain_yaml("a: 1\n   nonsense\n")
