"""The part of a provider that is the same for every vendor: checks, one HTTP exchange, errors.

Guarantees: complete and stream both guard, check capabilities, strip framework fields and only then build a
body (R031, R150, R183); an answer of 400 and more, a broken body or a stream that ends early is a
ProviderError that says whether to try again, never half an answer. The key is sent in the header that the
vendor wants and stands in no error text. A mapping is four pure methods; it sees no socket.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol

from fumehood.agent._capabilities import Table, assert_request_supported, capabilities_of
from fumehood.agent._errors import ProviderError
from fumehood.agent._guard import guard_request
from fumehood.agent._parts import Capabilities, Part, ReasoningPart, Request, strip_framework_fields
from fumehood.agent._response import Response
from fumehood.agent.providers._sse import SseEvent, SseParser
from fumehood.agent.providers._types import Chunk, HttpRequest, HttpStream, ModelHttp
from fumehood.agent.providers._wire import NoForm, Unwritable, WireNames, parts_of, wire_bytes, wire_request

RETRYABLE: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
MAX_ERROR_CHARS: Final = 500
"""How much of a vendor's error text is repeated. It is the vendor's, so it is cut and shown as data."""
MAX_ERROR_BYTES: Final = 64 * 1024
MAX_ANSWER_BYTES: Final = 64 * 1024 * 1024
"""How long a stream may be, events and all: an answer without an end must not fill the host's memory."""


class StreamDecoder(Protocol):
    """Turns a vendor's events into chunks, and into the same response that `complete` would have given."""

    def feed(self, event: SseEvent) -> Iterator[Chunk]: ...
    def finish(self) -> Response | None: ...


class HttpProvider(ABC):
    """A provider over HTTP.

    http: the way out, from the host. api_key: None when the broker injects it. base_url: the vendor's own by
    default; another one declares no media (R160). capabilities: the operator's word, which wins (R161).
    extra_body: more keys for every request, the vendor's names.
    """

    default_url: str
    table: Table
    vendor: str

    def __init__(
        self,
        http: ModelHttp,
        model: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        capabilities: Capabilities | Mapping[str, Any] | None = None,
        max_tokens: int = 8_192,
        extra_body: Mapping[str, Any] | None = None,
    ) -> None:
        self._http = http
        self._model = model
        self._api_key = api_key
        self._url = (base_url or self.default_url).rstrip("/")
        configured = (
            capabilities
            if capabilities is None or isinstance(capabilities, Capabilities)
            else Capabilities.model_validate(capabilities)
        )
        self._capabilities = capabilities_of(self.table, model, own_url=self.own_url, configured=configured)
        self._max_tokens = max_tokens
        self._extra = dict(extra_body or {})

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._model} at {self._url}>"

    @property
    def name(self) -> str:
        """The vendor's name, as reasoning and opaque parts carry it."""
        return self.vendor

    @property
    def model(self) -> str:
        """The model's id."""
        return self._model

    @property
    def capabilities(self) -> Capabilities:
        """What this model takes here."""
        return self._capabilities

    @property
    def own_url(self) -> bool:
        """Whether this is the vendor's own address, so that the model's id means what it says."""
        return self._url == self.default_url.rstrip("/")

    @property
    def egress(self) -> str:
        """The egress rule that this provider needs: its own address and nothing else."""
        return f"POST {self._url}/"

    def render(self, request: Request, *, stream: bool = False) -> dict[str, Any]:
        """The body that would go on the wire; nothing is sent. Raises: GuardError, also for what could not be
        written.
        """
        return self._written(request, stream=stream)[0]

    async def complete(self, request: Request) -> Response:
        """One answer. Raises: GuardError before anything is sent; ProviderError."""
        _, names, body = self._written(request, stream=False)
        reply = await self._http.send(HttpRequest("POST", self.url(stream=False), self._headers(), body))
        if reply.status >= 400:
            raise self._refused(reply.status, reply.body)
        return self._decoded(reply.body, names)

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """The answer in chunks, the last with the whole response. Raises: as `complete`."""
        _, names, body = self._written(request, stream=True)
        asked = HttpRequest(
            "POST", self.url(stream=True), (*self._headers(), ("accept", "text/event-stream")), body
        )
        async with self._http.stream(asked) as reply:
            if reply.status >= 400:
                raise self._refused(reply.status, await _head(reply))
            decoder = self.decoder(names)
            parser = SseParser()
            left = MAX_ANSWER_BYTES
            async for piece in reply:
                left -= len(piece)
                if left < 0:
                    raise ProviderError(f"{self.vendor}: the stream is longer than {MAX_ANSWER_BYTES} bytes")
                for chunk in self._fed(decoder, parser, piece):
                    yield chunk
            for chunk in self._fed(decoder, parser, b"", final=True):
                yield chunk
        with self._understood("the answer"):
            response = decoder.finish()
        if response is None:
            raise ProviderError(f"{self.vendor}: the stream ended before the answer did", retryable=True)
        yield Chunk(response=response)

    # -- what a vendor's mapping says ------------------------------------------------------------------------

    @abstractmethod
    def encode(self, request: Request, names: WireNames, *, stream: bool) -> dict[str, Any]:
        """The request's body on the vendor's wire."""

    @abstractmethod
    def decode(self, body: Mapping[str, Any], names: WireNames) -> Response:
        """The vendor's whole answer."""

    @abstractmethod
    def decoder(self, names: WireNames) -> StreamDecoder:
        """A decoder for one stream."""

    @abstractmethod
    def url(self, *, stream: bool) -> str:
        """Where the request goes."""

    @abstractmethod
    def headers(self) -> tuple[tuple[str, str], ...]:
        """The vendor's own headers, with the key when there is one."""

    # -- inside ----------------------------------------------------------------------------------------------

    def _ready(self, request: Request) -> tuple[Request, WireNames]:
        # References are data by now, so the inline caps no longer apply; everything else is checked again for
        # direct callers.
        guarded = guard_request(request, max_inline_bytes=None, max_inline_total_bytes=None)
        assert_request_supported(guarded, self._capabilities, can_resolve=False)
        kept = _with_resolved_reasoning(guarded, request)
        bare = kept.model_copy(update={"messages": strip_framework_fields(kept.messages)})
        return wire_request(bare), WireNames.of(bare)

    def _written(self, request: Request, *, stream: bool) -> tuple[dict[str, Any], WireNames, bytes]:
        ready, names = self._ready(request)
        try:
            body = {**self.encode(ready, names, stream=stream), **self._extra}
            return body, names, wire_bytes(body)
        except NoForm as fault:
            raise fault.refusal(request) from None
        except Unwritable as fault:
            raise fault.refusal(request, self._extra) from fault

    def _headers(self) -> tuple[tuple[str, str], ...]:
        return (("content-type", "application/json"), *self.headers())

    def _decoded(self, raw: bytes, names: WireNames) -> Response:
        with self._understood("the answer"):
            return self.decode(json.loads(raw), names)

    def _fed(
        self, decoder: StreamDecoder, parser: SseParser, piece: bytes, *, final: bool = False
    ) -> Iterator[Chunk]:
        with self._understood("an event of the stream"):
            for event in parser.feed(piece, final=final):
                if event.data.strip() != "[DONE]":
                    yield from decoder.feed(event)

    @contextmanager
    def _understood(self, what: str) -> Iterator[None]:
        try:
            yield
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
            raise ProviderError(
                f"{self.vendor}: {what} is not one ({type(error).__name__}: {str(error)[:MAX_ERROR_CHARS]})",
                retryable=True,
            ) from error

    def _refused(self, status: int, raw: bytes) -> ProviderError:
        return ProviderError(
            f"{self.vendor} answered {status}: {_error_text(raw, self._api_key)}",
            status=status,
            retryable=status in RETRYABLE,
        )


