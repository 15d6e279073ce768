"""`fumehood demo`: shows and checks the main job in a few seconds."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

import click

from fumehood._cli._loop import run_async
from fumehood._cli._output import Output
from fumehood._cli._settings import Settings, pass_settings
from fumehood.policies.errors import SandboxUnavailable

if TYPE_CHECKING:
    from fumehood._demo import Tour


@click.command()
@click.option("--keep", is_flag=True, help="Leave the folder with configuration, log and store.")
@pass_settings
@click.pass_context
def demo(ctx: click.Context, settings: Settings, keep: bool) -> None:
    """The main job on built-in examples, offline: honest and hostile tools, lying names, and the record of it
    all.

    Exit code 1 when anything comes out other than it must, 4 when this machine cannot build the sandbox.
    """
    ctx.exit(0 if run_async(_demo(Output(settings), keep)) else 1)


async def _demo(out: Output, keep: bool) -> bool:
    from fumehood import Host, load_config
    from fumehood._demo import Tour, open_world, take_tour
    from fumehood._demo.report import Report, as_json
    from fumehood._demo.tour import verify_log

    started = time.perf_counter()
    as_text = out.settings.format == "text"
    with open_world(keep=keep) as world:
        async with Host(load_config(world.folder / "fumehood.toml"), dial=world.dial) as host:
            tour = Tour(host, world)
            report = Report(out)
            if as_text and not out.settings.quiet:
                report.start(str(world.folder), host.tier, world.moved)
            async with contextlib.aclosing(take_tour(tour)) as lines:
                async for line in lines:
                    _stop_where_no_cage_is_to_be_had(tour)
                    if as_text and not (out.settings.quiet and line.held):
                        report.line(line)
            verified = await verify_log(tour)
            seconds = time.perf_counter() - started
            if not as_text:
                out.json(as_json(tour, verified, seconds))
            else:
                report.finish(tour, verified, seconds)
                if not out.settings.quiet:
                    report.where_next(str(world.folder) if keep else None)
    return verified[0] and all(line.held for line in tour.lines)


def _stop_where_no_cage_is_to_be_had(tour: Tour) -> None:
    """Raises SandboxUnavailable after the first call: the others would say the same."""
    first = tour.calls[0].result
    if (first.outcome, first.reason) == ("sandbox_error", "tier"):
        said = first.error or {}
        raise SandboxUnavailable(
            str(said.get("message")), hint="`fumehood doctor` names the layer that is missing, and its remedy"
        )
