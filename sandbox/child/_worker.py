"""The loop of a worker process: one control socket, and a thread with its own socket for each lane.

A lane runs one script at a time and speaks to the host directly, so nothing inside the worker hands work
from thread to thread. The control socket carries only set-up: compiled engines arrive as sealed
descriptors, new lanes as sockets. When the host closes it, the process ends at once. What a worker needs
of its cage: executable mappings, threads, recvmsg with descriptors; no file, no network, no clock it
could wait on.
"""

from __future__ import annotations

import array
import contextlib
import os
import queue
import socket
import struct
import threading
import time
from typing import Any

from fumehood.sandbox.child._frames import HEAD, BlockingFrames, FrameError, pack, parse_head, parse_header
from fumehood.sandbox.child._job import End, Engine, job_from
from fumehood.sandbox.child._settings import THREAD_STACK

FLUSH = 8 << 10  # output is sent in pieces of this size, and before anything that waits


class Engines:
    """The engines loaded so far, by (name, fuel)."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, bool], Engine] = {}

    def load(self, name: str, fuel: bool, fd: int, meta: dict[str, Any]) -> None:
        """Make an engine from a compiled module in `fd`, which is closed. Raises what wasmtime raises for
        a foreign module.
        """
        from fumehood.sandbox.child._capi import check_binding

        problem = check_binding()
        if problem is not None:
            os.close(fd)
            raise RuntimeError(problem)
        with os.fdopen(fd, "rb") as file:
            if name == "js":
                self._found[name, fuel] = _load_js(file.fileno(), fuel, meta)
            elif name == "python":
                from fumehood.sandbox.child._cpython import load

                self._found[name, fuel] = load(file.fileno(), fuel=fuel, meta=meta)
            else:
                raise ValueError(f"no engine {name!r}")
        self._found[name, fuel].rest()

    def find(self, name: str, fuel: bool) -> Engine:
        """A loaded engine; the host loads it before the first script."""
        return self._found[name, fuel]

    def forget(self, session: str) -> None:
        """End a session in whichever engine has it."""
        for engine in list(self._found.values()):
            engine.forget(session)


def _load_js(fd: int, fuel: bool, meta: dict[str, Any]) -> Engine:
    import wasmtime

    from fumehood.sandbox.child._capi import make_config
    from fumehood.sandbox.child._jsbuild import ImageMeta
    from fumehood.sandbox.child._quickjs import QuickJs

    engine = wasmtime.Engine(make_config(fuel=fuel))
    module = read_module(
        fd,
        lambda path: wasmtime.Module.deserialize_file(engine, path),
        lambda data: wasmtime.Module.deserialize(engine, data),
    )
    return QuickJs(module, engine, ImageMeta(**meta["layout"]), meta["image"])


def read_module(fd: int, from_file: Any, from_bytes: Any) -> Any:
    """Map the module through /proc where the cage has one (shared between workers), else copy it."""
    path = f"/proc/self/fd/{fd}"
    if os.access(path, os.R_OK):
        return from_file(path)
    return from_bytes(os.pread(fd, os.fstat(fd).st_size, 0))


class LaneTransport:
    """Questions of one script over a lane's socket."""

    def __init__(self, frames: BlockingFrames, run: int) -> None:
        self.cancelled = False
        self.run = run
        self._frames = frames
        self._held = [bytearray(), bytearray()]

    def ask(self, id_: int, kind: int, name: str, args: bytes) -> None:
        """Send a question; what was printed before it goes first."""
        self.flush()
        self._frames.send({"op": "ask", "id": id_, "kind": kind, "name": name}, args)

    def tried(self, name: str, reason: str) -> None:
        """Tell of a question that a cap kept from being asked."""
        self.flush()
        self._frames.send({"op": "tried", "name": name[:256], "reason": reason})

    def answer(self, timeout: float) -> tuple[int, bool, bytes] | None:
        """The next answer, or None when the time is up."""
        self.flush()
        if self.cancelled:
            return None
        found = self._frames.receive(timeout)
        if found is None:
            return None
        header, body = found
        if header.get("op") == "cancel":
            self.cancelled = True
            return None
        return int(header["id"]), bool(header["ok"]), body

    def output(self, stream: int, data: bytes) -> None:
        """Hold output back until a piece is full."""
        held = self._held[stream]
        held += data
        if len(held) >= FLUSH:
            self.flush()

    def flush(self) -> None:
        """Send what is held."""
        for stream, held in enumerate(self._held):
            if held:
                self._frames.send({"op": "out", "stream": stream}, bytes(held))
                held.clear()


def end_frame(end: End) -> bytes:
    """The last frame of a script."""
    value, snapshot = end.value or b"", end.snapshot or b""
    failure = end.failure
    header = {
        "op": "end",
        "outcome": end.outcome,
        "reason": end.reason,
        "detail": end.detail,
        "usage": end.usage,
        "parts": [len(value), len(snapshot)],
        "has": [end.value is not None, end.snapshot is not None],
        "lost": end.session_lost,
        "failure": None
        if failure is None
        else [
            failure.type[:256],
            failure.message[:16384],
            failure.line,
            failure.column,
            failure.trace[:8192],
        ],
    }
    return pack(header, value + snapshot)


