"""Fake model vendors: they speak the wire of the real ones, check every body strictly, and answer from a
script.

A fake is the answer function of `fumehood.testing.http.HttpServer`. `say` queues an answer as blocks in
order; the fake writes it as one JSON object, or as server-sent events when the request asks for a stream, so
both carry the same answer. A body the vendor would refuse is answered 400 with the reason. `bodies` keeps
what came. Rules that only the live services know are not here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fumehood.testing.http import Reply, Seen

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Say:
    """One block of an answer. kind: which fields count: text; thinking (text, signature); redacted
    (signature); call; other (block).
    """

    kind: Literal["text", "thinking", "redacted", "call", "other"]
    text: str = ""
    signature: str | None = None
    id: str = ""
    name: str = ""
    input: object = None
    raw_input: str | None = None
    block: Mapping[str, Any] | None = None

    @property
    def arguments(self) -> str:
        """The call's input as the JSON text that the vendor sends."""
        return json.dumps(self.input) if self.raw_input is None else self.raw_input


class BadBody(Exception):
    """The vendor would answer 400."""


class FakeVendor:
    """Common part: the queue of answers and the log of bodies. Subclasses give the wire."""

    path = ""
    stream_path = ""
    key_header = "authorization"

    def __init__(self) -> None:
        self.bodies: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self._answers: list[tuple[list[Say], str]] = []
        self._default: tuple[list[Say], str] = ([Say("text", "ok")], "end")
        self.raw: Reply | bytes | Iterable[bytes] | None = None

    def say(self, *blocks: Say, stop: Literal["end", "length"] = "end") -> None:
        """Queue an answer; the last one said is repeated when the queue is empty."""
        self._answers.append((list(blocks), stop))
        self._default = self._answers[-1]

    def __call__(self, seen: Seen) -> Reply | bytes | Iterable[bytes]:
        self.headers.append(dict(seen.headers))
        try:
            body = json.loads(seen.body)
            streams = self._asked_for_stream(seen, body)
            self.bodies.append(body)
            self.check(body)
        except (BadBody, KeyError, TypeError, ValueError) as error:
            return Reply.json(
                {"error": {"type": "invalid_request_error", "message": f"{type(error).__name__}: {error}"}},
                400,
            )
        if self.raw is not None:
            return self.raw
        blocks, stop = self._answers.pop(0) if self._answers else self._default
        if not streams:
            return Reply.json(self.answer(blocks, stop))
        events = "".join(self.events(blocks, stop)).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        # Cut at odd places, also inside characters and between CR and LF, as networks do.
        return iter([head, *(events[at : at + 37] for at in range(0, len(events), 37))])

    def _asked_for_stream(self, seen: Seen, body: Json) -> bool:
        if seen.path not in (self.path, self.stream_path):
            raise BadBody(f"no such path: {seen.path}")
        return bool(body.get("stream"))

    def check(self, body: Json) -> None:
        """Raise BadBody for what the vendor would refuse."""
        raise NotImplementedError

    def answer(self, blocks: list[Say], stop: str) -> Json:
        """The whole answer."""
        raise NotImplementedError

    def events(self, blocks: list[Say], stop: str) -> Iterator[str]:
        """The answer as events."""
        raise NotImplementedError


def _only(value: Mapping[str, Any], where: str, required: str, optional: str = "") -> None:
    need, may = set(required.split()), set(optional.split())
    if missing := need - value.keys():
        raise BadBody(f"{where}: {sorted(missing)} missing")
    if extra := value.keys() - need - may:
        raise BadBody(f"{where}: {sorted(extra)} not permitted")


def _sse(data: object, name: str | None = None) -> str:
    return (f"event: {name}\n" if name else "") + f"data: {json.dumps(data, ensure_ascii=False)}\n\n"


