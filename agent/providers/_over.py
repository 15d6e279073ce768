"""Ways to the vendor: over the broker in production, over a plain httpx client in tests.

Guarantees: neither follows redirects, so a key cannot travel to another host; nothing here reads the
environment. `BrokerHttp` takes the broker's own objects by shape, because `agent` imports no `broker`: the
host hands in an open call and the class of its requests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from fumehood.agent._errors import ProviderError
from fumehood.agent.providers._types import HttpReply, HttpRequest, HttpStream

if TYPE_CHECKING:
    import httpx


class _Reply(Protocol):
    @property
    def status(self) -> int: ...
    @property
    def body(self) -> bytes: ...


class _BrokerCall(Protocol):
    async def fetch(self, request: Any) -> _Reply: ...
    def stream(self, request: Any) -> AbstractAsyncContextManager[HttpStream]: ...


class BrokerHttp:
    """Over the broker. call: an open `BrokerCall` whose policy allows the vendor; request:
    `fumehood.broker.FetchRequest`.
    """

    def __init__(self, call: _BrokerCall, request: Callable[..., Any]) -> None:
        self._call = call
        self._request = request

    async def send(self, request: HttpRequest) -> HttpReply:
        """One exchange. Raises: what the broker raises for a refusal."""
        reply = await self._call.fetch(self._made(request))
        return HttpReply(reply.status, reply.body)

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]:
        """One exchange with the body in pieces."""
        return self._call.stream(self._made(request))

    def _made(self, request: HttpRequest) -> Any:
        return self._request(request.method, request.url, request.headers, request.body, follow=False)


class HttpxHttp:
    """Over an `httpx.AsyncClient` that the caller owns. No egress decision is made: for tests and
    trusted scripts.
    """

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def send(self, request: HttpRequest) -> HttpReply:
        """One exchange. Raises: ProviderError."""
        import httpx

        try:
            reply = await self._client.request(
                request.method,
                request.url,
                headers=list(request.headers),
                content=request.body,
                follow_redirects=False,
            )
        except httpx.HTTPError as error:
            raise ProviderError(f"no answer ({type(error).__name__}: {error})", retryable=True) from error
        return HttpReply(reply.status_code, reply.content)

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[HttpStream]:
        """One exchange with the body in pieces. Raises: ProviderError."""
        import httpx

        try:
            async with self._client.stream(
                request.method,
                request.url,
                headers=list(request.headers),
                content=request.body,
                follow_redirects=False,
            ) as reply:
                yield _HttpxStream(reply)
        except httpx.HTTPError as error:
            raise ProviderError(
                f"the answer broke off ({type(error).__name__}: {error})", retryable=True
            ) from error


class _HttpxStream:
    def __init__(self, reply: httpx.Response) -> None:
        self.status = reply.status_code
        self._reply = reply

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._reply.aiter_bytes():
            yield piece
