"""The egress broker: decides by name, dials a pinned address, leaves a record before the first byte."""

from fumehood.broker._broker import Broker, Limits
from fumehood.broker._call import BrokerCall
from fumehood.broker._decide import decide, match
from fumehood.broker._dial import PinnedBackend
from fumehood.broker._fetch import FetchReply, FetchStream
from fumehood.broker._fetch_request import FetchRequest
from fumehood.broker._import import Imported, import_policy
from fumehood.broker._inspect import can_inspect, trust_environment
from fumehood.broker._proxy_door import proxy_environment
from fumehood.broker._suggest import Suggestion, suggest, suggestions_toml
from fumehood.broker._target import BadTarget, Target, parse_authority, parse_url, readable
from fumehood.broker._transparent import NetSockets
from fumehood.broker._types import (
    Answers,
    CallScope,
    EgressDecision,
    EgressPolicy,
    EgressRefused,
    EgressRequest,
    Match,
    Recorder,
)
from fumehood.broker._verdict import Verdict, parse_resolve
from fumehood.broker._verdict import batch as policy_batch
from fumehood.broker._verdict import verdict as policy_verdict

__all__ = [
    "Answers",
    "BadTarget",
    "Broker",
    "BrokerCall",
    "CallScope",
    "EgressDecision",
    "EgressPolicy",
    "EgressRefused",
    "EgressRequest",
    "FetchReply",
    "FetchRequest",
    "FetchStream",
    "Imported",
    "Limits",
    "Match",
    "NetSockets",
    "PinnedBackend",
    "Recorder",
    "Suggestion",
    "Target",
    "Verdict",
    "can_inspect",
    "decide",
    "import_policy",
    "match",
    "parse_authority",
    "parse_resolve",
    "parse_url",
    "policy_batch",
    "policy_verdict",
    "proxy_environment",
    "readable",
    "suggest",
    "suggestions_toml",
    "trust_environment",
]