def _lane(sock: socket.socket, engines: Engines, running: dict[int, LaneTransport], lane: int) -> None:
    frames = BlockingFrames(sock)
    with contextlib.suppress(EOFError, OSError):
        while True:
            received = frames.receive(None)
            if received is None:
                continue
            header, body = received
            if header.get("op") != "run":
                continue  # an answer that crossed with the end of the script it was for
            first, second, third = header["parts"]
            code = body[:first].decode("utf-8", "surrogatepass")
            input_json = (
                body[first : first + second].decode("utf-8", "surrogatepass") if header["has_input"] else None
            )
            restore = body[first + second : first + second + third] if header["has_restore"] else None
            job = job_from(header["job"], code, input_json, restore)
            transport = running[lane] = LaneTransport(frames, header["run"])
            engine = engines.find(job.lang, job.limits.fuel is not None)
            try:
                end = engine.run(job, transport)
            except (EOFError, OSError):
                raise
            # the top of a thread; without an end the host would wait, and then kill the neighbours too
            except Exception as error:  # noqa: BLE001
                said = f"{type(error).__name__}: {error}"[:1000]
                end = End("sandbox_error", "crashed", detail=said, session_lost=job.session is not None)
            transport.flush()
            sock.sendall(end_frame(end))
            engine.rest()
    sock.close()


def receive_with_fds(sock: socket.socket) -> tuple[dict[str, Any], bytes, list[int]]:
    """One frame of the control socket with the descriptors that came along. Raises: EOFError, FrameError."""
    fds: list[int] = []
    data = bytearray()
    need = HEAD.size
    total = -1
    while len(data) < need:
        piece, ancillary, _flags, _address = sock.recvmsg(need - len(data), socket.CMSG_SPACE(4 * 4))
        if not piece:
            raise EOFError("the host closed the control socket")
        for level, kind, raw in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                found = array.array("i")
                found.frombytes(raw[: len(raw) - len(raw) % found.itemsize])
                fds.extend(found)
        data += piece
        if total < 0 and len(data) >= HEAD.size:
            header, body = parse_head(bytes(data[: HEAD.size]))
            total = need = HEAD.size + header + body
    header, _ = struct.unpack("<II", data[: HEAD.size])
    return parse_header(bytes(data[HEAD.size : HEAD.size + header])), bytes(data[HEAD.size + header :]), fds


def serve(fd: int) -> None:
    """Speak the worker protocol on `fd` until the host closes it; never returns."""
    sock = socket.socket(fileno=fd)
    threading.stack_size(THREAD_STACK)
    engines = Engines()
    running: dict[int, LaneTransport] = {}
    sock.sendall(pack({"op": "ready", "pid": os.getpid()}))
    with contextlib.suppress(EOFError, OSError, FrameError):
        while True:
            header, _body, fds = receive_with_fds(sock)
            op = header.get("op")
            if op == "lane":
                lane = socket.socket(fileno=fds[0])
                threading.Thread(
                    target=_lane, args=(lane, engines, running, header["lane"]), daemon=True
                ).start()
            elif op == "cancel":
                # A lane that waits hears it on its own socket; one that computes is looked at every few
                # ticks.
                current = running.get(header["lane"])
                if current is not None and current.run == header["run"]:
                    current.cancelled = True
            elif op == "load":
                try:
                    engines.load(header["engine"], header["fuel"], fds[0], header["meta"])
                # whatever the engine objects to, the host must hear it
                except Exception as error:  # noqa: BLE001
                    sock.sendall(pack({"op": "failed", "message": f"{type(error).__name__}: {error}"[:2000]}))
                else:
                    sock.sendall(pack({"op": "loaded", "engine": header["engine"]}))
            elif op == "forget":
                engines.forget(header["session"])
    os._exit(0)  # lanes may be inside a guest; nothing here is worth waiting for


class ThreadTransport:
    """Questions of one script to another thread of this process: the in-process backend. `post` must not
    block.
    """

    def __init__(self, post: Any, output: Any, tried: Any = None) -> None:
        self.cancelled = False
        self.tried = tried
        self._post = post
        self._output = output
        self._answers: queue.SimpleQueue[tuple[int, bool, bytes] | None] = queue.SimpleQueue()

    def ask(self, id_: int, kind: int, name: str, args: bytes) -> None:
        """Hand a question over."""
        self._post(id_, kind, name, args)

    def answer(self, timeout: float) -> tuple[int, bool, bytes] | None:
        """The next answer, or None when the time is up or the host gave up on the script."""
        end = time.monotonic() + timeout
        with contextlib.suppress(queue.Empty):
            return self._answers.get(timeout=max(0.0, end - time.monotonic()))
        return None

    def deliver(self, answer: tuple[int, bool, bytes] | None) -> None:
        """Called by the host; None ends the wait of a script that was cancelled."""
        self._answers.put(answer)

    def output(self, stream: int, data: bytes) -> None:
        """Pass output on at once."""
        self._output(stream, data)
