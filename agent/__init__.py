"""The transcript side of fumehood: event log, content store, messages, taint, guard and providers.

Public names are the ones in `__all__`. Log and store are imported at once; everything that needs pydantic
comes on first use, so that importing the package stays cheap. Nothing here runs a tool or opens a connection
of its own; tools are known only as "name, schema, call".
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from fumehood.agent._canonical import ValueNotJson, canonical
from fumehood.agent._errors import (
    AgentLoopConfigError,
    GuardError,
    MessageStructureError,
    OversizedInlinePartError,
    ProviderError,
    UnresolvedContentError,
    UnsupportedModalityError,
    UntrustedContentError,
)
from fumehood.agent._events import EVENT_KINDS, Event, NewEvent, event_hash
from fumehood.agent._fence import UNTRUSTED_CONTENT_SYSTEM_NOTE, fence
from fumehood.agent._fold import CallState, ExecutionState, StepState, fold
from fumehood.agent._log import EventLog
from fumehood.agent._log_table import Head
from fumehood.agent._media import media_fault, sniff, type_of_file
from fumehood.agent._sqlite import StorageError, StorageFull, StorageVersion
from fumehood.agent._store import ContentMissing, ContentStore, ContentTooLarge, StoredContent
from fumehood.agent._taint import (
    is_tainted,
    map_tainted,
    origin_of,
    propagate,
    result_origin,
    taint_origins,
    taint_result,
    tainted,
    unwrap_tainted,
)
from fumehood.agent._verify import VerifyResult

if TYPE_CHECKING:
    from fumehood.agent._audit import ReadReasoning as ReadReasoning
    from fumehood.agent._audit import read_reasoning as read_reasoning
    from fumehood.agent._audit import read_reasoning_bounded as read_reasoning_bounded
    from fumehood.agent._capabilities import assert_request_supported as assert_request_supported
    from fumehood.agent._effect import EffectContext as EffectContext
    from fumehood.agent._effect import collect_stream as collect_stream
    from fumehood.agent._effect import create_agent_model_effect as create_agent_model_effect
    from fumehood.agent._effect import create_llm_effect as create_llm_effect
    from fumehood.agent._effect import parse_request as parse_request
    from fumehood.agent._guard import MAX_INLINE_BYTES as MAX_INLINE_BYTES
    from fumehood.agent._guard import MAX_INLINE_TOTAL_BYTES as MAX_INLINE_TOTAL_BYTES
    from fumehood.agent._guard import MAX_TAINT_NODES as MAX_TAINT_NODES
    from fumehood.agent._guard import guard_request as guard_request
    from fumehood.agent._parts import Capabilities as Capabilities
    from fumehood.agent._parts import Message as Message
    from fumehood.agent._parts import Request as Request
    from fumehood.agent._parts import strip_framework_fields as strip_framework_fields
    from fumehood.agent._reasoning import ReasoningOptions as ReasoningOptions
    from fumehood.agent._reasoning import drop_reasoning as drop_reasoning
    from fumehood.agent._reasoning import reasoning_store_resolver as reasoning_store_resolver
    from fumehood.agent._redact import RedactionPolicy as RedactionPolicy
    from fumehood.agent._resolve import MAX_RESOLVED_BYTES as MAX_RESOLVED_BYTES
    from fumehood.agent._resolve import RESOLVE_CONCURRENCY as RESOLVE_CONCURRENCY
    from fumehood.agent._resolve import ResolveContext as ResolveContext
    from fumehood.agent._resolve import owner_resolver as owner_resolver
    from fumehood.agent._resolve import resolve_request_content as resolve_request_content
    from fumehood.agent._response import Response as Response
    from fumehood.agent._response import ToolCall as ToolCall
    from fumehood.agent._response import assistant_message_of as assistant_message_of
    from fumehood.agent._response import layout_of as layout_of
    from fumehood.agent._response import text_free_reasoning as text_free_reasoning
    from fumehood.agent._results import InlineBudget as InlineBudget
    from fumehood.agent._results import media_result as media_result
    from fumehood.agent._results import results_message as results_message
    from fumehood.agent._results import screen_input as screen_input
    from fumehood.agent._results import tool_result as tool_result
    from fumehood.agent._sweep import sweep_unpinned_content as sweep_unpinned_content
    from fumehood.agent._tickets import TicketBooth as TicketBooth
    from fumehood.agent._tickets import TicketRefused as TicketRefused

_LATER = {
    "_audit": ("ReadReasoning", "read_reasoning", "read_reasoning_bounded"),
    "_capabilities": ("assert_request_supported",),
    "_effect": (
        "EffectContext",
        "collect_stream",
        "create_agent_model_effect",
        "create_llm_effect",
        "parse_request",
    ),
    "_guard": ("MAX_INLINE_BYTES", "MAX_INLINE_TOTAL_BYTES", "MAX_TAINT_NODES", "guard_request"),
    "_parts": ("Capabilities", "Message", "Request", "strip_framework_fields"),
    "_reasoning": ("ReasoningOptions", "drop_reasoning", "reasoning_store_resolver"),
    "_redact": ("RedactionPolicy",),
    "_resolve": (
        "MAX_RESOLVED_BYTES",
        "RESOLVE_CONCURRENCY",
        "ResolveContext",
        "owner_resolver",
        "resolve_request_content",
    ),
    "_response": ("Response", "ToolCall", "assistant_message_of", "layout_of", "text_free_reasoning"),
    "_results": ("InlineBudget", "media_result", "results_message", "screen_input", "tool_result"),
    "_sweep": ("sweep_unpinned_content",),
    "_tickets": ("TicketBooth", "TicketRefused"),
}
_MODULE_OF = {name: module for module, names in _LATER.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


__all__ = [
    "EVENT_KINDS",
    "MAX_INLINE_BYTES",
    "MAX_INLINE_TOTAL_BYTES",
    "MAX_RESOLVED_BYTES",
    "MAX_TAINT_NODES",
    "RESOLVE_CONCURRENCY",
    "UNTRUSTED_CONTENT_SYSTEM_NOTE",
    "AgentLoopConfigError",
    "CallState",
    "Capabilities",
    "ContentMissing",
    "ContentStore",
    "ContentTooLarge",
    "EffectContext",
    "Event",
    "EventLog",
    "ExecutionState",
    "GuardError",
    "Head",
    "InlineBudget",
    "Message",
    "MessageStructureError",
    "NewEvent",
    "OversizedInlinePartError",
    "ProviderError",
    "ReadReasoning",
    "ReasoningOptions",
    "RedactionPolicy",
    "Request",
    "ResolveContext",
    "Response",
    "StepState",
    "StorageError",
    "StorageFull",
    "StorageVersion",
    "StoredContent",
    "TicketBooth",
    "TicketRefused",
    "ToolCall",
    "UnresolvedContentError",
    "UnsupportedModalityError",
    "UntrustedContentError",
    "ValueNotJson",
    "VerifyResult",
    "assert_request_supported",
    "assistant_message_of",
    "canonical",
    "collect_stream",
    "create_agent_model_effect",
    "create_llm_effect",
    "drop_reasoning",
    "event_hash",
    "fence",
    "fold",
    "guard_request",
    "is_tainted",
    "layout_of",
    "map_tainted",
    "media_fault",
    "media_result",
    "origin_of",
    "owner_resolver",
    "parse_request",
    "propagate",
    "read_reasoning",
    "read_reasoning_bounded",
    "reasoning_store_resolver",
    "resolve_request_content",
    "result_origin",
    "results_message",
    "screen_input",
    "sniff",
    "strip_framework_fields",
    "sweep_unpinned_content",
    "taint_origins",
    "taint_result",
    "tainted",
    "text_free_reasoning",
    "tool_result",
    "type_of_file",
    "unwrap_tainted",
]
