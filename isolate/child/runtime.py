"""The tool's side of one call: import the module, wait, run it once, answer.

Runs after the last layer is on, and not before. Nothing it sends is believed: the host takes `value` and
`error` as the tool's claims, and everything else about the call from the kernel and its own counters.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import os
import sys
import time
import traceback
import types
from typing import Any

from . import plain
from .channel import Channel, HostGone, Message, encode
from .context import AsyncContext, SyncContext

_ERROR_TEXT_CAP = 64 * 1024
_CO_COROUTINE = 0x80  # inspect.CO_COROUTINE


class UnusableTool(Exception):
    """The tool's file is there but is no tool."""


def prepare() -> None:
    """What can be done while the host looks at this process: it opens nothing, no code of the tool runs."""
    _reseed()
    _dummy_round()


def serve_module(channel: Channel, path: str, name: str, tmp: str) -> None:
    """Import the tool as the module `name`, report, wait for the call, run it, answer."""
    function, failure = _load(path, name)
    if function is not None and _is_coroutine_function(function):
        import asyncio

        asyncio.run(_await_nothing())
    channel.send({"t": "ready", "error": failure})
    while True:
        call, _ = channel.receive()
        if call["t"] != "call":
            continue  # an answer that an earlier call no longer waited for
        _set_environment(call["env"])
        if function is None and call["env_late"]:
            # The module may have read a credential while it was imported; those arrive only now.
            function, failure = _load(path, name)
        if function is None:
            channel.send({"t": "error", **(failure or {})})
        else:
            _answer(channel, _run(function, channel, call, tmp))
        # One call is all a child serves, unless the operator said `reuse`. In either case it stays until it
        # is killed: the host looks at our processes and our /tmp before it decides how the call ended.


def _set_environment(wanted: dict[str, str]) -> None:
    """What differs is changed, and no more: each change is a page to be copied, and the time zone a file to
    be read.
    """
    zone = os.environ.get("TZ")
    for name in [name for name in os.environ if name not in wanted]:
        del os.environ[name]
    for name, value in wanted.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    if wanted.get("TZ") != zone:
        time.tzset()


def _answer(channel: Channel, answer: Message) -> None:
    try:
        plain.look(answer.get("value"))
        channel.send(answer)
    except HostGone:
        raise
    except BaseException as error:  # noqa: BLE001 - methods of the tool's own classes can raise anything
        told = plain.fault(answer.get("value")) or _safe_text(error)
        name = "ValueError" if isinstance(error, plain.NotPlain) else valid(type(error).__name__[:200])
        message = valid(f"run() returned what JSON cannot hold: {told}")
        channel.send({"t": "error", "type": name, "message": message, "trace": "", "kind": "result"})