def _halves(text: str) -> list[str]:
    middle = max(1, len(text) // 2)
    return [piece for piece in (text[:middle], text[middle:]) if piece]


def _words(text: str, where: str) -> None:
    if not isinstance(text, str) or not text:
        raise BadBody(f"{where}: text must be a non-empty string")


class FakeAnthropic(FakeVendor):
    """The Messages API."""

    path = stream_path = "/v1/messages"
    key_header = "x-api-key"

    def check(self, body: Json) -> None:
        _only(
            body, "body", "model max_tokens messages", "system tools thinking stream temperature tool_choice"
        )
        declared: list[str] = []
        for index, message in enumerate(body["messages"]):
            where = f"messages.{index}"
            _only(message, where, "role content")
            if message["role"] not in ("user", "assistant"):
                raise BadBody(f"{where}: role {message['role']}")
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            if not blocks:
                raise BadBody(f"{where}: empty content")
            answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
            if sorted(answered) != sorted(declared):
                raise BadBody(f"{where}: results for {answered}, but calls were {declared}")
            seen_other = False
            for block in blocks:
                if block["type"] == "tool_result" and seen_other:
                    raise BadBody(f"{where}: tool_result blocks come first")
                seen_other = seen_other or block["type"] != "tool_result"
                self._block(block, message["role"], where)
            declared = [block["id"] for block in blocks if block["type"] == "tool_use"]
            if len(set(declared)) != len(declared):
                raise BadBody(f"{where}: tool_use ids must be unique")
        if declared:
            raise BadBody("tool_use ids were found without tool_result blocks")

    def _block(self, block: Json, role: str, where: str) -> None:
        match block["type"]:
            case "text":
                _only(block, where, "type text", "cache_control")
                _words(block["text"], where)
            case "image":
                _only(block, where, "type source")
                _only(block["source"], where, "type media_type data")
            case "document":
                _only(block, where, "type source", "title")
                _only(block["source"], where, "type media_type data")
            case "tool_use" if role == "assistant":
                _only(block, where, "type id name input")
                if not isinstance(block["input"], dict):
                    raise BadBody(f"{where}: input should be an object")
            case "tool_result" if role == "user":
                _only(block, where, "type tool_use_id content", "is_error")
                for inner in block["content"] if isinstance(block["content"], list) else ():
                    if inner["type"] not in ("text", "image", "document"):
                        raise BadBody(f"{where}: {inner['type']} in a tool_result")
                    self._block(inner, role, where)
            case "thinking" if role == "assistant":
                _only(block, where, "type thinking signature")
            case "redacted_thinking" if role == "assistant":
                _only(block, where, "type data")
            case "server_tool_use" | "web_search_tool_result":
                pass
            case kind:
                raise BadBody(f"{where}: {kind} in {role}")

    def _made(self, block: Say) -> Json:
        match block.kind:
            case "text":
                return {"type": "text", "text": block.text, "citations": None}
            case "thinking":
                return {"type": "thinking", "thinking": block.text, "signature": block.signature}
            case "redacted":
                return {"type": "redacted_thinking", "data": block.signature}
            case "call":
                value = json.loads(block.arguments) if block.raw_input is None else block.raw_input
                return {"type": "tool_use", "id": block.id, "name": block.name, "input": value}
            case "other":
                return dict(block.block or {})

    def answer(self, blocks: list[Say], stop: str) -> Json:
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude",
            "content": [self._made(block) for block in blocks],
            "stop_reason": self._stop(blocks, stop),
            "stop_sequence": None,
            "usage": {"input_tokens": 5, "output_tokens": 7, "cache_read_input_tokens": 3},
        }

    @staticmethod
    def _stop(blocks: list[Say], stop: str) -> str:
        return (
            "max_tokens"
            if stop == "length"
            else "tool_use"
            if any(b.kind == "call" for b in blocks)
            else "end_turn"
        )

    def events(self, blocks: list[Say], stop: str) -> Iterator[str]:
        start = self.answer([], stop) | {
            "stop_reason": None,
            "usage": {"input_tokens": 5, "output_tokens": 1, "cache_read_input_tokens": 3},
        }
        yield _sse({"type": "message_start", "message": start}, "message_start")
        yield _sse({"type": "ping"}, "ping")
        for index, block in enumerate(blocks):
            made = self._made(block)
            deltas: list[Json] = []
            match block.kind:
                case "text":
                    made = made | {"text": ""}
                    deltas = [{"type": "text_delta", "text": piece} for piece in _halves(block.text)]
                case "thinking":
                    made = made | {"thinking": "", "signature": ""}
                    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _halves(block.text)]
                    deltas.append({"type": "signature_delta", "signature": block.signature})
                case "call":
                    made = made | {"input": {}}
                    deltas = [
                        {"type": "input_json_delta", "partial_json": piece}
                        for piece in ("", *_halves(block.arguments))
                    ]
            yield _sse(
                {"type": "content_block_start", "index": index, "content_block": made}, "content_block_start"
            )
            for delta in deltas:
                yield _sse(
                    {"type": "content_block_delta", "index": index, "delta": delta}, "content_block_delta"
                )
            yield _sse({"type": "content_block_stop", "index": index}, "content_block_stop")
        delta = {"stop_reason": self._stop(blocks, stop), "stop_sequence": None}
        yield _sse({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}}, "message_delta")
        yield _sse({"type": "message_stop"}, "message_stop")


