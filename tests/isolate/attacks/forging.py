"""Section D of the catalogue: frames, lengths and JSON that lie."""

from __future__ import annotations

import json
import os
import signal
import struct
import time
from collections.abc import Callable

from tests.isolate.attacks._model import MIB, PEOPLE, Ends, Table, World, limits, one_of
from tests.isolate.attacks._wire import frame, result, send

TABLE = Table()
attack = TABLE.add


# 60 ---------------------------------------------------------------------------------------------------------

_FORGERIES: dict[str, Callable[[], bytes]] = {
    "for another call": lambda: frame(
        json.dumps({"t": "result", "call_id": "call-of-another", "value": "forged"}).encode()
    ),
    "twice": lambda: result("first") + result("second"),
    "events after the end": lambda: result("first") + frame(b'{"t":"emit","kind":"LATE","data":1}'),
    "without a value": lambda: frame(b'{"t":"result"}'),
    "caged again": lambda: frame(b'{"t":"caged","layers":{}}'),
    "ready again": lambda: frame(b'{"t":"ready","error":null}'),
    "ready without anything": lambda: frame(b'{"t":"ready"}'),
    "a call of its own": lambda: frame(b'{"t":"call","call_id":"x","tool":"other","input":{},"env":{}}'),
    "program that did not start": lambda: frame(
        b'{"t":"exec-failed","program":"x","errno":2,"error":"not found"}'
    ),
    "program without anything": lambda: frame(b'{"t":"exec-failed"}'),
    "error without anything": lambda: frame(b'{"t":"error"}'),
    "error of odd types": lambda: frame(
        b'{"t":"error","type":["MemoryError"],"message":7,"trace":null,"kind":{},"errno":"11","reason":"timeout"}'
    ),
    "zygote's end": lambda: frame(b'{"t":"exit","n":1,"code":0,"cpu":0,"rss":0}'),
}


@attack(
    60,
    "forged-frames",
    caged={
        "for another call": {"value": "forged"},
        "twice": {"value": "first"},
        "events after the end": {"value": "first"},
        "without a value": "sandbox_error protocol",
        "caged again": "sandbox_error protocol",
        "ready again": "sandbox_error protocol",
        "ready without anything": "sandbox_error protocol",
        "a call of its own": "sandbox_error protocol",
        "program that did not start": "sandbox_error protocol",
        "program without anything": "sandbox_error protocol",
        "error without anything": "tool_error",
        "error of odd types": "tool_error",
        "zygote's end": "sandbox_error protocol",
        "next": "ok",
        "late events": 0,
    },
    no_control="`test_controls`: a host that takes every well-formed frame takes these",
    first="host code",
    only=PEOPLE,
    host="forged_frames",
)
def forged_frames(world: World) -> str:
    """Well-formed frames that are not this child's to send, or not now; then wait to be ended."""
    send(_FORGERIES[world["forgery"]]())
    signal.pause()
    return "not reached"


@attack(
    60,
    "frame-on-standard-output",
    caged={"value": "real", "stdout": True, "next": "ok"},
    control="real",
    control_as="user",
    first="host code",
    only=PEOPLE,
    host="frame_on_stdout",
)
def frame_on_standard_output(world: World) -> str:
    """The same bytes where only the tool's own text belongs."""
    os.write(1, result())
    os.write(2, result())
    return "real"


IMPORTED = {
    "result": result().hex(),
    "ready": frame(b'{"t":"ready","error":null}').hex(),
    "ready and result": (frame(b'{"t":"ready"}') + result()).hex(),
    "ready with a list": frame(b'{"t":"ready","error":["x"]}').hex(),
    "caged": frame(b'{"t":"caged","layers":{}}').hex(),
    "nonsense": b"GET / HTTP/1.1".hex(),
    "half a frame": frame(b"x", length=100).hex(),
}


@attack(
    60,
    "frames-before-the-call",
    caged={
        "result": "sandbox_error start",
        "ready": "sandbox_error protocol",
        "ready and result": "sandbox_error protocol",
        "ready with a list": "sandbox_error protocol",
        "caged": "sandbox_error start",
        "nonsense": "sandbox_error start",
        "half a frame": "sandbox_error start",
        "next": "ok",
    },
    no_control="`test_controls`: a host that takes every well-formed frame takes these",
    first="host code",
    only=PEOPLE,
    host="frames_before_the_call",
)
def frames_before_the_call(world: World) -> None:
    """The module writes to the call's socket while it is imported: before it is ready, and in its
    name. (The driver writes the module.)
    """


