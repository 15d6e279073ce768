"""The host's side of a running script: every question is counted, checked, recorded and answered here.

Guarantees: caps hold whatever the backend does, since they are counted again here; a question that was
asked is in `records` from that moment on, so completed calls are listed even when the worker dies; what a
tool raises never reaches the script unless it is a `ToolRefused` meant for it.
"""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

from fumehood.sandbox._json import NotJson, decode, encode
from fumehood.sandbox._model import (
    EventSink,
    FetchAnswer,
    FetchCall,
    Limits,
    ScriptEvent,
    ToolAnswer,
    ToolCall,
    ToolRefused,
    ToolSignature,
)
from fumehood.sandbox._protocol import LimitHit

logger = logging.getLogger(__name__)
CallTool = Callable[[str, object], Awaitable[object]]
Fetch = Callable[[FetchCall], Awaitable[FetchAnswer]]
FAILED = "the tool failed"
FETCH_FAILED = "the request failed"
NAME_MAX = 256
SHOWN = 250  # characters of a refusal at its beginning, and as many at its end
CAPS = {
    "tool-calls": "one call more than the script may make",
    "pending": "one call more than may be open at once",
    "bridge-bytes": "more bytes than the script may send",
}
CONTAINER = 64  # bytes that an empty list or object takes in the host, about


