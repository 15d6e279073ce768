"""A sandbox for scripts a model wrote: a fresh WASM instance per script, in a worker process, with
granted tools as functions.

`ScriptRunner` runs scripts; `SandboxBackend` is the seam for another engine. Importing this costs no
engine: wasmtime is loaded in worker processes only, or when `in_process=True` was asked for.
"""

from __future__ import annotations

from fumehood.sandbox._bridge import CallTool, Fetch
from fumehood.sandbox._launch import UncagedLauncher, WorkerEntry, WorkerLauncher, WorkerProcess
from fumehood.sandbox._model import (
    Capabilities,
    Ending,
    FetchAnswer,
    FetchCall,
    Limits,
    Script,
    ScriptError,
    ScriptEvent,
    ScriptResult,
    ToolAnswer,
    ToolCall,
    ToolRefused,
    ToolSignature,
)
from fumehood.sandbox._process_backend import ProcessBackend
from fumehood.sandbox._protocol import GROUP, Bridge, LimitHit, SandboxBackend
from fumehood.sandbox._runner import ScriptRunner
from fumehood.sandbox._signatures import (
    RUN_SCRIPT_SCHEMA,
    declarations,
    python_stubs,
    run_script_tool,
    typescript,
)

__all__ = [
    "GROUP",
    "RUN_SCRIPT_SCHEMA",
    "Bridge",
    "CallTool",
    "Capabilities",
    "Ending",
    "Fetch",
    "FetchAnswer",
    "FetchCall",
    "LimitHit",
    "Limits",
    "ProcessBackend",
    "SandboxBackend",
    "Script",
    "ScriptError",
    "ScriptEvent",
    "ScriptResult",
    "ScriptRunner",
    "ToolAnswer",
    "ToolCall",
    "ToolRefused",
    "ToolSignature",
    "UncagedLauncher",
    "WorkerEntry",
    "WorkerLauncher",
    "WorkerProcess",
    "declarations",
    "python_stubs",
    "run_script_tool",
    "typescript",
]
