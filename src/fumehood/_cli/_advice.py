"""What an operator can do about an outcome: pure functions from rows of the log to sentences.

The sentences about reasons themselves stand in `fumehood.policies.reasons`; here is only the next step, with
the tool's name in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fumehood.policies.reasons import REASONS, Reason
from fumehood.policies.script_reasons import SCRIPT_REASONS, script_reason
from fumehood.policies.sizes import format_size

_STEPS: Mapping[str, str] = {
    "timeout": "Raise timeout_s in [tools.{tool}], or give the tool less to do in one call.",
    "cpu": "Raise cpu_s in [tools.{tool}], or give the tool less to compute.",
    "memory": "Raise memory in [tools.{tool}], or let the tool work on smaller pieces.",
    "processes": "Raise processes in [tools.{tool}]; threads count too.",
    "output": "Raise output in [tools.{tool}], or let the tool keep large results with ctx.put.",
    "tmp": "Raise tmp in [tools.{tool}], or give it a folder with `write`.",
    "events": "Raise events in [tools.{tool}], or emit fewer.",
    "input-schema": "Correct the input; the schema is input_schema of [tools.{tool}].",
    "oversized-input": "Put the content into a file the tool may `read`, and send its path.",
    "unknown-tool": "`fumehood tools` lists the tools; names are exact.",
    "busy": "Try again, or raise max_parallel and queue_limit in [host].",
    "tier": "`fumehood doctor` names the missing layer and its remedy.",
    "protocol": (
        "The tool's process wrote to a descriptor that is not its own; treat it as hostile until it "
        "is understood."
    ),
    "crashed": (
        "Run the tool by itself to see the crash; SIGSYS means a system call that the sandbox refuses."
    ),
    "start": (
        "Repair the tool's file or its imports; raise start_s in [tools.{tool}] if its import is only slow."
    ),
    "approval-declined": "Nothing; a person said no.",
    "stack": "Let the script nest less: a loop instead of the recursion, or flatter data.",
    "tool-calls": "Raise Limits(tool_calls=...), or let the script ask for more in each call.",
    "bridge-bytes": "Raise Limits(bridge_bytes=...), or let the script ask its tools for less.",
    "pending": "Raise Limits(pending=...), or let the script wait for some calls before it starts others.",
    "cancelled": "Nothing; whoever called went away. Call again if the result is still wanted.",
}
"""For every reason of an outcome; a test compares."""

_LIMIT_OF: Mapping[str, str] = {
    "timeout": "timeout_s",
    "cpu": "cpu_s",
    **{name: name for name in ("memory", "processes", "output", "tmp", "events")},
}
"""Reason -> the limit that was in force."""

_RUN_STEPS: Mapping[str, str] = {
    "timeout": "Give it longer with --time SECONDS.",
    "memory": 'Give it more with --memory SIZE, as "8 GiB".',
    "start": "Look for the program: it must be on the PATH inside, or below a path that --read names.",
    "not-listed": "To allow it, add --allow '{entry}'.",
    "port": "To allow the port, add --allow '{entry}'.",
    "not-public": "If that address is meant, write --allow '{entry} +private'.",
    "mixed-answers": (
        "Have the name's records repaired; if both kinds of address are meant, write "
        "--allow '{entry} +private'."
    ),
    "cpu": "Let it compute less, or give it the limits of a tool with --policy FILE --tool NAME.",
    "processes": "Let it start fewer, or give it the limits of a tool with --policy FILE --tool NAME.",
    "output": "Let it write less, or leave --format json out: then its output is passed through.",
    "tmp": "Let it write to a folder that --write names.",
}
"""For calls of `fumehood run`, whose rules and limits are options and not entries of a file."""

_SCRIPT_STEPS: Mapping[str, str] = {
    "timeout": "Raise timeout_s in [tools.{tool}], or let the script wait for fewer tools.",
    "cpu": "Raise the script's fuel, or let it compute less.",
    "memory": "Raise memory in [tools.{tool}], or let the script work on smaller pieces.",
    "output": "Raise output in [tools.{tool}], or let the script print and return less.",
    "input-schema": "Correct what the message names.",
    "oversized-input": "Let the script ask a tool for the data instead of taking it as input.",
    "protocol": "The script may have broken its engine; treat it as hostile until it is understood.",
    "crashed": "Run the script again by itself; one that crashes its engine each time is worth a report.",
    "start": "Repair the script's file, or leave the snapshot out.",
}
"""For scripts, whose limits are others."""

_EVAL_STEPS: Mapping[str, str] = {
    "timeout": "Give it longer with --time SECONDS or Limits(wall_s=...).",
    "memory": 'Give it more with --memory SIZE or Limits(memory=...), as "128 MiB".',
    "output": "Raise Limits(output=...), or let the script print and return less.",
    "not-listed": "To allow it, add --allow '{entry}'.",
    "port": "To allow the port, add --allow '{entry}'.",
    "not-public": "If that address is meant, write --allow '{entry} +private'.",
    "mixed-answers": (
        "Have the name's records repaired; if both kinds of address are meant, write "
        "--allow '{entry} +private'."
    ),
}
"""For `fumehood eval` and `Host.eval`, which have no entry in a file."""

_EGRESS_STEPS: Mapping[str, str] = {
    "not-listed": 'To allow it, add "{entry}" to egress of [tools.{tool}].',
    "not-public": 'If that address is meant, add "{entry}" to private of [tools.{tool}].',
    "port": 'To allow the port, add "{entry}" to egress of [tools.{tool}].',
    "denied-by-rule": "The entry that refuses stands at {where}; deny wins over egress.",
    "method": "Add the method to the entry {rule}.",
    "path": "Add the path to the entry {rule}.",
    "scheme": "Write the scheme into the entry {rule}.",
    "no-answer": "Look the name up yourself; `nameservers` in [host] says who was asked.",
    "upstream": "The peer was allowed and did not answer properly; policy has no part in it.",
    "metadata": "Nothing to add: no entry and no flag allows these addresses.",
    "mixed-answers": (
        'Have the name\'s records repaired; if both kinds of address are meant, add "{entry}" to private of '
        "[tools.{tool}]."
    ),
    "malformed": "Let the request be written plainly, as scheme://host/path; the detail says what is wrong.",
    "ambiguous-url": "Let the URL be written without user name, backslash and odd escapes.",
    "server-name": "Let the client send, in TLS, the server name of the host that it asked for.",
    "redirect": "The refused place has a row of its own; allow it there, if it is meant.",
    "too-many-redirects": "Let the tool ask for the final address.",
    "budget-bytes": "Raise max_request or max_response of the entry {rule}, or let the tool ask for less.",
    "budget-rate": "Raise rate or max_connections of the entry {rule}, or let the tool wait in between.",
    "budget-time": "Raise timeout of the entry {rule}, or let the tool ask for less at once.",
    "policy-changed": "Nothing, if the change of the policy was meant; else put the entry back.",
    "no-call": "Let the tool use the network while it is called, not when it is imported or has returned.",
}
"""For every reason of a connection; a test compares."""


def sentence(end: Mapping[str, Any]) -> str:
    """The operator's sentence for an outcome, "" when there is nothing to say."""
    script = of_script(end)
    known = reason_of(end.get("reason"), script=script)
    if known is not None:
        return known.operator
    if end.get("outcome") != "tool_error":
        return ""
    return f"The {'script' if script else 'tool'} itself failed; the sandbox and the host are in order."