# 61 ---------------------------------------------------------------------------------------------------------

_LENGTHS: dict[str, bytes] = {
    "4 GiB": frame(b"x", length=0xFFFFFFFF),
    "as a negative number": frame(b"x", length=0x80000000),
    "just above the cap": frame(b"x", length=(8 << 20) + 4097),
    "nothing": frame(b""),
    "unknown kind": frame(b"{}", kind="X"),
    "kind zero": struct.pack(">IB", 2, 0) + b"{}",
    "bytes above their cap": frame(b'{"t":"put","id":1,"bytes":1000000}')
    + frame(b"", kind="D", length=(256 << 10) + 1),
    "more bytes than announced": frame(b'{"t":"put","id":1,"bytes":1}') + frame(b"xx", kind="D"),
    "no bytes where announced": frame(b'{"t":"put","id":1,"bytes":1}') + result(),
    "empty bytes": frame(b'{"t":"put","id":1,"bytes":1}') + frame(b"", kind="D"),
    "one byte more than sent": frame(b'{"t":"result","value":1}', length=25),
    "half a head": b"\0\0",
}


@attack(
    61,
    "length-prefix",
    caged={
        "4 GiB": "sandbox_error protocol",
        "as a negative number": "sandbox_error protocol",
        "just above the cap": "limit output",
        "nothing": "sandbox_error protocol",
        "unknown kind": "sandbox_error protocol",
        "kind zero": "sandbox_error protocol",
        "bytes above their cap": "sandbox_error protocol",
        "more bytes than announced": "sandbox_error protocol",
        "no bytes where announced": "sandbox_error protocol",
        "empty bytes": "sandbox_error protocol",
        "one byte more than sent": "limit timeout",
        "half a head": "limit timeout",
        "memory": "bounded",
        "next": "ok",
    },
    no_control="`test_controls`: a reader that allocates what it is told to",
    first="host code",
    cage=limits(timeout_s=0.7),
    only=PEOPLE,
    heavy=True,
    host="length_prefix",
)
def length_prefix(world: World) -> str:
    """Lengths that lie, then silence."""
    send(_LENGTHS[world["lie"]])
    signal.pause()
    return "not reached"


@attack(
    61,
    "trickle",
    caged=Ends("limit", "timeout"),
    no_control="the deadline is the host's own",
    first="host code",
    cage=limits(timeout_s=0.7),
    only=PEOPLE,
)
def trickle(world: World) -> None:
    """One byte of a frame at a time, for ever."""
    data = frame(b'{"t":"result","value":"' + b"x" * 4000 + b'"}')
    for at in range(len(data)):
        os.write(3, data[at : at + 1])
        time.sleep(0.01)


# 62, 63 -----------------------------------------------------------------------------------------------------


def _value(text: str | bytes) -> bytes:
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return frame(b'{"t":"result","value":' + raw + b"}")


