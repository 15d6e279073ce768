"""What a provider is, and what it needs of the network.

A provider maps the one canonical request to a vendor's wire and back. It reaches the vendor only through the
`ModelHttp` it was given, which the host builds over the broker, so the vendor's host is an egress rule like
any tool's. Requests arrive guarded, resolved and without framework fields; each shipped provider checks again
for callers that come directly (R150).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from fumehood.agent._parts import Capabilities, Request
from fumehood.agent._response import Response


@dataclass(frozen=True, slots=True)
class ToolDelta:
    """A piece of a call that is being written (R399): id and name come with the first piece, fragments of the
    input's JSON follow.

    index: which call of the answer, from 0.
    """

    index: int
    id: str | None = None
    name: str | None = None
    fragment: str = ""


@dataclass(frozen=True, slots=True)
class Chunk:
    """One step of a stream. The last one carries `response`, whole, and only that is journalled (R401)."""

    text_delta: str = ""
    reasoning_delta: str = ""
    tool_delta: ToolDelta | None = None
    response: Response | None = None


class Provider(Protocol):
    """One model behind one vendor's wire. name: what its reasoning and opaque parts carry as `provider`."""

    @property
    def name(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def capabilities(self) -> Capabilities: ...
    async def complete(self, request: Request) -> Response: ...
    def stream(self, request: Request) -> AsyncIterator[Chunk]: ...


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One exchange. headers: as pairs, because a name may come twice."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A whole answer, body decoded."""

    status: int
    body: bytes


class HttpStream(Protocol):
    """An answer whose body comes in pieces."""

    @property
    def status(self) -> int: ...
    def __aiter__(self) -> AsyncIterator[bytes]: ...


class ModelHttp(Protocol):
    """The way to the vendor: the broker's fetch, handed in by the host."""

    async def send(self, request: HttpRequest) -> HttpReply: ...
    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]: ...
