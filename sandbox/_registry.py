"""Which backends there are: our own, and those of other packages by entry point."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from fumehood.policies.errors import ConfigError, SandboxUnavailable
from fumehood.sandbox._launch import WorkerLauncher
from fumehood.sandbox._monty import MontyBackend
from fumehood.sandbox._pool import WorkerPool
from fumehood.sandbox._process_backend import ProcessBackend
from fumehood.sandbox._protocol import GROUP, SandboxBackend
from fumehood.sandbox._wasm_backend import InProcessBackend, WasmBackend

logger = logging.getLogger(__name__)
DEFAULTS = {"js": "quickjs", "python": "cpython"}
LANGUAGES = ("js", "python")


def load_backends(
    pool: WorkerPool, launcher: WorkerLauncher, *, in_process: bool, cache: Path | None
) -> dict[str, SandboxBackend]:
    """Every backend by name. With `in_process` the names of the defaults lead to engines in this process."""
    found: dict[str, SandboxBackend] = {}
    for lang in LANGUAGES:
        found[DEFAULTS[lang]] = InProcessBackend(lang, cache=cache) if in_process else WasmBackend(lang, pool)
    found["monty"] = MontyBackend()
    found["process"] = ProcessBackend(launcher)
    for entry in metadata.entry_points(group=GROUP):
        try:
            backend = entry.load()()
        # another package's code; one that fails must not take the others along
        except Exception:
            logger.exception("sandbox backend %r of %s can't be loaded", entry.name, entry.value)
            continue
        if isinstance(backend, SandboxBackend) and entry.name not in found:
            found[entry.name] = backend
        else:
            logger.error("sandbox backend %r of %s is not one, or its name is taken", entry.name, entry.value)
    return found


def backend_for(backends: Mapping[str, SandboxBackend], lang: str, name: str | None) -> SandboxBackend:
    """The backend to use. Raises: ConfigError for one that doesn't exist or fit, SandboxUnavailable for
    one not installed.
    """
    if lang not in LANGUAGES:
        raise ConfigError(f"lang is {lang!r}; it must be one of {', '.join(LANGUAGES)}")
    wanted = name or DEFAULTS[lang]
    backend = backends.get(wanted)
    if backend is None:
        raise ConfigError(f"no sandbox backend {wanted!r}; there are {', '.join(sorted(backends))}")
    if lang not in backend.languages:
        raise ConfigError(f"backend {wanted!r} runs {', '.join(sorted(backend.languages))}, not {lang}")
    why = backend.unavailable()
    if why is not None:
        raise SandboxUnavailable(f"backend {wanted!r} can't be used: {why}")
    return backend
