"""What a test machine must be able to do, as words: `FUMEHOOD_TEST_TIER=namespaces,landlock=7,seccomp`.

A word is a tier (`namespaces`, `landlock`), a layer of the contract (`proc`, `seccomp`, `keyring`: it has to
be FULL) or `landlock=N` (the kernel's Landlock has at least version N, and its layers are in force). A
machine that is weaker fails its tests instead of passing over the ones it cannot run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from fumehood.isolate.child import _uapi_landlock
from fumehood.isolate.doctor import Examination
from fumehood.isolate.tiers import LAYERS

VARIABLE = "FUMEHOOD_TEST_TIER"
DEFAULT = "namespaces,landlock,seccomp"
_STRENGTH = {"none": 0, "landlock": 1, "namespaces": 2}


def wanted() -> list[str]:
    """The words that hold for this run."""
    return [word.strip() for word in os.environ.get(VARIABLE, DEFAULT).split(",") if word.strip()]


def shortfalls(words: list[str], seen: Examination, landlock: int | None = None) -> Iterator[str]:
    """One sentence for each word that the machine does not reach.

    landlock: version of the kernel's Landlock, asked for when it is not given. Raises ValueError for a word
    that means nothing.
    """
    for word in words:
        name, _, least = word.partition("=")
        if name == "namespaces" and not least:
            if _STRENGTH[seen.tier] < _STRENGTH[name]:
                yield f"tier {seen.tier}, not {name}: {seen.trouble or 'no reason given'}"
        elif name == "landlock" and (not least or least.isdigit()):
            version = _uapi_landlock.abi() if landlock is None else landlock
            if version < int(least or 1):
                yield f"Landlock has version {version}, not {least or 1}"
            yield from _not_full(seen, [layer for layer in LAYERS if layer.startswith("landlock-")])
        elif name in LAYERS and not least:
            yield from _not_full(seen, [name])
        else:
            raise ValueError(
                f"{VARIABLE}: {word!r} is no tier, no layer and not landlock=N; layers: {', '.join(LAYERS)}"
            )


def _not_full(seen: Examination, layers: list[str]) -> Iterator[str]:
    for layer in layers:
        report = seen.layers[layer]
        if report.level != "FULL":
            yield f"layer {layer} is {report.level}: {report.detail or 'no reason given'}"