def _with_resolved_reasoning(guarded: Request, original: Request) -> Request:
    """The guard takes readable reasoning off, whoever wrote it; here it comes from `carry_reasoning`, so it
    goes back on.

    A caller could only write there what the model itself is about to read as its own words, and the vendor's
    signature refuses a forgery.
    """
    messages = []
    whole = True
    for after, before in zip(guarded.messages, original.messages, strict=True):
        old = parts_of(before)
        if not any(isinstance(part, ReasoningPart) for part in old):
            messages.append(after)
            continue
        made: list[Part] = []
        for now, was in zip(parts_of(after), old, strict=True):
            if not isinstance(was, ReasoningPart):
                made.append(now)
                continue
            # Without its text such a part would go out as a block the vendor never signed: it goes, with all
            # after it (R366, R379).
            whole = whole and not (was.text is None and (was.omitted or was.digest or was.text_ref))
            if whole:
                made.append(was)
        messages.append(after.model_copy(update={"content": tuple(made)}))
    return guarded.model_copy(update={"messages": tuple(messages)})


async def _head(reply: HttpStream) -> bytes:
    """The beginning of a body, as much as an error is told from."""
    read = b""
    async for piece in reply:
        read += piece
        if len(read) > MAX_ERROR_BYTES:
            break
    return read


def _error_text(raw: bytes, key: str | None) -> str:
    text = raw[:MAX_ERROR_BYTES].decode("utf-8", "replace")
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    if isinstance(body, list) and body:
        body = body[0]
    error = body.get("error") if isinstance(body, dict) else None
    message = error.get("message") if isinstance(error, dict) else error
    shown = message if isinstance(message, str) else text
    shown = shown.replace(key, "[key]") if key else shown  # a server may repeat what it was sent
    shown = "".join(c if c.isprintable() else " " for c in shown).strip()
    return shown if len(shown) <= MAX_ERROR_CHARS else f"{shown[:MAX_ERROR_CHARS]}..."
