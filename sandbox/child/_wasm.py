"""Deterministic edits of a core WASM module: re-export, add small functions, bake a memory image.

Pure functions from bytes to bytes. The same input gives the same output on every machine, so the result
can be pinned by hash. Only what the QuickJS reactor needs is understood: one memory, one table of
funcref, no data count that another tool relies on. Before editing: new functions and table slots go to
the end of their index spaces, so no existing code has to be renumbered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

MAGIC = b"\0asm\1\0\0\0"
PAGE = 65536
I32, I64 = 0x7F, 0x7E
CUSTOM, TYPE, IMPORT, FUNCTION, TABLE, MEMORY, GLOBAL, EXPORT, START, ELEMENT, CODE, DATA, DATA_COUNT = range(
    13
)


class WasmEditError(ValueError):
    """The module isn't shaped as expected: another build of the engine, or a damaged file."""


def read_uleb(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned LEB128 number at `at`, and the position after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def uleb(value: int) -> bytes:
    """Unsigned LEB128."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def sleb(value: int) -> bytes:
    """Signed LEB128, for `i32.const` and `i64.const`."""
    out = bytearray()
    while True:
        byte = value & 0x7F
        value >>= 7
        if (value == 0 and not byte & 0x40) or (value == -1 and byte & 0x40):
            out.append(byte)
            return bytes(out)
        out.append(byte | 0x80)


def vector(items: Sequence[bytes]) -> bytes:
    """A WASM vector: the count, then the items."""
    return uleb(len(items)) + b"".join(items)


def name_bytes(text: str) -> bytes:
    """A WASM name: the length, then UTF-8."""
    raw = text.encode()
    return uleb(len(raw)) + raw


def sections(module: bytes) -> Iterator[tuple[int, bytes]]:
    """Every section as (id, body). Raises: WasmEditError for a file that isn't a core module."""
    if module[:8] != MAGIC:
        raise WasmEditError("not a core WASM module, version 1")
    at = 8
    while at < len(module):
        kind = module[at]
        size, at = read_uleb(module, at + 1)
        yield kind, module[at : at + size]
        at += size


def join(parts: Iterable[tuple[int, bytes]]) -> bytes:
    """A module from its sections."""
    return MAGIC + b"".join(bytes([kind]) + uleb(len(body)) + body for kind, body in parts)


def function_names(module: bytes) -> dict[str, int]:
    """Function indexes by name, from the custom section "name". Raises: WasmEditError without one."""
    for kind, body in sections(module):
        if kind != CUSTOM:
            continue
        size, at = read_uleb(body, 0)
        if body[at : at + size] != b"name":
            continue
        at += size
        while at < len(body):
            sub = body[at]
            length, at = read_uleb(body, at + 1)
            end = at + length
            if sub == 1:
                return dict(_name_map(body, at))
            at = end
    raise WasmEditError("the module carries no function names")


def _name_map(body: bytes, at: int) -> Iterator[tuple[str, int]]:
    count, at = read_uleb(body, at)
    for _ in range(count):
        index, at = read_uleb(body, at)
        size, at = read_uleb(body, at)
        yield body[at : at + size].decode(), index
        at += size


@dataclass(frozen=True, slots=True)
class NewFunction:
    """A function to append. `body` is locals and code without the size; `in_table` gives it a slot of the
    function table.
    """

    export: str
    params: tuple[int, ...]
    results: tuple[int, ...]
    body: bytes
    in_table: bool = False


@dataclass(frozen=True, slots=True)
class Edited:
    """The new module, and the table slot of each appended function that has one."""

    module: bytes
    slots: Mapping[str, int]


def _count(parts: Sequence[tuple[int, bytes]], wanted: int) -> int:
    return next((read_uleb(body, 0)[0] for kind, body in parts if kind == wanted), 0)


def imports(body: bytes) -> list[tuple[str, str, int, bytes]]:
    """The import section as (module, name, kind, description bytes)."""
    count, at = read_uleb(body, 0)
    found = []
    for _ in range(count):
        size, at = read_uleb(body, at)
        module, at = body[at : at + size].decode(), at + size
        size, at = read_uleb(body, at)
        name, at = body[at : at + size].decode(), at + size
        kind, start = body[at], at + 1
        if kind != 0:
            raise WasmEditError(f"import {module}.{name} isn't a function")
        _, at = read_uleb(body, start)
        found.append((module, name, kind, body[start:at]))
    return found


def edit(
    module: bytes,
    *,
    keep_exports: Sequence[str],
    rename_imports: Mapping[tuple[str, str], tuple[str, str]],
    functions: Sequence[NewFunction],
) -> Edited:
    """Strip custom sections, export exactly `keep_exports` and the memory, rename imports, append
    functions.

    Names in `keep_exports` that the module doesn't export are taken from its name section. Raises:
    WasmEditError when one is in neither, or an import to rename is missing.
    """
    names = function_names(module)
    parts = [(kind, body) for kind, body in sections(module) if kind != CUSTOM]
    found = dict(parts)
    import_list = imports(found[IMPORT])
    first_new = len(import_list) + _count(parts, FUNCTION)
    type_count = _count(parts, TYPE)
    table_size = _table_size(found[TABLE])
    slots = {f.export: table_size + i for i, f in enumerate([f for f in functions if f.in_table])}
    missing = [name for name in keep_exports if name not in names]
    absent = [key for key in rename_imports if key not in [(m, n) for m, n, _, _ in import_list]]
    if missing or absent:
        raise WasmEditError(f"the module lacks {missing or absent}")
    new: dict[int, bytes] = {
        TYPE: _append(found[TYPE], [_type_bytes(f) for f in functions]),
        IMPORT: vector(
            [
                name_bytes((rename_imports.get((m, n)) or (m, n))[0])
                + name_bytes((rename_imports.get((m, n)) or (m, n))[1])
                + bytes([kind])
                + rest
                for m, n, kind, rest in import_list
            ]
        ),
        FUNCTION: _append(found[FUNCTION], [uleb(type_count + i) for i in range(len(functions))]),
        TABLE: vector([b"\x70\x01" + uleb(table_size + len(slots)) * 2]),
        EXPORT: vector(
            [name_bytes("memory") + b"\x02\x00"]
            + [name_bytes(name) + b"\x00" + uleb(names[name]) for name in keep_exports]
            + [name_bytes(f.export) + b"\x00" + uleb(first_new + i) for i, f in enumerate(functions)]
        ),
        ELEMENT: _append(
            found[ELEMENT],
            [
                b"\x00\x41" + sleb(slots[f.export]) + b"\x0b" + vector([uleb(first_new + i)])
                for i, f in enumerate(functions)
                if f.in_table
            ],
        ),
        CODE: _append(found[CODE], [uleb(len(f.body)) + f.body for f in functions]),
    }
    return Edited(join((kind, new.get(kind, body)) for kind, body in parts), slots)


def _append(body: bytes, items: Sequence[bytes]) -> bytes:
    count, at = read_uleb(body, 0)
    return uleb(count + len(items)) + body[at:] + b"".join(items)


def _type_bytes(function: NewFunction) -> bytes:
    return (
        b"\x60"
        + vector([bytes([p]) for p in function.params])
        + vector([bytes([r]) for r in function.results])
    )


def _table_size(body: bytes) -> int:
    count, at = read_uleb(body, 0)
    if count != 1 or body[at] != 0x70:
        raise WasmEditError("expected one table of function references")
    return read_uleb(body, at + 2)[0]


def bake(module: bytes, memory: bytes, *, drop_exports: Sequence[str] = (), grain: int = 4096) -> bytes:
    """`module` with `memory` as its initial memory, no start function and without `drop_exports`.

    Segments are runs of non-zero blocks of `grain` bytes, which wasmtime maps copy-on-write. Globals keep
    their initial values: the caller makes sure that the stack pointer is at rest when it reads the
    memory.
    """
    segments = list(_runs(memory, grain))
    pages = len(memory) // PAGE
    parts: list[tuple[int, bytes]] = []
    for kind, body in sections(module):
        if kind in (CUSTOM, START, DATA_COUNT):
            # a data count is only needed by memory.init, which the checks of the engine would refuse
            continue
        if kind == MEMORY:
            count, at = read_uleb(body, 0)
            if count != 1 or body[at] & 1:
                raise WasmEditError("expected one memory without a maximum")
            body = vector([b"\x00" + uleb(pages)])
        elif kind == EXPORT:
            body = _without(body, frozenset(drop_exports))
        elif kind == DATA:
            body = vector(
                [
                    b"\x00\x41" + sleb(start) + b"\x0b" + uleb(end - start) + memory[start:end]
                    for start, end in segments
                ]
            )
        parts.append((kind, body))
    return join(parts)


def _runs(memory: bytes, grain: int) -> Iterator[tuple[int, int]]:
    zero, start = bytes(grain), -1
    for at in range(0, len(memory), grain):
        empty = memory[at : at + grain] == zero
        if not empty and start < 0:
            start = at
        elif empty and start >= 0:
            yield start, at
            start = -1
    if start >= 0:
        yield start, len(memory)


def _without(body: bytes, drop: frozenset[str]) -> bytes:
    count, at = read_uleb(body, 0)
    kept = []
    for _ in range(count):
        start = at
        size, at = read_uleb(body, at)
        name, at = body[at : at + size].decode(), at + size
        _, at = read_uleb(body, at + 1)
        if name not in drop:
            kept.append(body[start:at])
    return vector(kept)
