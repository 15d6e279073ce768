"""Gemini generateContent: the canonical request as contents and parts, and back.

Guarantees: a call's signature goes back on that same call and on no other (R176, A21), inside the one content
entry the calls came in; answers are `functionResponse` parts by name and in order, and media of a result ride
beside them under a header, fence included (R168, R170). Thoughts are asked for only when configured (R179,
R180). Calls that come without an id get one here that never goes on the wire. `parametersJsonSchema` and
`functionCall.id` follow the vendor's reference and were not tried live (R466). Source: Gemini API reference,
v1beta.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from fumehood.agent._arguments import FailureReason, checked_input, failed_input
from fumehood.agent._capabilities import GEMINI
from fumehood.agent._parts import (
    AudioPart,
    FilePart,
    ImagePart,
    MediaPart,
    Message,
    OpaquePart,
    ReasoningPart,
    Request,
    TextPart,
    ToolResultPart,
    ToolUsePart,
)
from fumehood.agent._response import (
    Block,
    Reasoning,
    Response,
    ToolCall,
    Usage,
    beyond,
    noted,
    response_of,
    said,
    tokens,
)
from fumehood.agent.providers._base import HttpProvider, StreamDecoder
from fumehood.agent.providers._sse import SseEvent
from fumehood.agent.providers._types import Chunk, ModelHttp, ToolDelta
from fumehood.agent.providers._wire import (
    WireNames,
    bracketed,
    media_data,
    moved_media,
    object_input,
    parts_of,
    plain,
    result_text,
    system_text,
    with_meta,
)

MINTED: Final = "fh-call-"
"""Start of ids made here for calls that came without one."""

STOPS: Final = {
    "STOP": "end_turn",
    "MAX_TOKENS": "max_tokens",
    "SAFETY": "refusal",
    "PROHIBITED_CONTENT": "refusal",
    "BLOCKLIST": "refusal",
}


_SAYS: Final = frozenset(
    {
        "inlineData",
        "fileData",
        "functionCall",
        "functionResponse",
        "executableCode",
        "codeExecutionResult",
        "toolCall",
        "toolResponse",
    }
)
"""What a part can say beside text; its other fields say how. Of these a part has one."""

_ENVELOPE: Final = (
    "content",
    "finishReason",
    "index",
    "tokenCount",
    "avgLogprobs",
    "logprobsResult",
    "safetyRatings",
)
"""The fields of a candidate that have a name here or are measurements. The others, such as what the answer is
grounded in, are kept for reading.
"""


class GeminiProvider(HttpProvider):
    """Google's Gemini models. include_thoughts: ask for thought summaries; unset, nothing about
    thinking is sent.
    """

    default_url = "https://generativelanguage.googleapis.com"
    table = GEMINI
    vendor = "gemini"

    def __init__(
        self, http: ModelHttp, model: str, *, include_thoughts: bool | None = None, **options: Any
    ) -> None:
        super().__init__(http, model, **options)
        self._include_thoughts = include_thoughts

    def url(self, *, stream: bool) -> str:
        method = "streamGenerateContent?alt=sse" if stream else "generateContent"
        return f"{self._url}/v1beta/models/{self._model}:{method}"

    def headers(self) -> tuple[tuple[str, str], ...]:
        return () if self._api_key is None else (("x-goog-api-key", self._api_key),)

    def encode(self, request: Request, names: WireNames, *, stream: bool) -> dict[str, Any]:
        body: dict[str, Any] = {"contents": []}
        for message in request.messages:
            if message.role != "system" and (parts := _parts(message, names)):
                body["contents"].append(
                    {"role": "model" if message.role == "assistant" else "user", "parts": parts}
                )
        if (system := system_text(request)) is not None:
            body["systemInstruction"] = {"parts": [{"text": system}]}
        if request.tools:
            body["tools"] = [
                {
                    "functionDeclarations": [
                        {
                            "name": names.to_wire(tool.name),
                            "description": tool.description,
                            "parametersJsonSchema": tool.input_schema,
                        }
                        for tool in request.tools
                    ]
                }
            ]
        config: dict[str, Any] = {"maxOutputTokens": self._max_tokens}
        if self._include_thoughts is not None:
            config["thinkingConfig"] = {"includeThoughts": self._include_thoughts}
        body["generationConfig"] = config
        return body

    def decode(self, body: Mapping[str, Any], names: WireNames) -> Response:
        candidates = body.get("candidates") or []
        if not candidates:
            blocked = (body.get("promptFeedback") or {}).get("blockReason")
            if blocked is None:
                raise ValueError("no candidates")
            notes = noted({"promptFeedback": body["promptFeedback"]}, self.vendor)
            return response_of([], "refusal", _usage(body.get("usageMetadata") or {}), provider_meta=notes)
        candidate = candidates[0]
        reason = str(candidate.get("finishReason") or "STOP")
        stop = STOPS.get(reason, reason.lower())
        parts = _joined((candidate.get("content") or {}).get("parts") or [])
        blocks = [
            block
            for at, part in enumerate(parts)
            for block in self._blocks(part, at, names, cut_off=reason == "MAX_TOKENS" and part is parts[-1])
        ]
        if stop == "end_turn" and any(isinstance(block, ToolCall) for block in blocks):
            stop = "tool_use"
        notes = noted(beyond(candidate, *_ENVELOPE), self.vendor)
        return response_of(blocks, stop, _usage(body.get("usageMetadata") or {}), provider_meta=notes)

    def decoder(self, names: WireNames) -> StreamDecoder:
        return _Decoder(self, names)

    def _blocks(self, part: Mapping[str, Any], at: int, names: WireNames, *, cut_off: bool) -> list[Block]:
        signature = part.get("thoughtSignature")
        if "text" in part and not _SAYS.intersection(part):
            if part.get("thought"):
                return [Reasoning("summary", self.vendor, part["text"], signature)]
            # A signature on ordinary text has no place in a text part; it follows as a redacted block and is
            # put back on the way out.
            mark = [] if signature is None else [Reasoning("redacted", self.vendor, None, signature)]
            more = beyond(part, "text", "thought", "thoughtSignature")
            return [said(part["text"], more, self.vendor), *mark]
        if _SAYS.intersection(part) == {"functionCall"}:
            call = part["functionCall"]
            value, failure = _arguments(call, cut_off=cut_off)
            more = beyond(part, "functionCall", "thoughtSignature")
            return [
                ToolCall(
                    call.get("id") or f"{MINTED}{at}",
                    names.from_wire(call["name"]),
                    value,
                    signature=signature,
                    arguments_failure=failure,
                    provider_meta={self.vendor: more} if more else None,
                )
            ]
        return [OpaquePart(provider=self.vendor, block=dict(part))]


def _arguments(call: Mapping[str, Any], *, cut_off: bool) -> tuple[Any, FailureReason | None]:
    # Arguments in pieces are not asked for; where they come all the same, none of them is the whole.
    if cut_off or call.get("willContinue") or call.get("partialArgs"):
        return failed_input("incomplete-stream"), "incomplete-stream"
    return checked_input({} if call.get("args") is None else call["args"])


def _joined(parts: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Parts with pieces of one text put together: a stream cuts texts where it likes, and both ways
    must give one answer (R456). A signature comes with the last piece of its text and closes it; one that
    came without text stays a part of its own.
    """
    made: list[dict[str, Any]] = []
    pieces: list[list[str]] = []  # joined once: a piece added to a long text copies the text
    for part in parts:
        piece = set(part) <= {"text", "thought", "thoughtSignature"} and "text" in part
        last = made[-1] if made else None
        if (
            piece
            and (part["text"] or "thoughtSignature" not in part)
            and last is not None
            and set(last) <= {"text", "thought"}
            and bool(last.get("thought")) == bool(part.get("thought"))
        ):
            made[-1] = {**last, **part}
            pieces[-1].append(part["text"])
        else:
            made.append(dict(part))
            pieces.append([part["text"]] if piece else [])
    return [
        {**part, "text": "".join(words)} if words else part for part, words in zip(made, pieces, strict=True)
    ]


