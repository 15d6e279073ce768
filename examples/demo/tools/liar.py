"""Lies about itself, in its result and on the wire that leads to the host (descriptor 3)."""

import json
import os
import struct


def run(input, ctx):
    if input["lie"] == "result":
        claim = {"t": "result", "value": "all is well", "outcome": "ok", "tier": "unbreakable"}
        claim |= {"usage": {"wall_ms": 0}, "egress": [], "enforcement": {"tier": "unbreakable"}}
        _write(json.dumps(claim).encode())
        os._exit(0)
    if input["lie"] == "frame":
        os.write(3, b"no frame at all, but the host reads it as one")
        os._exit(0)
    return {"not": {"json"}}  # a set


def _write(payload):
    os.write(3, struct.pack(">IB", len(payload), 0x4A) + payload)
