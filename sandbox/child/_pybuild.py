"""Building the Python engine: our guest program and componentize-py's CPython become one pre-initialised
component.

Two cached steps: the component (about ten seconds, needs componentize-py) and its compiled form
(seconds). The component differs from build to build (CPython's hash seed is drawn while it is made), so
it can't be pinned by hash: it is built on this machine, from an installed package and the files in
`guest/`, and kept in our own cache.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

from fumehood.sandbox.child._cache import Cache, bundle
from fumehood.sandbox.child._jsbuild import EngineFileError

GUEST = Path(__file__).parent / "guest"
FORMAT = "entry 2"  # changes with what the cache entry holds
APP, WIT, WORLD = "fumehood_guest", "script.wit", "script"
BUILD_TIMEOUT_S = 300  # fifteen seconds on a busy machine; more means that something hangs


def source_key(extra: Sequence[str]) -> str:
    """A digest over everything that decides what the component does. Raises: EngineFileError without
    componentize-py.
    """
    try:
        version = metadata.version("componentize-py")
    except metadata.PackageNotFoundError as error:
        raise EngineFileError(
            "the Python engine needs componentize-py; pip install 'fumehood[python-sandbox]'"
        ) from error
    digest = hashlib.sha256()
    for part in (
        FORMAT,
        version,
        *(path.name + path.read_text(encoding="utf-8") for path in sources()),
        *extra,
    ):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def sources() -> list[Path]:
    """The guest's own files, in a fixed order."""
    return [*sorted(GUEST.glob("*.py")), GUEST / WIT]


def make(cache: Cache, *, fuel: bool, progress: Callable[[str], None]) -> bytes:
    """The compiled component as a cache entry; the component itself is cached beside it, for the other
    settings.
    """
    import wasmtime
    from wasmtime import component

    from fumehood.sandbox.child._capi import make_config

    started = time.monotonic()
    source = cache.get_or_make(
        "component " + source_key(()), lambda: bundle({"component": build(progress)}, {})
    )
    progress("Python: compiling (once)")
    from fumehood.sandbox.child._cache import unbundle

    wasm = unbundle(source)[0]["component"]
    compiled = bytes(component.Component(wasmtime.Engine(make_config(fuel=fuel)), wasm).serialize())
    progress(f"Python: ready after {time.monotonic() - started:.1f} s")
    versions = sorted({v.decode() for v in re.findall(rb"wasi:cli/environment@(\d+\.\d+\.\d+)", wasm)})
    return bundle({"compiled": compiled}, {"component": hashlib.sha256(wasm).hexdigest(), "wasi": versions})


def build(progress: Callable[[str], None]) -> bytes:
    """Run componentize-py in an empty place. Raises: EngineFileError with its last line."""
    progress("Python: building the interpreter image (once, about ten seconds)")
    with tempfile.TemporaryDirectory(prefix="fumehood-python-") as folder:
        place = Path(folder)
        (place / "wit").mkdir()
        # It would put the site-packages of this machine on the guest's path; it is shown an empty one.
        nothing = place / "venv"
        (nothing / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages").mkdir(
            parents=True
        )
        for path in sources():
            shutil.copy(path, place / "wit" if path.name == WIT else place)
        out = place / "out.wasm"
        environment = {"PATH": os.environ.get("PATH", ""), "VIRTUAL_ENV": str(nothing), "HOME": folder}
        done = subprocess.run(
            [sys.executable, "-I", "-c", "import sys; from componentize_py import script; sys.exit(script())",
             "-d", "wit", "-w", WORLD, "componentize", "-p", ".", APP, "-o", str(out)],
            cwd=place, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
            timeout=BUILD_TIMEOUT_S, check=False,
        )  # fmt: skip
        if done.returncode != 0 or not out.exists():
            said = done.stderr.decode("utf-8", "replace").strip()
            raise EngineFileError(f"componentize-py failed: {said[-600:]}")
        return out.read_bytes()
