"""Fake model vendors: they speak the wire of the real ones, check every body strictly, and answer from a
script.

A fake is the answer function of `fumehood.testing.http.HttpServer`. `say` queues an answer as blocks in
order; the fake writes it as one JSON object, or as server-sent events when the request asks for a stream, so
both carry the same answer. A body the vendor would refuse is answered 400 with the reason. `bodies` keeps
what came. Rules that only the live services know are not here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fumehood.testing._vendor import BadBody, FakeVendor, Say
from fumehood.testing._vendor_anthropic import FakeAnthropic
from fumehood.testing._vendor_gemini import FakeGemini
from fumehood.testing._vendor_openai import FakeOpenAIChat, FakeOpenAIResponses

__all__ = [
    "VENDORS",
    "BadBody",
    "FakeAnthropic",
    "FakeGemini",
    "FakeOpenAIChat",
    "FakeOpenAIResponses",
    "FakeVendor",
    "Say",
]

VENDORS: Mapping[str, Callable[[], FakeVendor]] = {
    "anthropic": FakeAnthropic,
    "openai-chat": FakeOpenAIChat,
    "openai-responses": FakeOpenAIResponses,
    "gemini": FakeGemini,
}
