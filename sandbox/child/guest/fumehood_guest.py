"""Runs inside the WASM sandbox: baked into the component, serves one script (or one session's scripts)
per instance.

Guarantees nothing to the host: the walls are the linker, which lends four functions and nothing else, and
the memory and time limits of the instance. What is here makes the sandbox pleasant: a useful standard
library already imported, the last expression as the value, tracebacks of the script alone; `_guest_walls`
turns traps into ordinary errors, `_guest_tools` and `_guest_asyncio` are tools as functions.
"""

# mypy: ignore-errors
# ruff: noqa: BLE001, E402, I001, PLE0643
import ast
import builtins
import collections
import collections.abc
import contextlib
import dataclasses
import datetime
import decimal
import enum
import fractions
import importlib
import inspect
import itertools
import json
import linecache
import pathlib
import re
import sys
import traceback
import uuid

import wit_world

# A script can import what is loaded while the image is made, and nothing else.
for _name in [
    "_pylong",
    "abc",
    "array",
    "base64",
    "binascii",
    "bisect",
    "calendar",
    "cmath",
    "collections.abc",
    "colorsys",
    "configparser",
    "contextvars",
    "copy",
    "csv",
    "difflib",
    "email.utils",
    "encodings.ascii",
    "encodings.base64_codec",
    "encodings.cp1252",
    "encodings.hex_codec",
    "encodings.idna",
    "encodings.latin_1",
    "encodings.punycode",
    "encodings.raw_unicode_escape",
    "encodings.rot_13",
    "encodings.unicode_escape",
    "encodings.utf_16",
    "encodings.utf_32",
    "encodings.utf_8_sig",
    "fnmatch",
    "functools",
    "graphlib",
    "gzip",
    "hashlib",
    "heapq",
    "hmac",
    "html",
    "html.entities",
    "html.parser",
    "ipaddress",
    "keyword",
    "locale",
    "logging",
    "math",
    "numbers",
    "operator",
    "pickle",
    "posixpath",
    "pprint",
    "queue",
    "reprlib",
    "secrets",
    "shlex",
    "statistics",
    "string",
    "stringprep",
    "struct",
    "textwrap",
    "timeit",
    "threading",
    "tokenize",
    "tomllib",
    "typing",
    "unicodedata",
    "urllib.parse",
    "warnings",
    "weakref",
    "xml.etree.ElementTree",
    "zlib",
    "zoneinfo",
    "_strptime",
]:
    importlib.import_module(_name)

FILE = "<script>"
MESSAGE_MAX = 8000
UNTOLD = '{"type": "Error", "message": "(an error that cannot be shown)"}'
_loads, _dumps = json.loads, json.dumps
_compile, _exec, _eval = compile, exec, eval

with contextlib.suppress(ValueError):
    raise ValueError  # formats one traceback while the image is made, so that the machinery is loaded
try:
    [][0]
except IndexError:
    traceback.format_exc()
re.compile(r"(\w+)\s*=\s*(\d+)").match("a = 1")
datetime.datetime.strptime("2024-01-02", "%Y-%m-%d")

from _guest_asyncio import (
    _awaitable,
    _await_call,
    _Awaits,
    _run_coroutine,
    _start_call,
    _task_call,
    _waiting,
    ToolError,
)
from _guest_tools import STOP, _granted, _Out, _plain_name, _settings, Tools, fetch, tool
import _guest_walls  # last: afterwards nothing more can be loaded


# --- values out -----------------------------------------------------------------------------------------
# ---------------------------
def _plain(value):
    """What JSON has no word for, where there is one obvious reading."""
    if isinstance(
        value,
        (set, frozenset, collections.deque, range, collections.abc.ValuesView, collections.abc.KeysView),
    ):
        return list(value)
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (decimal.Decimal, fractions.Fraction, uuid.UUID, pathlib.PurePath)):
        return str(value)
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"the script's value is a {type(value).__name__}, which JSON can't hold")


def _value_json(value):
    try:
        text = _dumps(value, allow_nan=False, default=_plain, separators=(",", ":"))
    except RecursionError:
        raise ValueError("the script's value is cyclic or nested too deeply") from None
    if len(text) > _settings["output"]:
        wit_world.emit(STOP, "output")
    return text


# --- one script -----------------------------------------------------------------------------------------
# -------------------------
_session = None
_ALLOW_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


