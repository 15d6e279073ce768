"""What `Host.run` gives a program of the file system: checked as a tool's paths are when a file is loaded.

Guarantees: neither the state folder nor a secret's file is passed in, nor anything in them (above them they
are hidden, see `Config.never_visible`); and the program cannot change the configuration that it runs under,
or the one that the next command in this folder would obey. Tools' code and all else below a `write` is the
program's to change: who grants a folder means the folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fumehood._toolspec import working_folder
from fumehood.policies._checks import real
from fumehood.policies._fields import collect_pattern, never_granted
from fumehood.policies.errors import ConfigError
from fumehood.policies.load import FILE_NAME

if TYPE_CHECKING:
    from fumehood.policies.config import Config


def check(config: Config, paths: Sequence[str | Path]) -> None:
    """Raises ConfigError for a path that is not there, or that no sandbox is given."""
    hidden = [real(path) for path in config.never_visible]
    for path in paths:
        if not Path(path).exists():
            raise ConfigError(f"{path}: no such file or folder to grant", hint="name a path that exists")
        if (fault := never_granted(Path(path))) is not None:
            raise ConfigError(f"{path}: {fault}")
        opened = real(Path(path))
        for kept in hidden:
            if opened == kept or kept in opened.parents:
                raise ConfigError(
                    f"{path}: no sandbox is shown {kept}, the state folder or a secret's file",
                    hint="copy what the program needs to another place, and grant that",
                )


def kept_as_they_are(config: Config, write: Sequence[str | Path], *, by_mounts: bool) -> tuple[Path, ...]:
    """Configurations below a `write`, to be shown read-only.

    by_mounts: whether a file below a writable folder can be (tier `namespaces`). Raises ConfigError where it
    cannot, and for a `write` that names the file itself.
    """
    here = working_folder()
    files = {real(file) for file in (config.file, here and here / FILE_NAME) if file and file.is_file()}
    kept = []
    for file in sorted(files):
        for path in map(Path, write):
            if real(path) == file or (real(path) in file.parents and not by_mounts):
                raise ConfigError(
                    f"{path}: would let the program change the configuration {file}",
                    hint="grant a narrower path, or keep the file elsewhere and name it with --config",
                )
            if real(path) in file.parents:
                kept.append(file)
    return tuple(dict.fromkeys(kept))


def patterns(given: Sequence[str]) -> tuple[str, ...]:
    """Patterns of files to hand back. Raises ConfigError for one that is none."""
    for text in given:
        try:
            collect_pattern(text)
        except ValueError as error:
            raise ConfigError(f"collect {text!r}: {error}") from None
    return tuple(given)
