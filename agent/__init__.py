"""The transcript side of fumehood: the event log and the content store.

Public names are the ones in `__all__`. Nothing here runs a tool or opens a connection; tools are known only
as "name, schema, call".
"""

from __future__ import annotations

from fumehood.agent._canonical import ValueNotJson, canonical
from fumehood.agent._events import EVENT_KINDS, Event, NewEvent, event_hash
from fumehood.agent._fold import CallState, ExecutionState, StepState, fold
from fumehood.agent._log import EventLog, Head
from fumehood.agent._sqlite import StorageError, StorageFull, StorageVersion
from fumehood.agent._store import ContentMissing, ContentStore, ContentTooLarge, StoredContent
from fumehood.agent._verify import VerifyResult

__all__ = [
    "EVENT_KINDS",
    "CallState",
    "ContentMissing",
    "ContentStore",
    "ContentTooLarge",
    "Event",
    "EventLog",
    "ExecutionState",
    "Head",
    "NewEvent",
    "StepState",
    "StorageError",
    "StorageFull",
    "StorageVersion",
    "StoredContent",
    "ValueNotJson",
    "VerifyResult",
    "canonical",
    "event_hash",
    "fold",
]