class FakeOpenAIChat(FakeVendor):
    """The Chat Completions API."""

    path = stream_path = "/v1/chat/completions"

    def check(self, body: Json) -> None:
        _only(body, "body", "model messages", "max_completion_tokens tools stream stream_options temperature")
        waiting: list[str] = []
        for index, message in enumerate(body["messages"]):
            where = f"messages.{index}"
            if message["role"] == "tool":
                _only(message, where, "role tool_call_id content")
                if message["tool_call_id"] not in waiting:
                    raise BadBody(f"{where}: no call {message['tool_call_id']} waits for an answer")
                waiting.remove(message["tool_call_id"])
                if not isinstance(message["content"], str):
                    raise BadBody(f"{where}: tool messages are text")
                continue
            if waiting:
                raise BadBody(f"{where}: calls {waiting} were not answered first")
            self._message(message, where)
            waiting = [call["id"] for call in message.get("tool_calls") or ()]
            if len(set(waiting)) != len(waiting):
                raise BadBody(f"{where}: tool call ids must be unique")
        if waiting:
            raise BadBody(f"calls {waiting} were not answered")

    def _message(self, message: Json, where: str) -> None:
        match message["role"]:
            case "system" | "developer":
                _only(message, where, "role content")
            case "assistant":
                _only(message, where, "role content", "tool_calls")
                for call in message.get("tool_calls") or ():
                    _only(call, where, "id type function")
                    _only(call["function"], where, "name arguments")
                    json.loads(call["function"]["arguments"])
            case "user":
                _only(message, where, "role content")
                for part in message["content"] if isinstance(message["content"], list) else ():
                    known = {
                        "text": "text",
                        "image_url": "image_url",
                        "input_audio": "input_audio",
                        "file": "file",
                    }
                    _only(part, where, f"type {known[part['type']]}")
            case role:
                raise BadBody(f"{where}: role {role}")

    def _message_of(self, blocks: list[Say]) -> Json:
        texts = [block.text for block in blocks if block.kind == "text"]
        calls = [
            {
                "id": block.id,
                "type": "function",
                "function": {"name": block.name, "arguments": block.arguments},
            }
            for block in blocks
            if block.kind == "call"
        ]
        message: Json = {"role": "assistant", "content": "".join(texts) or None, "refusal": None}
        thoughts = "".join(block.text for block in blocks if block.kind == "thinking")
        return (
            message
            | ({"tool_calls": calls} if calls else {})
            | ({"reasoning_content": thoughts} if thoughts else {})
        )

    def answer(self, blocks: list[Say], stop: str) -> Json:
        usage = {
            "prompt_tokens": 5,
            "completion_tokens": 7,
            "total_tokens": 12,
            "prompt_tokens_details": {"cached_tokens": 3},
        }
        choice = {
            "index": 0,
            "finish_reason": self._stop(blocks, stop),
            "logprobs": None,
            "message": self._message_of(blocks),
        }
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt",
            "choices": [choice],
            "usage": usage,
        }

    @staticmethod
    def _stop(blocks: list[Say], stop: str) -> str:
        return (
            "length"
            if stop == "length"
            else "tool_calls"
            if any(b.kind == "call" for b in blocks)
            else "stop"
        )

    def events(self, blocks: list[Say], stop: str) -> Iterator[str]:
        def chunk(delta: Json, finish: str | None = None, **more: Any) -> str:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            return _sse({"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice], **more})

        yield chunk({"role": "assistant", "content": ""})
        calls = 0
        for block in blocks:
            if block.kind == "thinking":
                yield from (chunk({"reasoning_content": piece}) for piece in _halves(block.text))
            elif block.kind == "text":
                yield from (chunk({"content": piece}) for piece in _halves(block.text))
            elif block.kind == "call":
                head = {
                    "index": calls,
                    "id": block.id,
                    "type": "function",
                    "function": {"name": block.name, "arguments": ""},
                }
                yield chunk({"tool_calls": [head]})
                for piece in _halves(block.arguments):
                    yield chunk({"tool_calls": [{"index": calls, "function": {"arguments": piece}}]})
                calls += 1
        yield chunk({}, self._stop(blocks, stop))
        yield _sse({"id": "chatcmpl-1", "choices": [], "usage": self.answer(blocks, stop)["usage"]})
        yield "data: [DONE]\n\n"


class FakeOpenAIResponses(FakeVendor):
    """The Responses API, with `store: false`: it forgets every id between two calls."""

    path = stream_path = "/v1/responses"

    def check(self, body: Json) -> None:
        _only(
            body, "body", "model input store", "max_output_tokens instructions tools include reasoning stream"
        )
        if body["store"] is not False:
            raise BadBody("store: this fake keeps nothing")
        declared: list[str] = []
        for index, item in enumerate(body["input"]):
            where = f"input.{index}"
            if "id" in item:
                raise BadBody(f"{where}: item with id {item['id']!r} not found")
            match item["type"]:
                case "message":
                    _only(item, where, "type role content")
                    for part in item["content"] if isinstance(item["content"], list) else ():
                        self._part(part, where)
                case "function_call":
                    _only(item, where, "type call_id name arguments")
                    json.loads(item["arguments"])
                    declared.append(item["call_id"])
                case "function_call_output":
                    _only(item, where, "type call_id output")
                    if item["call_id"] not in declared:
                        raise BadBody(f"{where}: no tool call found for {item['call_id']}")
                    declared.remove(item["call_id"])
                    for part in item["output"] if isinstance(item["output"], list) else ():
                        self._part(part, where)
                case "reasoning":
                    _only(item, where, "type summary encrypted_content", "content")
                case "web_search_call":
                    pass
                case kind:
                    raise BadBody(f"{where}: {kind}")
        if declared:
            raise BadBody(f"no tool output found for {declared}")

    def _part(self, part: Json, where: str) -> None:
        known = {"input_text": "text", "input_image": "image_url detail", "input_file": "filename file_data"}
        if part["type"] not in known:
            raise BadBody(f"{where}: {part['type']}")
        _only(part, where, f"type {known[part['type']]}")

    def _item(self, block: Say, index: int) -> Json:
        match block.kind:
            case "text":
                part = {"type": "output_text", "text": block.text, "annotations": []}
                return {
                    "type": "message",
                    "id": f"msg_{index}",
                    "role": "assistant",
                    "status": "completed",
                    "content": [part],
                }
            case "thinking" | "redacted":
                texts = block.text.split("\n\n") if block.text else []
                summary = [{"type": "summary_text", "text": text} for text in texts]
                return {
                    "type": "reasoning",
                    "id": f"rs_{index}",
                    "summary": summary,
                    "encrypted_content": block.signature,
                }
            case "call":
                return {
                    "type": "function_call",
                    "id": f"fc_{index}",
                    "call_id": block.id,
                    "name": block.name,
                    "arguments": block.arguments,
                }
            case "other":
                return dict(block.block or {})

    def answer(self, blocks: list[Say], stop: str) -> Json:
        usage = {"input_tokens": 5, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 3}}
        return {
            "id": "resp_1",
            "object": "response",
            "status": "incomplete" if stop == "length" else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if stop == "length" else None,
            "output": [self._item(block, index) for index, block in enumerate(blocks)],
            "usage": usage,
        }

    def events(self, blocks: list[Say], stop: str) -> Iterator[str]:
        for index, block in enumerate(blocks):
            item = self._item(block, index)
            at = {"output_index": index}
            yield _sse({"type": "response.output_item.added", "item": item, **at})
            if block.kind == "text":
                yield from (
                    _sse({"type": "response.output_text.delta", "delta": piece, **at})
                    for piece in _halves(block.text)
                )
            elif block.kind == "call":
                kind = "response.function_call_arguments.delta"
                yield from (_sse({"type": kind, "delta": piece, **at}) for piece in _halves(block.arguments))
            elif block.kind == "thinking":
                for part, text in enumerate(block.text.split("\n\n")):
                    here = {"summary_index": part, **at}
                    yield _sse({"type": "response.reasoning_summary_part.added", **here})
                    kind = "response.reasoning_summary_text.delta"
                    yield from (_sse({"type": kind, "delta": piece, **here}) for piece in _halves(text))
            yield _sse({"type": "response.output_item.done", "item": item, **at})
        end = "response.incomplete" if stop == "length" else "response.completed"
        yield _sse({"type": end, "response": self.answer(blocks, stop)})


class FakeGemini(FakeVendor):
    """generateContent. strict_signatures: a call that was sent with a signature must come back with
    it (Gemini 3).
    """

    key_header = "x-goog-api-key"

    def __init__(self, model: str = "gemini-2.5-pro") -> None:
        super().__init__()
        self.path = f"/v1beta/models/{model}:generateContent"
        self.stream_path = f"/v1beta/models/{model}:streamGenerateContent"
        self._signed: dict[str, str] = {}

    def _asked_for_stream(self, seen: Seen, body: Json) -> bool:
        super()._asked_for_stream(seen, body)
        return seen.path == self.stream_path

    def check(self, body: Json) -> None:
        _only(body, "body", "contents", "systemInstruction tools generationConfig")
        calls: list[str] = []
        for index, entry in enumerate(body["contents"]):
            where = f"contents.{index}"
            _only(entry, where, "role parts")
            if entry["role"] not in ("user", "model") or not entry["parts"]:
                raise BadBody(f"{where}: role {entry['role']} with {len(entry['parts'])} parts")
            answers = [
                part["functionResponse"]["name"] for part in entry["parts"] if "functionResponse" in part
            ]
            if answers != calls:
                raise BadBody(f"{where}: function responses {answers}, but calls were {calls}")
            calls = []
            for part in entry["parts"]:
                self._part(part, where)
                if "functionCall" in part:
                    calls.append(part["functionCall"]["name"])
                    wanted = self._signed.get(json.dumps(part["functionCall"]["args"], sort_keys=True))
                    if wanted != part.get("thoughtSignature"):
                        raise BadBody(
                            f"{where}: function call is missing a thought_signature, or has another's"
                        )

    def _part(self, part: Json, where: str) -> None:
        fields = part.keys() - {"thought", "thoughtSignature"}
        if len(fields) != 1 or not fields <= {
            "text",
            "inlineData",
            "functionCall",
            "functionResponse",
            "executableCode",
        }:
            raise BadBody(f"{where}: part with {sorted(part)}")
        if "inlineData" in part:
            _only(part["inlineData"], where, "mimeType data")
        if "functionCall" in part:
            _only(part["functionCall"], where, "name args", "id")
        if "functionResponse" in part:
            _only(part["functionResponse"], where, "name response", "id")

    def _made(self, block: Say) -> Json:
        mark = {} if block.signature is None else {"thoughtSignature": block.signature}
        match block.kind:
            case "text":
                return {"text": block.text, **mark}
            case "thinking":
                return {"text": block.text, "thought": True, **mark}
            case "redacted":
                return {"text": "", **mark}
            case "call":
                if block.signature is not None:
                    self._signed[json.dumps(block.input, sort_keys=True)] = block.signature
                call = {"name": block.name, "args": block.input} | ({"id": block.id} if block.id else {})
                return {"functionCall": call, **mark}
            case "other":
                return dict(block.block or {})

    def answer(self, blocks: list[Say], stop: str) -> Json:
        candidate = {
            "index": 0,
            "finishReason": "MAX_TOKENS" if stop == "length" else "STOP",
            "content": {"role": "model", "parts": [self._made(block) for block in blocks]},
        }
        usage = {"promptTokenCount": 5, "candidatesTokenCount": 7, "cachedContentTokenCount": 3}
        return {"candidates": [candidate], "usageMetadata": usage}

    def events(self, blocks: list[Say], stop: str) -> Iterator[str]:
        whole = self.answer(blocks, stop)
        for part in whole["candidates"][0]["content"]["parts"]:
            pieces: Sequence[Json] = [part]
            if "text" in part and "thoughtSignature" not in part:
                pieces = [part | {"text": piece} for piece in _halves(part["text"])]
            for piece in pieces:
                yield _sse({"candidates": [{"index": 0, "content": {"role": "model", "parts": [piece]}}]})
        last = {"index": 0, "finishReason": whole["candidates"][0]["finishReason"]}
        yield _sse({"candidates": [last], "usageMetadata": whole["usageMetadata"]})


VENDORS: Mapping[str, Callable[[], FakeVendor]] = {
    "anthropic": FakeAnthropic,
    "openai-chat": FakeOpenAIChat,
    "openai-responses": FakeOpenAIResponses,
    "gemini": FakeGemini,
}
