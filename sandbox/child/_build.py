"""Making compiled engines: in a process of its own, so that the host needs no wasmtime and a compiler bug
is not the host's.

`python -m fumehood.sandbox.child build js CACHE` fills the cache and prints progress, one line each.
`load_entry` is what the host uses afterwards: bytes that were verified at this load.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fumehood.sandbox.child import _jsbuild
from fumehood.sandbox.child._cache import Cache, bundle, unbundle
from fumehood.sandbox.child._settings import settings_key

Progress = Callable[[str], None]


def entry_key(engine: str, *, fuel: bool) -> str:
    """The cache key of an engine ("js" or "python") with or without fuel."""
    if engine == "js":
        return "js " + _jsbuild.source_key([settings_key(fuel=fuel)])
    from fumehood.sandbox.child import _pybuild

    return "python " + _pybuild.source_key([settings_key(fuel=fuel)])


def load_entry(cache: Cache, engine: str, *, fuel: bool) -> tuple[bytes, dict[str, Any]] | None:
    """The compiled module and its meta data, verified; None when it has to be built."""
    data = cache.get(entry_key(engine, fuel=fuel))
    if data is None:
        return None
    parts, meta = unbundle(data)
    return parts["compiled"], meta


def build(folder: Path, engine: str, *, fuel: bool, progress: Progress) -> None:
    """Build and store what is missing. Raises: EngineFileError with the package to install."""
    cache = Cache(folder)
    make = _make_js if engine == "js" else _make_python
    cache.get_or_make(entry_key(engine, fuel=fuel), lambda: make(cache, fuel, progress))


def _make_js(_cache: Cache, fuel: bool, progress: Progress) -> bytes:
    import wasmtime

    from fumehood.sandbox.child._capi import make_config

    started = time.monotonic()
    progress("JavaScript: setting up the engine once")
    image, meta = _jsbuild.bake(_jsbuild.find_reactor())
    progress("JavaScript: compiling")
    compiled = bytes(wasmtime.Module(wasmtime.Engine(make_config(fuel=fuel)), image).serialize())
    progress(f"JavaScript: ready after {time.monotonic() - started:.1f} s")
    digest = hashlib.sha256(image).hexdigest()
    return bundle({"compiled": compiled}, {"layout": _jsbuild.meta_dict(meta), "image": digest})


def _make_python(cache: Cache, fuel: bool, progress: Progress) -> bytes:
    from fumehood.sandbox.child import _pybuild

    return _pybuild.make(cache, fuel=fuel, progress=progress)
