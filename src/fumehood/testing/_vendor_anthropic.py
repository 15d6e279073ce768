"""A fake of the Anthropic Messages API."""

from __future__ import annotations

import json
from collections.abc import Iterator

from fumehood.testing._vendor import BadBody, FakeVendor, Json, Say, halves, only, sse, words


class FakeAnthropic(FakeVendor):
    """The Messages API."""

    path = stream_path = "/v1/messages"
    key_header = "x-api-key"

    def check(self, body: Json) -> None:
        only(
            body, "body", "model max_tokens messages", "system tools thinking stream temperature tool_choice"
        )
        declared: list[str] = []
        for index, message in enumerate(body["messages"]):
            where = f"messages.{index}"
            only(message, where, "role content")
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
                only(block, where, "type text", "cache_control citations")
                words(block["text"], where)
            case "image":
                only(block, where, "type source", "cache_control")
                only(block["source"], where, "type media_type data")
            case "document":
                only(block, where, "type source", "title context citations cache_control")
                only(block["source"], where, "type media_type data")
            case "tool_use" if role == "assistant":
                only(block, where, "type id name input", "cache_control caller toolset_name")
                if not isinstance(block["input"], dict):
                    raise BadBody(f"{where}: input should be an object")
            case "tool_result" if role == "user":
                only(block, where, "type tool_use_id content", "is_error cache_control")
                for inner in block["content"] if isinstance(block["content"], list) else ():
                    if inner["type"] not in ("text", "image", "document"):
                        raise BadBody(f"{where}: {inner['type']} in a tool_result")
                    self._block(inner, role, where)
            case "thinking" if role == "assistant":
                only(block, where, "type thinking signature")
            case "redacted_thinking" if role == "assistant":
                only(block, where, "type data")
            case "server_tool_use" | "web_search_tool_result":
                pass
            case kind:
                raise BadBody(f"{where}: {kind} in {role}")

    def _made(self, block: Say) -> Json:
        match block.kind:
            case "text":
                return {"type": "text", "text": block.text, "citations": None, **block.more}
            case "thinking":
                return {"type": "thinking", "thinking": block.text, "signature": block.signature}
            case "redacted":
                return {"type": "redacted_thinking", "data": block.signature}
            case "call":
                value = json.loads(block.arguments) if block.raw_input is None else block.raw_input
                call = {"type": "tool_use", "id": block.id, "name": block.name, "input": value}
                return {**call, **block.more}
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
        yield sse({"type": "message_start", "message": start}, "message_start")
        yield sse({"type": "ping"}, "ping")
        for index, block in enumerate(blocks):
            made = self._made(block)
            deltas: list[Json] = []
            match block.kind:
                case "text":
                    cited = made.get("citations") or []
                    made = made | {"text": ""} | ({"citations": []} if cited else {})
                    deltas = [{"type": "citations_delta", "citation": one} for one in cited]
                    deltas += [{"type": "text_delta", "text": piece} for piece in halves(block.text)]
                case "thinking":
                    made = made | {"thinking": "", "signature": ""}
                    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in halves(block.text)]
                    deltas.append({"type": "signature_delta", "signature": block.signature})
                case "call":
                    made = made | {"input": {}}
                    deltas = [
                        {"type": "input_json_delta", "partial_json": piece}
                        for piece in ("", *halves(block.arguments))
                    ]
            yield sse(
                {"type": "content_block_start", "index": index, "content_block": made}, "content_block_start"
            )
            for delta in deltas:
                yield sse(
                    {"type": "content_block_delta", "index": index, "delta": delta}, "content_block_delta"
                )
            yield sse({"type": "content_block_stop", "index": index}, "content_block_stop")
        delta = {"stop_reason": self._stop(blocks, stop), "stop_sequence": None}
        yield sse({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}}, "message_delta")
        yield sse({"type": "message_stop"}, "message_stop")
