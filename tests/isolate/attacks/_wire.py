"""Frames that a hostile tool writes itself, past our own runtime."""

from __future__ import annotations

import json
import os
import struct
from typing import Any


def frame(payload: bytes, kind: str = "J", length: int | None = None) -> bytes:
    """One frame of the wire, with a length that may lie."""
    return struct.pack(">IB", len(payload) if length is None else length, ord(kind)) + payload


def send(data: bytes) -> None:
    """All of `data` to the call's socket."""
    while data:
        data = data[os.write(3, data[: 1 << 20]) :]


def result(value: Any = "forged") -> bytes:
    """A result that the tool never returned."""
    return frame(json.dumps({"t": "result", "value": value}).encode())