def _load(path: str, name: str) -> tuple[Any, Message | None]:
    """The module's `run` function, or what was wrong with it."""
    folder = os.path.dirname(path)
    if folder not in sys.path:
        sys.path.append(folder)  # last: a json.py beside the tool must not stand before the standard library
    try:
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise UnusableTool(f"{path} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
        function = getattr(module, "run", None)
        if not callable(function):
            raise UnusableTool(f"{path} defines no function `run(input, ctx)`")
        return function, None
    except HostGone:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever the tool's import raises is the tool's failure, SystemExit included
        return None, _describe(error, "import")


def name_of(path: str) -> str:
    """The name an import of this very file would use, so that the workers of multiprocessing's `spawn` and
    `forkserver` find its functions; else one of our own, for a json.py that must not stand for the other.

    Asked in the zygote, whose import system then knows what every folder holds. It looks and imports nothing.
    """
    stem = os.path.splitext(os.path.basename(path))[0]
    if stem in sys.builtin_module_names or stem in sys.modules:
        return "fumehood_tool"
    found = importlib.machinery.PathFinder.find_spec(stem, [*sys.path, os.path.dirname(path)])
    return stem if found is not None and found.origin == path else "fumehood_tool"


def _run(function: Any, channel: Channel, call: Message, tmp: str) -> Message:
    """Call the tool once; what it returned or raised as a message."""
    try:
        if _is_coroutine_function(function):
            import asyncio

            context: Any = AsyncContext(channel, call["call_id"], call["tool"], tmp)
            value = asyncio.run(function(call["input"], context))
        else:
            value = function(call["input"], SyncContext(channel, call["call_id"], call["tool"], tmp))
            if hasattr(type(value), "__await__"):
                import asyncio

                value = asyncio.run(_await(value))
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        return {"t": "result", "value": value}
    except HostGone:
        raise
    except BaseException as error:  # noqa: BLE001 - the tool's own failure, SystemExit and KeyboardInterrupt included
        return {"t": "error", **_describe(error, "run")}


def _is_coroutine_function(function: Any) -> bool:
    """As inspect.iscoroutinefunction, which is asked only about what is no plain function."""
    if type(function) is types.FunctionType and not hasattr(function, "__wrapped__"):
        return bool(function.__code__.co_flags & _CO_COROUTINE)
    import inspect

    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


async def _await(value: Any) -> Any:
    return await value


def _describe(error: BaseException, kind: str) -> Message:
    """Type, message and traceback of an error, guarded: its str() may raise, or be a gigabyte long."""
    frames: list[str] = []
    try:
        chain = traceback.TracebackException.from_exception(error, limit=-30, compact=True)
        # Frames of our own, of the import system and of the event loop: nothing a tool's author can change.
        own = (os.path.dirname(__file__), os.path.join(os.path.dirname(os.__file__), "asyncio"))
        chain.stack = traceback.StackSummary.from_list(
            [
                frame
                for frame in chain.stack
                if not (frame.filename.startswith(own) or "importlib" in frame.filename)
            ]
        )
        frames = list(chain.format())
    except BaseException:  # noqa: BLE001 - a hostile __str__ or __cause__; the type's name is still told
        frames = []
    reason = getattr(error, "reason", None)
    told: Message = {
        "type": valid(type(error).__name__[:200]),
        "message": _safe_text(error),
        "trace": valid("".join(frames)[-_ERROR_TEXT_CAP:]),
        "kind": kind,
    }
    if isinstance(error, OSError) and isinstance(error.errno, int) and 0 < error.errno < 4096:
        told["errno"] = error.errno
    if isinstance(reason, str):
        told["reason"] = valid(reason[:64])
    return told


def _safe_text(error: BaseException) -> str:
    try:
        return valid(str(error)[:_ERROR_TEXT_CAP])
    except BaseException:  # noqa: BLE001 - __str__ is the tool's code
        return "<the error's own text could not be made>"


def valid(text: str) -> str:
    """Text that UTF-8 can hold: lone surrogates become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _reseed() -> None:
    """Random state is a copy of the zygote's: start it afresh in every child (attack 78).

    OpenSSL notices a fork by the process number, and the zygote's is never a child's (`launch.py`).
    """
    seed = sys.modules.get("random")
    if isinstance(seed, types.ModuleType):
        seed.seed()
    numpy_random = sys.modules.get("numpy.random")
    if isinstance(numpy_random, types.ModuleType):
        numpy_random.seed(int.from_bytes(os.urandom(4), "big"))


def _dummy_round() -> None:
    """One call of nothing, in the finished child: what a call writes is copied while nobody waits."""
    context = SyncContext(None, "", "", "")  # type: ignore[arg-type]
    encode(
        {
            "t": "result",
            "value": json.loads('{"warm": [1, 2.5, "text", null, true]}'),
            "seen": context.tmp,
        }
    )


def warm(with_asyncio: bool) -> None:
    """What a first call would have to do, done once in the zygote.

    with_asyncio: the tool's source speaks of it; a wrong guess costs time and nothing else.
    """
    if with_asyncio:
        import asyncio

        asyncio.run(_await_nothing())
    _dummy_round()
    "text".encode("utf-8", "replace").decode("utf-8", "replace")
    traceback.TracebackException.from_exception(ValueError("warm"))


async def _await_nothing() -> None:
    return None