def of_script(end: Mapping[str, Any]) -> bool:
    """Whether what ended was a script: the host says so in the error."""
    error = end.get("error")
    return isinstance(error, Mapping) and error.get("of") == "script"


def reason_of(code: object, *, script: bool) -> Reason | None:
    """The reason of a code, in its words for a script when it was one."""
    if not isinstance(code, str):
        return None
    return script_reason(code) if script else REASONS.get(code)


def background(end: Mapping[str, Any]) -> str:
    """What stands behind the outcome's reason, "" where the sentence for a script has said it."""
    code = end.get("reason")
    known = reason_of(code, script=False)
    return "" if known is None or (of_script(end) and code in SCRIPT_REASONS) else known.doc


def steps(
    tool: str,
    end: Mapping[str, Any],
    decisions: Sequence[Mapping[str, Any]],
    limits: Mapping[str, Any] | None = None,
) -> list[str]:
    """What to do next, each once. limits: those of the call, to say what was in force."""
    found = []
    reason = end.get("reason")
    templates = {**_STEPS, **_EGRESS_STEPS, **(_RUN_STEPS if tool == "run" else {})}
    if of_script(end):
        templates |= {**_SCRIPT_STEPS, **(_EVAL_STEPS if tool == "script" else {})}
    if isinstance(reason, str) and reason in _STEPS:
        name = _LIMIT_OF.get(reason, "")
        was = limits_text({name: limits[name]}) if limits and name in limits else ""
        found.append(templates[reason].format(tool=tool) + (f" It was {was}." if was else ""))
    for data in decisions:
        why = str(data.get("reason"))
        if data.get("outcome") != "allow" and why in _EGRESS_STEPS:
            if str(data.get("detail")).startswith("a UDP datagram"):
                found.append("Nothing to add for what was sent over UDP: only TCP leads out.")
                continue
            found.append(
                templates[why].format(
                    tool=tool,
                    entry=_entry(data),
                    rule=data.get("rule") or f"of {data.get('host')}",
                    where=data.get("where") or data.get("owner"),
                )
            )
    return list(dict.fromkeys(found))


