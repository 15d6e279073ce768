"""Taint: a mark on a value that says who outside it came from.

Guarantees: the mark is plain JSON, `{"__tainted__": {"origin": ..., "value": ...}}`, so it survives the log,
a replay and any serialization (R028, R029); any object that has that key counts as tainted, well-formed or
not, so a damaged mark never reads as clean. All walks are iterative and linear. Does not decide anything: the
guard does. A mark says where a value came from, never that it is harmful.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, TypeAlias

from fumehood.agent._errors import MessageStructureError

TAINT_KEY: Final = "__tainted__"

TaintedJson: TypeAlias = dict[str, Any]
"""A wrapper as `tainted` makes it. A type alias, not a class: the mark has to be plain JSON."""

MAX_ORIGIN: Final = 512
"""Longest origin that is kept; a longer one is cut. An origin is a label, and hosts are part of it."""


def tainted(value: object, origin: str) -> TaintedJson:
    """Mark a value as coming from `origin`, for example "mcp:acme/fetch_doc" (R027). Wrapping a marked value
    keeps both origins.

    Raises: ValueError for an empty origin.
    """
    if not origin:
        raise ValueError("taint needs an origin; say who acquired the value, as in 'mcp:acme/fetch_doc'")
    inner, origins = value, [origin]
    while is_tainted(inner):
        origins.append(origin_of(inner))
        inner = unwrap_tainted(inner)
    return {TAINT_KEY: {"origin": join_origins(origins), "value": inner}}


def is_tainted(value: object) -> bool:
    """Whether this very value carries the mark. A value inside it may; see `taint_origins`."""
    return isinstance(value, dict) and TAINT_KEY in value


def unwrap_tainted(value: Any) -> Any:
    """The value inside the mark, or the value itself when it has none (R030). What you do with it
    is your decision then.
    """
    if not is_tainted(value):
        return value
    wrapper = value[TAINT_KEY]
    return wrapper.get("value") if isinstance(wrapper, dict) else None


def origin_of(value: object) -> str:
    """The origin of a marked value; "unknown" when the mark is damaged. Raises: ValueError when
    there is no mark.
    """
    if not (isinstance(value, dict) and TAINT_KEY in value):
        raise ValueError("the value is not tainted")
    wrapper = value[TAINT_KEY]
    origin = wrapper.get("origin") if isinstance(wrapper, dict) else None
    return origin if isinstance(origin, str) and origin else "unknown"


def join_origins(origins: Iterable[str]) -> str:
    """Several origins as one label, each once, in order."""
    return ", ".join(dict.fromkeys(part for origin in origins for part in origin.split(", ")))[:MAX_ORIGIN]


def taint_origins(value: object) -> tuple[str, ...]:
    """The origins of every mark in a value, at any depth, each once; empty when the value is clean."""
    found: dict[str, None] = {}
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if TAINT_KEY in item:
                found[origin_of(item)] = None
            stack.extend(item.values())
        elif isinstance(item, (list, tuple)):
            stack.extend(item)
    return tuple(found)


def without_taint(value: object) -> tuple[object, tuple[str, ...]]:
    """A copy with every mark taken off, and the origins it had. For code that puts the mark back outside
    (R061).

    Raises: MessageStructureError when the value refers to itself.
    """
    origins: dict[str, None] = {}
    root: list[object] = [None]
    # Each entry says where its cleaned value goes; `open_` guards against a value that contains itself, which
    # JSON cannot.
    stack: list[tuple[object, Any, Any]] = [(value, root, 0)]
    nodes = 0
    while stack:
        item, target, key = stack.pop()
        nodes += 1
        if nodes > 5_000_000:
            raise MessageStructureError("", "the value has more than 5,000,000 nodes or contains itself")
        while isinstance(item, dict) and TAINT_KEY in item:
            origins[origin_of(item)] = None
            item = unwrap_tainted(item)
        if isinstance(item, dict):
            made: dict[object, object] = dict.fromkeys(item)
            target[key] = made
            stack.extend((inner, made, name) for name, inner in item.items())
        elif isinstance(item, (list, tuple)):
            row: list[object] = [None] * len(item)
            target[key] = row
            stack.extend((inner, row, index) for index, inner in enumerate(item))
        else:
            target[key] = item
    return root[0], tuple(origins)


def propagate(result: object, *sources: object) -> object:
    """`result`, marked when anything it was made from is: a summary, a join, an extract (R062).

    sources: every value that went in. The origins of all of them and of `result` itself are kept.
    """
    origins = [origin for source in (*sources, result) for origin in taint_origins(source)]
    if not origins:
        return result
    return tainted(without_taint(result)[0], join_origins(origins))


def map_tainted(function: Callable[[Any], object], value: object) -> object:
    """Apply a function to the value inside the mark and put the mark back; to a clean value, just
    apply it.
    """
    if not is_tainted(value):
        return function(value)
    return tainted(function(unwrap_tainted(value)), origin_of(value))


TaintRule: TypeAlias = Literal["auto", "always", "never"]


def result_origin(
    tool: str, hosts: Iterable[str], *, rule: TaintRule = "auto", foreign: Literal["mcp", "a2a"] | None = None
) -> str | None:
    """The origin a tool's result is tainted with, or None when it is trusted (R480; `taint` of contract.md
    section 1).

    hosts: what the call really reached, as the broker counted it, never as the tool says. foreign: "mcp" for
    a third-party MCP server's tool, "a2a" for a peer agent; both are tainted unless the operator wrote `taint
    = "never"`.
    """
    reached = sorted(dict.fromkeys(hosts))
    if rule == "never" or (rule == "auto" and not reached and foreign is None):
        return None
    name = f"{foreign}:{tool.replace('.', '/', 1)}" if foreign else f"tool:{tool}"
    return " ".join([name, *reached])[:MAX_ORIGIN]


def taint_result(
    value: object,
    tool: str,
    hosts: Iterable[str] = (),
    *,
    rule: TaintRule = "auto",
    foreign: Literal["mcp", "a2a"] | None = None,
) -> object:
    """A tool's result with the mark that `result_origin` decides; marks it already carries stay."""
    origin = result_origin(tool, hosts, rule=rule, foreign=foreign)
    return value if origin is None else tainted(value, origin)
