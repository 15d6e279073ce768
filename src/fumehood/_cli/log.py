"""`fumehood log`: show, follow, verify and export the event log. Reads only."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from fumehood._cli._loop import progress, run_async
from fumehood._cli._output import Output, json_text, one_line, visible
from fumehood._cli._settings import Settings, pass_settings
from fumehood.policies.errors import ConfigError

if TYPE_CHECKING:
    from fumehood.agent import Event, EventLog, Head

SUMMARY_CHARS = 160
DEFAULT_ROWS, MOST_ROWS = 50, 1_000_000_000
WIDE = 110
"""From this width on a row has room for its date."""


@click.group(short_help="Show, follow, verify and export the event log.")
def log() -> None:
    """The event log: everything that happened, in order, each row chained to the one before."""


@log.command()
@click.option("--execution", metavar="ID", help="Only the rows of this execution.")
@click.option("--call", "call_id", metavar="ID", help="Only the rows of this call.")
@click.option("--kind", metavar="KIND", help="Only rows of this kind, as EGRESS_DENIED.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(0, MOST_ROWS),
    default=DEFAULT_ROWS,
    show_default=True,
    help="The last N rows; 0 for all.",
)
@pass_settings
def show(
    settings: Settings, execution: str | None, call_id: str | None, kind: str | None, limit: int
) -> None:
    """The last rows, oldest first."""
    import collections

    rows: Any = collections.deque(_rows(_open(settings), execution, call_id, kind), maxlen=limit or None)
    out = Output(settings)
    if settings.format == "json":
        out.json({"rows": [asdict(event) for event in rows]})
    elif not rows:
        out.note("no rows")
    else:
        _table(out, rows, with_call=call_id is None)


@log.command(short_help="Follow the log, until Ctrl-C.")
@click.option("--execution", metavar="ID", help="Only the rows of this execution.")
@click.option(
    "--lines",
    metavar="N",
    type=click.IntRange(0, MOST_ROWS),
    default=10,
    show_default=True,
    help="Rows shown before following.",
)
@pass_settings
def tail(settings: Settings, execution: str | None, lines: int) -> None:
    """Follow the log: rows as they are committed, by any process, until Ctrl-C. In json one object a line."""
    import collections

    found = _open(settings)
    out = Output(settings)

    def write(event: Event) -> None:
        if settings.format == "json":
            sys.stdout.write(json_text(asdict(event)) + "\n")
            sys.stdout.flush()
        else:
            out.line(f"{event.seq:>6} {_time(event)} {event.kind} {summary(event)}", _style(event))

    async def follow() -> None:
        last = collections.deque(found.events(execution_id=execution), maxlen=lines) if lines else ()
        after = last[-1].seq if last else found.head().seq
        for event in last:
            write(event)
        async for event in found.tail(after=after, execution_id=execution):
            write(event)

    run_async(follow())


@log.command()
@click.option(
    "--anchor",
    metavar="SEQ:HASH",
    help="A head kept from an earlier verify: shows a cut or rewritten log as well.",
)
@click.option("--execution", metavar="ID", help="Say which of the rows are of this execution, too.")
@pass_settings
@click.pass_context
def verify(ctx: click.Context, settings: Settings, anchor: str | None, execution: str | None) -> None:
    """Check every row against the hash chain. Exit code 2 when one does not fit.

    A chain holds as a whole or not at all, so --execution does not check less.
    """
    found = _open(settings)
    head = _anchor(anchor)
    with progress(settings, "checking every row"):
        result = found.verify(anchor=head)
    out = Output(settings)
    told = asdict(result)
    if execution is not None:
        of = [event.seq for event in found.events(execution_id=execution)] if result.ok else []
        told["execution"] = {"id": execution, "rows": len(of), "first": of[0] if of else None}
        told["execution"]["last"] = of[-1] if of else None
    if settings.format == "json":
        out.json(told)
    elif result.ok:
        if not settings.quiet:
            out.line(f"OK  {result.message}", "green")
            out.line(f"    head {result.head.seq}:{result.head.hash}")
            if execution is not None:
                where = f", {of[0]} to {of[-1]}" if of else ""
                out.line(f"    of execution {visible(execution)}: {len(of)} rows{where}")
    else:
        out.error(
            f"the log does not verify: {result.message}",
            f"{result.rows} rows before it are intact; compare with an exported copy",
        )
    ctx.exit(0 if result.ok else 2)


@log.command(short_help="All rows with their hashes, as JSON Lines.")
@click.option("--execution", metavar="ID", help="Only the rows of this execution.")
@click.option("--output", metavar="FILE", help="Write there instead of to stdout; the file must not exist.")
@pass_settings
def export(settings: Settings, execution: str | None, output: str | None) -> None:
    """All rows with their hashes, as JSON Lines (in json: one object with `rows`)."""
    found = _open(settings)
    with _target(output) as stream:
        if settings.format == "json":
            stream.write('{"rows":[')
            for number, event in enumerate(found.events(execution_id=execution)):
                stream.write((",\n" if number else "\n") + _exact(event))
            stream.write("]}\n")
        else:
            for event in found.events(execution_id=execution):
                stream.write(_exact(event) + "\n")


# -- rows ----------------------------------------------------------------------------------------------------


def _open(settings: Settings) -> EventLog:
    from fumehood.agent import EventLog

    return EventLog(settings.log_path(), read_only=True)


def _rows(found: EventLog, execution: str | None, call_id: str | None, kind: str | None) -> Iterator[Event]:
    wanted = kind.upper().replace("-", "_") if kind is not None else None
    if wanted is not None:
        _known_kind(wanted)
    for event in found.events(execution_id=execution, call_id=call_id):
        if wanted is None or event.kind == wanted:
            yield event


def _known_kind(wanted: str) -> None:
    import difflib

    from fumehood.agent import EVENT_KINDS

    if wanted not in EVENT_KINDS:
        close = difflib.get_close_matches(wanted, EVENT_KINDS, 1)
        meant = f"did you mean {close[0]}?" if close else f"kinds are {', '.join(sorted(EVENT_KINDS))}"
        raise ConfigError(f"--kind {wanted[:80]}: no row has this kind", hint=meant)


def _table(out: Output, rows: Any, *, with_call: bool) -> None:
    whole = len({event.at[:10] for event in rows}) > 1 or out.out.width >= WIDE
    cells = [
        (
            str(event.seq),
            event.at[:19].replace("T", " ") if whole else _time(event),
            event.kind,
            _what(event, with_call),
        )
        for event in rows
    ]
    out.table(("seq", "time", "kind", "what"), cells, styles=[_style(event) for event in rows], head=3)


def _what(event: Event, with_call: bool) -> str:
    """The call's id stands where a call begins and ends; between them it would only be noise."""
    named = with_call and event.call_id is not None and event.kind in ("CALL_STARTED", "CALL_ENDED")
    return f"{event.call_id} {summary(event)}" if named else summary(event)