def _globals():
    return {
        "__name__": "__main__",
        "__builtins__": builtins,
        "__fumehood_await__": _awaitable,
        "__fumehood_await_call__": _await_call,
        "__fumehood_start_call__": _start_call,
        "__fumehood_task_call__": _task_call,
        "ToolError": ToolError,
    }


def _run(code, space):
    tree = _compile(code, FILE, "exec", ast.PyCF_ONLY_AST | _ALLOW_AWAIT)
    if "async" in code or "await" in code:
        tree = _Awaits().visit(tree)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = _compile(ast.Expression(tree.body.pop().value), FILE, "eval", _ALLOW_AWAIT)
    first = _compile(tree, FILE, "exec", _ALLOW_AWAIT)
    if any(part is not None and part.co_flags & inspect.CO_COROUTINE for part in (first, last)):
        return _run_coroutine(_in_one_loop(first, last, space))
    value = _eval(first, space)
    if last is not None:
        value = _eval(last, space)
    return _run_coroutine(value) if inspect.iscoroutine(value) else value


async def _in_one_loop(first, last, space):
    """A script that waits at its top level, so that a task it made there lives as long as the script."""
    value = None
    for part in (first, last):
        if part is not None:
            value = _eval(part, space)
            if part.co_flags & inspect.CO_COROUTINE:
                value = await value
    return await value if inspect.iscoroutine(value) else value


def _own_frames(error):
    """The frames of the script, outermost first, as (line, column, function)."""
    frames, at = [], error.__traceback__
    while at is not None:
        code = at.tb_frame.f_code
        if code.co_filename == FILE:
            place = next(itertools.islice(code.co_positions(), at.tb_lasti // 2, None), (None,) * 4)
            frames.append((at.tb_lineno, None if place[2] is None else place[2] + 1, code.co_name))
        at = at.tb_next
    return frames


_class_name = type.__dict__["__name__"].__get__  # a metaclass may have put another in its way


def _told(mark, error, code):
    """What the script threw; it may have broken whatever is needed to say so."""
    try:
        return mark + _describe(error, code)
    except BaseException:
        return mark + UNTOLD


def _describe(error, code):
    kind = _class_name(type(error))
    try:
        message = str(error)
    except BaseException:
        message = "(a message that cannot be printed)"
    line = column = None
    if isinstance(error, SyntaxError) and error.filename == FILE:
        line, column, message = error.lineno, error.offset, str(error.msg)
    frames = _own_frames(error)
    lines = code.splitlines()
    trace = []
    for number, _column, name in frames[-20:]:
        trace.append(f'  File "script.py", line {number}, in {name}')
        if 0 < number <= len(lines):
            trace.append("    " + lines[number - 1].strip()[:200])
    if frames and line is None:
        line, column = frames[-1][:2]
    head = "Traceback (most recent call last):\n" if trace else ""
    text = head + "".join(t + "\n" for t in trace) + f"{kind}: {message}"
    return _dumps(
        {
            "type": kind,
            "message": message[:MESSAGE_MAX],
            "line": line,
            "column": column,
            "trace": text[:MESSAGE_MAX],
        }
    )


class WitWorld(wit_world.WitWorld):
    def run(self, code, config):
        global _session
        settings = _loads(config)
        _settings.clear()
        _settings.update(settings)
        _guest_walls.reseed(settings["seed"])
        sys.stdout, sys.stderr = out, err = _Out(0), _Out(1)
        _waiting.clear()
        space = _session if _session is not None else _globals()
        if settings["session"]:
            _session = space
        space["input"] = _loads(settings["input"]) if settings["input"] else None
        if settings["tools"]:
            space["tools"], space["tool"] = Tools(settings["tools"]), tool
            for name in settings["tools"]:
                if name.isidentifier() or _plain_name(name).isidentifier():
                    space.setdefault(_plain_name(name), _granted(name))
        if settings["fetch"]:
            space["fetch"] = fetch
        linecache.cache[FILE] = (len(code), None, code.splitlines(True), FILE)
        try:
            value = _run(code, space)
            answer = "O" + _value_json(value)
        except SystemExit as error:
            if error.code in (None, 0):
                answer = "Onull"
            else:
                answer = "E" + _dumps(
                    {
                        "type": "SystemExit",
                        "message": str(error.code),
                        "line": None,
                        "column": None,
                        "trace": "",
                    }
                )
        except MemoryError as error:
            answer = _told("M", error, code)
        except BaseException as error:
            answer = _told("E", error, code)
        with contextlib.suppress(BaseException):
            out.flush()
            err.flush()
        return answer
