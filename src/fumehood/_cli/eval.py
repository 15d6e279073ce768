"""`fumehood eval FILE`: a script a model wrote, in the WASM sandbox. Its value goes to stdout, its
console to stderr.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fumehood._cli._loop import progress, run_async
from fumehood._cli._output import Output
from fumehood._cli._settings import Settings, pass_settings
from fumehood._cli._values import NAME, SECONDS, memory_size, read_file
from fumehood._cli.call import decoded, parse_json, show_result
from fumehood.policies.errors import ConfigError

if TYPE_CHECKING:
    from fumehood import CallResult
    from fumehood.policies.config import Config

_NOT_DEFINED = re.compile(r"(?:name )?'?(\w+)'? is not defined")
LEAST_MEMORY = 1 << 20  # no engine starts with less
LANGUAGES = {".js": "js", ".mjs": "js", ".py": "python"}


@click.command("eval", short_help="A script a model wrote, in the WASM sandbox.")
@click.option("--lang", type=click.Choice(["js", "python"]), help="Default: by the file's name, else js.")
@click.option("--backend", metavar="NAME", help="Another engine than quickjs or cpython.")
@click.option("--input", "given", metavar="JSON", help="A value that the script finds as `input`.")
@click.option(
    "--tool", "tools", metavar="NAME", multiple=True, help="A configured tool it may call. Repeatable."
)
@click.option("--allow", metavar="RULE", multiple=True, help="An egress rule; grants `fetch`. Repeatable.")
@click.option(
    "--time",
    "time_s",
    metavar="SECONDS",
    type=SECONDS,
    default=10.0,
    show_default=True,
    help="Wall time, waiting for tools included.",
)
@click.option("--memory", metavar="SIZE", help='As "64 MiB". Default: 64 MiB for js, 256 MiB for python.')
@click.option("--execution", metavar="ID", type=NAME, help="Group the rows in the log under this id.")
@click.option("--principal", metavar="NAME", type=NAME, help="On whose behalf it runs; stands in the log.")
@click.argument("file", metavar="(FILE|-)")
@pass_settings
@click.pass_context
def eval_(
    ctx: click.Context,
    settings: Settings,
    lang: str | None,
    backend: str | None,
    given: str | None,
    tools: tuple[str, ...],
    allow: tuple[str, ...],
    time_s: float,
    memory: str | None,
    execution: str | None,
    principal: str | None,
    file: str,
) -> None:
    """Run the script in FILE, or from stdin (-), in a fresh WASM instance inside a caged worker.

    Its last expression is its value. It has no files, no network, no clock; --tool grants configured
    tools as functions.
    """
    from fumehood import Host
    from fumehood.sandbox import Limits

    config = settings.load() if tools else settings.load_or_default()
    code = read_script(file)
    language = lang or LANGUAGES.get(Path(file).suffix, "js")
    value = None if given is None else parse_json(given, "--input")
    size = None if memory is None else memory_size(memory, least=LEAST_MEMORY)
    try:
        limits = Limits(wall_s=time_s, memory=size)
    except ValueError as error:
        raise ConfigError(f"--time {time_s:g}: {error}") from None

    async def work() -> CallResult:
        with progress(settings, "running the script"):
            async with Host(config, spares=0) as host:
                return await host.eval(
                    code, lang=language, input=value, tools=tools, allow=allow, limits=limits,
                    backend=backend, execution_id=execution, principal=principal,
                )  # fmt: skip

    result = _with_hint(run_async(work()), config, granted=tools, fetch=bool(allow))
    out = Output(settings)
    if settings.format == "json":
        out.json(result.to_json())
    else:
        show_result(out, result)
    ctx.exit(result.exit_code)


def _with_hint(result: CallResult, config: Config, *, granted: Sequence[str], fetch: bool) -> CallResult:
    """The result, with what to grant where the script asked for a name that it could have been given."""
    said = result.error or {}
    missing = _NOT_DEFINED.fullmatch(str(said.get("message")))
    if missing is None or said.get("type") not in ("ReferenceError", "NameError"):
        return result
    name = missing[1]
    known = {tool.replace("-", "_"): tool for tool in config.tools if tool not in granted}
    if name in known:
        hint = f"{known[name]} is configured, and the script was not granted it: --tool {known[name]}"
    elif name == "fetch" and not fetch:
        hint = "a script has fetch when it was granted a host: --allow RULE"
    else:
        return result
    return replace(result, error={**said, "hint": hint})


def read_script(file: str) -> str:
    """The script's text. Raises ConfigError when it can't be read or isn't UTF-8."""
    from fumehood.sandbox._model import MAX_CODE

    data = read_file(file, most=4 * MAX_CODE, hint="FILE, or - for stdin")
    return decoded(data, "stdin" if file == "-" else file)
