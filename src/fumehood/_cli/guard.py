"""`fumehood guard`: a model request through the guard, and the body that would go to a provider. No
network.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fumehood._cli._loop import run_async
from fumehood._cli._output import Output
from fumehood._cli._settings import Settings, pass_settings
from fumehood.policies.errors import ConfigError

if TYPE_CHECKING:
    from fumehood.agent._parts import ContentRef
    from fumehood.agent._resolve import ContentResolver, ResolveContext

MAX_REQUEST_BYTES = 256 * 1024 * 1024
EXIT_REFUSED = 3


@click.group(short_help="A model request through the guard.")
def guard() -> None:
    """What may enter a transcript: the guard's answer to a request in JSON (docs/messages.md has
    its form).
    """


@guard.command()
@click.argument("file", default="-", metavar="[FILE|-]")
@pass_settings
@click.pass_context
def check(ctx: click.Context, settings: Settings, file: str) -> None:
    """The guarded request, or the refusal (exit code 3)."""
    from fumehood.agent._guard_report import check_report, read_request

    _print(ctx, settings, check_report(read_request(_text(file), source="stdin" if file == "-" else file)))


@guard.command(short_help="The body that would go on a provider's wire.")
@click.option(
    "--provider",
    type=click.Choice(["anthropic", "openai", "openai-responses", "gemini"]),
    required=True,
    help="Whose wire; openai is Chat Completions.",
)
@click.option("--model", metavar="ID", help="The model; it decides which media are taken.")
@click.argument("file", default="-", metavar="[FILE|-]")
@pass_settings
@click.pass_context
def render(ctx: click.Context, settings: Settings, provider: str, model: str | None, file: str) -> None:
    """The body that would go on the provider's wire, or the refusal (exit code 3).

    References are read from the content store of the configured state folder.
    """
    from fumehood.agent._guard_report import read_request, render_report

    request = read_request(_text(file), source="stdin" if file == "-" else file)
    _print(ctx, settings, run_async(render_report(request, provider, model, resolver=_resolver(settings))))


def _print(ctx: click.Context, settings: Settings, report: dict[str, Any]) -> None:
    try:
        Output(settings).json(report)
    except RecursionError:  # an honest request may be nested deeper than the built-in writer goes
        from fumehood.agent._deep_json import write_deep

        sys.stdout.write(write_deep(report) + "\n")
    ctx.exit(EXIT_REFUSED if report.get("outcome") == "refused" else 0)


def _text(file: str) -> str:
    try:
        if file == "-":
            raw = sys.stdin.buffer.read(MAX_REQUEST_BYTES + 1)
        else:
            with Path(file).open("rb") as stream:
                raw = stream.read(MAX_REQUEST_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f"{file}: cannot be read: {error.strerror}", hint="FILE holds a request in JSON; - is stdin"
        ) from error
    if len(raw) > MAX_REQUEST_BYTES:
        raise ConfigError(f"{file}: more than {MAX_REQUEST_BYTES} bytes")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not UTF-8 at byte {error.start}") from error


def _resolver(settings: Settings) -> ContentResolver:
    async def resolve(ref: ContentRef, context: ResolveContext) -> bytes | None:
        # Whoever runs this command can read the store's files anyway, so ownership is not asked.
        from fumehood._cli.store import open_store
        from fumehood.agent import ContentMissing

        with open_store(settings) as store:
            try:
                return store.get(ref.address)
            except ContentMissing:
                return None

    return resolve
