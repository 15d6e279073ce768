"""Frames as the worker reads them: whole ones, under a deadline for their beginning alone."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from fumehood.sandbox.child._frames import MAX_BODY, BlockingFrames, FrameError, pack


@pytest.fixture
def pair() -> Iterator[tuple[BlockingFrames, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield BlockingFrames(ours), theirs


def test_frames_that_come_in_pieces_and_together_are_read_one_by_one(
    pair: tuple[BlockingFrames, socket.socket],
) -> None:
    frames, other = pair
    both = pack({"n": 1}, b"x" * 100_000) + pack({"n": 2})
    for start in range(0, len(both), 7000):
        other.sendall(both[start : start + 7000])
    assert frames.receive(5.0) == ({"n": 1}, b"x" * 100_000)
    assert frames.receive(5.0) == ({"n": 2}, b"")


@pytest.mark.parametrize("sent", [b"", b"\1\2"], ids=["nothing", "half a head"])
def test_a_frame_that_does_not_begin_in_time_is_none(
    pair: tuple[BlockingFrames, socket.socket], sent: bytes
) -> None:
    frames, other = pair
    other.sendall(sent)
    assert frames.receive(0.01) is None
    assert frames.receive(0.0) is None


def test_an_end_in_the_middle_and_a_length_past_the_cap_are_errors(
    pair: tuple[BlockingFrames, socket.socket],
) -> None:
    frames, other = pair
    other.sendall((2).to_bytes(4, "little") + (MAX_BODY + 1).to_bytes(4, "little"))
    with pytest.raises(FrameError, match="past the cap"):
        frames.receive(5.0)
    other.close()
    ours, theirs = socket.socketpair()
    with ours:
        theirs.sendall(pack({"n": 1})[:5])
        theirs.close()
        with pytest.raises(EOFError):
            BlockingFrames(ours).receive(5.0)
