"""Where the engine's code comes from: pinned, rebuilt the same everywhere, and kept where nobody else can
write.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fumehood.sandbox import ScriptRunner
from fumehood.sandbox._registry import backend_for
from fumehood.sandbox._wasm_backend import WasmBackend
from fumehood.sandbox.child import _capi, _jsbuild, _wasm
from fumehood.sandbox.child._build import load_entry
from fumehood.sandbox.child._cache import Cache, CacheError, bundle, default_folder, unbundle
from fumehood.sandbox.child._jsbuild import EngineFileError


@pytest.mark.promise("sandbox:engine-is-pinned")
def test_an_engine_file_of_another_content_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_jsbuild, "REACTOR_SHA256", "0" * 64)
    with pytest.raises(EngineFileError, match="has SHA-256 1a4e0bce"):
        _jsbuild.find_reactor()


@pytest.mark.promise("sandbox:engine-is-pinned")
def test_the_edited_module_is_the_same_bytes_every_time() -> None:
    reactor = _jsbuild.find_reactor()
    first, second = _jsbuild.patch(reactor), _jsbuild.patch(reactor)
    assert first == second
    exports = [n for n in ("fh_bridge", "fh_send", "fh_run", "fh_pump") if n.encode() in first.module]
    assert exports == ["fh_bridge", "fh_send", "fh_run", "fh_pump"]
    assert b"qjs_init" not in first.module


@pytest.mark.anyio
@pytest.mark.promise("sandbox:engine-is-pinned")
async def test_another_process_bakes_the_same_image_as_the_one_in_the_cache(runner: ScriptRunner) -> None:
    await runner.prepare("js")
    code = (
        "import hashlib; from fumehood.sandbox.child import _jsbuild as b; "
        "print(hashlib.sha256(b.bake(b.find_reactor())[0]).hexdigest())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    cached = load_entry(Cache(default_folder()), "js", fuel=False)
    assert cached is not None and cached[1]["image"] == done.stdout.strip()


@pytest.mark.anyio
@pytest.mark.requirement("R017")
async def test_what_runs_a_script_unless_told_otherwise_is_quickjs_compiled_to_wasm(
    runner: ScriptRunner,
) -> None:
    chosen = backend_for(runner.backends(), "js", None)
    assert isinstance(chosen, WasmBackend) and chosen is runner.backends()["quickjs"]
    assert _jsbuild.patch(_jsbuild.find_reactor()).module[:8] == b"\0asm\1\0\0\0"
    used = (await runner.run("1 + 1")).usage["memory_bytes"]
    assert used > 0 and used % 65536 == 0, "the memory of a WASM instance is whole pages"


def test_what_is_not_the_reactor_is_refused() -> None:
    for data in (b"", b"\0asm\2\0\0\0", b"not wasm at all"):
        with pytest.raises(_wasm.WasmEditError):
            _wasm.function_names(data)


def test_numbers_are_written_as_wasm_writes_them() -> None:
    assert [_wasm.uleb(n) for n in (0, 127, 128, 624485)] == [b"\0", b"\x7f", b"\x80\1", b"\xe5\x8e&"]
    assert [_wasm.sleb(n) for n in (0, 63, 64, -1, -64, -65)] == [
        b"\0",
        b"?",
        b"\xc0\0",
        b"\x7f",
        b"@",
        b"\xbf\x7f",
    ]
    assert _wasm.read_uleb(b"\xe5\x8e&", 0) == (624485, 3)


@pytest.mark.promise("sandbox:cache-is-verified")
def test_a_cache_file_that_was_changed_is_thrown_away(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "c")
    cache.put("k", b"compiled")
    assert cache.get("k") == b"compiled"
    (file,) = (tmp_path / "c").glob("*.bin")
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    file.write_bytes(file.read_bytes()[:-1] + b"X")
    assert cache.get("k") is None
    assert not file.exists()
    assert cache.get_or_make("k", lambda: b"again") == b"again"


@pytest.mark.promise("sandbox:cache-is-verified")
def test_a_cache_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(CacheError, match="must be a folder of mode 0700 .* has mode 0777"):
        Cache(tmp_path)


@pytest.mark.promise("sandbox:cache-is-verified")
def test_a_cache_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "c")
    cache.put("k", b"compiled")
    (file,) = (tmp_path / "c").glob("*.bin")
    moved = tmp_path / "elsewhere"
    file.rename(moved)
    file.symlink_to(moved)
    assert cache.get("k") is None


def test_a_bundle_holds_its_parts() -> None:
    parts = {"a": os.urandom(100), "b": b""}
    assert unbundle(bundle(parts, {"x": [1]})) == (parts, {"x": [1]})


def test_what_nobody_loaded_for_a_month_is_removed(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "c")
    cache.put("old", b"x")
    (file,) = (tmp_path / "c").glob("*.bin")
    os.utime(file, (0, 0))
    cache.put("new", b"y")
    assert (cache.get("old"), cache.get("new")) == (None, b"y")


def test_what_is_loaded_stays(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "c")
    cache.put("old", b"x")
    (file,) = (tmp_path / "c").glob("*.bin")
    os.utime(file, (0, 0))
    assert cache.get("old") == b"x"
    cache.put("new", b"y")
    assert cache.get("old") == b"x"


def test_an_older_wasmtime_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda _name: "49.0.0")
    assert _capi.check_binding() == "wasmtime 49.0.0 is too old; install wasmtime>=50"
