"""`ctx`: what a tool is handed beside its input. Every method is a frame to the host; nothing here decides
anything.

`SyncContext` serves a plain `def run`, its threads included; `AsyncContext` serves `async def run`, and
imports asyncio only when it is used: loaded in the zygote it makes every fork slower. Both refuse over-long
requests here with a Python error, so that an honest tool sees a traceback and not the end of its call.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .channel import Channel, HostGone, Message
from .frames import MAX_ATTACHED, MAX_KIND

if TYPE_CHECKING:
    import asyncio


class EgressDenied(Exception):
    """The broker refused the request. `.reason` is the code, the text is the sentence for a person."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class FetchFailed(Exception):
    """The request was allowed, and the other side did not answer it properly."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Headers(dict[str, str]):
    """Header fields by lower-case name; asked for in any case, as HTTP has it."""

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name.lower() if isinstance(name, str) else name)

    def get(self, name: str, default: Any = None) -> Any:
        return super().get(name.lower(), default)


class Reply:
    """An HTTP response: `.status` int, `.headers` dict by name in any case, `.body` bytes, `.text` str,
    `.url` str, `.json()`.
    """

    def __init__(self, status: int, headers: list[list[str]], body: bytes, url: str) -> None:
        self.status, self.body, self.url = status, body, url
        self.header_list = [(name, value) for name, value in headers]
        self.headers = Headers()
        for name, value in self.header_list:
            low = name.lower()
            self.headers[low] = f"{self.headers[low]}, {value}" if low in self.headers else value

    @property
    def text(self) -> str:
        """The body as UTF-8, undecodable bytes replaced."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    def __repr__(self) -> str:
        return f"<Reply {self.status} {self.url} {len(self.body)} bytes>"


def fetch_request(
    url: str,
    method: str,
    headers: Mapping[str, str] | Iterable[tuple[str, str]] | None,
    body: bytes | str | None,
    json_body: Any,
) -> tuple[Message, bytes]:
    """The frame for one fetch."""
    pairs = [] if headers is None else list(headers.items() if isinstance(headers, Mapping) else headers)
    if json_body is not None:
        if body is not None:
            raise ValueError("ctx.fetch: give body or json, not both")
        body = json.dumps(json_body)
        if not any(str(name).lower() == "content-type" for name, _ in pairs):
            pairs.append(("content-type", "application/json"))
    data = _bounded("ctx.fetch", body.encode() if isinstance(body, str) else body or b"")
    return {
        "t": "fetch",
        "url": str(url),
        "method": str(method),
        "headers": [[str(n), str(v)] for n, v in pairs],
    }, data


def reply_or_raise(answer: Message, body: bytes) -> Reply:
    """The reply an answer frame holds, or the error it tells of."""
    if answer["t"] == "refused":
        raise EgressDenied(answer["reason"], answer["message"])
    if answer["t"] == "failed":
        raise FetchFailed(answer["reason"], answer["message"])
    return Reply(answer["status"], answer["headers"], body, answer["url"])


def put_address(answer: Message) -> Message:
    """`{"address", "size"}` of stored content, or the error the host answered with."""
    if answer["t"] != "stored":
        raise ValueError(answer["message"])
    return {"address": answer["address"], "size": answer["size"]}


def as_bytes(data: Any) -> bytes:
    if isinstance(data, str):
        raise TypeError("ctx.put takes bytes; encode the text first")
    return _bounded("ctx.put", bytes(data))


def _bounded(method: str, data: bytes) -> bytes:
    if len(data) > MAX_ATTACHED:
        raise ValueError(f"{method} takes {MAX_ATTACHED} bytes at most, and these are {len(data)}")
    return data


class _Context:
    """What both kinds of context share."""

    def __init__(self, channel: Channel, call_id: str, tool: str, tmp: str) -> None:
        self._channel = channel
        self.call_id = call_id
        self.tool = tool
        self.tmp = tmp

    def emit(self, kind: str, data: Any = None) -> None:
        """Forward an event to the host: in order, and before the result. `data` is any JSON value."""
        kind = str(kind)
        if not 0 < len(kind) <= MAX_KIND:
            raise ValueError(f"ctx.emit: a kind has 1 to {MAX_KIND} characters, and this one {len(kind)}")
        self._channel.send({"t": "emit", "kind": kind, "data": data})

    def log(self, text: str) -> None:
        """A line for the operator's log."""
        self._channel.send({"t": "log", "text": str(text)[:65536]})


class SyncContext(_Context):
    """`ctx` of a plain function; safe to use from its threads."""

    def fetch(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Any = None,
        body: bytes | str | None = None,
        json: Any = None,
    ) -> Reply:
        """Fetch through the broker. Raises EgressDenied or FetchFailed."""
        return reply_or_raise(*self._channel.ask(*fetch_request(url, method, headers, body, json)))

    def put(self, data: bytes, media_type: str) -> Message:
        """Store bytes in the content store; returns {"address", "size"}."""
        answer, _ = self._channel.ask({"t": "put", "media_type": str(media_type)}, as_bytes(data))
        return put_address(answer)


class AsyncContext(_Context):
    """`ctx` of a coroutine; answers arrive through the running event loop, so many fetches may be under way
    at once.
    """

    def __init__(self, channel: Channel, call_id: str, tool: str, tmp: str) -> None:
        super().__init__(channel, call_id, tool, tmp)
        self._pending: dict[int, asyncio.Future[tuple[Message, bytes]]] = {}

    async def fetch(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Any = None,
        body: bytes | str | None = None,
        json: Any = None,
    ) -> Reply:
        """Fetch through the broker. Raises EgressDenied or FetchFailed."""
        return reply_or_raise(*await self._ask(*fetch_request(url, method, headers, body, json)))

    async def put(self, data: bytes, media_type: str) -> Message:
        """Store bytes in the content store; returns {"address", "size"}."""
        answer, _ = await self._ask({"t": "put", "media_type": str(media_type)}, as_bytes(data))
        return put_address(answer)

    async def _ask(self, message: Message, data: bytes) -> tuple[Message, bytes]:
        import asyncio

        loop = asyncio.get_running_loop()
        request = self._channel.new_id()
        future: asyncio.Future[tuple[Message, bytes]] = loop.create_future()
        if not self._pending:
            loop.add_reader(self._channel.fileno(), self._on_readable)
        self._pending[request] = future
        try:
            self._channel.send({**message, "id": request}, data)
            return await future
        finally:
            self._pending.pop(request, None)
            if not self._pending:
                loop.remove_reader(self._channel.fileno())

    def _on_readable(self) -> None:
        try:
            messages = self._channel.read(socket.MSG_DONTWAIT)
        except HostGone as error:
            for future in self._pending.values():
                if not future.done():
                    future.set_exception(error)
            return
        while messages:
            answer, body = messages.pop(0)
            future = self._pending.get(answer["id"])  # type: ignore[assignment]
            if future is not None and not future.done():
                future.set_result((answer, body))
