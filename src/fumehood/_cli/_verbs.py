"""The table of verbs, and the click groups that read it.

A verb's module is imported when the verb is used, so `--help` costs one import of click. A verb whose module
is not in this version is absent: neither listed nor accepted. Adding one: a row here, its module, its section
in docs/cli.md (a test compares).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from fumehood._cli._settings import global_options

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Verb:
    """where: "module:object" in this package. help: its line in the list of verbs."""

    where: str
    help: str

    @property
    def present(self) -> bool:
        return (_HERE / f"{self.where.partition(':')[0]}.py").exists()

    def load(self) -> click.Command:
        module, _, name = self.where.partition(":")
        command: click.Command = getattr(importlib.import_module(f"fumehood._cli.{module}"), name)
        return _with_global_options(command)


VERBS: Mapping[str, Verb] = {
    "demo": Verb("demo:demo", "The main job on built-in examples, offline."),
    "doctor": Verb("doctor:doctor", "What this machine can do, layer by layer."),
    "tools": Verb("tools:tools", "The configured tools."),
    "call": Verb("call:call", "One call of a tool."),
    "run": Verb("run:run", "Any command in a sandbox."),
    "eval": Verb("eval:eval_", "A script a model wrote, in the WASM sandbox."),
    "policy": Verb("policy:policy", "Check, print and try out the configuration."),
    "guard": Verb("guard:guard", "A model request through the guard."),
    "agent": Verb("agent:agent", "The agent loop over the configured tools."),
    "log": Verb("log:log", "Show, follow, verify and export the event log."),
    "explain": Verb("explain:explain", "Why a call ended as it did, in plain words."),
    "store": Verb("store:store", "The content store."),
    "mcp": Verb("mcp:mcp", "The configured tools as an MCP server."),
    "serve": Verb("serve:serve", "HTTP API and console page."),
    "worker": Verb("worker:worker", "A fleet worker."),
    "submit": Verb("submit:submit", "Send a call to the fleet."),
    "bench": Verb("bench:bench", "The benchmarks."),
}

POLICY_VERBS: Mapping[str, Verb] = {
    "check": Verb("policy:check", "Load the configuration and report."),
    "schema": Verb("policy:schema", "Print the JSON Schema of the configuration."),
    "test": Verb("policy_test:test", "The broker's verdict on one request, without a connection."),
    "suggest": Verb("policy_suggest:suggest", "Entries learned from audit mode."),
    "import": Verb("policy_import:import_", "Convert another program's policy."),
}


class LazyGroup(click.Group):
    """A group whose commands are rows of a table. table: name -> Verb."""

    def __init__(self, *args: object, table: Mapping[str, Verb] | None = None, **options: object) -> None:
        super().__init__(*args, **options)  # type: ignore[arg-type]
        self.table: Mapping[str, Verb] = table or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, verb in self.table.items() if verb.present]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = self.table.get(cmd_name)
        return verb.load() if verb is not None and verb.present else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.table[name].help) for name in self.list_commands(ctx)])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            raise click.UsageError(self._unknown(ctx, name), ctx)
        return super().resolve_command(ctx, args)

    def _unknown(self, ctx: click.Context, name: str) -> str:
        import difflib

        known = self.list_commands(ctx)
        close = difflib.get_close_matches(name, known, 1)
        meant = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(known)}"
        return f"no command {name[:80]!r}; {meant}"


def _with_global_options(command: click.Command) -> click.Command:
    """The same command, taking the global options after its verb as well."""
    known = {param.name for param in command.params}
    command.params += [option for option in global_options() if option.name not in known]
    if isinstance(command, click.Group) and not isinstance(command, LazyGroup):
        for child in command.commands.values():
            _with_global_options(child)
    return command


def _version(context: click.Context, parameter: click.Parameter, given: bool) -> None:
    if given:
        from fumehood import __version__

        click.echo(f"fumehood {__version__}")
        context.exit()


root = LazyGroup(
    name="fumehood",
    table=VERBS,
    help=(
        "Run tools nobody should have to trust: a fresh caged process per call, egress by name, a "
        "record of everything."
    ),
    epilog="Exit codes: 0 ok, 1 the tool failed, 2 usage, configuration or a failed check, 3 denied by "
    "policy, "
    "4 no sandbox at the required tier, 5 a limit was hit.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    params=[
        *global_options(),
        click.Option(
            ["--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_version,
            help="Print the version.",
        ),
    ],
)
