"""The errors of a model call, as one tree below FumehoodError.

    FumehoodError
    ├── GuardError                       the request may not go to a model       exit 3
    │   ├── UntrustedContentError        tainted content in an instruction position
    │   ├── MessageStructureError        the request is not a well-formed one
    │   ├── OversizedInlinePartError     inline media past a cap
    │   ├── UnsupportedModalityError     this model does not take such content
    │   └── UnresolvedContentError       a stored reference could not be read
    ├── ProviderError                    the vendor or the way to it failed      exit 1
    └── AgentLoopConfigError             the loop is configured against itself   exit 2

`path` says where in the request, in the form of contract.md section 6. The class name is what `guard check`
prints as `error`.
"""

from __future__ import annotations

from typing import ClassVar, Self

from fumehood.policies.errors import ConfigError, FumehoodError


class GuardError(FumehoodError):
    """The request was refused before any byte left. path: the place, as `messages[2].content[0].input.q`."""

    exit_code: ClassVar[int] = 3

    def __init__(self, path: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(f"{path}: {message}" if path else message, hint=hint)
        self.path = path
        self.why = message

    def below(self, place: str) -> Self:
        """The same refusal, its path told from further out: `below("messages[2]")`."""
        dot = "." if place and self.path and not self.path.startswith("[") else ""
        return type(self)(f"{place}{dot}{self.path}", self.why, hint=self.hint)

    def as_dict(self) -> dict[str, object]:
        """The refusal as `guard check` prints it."""
        return {"outcome": "refused", "error": type(self).__name__, "path": self.path, "message": str(self)}


class UntrustedContentError(GuardError):
    """Tainted content where only the application or the model may speak, or too much content to be
    checked.
    """


class MessageStructureError(GuardError):
    """The request breaks the shape of contract.md section 6: a wrong type, an unknown field, a part
    in the wrong message.
    """


class OversizedInlinePartError(GuardError):
    """Inline media over the cap of one part or of the request. Store the bytes and cite the address
    instead.
    """


class UnsupportedModalityError(GuardError):
    """The provider has not declared this media type, or a reference came without a resolver (R117)."""


class UnresolvedContentError(GuardError):
    """A reference's bytes are absent, not the caller's, too large, of another size or type, or
    could not be read.
    """


class ProviderError(FumehoodError):
    """The model call failed at the vendor or on the way.

    status: the HTTP status, or None when there was no answer. retryable: whether trying again later may help.
    """

    def __init__(
        self, message: str, *, status: int | None = None, retryable: bool = False, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.retryable = retryable


class AgentLoopConfigError(ConfigError):
    """Settings of a model effect or loop that contradict each other."""
