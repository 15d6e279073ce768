"""Runs inside the WASM sandbox: baked into the component, serves one script (or one session's scripts)
per instance.

Guarantees nothing to the host: the walls are the linker, which lends four functions and nothing else, and
the memory and time limits of the instance. What is here turns a trap into an ordinary Python error and
makes the sandbox pleasant: a useful standard library already imported, tools as functions, the last
expression as the value, tracebacks of the script alone.
"""

# mypy: ignore-errors
# ruff: noqa: BLE001, E402, PLE0643
import ast
import asyncio
import base64
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
import io
import itertools
import json
import linecache
import os
import pathlib
import random
import re
import sys
import time
import timeit
import traceback
import types
import uuid
from importlib.machinery import BuiltinImporter, FrozenImporter

import componentize_py_types
import wit_world

# A script can import what is loaded while the image is made, and nothing else.
for _name in [
    "_pylong",
    "abc",
    "array",
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
# what crosses at once: the host copies a string several times over before it can look at its length
PIECE = 64 << 10
STOP = 2  # the "stream" that ends the script with the reason given
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


def _deny(what):
    def refuse(*_args, **_kwargs):
        raise PermissionError(1, f"{what} is not granted to this script")

    refuse.__name__ = what.rsplit(".", 1)[-1]
    return refuse


class _NotHere:
    """The first and the last finder: what isn't baked in doesn't exist, and what would only trap doesn't
    either.
    """

    GONE = frozenset(("_socket", "_posixsubprocess", "faulthandler", "select", "signal", "_signal"))

    @staticmethod
    def find_spec(name, path=None, target=None):
        if path is _FIRST and name not in _NotHere.GONE:
            return None
        raise ModuleNotFoundError(f"No module named {name!r} in this sandbox", name=name)


_FIRST = object()


class _Gate:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return _NotHere.find_spec(name, _FIRST)


# --- what a trap would answer, as an error
# ----------------------------------------------------------------------------------
import posix

for _name in [
    "open",
    "stat",
    "lstat",
    "fstat",
    "listdir",
    "scandir",
    "mkdir",
    "rmdir",
    "unlink",
    "remove",
    "rename",
    "replace",
    "link",
    "symlink",
    "readlink",
    "chdir",
    "getcwd",
    "getcwdb",
    "access",
    "utime",
    "truncate",
    "ftruncate",
    "pipe",
    "chmod",
    "read",
    "write",
    "close",
    "fsync",
    "isatty",
    "lseek",
    "dup",
    "statvfs",
    "sync",
    "times",
    "get_terminal_size",
    "system",
    "getpid",
    "kill",
    "cpu_count",
    "sysconf",
    "umask",
    "_path_exists",
    "_path_isfile",
    "_path_isdir",
    "_path_islink",
    "_path_lexists",
    "_exit",
    "abort",
]:
    for _module in (posix, os):
        if hasattr(_module, _name):
            setattr(_module, _name, _deny("os." + _name))
builtins.open = io.open = io.open_code = _deny("open")
builtins.input = _deny("input")
builtins.breakpoint = _deny("breakpoint")
time.sleep = _deny("time.sleep")
linecache.updatecache = lambda *_a, **_k: []
linecache.checkcache = lambda *_a, **_k: None
# asyncio brought these in and keeps what it needs; a script that imports one gets a clear no instead of a
# trap later.
for _name in list(sys.modules):
    if _name.split(".")[0] in (
        "_posixsubprocess",
        "_ctypes",
        "_socket",
        "_ssl",
        "faulthandler",
        "multiprocessing",
        "select",
        "selectors",
        "signal",
        "socket",
        "ssl",
        "subprocess",
    ):
        del sys.modules[_name]


# --- the clock, when granted
# -------------------------------------------------------------------------------------------------
def _now():
    value = wit_world.now()
    if value is None:
        raise PermissionError(1, "the clock is not granted to this script")
    return value


_gmtime_real, _strftime_real, _asctime_real = time.gmtime, time.strftime, time.asctime


def _broken_down(seconds=None):
    return _gmtime_real(_now() if seconds is None else seconds)


time.time = time.monotonic = time.perf_counter = time.process_time = time.thread_time = _now
time.time_ns = time.monotonic_ns = time.perf_counter_ns = time.process_time_ns = lambda: int(_now() * 1e9)
time.gmtime = time.localtime = _broken_down
time.strftime = lambda form, parts=None: _strftime_real(form, _broken_down() if parts is None else parts)
time.asctime = lambda parts=None: _asctime_real(_broken_down() if parts is None else parts)
time.ctime = lambda seconds=None: _asctime_real(_broken_down(seconds))
timeit.default_timer = _now
time.get_clock_info = lambda name: types.SimpleNamespace(
    implementation="granted by the host", monotonic=False, adjustable=False, resolution=1e-9
)


class _DateTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        aware = datetime.datetime.fromtimestamp(_now(), datetime.UTC)
        aware = aware if tz is None else aware.astimezone(tz)
        return cls(*aware.timetuple()[:6], aware.microsecond, tz)

    @classmethod
    def utcnow(cls):
        return cls.now()

    today = utcnow


class _Date(datetime.date):
    @classmethod
    def today(cls):
        return cls(*_broken_down()[:3])


for _class, _plain in ((_DateTime, "datetime"), (_Date, "date")):
    _class.__name__ = _class.__qualname__ = _plain
    _class.__module__ = "datetime"
datetime.datetime = _DateTime
datetime.date = _Date


# --- asyncio without an operating system: waiting takes no time
# -------------------------------------------------------------------
_waiting = {}  # futures of the questions that are open, by number
PATIENCE = 100  # turns of a busy loop before it stops for an answer that something may wait for


def _settle(answer):
    number, _, rest = answer.partition(" ")
    future = _waiting.pop(int(number or 0), None)
    if future is None or future.done():
        return
    value = _loads(rest[2:])
    if rest[0] == "1":
        future.set_result(value)
    else:
        future.set_exception(ToolError(value.get("message") or "the tool failed", value.get("reason")))


class _NoSelector:
    def __init__(self):
        self.loop = None
        self.turns = 0

    def select(self, timeout=None):
        idle = timeout is None or timeout > 0
        self.turns = 0 if idle else self.turns + 1
        if _waiting and (idle or self.turns > PATIENCE):
            self.turns = 0
            _settle(wit_world.wait())
        elif timeout is None:
            raise Deadlock("the script waits for something that nothing can bring about")
        elif idle:
            self.loop._virtual += timeout
        return []

    def close(self):
        pass


class Deadlock(RuntimeError):
    """Everything waits, and nothing is on its way."""


class _Loop(asyncio.BaseEventLoop):
    def __init__(self):
        self._virtual = 0.0
        self._selector = _NoSelector()
        self._selector.loop = self
        super().__init__()

    def time(self):
        return self._virtual

    def _process_events(self, events):
        pass

    def _write_to_self(self):
        pass


def _run_coroutine(main, *, debug=None, loop_factory=None):
    loop = _Loop()
    outer = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        asyncio.events.set_event_loop(loop)
        return loop.run_until_complete(main)
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        asyncio._set_running_loop(outer)


_ensure_future = asyncio.ensure_future


def _ensure(value, *, loop=None):
    """A tool's result is a plain value, and `await`, `gather` and friends take it all the same."""
    if asyncio.isfuture(value) or asyncio.iscoroutine(value) or inspect.isawaitable(value):
        return _ensure_future(value, loop=loop)
    future = (loop or asyncio.events.get_event_loop()).create_future()
    future.set_result(value)
    return future


_gather, _wait_for = asyncio.gather, asyncio.wait_for


def _coroutine_or_future(value):
    return value if inspect.isawaitable(value) else _passed(value)


asyncio.gather = lambda *values, **options: _gather(*map(_coroutine_or_future, values), **options)
asyncio.wait_for = lambda value, timeout: _wait_for(_coroutine_or_future(value), timeout)
asyncio.create_task = lambda value, **options: asyncio.get_running_loop().create_task(
    _coroutine_or_future(value), **options
)
asyncio.run = asyncio.runners.run = _run_coroutine
asyncio.ensure_future = asyncio.tasks.ensure_future = _ensure
asyncio.new_event_loop = asyncio.events.new_event_loop = _Loop
asyncio.to_thread = asyncio.threads.to_thread = lambda function, /, *args, **kwargs: _passed(
    function(*args, **kwargs)
)


async def _passed(value):
    return value


class _Ready:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value

    def __await__(self):
        return self.value
        yield


def _awaitable(value):
    return value if inspect.isawaitable(value) or hasattr(value, "__await__") else _Ready(value)


def _await_call(function, /, *args, **kwargs):
    """`await f(…)`: a tool is asked without waiting here, so that several can be on their way at once."""
    return _awaitable(_start_call(function, *args, **kwargs))


def _start_call(function, /, *args, **kwargs):
    start = getattr(function, "start", None) if type(function) is _Tool else None
    if start is None or asyncio._get_running_loop() is None:
        return function(*args, **kwargs)
    return start(*args, **kwargs)


def _task_call(function, /, *args, **kwargs):
    value = _start_call(function, *args, **kwargs)
    return _answer_of(value) if asyncio.isfuture(value) else value


async def _answer_of(future):
    return await future


class _Awaits(ast.NodeTransformer):
    """`await tool()`, where `tool()` is a plain value otherwise; the same for calls that are handed to
    `gather` and its like.
    """

    TAKE_MANY = frozenset(
        ("gather", "create_task", "ensure_future", "wait", "wait_for", "as_completed", "shield")
    )

    def visit_Await(self, node):
        self.generic_visit(node)
        if isinstance(node.value, ast.Call) and _name_of(node.value.func) not in self.TAKE_MANY:
            node.value = _through("__fumehood_await_call__", node.value)
        else:
            wrapped = ast.Call(ast.Name("__fumehood_await__", ast.Load()), [node.value], [])
            node.value = ast.fix_missing_locations(ast.copy_location(wrapped, node.value))
        return node

    def visit_Call(self, node):
        self.generic_visit(node)
        if _name_of(node.func) in self.TAKE_MANY:
            helper = (
                "__fumehood_task_call__"
                if _name_of(node.func) == "create_task"
                else "__fumehood_start_call__"
            )
            node.args = [self._started(argument, helper) for argument in node.args]
        return node

    def _started(self, node, helper):
        if isinstance(node, ast.Call):
            return _through(helper, node)
        if isinstance(node, ast.Starred):
            node.value = self._started(node.value, helper)
        elif isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
            node.elt = self._started(node.elt, helper)
        elif isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            node.elts = [self._started(item, helper) for item in node.elts]
        return node


def _name_of(node):
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None


def _through(helper, call):
    made = ast.Call(ast.Name(helper, ast.Load()), [call.func, *call.args], call.keywords)
    return ast.fix_missing_locations(ast.copy_location(made, call))


# --- randomness: from the seed the host gives, since the state in the image is the same for every
# instance --------------------------
_reseed = random.seed
_source = None


def _seed(a=None, version=2):
    # componentize-py's runtime seeds from the system before it calls us: ten slow questions whose answer
    # would be thrown away.
    if a is None:
        if _source is None:
            return
        a = _source.randbytes(16)
    _reseed(a, version)


def _urandom(size):
    return _source.randbytes(size)


random.seed = _seed
os.urandom = random._urandom = posix.urandom = _urandom


# --- print ----------------------------------------------------------------------------------------------
# -------------------------
class _Out(io.TextIOBase):
    encoding = "utf-8"
    errors = "replace"

    def __init__(self, stream):
        self.stream = stream
        self.parts = []
        self.size = 0

    def writable(self):
        return True

    def write(self, text):
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self.parts.append(text)
        self.size += len(text)
        if self.size > 8192:
            self.flush()
        return len(text)

    def flush(self):
        if self.parts:
            text = "".join(self.parts)
            self.parts.clear()
            self.size = 0
            for start in range(0, len(text), PIECE):
                piece = text[start : start + PIECE]
                wit_world.emit(self.stream, piece.encode("utf-8", "replace").decode("utf-8"))


# --- tools ----------------------------------------------------------------------------------------------
# -------------------------
class ToolError(Exception):
    """A granted tool said no. `reason` is a short code, or None."""

    def __init__(self, message, reason=None):
        super().__init__(message)
        self.reason = reason


def _question(name, args):
    sys.stdout.flush()
    question = _dumps(args, allow_nan=False)
    if len(question) > _settings["bridge_bytes"]:
        wit_world.emit(STOP, "bridge-bytes\n" + name[:256])
    return question


def _start(name, args, fetch):
    """Ask without waiting: a future of the running loop."""
    question = _question(name, args)
    while len(_waiting) >= _settings["pending"]:  # rather wait for one than end for asking too many
        _settle(wit_world.wait())
    number = wit_world.ask(name, question, fetch)
    future = _waiting[number] = asyncio.get_running_loop().create_future()
    return future


def _ask(name, args, fetch):
    question = _question(name, args)
    try:
        answer = wit_world.call(name, question, fetch)
    except componentize_py_types.Err as error:
        said = _loads(error.value)
        raise ToolError(said.get("message") or "the tool failed", said.get("reason")) from None
    return _loads(answer)


def _arguments(name, args, kwargs):
    if len(args) > 1 or (args and kwargs):
        raise TypeError(f"{name}() takes keyword arguments or one dictionary")
    return args[0] if args else kwargs


class _Tool:
    """A function that asks the host: called, it waits; with `start`, it gives a future."""

    def __init__(self, name, now, start, doc=None):
        self.__name__ = self.__qualname__ = name
        self.__doc__ = doc
        self._now = now
        self.start = start

    def __call__(self, /, *args, **kwargs):
        return self._now(*args, **kwargs)

    def __repr__(self):
        return f"<tool {self.__name__}>"


def _granted(name):
    return _Tool(
        name,
        lambda *args, **kwargs: _ask(name, _arguments(name, args, kwargs), False),
        lambda *args, **kwargs: _start(name, _arguments(name, args, kwargs), False),
    )


tool = _Tool(
    "tool",
    lambda name, /, *args, **kwargs: _ask(str(name), _arguments(name, args, kwargs), False),
    lambda name, /, *args, **kwargs: _start(str(name), _arguments(name, args, kwargs), False),
    "Call a granted tool by name: keyword arguments, or one dictionary.",
)


class Tools:
    """The granted tools as attributes; `tools["a-name"]` for names that Python can't spell."""

    def __init__(self, names):
        for name in names:
            function = _granted(name)
            self.__dict__[name] = self.__dict__[_plain_name(name)] = function
            if "." in name:
                space, rest = name.split(".", 1)
                inner = self.__dict__.setdefault(_plain_name(space), types.SimpleNamespace())
                setattr(inner, _plain_name(rest), function)

    def __getitem__(self, name):
        return self.__dict__[name]

    def __iter__(self):
        return iter(self.__dict__)


def _plain_name(name):
    return name.replace("-", "_").replace(".", "_")


class Reply:
    """What `fetch` gives: status, ok, headers, url, text, body (bytes), json()."""

    def __init__(self, raw):
        self.status = raw["status"]
        self.ok = 200 <= self.status < 300
        self.url = raw["url"]
        self.headers = {k.lower(): v for k, v in raw["headers"]}
        self.body = raw["text"].encode() if "text" in raw else base64.b64decode(raw["base64"])

    @property
    def text(self):
        return self.body.decode("utf-8", "replace")

    def json(self):
        return _loads(self.body)


def _request(url, *, method="GET", headers=None, body=None, json=None):
    headers = dict(headers or {})
    if json is not None:
        body = _dumps(json)
        headers.setdefault("content-type", "application/json")
    if isinstance(body, bytes):
        body = body.decode("utf-8")
    return {"url": str(url), "method": method, "headers": headers, "body": body}


async def _fetched(future):
    return Reply(await future)


fetch = _Tool(
    "fetch",
    lambda url, **options: Reply(_ask("fetch", _request(url, **options), True)),
    lambda url, **options: _fetched(_start("fetch", _request(url, **options), True)),
    "A request through the host's broker: fetch(url, method=, headers=, body=, json=).",
)


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
_settings = {}
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
        global _session, _settings, _source
        settings = _settings = _loads(config)
        _source = random.Random(settings["seed"])
        _reseed(settings["seed"][::-1])
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


sys.path[:] = []
sys.path_hooks[:] = []
sys.path_importer_cache.clear()
sys.meta_path[:] = [_Gate, BuiltinImporter, FrozenImporter, _NotHere]
sys.argv[:] = ["script.py"]
