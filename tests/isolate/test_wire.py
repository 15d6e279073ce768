"""The host's reading code against anything a child can write: frames, messages and whole calls over
a socket pair, with no real child.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fumehood.isolate import CallFrame, Ended, Limits, ToolSpec
from fumehood.isolate._child import Child
from fumehood.isolate._figures import Reading
from fumehood.isolate._line import Line, OutputTooLong, ProtocolError
from fumehood.isolate._session import Session
from fumehood.isolate._zygote import Exit
from fumehood.isolate.child.frames import DATA, DATA_CHUNK, HEADER, JSON, FrameError, FrameParser, header
from tests.isolate.runner import Services

pytestmark = pytest.mark.anyio

STREAMS = 10_000
CALLS = 3_000
_FRAMES = st.lists(st.tuples(st.sampled_from([JSON, DATA]), st.binary(max_size=300)), max_size=8)


@pytest.mark.promise("isolate:any-bytes-from-a-child")
@pytest.mark.requirement("R478")
@given(frames=_FRAMES, cuts=st.lists(st.integers(1, 64)))
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    frames: list[tuple[int, bytes]], cuts: list[int]
) -> None:
    data = b"".join(header(kind, len(payload)) + payload for kind, payload in frames)
    parser, found = FrameParser(), []
    for size in cuts:
        found += parser.feed(data[:size])
        data = data[size:]
    assert found + parser.feed(data) == frames
    assert parser.pending == 0


@pytest.mark.promise("isolate:any-bytes-from-a-child")
@pytest.mark.requirement("R478")
@given(data=st.binary(max_size=600), cap=st.integers(0, 64), size=st.integers(1, 100))
def test_any_bytes_give_frames_below_the_cap_or_a_frame_error(data: bytes, cap: int, size: int) -> None:
    parser = FrameParser(cap)
    try:
        for start in range(0, len(data), size):
            for kind, payload in parser.feed(data[start : start + size]):
                assert kind in (JSON, DATA)
                assert len(payload) <= (cap if kind == JSON else DATA_CHUNK)
            assert parser.pending <= HEADER.size + max(cap, DATA_CHUNK) + size
    except FrameError:
        pass


@pytest.mark.promise("isolate:any-bytes-from-a-child")
@given(length=st.integers(0, 2**32 - 1), kind=st.integers(0, 255), cap=st.integers(0, 2**31))
def test_a_length_is_judged_before_anything_is_kept_for_it(length: int, kind: int, cap: int) -> None:
    allowed = {JSON: cap, DATA: DATA_CHUNK}.get(kind)
    parser = FrameParser(cap)
    if allowed is None or length > allowed:
        with pytest.raises(FrameError):
            parser.feed(struct.pack(">IB", length, kind))
    else:
        assert parser.feed(struct.pack(">IB", length, kind)) == ([(kind, b"")] if length == 0 else [])


# -- streams of a hostile child ------------------------------------------------------------------------------

_KINDS = [
    "result",
    "result",
    "result",
    "error",
    "exec-failed",
    "emit",
    "log",
    "fetch",
    "put",
    "ready",
    "caged",
    "call",
    "reply",
    "",
    "t",
    "\x00",
]
_ODD: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    2**63,
    2**200,
    1.5,
    "",
    "x",
    "é" * 50,
    "a" * 5000,
    [],
    [[]],
    {},
    {"t": "result"},
    [1, "2", None],
]
_KEYS = [
    "value",
    "id",
    "bytes",
    "kind",
    "data",
    "text",
    "url",
    "method",
    "headers",
    "media_type",
    "type",
    "message",
    "trace",
    "errno",
    "reason",
    "program",
]


def _message(dice: random.Random) -> bytes:
    """A frame that is nearly right."""
    fields = {
        key: dice.choice(_ODD)
        for key in dice.sample(_KEYS, dice.randrange(len(_KEYS)))
        if dice.random() < 0.5
    }
    if dice.random() < 0.9:
        fields["t"] = dice.choice(_KINDS) if dice.random() < 0.9 else dice.choice(_ODD)
    payload = json.dumps(fields).encode()
    if dice.random() < 0.1:
        at = dice.randrange(len(payload) + 1)
        payload = payload[:at] + dice.randbytes(dice.randrange(4)) + payload[at:]
    length = (
        len(payload)
        if dice.random() < 0.95
        else dice.choice([0, 1, len(payload) + 1, 2**20 + 5000, 2**31, 2**32 - 1])
    )
    return (
        struct.pack(">IB", length, dice.choice(b"JJJJJJJJJDDX\x00") if dice.random() < 0.3 else ord("J"))
        + payload
    )


def _stream(dice: random.Random) -> bytes:
    parts = [_message(dice) for _ in range(dice.randrange(5))]
    if dice.random() < 0.3:
        parts.insert(dice.randrange(len(parts) + 1), dice.randbytes(dice.randrange(200)))
    if dice.random() < 0.3:
        size = dice.choice([0, 1, 100, DATA_CHUNK])
        parts.append(struct.pack(">IB", size, DATA) + bytes(size))
    return b"".join(parts)


class PairedChild(Child):
    """The host's side of a child that is only a socket."""

    def __init__(self) -> None:
        super().__init__(zygote=None)  # type: ignore[arg-type]
        self._line = Line()

    async def ended(self) -> Exit | None:
        return Exit(0, 0.0, 0)

    def figures(self) -> Reading:
        return Reading(0.0, 0, 0)

    def kill(self) -> None:
        return None


