"""What may be given to a tool: a JSON value of bounded size that its schema allows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fumehood.policies.config import ToolConfig

MAX_INPUT_BYTES = 8 << 20
"""The input of a call as JSON; larger inputs belong into the content store."""


class Inputs:
    """Checks inputs under one configuration; a tool's schema is compiled once."""

    def __init__(self) -> None:
        self._validators: dict[str, Any] = {}

    def fault(self, name: str, tool: ToolConfig, value: Any) -> tuple[str, str] | None:
        """(reason, sentence) when the input may not reach the tool."""
        try:
            size = len(json.dumps(value, allow_nan=False).encode())
        except (TypeError, ValueError, RecursionError) as error:
            return "input-schema", f"the input is no JSON value: {error}"
        if size > MAX_INPUT_BYTES:
            return "oversized-input", f"the input has {size} bytes as JSON, the limit is {MAX_INPUT_BYTES}"
        if tool.input_schema is None:
            return None
        from fumehood.policies import schemas

        validator = self._validators.get(name)
        if validator is None:
            validator = self._validators[name] = schemas.validator(tool.input_schema)
        fault = schemas.first_fault(validator, value)
        return None if fault is None else ("input-schema", fault)
