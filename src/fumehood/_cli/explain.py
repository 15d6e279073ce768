"""`fumehood explain CALL_ID`: why a call ended as it did, told from its rows in the log alone.

Everything said here is what the host recorded; the tool's own words are marked as such. The JSON form is the
same facts, unspoken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from fumehood._cli import _advice
from fumehood._cli._output import Output, json_text, one_line, visible
from fumehood._cli._settings import Settings, pass_settings
from fumehood._cli.call import handed_back, not_handed_back, violations
from fumehood.policies.errors import ConfigError

if TYPE_CHECKING:
    from fumehood.agent import Event, EventLog

NEAREST = 3
RECENT = 2000
"""Calls among which an unknown id is looked for."""


@dataclass(frozen=True, slots=True)
class Story:
    """One call's rows, sorted by what they tell."""

    call_id: str
    started: Event | None
    ended: Event | None
    decisions: Sequence[Event]
    closed: Sequence[Event]
    told: Sequence[Event]
    stored: Sequence[Event]
    start: dict[str, Any] = field(default_factory=dict)
    end: dict[str, Any] = field(default_factory=dict)


@click.command()
@click.argument("call_id")
@pass_settings
def explain(settings: Settings, call_id: str) -> None:
    """Say in plain words what happened to the call CALL_ID: outcome, reason, every connection, limits, what
    to do.

    `last` stands for the latest call. An unknown id is answered with the nearest ones, exit code 2.
    """
    from fumehood.agent import EventLog

    found = EventLog(settings.log_path(), read_only=True)
    story = _story(found, _known_id(found, call_id))
    out = Output(settings)
    if settings.format == "json":
        out.json(_as_json(story))
    else:
        _tell(out, story)


def _known_id(found: EventLog, given: str) -> str:
    import collections
    import difflib

    if given != "last" and next(found.events(call_id=given, limit=1), None) is not None:
        return given
    known = list(
        collections.deque(
            (e.call_id for e in found.events() if e.kind == "CALL_STARTED" and e.call_id), maxlen=RECENT
        )
    )
    if given == "last" and known:
        return known[-1]
    if not known:
        raise ConfigError(f"there is no call {given[:80]!r}: no call is in {found.path}")
    begins = [call_id for call_id in known if given and given in call_id][-NEAREST:]
    close = begins or difflib.get_close_matches(given, known, NEAREST, 0.4) or known[-NEAREST:]
    raise ConfigError(f"there is no call {given[:80]!r} in {found.path}", hint=f"nearest: {', '.join(close)}")


def _story(found: EventLog, call_id: str) -> Story:
    rows = list(found.events(call_id=call_id))

    def of(*kinds: str) -> list[Event]:
        return [event for event in rows if event.kind in kinds]

    started, ended = next(iter(of("CALL_STARTED")), None), next(iter(of("CALL_ENDED")), None)
    refused = [
        e for e in of("EGRESS_CLOSED") if "outcome" in _data(e)
    ]  # no-answer and upstream: failures, not refusals of policy
    return Story(
        call_id=call_id,
        started=started,
        ended=ended,
        decisions=sorted([*of("EGRESS_ALLOWED", "EGRESS_DENIED"), *refused], key=lambda e: e.seq),
        closed=[e for e in of("EGRESS_CLOSED") if "outcome" not in _data(e)],
        told=of("TOOL_EVENT"),
        stored=of("CONTENT_STORED"),
        start=_data(started),
        end=_data(ended),
    )


def _data(event: Event | None) -> dict[str, Any]:
    return event.data if event is not None and isinstance(event.data, dict) else {}


# -- words ---------------------------------------------------------------------------------------------------


def _tell(out: Output, story: Story) -> None:
    first = story.started or story.ended
    who = f" for {one_line(str(story.start['principal']))}" if story.start.get("principal") else ""
    out.line(f"{story.call_id}", "bold")
    if first is not None:
        out.line(f"Tool {one_line(str(_tool(story)))} was called at {first.at}{who}.")
        out.line(f"Execution {first.execution_id}.")
    if story.start.get("runs"):
        out.line(f"It runs {one_line(str(story.start['runs']))}.")
    if story.start.get("input") is not None:
        out.line(f"Input: {_short(story.start['input'])}")
    out.line()
    _tell_end(out, story)
    if story.decisions:
        out.line()
        out.line("Network", "bold")
        for event in story.decisions:
            _tell_decision(out, story, event)
    refused = violations(story.end.get("violations") or [])
    if refused:
        out.line()
        out.line("Refused by the sandbox", "bold")
        for text in refused:
            out.hanging(f"- {text}", 0)
    files = [*handed_back(story.end.get("parts")), *not_handed_back(story.end.get("uncollected") or [])]
    if files:
        out.line()
        out.line("Files of the call", "bold")
        for text in files:
            out.hanging(f"- {text}", 0)
    _tell_rest(out, story)
    steps = _steps(story)
    if steps:
        out.line()
        out.line("What to do", "bold")
        for step in steps:
            out.hanging(f"- {visible(step)}", 0)


def _steps(story: Story) -> list[str]:
    decisions = [_data(event) for event in story.decisions]
    return _advice.steps(_tool(story), story.end, decisions, story.start.get("limits"))


