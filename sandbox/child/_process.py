"""One Python script in this very process, natively: the inside of the backend `process`. The cage around
it is the only wall.

A fresh process per script: it answers "ready", takes one lane, runs one script and ends. The script is
ordinary code of this Python with everything in the standard library; what it can reach is what the
launcher's cage lets a process reach.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import json
import os
import random
import resource
import socket
import time
import traceback
from typing import Any

from fumehood.sandbox.child._frames import BlockingFrames, pack
from fumehood.sandbox.child._job import CALL, End, Failure, Job, Port, Stop, job_from
from fumehood.sandbox.child._worker import LaneTransport, end_frame, receive_with_fds

FILE = "<script>"
HEADROOM = 512 << 20  # address space of Python itself beside the script's memory


class ToolError(Exception):
    """A granted tool said no."""

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason


class _Ended(BaseException):
    """A cap was hit; `BaseException`, so that `except Exception` of a script doesn't hold it up."""


class _Stream(io.TextIOBase):
    def __init__(self, port: Port, number: int) -> None:
        self._port, self._number = port, number

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        raw = text.encode("utf-8", "replace")
        allowed = self._port.take_output(len(raw))
        self._port.output(self._number, raw[:allowed])
        if allowed < len(raw):
            raise _Ended("output")
        return len(text)


def serve_script(fd: int) -> None:
    """Speak the worker protocol on `fd` for one script, then end the process."""
    control = socket.socket(fileno=fd)
    control.sendall(pack({"op": "ready", "pid": os.getpid()}))
    with contextlib.suppress(EOFError, OSError):
        header, _, fds = receive_with_fds(control)
        if header.get("op") == "lane" and fds:
            _lane(socket.socket(fileno=fds[0]))
    os._exit(0)


def _lane(sock: socket.socket) -> None:
    frames = BlockingFrames(sock)
    received = frames.receive(None)
    assert received is not None
    header, body = received
    first, second, _ = header["parts"]
    code = body[:first].decode("utf-8", "surrogatepass")
    given = body[first : first + second].decode("utf-8", "surrogatepass") if header["has_input"] else None
    job = job_from(header["job"], code, given, None)
    transport = LaneTransport(frames, header["run"])
    started, cpu = time.perf_counter(), time.process_time()
    limit = job.limits.memory + HEADROOM
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    end = _run(job, Port(job, transport))
    end.usage = {
        "wall_ms": (time.perf_counter() - started) * 1e3,
        "cpu_ms": (time.process_time() - cpu) * 1e3,
    }
    transport.flush()
    sock.sendall(end_frame(end))


def _run(job: Job, port: Port) -> End:
    random.seed(job.seed)
    count = 0

    def ask(name: str, args: object) -> Any:
        nonlocal count
        raw = json.dumps(args, allow_nan=False).encode()
        try:
            port.check_question(name, len(raw))
            count += 1
            port.ask(count, CALL, name, raw)
            _, ok, answer = port.answer()
        except Stop as stop:
            raise _Ended(stop.reason) from None
        value = json.loads(answer)
        if not ok:
            raise ToolError(value.get("message") or "the tool failed", value.get("reason"))
        return value

    space: dict[str, Any] = {
        "__name__": "__main__",
        "ToolError": ToolError,
        "tool": lambda name, /, **kw: ask(name, kw),
    }
    space["input"] = None if job.input_json is None else json.loads(job.input_json)
    for name in job.tools:
        plain = name.replace("-", "_").replace(".", "_")
        space[plain] = lambda *a, _name=name, **kw: ask(_name, a[0] if a else kw)
    out, err = _Stream(port, 0), _Stream(port, 1)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            value = _execute(job.code, space)
        raw = json.dumps(value, allow_nan=False).encode()
        if port.take_output(len(raw)) < len(raw):
            return End("limit", "output")
        return End("ok", value=raw)
    except _Ended as ended:
        return End("limit", str(ended))
    except MemoryError:
        return End("limit", "memory")
    except BaseException as error:  # noqa: BLE001 - a script may raise anything; it becomes the result
        return End("tool_error", failure=_failure(error))


def _execute(code: str, space: dict[str, Any]) -> Any:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree = compile(code, FILE, "exec", ast.PyCF_ONLY_AST | flags)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Expression(tree.body.pop().value)
    value = _step(compile(tree, FILE, "exec", flags), space)
    if last is not None:
        value = _step(compile(last, FILE, "eval", flags), space)
    return asyncio.run(value) if inspect.iscoroutine(value) else value


def _step(code: Any, space: dict[str, Any]) -> Any:
    value = eval(code, space)
    return asyncio.run(value) if code.co_flags & inspect.CO_COROUTINE else value


def _failure(error: BaseException) -> Failure:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == FILE]
    line = frames[-1].lineno if frames else None
    column = frames[-1].colno + 1 if frames and frames[-1].colno is not None else None
    if isinstance(error, SyntaxError) and error.filename == FILE:
        line, column = error.lineno, error.offset
    try:
        message = str(error)
    except BaseException:  # noqa: BLE001 - a script's own __str__
        message = "(a message that cannot be printed)"
    trace = "".join(f'  File "script.py", line {f.lineno}, in {f.name}\n' for f in frames[-20:])
    return Failure(
        type(error).__name__, message, line, column, f"{trace}{type(error).__name__}: {message}"[:8000]
    )