def about_decision(data: Mapping[str, Any]) -> list[str]:
    """What stands behind one decision: the reason, the rule, what DNS said, where it went, the near miss."""
    lines = []
    reason = data.get("reason")
    if isinstance(reason, str) and reason in REASONS:
        lines.append(REASONS[reason].operator)
    if data.get("rule"):
        lines.append(f"rule {data['rule']}" + (f", {data['where']}" if data.get("where") else ""))
    if data.get("answers"):
        chain = f" (by way of {', '.join(data['chain'])})" if data.get("chain") else ""
        lines.append(f"the name resolved to {', '.join(data['answers'])}{chain}")
    elif data.get("outcome") != "allow" and data.get("source") in ("allow-list", "host-deny", "tool-deny"):
        lines.append("decided before DNS: the name was never resolved")
    if data.get("outcome") == "allow" and data.get("pinned"):
        lines.append(f"the connection was pinned to {data['pinned']}")
    if data.get("would_deny"):
        lines.append(f"audit mode let it pass; enforce would refuse it: {data['would_deny']}")
    for key, word in (("hint", "near miss"), ("detail", "in detail")):
        if data.get(key):
            lines.append(f"{word}: {data[key]}")
    return lines


def limits_text(limits: Mapping[str, Any]) -> str:
    """Limits as a person writes them."""
    sizes = [
        f"{name} {format_size(limits[name])}"
        for name in ("memory", "output", "tmp")
        if isinstance(limits.get(name), int)
    ]
    times = [
        f"{name} {limits[name]:g}"
        for name in ("timeout_s", "cpu_s")
        if isinstance(limits.get(name), float | int)
    ]
    counts = [
        f"{name} {limits[name]}" for name in ("processes", "events") if isinstance(limits.get(name), int)
    ]
    return ", ".join([*times, *sizes, *counts])


def _entry(data: Mapping[str, Any]) -> str:
    """The shortest rule that would cover the request."""
    host, port, scheme = data.get("host"), data.get("port"), data.get("scheme")
    bracketed = f"[{host}]" if isinstance(host, str) and ":" in host else host
    # A row of a result does not say the scheme, and that of a name which was only looked up no port.
    usual = port is None or (port == 443 and scheme in ("https", None))
    return f"{bracketed}" if usual else f"{bracketed}:{port}"
