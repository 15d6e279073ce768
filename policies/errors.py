"""The exceptions fumehood raises, as one tree. A leaf says whose fault it is, so the type is enough to act
on.

    FumehoodError
    ├── ConfigError          the operator's file is wrong            exit 2
    │   └── RuleError        one egress rule in it is wrong          exit 2
    ├── PolicyDenied         policy said no; asking again is futile  exit 3
    ├── SandboxUnavailable   this kernel cannot give the layer       exit 4
    ├── ToolError            the tool failed by its own doing        exit 1
    └── HostError            fumehood or its machine failed          exit 1

"This machine cannot" (SandboxUnavailable) and "your request is wrong" (ConfigError) are different types on
purpose: the first is fixed by another kernel, the second by another file. Imports nothing but the standard
library; the command line reads `exit_code` and never a table of its own.
"""

from __future__ import annotations

from typing import ClassVar


class FumehoodError(Exception):
    """Root of everything fumehood raises on purpose.

    message: what happened, with place and value. hint: the remedy, or None when there is none to give.
    str() is the message, and "Hint: …" on its own line when there is a hint.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nHint: {self.hint}"

    def __reduce__(self) -> tuple[object, ...]:
        # The default rebuilds from `args` alone and would lose what subclasses keep besides the message.
        return (_rebuild, (type(self), self.args, self.__dict__.copy()))


def _rebuild(kind: type[FumehoodError], args: tuple[object, ...], state: dict[str, object]) -> FumehoodError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class ConfigError(FumehoodError):
    """The configuration, a flag or a file it names is wrong. Nothing was started.

    problems: one finished sentence per fault when several were found at once; otherwise the message alone.
    """

    exit_code = 2

    def __init__(self, message: str, *, hint: str | None = None, problems: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.problems = problems or (message,)


class RuleError(ConfigError):
    """An egress rule cannot be read; the message gives the corrected rule where one is known."""


class PolicyDenied(FumehoodError):
    """Policy or the guard refused. The reason is one code of `fumehood.policies.reasons`.

    reason: that code, for programs. The message is the sentence for people.
    """

    exit_code = 3

    def __init__(self, message: str, *, reason: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class SandboxUnavailable(FumehoodError):
    """This machine cannot give a layer that the required tier needs; the request itself was in order."""

    exit_code = 4


class ToolError(FumehoodError):
    """The tool raised, returned what JSON cannot hold, or broke the protocol it speaks with the host."""


class HostError(FumehoodError):
    """fumehood itself, its state folder or its machine failed; neither the tool nor the file is to blame."""
