"""What the global options say, for the verb that runs: which file, which output."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

if TYPE_CHECKING:
    from fumehood.policies.config import Config


@dataclass(slots=True)
class Settings:
    """config: the file of --config, None when not given. color: None decides by terminal and NO_COLOR."""

    config: str | None = None
    format: Literal["text", "json"] = "text"
    quiet: bool = False
    color: bool | None = None

    def load(self) -> Config:
        """The configuration. Raises ConfigError when there is none."""
        from fumehood.policies.load import load_config

        return load_config(self.config)

    def load_or_default(self) -> Config:
        """The configuration, or the defaults where no file was named and ./fumehood.toml is not there.

        Raises ConfigError for a file that is there and wrong: it is never taken for absent.
        """
        from fumehood.policies.load import FILE_NAME, VARIABLE

        if self.config is None and not os.environ.get(VARIABLE) and not os.path.lexists(FILE_NAME):
            from fumehood.policies.config import Config

            return Config(version=1)
        return self.load()

    def log_path(self) -> Path:
        """Where the event log is."""
        from fumehood._host import LOG_FILE

        return Path(self.load_or_default().host.state) / LOG_FILE


pass_settings = click.make_pass_decorator(Settings, ensure=True)


def _set(name: str, value: object | None = None) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(context: click.Context, parameter: click.Parameter, given: Any) -> None:
        if given is not None and given is not False:
            setattr(context.ensure_object(Settings), name, given if value is None else value)

    return callback


def global_options() -> list[click.Option]:
    """Fresh copies of the options every command takes, before and after its verb."""
    return [
        click.Option(
            ["--config"],
            metavar="FILE",
            expose_value=False,
            is_eager=True,
            callback=_set("config"),
            help="The configuration; else $FUMEHOOD_CONFIG, else ./fumehood.toml.",
        ),
        click.Option(
            ["--format"],
            type=click.Choice(["text", "json"]),
            expose_value=False,
            is_eager=True,
            callback=_set("format"),
            help="json: one object on stdout and nothing else.",
        ),
        click.Option(
            ["--quiet"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_set("quiet"),
            help="Only results and errors.",
        ),
        click.Option(
            ["--no-color"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_set("color", value=0),
            help="No colours; NO_COLOR does the same.",
        ),
    ]
