"""A fake of Gemini generateContent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from fumehood.testing._vendor import BadBody, FakeVendor, Json, Say, halves, only, sse
from fumehood.testing.http import Seen


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
        only(body, "body", "contents", "systemInstruction tools generationConfig")
        calls: list[str] = []
        for index, entry in enumerate(body["contents"]):
            where = f"contents.{index}"
            only(entry, where, "role parts")
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
        fields = part.keys() - {"thought", "thoughtSignature", "partMetadata"}
        if len(fields) != 1 or not fields <= {
            "text",
            "inlineData",
            "functionCall",
            "functionResponse",
            "executableCode",
        }:
            raise BadBody(f"{where}: part with {sorted(part)}")
        if "inlineData" in part:
            only(part["inlineData"], where, "mimeType data")
        if "functionCall" in part:
            only(part["functionCall"], where, "name args", "id")
        if "functionResponse" in part:
            only(part["functionResponse"], where, "name response", "id")

    def _made(self, block: Say) -> Json:
        mark = {} if block.signature is None else {"thoughtSignature": block.signature}
        match block.kind:
            case "text":
                return {"text": block.text, **mark, **block.more}
            case "thinking":
                return {"text": block.text, "thought": True, **mark}
            case "redacted":
                return {"text": "", **mark}
            case "call":
                if block.signature is not None:
                    self._signed[json.dumps(block.input, sort_keys=True)] = block.signature
                call = {"name": block.name, "args": block.input} | ({"id": block.id} if block.id else {})
                return {"functionCall": call, **mark, **block.more}
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
            if "text" in part and not {"thoughtSignature", "partMetadata"} & part.keys():
                pieces = [part | {"text": piece} for piece in halves(part["text"])]
            for piece in pieces:
                yield sse({"candidates": [{"index": 0, "content": {"role": "model", "parts": [piece]}}]})
        last = {"index": 0, "finishReason": whole["candidates"][0]["finishReason"]}
        yield sse({"candidates": [last], "usageMetadata": whole["usageMetadata"]})
