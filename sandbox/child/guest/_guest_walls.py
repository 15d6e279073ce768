"""What a script finds where Python would have an operating system: refusals, a clock when granted, randomness
from the host's seed. Imported once everything else is loaded, since it takes away what loading needs.

Not a wall: those are the linker's. This turns traps into ordinary errors.
"""

# mypy: ignore-errors
import builtins
import datetime
import io
import linecache
import os
import posix
import random
import sys
import time
import timeit
import types
from importlib.machinery import BuiltinImporter, FrozenImporter

import wit_world


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


# --- randomness: from the seed the host gives, since the state in the image is the same for every
# instance --------------------------
_reseed = random.seed
_source = None


def reseed(seed):
    """The generators of one script."""
    global _source
    _source = random.Random(seed)
    _reseed(seed[::-1])


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


sys.path[:] = []
sys.path_hooks[:] = []
sys.path_importer_cache.clear()
sys.meta_path[:] = [_Gate, BuiltinImporter, FrozenImporter, _NotHere]
sys.argv[:] = ["script.py"]
