"""`fumehood bench`: the benchmarks, peers side by side where they are installed."""

from __future__ import annotations

import click

from fumehood._bench import Options, present, run_area, show
from fumehood._bench.isolate import SECTION_NAMES
from fumehood._cli._loop import run_async
from fumehood._cli._output import Output
from fumehood._cli._settings import Settings, pass_settings


@click.command()
@click.argument("areas", nargs=-1, metavar=f"[{'|'.join(present())}]...", type=click.Choice(present()))
@click.option("--rounds", type=click.IntRange(1, 100_000), default=100, show_default=True,
              help="Calls of each contestant; two more warm it up.")  # fmt: skip
@click.option(
    "--quick", is_flag=True, help="Three rounds: shows that everything runs. The figures mean nothing."
)
@click.option("--only", multiple=True, metavar="SECTION", type=click.Choice(SECTION_NAMES),
              help=f"A part of isolate; may be repeated: {', '.join(SECTION_NAMES)}.")  # fmt: skip
@pass_settings
def bench(
    settings: Settings, areas: tuple[str, ...], rounds: int, quick: bool, only: tuple[str, ...]
) -> None:
    """The benchmarks: of the areas that are named, or of all.

    All contestants of a section run interleaved; compare rows of one run, never of two. Let nothing else run
    meanwhile.
    """
    out = Output(settings)
    options = Options(rounds, quick, only, say=out.note)
    wanted = areas or (["isolate"] if only else present())
    reports = [run_async(run_area(area, options)) for area in dict.fromkeys(wanted)]
    if settings.format == "json":
        out.json({"areas": {report.area: report.to_json() for report in reports}})
        return
    for report in reports:
        show(out, report)