def _parts(message: Message, names: WireNames) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    beside: list[dict[str, Any]] = []
    for part in parts_of(message):
        match part:
            case TextPart():
                made.append(with_meta({"text": plain(part.text)}, part, "gemini"))
            case ImagePart() | AudioPart() | FilePart():
                made.extend(_content(item) for item in bracketed(part))
            case ToolUsePart():
                made.append(_call(part, names))
            case ToolResultPart():
                made.append(_answer(part, names))
                media = moved_media(part, names.to_wire(part.name or ""))
                beside.extend(_content(item) for item in (media.parts if media else ()))
            case ReasoningPart(provider="gemini", kind="redacted", signature=str(signature)):
                if made and "text" in made[-1] and not {"thought", "thoughtSignature"} & made[-1].keys():
                    made[-1]["thoughtSignature"] = signature
                else:
                    made.append({"text": "", "thoughtSignature": signature})
            case ReasoningPart(provider="gemini"):
                if part.text or part.signature:
                    mark = {} if part.signature is None else {"thoughtSignature": part.signature}
                    made.append({"text": part.text or "", "thought": True, **mark})
            case OpaquePart(provider="gemini"):
                made.append(part.block)
            case _:
                pass
    # Empty text says nothing here and the vendor refuses a turn of nothing; with a signature it carries
    # something.
    kept = [part for part in made if part != {"text": ""}]
    answers = sum("functionResponse" in part for part in kept)
    return [*kept[:answers], *beside, *kept[answers:]] if beside else kept