def _tool(story: Story) -> str:
    return str(story.start.get("tool") or story.end.get("tool") or "?")


def _tell_end(out: Output, story: Story) -> None:
    end = story.end
    if story.ended is None:
        out.line("It has not ended: it still runs, or the host was killed while it ran.", "yellow")
        return
    usage = end.get("usage") or {}
    took = f" after {usage['wall_ms']:g} ms" if isinstance(usage.get("wall_ms"), float | int) else ""
    reason = f", reason {end['reason']}" if end.get("reason") else ""
    out.line(
        f"Outcome: {end.get('outcome')}{reason}{took}.", "green" if end.get("outcome") == "ok" else "red"
    )
    for text in (_advice.sentence(end), _advice.background(end)):
        if text:
            out.line(text)
    error = end.get("error") or {}
    if error.get("message"):
        said = (
            "While it was imported"
            if error.get("during") == "import"
            else "The tool said"
            if end.get("outcome") == "tool_error"
            else "In detail"
        )
        kind = (
            f"{one_line(str(error['type']))}: "
            if end.get("outcome") == "tool_error" and error.get("type")
            else ""
        )
        out.line(f"{said}: {kind}{one_line(str(error['message']))}")
    if end.get("tainted"):
        out.line(f"Its value counts as untrusted: {one_line(str(end['tainted'].get('origin')))}.")


def _tell_decision(out: Output, story: Story, event: Event) -> None:
    data = _data(event)
    where = f"{one_line(str(data.get('host') or data.get('text') or '?'))}" + (
        f":{data['port']}" if data.get("port") else ""
    )
    method = f"{data['method']} " if data.get("method") else ""
    allowed = data.get("outcome") == "allow"
    verdict = (
        "allowed"
        if allowed
        else f"refused, {data.get('reason')}"
        if event.kind == "EGRESS_DENIED"
        else f"failed, {data.get('reason')}"
    )
    out.line(f"- {method}{where} ({data.get('door')}): {verdict}", None if allowed else "yellow")
    for text in _advice.about_decision(data):
        out.hanging(visible(text), 4)
    for closed in story.closed:
        gone = _data(closed)
        if gone.get("allowed_by") == event.id:
            status = f", status {gone['status']}" if gone.get("status") else ""
            cut = f", ended: {gone['reason']}" if gone.get("reason") else ""
            out.line(
                f"    sent {gone.get('sent')} and received {gone.get('received')} bytes in "
                f"{gone.get('ms')} ms{status}{cut}"
            )


def _tell_rest(out: Output, story: Story) -> None:
    out.line()
    enforcement = story.end.get("enforcement") or {}
    layers = enforcement.get("layers") or {}
    if enforcement.get("tier"):
        out.line(f"Sandbox: tier {enforcement['tier']}; {_layers(layers)}.")
    limits = story.start.get("limits") or {}
    if limits:
        out.line(f"Limits: {_advice.limits_text(limits)}.")
    usage = story.end.get("usage") or {}
    if usage.get("cpu_ms") is not None:
        from fumehood.policies.sizes import format_size

        peak = int(usage.get("max_rss_bytes") or 0) // 1024 * 1024
        out.line(
            f"Used: {usage.get('wall_ms'):g} ms wall, {usage['cpu_ms']:g} ms processor, "
            f"{format_size(peak)} at most."
        )
    for number, word in ((len(story.told), "event"), (len(story.stored), "stored content")):
        if number:
            out.line(
                f"{number} {word}{'s' if number != 1 and word == 'event' else ''}; see `fumehood "
                f"log show --call {story.call_id}`."
            )


def _layers(layers: dict[str, str]) -> str:
    weak = [f"{name} {level}" for name, level in layers.items() if level != "FULL"]
    full = sum(1 for level in layers.values() if level == "FULL")
    if not layers:
        return "no child was built"
    return f"{full} layers FULL" + (f", {', '.join(weak)}" if weak else "")


def _short(value: object) -> str:
    text = json_text(value)
    return text if len(text) <= 400 else f"{text[:400]}… ({len(text)} characters)"


def _as_json(story: Story) -> dict[str, Any]:
    end = story.end
    return {
        "call_id": story.call_id,
        "execution_id": (story.started or story.ended).execution_id if story.started or story.ended else None,  # type: ignore[union-attr]
        "tool": _tool(story),
        "principal": story.start.get("principal"),
        "input": story.start.get("input"),
        "runs": story.start.get("runs"),
        "started_at": story.started.at if story.started else None,
        "ended_at": story.ended.at if story.ended else None,
        "outcome": end.get("outcome"),
        "reason": end.get("reason"),
        "sentence": _advice.sentence(end) or None,
        "background": _advice.background(end) or None,
        "error": end.get("error"),
        "tainted": end.get("tainted"),
        "usage": end.get("usage"),
        "enforcement": end.get("enforcement"),
        "limits": story.start.get("limits"),
        "violations": end.get("violations") or [],
        "uncollected": end.get("uncollected") or [],
        "egress": [{"event_id": event.id, "at": event.at, **_data(event)} for event in story.decisions],
        "events": len(story.told),
        "stored": [_data(event).get("address") for event in story.stored],
        "next": _steps(story),
    }
