"""A fresh process per call that the kernel walls off: layers, zygotes, the wire, and the verdict on how a
call ended.
"""

from __future__ import annotations

from fumehood.isolate._bpf import why_refused
from fumehood.isolate._child import Streams
from fumehood.isolate._outcome import Verdict
from fumehood.isolate._plan import own_place
from fumehood.isolate._running import Running, Signals
from fumehood.isolate._session import Doors, Ended, Services
from fumehood.isolate._spec import DEFAULT_PATH, CallFrame, Limits, Machine, ToolSpec, proxy_port
from fumehood.isolate._strict_json import NotStrict
from fumehood.isolate._strict_json import decode as decode_strict_json
from fumehood.isolate._zygote import readable
from fumehood.isolate.isolator import Isolator
from fumehood.isolate.tiers import LAYERS, Tier, layer_table

__all__ = [
    "DEFAULT_PATH",
    "LAYERS",
    "CallFrame",
    "Doors",
    "Ended",
    "Isolator",
    "Limits",
    "Machine",
    "NotStrict",
    "Running",
    "Services",
    "Signals",
    "Streams",
    "Tier",
    "ToolSpec",
    "Verdict",
    "decode_strict_json",
    "layer_table",
    "own_place",
    "proxy_port",
    "readable",
    "why_refused",
]