def _call(part: ToolUsePart, names: WireNames) -> dict[str, Any]:
    call: dict[str, Any] = {"name": names.to_wire(part.name), "args": object_input(part.input)}
    if not part.id.startswith((MINTED, "call_")):
        call["id"] = part.id
    made: dict[str, Any] = {"functionCall": call}
    if part.signature is not None:
        made["thoughtSignature"] = part.signature
    return with_meta(made, part, "gemini")


def _answer(part: ToolResultPart, names: WireNames) -> dict[str, Any]:
    text = result_text(part)
    answer: dict[str, Any] = {
        "name": names.to_wire(part.name or ""),
        "response": {"error": text} if part.is_error else {"output": text},
    }
    if not part.tool_use_id.startswith((MINTED, "call_")):
        answer["id"] = part.tool_use_id
    return {"functionResponse": with_meta(answer, part, "gemini")}


def _content(part: TextPart | MediaPart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"text": plain(part.text)}
    return with_meta({"inlineData": {"mimeType": part.media_type, "data": media_data(part)}}, part, "gemini")


def _usage(usage: Mapping[str, Any]) -> Usage:
    return Usage(
        input_tokens=tokens(usage, "promptTokenCount"),
        output_tokens=tokens(usage, "candidatesTokenCount") + tokens(usage, "thoughtsTokenCount"),
        cached_input_tokens=tokens(usage, "cachedContentTokenCount"),
        reasoning_tokens=tokens(usage, "thoughtsTokenCount"),
    )


class _Decoder:
    """One stream: each event is a piece of the answer; the pieces are put together and decoded as one."""

    def __init__(self, provider: GeminiProvider, names: WireNames) -> None:
        self._provider = provider
        self._names = names
        self._parts: list[Mapping[str, Any]] = []
        self._calls = 0
        self._finish: object = None
        self._feedback: object = None
        self._more: dict[str, Any] = {}
        self._usage: Mapping[str, Any] = {}

    def feed(self, event: SseEvent) -> Iterator[Chunk]:
        data = json.loads(event.data)
        if data.get("error"):
            raise ValueError(str(data["error"])[:500])
        self._usage = data.get("usageMetadata") or self._usage
        self._feedback = data.get("promptFeedback") or self._feedback
        for candidate in (data.get("candidates") or [])[:1]:
            self._finish = candidate.get("finishReason") or self._finish
            for name, value in beyond(candidate, *_ENVELOPE).items():
                self._more[name] = _merged(self._more.get(name), value)
            for part in (candidate.get("content") or {}).get("parts") or ():
                self._parts.append(part)
                if part.get("thought") and part.get("text"):
                    yield Chunk(reasoning_delta=part["text"])
                elif part.get("text"):
                    yield Chunk(text_delta=part["text"])
                elif "functionCall" in part:
                    # This wire sends calls whole, so there is one piece.
                    call = part["functionCall"]
                    name = self._names.from_wire(call["name"])
                    id_ = call.get("id")
                    yield Chunk(
                        tool_delta=ToolDelta(self._calls, id_, name, json.dumps(call.get("args", {})))
                    )
                    self._calls += 1

    def finish(self) -> Response | None:
        if self._finish is None and not self._feedback:
            return None
        usage = {"usageMetadata": self._usage}
        if self._finish is None:
            return self._provider.decode({"promptFeedback": self._feedback, **usage}, self._names)
        candidate = {**self._more, "finishReason": self._finish, "content": {"parts": self._parts}}
        return self._provider.decode({"candidates": [candidate], **usage}, self._names)


def _merged(old: Any, new: Any) -> Any:
    """What two events say of one field of a candidate: both their fields, lists one behind the other."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {**old, **{name: _merged(old.get(name), value) for name, value in new.items()}}
    return [*old, *new] if isinstance(old, list) and isinstance(new, list) else new
