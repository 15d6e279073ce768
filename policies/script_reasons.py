"""The sentences of `reasons` where what ended was a script and not a tool: the same codes, other words.

A script has no timeout_s and no process tree, so the sentences about tools would send their readers to the
wrong place. `script_reason` falls back to the general sentences, which already speak of scripts where a code
is theirs alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from fumehood.policies.reasons import REASONS, Reason

_WORDS: Mapping[str, tuple[str, str]] = {
    "timeout": (
        "The script was still running when its wall time ended, waiting for tools included, and was stopped.",
        "The script did not finish in its time and was stopped; let it do less, or wait for fewer tools.",
    ),
    "cpu": (
        "The script used up its budget of instructions (fuel) and was stopped.",
        "The script computed for longer than it may and was stopped; let it compute less.",
    ),
    "memory": (
        "The script wanted more memory than it may have and was stopped.",
        "The script needed more memory than it may use; let it work on smaller pieces of the data.",
    ),
    "output": (
        "The script's value, stdout and stderr together were larger than it may return.",
        "The script's output was too large to pass on; let it print less and return a shorter value.",
    ),
    "cancelled": (
        "The caller cancelled the script before it ended.",
        "The script was cancelled; nothing of its result is known.",
    ),
    "input-schema": (
        "The script could not be run as asked: language, engine, tools or input; the message says which.",
        "The script could not be run as asked; correct what the message names.",
    ),
    "oversized-input": (
        "The script, its input or its snapshot is larger than one script may be, so it was not started.",
        "The script or its input is too large; send less at once.",
    ),
    "tier": (
        (
            "The engine that scripts run in is not installed, or cannot be started in the cage that "
            "require_tier asks for; the message and `fumehood doctor` say more."
        ),
        "Scripts cannot run on this machine; running it again will not help.",
    ),
    "protocol": (
        "The script's worker process sent something that is not a frame of the protocol, and was killed.",
        "The script broke off in a way that leaves no answer; running it again will probably fail.",
    ),
    "crashed": (
        "The script's worker process died, or the script's engine gave up, before there was a result.",
        "The script's engine crashed; running the same script again will probably crash it again.",
    ),
    "start": (
        "The script could not be started: its file cannot be read, or its snapshot is of another engine.",
        "The script could not be started; running it again will not help until its operator repairs it.",
    ),
}

SCRIPT_REASONS: Mapping[str, Reason] = MappingProxyType(
    {
        code: replace(REASONS[code], operator=operator, model=model)
        for code, (operator, model) in _WORDS.items()
    }
)
"""The reasons that read otherwise for a script, by code."""


def script_reason(code: str | None) -> Reason | None:
    """The reason as it reads for a script; None when there is no such code."""
    return SCRIPT_REASONS.get(code or "") or REASONS.get(code or "")
