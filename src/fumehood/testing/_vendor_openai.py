"""Fakes of OpenAI Chat Completions and Responses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from fumehood.testing._vendor import BadBody, FakeVendor, Json, Say, halves, only, sse


class FakeOpenAIChat(FakeVendor):
    """The Chat Completions API."""

    path = stream_path = "/v1/chat/completions"

    def check(self, body: Json) -> None:
        only(
            body,
            "body",
            "model messages",
            "max_completion_tokens max_tokens tools stream stream_options temperature",
        )
        waiting: list[str] = []
        for index, message in enumerate(body["messages"]):
            where = f"messages.{index}"
            if message["role"] == "tool":
                only(message, where, "role tool_call_id content")
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
                only(message, where, "role content")
            case "assistant":
                only(message, where, "role content", "tool_calls refusal")
                for call in message.get("tool_calls") or ():
                    only(call, where, "id type function", "extra_content")
                    only(call["function"], where, "name arguments")
                    json.loads(call["function"]["arguments"])
            case "user":
                only(message, where, "role content")
                for part in message["content"] if isinstance(message["content"], list) else ():
                    known = {
                        "text": "text",
                        "image_url": "image_url",
                        "input_audio": "input_audio",
                        "file": "file",
                    }
                    only(part, where, f"type {known[part['type']]}")
            case role:
                raise BadBody(f"{where}: role {role}")

    def _message_of(self, blocks: list[Say]) -> Json:
        texts = [block.text for block in blocks if block.kind == "text"]
        calls = [
            {
                "id": block.id,
                "type": "function",
                "function": {"name": block.name, "arguments": block.arguments},
                **block.more,
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
            return sse({"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice], **more})

        yield chunk({"role": "assistant", "content": ""})
        calls = 0
        for block in blocks:
            if block.kind == "thinking":
                yield from (chunk({"reasoning_content": piece}) for piece in halves(block.text))
            elif block.kind == "text":
                yield from (chunk({"content": piece}) for piece in halves(block.text))
            elif block.kind == "call":
                head = {
                    "index": calls,
                    "id": block.id,
                    "type": "function",
                    "function": {"name": block.name, "arguments": ""},
                    **block.more,
                }
                yield chunk({"tool_calls": [head]})
                for piece in halves(block.arguments):
                    yield chunk({"tool_calls": [{"index": calls, "function": {"arguments": piece}}]})
                calls += 1
        yield chunk({}, self._stop(blocks, stop))
        yield sse({"id": "chatcmpl-1", "choices": [], "usage": self.answer(blocks, stop)["usage"]})
        yield "data: [DONE]\n\n"


class FakeOpenAIResponses(FakeVendor):
    """The Responses API, with `store: false`: it forgets every id between two calls."""

    path = stream_path = "/v1/responses"

    def check(self, body: Json) -> None:
        only(
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
                    only(item, where, "type role content", "phase")
                    for part in item["content"] if isinstance(item["content"], list) else ():
                        self._part(part, where, item["role"])
                case "function_call":
                    only(item, where, "type call_id name arguments", "namespace caller")
                    json.loads(item["arguments"])
                    declared.append(item["call_id"])
                case "function_call_output":
                    only(item, where, "type call_id output")
                    if item["call_id"] not in declared:
                        raise BadBody(f"{where}: no tool call found for {item['call_id']}")
                    declared.remove(item["call_id"])
                    for part in item["output"] if isinstance(item["output"], list) else ():
                        self._part(part, where)
                case "reasoning":
                    only(item, where, "type summary encrypted_content", "content")
                case "web_search_call":
                    pass
                case kind:
                    raise BadBody(f"{where}: {kind}")
        if declared:
            raise BadBody(f"no tool output found for {declared}")

    def _part(self, part: Json, where: str, role: str = "user") -> None:
        known = {"input_text": "text", "input_image": "image_url detail", "input_file": "filename file_data"}
        if role == "assistant":
            known = {"output_text": "text annotations", "refusal": "refusal"}
        if part["type"] not in known:
            raise BadBody(f"{where}: {part['type']}")
        only(part, where, f"type {known[part['type']]}")

    def _item(self, block: Say, index: int) -> Json:
        match block.kind:
            case "text":
                part = {"type": "output_text", "text": block.text, "annotations": []}
                part |= {name: value for name, value in block.more.items() if name == "annotations"}
                return {
                    **{name: value for name, value in block.more.items() if name == "phase"},
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
                    **block.more,
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
            yield sse({"type": "response.output_item.added", "item": item, **at})
            if block.kind == "text":
                yield from (
                    sse({"type": "response.output_text.delta", "delta": piece, **at})
                    for piece in halves(block.text)
                )
            elif block.kind == "call":
                kind = "response.function_call_arguments.delta"
                yield from (sse({"type": kind, "delta": piece, **at}) for piece in halves(block.arguments))
            elif block.kind == "thinking":
                for part, text in enumerate(block.text.split("\n\n")):
                    here = {"summary_index": part, **at}
                    yield sse({"type": "response.reasoning_summary_part.added", **here})
                    kind = "response.reasoning_summary_text.delta"
                    yield from (sse({"type": kind, "delta": piece, **here}) for piece in halves(text))
            yield sse({"type": "response.output_item.done", "item": item, **at})
        end = "response.incomplete" if stop == "length" else "response.completed"
        yield sse({"type": end, "response": self.answer(blocks, stop)})