def _time(event: Event) -> str:
    return event.at[11:23]


def _style(event: Event) -> str | None:
    if event.kind in ("EGRESS_DENIED", "SANDBOX_VIOLATION", "STEP_FAILED"):
        return "yellow"
    return (
        "red"
        if event.kind == "CALL_ENDED" and isinstance(event.data, dict) and event.data.get("outcome") != "ok"
        else None
    )


def summary(event: Event) -> str:
    """One row in a few words."""
    data: dict[str, Any] = event.data if isinstance(event.data, dict) else {"value": event.data}
    match event.kind:
        case "CALL_STARTED":
            runs = data.get("runs") if data.get("input") is None else None
            asked = runs or _short(data.get("input"))
            text = f"{data.get('tool')}" + (f" {asked}" if "input" in data else "")
        case "CALL_ENDED":
            reason = f" ({data['reason']})" if data.get("reason") else ""
            wall = (data.get("usage") or {}).get("wall_ms")
            text = f"{data.get('tool')} {data.get('outcome')}{reason}" + (
                f", {wall:g} ms" if isinstance(wall, float | int) else ""
            )
        case "EGRESS_ALLOWED":
            text = f"{data.get('host')}:{data.get('port')} at {data.get('pinned')}, by {data.get('rule')}"
        case "EGRESS_DENIED":
            text = f"{data.get('host') or data.get('text')}:{data.get('port') or '?'} {data.get('reason')}"
        case "EGRESS_CLOSED":
            words = (
                f"{data.get('host')}:{data.get('port')} sent {data.get('sent', 0)}, received "
                f"{data.get('received', 0)}"
            )
            text = words + (f", {data['reason']}" if data.get("reason") else "")
        case "TOOL_EVENT":
            text = f"{data.get('tool')} {data.get('kind')} {_short(data.get('data'))}"
        case "CONTENT_STORED":
            text = f"{data.get('address')} {data.get('size')} bytes {data.get('media_type')}"
        case "HOST_STARTED":
            text = f"pid {data.get('pid')}, tier {data.get('tier')}"
        case "POLICY_LOADED":
            text = f"{data.get('source') or 'defaults'} {str(data.get('digest'))[:12]}"
        case _:
            text = _short(data)
    text = one_line(text)
    return text if len(text) <= SUMMARY_CHARS else f"{text[: SUMMARY_CHARS - 1]}…"


def _short(value: object) -> str:
    text = json_text(value)
    return text if len(text) <= SUMMARY_CHARS else f"{text[:SUMMARY_CHARS]}…"


def _exact(event: Event) -> str:
    """ASCII, so that the row survives every editor and transport as it was."""
    return json.dumps(asdict(event), separators=(",", ":"))


def _anchor(text: str | None) -> Head | None:
    if text is None:
        return None
    from fumehood.agent import Head

    seq, _, hash_ = text.partition(":")
    if not seq.isdecimal() or len(hash_) != 64:
        raise ConfigError(
            f"--anchor {text[:90]!r} is not SEQ:HASH", hint="`fumehood log verify` prints it as `head`"
        )
    return Head(int(seq), hash_)


@contextlib.contextmanager
def _target(output: str | None) -> Iterator[TextIO]:
    """stdout, or a new file that is whole or not there."""
    if output is None:
        yield sys.stdout
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        stream = Path(output).open("x", encoding="utf-8")  # noqa: SIM115 - closed below, and removed on failure
    except FileExistsError:
        raise ConfigError(f"--output {output}: exists already", hint="name a file that does not") from None
    except OSError as error:
        raise ConfigError(
            f"--output {output}: {error.strerror}", hint="name a file in a folder that you can write"
        ) from error
    try:
        with stream:
            yield stream
    except BaseException as error:
        Path(output).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise ConfigError(f"--output {output}: {error.strerror}; nothing was left there") from error
        raise
