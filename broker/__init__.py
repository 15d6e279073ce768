"""The egress broker: decides by name, dials a pinned address, leaves a record before the first byte."""

from fumehood.broker._broker import Broker, Limits
from fumehood.broker._call import BrokerCall
from fumehood.broker._decide import decide, match
from fumehood.broker._dial import PinnedBackend
from fumehood.broker._fetch import FetchReply, FetchRequest, FetchStream
from fumehood.broker._target import BadTarget, Target, parse_authority, parse_url
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
    "Limits",
    "Match",
    "PinnedBackend",
    "Recorder",
    "Target",
    "decide",
    "match",
    "parse_authority",
    "parse_url",
]
