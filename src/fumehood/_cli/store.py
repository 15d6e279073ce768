"""`fumehood store`: the content store by hand. For the operator, who owns the state folder."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fumehood._cli._output import Output
from fumehood._cli._settings import Settings, pass_settings
from fumehood._cli._values import DAYS
from fumehood.policies.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fumehood.agent import ContentStore

DAY_S = 86_400.0
CHUNK = 1024 * 1024


def open_store(settings: Settings) -> ContentStore:
    """The content store of the configured state folder."""
    from fumehood._host import STORE_FOLDER
    from fumehood.agent import ContentStore

    return ContentStore(Path(settings.load_or_default().host.state) / STORE_FOLDER)


@click.group(short_help="The content store.")
def store() -> None:
    """Bytes under the SHA-256 of themselves, each with the set of its owners."""


@store.command()
@click.argument("file", default="-", metavar="[FILE|-]")
@click.option("--media-type", metavar="TYPE", help="What the bytes are; else judged by their signature.")
@click.option("--owner", metavar="NAME", default="operator", show_default=True, help="Who owns them.")
@pass_settings
def put(settings: Settings, file: str, media_type: str | None, owner: str) -> None:
    """Store a file and print its address. Bytes that are not what --media-type says are refused (exit 3)."""
    from fumehood.agent import EventLog, MessageStructureError, media_fault, sniff
    from fumehood.agent._media import MEDIA_TYPE

    if media_type is not None and not MEDIA_TYPE.fullmatch(media_type):
        raise click.UsageError(
            f"--media-type: {media_type!r} is not a media type; write it in lower case without parameters, "
            "as image/png"
        )
    data = b"".join(_pieces(file))
    kind = media_type or sniff(data) or ("text/plain" if _is_text(data) else "application/octet-stream")
    if (fault := media_fault(kind, data)) is not None:
        raise MessageStructureError(
            file, fault, hint="name the type the bytes have, or leave --media-type out"
        )
    with open_store(settings) as found:
        stored = found.put(data, kind, owner=owner)
    with EventLog(settings.log_path()) as log:
        log.record_sync("CONTENT_STORED", {**asdict(stored), "owner": owner, "by": "store put"})
    out = Output(settings)
    if settings.format == "json":
        out.json(asdict(stored))
    else:
        out.line(stored.address)


@store.command()
@click.argument("address")
@click.option("--output", "-o", metavar="FILE", help="Write there instead of to stdout.")
@pass_settings
def get(settings: Settings, address: str, output: str | None) -> None:
    """The bytes of an address, checked against it. In json as base64."""
    from fumehood.agent._blobs import ADDRESS
    from fumehood.agent._media import encode_base64

    if not ADDRESS.fullmatch(address):
        raise click.UsageError(
            f"{address!r} is not a content address; addresses look like sha256: and 64 hex digits"
        )
    with open_store(settings) as found:
        data = found.get(address)
        stored = found.stat(address)
    if output is not None:
        try:
            Path(output).write_bytes(data)
        except OSError as error:
            raise ConfigError(f"--output {output}: {error.strerror}") from error
    if settings.format == "json":
        about = asdict(stored) if stored is not None else {}
        Output(settings).json(about | ({} if output is not None else {"data": encode_base64(data)}))
    elif output is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)


@store.command()
@click.option("--owner", metavar="NAME", help="Only what this owner put.")
@pass_settings
def ls(settings: Settings, owner: str | None) -> None:
    """What is stored."""
    with open_store(settings) as found:
        items = [(item, sorted(found.owners(item.address))) for item in found.ls(owner=owner)]
    out = Output(settings)
    if settings.format == "json":
        out.json({"items": [{**asdict(item), "owners": owners} for item, owners in items]})
    elif not items:
        out.note("nothing is stored")
    else:
        rows = [(str(item.size), item.media_type, item.address, ", ".join(owners)) for item, owners in items]
        out.table(("bytes", "type", "address", "owners"), rows)


@store.command(short_help="Find content that no row of the log cites, and erase it.")
@click.option("--reclaim", is_flag=True, help="Erase what nothing cites; without it only a report.")
@click.option(
    "--older-than",
    metavar="DAYS",
    type=DAYS,
    default=7.0,
    show_default=True,
    help="Age from which uncited content may go.",
)
@click.option(
    "--reasoning-older-than",
    metavar="DAYS",
    type=DAYS,
    help="Age at which captured reasoning goes.",
)
@pass_settings
def sweep(settings: Settings, reclaim: bool, older_than: float, reasoning_older_than: float | None) -> None:
    """Find content that no row of the event log cites, and with --reclaim erase it."""
    from fumehood.agent import EventLog, NewEvent, sweep_unpinned_content

    log = EventLog(settings.log_path(), read_only=True)
    with open_store(settings) as found:
        report = sweep_unpinned_content(
            found,
            log.events(),  # a missing log raises: without it everything would look uncited
            reclaim_orphans=reclaim,
            ttl_s=older_than * DAY_S,
            reasoning_ttl_s=None if reasoning_older_than is None else reasoning_older_than * DAY_S,
        )
        leftovers = found.reclaim() if reclaim else []
    if report.erased:
        rows = [
            NewEvent("CONTENT_ERASED", {"address": address, "by": "store sweep"}) for address in report.erased
        ]
        with EventLog(settings.log_path()) as writing:
            writing.record_many_sync(rows)
    out = Output(settings)
    if settings.format == "json":
        out.json({**asdict(report), "leftovers": leftovers})
        return
    out.line(
        f"{len(report.pinned)} cited, {len(report.orphans)} uncited and old, {len(report.erased)} erased"
    )
    for address in report.orphans:
        out.line(f"  {address}" + (" erased" if address in report.erased else ""))
    if report.orphans and not reclaim:
        out.note("run again with --reclaim to erase them")


def _pieces(file: str) -> Iterator[bytes]:
    from fumehood.agent._store import MAX_BLOB_BYTES, ContentTooLarge

    total = 0
    try:
        with sys.stdin.buffer if file == "-" else Path(file).open("rb") as stream:
            while piece := stream.read(CHUNK):
                total += len(piece)
                if total > MAX_BLOB_BYTES:
                    raise ContentTooLarge(f"{file}: more than {MAX_BLOB_BYTES} bytes")
                yield piece
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from error


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return b"\x00" not in data
