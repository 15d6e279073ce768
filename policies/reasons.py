"""Every reason fumehood gives for a no: one constant each, with its sentences. Nothing else may invent a
code.

Guarantees: a code means one thing everywhere (result, event log, `explain`, proxy status line); each has a
sentence for the operator (what happened and what to change), one for the model (what it may do next, and that
repeating the call does not help when it does not) and one for the docs. The sentences are constants without a
host, path, address or secret, so they can go into a transcript as they are. Details travel in fields.

An outcome of tool_error has no reason: its `error` says what the tool claims.
Before editing: a new code also needs its heading in docs/reasons.md; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Family = Literal["limit", "denied", "sandbox_error", "egress"]


@dataclass(frozen=True, slots=True)
class Reason:
    """One no.

    code: what programs compare. family: the `outcome` it explains, or "egress" for one refused connection.
    operator, model, doc: one sentence or two for each reader, without details of the particular case.
    """

    code: str
    family: Family
    operator: str
    model: str
    doc: str


_TABLE: tuple[Reason, ...] = (
    # --- limit: the call was killed at a line the operator drew ---------------------------------------------
    Reason(
        "timeout",
        "limit",
        (
            "The call was still running when its wall time (timeout_s) ended, and its whole process tree "
            "was killed."
        ),
        "The tool did not finish in its time and was stopped; ask it for less work at once.",
        "Wall time `timeout_s` ran out. The host kills the tree; the tool's help is not needed.",
    ),
    Reason(
        "cpu",
        "limit",
        "The call used up its processor time (cpu_s) and was killed.",
        "The tool computed for longer than it may and was stopped; ask it for less work at once.",
        "Processor time `cpu_s` ran out, summed over the processes of the call as the kernel counts it.",
    ),
    Reason(
        "memory",
        "limit",
        "The call wanted more memory than it may have (memory) and was stopped.",
        "The tool needed more memory than it may use; ask it for a smaller piece of the data.",
        "The call reached `memory`: the kernel refused an allocation or killed a process of the call.",
    ),
    Reason(
        "processes",
        "limit",
        "The call tried to run more processes and threads at once than it may (processes).",
        "The tool tried to start more processes than it may; asking again in the same way will not help.",
        "The call reached `processes`, which counts processes and threads that live at the same time.",
    ),
    Reason(
        "output",
        "limit",
        "Result, stdout and stderr together were larger than the call may return (output).",
        "The tool's answer was too large to pass on; ask it for a shorter answer.",
        (
            "Result plus stdout plus stderr went past `output`; what had arrived by then is kept and "
            "marked truncated."
        ),
    ),
    Reason(
        "tmp",
        "limit",
        "The call filled its private /tmp or /dev/shm (tmp).",
        "The tool ran out of scratch space; ask it to work on less data at once.",
        "The private /tmp of the call, or its /dev/shm, reached `tmp`; writes then fail with ENOSPC.",
    ),
    Reason(
        "events",
        "limit",
        "The call emitted more events than it may (events).",
        "The tool reported more events than it may and was stopped; ask it for a smaller range.",
        "The call sent more `ctx.emit` events than `events` allows; those before the line are kept.",
    ),
    Reason(
        "stack",
        "limit",
        "The script nested deeper than its engine has stack for, and was ended.",
        (
            "The script went too deep: recursion without an end, or data nested too far; rewrite it "
            "with a loop."
        ),
        (
            "The engine's stack ran out inside its own code, where a script cannot catch it; plain "
            "recursion is an ordinary error."
        ),
    ),
    Reason(
        "tool-calls",
        "limit",
        "The script called tools and fetch more often than it may (tool_calls).",
        "The script made more tool calls than it may and was stopped; ask for more in each call.",
        (
            "The script asked more questions than `Limits.tool_calls` allows; the calls before the "
            "line are listed."
        ),
    ),
    Reason(
        "bridge-bytes",
        "limit",
        (
            "Arguments or results of the script's tool calls were larger together than they may be "
            "(bridge_bytes)."
        ),
        "The script moved more data through its tools than it may; ask the tools for less.",
        (
            "All arguments, or all results, of a script's calls went past `Limits.bridge_bytes`; "
            "counted before they are copied."
        ),
    ),
    Reason(
        "pending",
        "limit",
        "The script had more tool calls open at once than it may (pending).",
        "The script started too many tool calls at once; wait for some before starting others.",
        (
            "The script asked again while `Limits.pending` questions were open; `Promise.all` over a "
            "long list does this."
        ),
    ),
    Reason(
        "cancelled",
        "limit",
        "The caller cancelled the call before it ended; its processes were killed.",
        "The call was cancelled; nothing of its result is known.",
        "The task that awaited the call was cancelled, or `fumehood` was told to stop; only the log has it.",
    ),
    # --- denied: the call did not start ---------------------------------------------------------------------
    Reason(
        "input-schema",
        "denied",
        "The input does not match the tool's input_schema, so the tool was not started.",
        "The input does not fit the tool's schema; correct the input and call again.",
        (
            "The parent checked the input against `input_schema` before any process was used, and it did "
            "not match."
        ),
    ),
    Reason(
        "approval-declined",
        "denied",
        "The tool needs an approval for each call, and it was declined.",
        "A person declined this call; do not repeat it unless you are asked to.",
        'The tool has `approval = "always"` and whoever was asked said no. The tool was not started.',
    ),
    Reason(
        "oversized-input",
        "denied",
        "The input is larger than one call frame may be, so the tool was not started.",
        "The input is too large for one call; send less at once.",
        "The input as JSON is larger than the frame that carries it to the child.",
    ),
    Reason(
        "unknown-tool",
        "denied",
        "No tool of this name is configured; `fumehood tools` lists those that are.",
        "There is no tool of this name; use one of the tools you were given.",
        "The name is not under `[tools]`. Nothing was started.",
    ),
    Reason(
        "busy",
        "denied",
        (
            "As many calls run and wait as the host takes (max_parallel and queue_limit), so this one was"
            " turned away."
        ),
        "The host is busy; this says nothing about the call itself, so try again later.",
        (
            "`max_parallel` calls were running and `queue_limit` more were waiting. The only refusal "
            "worth repeating."
        ),
    ),
    # --- sandbox_error: the house failed, not the tool ------------------------------------------------------
    Reason(
        "tier",
        "sandbox_error",
        (
            "This machine cannot build the sandbox that require_tier asks for; `fumehood doctor` names "
            "the layer missing."
        ),
        "The tool cannot run on this machine; calling it again will not help.",
        (
            "A layer that the required tier needs is not in force here. Nothing runs in a weaker sandbox "
            "unasked."
        ),
    ),
    Reason(
        "protocol",
        "sandbox_error",
        "The child sent something that is not a frame of the protocol, and was killed.",
        (
            "The tool broke off in a way that leaves no answer; calling it again in the same way will "
            "probably fail."
        ),
        (
            "A frame was malformed, out of order or past its cap. A tool that speaks to our descriptor "
            "can cause it."
        ),
    ),
    Reason(
        "crashed",
        "sandbox_error",
        "The child ended before it gave a result, by a signal or by itself; which stands beside this reason.",
        "The tool crashed; calling it again in the same way will probably crash it again.",
        (
            "`waitid` reported a signal (SIGSEGV, SIGSYS, SIGKILL by the kernel …) that no limit of the "
            "call explains, or an exit code."
        ),
    ),
    Reason(
        "start",
        "sandbox_error",
        "The child was not ready within start_s, ended while it started, or its program cannot be run.",
        "The tool could not be started; calling it again will not help until its operator repairs it.",
        "The child was never ready: no input was handed over, or the program could not be executed.",
    ),
    # --- egress: one connection or request ------------------------------------------------------------------
    Reason(
        "not-listed",
        "egress",
        (
            "No egress entry of the tool names this host; this is not a deny entry. Add the host to "
            "`egress` to allow it."
        ),
        "This host is not on the tool's list of allowed hosts; do not try other spellings of it.",
        "No entry of `egress` matches. Decided before any DNS query: the resolver never hears of the name.",
    ),
    Reason(
        "denied-by-rule",
        "egress",
        (
            "A deny entry names this host. Deny wins over every egress entry, so adding one to `egress` "
            "changes nothing."
        ),
        "This host is forbidden by an explicit rule; do not try to reach it in another way.",
        "An entry of `[host] deny` or of the tool's `deny` matches; the decision names whose it is.",
    ),
    Reason(
        "not-public",
        "egress",
        (
            "The name resolves to an address that is not public; list the entry under `private` if that "
            "is meant."
        ),
        "This host leads to a non-public address, which the tool may not reach.",
        (
            "An answer is loopback, private, shared, reserved, multicast or the host's own, without "
            "`private` on the entry."
        ),
    ),
    Reason(
        "metadata",
        "egress",
        "The name resolves to a link-local or cloud metadata address. No entry and no flag allows these.",
        "This address belongs to the machine's own environment and is never reachable.",
        "Link-local and metadata addresses hand out machine credentials; `private` does not cover them.",
    ),
    Reason(
        "mixed-answers",
        "egress",
        "The name resolves to public and non-public addresses at once; the whole set is refused.",
        "This host's name leads to several places, some of them forbidden; it is not reachable.",
        "A set with one forbidden answer is refused whole, since a client could be steered to that one.",
    ),
    Reason(
        "no-answer",
        "egress",
        (
            "The name is allowed but did not resolve: no such name, no address, or the name server did "
            "not answer."
        ),
        "The host's name could not be resolved; check the spelling, or try again later.",
        "Policy allowed the name and DNS gave no address for it in time.",
    ),
    Reason(
        "malformed",
        "egress",
        "The request is not a well-formed URL, host name or proxy request.",
        "The URL is not well formed; write it as scheme://host/path.",
        "The text breaks the grammar for hosts, ports or requests. It is refused and never repaired.",
    ),
    Reason(
        "ambiguous-url",
        "egress",
        "Parsers disagree about which host or path this URL names, so it is refused.",
        "The URL can be read in more than one way; write it plainly as scheme://host/path.",
        (
            "Two parsers read different hosts, ports or paths: backslashes, user names, odd escapes, "
            "numeric hosts."
        ),
    ),
    Reason(
        "method",
        "egress",
        "The host is listed, but not for this HTTP method; this is not a deny entry.",
        "This host may not be used with this HTTP method; use one the tool is allowed.",
        "Entries for host, port and scheme exist, and none of them lists the method.",
    ),
    Reason(
        "path",
        "egress",
        "The host is listed, but not for this path; this is not a deny entry.",
        "This path of the host is not allowed; use one the tool is allowed.",
        "Entries for host, port, scheme and method exist, and none has a prefix of the path.",
    ),
    Reason(
        "port",
        "egress",
        "The host is listed, but not on this port; this is not a deny entry.",
        "This host is not allowed on this port.",
        "Entries for the host exist, and none of them has the port.",
    ),
    Reason(
        "scheme",
        "egress",
        "The host is listed, but not with this scheme; this is not a deny entry.",
        "This host is not allowed with this scheme; use https unless told otherwise.",
        (
            "Entries for host and port exist with another scheme, or the scheme is none that the "
            "broker speaks."
        ),
    ),
    Reason(
        "server-name",
        "egress",
        "The TLS server name is missing or differs from the host that was decided.",
        "The connection asked for one host and named another; use the same name for both.",
        (
            "Behind an `https` entry the ClientHello must name the decided host, else the tunnel could "
            "lead elsewhere."
        ),
    ),
    Reason(
        "redirect",
        "egress",
        "An allowed host redirected to a place that policy refuses; the refused place has its own row.",
        "The host sent the request on to a place that is not allowed.",
        "Each hop is decided from the start as if it were asked for first, and one of them was refused.",
    ),
    Reason(
        "too-many-redirects",
        "egress",
        "The chain of redirects is longer than the broker follows.",
        "The host redirects too often; ask for the final address directly.",
        "Redirects are followed one decision at a time, up to a fixed count.",
    ),
    Reason(
        "budget-bytes",
        "egress",
        "Request or response is larger than the entry's max_request or max_response.",
        "The transfer is larger than the tool may make; ask for less.",
        "The byte budget ran out and the connection was closed; bodies are counted as sent and as decoded.",
    ),
    Reason(
        "budget-rate",
        "egress",
        "Requests came faster, or more at once, than the entry's rate or max_connections allows.",
        "The tool sends requests too fast; wait before the next one.",
        "The budget of requests in time or of connections at once was used up.",
    ),
    Reason(
        "budget-time",
        "egress",
        "The connection was open, or silent, for longer than it may be.",
        "The host took too long; try again later or ask for less.",
        "A time budget of the connection ran out.",
    ),
    Reason(
        "upstream",
        "egress",
        "The host was allowed and resolved, but the connection or the TLS handshake with it failed.",
        "The host could not be reached or did not answer properly; try again later.",
        "Policy allowed the request; connecting, TLS or the peer's HTTP failed. Not a refusal of policy.",
    ),
    Reason(
        "policy-changed",
        "egress",
        "The policy was reloaded and no longer allows this connection, so it was closed.",
        "This host is no longer allowed.",
        "Connections are judged again when the policy changes.",
    ),
    Reason(
        "no-call",
        "egress",
        "The child asked for the network before a call had begun or after it had ended.",
        "The network can be used only while the tool is being called.",
        "Egress belongs to a call. Import-time and leftover connections are refused.",
    ),
)

REASONS: Mapping[str, Reason] = MappingProxyType({entry.code: entry for entry in _TABLE})
"""Every reason by its code. Codes are unique across the families."""


def reason(code: str) -> Reason:
    """The reason of that code.

    Raises: KeyError when the code is not in the vocabulary, which is a bug in the caller.
    """
    return REASONS[code]
