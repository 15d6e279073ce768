"""Secrets from where the operator keeps them: a variable, a file, a systemd credential.

Guarantees: a value is read at the moment it is needed and kept nowhere; an error names the secret and the
place that was looked at, and never a part of the value; `Secret` shows nothing when it is printed, logged or
formatted.
Before editing: there is no cache on purpose, so that a rotated secret is used by the next call.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from fumehood.policies.errors import ConfigError

MAX_SECRET_BYTES = 64 * 1024
"""A token or a key; a larger file is the wrong file.

Also well below what one environment entry may be (128 KiB).
"""


class Source(Protocol):
    """Where a secret is; `fumehood.policies.config.SecretSource` is one. Exactly one is not None."""

    @property
    def env(self) -> str | None: ...
    @property
    def file(self) -> Path | None: ...
    @property
    def credential(self) -> str | None: ...


class Secret:
    """A secret's value that shows itself only when asked: `reveal()`.

    It cannot be pickled, compared by order, or printed.
    """

    __slots__ = ("_name", "_value")

    def __init__(self, name: str, value: str) -> None:
        self._name = name
        self._value = value

    def reveal(self) -> str:
        """The value itself. Hand it on at once; keep no copy."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({self._name!r}, not shown)"

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a Secret is never pickled")


def read_secret(source: Source, name: str) -> Secret:
    """The secret `name` from `source`.

    Files and credentials lose exactly one newline at their end, which editors add; all else is the secret's
    own.
    Raises: ConfigError naming the secret and the place.
    """
    if source.env is not None:
        value = os.environ.get(source.env)
        if value is None:
            raise ConfigError(
                f"secret {name}: the variable {source.env} is not set",
                hint=f"set {source.env} in the environment that starts fumehood",
            )
        return _checked(value, name, f"the variable {source.env}")
    if source.file is not None:
        return _from_file(source.file, name)
    if source.credential is not None:
        folder = os.environ.get("CREDENTIALS_DIRECTORY")
        if not folder:
            raise ConfigError(
                f"secret {name}: no credentials were passed ($CREDENTIALS_DIRECTORY is not set)",
                hint=f"start fumehood as a systemd unit with LoadCredential={source.credential}:PATH",
            )
        return _from_file(Path(folder) / source.credential, name)
    raise ConfigError(f"secret {name}: has none of env, file and credential")


def resolve_secret(source: Source, name: str) -> str:
    """`read_secret(source, name).reveal()`, for a caller that hands the value on at once."""
    return read_secret(source, name).reveal()


def _from_file(path: Path, name: str) -> Secret:
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_SECRET_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"secret {name}: {path} cannot be read: {error.strerror}") from None
    if len(data) > MAX_SECRET_BYTES:
        raise ConfigError(f"secret {name}: {path} is larger than {MAX_SECRET_BYTES} bytes")
    try:
        value = data.decode("utf-8")
    except UnicodeDecodeError:
        # The decoder's own message would quote a byte of the secret.
        raise ConfigError(f"secret {name}: {path} is not UTF-8") from None
    return _checked(value.removesuffix("\n"), name, str(path))


def _checked(value: str, name: str, place: str) -> Secret:
    if not value:
        raise ConfigError(f"secret {name}: {place} is empty")
    if "\0" in value:
        raise ConfigError(f"secret {name}: {place} holds a NUL character, which no environment can")
    return Secret(name, value)