def _line(data: bytes) -> Line:
    """The host's end, with a child that sends `data` and is gone."""
    line = Line()
    line.theirs.sendall(data)
    line.theirs.close()
    return line


@pytest.mark.promise("isolate:any-bytes-from-a-child")
@pytest.mark.requirement("R478")
async def test_ten_thousand_streams_end_in_a_protocol_error_or_the_end_of_the_stream() -> None:
    ends: dict[str, int] = {}
    for number in range(STREAMS):
        with contextlib.closing(_line(_stream(random.Random(number)))) as line:
            try:
                while True:
                    message, body = await line.receive()
                    assert isinstance(message["t"], str)
                    assert len(body) == message.get("bytes", 0)
            except (ProtocolError, OutputTooLong, EOFError) as error:
                ends[type(error).__name__] = ends.get(type(error).__name__, 0) + 1
    # Each kind of end is reached, so that the streams are neither all nonsense nor all well.
    assert set(ends) == {"ProtocolError", "OutputTooLong", "EOFError"}
    assert min(ends.values()) > STREAMS // 200, ends


@pytest.mark.promise("isolate:any-bytes-from-a-child")
@pytest.mark.promise("isolate:verdict-from-the-host")
@pytest.mark.requirement("R479")
@pytest.mark.parametrize("kind", ["module", "command"])
async def test_whole_calls_over_such_streams_end_in_a_verdict(kind: str) -> None:
    limits = Limits(timeout_s=5.0, output=1 << 20)
    spec = ToolSpec("paired", kind, argv=("true",), limits=limits)  # type: ignore[arg-type]
    outcomes: dict[str, int] = {}
    for number in range(CALLS):
        # The stream comes after the call: what is there before it is refused as a whole.
        child = AnsweringChild(_stream(random.Random(number)))
        with contextlib.closing(child.line):
            ended = await Session(child, spec, CallFrame("c", {}, {}), Services()).run()
        assert isinstance(ended, Ended)
        json.dumps([ended.verdict.value, ended.verdict.error, ended.events])
        outcomes[ended.verdict.outcome] = outcomes.get(ended.verdict.outcome, 0) + 1
    # A command has no socket of ours: what ends with code 0, as this one does, is well.
    wanted = {
        "module": {"ok", "tool_error", "sandbox_error", "limit"},
        "command": {"ok", "sandbox_error", "limit"},
    }[kind]
    assert set(outcomes) == wanted, outcomes


class AnsweringChild(PairedChild):
    """Sends its stream once it has been called."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = data

    async def begin(self, spec: ToolSpec, frame: CallFrame) -> None:
        await super().begin(spec, frame)
        self.line.theirs.sendall(self._data)
        self.line.theirs.close()


@pytest.mark.promise("isolate:any-bytes-from-a-child")
@pytest.mark.parametrize("payload", [0, 1000])
async def test_what_nobody_asked_for_stays_in_the_child_s_socket(payload: int) -> None:
    """Also where each frame is empty: a frame costs the host something, whatever is in it."""
    line = Line()
    with contextlib.closing(line):
        line.theirs.setblocking(False)
        frames = (header(JSON, payload) + bytes(payload)) * (65536 // (payload + 5))
        sent, idle = 0, 0
        while idle < 10:
            try:
                sent += line.theirs.send(frames)
                idle = 0
            except BlockingIOError:
                idle += 1
                await asyncio.sleep(0)
        held = len(line._frames)
    assert 0 < held <= DATA_CHUNK / 5 + 2000
    assert sent < 8 << 20, "the rest waits where the child pays for it"