class HostBridge:
    """Implements `Bridge` for one script."""

    def __init__(
        self,
        tools: Mapping[str, ToolSignature],
        call_tool: CallTool | None,
        fetch: Fetch | None,
        limits: Limits,
        on_event: EventSink | None,
    ) -> None:
        self.stop_reason: str | None = None
        self.taints: dict[str, None] = {}
        self.streams = (bytearray(), bytearray())
        self.truncated = [False, False]
        self.closed = False
        self.session_lost = False
        self.on_stop: Callable[[], object] | None = None
        self._tools = tools
        self._call_tool = call_tool
        self._fetch = fetch
        self._limits = limits
        self._on_event = on_event
        self._records: list[ToolCall] = []
        self._over = False  # a question past a cap is on the list
        self._open: dict[int, tuple[str, object, float]] = {}
        self._output_left = limits.output
        self._bytes_out = self._bytes_in = limits.bridge_bytes

    @property
    def asked(self) -> int:
        """Questions so far, open ones included."""
        return len(self._records)

    @property
    def records(self) -> tuple[ToolCall, ...]:
        """Every question in the order asked; those without an answer are "abandoned"."""
        return tuple(self._records)

    @property
    def output_left(self) -> int:
        """Bytes of output and value that may still come."""
        return self._output_left

    def event(self, kind: str, **data: object) -> None:
        """Tell the sink, if there is one. A sink that fails must not end the script, nor pass for a fault of
        the worker.
        """
        if self._on_event is None:
            return
        try:
            self._on_event(ScriptEvent(kind, data))
        except Exception:
            logger.exception("the event sink of a script failed on %r", kind)

    def output(self, stream: int, data: bytes) -> None:
        """Keep what was printed, up to the cap. Raises: LimitHit."""
        kept = data[: self._output_left]
        self._output_left -= len(kept)
        self.streams[stream].extend(kept)
        if kept:
            self.event("stderr" if stream else "stdout", text=kept.decode("utf-8", "replace"))
        if len(kept) < len(data):
            self.truncated[stream] = True
            raise self._hit("output")

    def take_value(self, size: int) -> None:
        """Count the value against the output cap. Raises: LimitHit."""
        if size > self._output_left:
            raise self._hit("output")
        self._output_left -= size

    async def call(self, name: str, args_json: str, *, fetch: bool = False) -> tuple[bool, str]:
        """Count, check, record, ask. Raises: LimitHit."""
        if self.closed:
            raise LimitHit(self.stop_reason or "tool-calls")
        if len(self._records) >= self._limits.tool_calls:
            raise self._too_much(name, "tool-calls")
        if len(self._open) >= self._limits.pending:
            raise self._too_much(name, "pending")
        # before they are parsed: three bytes of JSON can be an object of the host's, and hold its loop up
        containers = args_json.count("{") + args_json.count("[")
        self._bytes_out -= len(name) + len(args_json) + CONTAINER * containers
        if self._bytes_out < 0:
            raise self._too_much(name, "bridge-bytes")
        if len(name) > NAME_MAX:
            name = name[:NAME_MAX] + "…"  # no tool has such a name; the list need not hold all of it
        index = len(self._records)
        try:
            args = decode(args_json)
        except NotJson as error:
            self._records.append(ToolCall(name, "error", None, "input-schema", str(error)))
            return False, encode({"message": str(error), "reason": "input-schema"})
        self._records.append(ToolCall(name, "abandoned", args))
        self._open[index] = (name, args, time.perf_counter())
        self.event("tool-started", name=name, index=index)
        answer, text = await self._ask(name, args, fetch)
        _, _, started = self._open.pop(index)
        wall_ms = (time.perf_counter() - started) * 1e3
        outcome: Literal["ok", "error"] = "ok" if answer.ok else "error"
        self._records[index] = ToolCall(
            name, outcome, args, answer.reason, answer.message, answer.call_id, wall_ms
        )
        if answer.taint is not None:
            self.taints[answer.taint] = None
        self.event("tool-ended", name=name, index=index, outcome=outcome)
        self._bytes_in -= len(text)
        if self._bytes_in < 0:
            raise self._hit("bridge-bytes")
        return answer.ok, text

    async def _ask(self, name: str, args: object, fetch: bool) -> tuple[ToolAnswer, str]:
        failed = FETCH_FAILED if fetch else FAILED
        try:
            answer = await (self._do_fetch(args) if fetch else self._do_call(name, args))
            text = encode(
                answer.value if answer.ok else {"message": answer.message or failed, "reason": answer.reason}
            )
        except ToolRefused as refused:
            # it may repeat what the script sent, and that may be a megabyte
            answer = ToolAnswer(ok=False, message=_shown(refused.message), reason=refused.reason)
            text = encode({"message": answer.message, "reason": refused.reason})
        except NotJson as error:
            logger.warning("tool %s answered a script with what isn't JSON: %s", name, error)
            answer = ToolAnswer(ok=False, message="the tool's result is not JSON")
            text = encode({"message": answer.message, "reason": answer.reason})
        # a tool may raise anything; its text may hold what a script must not see
        except Exception:
            logger.exception("tool %s, called by a script, failed", name)
            answer = ToolAnswer(ok=False, message=failed)
            text = encode({"message": failed, "reason": None})
        return answer, text

    async def _do_call(self, name: str, args: object) -> ToolAnswer:
        if self._call_tool is None or name not in self._tools:
            raise ToolRefused(f"no tool named {name[:64]!r} is granted to this script", reason="unknown-tool")
        answer = await self._call_tool(name, args)
        return answer if isinstance(answer, ToolAnswer) else ToolAnswer(answer)

    async def _do_fetch(self, args: object) -> ToolAnswer:
        if self._fetch is None:
            raise ToolRefused("fetch is not granted to this script", reason="not-listed")
        reply = await self._fetch(fetch_call(args))
        value: dict[str, object] = {
            "status": reply.status,
            "headers": [list(h) for h in reply.headers],
            "url": reply.url,
        }
        try:
            value["text"] = reply.body.decode("utf-8")
        except UnicodeDecodeError:
            value["base64"] = base64.b64encode(reply.body).decode()
        return ToolAnswer(value, taint=reply.taint)

    def tried(self, name: str, reason: str) -> None:
        """A question that a backend's own count kept from being asked; the end of the script follows. Listed
        once. Raises: ValueError for what is no cap.
        """
        if reason not in CAPS:
            raise ValueError(f"{reason[:64]!r} is no cap of the bridge")
        if not self.closed and not self._over:
            self._list_too_much(name, reason)

    def _too_much(self, name: str, reason: str) -> LimitHit:
        """The question is listed with the cap it went past, and never asked."""
        if not self._over:
            self._list_too_much(name, reason)
        return self._hit(reason)

    def _list_too_much(self, name: str, reason: str) -> None:
        self._over = True
        self._records.append(ToolCall(name[:NAME_MAX], "error", None, reason, CAPS[reason]))

    def _hit(self, reason: str) -> LimitHit:
        if self.stop_reason is None:
            self.stop_reason = reason
            if self.on_stop is not None:
                self.on_stop()
        return LimitHit(reason)


def _shown(text: str) -> str:
    """The text, or its beginning and end when it is long."""
    return text if len(text) <= 2 * SHOWN else f"{text[:SHOWN]} … {text[-SHOWN:]}"


def fetch_call(args: object) -> FetchCall:
    """A script's request, checked for shape only. Raises: ToolRefused."""
    if not isinstance(args, dict) or not isinstance(args.get("url"), str):
        raise ToolRefused("fetch needs a URL", reason="malformed")
    headers = args.get("headers") or {}
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    if not isinstance(pairs, list) or not all(
        isinstance(p, list | tuple) and len(p) == 2 and all(isinstance(x, str) for x in p) for p in pairs
    ):
        raise ToolRefused("fetch headers must be an object of strings", reason="malformed")
    method, body = args.get("method") or "GET", args.get("body")
    if not isinstance(method, str) or not isinstance(body, str | None):
        raise ToolRefused("fetch takes a method and a body as strings", reason="malformed")
    raw = b"" if body is None else body.encode("utf-8", "replace")
    return FetchCall(args["url"], method, tuple((str(k), str(v)) for k, v in pairs), raw)