TRAPS: dict[str, Callable[[], bytes]] = {
    "100000 lists": lambda: _value("[" * 100_000 + "]" * 100_000),
    "100000 objects": lambda: _value('{"a":' * 100_000 + "1" + "}" * 100_000),
    "100000 lists, never closed": lambda: frame(b"[" * 100_000),
    "150000 keys": lambda: _value("{" + ",".join(f'"{n}":0' for n in range(150_000)) + "}"),
    "keys that collide": lambda: _value("{" + ",".join(f'"{n}":0' for n in range(0, 1 << 23, 1 << 10)) + "}"),
    "the same key again": lambda: _value('{"a":1,"a":2}'),
    "type twice": lambda: frame(b'{"t":"result","value":1,"t":"shutdown"}'),
    "NaN": lambda: _value("NaN"),
    "Infinity": lambda: _value("-Infinity"),
    "minus zero": lambda: _value("-0"),
    "1e400": lambda: _value("1e400"),
    "1e999999999999": lambda: _value("1e999999999999"),
    "long integer": lambda: _value("9" * 100_000),
    "long fraction": lambda: _value("0." + "1" * 100_000),
    "lone surrogate": lambda: _value('"\\ud800"'),
    "raw surrogate": lambda: _value('"\ud800"'),
    "not UTF-8": lambda: _value(b'"\xff"'),
    "UTF-16": lambda: frame('{"t":"result","value":1}'.encode("utf-16")),
    "byte order mark": lambda: frame(b'\xef\xbb\xbf{"t":"result","value":1}'),
    "NUL in text": lambda: _value('"\\u0000"'),
    "raw control": lambda: _value('"\x01"'),
    "prototype": lambda: _value('{"__proto__":{"admin":true},"constructor":{"prototype":1},"__class__":"x"}'),
    "trailing comma": lambda: _value("[1,]"),
    "comment": lambda: _value("1/*x*/"),
    "two values": lambda: frame(b'{"t":"result","value":1}{"t":"result","value":2}'),
    "whole number with a point": lambda: _value("1.0"),
    "single quotes": lambda: _value("'x'"),
    "hexadecimal": lambda: _value("0x10"),
    "taint marker": lambda: _value('{"__tainted__":{"origin":"system","value":"trust me"}}'),
}

_REFUSED = "sandbox_error protocol"


@attack(
    62,
    "json-traps",
    caged={
        "100000 lists": _REFUSED,
        "100000 objects": _REFUSED,
        "100000 lists, never closed": _REFUSED,
        "150000 keys": {"keys": 150_000},
        "keys that collide": {"keys": 8192},
        "the same key again": {"value": {"a": 2}},
        "type twice": _REFUSED,
        "NaN": _REFUSED,
        "Infinity": _REFUSED,
        "minus zero": {"value": 0},
        "1e400": _REFUSED,
        "1e999999999999": _REFUSED,
        "long integer": _REFUSED,
        "long fraction": {"value": 0.1111111111111111},
        "lone surrogate": _REFUSED,
        "raw surrogate": _REFUSED,
        "not UTF-8": _REFUSED,
        "UTF-16": _REFUSED,
        "byte order mark": _REFUSED,
        "NUL in text": {"value": "\x00"},
        "raw control": _REFUSED,
        "prototype": {
            "value": {"__proto__": {"admin": True}, "constructor": {"prototype": 1}, "__class__": "x"}
        },
        "trailing comma": _REFUSED,
        "comment": _REFUSED,
        "two values": _REFUSED,
        "whole number with a point": {"value": 1.0},
        "single quotes": _REFUSED,
        "hexadecimal": _REFUSED,
        "taint marker": {"value": {"__tainted__": {"origin": "system", "value": "trust me"}}},
        "next": "ok",
    },
    no_control="`test_controls`: Python's own json.loads falls to several of these",
    first="host code",
    only=PEOPLE,
    host="json_traps",
)
def json_traps(world: World) -> str:
    """One odd JSON text as the result."""
    send(TRAPS[world["trap"]]())
    signal.pause()
    return "not reached"


@attack(
    62,
    "objects-out-of-bytes",
    caged={"outcome": one_of("ok", "sandbox_error protocol"), "memory": "bounded", "next": "ok"},
    no_control="`test_controls`: Python's own json.loads falls to several of these",
    first="host code",
    cage=limits(output=MIB),
    only=PEOPLE,
    heavy=True,
    host="objects_out_of_bytes",
)
def objects_out_of_bytes(world: World) -> str:
    """A megabyte of empty lists: each byte becomes thirty in the host."""
    send(_value("[" + "[]," * 330_000 + "[]]"))
    signal.pause()
    return "not reached"


@attack(
    63,
    "pickle",
    caged={"outcomes": ["sandbox_error protocol"] * 3, "ran": False, "next": "ok"},
    no_control="`test_controls` unpickles the same bytes: it runs",
    first="host code",
    only=PEOPLE,
    host="pickled",
)
def pickle_(world: World) -> str:
    """A pickle that would run a program, as a frame, as bytes, and naked."""
    data = bytes.fromhex(world["pickle"])
    send({"frame": frame(data), "bytes": frame(data, kind="D"), "naked": data}[world["how"]])
    signal.pause()
    return "not reached"
